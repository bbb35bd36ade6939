"""Spherical SGD: laws, risk, drift and noise against brute-force sampling, expansions against numerical ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import sympy as sp

from derive.expectation import Expectation
from derive.functions import He, attention, relu, sigmoid
from derive.mechanisms.escape import leading_strength
from derive.mechanisms.spherical_sgd import SphericalSgd, cross_terms
from derive.rules import closed_form, reduced
from tests.derive.problems import (
    HALF_SQUARE,
    Array,
    attention_pair,
    f,
    gamma,
    h,
    landmarks,
    m,
    sampler,
    tied,
    u,
    untied,
    y,
    z1,
    z2,
    z3,
)
from tests.derive.truth import expect, value

R = sp.Rational
V = sp.Symbol("V", positive=True)
GRAM = sp.ImmutableDenseMatrix([[2, R(1, 2)], [R(1, 2), 1]])
ABSOLUTE = sp.Lambda((f, y), sp.sqrt((f - y) ** 2))
STEP = lambda x: np.heaviside(x, 0.5)


# ---- laws ----------------------------------------------------------------------------------------------------


def _positional(gram: sp.MatrixBase, length: int = 2) -> SphericalSgd:
    """A tied relu student of `length` tokens with positions, and landmarks w*, e with a Gram matrix."""
    e = sp.Symbol("e", real=True)
    positions = sp.ImmutableDenseMatrix([[R(2 * t - 1, 3), R(t + 1, 2) * (-1) ** t] for t in range(length)])
    return SphericalSgd(
        student=(u,),
        teacher=(z1, z2)[:length],
        teacher_of=tuple((t, 0) for t in range(length)),
        mixing=sp.ImmutableDenseMatrix(sp.ones(1, length) / sp.sqrt(length)),
        overlaps=(m, e),
        gram=sp.ImmutableDenseMatrix(gram),
        positions=positions,
        loss=HALF_SQUARE(relu(u), h(2, z1) + z2),
        learning_rate=gamma,
        cross=cross_terms(HALF_SQUARE, (relu(u),), (h(2, z1) + z2,)),
    )


@pytest.mark.parametrize(
    "problem",
    [
        tied(3, relu(u), z1 * z2 + z3),
        untied(3, relu(u), z1 * z2 + z3),
        landmarks(relu(u), z1 * z2, GRAM),
        _positional(GRAM),
        attention_pair(tuple(attention(sp.Matrix([z1, z2]))), True),
    ],
    ids=["tied", "untied", "landmarks", "positional", "attention"],
)
def test_the_law_is_that_of_inner_products(problem: SphericalSgd) -> None:
    # vectors w, a_k with |w|^2 = D, <w, a_k> = D o_k, <a_k, a_l> = D G_kl; tokens N(0, I/D)
    o = np.array([0.3, -0.4, 0.2][: len(problem.overlaps)])
    gram = np.array(problem.gram.tolist(), dtype=float)
    whole = np.linalg.cholesky(np.block([[np.ones((1, 1)), o[None]], [o[:, None], gram]]))
    weights, marks = whole[0], whole[1:]
    mixing = np.array(problem.mixing.tolist(), dtype=float)
    tokens = mixing.shape[1]
    student = np.kron(mixing, weights)  # (p, T D): phi = student @ tokens, flattened
    teacher = np.array([np.kron(np.eye(tokens)[t], marks[k]) for t, k in problem.teacher_of])
    both = np.concatenate([student, teacher])
    shift = mixing @ np.array(problem.positions.tolist(), dtype=float) @ o
    at = dict(zip(problem.overlaps, map(sp.Float, o), strict=True))
    cov = np.array(problem.law.cov.xreplace(at).tolist(), dtype=float)
    mean = np.array(problem.law.mean.xreplace(at), dtype=float)
    np.testing.assert_allclose(cov, both @ both.T, atol=1e-14)  # rounding
    np.testing.assert_allclose(mean, np.concatenate([shift, np.zeros(len(teacher))]), atol=1e-15)


# ---- the drift by two roads --------------------------------------------------------------------------------------

STUDENTS = (relu(u), u + h(2, u) / 2, h(3, u), sp.tanh(u), sp.Abs(u), sp.sin(u), sp.Max(u, R(1, 2)))
TARGETS = (z1, h(2, z1) + h(2, z2), z1 * z2, h(3, z1) - z2, relu(z1) * z2, sp.tanh(z1) + z2**2, sp.cos(z1 + z2))


def _random_problem(seed: int) -> SphericalSgd:
    rng = random.Random(seed)
    student, target = rng.choice(STUDENTS), rng.choice(TARGETS)
    kind = seed % 3
    if kind == 0:
        return tied(2, student, target)
    if kind == 1:
        return untied(2, student, target)
    return landmarks(student, target, GRAM)


def _at(problem: SphericalSgd, *numbers: Any) -> dict[sp.Symbol, Any]:
    return dict(zip(problem.overlaps, map(sp.S, numbers), strict=True))


QUICK = (0, 1, 3, 4, 5, 7, 8, 9, 10, 12)  # of both kinds of students, some with kinks on both sides
SEEDS = [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40) if seed not in QUICK)]


@pytest.mark.parametrize("seed", SEEDS)
def test_stein_gives_the_drift(seed: int) -> None:
    problem = _random_problem(seed)
    at = _at(problem, *[R(1, 3), R(-1, 4)][: len(problem.overlaps)])
    drift = problem.drift(V)
    for k, o in enumerate(problem.overlaps):
        pull = -drift[k] - gamma * V * o / 2
        found = value(sp.expand(pull), at)
        assert value(problem.mean_increment(k), at) == pytest.approx(found, rel=1e-9, abs=1e-10)  # quadrature


@pytest.mark.parametrize("gram", [sp.eye(2), GRAM], ids=["orthonormal", "general"])
def test_stein_gives_the_drift_with_positions(gram: sp.MatrixBase) -> None:
    problem = _positional(gram)
    at = _at(problem, R(1, 3), R(-1, 4))
    drift = problem.drift(V)
    for k, o in enumerate(problem.overlaps):
        found = value(sp.expand(-drift[k] - gamma * V * o / 2), at)
        assert value(problem.mean_increment(k), at) == pytest.approx(found, rel=1e-9)  # quadrature


@pytest.mark.parametrize("seed", SEEDS[1::3])
def test_gradient_is_the_slope_of_the_risk(seed: int) -> None:
    problem = _random_problem(seed)
    centre = [R(1, 3), R(-1, 4)][: len(problem.overlaps)]
    step = R(1, 500)
    for k in range(len(centre)):

        def shifted(n: int, k: int = k) -> float:
            moved = (c + (n * step if i == k else 0) for i, c in enumerate(centre))
            return value(problem.risk, _at(problem, *moved))

        slope = (8 * (shifted(1) - shifted(-1)) - (shifted(2) - shifted(-2))) / (12 * float(step))
        # the five-point rule: step^4 times a fifth derivative, 1e-11
        assert value(problem.gradient[k], _at(problem, *centre)) == pytest.approx(slope, rel=1e-8, abs=1e-9)


# ---- brute force -------------------------------------------------------------------------------------------------

_h2 = lambda x: (x**2 - 1) / np.sqrt(2)

Brute = tuple[SphericalSgd, tuple[Any, ...], Callable[[Array, Array], Array], Callable[[Array, Array], Array]]


def _squared(student: Any, slope: Any, target: Any) -> tuple[Any, Any]:
    return (
        lambda phi, z: (student(phi[0]) - target(z)) ** 2 / 2,
        lambda phi, z: ((student(phi[0]) - target(z)) * slope(phi[0]))[None],
    )


_relu = lambda x: np.maximum(x, 0)
BRUTE: Mapping[str, Brute] = {
    "tied": (
        tied(2, relu(u), h(2, z1) + h(2, z2)), (R(2, 5),),
        *_squared(_relu, STEP, lambda z: _h2(z[0]) + _h2(z[1])),
    ),
    "untied": (
        untied(2, relu(u), z1 * z2 + z1), (R(2, 5), R(-1, 2)),
        *_squared(_relu, STEP, lambda z: z[0] * z[1] + z[0]),
    ),
    "landmarks": (
        landmarks(u + h(2, u) / 2, h(2, z1) + z2, GRAM), (R(1, 2), R(1, 3)),
        *_squared(lambda x: x + _h2(x) / 2, lambda x: 1 + x / np.sqrt(2), lambda z: _h2(z[0]) + z[1]),
    ),
    "positional, general Gram matrix": (
        _positional(GRAM), (R(1, 3), R(-1, 4)),
        *_squared(_relu, STEP, lambda z: _h2(z[0]) + z[1]),
    ),
    "tanh": (
        tied(1, sp.tanh(u), relu(z1) + h(2, z1)), (R(1, 2),),
        *_squared(np.tanh, lambda x: 1 / np.cosh(x) ** 2, lambda z: _relu(z[0]) + _h2(z[0])),
    ),
    "absolute": (
        tied(1, relu(u), z1, ABSOLUTE), (R(2, 5),),
        lambda phi, z: np.abs(_relu(phi[0]) - z[0]),
        lambda phi, z: (np.sign(_relu(phi[0]) - z[0]) * STEP(phi[0]))[None],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n.startswith("positional") else n for n in BRUTE]
)
def test_risk_norm_drift_and_noise_are_those_of_sampled_tokens(name: str) -> None:
    problem, numbers, loss, slopes = BRUTE[name]
    at = _at(problem, *numbers) | {gamma: R(1, 2)}
    samples = sampler(problem, at, loss, slopes, seed=11).run()
    count = len(problem.overlaps)
    predicted: list[tuple[str, float, Array]] = [
        ("risk", value(problem.risk, at), samples["loss"]),
        ("V", value(problem.gradient_norm, at), samples["norm"]),
    ]
    means = [value(problem.mean_increment(k), at) for k in range(count)]
    predicted += [(f"b{k}", means[k], samples["increment"][k]) for k in range(count)]
    drift = [means[k] + float(at[o]) * predicted[1][1] / 4 for k, o in enumerate(problem.overlaps)]
    for k in range(count):
        for l in range(k, count):
            second = drift[k] * drift[l]
            predicted.append((f"S{k}{l}", value(_noise(problem, k, l), at) + second, samples["square"][k, l]))
    controlled = 0
    for quantity, number, sample in predicted:
        z, error = _z(sample, number)
        assert abs(z) < 5, (quantity, number, sample.mean())  # 5 sigma: 6e-7 each
        if error < 0.005 * abs(number):
            # the negative control: the same samples see a theory that is 5 per cent off
            assert abs(_z(sample, 1.05 * number)[0]) > 5, (quantity, number, error)
            controlled += 1
    assert controlled


def _z(sample: Array, predicted: float) -> tuple[float, float]:
    error = float(sample.std() / np.sqrt(len(sample)))
    return (float(sample.mean()) - predicted) / error, error


def _noise(problem: SphericalSgd, k: int, l: int) -> sp.Expr:
    """S_kl, with Stein's form of the drift where that of the gradient keeps a point mass on a curve."""
    noise = problem.noise(k, l)
    if not noise.has(sp.DiracDelta):
        return noise
    (mass,) = {e for e in noise.atoms(Expectation) if e.has(sp.DiracDelta)}
    slope = sp.expand(problem.gradient[0]).coeff(mass)
    return noise.xreplace({mass: problem.mean_increment(0) / (1 - m**2) / slope})


def test_one_step_on_the_sphere_moves_by_the_drift() -> None:
    # exact in law: along w, along the rest of w*, and the norm of what is orthogonal to both
    problem = tied(2, relu(u), h(2, z1) + h(2, z2))
    overlap, rate, dimension, count = 0.4, 0.5, 20_000, 1_000_000
    rng = np.random.default_rng(3)
    along, across = rng.normal(size=(2, 2, count))
    s = along
    z = overlap * along + np.sqrt(1 - overlap**2) * across
    phi = s.sum(axis=0) / np.sqrt(2)
    slope = (_relu(phi) - _h2(z[0]) - _h2(z[1])) * STEP(phi) / np.sqrt(2)  # d loss / d s_t, the same for both
    # in units of sqrt D: w = (1, 0), w* = (o, sqrt(1 - o^2)); x_t = (s_t, across_t, rest) / sqrt D
    first = 1 - rate / dimension * slope * s.sum(axis=0)
    second = -rate / dimension * slope * across.sum(axis=0)
    rest = (rate / dimension) ** 2 * 2 * slope**2 * rng.chisquare(dimension - 2, size=count)
    moved = (overlap * first + np.sqrt(1 - overlap**2) * second) / np.sqrt(first**2 + second**2 + rest)
    velocity = (moved - overlap) * dimension / rate
    predicted = value(problem.drift(problem.gradient_norm)[0], {m: R(2, 5), gamma: R(1, 2)})
    z_score, error = _z(velocity, predicted)
    assert abs(z_score) < 5  # 5 sigma; the terms of order 1/D are 1e-4, far below one sigma
    assert abs(_z(velocity, predicted - 0.05 * 0.5 * value(problem.gradient_norm, {m: R(2, 5)}) * 0.4)[0]) > 5
    noise = value(problem.noise(0, 0), {m: R(2, 5), gamma: R(1, 2)})
    assert abs(_z((velocity - predicted) ** 2, noise)[0]) < 5
    assert abs(_z((velocity - predicted) ** 2, 1.05 * noise)[0]) > 5
    assert error < 0.01


# ---- known values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_gradient_norm_of_the_tied_relu_student_at_the_start(length: int) -> None:
    problem = tied(length, relu(u), sp.Add(*(h(2, z) for z in sp.symbols("z1:5", real=True)[:length])))
    assert problem.gradient_norm.subs(m, 0) == R(1 + length, 2)


def test_trajectory_of_the_tied_relu_student() -> None:
    problem = tied(3, relu(u), h(2, z1) + h(2, z2) + h(2, z3))
    drift = sp.lambdify(m, problem.drift(problem.gradient_norm)[0].subs(gamma, R(1, 4)), "math")
    overlap, found, steps = 0.1, [0.1], 400
    for _ in range(6):
        for _ in range(steps):
            d = 2 / steps
            k1 = drift(overlap)
            k2 = drift(overlap + d / 2 * k1)
            k3 = drift(overlap + d / 2 * k2)
            overlap += d / 6 * (k1 + 2 * k2 + 2 * k3 + drift(overlap + d * k3))
        found.append(overlap)
    assert found == pytest.approx([0.1, 0.1839, 0.3237, 0.5103, 0.6716, 0.7549, 0.7848], abs=5e-5)  # 4 digits given


def test_risk_in_closed_form() -> None:
    # relu has sigma_1 = 1/2, sigma_2 = 1/(2 sqrt pi), E relu^2 / 2 = 1/4
    assert tied(2, relu(u), z1 - z2).risk == R(5, 4)
    assert sp.simplify(tied(2, relu(u), z1 + z2).risk - (R(5, 4) - m / sp.sqrt(2))) == 0
    assert sp.simplify(tied(1, u + h(2, u), h(2, z1)).risk - (R(3, 2) - m**2)) == 0
    arc = (sp.sqrt(1 - m**2) + m * (sp.pi - sp.acos(m))) / (2 * sp.pi)
    found = tied(1, relu(u), relu(z1)).risk
    for overlap in (R(-9, 10), R(1, 3), R(9, 10), 1):
        assert float((found - R(1, 2) + arc).subs(m, overlap)) == pytest.approx(0, abs=1e-15)  # arc-cosine kernel
    assert found.subs(m, 1) == 0


def test_attention_at_known_points() -> None:
    problem = attention_pair(tuple(attention(sp.ImmutableDenseMatrix([z1, z2]))), True)
    e = problem.overlaps[1]
    origin = reduced(problem.risk.xreplace({m: sp.S.Zero, e: sp.S.Zero}))
    assert value(origin, width=0.6) == pytest.approx(0.148696496261233, rel=1e-10)  # 15 digits known
    perfect = reduced(problem.risk.xreplace({m: sp.S.One, e: sp.S.Zero}))
    assert perfect == 0
    # c20, c11, c02 of sigmoid(z1 (z1 - z2)); the risk has 4 (c20^2 + c11^2 + c02^2) at degree 2
    kappa = 0.0996867747123848
    strength = (1 / 8) ** 2 + ((1 / 4 - kappa) / np.sqrt(2)) ** 2 + (kappa - 1 / 8) ** 2
    plain = attention_pair(tuple(attention(sp.ImmutableDenseMatrix([z1, z2]))), False)
    assert plain.form(1) == {}
    assert value(plain.form(2)[(2,)], width=0.6) == pytest.approx(4 * strength, rel=1e-10)  # kappa to 15 digits


def test_a_student_with_jumps_has_no_gradient() -> None:
    problem = tied(1, sp.sign(u), z1)
    assert value(problem.risk, {m: R(1, 2)}) == pytest.approx(1 - 0.5 * np.sqrt(2 / np.pi), rel=1e-12)  # closed form
    with pytest.raises(ValueError, match="loss jumps as a function of the student's fields"):
        _ = problem.gradient_norm


# ---- the form at zero overlap ------------------------------------------------------------------------------------


def _taylor(risk: Callable[[float], float], degree: int) -> Array:
    """Taylor coefficients at 0 from 13 Chebyshev points on [-0.45, 0.45]: for poles at 1 the error is 4.2^-13."""
    nodes = 0.45 * np.cos(np.pi * (np.arange(13) + 0.5) / 13)
    fitted = np.polynomial.chebyshev.Chebyshev.fit(nodes, [risk(t) for t in nodes], 12, domain=[-0.45, 0.45])
    return np.asarray(fitted.convert(kind=np.polynomial.Polynomial).coef[: degree + 1])


def _risk_along(problem: SphericalSgd, direction: tuple[float, ...]) -> Callable[[float], float]:
    """R(s direction) by quadrature over the fields, without the rules."""

    def risk(s: float) -> float:
        at = dict(zip(problem.overlaps, (sp.Float(s * c, 17) for c in direction), strict=True))
        return expect(problem.loss, problem.fields, problem.law, at)

    return risk


FORMS: Mapping[str, tuple[SphericalSgd, tuple[float, ...]]] = {
    "tied relu": (tied(2, relu(u), h(2, z1) + h(4, z2) + z1), (1.0,)),
    "tied tanh": (tied(2, sp.tanh(u), h(3, z1) + z1 * z2 - z2), (1.0,)),
    "tied, kinks on both sides": (tied(1, relu(u), sp.Abs(z1) - z1), (1.0,)),
    "untied relu": (untied(2, relu(u), z1 * z2 + h(2, z1) - z2), (0.6, -0.8)),
    "fourth power": (tied(1, sp.tanh(u), z1 + z1**2 / 2, sp.Lambda((f, y), (f - y) ** 4)), (1.0,)),
    "absolute": (tied(1, relu(u), z1, ABSOLUTE), (1.0,)),
    "log cosh": (tied(1, u + u**2, z1 - z1**2, sp.Lambda((f, y), sp.log(1 + (f - y) ** 2))), (1.0,)),
    "general Gram matrix": (landmarks(u + h(2, u), z1**3 + z1 * z2**2 - z2**4, GRAM), (0.6, -0.8)),
    "a landmark of norm 2": (landmarks(relu(u), sp.tanh(z1) + z1**4, sp.Matrix([[2]])), (1.0,)),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_is_the_taylor_coefficient(name: str) -> None:
    problem, direction = FORMS[name]
    taylor = _taylor(_risk_along(problem, direction), 4)
    for k in range(1, 5):
        form = problem.form(k)
        assert all(sum(n) == k for n in form)
        found = sum(
            value(c) * float(np.prod([d**i for d, i in zip(direction, n, strict=True)])) for n, c in form.items()
        )
        assert found == pytest.approx(-taylor[k], abs=2e-6), (k, form)  # Chebyshev interpolation


def test_the_form_of_fields_that_are_not_of_unit_variance() -> None:
    # phi = 2 s and z = <x, w*>: E phi^3 z = 3 * 4 * 2 m, E tanh has no use of it
    problem = SphericalSgd(
        student=(u,), teacher=(z1,), teacher_of=((0, 0),), mixing=sp.ImmutableDenseMatrix([[2]]), overlaps=(m,),
        gram=sp.ImmutableDenseMatrix([[1]]), positions=sp.ImmutableDenseMatrix([[0]]),
        loss=HALF_SQUARE(u**3, z1), learning_rate=gamma, cross=cross_terms(HALF_SQUARE, (u**3,), (z1,)),
    )  # fmt: skip
    assert sp.expand(problem.risk - (R(15 * 64 + 1, 2) - 24 * m)) == 0
    assert problem.form(1) == {(1,): 24}


def test_the_form_of_correlated_fields() -> None:
    # phi_1 = s_1, phi_2 = (s_1 + s_2) / sqrt 2, correlated by 1/sqrt 2 also at zero overlap
    s1, s2 = sp.symbols("s1 s2", real=True)
    output = s1**2 * s2
    problem = SphericalSgd(
        student=(s1, s2), teacher=(z1, z2), teacher_of=((0, 0), (1, 0)),
        mixing=sp.ImmutableDenseMatrix([[1, 0], [1 / sp.sqrt(2), 1 / sp.sqrt(2)]]), overlaps=(m,),
        gram=sp.ImmutableDenseMatrix([[1]]), positions=sp.ImmutableDenseMatrix([[0], [0]]),
        loss=HALF_SQUARE(output, z1 - 2 * z2), learning_rate=gamma,
        cross=cross_terms(HALF_SQUARE, (output,), (z1 - 2 * z2,)),
    )  # fmt: skip
    slope = sp.expand(problem.risk).coeff(m, 1)
    assert slope == -(3 - 2) / sp.sqrt(2)  # E s_1^2 (s_1 + s_2)/sqrt 2 z_1 = 3 m/sqrt 2, with z_2: m/sqrt 2
    assert problem.form(1) == {(1,): -slope}


@pytest.mark.parametrize("k", range(1, 7))
def test_the_form_of_the_tied_relu_student_is_the_known_series(k: int) -> None:
    # G_k = sigma_k L^(-k/2) sum_alpha sqrt(k!/alpha!) g_alpha; sigma_k = (-1)^(k/2+1) (k-3)!!/sqrt(2 pi k!) for even k
    sigma = {1: R(1, 2), 2: 1 / sp.sqrt(4 * sp.pi)}.get(
        k, sp.S.Zero if k % 2 else (-1) ** (k // 2 + 1) * sp.factorial2(k - 3) / sp.sqrt(2 * sp.pi * sp.factorial(k))
    )
    problem = tied(2, relu(u), h(k, z1) + 3 * z1 * z2 - h(k, z2) / 2)
    weights = R(1, 2) + (3 * sp.sqrt(2) if k == 2 else 0)
    expected = sp.expand(sigma * weights / sp.sqrt(2) ** k)
    assert problem.form(k).get((k,), 0) == expected


def test_cross_terms_hold_what_couples() -> None:
    loss = sp.Lambda((f, y), (f - y) ** 2 * (1 + f))
    terms = cross_terms(loss, (relu(u),), (z1,)) or ()
    total = sp.Add(*(t.weight * t.student * t.teacher for t in terms))
    rest = sp.expand(loss(f, y)) - total.xreplace({relu(u): f}).subs(z1, y)
    assert sp.expand(rest - f**2 - f**3) - y**2 == 0
    assert cross_terms(ABSOLUTE, (relu(u),), (z1,)) is None
    assert cross_terms(sp.Lambda((f, y), sp.log(1 + sp.exp(-f * y))), (relu(u),), (z1,)) is None


def test_the_cross_terms_do_not_change_the_form() -> None:
    whole = tied(2, relu(u), h(2, z1) + z1 * z2)
    without = SphericalSgd(
        whole.student, whole.teacher, whole.teacher_of, whole.mixing, whole.overlaps, whole.gram, whole.positions,
        whole.loss, whole.learning_rate, None,
    )  # fmt: skip
    for k in range(1, 4):
        assert whole.form(k) == without.form(k)


# ---- the largest value of the form on the sphere -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_leading_strength_is_the_largest_value_on_the_sphere(seed: int) -> None:
    rng = random.Random(seed)
    count, k = (1, 2, 3)[seed % 3], 1 + seed // 3
    keys = [tuple((i == a) + (i == b) for i in range(count)) for a in range(count) for b in range(a, count)]
    if k == 1:
        keys = [tuple(int(i == a) for i in range(count)) for a in range(count)]
    form = {n: R(rng.randint(-9, 9), 4) for n in keys}
    points = np.random.default_rng(seed).normal(size=(count, 400_000))
    points /= np.linalg.norm(points, axis=0)
    values = sum(float(c) * np.prod(points ** np.array(n)[:, None], axis=0) for n, c in form.items())
    strength = leading_strength(form, k, count)
    assert strength is not None
    assert float(strength.evalf()) == pytest.approx(float(np.max(values)), abs=2e-3)  # 4e5 random directions


@pytest.mark.parametrize("k", [1, 3, 5])
def test_leading_strength_of_an_odd_form_of_one_overlap_is_positive(k: int) -> None:
    assert leading_strength({(k,): R(-2, 3)}, k, 1) == R(2, 3)  # the sphere in one dimension is {1, -1}


def test_closed_forms_of_the_noise_do_not_keep_expectations() -> None:
    problem = tied(2, relu(u), h(2, z1) + h(2, z2))
    for quantity in (problem.risk, problem.gradient_norm, problem.noise(0, 0), problem.gradient[0]):
        assert not quantity.has(Expectation)
        assert closed_form(quantity) == quantity
    assert tied(1, sigmoid(u), He(2, z1)).noise(0, 0).has(Expectation)
