"""Gradient steps: closed formulas of two steps, spectra of linear regression, four steps on the same data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import sympy as sp
from scipy import integrate, special

from derive.equations import EquationSystem, Quantity
from derive.expectation import Expectation
from derive.functions import softplus
from derive.mechanisms.gradient_steps import (
    Case,
    Data,
    GradientSteps,
    Start,
    Step,
    Update,
    Vector,
    descend,
    rare_signal,
)
from tests.derive.trained import R, alpha0, attention, b, beta, f, fields, loss, numbers, q, tied, two_steps, w, y

SLOPES: dict[str, tuple[Callable[[float], float], float]] = {  # phi' of the margin and -phi'(0)
    "square": (lambda x: x - 1, 1.0),
    "logistic": (lambda x: -float(special.expit(-x)), 0.5),
    "hinge": (lambda x: -1.0 if x < 1 else 0.0, 1.0),
}


def _mean(g: Callable[[float], float], centre: float, spread: float) -> float:
    """E g(N(centre, spread^2)), split at the hinge's kinks."""
    density = lambda x: np.exp(-(((x - centre) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
    ends = sorted(
        {centre - 10 * spread, centre + 10 * spread, *(k for k in (-1.0, 1.0) if abs(k - centre) < 10 * spread)}
    )
    parts = [integrate.quad(lambda x: g(x) * density(x), s, t, epsabs=1e-13)[0] for s, t in pairwise(ends)]
    return float(sum(parts))


def _by_hand(
    name: str, length: int, signals: int, pi: float, theta: float, eta: float, eta_b: float, ratio: float, reuse: bool
) -> tuple[float, float, float]:
    """<q, xi>, |q| and C for eta_q = beta = 1, by the algebra of two steps from zero done by hand."""
    slope, c = SLOPES[name]
    kappa = theta**2 * signals * (1 - signals / length)
    overlap = eta * pi * c * theta * signals / length
    bias = eta_b * c * (2 * pi - 1)

    def moments(ratio: float) -> tuple[float, float, float, float, float, float]:
        noise = eta**2 * c**2 / (ratio * length)
        spread = np.sqrt(overlap**2 + noise) / np.sqrt(length)
        share = eta * c / (ratio * length) if reuse else 0.0
        plus, minus = bias + theta * signals / length * overlap + share, bias - share
        up = [_mean(lambda x, n=n: slope(x) ** n, plus, spread) * pi for n in (1, 2)]
        down = [_mean(lambda x, n=n: (-slope(-x)) ** n, minus, spread) * (1 - pi) for n in (1, 2)]
        return up[0] + down[0], up[0], up[1] + down[1], up[1], noise, overlap**2 + noise

    h, h1, h2, h21, noise, square = moments(ratio)
    along = kappa * h1 + (length - 1) * h
    rest = (length - 1) ** 2 * h**2 * noise + ((length - 1) * square * h2 + kappa * overlap**2 * h21) / ratio
    norm = np.sqrt(overlap**2 * along**2 + rest) / length
    h, h1, h2, h21, _, _ = moments(1e14)
    along_limit = kappa * h1 + (length - 1) * h
    constant = (
        (length - 1) ** 2 * h**2 * length * c**2 / (c * pi * theta * signals) ** 2 + (length - 1) * h2 + kappa * h21
    )
    return -overlap * along / length, float(norm), constant / (2 * along_limit**2)


SETTINGS = [
    ("square", 10, 1, R(1, 2), 5, 1, 1, 2),
    ("square", 4, 2, R(1, 3), 2, R(1, 2), R(3, 4), R(1, 2)),
    ("logistic", 10, 3, R(1, 5), 6, R(1, 2), R(1, 2), 1),
    ("logistic", 3, 1, R(2, 3), 3, 4, 2, R(1, 4)),
    ("hinge", 10, 1, R(1, 2), 5, 1, 1, 2),
    ("hinge", 5, 2, R(1, 4), 4, 6, 1, R(1, 2)),
]


@pytest.mark.parametrize("reuse", [True, False], ids=["reused", "fresh"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s[0]}-{s[1]}")
def test_two_steps_are_those_done_by_hand(setting: tuple[Any, ...], reuse: bool) -> None:
    name, length, signals, pi, theta, eta, eta_b, ratio = setting
    steps = two_steps(name, length=length, signals=signals, pi=pi, theta=theta, eta=eta, eta_b=eta_b, reuse=reuse)
    wanted = [steps.overlap(q), steps.norm(q), steps.cosine(q), steps.alignment_constant(q, alpha0)]
    found = numbers(steps.equations(), wanted, {alpha0: ratio, beta: 1})
    overlap, norm, constant = _by_hand(name, length, signals, *map(float, (pi, theta, eta, eta_b, ratio)), reuse)
    # quadrature of both sides; C by hand at alpha_0 = 1e14, where sqrt(1e-14) is left of a kink's position
    np.testing.assert_allclose(found[:3], [overlap, norm, overlap / norm], rtol=1e-9)
    np.testing.assert_allclose(found[3], constant, rtol=1e-7)


def test_reference_values_of_the_square_loss() -> None:
    steps = two_steps("square")
    wanted = [steps.overlap(q), steps.norm(q), steps.cosine(q), steps.alignment_constant(q, alpha0)]
    found = numbers(steps.equations(), wanted, {alpha0: 2, beta: 1})
    np.testing.assert_allclose(found, [0.21796875, 0.23273416258, 0.93655674607, 0.09978573615], atol=5e-12)  # digits


def test_reference_values_of_the_logistic_loss() -> None:
    steps = two_steps("logistic", signals=3, pi=R(1, 5), theta=6, eta=R(1, 2), eta_b=R(1, 2))
    found = [numbers(steps.equations(), [steps.cosine(q)], {alpha0: a, beta: 1})[0] for a in (R(1, 2), 1, 2, 4, 8)]
    np.testing.assert_allclose(found, [0.7016, 0.8283, 0.9075, 0.9520, 0.9755], atol=5e-5)  # digits


@pytest.mark.parametrize("name", ["square", "logistic", "hinge"])
def test_the_constant_is_that_of_a_fit(name: str) -> None:
    steps = two_steps(name, length=5, theta=3)
    (constant,) = numbers((), [steps.alignment_constant(q, alpha0)], {beta: 1})
    losses = [
        a * (1 - abs(numbers(steps.equations(), [steps.cosine(q)], {alpha0: a, beta: 1})[0]))
        for a in (1000, 2000, 4000)
    ]
    first = [2 * t - s for s, t in pairwise(losses)]
    # two Richardson steps leave the third order in 1/1000 of a series with coefficients of order one
    np.testing.assert_allclose((4 * first[1] - first[0]) / 3, constant, rtol=1e-5)


def test_the_overlap_turns_negative_at_a_large_step() -> None:
    found = []
    for eta in (1, 10):
        steps = two_steps("square", eta=eta)
        found += numbers(steps.equations(), [steps.cosine(q)], {alpha0: 2, beta: 1})
    assert found[0] > 0.9
    assert found[1] < -0.5


def test_the_cosine_depends_on_neither_the_second_step_nor_the_temperature() -> None:
    one, two = two_steps("logistic"), two_steps("logistic", eta_q=R(7, 2))
    (a,) = numbers(one.equations(), [one.cosine(q)], {alpha0: 1, beta: 1})
    (c,) = numbers(two.equations(), [two.cosine(q)], {alpha0: 1, beta: 3})
    assert a == pytest.approx(c, rel=1e-12)  # rounding


def test_without_the_share_of_the_samples_the_cosine_is_another() -> None:
    reused, fresh = (two_steps("square", reuse=reuse) for reuse in (True, False))
    at = {alpha0: R(1, 10), beta: 1}
    (a,), (c,) = (numbers(s.equations(), [s.cosine(q)], at) for s in (reused, fresh))
    assert abs(a - c) > 0.05


@pytest.mark.parametrize("name", ["square", "hinge"])
@pytest.mark.parametrize("length", [10, 100])
def test_two_steps_of_piecewise_polynomial_losses_are_closed(name: str, length: int) -> None:
    steps = two_steps(name, length=length, signals=3)
    assert not any(e.rhs.has(Expectation) for e in steps.equations())
    assert not steps.alignment_constant(q, alpha0).has(Expectation)


@pytest.mark.parametrize("length", [10, 100])
def test_two_steps_of_the_logistic_loss_need_one_variable(length: int) -> None:
    steps = two_steps("logistic", length=length, signals=3)
    found = set().union(*(e.rhs.atoms(Expectation) for e in steps.equations()))
    assert {len(e.variables) for e in found} == {1}
    assert all(e.integrand.free_symbols <= set(e.variables) for e in found)
    values = numbers(steps.equations(), [steps.overlap(q), steps.norm(q)], {alpha0: 1, beta: 1})
    np.testing.assert_allclose(
        values, _by_hand("logistic", length, 3, 0.5, 5, 1, 1, 1, True)[:2], rtol=1e-9
    )  # quadrature


def test_parameters_may_be_symbols() -> None:
    pi, theta, eta, eta_b, eta_q = symbols = sp.symbols("pi theta eta eta_b eta_q", positive=True)
    steps = two_steps("logistic", pi=pi, theta=theta, eta=eta, eta_b=eta_b, eta_q=eta_q)
    parameters = [Quantity(s, "") for s in (*symbols, alpha0, beta)]
    assert EquationSystem(steps.equations(), parameters).missing() == frozenset()
    values = dict(zip((*symbols, alpha0, beta), (R(1, 4), 4, 2, 1, 1, 1, 1), strict=True))
    wanted = [steps.overlap(q), steps.norm(q), steps.alignment_constant(q, alpha0)]
    expected = _by_hand("logistic", 10, 1, 0.25, 4, 2, 1, 1, True)
    np.testing.assert_allclose(numbers(steps.equations(), wanted, values), expected, rtol=1e-7)  # C by hand: see above


# ---- many steps on the same data ---------------------------------------------------------------------------------
def _moment(k: int, aspect: Fraction) -> Fraction:
    """The k-th moment of the Marchenko-Pastur law, X^T X / n with d / n = aspect: Narayana numbers."""
    return sum(
        (aspect**r * Fraction(int(sp.binomial(k, r) * sp.binomial(k - 1, r)), r + 1) for r in range(k)), Fraction(0)
    )


def _trained_square(kernel: Sequence[sp.Expr], ratio: sp.Expr, s: sp.Symbol) -> list[sp.Expr]:
    """|w_t|^2 = (1/alpha) int x p_t(x)^2 for w_t = p_t(X^T X / n) X^T y / n with labels independent of X."""
    found = []
    for p in kernel:
        powers = sp.Poly(sp.expand(s * p**2), s).all_terms()
        total = sum(
            c * (R(*_moment(n, Fraction(int(ratio.q), int(ratio.p))).as_integer_ratio()) if n else 1)
            for (n,), c in powers
        )
        found.append(total / ratio)
    return found


def _regression(steps: int, update: dict[sp.Symbol, Update], ratio: sp.Expr) -> GradientSteps:
    """Least squares f = x . w of labels +-1 that are independent of x, on the same data all the time."""
    (u,), (v,) = fields("u", 1), fields("v", 1)
    half = (sp.S.Zero,)
    return GradientSteps(
        vectors=(Vector(w, (u,)), Vector(q, (v,))),
        output=u,
        loss=sp.Lambda((y, f), (f - y) ** 2 / 2),
        cases=(Case(R(1, 2), sp.S.One, half), Case(R(1, 2), -sp.S.One, half)),
        steps=tuple(Step(Data("D", ratio), update) for _ in range(steps)),
    )


@pytest.mark.parametrize("ratio", [R(1, 2), R(3)])
def test_descent_with_decay_and_momentum_has_the_spectrum_of_marchenko_and_pastur(ratio: sp.Expr) -> None:
    s, eta, decay, momentum = sp.Symbol("s"), R(1, 2), R(1, 5), R(1, 3)
    # q holds the last increment: q <- momentum q - eta (gradient + decay w), w <- w + q
    steps = _regression(
        4,
        {
            w: Update({w: 1 - eta * decay, q: momentum}, {w: -eta}),
            q: Update({w: -eta * decay, q: momentum}, {w: -eta}),
        },
        ratio,
    )
    p, increment, kernels = sp.S.Zero, sp.S.Zero, []
    for _ in range(4):
        increment = momentum * increment - eta * (s * p - 1 + decay * p)
        p = sp.expand(p + increment)
        kernels.append(p)
    found = numbers(steps.equations(), [steps.inner(w, w, t) for t in range(1, 5)])
    np.testing.assert_allclose(found, [float(v) for v in _trained_square(kernels, ratio, s)], rtol=1e-12)  # rounding
    assert not any(e.rhs.has(Expectation) for e in steps.equations())


def test_four_steps_of_tied_attention_on_the_same_data() -> None:
    steps = tied(4)
    times = range(5)
    wanted = [*(steps.inner(w, w, t) for t in times), *(steps.overlap(w, t) for t in times)]
    wanted += [steps.inner(w, w, 0, t) for t in times]
    found = np.array(numbers(steps.equations(), wanted)).reshape(3, 5)
    squares = np.array([1, 5.365, 8.334, 11.498, 13.950])
    # the reference is good to 0.5 per cent, in overlaps of the product of the norms
    np.testing.assert_allclose(found[0], squares, rtol=5e-3)
    norms = np.sqrt(squares)
    assert np.all(np.abs(found[1] - [0, 0.517, 0.390, 0.517, 0.504]) < 5e-3 * norms)
    assert np.all(np.abs(found[2] - [1, 0.123, 0.761, 0.387, 0.540]) < 5e-3 * norms)


def test_fresh_data_each_time_is_another_course() -> None:
    steps = tied(2, fresh=True)
    (square,) = numbers(steps.equations(), [steps.inner(w, w)])
    assert abs(square - 8.334) > 0.05 * 8.334


@pytest.mark.parametrize("length", [1, 4])
def test_two_steps_of_a_pooled_model_are_those_of_its_divergence(length: int) -> None:
    """w_2 = (1 - eta D) w_1 - eta E[signal . r_1] xi - eta zeta_1 with D = E phi''(u) / L, by integration by hand."""
    u, eta, theta, pi, ratio = fields("u", length), 3.0, 2.0, 0.25, 0.5
    data = Data("D", R(1, 2))
    steps = GradientSteps(
        vectors=(Vector(w, u),),
        output=sp.Add(*u) / length,
        loss=loss("logistic"),
        cases=rare_signal(R(1, 4), 2, length, 1),
        steps=tuple(Step(data, {w: descend(w, 3)}) for _ in range(2)),
    )
    first = eta * pi * theta / (2 * length)
    zeta = 1 / (4 * ratio * length)  # |zeta_0|^2
    spread = np.sqrt((first**2 + eta**2 * zeta) / length)
    share = eta / (2 * ratio * length)
    plus, minus = theta / length * first + share, -share
    up, down = lambda x: -float(special.expit(-x)), lambda x: float(special.expit(x))
    curve = lambda x: float(special.expit(x) * special.expit(-x))
    divergence = (pi * _mean(curve, plus, spread) + (1 - pi) * _mean(curve, minus, spread)) / length
    signal = theta * pi * _mean(up, plus, spread) / length
    square = pi * _mean(lambda x: up(x) ** 2, plus, spread) + (1 - pi) * _mean(lambda x: down(x) ** 2, minus, spread)
    cross = -pi * _mean(up, plus, spread) / 2 + (1 - pi) * _mean(down, minus, spread) / 2  # r_0 = -y / (2 L)
    kept = 1 - eta * divergence
    overlap = kept * first - eta * signal
    noise = eta**2 * (kept**2 * zeta + (square + 2 * kept * cross) / (ratio * length))
    found = numbers(steps.equations(), [steps.overlap(w), steps.inner(w, w)])
    np.testing.assert_allclose(found, [overlap, overlap**2 + noise], rtol=1e-9)  # quadrature


def test_a_pooled_model_reads_one_gaussian_variable_for_each_direction() -> None:
    u = fields("u", 6)
    steps = GradientSteps(
        vectors=(Vector(w, u),),
        output=sp.Add(*u) / 6,
        loss=loss("logistic"),
        cases=rare_signal(R(1, 2), 3, 6, 1),
        steps=tuple(Step(Data("D", sp.S.One), {w: descend(w, 6)}) for _ in range(3)),
    )
    laws = [e.measure for equation in steps.equations() for e in equation.rhs.atoms(Expectation)]
    # xi and the noises of the first two gradients
    assert max(law.base.dim for law in laws if hasattr(law, "base")) == 3


# ---- what may be given --------------------------------------------------------------------------------------------
def test_responses_may_be_given() -> None:
    steps = tied(1)
    u, x = steps.vectors[0].fields, sp.Dummy(real=True)
    derived = tuple(sp.diff(softplus(-y * x), x).xreplace({x: steps.output}) * steps.output.diff(s) for s in u)
    given = replace(steps, responses={w: derived}, output=sp.S.Zero)
    a, c = (numbers(s.equations(), [s.inner(w, w), s.overlap(w)]) for s in (steps, given))
    np.testing.assert_allclose(a, c, rtol=1e-12)  # rounding


def test_where_the_output_knows_its_tokens_a_signal_is_in_all_places() -> None:
    u = fields("u", 2)
    weighted = GradientSteps(
        vectors=(Vector(w, u),),
        output=3 * u[0] + u[1],
        loss=loss("square"),
        cases=rare_signal(R(1, 2), 2, 2, 1),
        steps=(Step(Data("D", sp.S.One), {w: descend(w, 1)}),),
    )
    # g = (1/n) sum_i X_i^T r_i with r = -y (3, 1): <w, xi> = E[y 2 (3 or 1)] = (1/2) 2 (3 + 1)/2, |zeta|^2 = 10
    assert numbers(weighted.equations(), [weighted.overlap(w), weighted.inner(w, w)]) == pytest.approx(
        [2, 14], rel=1e-14
    )
    first = replace(weighted, exchangeable=False)
    assert numbers(first.equations(), [first.overlap(w)]) == pytest.approx([3], rel=1e-14)  # the signal leads


def test_coordinates_of_the_start_have_its_gram_matrix() -> None:
    vectors, output = attention(2)
    gram, overlaps = sp.ImmutableDenseMatrix([[2, R(1, 2)], [R(1, 2), 1]]), (R(1, 3), R(-1, 4))
    steps = GradientSteps(vectors, output, loss("square"), (), (), {b: 0}, Start((w, q), gram, overlaps))
    assert [steps.inner(v, u) for v in (w, q) for u in (w, q)] == list(gram)
    assert [steps.overlap(v) for v in (w, q)] == list(overlaps)
    same = replace(steps, start=Start((w, q), sp.ImmutableDenseMatrix([[1, 1], [1, 1]]), (0, 0)))
    assert same.inner(w, q) == 1


def test_a_vector_that_does_not_move_has_no_direction() -> None:
    steps = two_steps("square", eta=0)
    assert steps.norm(q) == 0
    with pytest.raises(ValueError, match="q is zero"):
        steps.cosine(q)
    with pytest.raises(ValueError, match="no overlap with xi"):
        two_steps("square", pi=0).alignment_constant(q, alpha0)
    fixed = replace(two_steps("square"), start=Start((q,), sp.ImmutableDenseMatrix([[1]]), (R(1, 2),)))
    with pytest.raises(ValueError, match="does not align"):
        replace(fixed, steps=()).alignment_constant(q, alpha0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="1 <= R <= L"):
        rare_signal(R(1, 2), 1, 3, 4)
    steps = two_steps("square", length=3)
    with pytest.raises(ValueError, match="update of w reads b"):
        replace(steps, steps=(Step(Data("D", sp.S.One), {w: Update({w: 1}, {b: 1})}),))
    with pytest.raises(ValueError, match="3 fields"):
        replace(steps, cases=rare_signal(R(1, 2), 1, 2, 1))
    with pytest.raises(ValueError, match="Gram matrix"):
        replace(steps, start=Start((w,), sp.ImmutableDenseMatrix([[1, 0], [0, 1]]), (0,))).equations()
    with pytest.raises(ValueError, match="negative part"):
        replace(steps, start=Start((w,), sp.ImmutableDenseMatrix([[1]]), (2,))).equations()
    u = fields("u", 12)
    ordered = replace(tied(1, length=12), output=sp.Add(*(k * x for k, x in enumerate(u))))
    with pytest.raises(ValueError, match="at most 64"):
        replace(ordered, cases=rare_signal(R(1, 2), 1, 12, 4)).equations()
