"""Every rule against numbers: quadrature that ends its panels at the kinks, line integrals, mpmath."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import sympy as sp

from derive.expectation import Expectation
from derive.functions import He, Phi, SoftmaxEntry, orthonormal, relu, sigmoid, softmax, softplus
from derive.gaussian import wick
from derive.measures import Gaussian, standard_normal
from derive.rules import RULES, closed_form, reduced
from derive.rules.exponentials import oscillation, reflection, tilting
from derive.rules.steps import half_line, point_mass, probit, quadrant
from derive.rules.structure import conditioning, degenerate, independence, linearity, symmetry
from tests.derive.truth import NUMPY, value, value_mp, value_nested

x, y, w = VARIABLES = sp.symbols("x y w", real=True)
m, t, a, b = sp.symbols("m t a b", real=True)
v = sp.Symbol("v", positive=True)
STEP = sp.Heaviside
R = sp.Rational
TOLERANCE = 1e-9  # the truth is good to 1e-12 of the size of the integrand


def mean(f: sp.Expr, *variables: sp.Symbol, law: Gaussian | None = None) -> sp.Expr:
    return Expectation(f, variables, law or standard_normal(len(variables)))


def pair(c: Any, v1: Any = 1, v2: Any = 1, centre: Sequence[Any] = (0, 0)) -> Gaussian:
    return Gaussian(centre, [[v1, c], [c, v2]])


def same(found: sp.Expr, expected: sp.Expr, values: Mapping[sp.Symbol, Any] | None = None, width: float = 1.5) -> None:
    if found == expected:
        return
    one, two = value(found, values, width=width), value(expected, values, width=width)
    assert one == pytest.approx(two, rel=TOLERANCE, abs=TOLERANCE), f"{expected} became {found}"


def dimension(e: sp.Expr) -> int:
    return max((len(f.variables) for f in e.atoms(Expectation)), default=0)


# ---- random instances of what each rule is about ---------------------------------------------------------------


@dataclass
class Draw:
    """Random numbers, forms, polynomials and laws, from a seed."""

    rng: random.Random

    def number(self, reach: int = 2) -> sp.Rational:
        return R(self.rng.randint(-6 * reach, 6 * reach), self.rng.choice((3, 6)))

    def nonzero(self, reach: int = 1) -> sp.Rational:
        return self.number(reach) or R(1, 2)

    def form(self, *variables: sp.Symbol, shift: bool = True) -> sp.Expr:
        f = sp.Add(*(self.nonzero() * s for s in variables))
        return f + (self.number(1) if shift else 0)

    def polynomial(self, *variables: sp.Symbol, degree: int = 3) -> sp.Expr:
        terms = [
            self.nonzero() * sp.Mul(*(self.rng.choice(variables) for _ in range(self.rng.randint(0, degree))))
            for _ in range(2)
        ]
        return sp.Add(*terms) if any(c.free_symbols for c in terms) else sp.Add(*terms, variables[0])

    def law(self, n: int, centred: bool = False) -> Gaussian:
        half = sp.Matrix(n, n, lambda i, j: R(self.rng.randint(-3, 3), 3))
        centre = [0 if centred else self.number(1) for _ in range(n)]
        return Gaussian(centre, half * half.T + sp.eye(n) / 2)

    def singular_law(self, n: int) -> Gaussian:
        half = sp.Matrix(n, n - 1, lambda i, j: R(self.rng.randint(-3, 3), 2))
        return Gaussian([self.number(1) for _ in range(n)], half * half.T)


def smooth(draw: Draw, *variables: sp.Symbol) -> sp.Expr:
    kind = draw.rng.choice((sp.tanh, sp.cos, Phi, sigmoid, softplus, lambda f: sp.exp(f / 3)))
    return kind(draw.form(*variables) / 2)


def kinked(draw: Draw, *variables: sp.Symbol) -> sp.Expr:
    f = draw.form(*variables)
    kind = draw.rng.choice((relu, sp.Abs, sp.sign, STEP, lambda u: sp.Max(u, draw.number()), lambda u: relu(u) ** 2))
    return kind(f)


def _linearity(draw: Draw) -> Expectation:
    f = draw.polynomial(x, y) + kinked(draw, x) * draw.polynomial(y, degree=1) + smooth(draw, x, y)
    return mean(f + draw.polynomial(x, y, degree=2), x, y, law=draw.law(2))


def _wick(draw: Draw) -> Expectation:
    n = draw.rng.choice((1, 2, 3))
    return mean(draw.polynomial(*VARIABLES[:n], degree=6) + x, *VARIABLES[:n], law=draw.law(n))


def _degenerate(draw: Draw) -> Expectation:
    n = draw.rng.choice((2, 2, 3))
    f = draw.polynomial(*VARIABLES[:n]) * kinked(draw, x) + smooth(draw, *VARIABLES[:n])
    return mean(f + sp.Add(*VARIABLES[:n]), *VARIABLES[:n], law=draw.singular_law(n))


def _conditioning(draw: Draw) -> Expectation:
    n = draw.rng.choice((2, 3))
    forms = VARIABLES[:n]
    inside = draw.form(*draw.rng.sample(forms, draw.rng.randint(1, n)))
    lead = next(c for c in (inside.coeff(s) for s in forms) if c)
    atom = draw.rng.choice((sp.tanh, sp.cos, Phi, STEP))(inside / lead)
    return mean(atom * draw.polynomial(*forms) * sp.Mul(*forms), *forms, law=draw.law(n))


def _symmetry(draw: Draw) -> Expectation:
    kind = draw.rng.randint(0, 3)
    odd = sp.tanh(draw.form(x, y, shift=False)) * sp.Abs(draw.form(x, y, shift=False)) ** draw.rng.randint(0, 3)
    if kind == 0:
        return mean(odd * sp.cos(x) * y**2, x, y, law=draw.law(2, centred=True))
    if kind == 1:
        return mean(sp.sin(x) * smooth(draw, y), x, y, law=pair(0, draw.nonzero() ** 2, 2, (0, draw.number())))
    s = draw.number(1)
    law = pair(R(draw.rng.randint(-5, 5), 6), 1, 1, (s, s))
    f = smooth(draw, x, y)
    return mean(f - f.xreplace({x: y, y: x}) + sp.tanh(x) - sp.tanh(y), x, y, law=law)


def _tilting(draw: Draw) -> Expectation:
    n = draw.rng.choice((1, 2))
    forms = VARIABLES[:n]
    exponent = draw.form(*forms) / 2
    if draw.rng.random() < 0.6:
        exponent -= draw.form(*forms) ** 2 / draw.rng.randint(1, 4)
    elif n == 1:
        exponent += x**2 / 12  # below the limit 1 / (2 variance) of the laws drawn here
    factor = draw.rng.choice((STEP(x - draw.number()), sp.cos(x), sp.S.One))
    law = draw.law(n)
    law = Gaussian(law.mean, law.cov / 2)
    return mean(sp.exp(exponent) * factor * draw.polynomial(*forms, degree=2), *forms, law=law)


def _reflection(draw: Draw) -> Expectation:
    # under the law tilted by exp(-2 q), q = alpha x (alpha x - beta y) / (2 beta^2), the factors are independent
    beta = draw.nonzero()
    alpha = beta * draw.rng.choice((R(-1, 2), R(1, 2), 1, R(3, 2)))
    q = draw.rng.choice((1, -1)) * sp.expand(alpha * x * (alpha * x - beta * y) / (2 * beta**2))
    law = pair(0, draw.nonzero() ** 2, 1, (draw.number(), 0))
    return mean(sp.tanh(q) ** draw.rng.randint(1, 3) * draw.polynomial(x, y, degree=2), x, y, law=law)


def _probit(draw: Draw) -> Expectation:
    n, power = draw.rng.choice(((1, 1), (1, 1), (2, 1), (1, 2)))
    forms = VARIABLES[:n]
    f = Phi(draw.form(*forms, shift=power == 1)) ** power
    law = draw.law(n, centred=power == 2)
    return mean(f * draw.nonzero() * sp.Mul(*(draw.rng.choice(forms) for _ in range(2))), *forms, law=law)


def _half_line(draw: Draw) -> Expectation:
    f = STEP(x - draw.number()) * draw.nonzero() * x ** draw.rng.randint(0, 5)
    return mean(f, x, law=Gaussian([draw.number()], [[draw.nonzero() ** 2]]))


def _quadrant(draw: Draw) -> Expectation:
    one, two = draw.form(x, y, shift=False), draw.form(x, y, shift=False) + x
    if draw.rng.random() < 0.4:
        one, two = x, y
    scale = lambda f: f / (f.coeff(x) or f.coeff(y))  # steps in normal form: one term
    law = draw.law(2, centred=True)
    powers = x ** draw.rng.randint(0, 4) * y ** draw.rng.randint(0, 3)
    if scale(one) == scale(two):
        two = x - 2 * y
    return mean(STEP(scale(one)) * STEP(scale(two)) * powers, x, y, law=law)


def _oscillation(draw: Draw) -> Expectation:
    n = draw.rng.choice((1, 2))
    forms = VARIABLES[:n]
    waves = [draw.rng.choice((sp.cos, sp.sin))(draw.form(*forms)) for _ in range(draw.rng.randint(1, 2))]
    return mean(sp.Mul(*waves) * draw.polynomial(*forms), *forms, law=draw.law(n))


def _independence(draw: Draw) -> Expectation:
    scale = draw.nonzero()
    f = sp.tanh(scale * x + draw.number()) * sp.cosh(y / 3) ** draw.rng.choice((0, -1)) * sp.sqrt(1 + y**2)
    return mean(f * draw.polynomial(x, y), x, y, law=pair(0, 2, draw.nonzero() ** 2, (draw.number(), 1)))


INSTANCES: Mapping[str, tuple[Callable[[Expectation], sp.Expr | None], Callable[[Draw], Expectation]]] = {
    "linearity": (linearity, _linearity),
    "wick": (linearity, _wick),
    "degenerate": (degenerate, _degenerate),
    "conditioning": (conditioning, _conditioning),
    "symmetry": (symmetry, _symmetry),
    "tilting": (tilting, _tilting),
    "reflection": (reflection, _reflection),
    "probit": (probit, _probit),
    "half_line": (half_line, _half_line),
    "quadrant": (quadrant, _quadrant),
    "oscillation": (oscillation, _oscillation),
    "independence": (independence, _independence),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_a_rule_gives_an_equal_expression(name: str) -> None:
    rule, instance = INSTANCES[name]
    used, width = 0, 0.6 if name == "reflection" else 1.5  # tanh of a square has poles near the real axis
    for seed in range(60):
        e = instance(Draw(random.Random(1000 + seed)))
        if not isinstance(e, Expectation):
            continue
        result = rule(e)
        if result is None:
            continue
        same(result, e, width=width)
        used += 1
        if used == 20:
            return
    pytest.fail(f"{name} applied to {used} instances only")


def test_a_sum_under_one_rule_alone_is_left_or_right() -> None:
    law = pair(R(1, 2))
    sums = [
        mean(sp.exp(x) + x * sp.exp(2 * x), x),
        mean(STEP(x) + x * STEP(x - 1), x),
        mean(Phi(x) + Phi(2 * x), x),
        mean(sp.cos(x) + x**2 * sp.cos(2 * x), x),
        mean(x * STEP(x) + x**2, x),
        mean(relu(x) * relu(y) + STEP(x) * STEP(y) + sp.tanh(x) * y**2 + sp.exp(x) * y, x, y, law=law),
    ]
    for e in sums:
        for rule in RULES:
            same(closed_form(e, [rule]), e)
            same(reduced(e, [rule]), e)


def test_the_order_of_the_rules_does_not_matter() -> None:
    e = mean((relu(x) - He(2, y)) ** 2 * sp.exp(x / 3) + Phi(x) * STEP(y), x, y, law=pair(m))
    for order in (RULES, RULES[::-1], RULES[5:] + RULES[:5]):
        same(closed_form(e, order), e, {m: R(1, 2)})


def test_wick_is_isserlis() -> None:
    # E[x1 x2 x3 x4] over the three pairings, with symbols in the covariance and the mean
    c = sp.Matrix(4, 4, lambda i, j: sp.Symbol(f"c{min(i, j)}{max(i, j)}", real=True))
    z = sp.symbols("z1:5", real=True)
    pairings = c[0, 1] * c[2, 3] + c[0, 2] * c[1, 3] + c[0, 3] * c[1, 2]
    assert sp.expand(wick(sp.Mul(*z), z, Gaussian([0] * 4, c)) - pairings) == 0
    shifted = wick(x**2 * y, (x, y), Gaussian([a, b], [[v, m], [m, t]]))
    assert sp.expand(shifted - (b * (a**2 + v) + 2 * a * m)) == 0
    for n in range(0, 17, 2):
        assert wick(x**n, (x,), Gaussian([0], [[v]])) == sp.factorial2(n - 1) * v ** (n // 2)


def test_hermite_polynomials_of_a_correlated_pair() -> None:
    for j in range(5):
        for k in range(5):
            found = closed_form(mean(orthonormal(j, x) * orthonormal(k, y), x, y, law=pair(m)))
            assert found == (m**j if j == k else 0)


# ---- point masses: an integral along a line --------------------------------------------------------------------


def _along_line(f: sp.Expr, form: sp.Expr, law: Gaussian) -> float:
    """E[delta(form) f] = integral of f p along form = 0, divided by |gradient of form|."""
    gradient = np.array([float(form.coeff(x)), float(form.coeff(y))])
    foot = -float(form.subs({x: 0, y: 0})) * gradient / (gradient @ gradient)
    along = np.array([-gradient[1], gradient[0]]) / np.linalg.norm(gradient)
    s = np.linspace(-30, 30, 6001)  # f p is entire and decays: the trapezoid rule converges exponentially
    points = foot[:, None] + along[:, None] * s
    cov, centre = np.array(law.cov.tolist(), dtype=float), np.array(list(law.mean), dtype=float)
    off = points - centre[:, None]
    exponent = -np.einsum("is,ij,js->s", off, np.linalg.inv(cov), off) / 2
    density = np.exp(exponent) / (2 * np.pi * np.sqrt(np.linalg.det(cov)))
    total = sp.lambdify([x, y], f, [NUMPY, "numpy"])(*points) * density
    return float(np.sum(total) * (s[1] - s[0]) / np.linalg.norm(gradient))


def test_point_mass_is_an_integral_along_a_line() -> None:
    for seed in range(20):
        draw = Draw(random.Random(seed))
        f = draw.rng.choice((sp.tanh(x + y / 2), sp.cos(x), sp.exp(-(y**2)), sp.S.One)) * draw.polynomial(x, y)
        form, law = draw.form(x, y), draw.law(2)
        result = sp.Add(*(point_mass(mean(sp.DiracDelta(form) * g, x, y, law=law)) for g in sp.Add.make_args(f)))
        assert value(result) == pytest.approx(_along_line(f, form, law), rel=TOLERANCE, abs=TOLERANCE)


def test_point_mass_in_one_variable() -> None:
    for seed in range(20):
        draw = Draw(random.Random(seed))
        form, law = draw.form(x), draw.law(1)
        f = sp.tanh(x) * draw.polynomial(x)
        at = -form.subs(x, 0) / form.coeff(x)
        density = sp.exp(-((at - law.mean[0]) ** 2) / (2 * law.cov[0, 0])) / sp.sqrt(2 * sp.pi * law.cov[0, 0])
        found = closed_form(mean(sp.DiracDelta(form) * f, x, law=law))
        expected = f.subs(x, at) * density / sp.Abs(form.coeff(x))
        assert float(found) == pytest.approx(float(expected), rel=1e-12)  # two closed forms


def test_point_mass_with_symbols() -> None:
    found = closed_form(mean(sp.DiracDelta(m * x - t) * x**2, x, law=Gaussian([a], [[v]])))
    at = t / m
    expected = at**2 * sp.exp(-((at - a) ** 2) / (2 * v)) / sp.sqrt(2 * sp.pi * v) / sp.Abs(m)
    for slope in (R(2, 3), R(-5, 4)):
        values = {m: slope, t: R(1, 3), a: R(1, 5), v: 2}
        assert float(found.subs(values)) == pytest.approx(float(expected.subs(values)), rel=1e-12)  # closed forms


def test_a_squared_point_mass_is_not_evaluated() -> None:
    e = mean(sp.DiracDelta(x) ** 2, x)
    assert closed_form(e) == e


# ---- known values ------------------------------------------------------------------------------------------------

CASES: Mapping[str, tuple[sp.Expr, str]] = {
    "relu, order 0": (mean(relu(x), x), "0.398942280401433"),
    "relu, order 1": (mean(relu(x) * orthonormal(1, x), x), "0.5"),
    "relu, order 2": (mean(relu(x) * orthonormal(2, x), x), "0.282094791773878"),
    "relu, order 3": (mean(relu(x) * orthonormal(3, x), x), "0"),
    "relu, order 4": (mean(relu(x) * orthonormal(4, x), x), "-0.0814337519838200"),
    "relu, order 5": (mean(relu(x) * orthonormal(5, x), x), "0"),
    "relu, order 6": (mean(relu(x) * orthonormal(6, x), x), "0.0446031029038193"),
    "relu times He2": (mean(relu(x) * He(2, x), x), "0.398942280401433"),
    "E z^4": (mean(x**4, x), "3"),
    "E |z - 1/3|": (mean(sp.Abs(x - R(1, 3)), x), "0.841805561931477"),
    "P(z > 1/3)": (mean(STEP(x - R(1, 3)), x), "0.369441340181764"),
    "relu(z - 1/5), order 3": (mean(relu(x - R(1, 5)) * orthonormal(3, x), x), "0.0319285022627727"),
    "E Phi(z - 1)": (mean(Phi(x - 1), x), "0.239750061093477"),
    "pair of relus": (mean(relu(x) * relu(y), x, y, law=pair(R(1, 2))), "0.304498890522115"),
    "E relu''": (mean(relu(x).diff(x, 2), x), "0.398942280401433"),
    "E erf(a z)^2": (mean(sp.erf(2 * x) ** 2, x), "0.697043950547413"),
    "softmax(z z^T)_11": (mean(softmax(sp.Matrix([x, y]) * sp.Matrix([[x, y]]))[0, 0], x, y), "0.646446609406726"),
}


@pytest.mark.parametrize("name", CASES)
def test_known_values_in_closed_form(name: str) -> None:
    e, expected = CASES[name]
    found = closed_form(e)
    assert not found.has(Expectation)
    assert float(found) == pytest.approx(float(expected), rel=1e-14, abs=0)  # given to 15 digits


def test_exact_zeros_are_zero() -> None:
    assert closed_form(mean(relu(x) * He(3, x), x)) is sp.S.Zero
    assert closed_form(mean(sp.tanh(x) * relu(y) * x**2, x, y)) is sp.S.Zero
    assert closed_form(mean(sp.tanh(x * y), x, y)) is sp.S.Zero
    assert closed_form(mean(sigmoid(x - y), x, y, law=pair(m))) is sp.S.Half
    assert closed_form(mean(SoftmaxEntry(x, y, w) - SoftmaxEntry(y, x, w), x, y, w)) == 0


@pytest.mark.parametrize(
    "odd",
    [
        sp.tanh(x) * sp.Abs(x),
        sp.sign(x) * sp.tanh(x) ** 2,
        sp.sin(x) * sp.Abs(x + y) * sp.Abs(x - y),
        sp.tanh(x) * relu(y) * relu(-y + 1) * sp.Abs(x),
        relu(x - y) * sp.tanh(x + y) + relu(y - x) * sp.tanh(x + y),
    ],
    ids=str,
)
def test_symmetry_survives_the_kinks(odd: sp.Expr) -> None:
    assert closed_form(mean(odd, x, y)) is sp.S.Zero


def test_a_correct_zero_is_not_dropped() -> None:
    assert closed_form(1 + mean(x**3, x)) == 1
    assert reduced(mean(sp.tanh(x), x) + 2) == 2


# ---- closed_form and reduced -------------------------------------------------------------------------------------


def test_closed_form_is_all_or_nothing_for_each_expectation() -> None:
    partly = mean(sp.tanh(x) ** 2 + x**2 + relu(x), x)
    whole = mean(relu(x) ** 2, x)
    assert closed_form(partly) == partly
    assert closed_form(3 * partly**2 + t * whole) == 3 * partly**2 + t / 2
    assert closed_form(sp.sqrt(whole)) == sp.sqrt(2) / 2


def test_reduced_takes_a_square_apart() -> None:
    law = Gaussian([0] * 3, [[1, R(1, 2), R(1, 3)], [R(1, 2), 1, 0], [R(1, 3), 0, 1]])
    e = mean((relu(x) - He(2, y) - sp.tanh(w)) ** 2, x, y, w, law=law)
    found = reduced(e)
    assert dimension(found) == 2
    same(found, e)


@pytest.mark.parametrize(
    ("n", "seeds"),
    [
        (1, range(5)),
        (2, range(4)),
        pytest.param(1, range(5, 200), marks=pytest.mark.slow),
        pytest.param(2, range(4, 100), marks=pytest.mark.slow),
    ],
    ids=lambda v: str(v) if isinstance(v, int) else f"{len(v)} seeds",
)
def test_any_product_keeps_its_value(n: int, seeds: range) -> None:
    for seed in seeds:
        draw = Draw(random.Random(1000 * n + seed))
        variables = VARIABLES[:n]
        kinds = (kinked, smooth)
        f = draw.polynomial(*variables) * draw.rng.choice(kinds)(draw, *variables) * kinked(draw, variables[-1])
        f += draw.polynomial(*variables, degree=2) * draw.rng.choice(kinds)(draw, *variables)
        e = mean(f, *variables, law=draw.law(n))
        for step in (closed_form, reduced):
            found = step(e)
            same(found, e)
            assert dimension(found) <= dimension(e)


PARAMETRIC: Sequence[sp.Expr] = (
    mean(relu(x) * relu(y), x, y, law=pair(m)),
    mean(relu(x) ** 3 * relu(-y) ** 2, x, y, law=pair(m, v, 2)),
    mean((relu(x) - He(2, y)) ** 2 * y, x, y, law=pair(m)),
    mean(sp.Abs(x) * sp.sign(y) * (x + y) ** 3, x, y, law=pair(m, 2, v)),
    mean(sp.Max(x, y) * y - sp.Min(x, 2 * y), x, y, law=pair(m, v)),
    mean(sp.exp(-(x**2)) * relu(y), x, y, law=pair(m)),
    mean(sp.exp(-v * x**2 + t * y) * relu(y), x, y, law=pair(m)),
    mean(STEP(x - t) * He(3, y), x, y, law=pair(m, v, 1, (a, b))),
    mean(Phi(t * x + a) * y**2, x, y, law=pair(m, 1, 1, (b, 0))),
    mean(Phi(x) * Phi(t * y) * x, x, y, law=pair(m)),
    mean(sp.erf(x) * sp.erf(y), x, y, law=pair(m, v)),
    mean(sp.cos(t * x) * sp.sin(y) * x * y, x, y, law=pair(m, v, 1, (a, b))),
    mean(sp.tanh(y) * relu(x - t) * He(2, x), x, y, law=pair(m)),
    mean(sp.Abs(x) ** 3 * y**2 + sp.sqrt((x - y) ** 2), x, y, law=pair(m)),
    mean(relu(x + t * y) * relu(y - t * x), x, y, law=pair(m)),
    mean(t * STEP(a) * relu(x) * sp.Abs(b) + m * STEP(t), x),
)


@pytest.mark.parametrize("e", PARAMETRIC, ids=str)
def test_parameters_may_be_substituted_after_the_rules(e: sp.Expr) -> None:
    closed, smaller = closed_form(e), reduced(e)
    assert dimension(smaller) <= dimension(e)
    for correlation, threshold in ((R(3, 5), R(1, 3)), (R(-4, 5), R(-3, 2)), (0, 0)):
        values = {m: correlation, t: threshold, a: R(1, 4), b: R(-2, 3), v: R(7, 4)}
        same(closed, e, values)
        same(smaller, e, values)


# ---- degenerate laws ---------------------------------------------------------------------------------------------

SQUARES: Sequence[sp.Expr] = (
    relu(x) * relu(y),
    relu(x) ** 2 * y**2 * STEP(y),
    sp.Abs(x) * sp.sign(y) * y,
    Phi(x) * Phi(y),
    sp.erf(x) * sp.erf(2 * y),
    sp.exp(-((x - y) ** 2)) * relu(y),
    sp.Max(x, y) ** 2,
    sp.Abs(x + 2 * y),
    sp.cos(x) * sp.cos(y) * x * y,
    He(3, x) * He(3, y) + STEP(x - R(1, 3)) * y**2,
)


@pytest.mark.parametrize("f", SQUARES, ids=str)
@pytest.mark.parametrize("limit", [1, -1])
def test_full_correlation_in_a_derived_closed_form(f: sp.Expr, limit: int) -> None:
    found = closed_form(mean(f, x, y, law=pair(m))).subs(m, limit)
    expected = value(mean(f.xreplace({y: limit * x}), x))
    assert value(found) == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    exact = closed_form(mean(f, x, y, law=pair(limit)))
    assert value(exact) == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)


ROOT = sp.sqrt(2) + 1


@pytest.mark.parametrize(
    "law",
    [
        pair(0, 1, 0, (0, R(1, 2))),
        pair(0, 0, 1, (R(1, 3), 0)),
        pair(0, 0, 0, (1, -2)),
        pair(2, 1, 4, (0, 1)),
        pair(ROOT, 3, ROOT**2 / 3),
        pair(ROOT, 3, sp.expand(ROOT**2) / 3),
    ],
    ids=str,
)
def test_exactly_degenerate_laws(law: Gaussian) -> None:
    for f in (relu(x) * sp.tanh(y + R(1, 3)), relu(x) * sp.Abs(y), sp.exp(-(x**2) - y**2) * relu(x + y), x**2 * y**4):
        e = mean(f, x, y, law=law)
        same(closed_form(e), e)
        same(reduced(e), e)


def test_degenerate_laws_of_three() -> None:
    numbers = Gaussian([0] * 3, [[3, ROOT, 1], [ROOT, ROOT**2 / 3, ROOT / 3], [1, ROOT / 3, 2]])
    e = mean(STEP(x) * sp.tanh(y) * w**2, x, y, w, law=numbers)
    same(reduced(e), e)
    for c in ([[v, v, 0], [v, v, 0], [0, 0, 1]], [[v, v, v], [v, v, v], [v, v, v + 1]]):
        symbolic = mean(STEP(x) * sp.tanh(y) * w**2, x, y, w, law=Gaussian([0] * 3, c))
        same(reduced(symbolic), symbolic, {v: R(3, 2)})


@pytest.mark.parametrize(
    "f", [STEP(x) * STEP(y), STEP(x) * STEP(y) * x, relu(x) * STEP(y) * x, relu(x) * relu(y)], ids=str
)
def test_a_variable_of_variance_zero_beside_a_symbolic_one(f: sp.Expr) -> None:
    e = mean(f, x, y, law=pair(0, v, 0))
    found = closed_form(e)
    assert not found.has(sp.nan, sp.zoo, sp.oo)
    same(found, e, {v: R(3, 2)})


def test_a_variance_that_vanishes_later() -> None:
    for f, expected in ((STEP(x - t), 1), (relu(x - t) * x, R(1, 2) * R(3, 2)), (sp.Abs(x) * sp.cos(x), None)):
        found = closed_form(mean(f, x, law=Gaussian([R(3, 2)], [[v]])))
        limit = value(found, {t: 1, v: R(1, 10**10)})
        at = float(f.subs({x: R(3, 2), t: 1})) if expected is None else float(expected)
        assert limit == pytest.approx(at, abs=1e-8)  # the next order is the variance


# ---- thresholds of unknown sign, huge numbers, odd integrands ----------------------------------------------------


@pytest.mark.parametrize("f", [STEP(m * x - t) * x, relu(m * x) * x, relu(t - m * x) ** 2, sp.Abs(m * x + t)], ids=str)
def test_slopes_of_unknown_sign(f: sp.Expr) -> None:
    e = mean(f, x)
    closed, smaller = closed_form(e), reduced(e)
    for slope in (2, R(-1, 2), 0):
        for found in (closed, smaller):
            assert not found.xreplace({m: sp.S(slope)}).has(sp.nan, sp.zoo)
            same(found, e, {m: slope, t: R(1, 3)})


@pytest.mark.parametrize("big", [10**6, 10**12])
def test_huge_parameters(big: int) -> None:
    found = closed_form(mean(relu(big * x + 1) * x, x) - big * mean(STEP(x + R(1, big)), x))
    assert abs(float(found.evalf(30))) < 1e-20 * big  # Stein's lemma: both are equal
    law = pair(R(1, 2) * big, big**2, 1)
    scaled = closed_form(mean(relu(x) * relu(y), x, y, law=law)) / big
    assert float(scaled) == pytest.approx(0.304498890522115, rel=1e-14)  # given to 15 digits


def test_two_thresholds_in_one_variable() -> None:
    for f in (STEP(x - R(1, 3)) * STEP(1 - x), STEP(x - R(1, 3)) * STEP(x - 1), relu(x + 1) * relu(1 - x)):
        for p in (1, x, He(3, x)):
            e = mean(f * p, x)
            same(closed_form(e), e)
            same(reduced(e), e)


HARD: Sequence[sp.Expr] = (
    mean(sp.Max(x, y, 0), x, y, law=pair(R(1, 2))),
    mean(sp.Max(x, y, 1) * x, x, y, law=pair(R(-1, 3))),
    mean(sp.Min(x, y, R(1, 2)) * relu(x), x, y, law=pair(R(1, 4), 2)),
    mean(relu(x) ** 2 * sp.Abs(y) ** 3, x, y, law=pair(R(2, 3))),
    mean(sp.log(1 + sp.Abs(x)) * sp.sign(x) * x, x),
    mean(y**2 / (1 + x**2), x, y, law=pair(R(1, 2))),
    mean(sp.exp(x * y / 2) * relu(x), x, y, law=pair(R(1, 3))),
    mean(sigmoid(x) ** 2 * softplus(y) * y, x, y, law=pair(R(1, 3))),
    mean(SoftmaxEntry(x, y, 0) * x, x, y, law=pair(R(1, 3))),
    mean(sp.Abs(y - x) * He(2, x) * sp.tanh(y), x, y, law=pair(R(1, 3))),
    mean(Phi(x - 1) * STEP(x) * Phi(y) ** 2, x, y, law=pair(R(1, 3))),
    mean(Phi(x) ** 3 + Phi(x) ** 4, x),
)


@pytest.mark.parametrize("e", HARD, ids=str)
def test_hard_integrands_keep_their_value(e: sp.Expr) -> None:
    for step in (closed_form, reduced):
        found = step(e)
        same(found, e, width=1)
        assert dimension(found) <= dimension(e)


def test_steps_of_other_functions_keep_their_value() -> None:
    # P(x^2 > 1) E y^2, E[x; relu(x) > 1/2], E[relu(|x| - 1/2) x^2]
    for f, plain in (
        (STEP(x**2 - 1) * y**2, STEP(x - 1) * y**2 + STEP(-x - 1) * y**2),
        (STEP(relu(x) - R(1, 2)) * x, STEP(x - R(1, 2)) * x),
        (STEP(STEP(x) - R(1, 2)) * x, STEP(x) * x),
    ):
        expected = value(mean(plain, x, y) if f.has(y) else mean(plain, x))
        e = mean(f, x, y) if f.has(y) else mean(f, x)
        for step in (closed_form, reduced):
            found = step(e)
            for inner in found.atoms(Expectation):
                (z,) = inner.variables if len(inner.variables) == 1 else (None,)
                if z is not None:
                    number = _by_pieces(inner.integrand, z)
                    found = found.xreplace({inner: sp.Float(number, 17)})
            if not found.has(Expectation):
                assert float(found) == pytest.approx(expected, rel=TOLERANCE)


def _by_pieces(f: sp.Expr, z: sp.Symbol) -> float:
    """E f(z) by mpmath, split at the few points where the steps above jump."""
    g = sp.lambdify([z], f, [{"Heaviside": lambda u, _=0.5: mp.mpf(u > 0) if u else mp.mpf(0.5),
                              "relu": lambda u: max(u, mp.mpf(0)), "He": NUMPY["He"]}, "mpmath"])  # fmt: skip
    with mp.workdps(20):
        return float(mp.quad(lambda s: g(s) * mp.npdf(s), [-12, -5, -1, -0.5, 0, 0.5, 1, 5, 12]))


def test_expectations_that_do_not_exist_are_not_evaluated() -> None:
    law = pair(R(1, 2))
    for e in (mean(sp.exp(x**2), x), mean(sp.exp(x**2 / 2) * STEP(x - 1), x), mean(sp.exp(x * y), x, y, law=law)):
        assert closed_form(e) == e
    assert closed_form(mean(sp.exp(t * x**2), x)).has(Expectation)  # exists for t < 1/2 only


@pytest.mark.parametrize("f", [sp.exp(x**2) * x, x / (x**2) ** 2, sp.exp(x**2 / 2) * sp.tanh(x)], ids=str)
def test_symmetry_does_not_invent_a_value(f: sp.Expr) -> None:
    # neither the positive nor the negative half has a finite mean
    e = mean(f, x)
    assert closed_form(e) == e


def test_symbolic_powers_are_left() -> None:
    for f in (sp.Abs(x) ** t, relu(x) ** t * x, sp.Abs(x) ** R(1, 2) * y**2):
        e = mean(f, x, y, law=pair(m))
        assert closed_form(e) == e
        assert dimension(reduced(e)) <= dimension(e)


def test_nested_expectations_keep_their_value() -> None:
    inner = mean(sp.tanh(x + m * y) ** 2 + (x + y) ** 2, x)
    outer = mean(inner * y**2, y)
    flat = value(mean((sp.tanh(x + R(2, 5) * y) ** 2 + (x + y) ** 2) * y**2, x, y))
    for step in (closed_form, reduced):
        assert value_nested(step(outer), {m: R(2, 5)}) == pytest.approx(flat, rel=TOLERANCE)


# ---- mpmath at 30 digits -----------------------------------------------------------------------------------------

ONE_VARIABLE: Sequence[tuple[sp.Expr, Any, Any]] = (
    (relu(x - R(1, 3)) ** 2 * He(3, x), 0, 1),
    (sp.Abs(x + R(1, 7)) ** 3 * x, R(1, 2), R(3, 2)),
    (sp.exp(-(x**2) / 3 + x) * STEP(x - R(1, 2)) * x**2, R(-1, 3), R(2, 3)),
    (Phi(2 * x - 1) * x**3, R(1, 5), 2),
    (Phi(x) ** 2 * x**2, 0, 1),
    (sp.cos(2 * x + 1) * sp.sin(x) * x**3, R(1, 3), R(1, 2)),
    (sp.sign(x - 2) * x**4 + sp.Max(x, R(1, 4)) * x, 1, 3),
    (softplus(x) * x + sigmoid(x), 0, 1),
)


@pytest.mark.parametrize("case", ONE_VARIABLE, ids=lambda c: str(c[0]))
def test_closed_forms_to_many_digits(case: tuple[sp.Expr, Any, Any]) -> None:
    f, centre, variance = case
    found = closed_form(mean(f, x, law=Gaussian([centre], [[variance]])))
    assert not found.has(Expectation)
    with mp.workdps(30):
        expected = value_mp(f, x, centre, variance)
        assert abs(mp.mpf(str(found.evalf(28))) - expected) < mp.mpf(10) ** -22 * (1 + abs(expected))  # mp.quad
