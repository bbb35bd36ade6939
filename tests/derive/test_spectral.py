"""tanh of a product of two Gaussian factors: one frequency in place of two variables, against 2-D quadrature."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import pytest
import sympy as sp

from derive.expectation import Expectation, expectations
from derive.functions import SoftmaxEntry, sigmoid
from derive.latex import latex_expression
from derive.mathml import mathml_expression
from derive.measures import Gaussian, standard_normal
from derive.rules import closed_form, reduced
from derive.rules.spectral import spectral
from derive.spectrum import SechSpectrum
from derive.task import load
from derive.text import read_text, text
from tests.derive.truth import MPMATH, value, value_mp

x, y = sp.symbols("x y", real=True)
a, c, e = sp.symbols("a c e", real=True)
v = sp.Symbol("v", positive=True)
R = sp.Rational
T = sp.tanh(x * y / 2)


def mean(f: sp.Expr, law: Gaussian | None = None) -> sp.Expr:
    return Expectation(f, (x, y), law or standard_normal(2))


def independent(v1: Any = 1, v2: Any = 1, centre: Sequence[Any] = (0, 0)) -> Gaussian:
    return Gaussian(centre, sp.diag(v1, v2))


def dimension(f: sp.Expr) -> int:
    return max((len(k.variables) for k in f.atoms(Expectation)), default=0)


# ------------------------------------------------------------------------------------ the spectrum


@pytest.mark.parametrize("u", ["0", "1/3", "2", "5"])
def test_the_spectrum_is_that_of_the_squared_secant(u: str) -> None:
    wave = SechSpectrum(x) * sp.cos(SechSpectrum.frequency(x) * R(u))
    found = closed_form(Expectation(wave, [x], standard_normal()))  # the rules leave it alone
    assert found == Expectation(wave, [x], standard_normal())
    with mp.workdps(30):
        # cut at |x| = 12, where the normal density times 330 is 1e-29
        assert abs(value_mp(wave, x) - mp.sech(mp.mpf(R(u).p) / R(u).q) ** 2) < mp.mpf(10) ** -27


def test_the_node() -> None:
    assert SechSpectrum(0) == 2 * sp.sqrt(2) / sp.pi ** R(3, 2)
    assert SechSpectrum(-x) == SechSpectrum(x)
    near = SechSpectrum(R(1, 10**8)).evalf(30)
    assert abs(near - SechSpectrum(0).evalf(30)) < 1e-15  # even and smooth: of second order in x
    assert read_text(text(SechSpectrum(x) / 3), {"x": x}) == SechSpectrum(x) / 3


def test_people_see_elementary_functions() -> None:
    shown = reduced(mean(T**2))
    assert r"\sinh" in latex_expression(shown)
    assert "SechSpectrum" not in latex_expression(shown) + mathml_expression(shown)
    assert "sinh" in mathml_expression(SechSpectrum(x))


# ------------------------------------------------------------------------------------ thirty digits


def plane_mp(f: sp.Expr, law: Gaussian, step: str = "0.08") -> mp.mpf:
    """E f(x, y), x and y independent, by the trapezoid rule at 34 digits.

    A pole of tanh(c x y) at |Im x| = pi / (2 c |y|) costs exp(-y^2/2 - pi^2 / (c s_x |y| h)): 1e-31 at the worst y
    for the laws and the step of the tests here.
    """
    g = sp.lambdify([x, y], f, [MPMATH, "mpmath"])
    h, reach = mp.mpf(step), 12
    nodes = [k * h for k in range(-int(reach / h), int(reach / h) + 1)]
    weights = [h * mp.npdf(t) for t in nodes]
    mx, my, vx, vy = (mp.mpf(int(n.p)) / int(n.q) for n in (*law.mean, law.cov[0, 0], law.cov[1, 1]))
    across = [my + mp.sqrt(vy) * t for t in nodes]
    along = [mx + mp.sqrt(vx) * t for t in nodes]
    return mp.fsum(w * mp.fdot(weights, [g(s, t) for t in across]) for s, w in zip(along, weights, strict=True))


def line_mp(f: sp.Expr) -> mp.mpf:
    """An expression with expectations over one standard normal variable, by the trapezoid rule at 34 digits."""
    h, numbers = mp.mpf("0.08"), {}
    for k in expectations(f):
        assert k.measure == standard_normal()
        g = sp.lambdify(list(k.variables), k.integrand, [MPMATH, "mpmath"])
        total = mp.fsum(h * mp.npdf(n * h) * g(n * h) for n in range(-225, 226))  # up to 18: integrands grow like x^23
        numbers[k] = sp.Float(str(total), 34)
    return mp.mpf(str(f.xreplace(numbers).evalf(34)))


THIRTY: Sequence[tuple[sp.Expr, Gaussian]] = (
    (T**2, independent(R(1, 2), R(1, 2), (0, R(1, 3)))),
    (T**3 * x * (y**2 + 2), independent(R(1, 2), R(1, 3), (0, R(-2, 3)))),
    pytest.param(T * x**3, independent(R(1, 2), R(1, 2), (0, R(1, 3))), marks=pytest.mark.slow),
    pytest.param(T**4 * (1 + x**2 * y), independent(R(1, 2), R(1, 3), (R(1, 4), R(1, 3))), marks=pytest.mark.slow),
    pytest.param(T**12 * y**2, independent(R(1, 2), R(1, 2), (R(1, 2), 0)), marks=pytest.mark.slow),
    pytest.param(T**11 * x * y, independent(R(1, 2), R(1, 2)), marks=pytest.mark.slow),
)


@pytest.mark.parametrize(("f", "law"), THIRTY, ids=str)
def test_thirty_digits(f: sp.Expr, law: Gaussian) -> None:
    found = reduced(mean(f, law))
    assert dimension(found) == 1
    with mp.workdps(34):
        assert (
            abs(line_mp(found) - plane_mp(f, law)) < mp.mpf(10) ** -28
        )  # a pole of order 12 costs the plane's rule 3 digits


# ------------------------------------------------------------------------------------ any power, law and polynomial


def product_of_forms(draw: random.Random) -> tuple[sp.Expr, Gaussian]:
    """q with tr(C Q) = 0, some with linear parts and both means, and its law."""
    number = lambda: R(draw.randint(1, 6), 6)
    v1, v2, scale = number(), number(), number() * draw.choice((-1, 1))
    law = independent(v1, v2, draw.choice(((0, number()), (0, 0), (number(), number()))))
    if draw.random() < 0.5:
        return scale * x * y, law
    return scale * (x**2 / v1 - y**2 / v2) / 6 + (number() * x if draw.random() < 0.5 else 0), law


@pytest.mark.parametrize("seed", range(30))
def test_random_instances(seed: int) -> None:
    draw = random.Random(seed)
    q, law = product_of_forms(draw)
    k = draw.randint(1, 6)
    powers = [x ** draw.randint(0, 3) * y ** draw.randint(0, 3) for _ in range(2)]
    f = sp.tanh(q) ** k * sp.Add(*(R(draw.randint(1, 9), 3) * p for p in powers))
    found = spectral(mean(f, law))
    if found is None:
        assert k % 2
        assert any(law.mean) or q.coeff(x, 1).coeff(y, 0) != 0  # the exponent has a phase
        return
    assert dimension(reduced(found)) <= 1
    assert value(reduced(found), width=0.5) == pytest.approx(value(mean(f, law), width=0.5), rel=1e-11, abs=1e-11)
    # both by trapezoid rules in float64; tanh of the squares has poles near the real axis


def test_parameters_in_the_form_the_law_and_the_polynomial() -> None:
    e_ = mean(sp.tanh(c * x * y) ** 2 * (a * x**2 + y), independent(v, 2, (0, e)))
    found = reduced(e_)
    assert dimension(found) == 1
    assert not any(k.has_free(a) for k in expectations(found))  # needed once for all values of a
    for values in ({a: R(2, 3), c: R(3, 4), v: R(1, 2), e: R(1, 3)}, {a: -1, c: R(-1, 2), v: 1, e: 0}):
        assert value(found, values) == pytest.approx(value(e_, values, width=0.7), rel=1e-12)  # float64
    slope = found.diff(e).doit()
    ahead, behind = (value(e_, {a: 1, c: R(1, 2), v: 1, e: R(1, 2) + s * R(1, 1000)}, width=0.7) for s in (1, -1))
    at = {a: 1, c: R(1, 2), v: 1, e: R(1, 2)}
    assert value(slope, at) == pytest.approx(500 * (ahead - behind), rel=1e-6)  # a central difference


CORRELATED = Gaussian([0, 0], [[1, R(1, 2)], [R(1, 2), 1]])
REFUSED: dict[str, sp.Expr] = {
    "correlated factors": mean(T**2, CORRELATED),
    "one sign": mean(sp.tanh(x**2 + y**2) ** 2),
    "odd with a phase": mean(T, independent(1, 1, (1, 1))),
    "too high a power": mean(T**13 * x * y),
    "a variance of unknown sign": mean(T**2, independent(a, 1)),
    "another function beside it": mean(T**2 * sp.cos(x)),
    "a cubic": mean(sp.tanh(x**2 * y) ** 2),
    "three variables": Expectation(sp.tanh(x * y + a * x) ** 2, (x, y, a), standard_normal(3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_rule_is_not_about(name: str) -> None:
    e_ = REFUSED[name]
    assert spectral(e_) is None
    assert reduced(e_).has(Expectation)


def test_factors_that_are_uncorrelated_only_as_forms() -> None:
    # (x + y)(x - y) has uncorrelated factors for equal variances, whatever the correlation of x and y
    e_ = mean(sp.tanh((x + y) * (x - y) / 2) ** 2, CORRELATED)
    found = reduced(e_)
    assert dimension(found) == 1
    assert value(found) == pytest.approx(value(e_, width=0.5), rel=1e-12)  # trapezoid rules in float64


# ------------------------------------------------------------------------------------ attention with positions


def attention(power: int, *, polynomial: sp.Expr = sp.S.One) -> sp.Expr:
    """E[P softmax(s s^T)_11^power] at the positional overlap e, s = (x, y) + (e, -e)."""
    return Expectation(SoftmaxEntry(x**2, x * y) ** power * polynomial, (x, y), Gaussian([e, -e], sp.eye(2)))


def test_the_mean_square_of_an_entry_of_attention() -> None:
    found = reduced(attention(2))
    assert dimension(found) == 1
    (integral,) = expectations(found)
    assert integral.measure == standard_normal()
    # 1 - 2 (1 - B) + exp(-e^2/2)/sqrt 2 E sigmoid'(s1 v): tilting by hand  [the note on this task, section 4]
    slope = Expectation(sigmoid(x * y) * sigmoid(-x * y), (x, y), independent(R(1, 2), 1, (0, e)))
    weight = sp.exp(-(e**2) / 2) / sp.sqrt(2)
    for at in (0, R(1, 3), R(-7, 10), 1, 3):
        found_at = value(found, {e: at})
        assert found_at == pytest.approx(value(1 - weight + weight * slope, {e: at}, width=0.6), rel=1e-12)
        assert found_at == pytest.approx(value(attention(2), {e: at}, width=0.25), rel=1e-12)  # float64


@pytest.mark.parametrize(
    "further",
    [attention(3), attention(4), attention(2, polynomial=x * y), attention(3, polynomial=x**2 - x * y)],
    ids=["third moment", "fourth moment", "with x y", "third with a quadratic"],
)
def test_further_moments_of_attention(further: sp.Expr) -> None:
    """None of these is in the note: two variables become one."""
    found = reduced(further)
    assert dimension(found) == 1
    for at in (0, R(1, 2), -1):
        assert value(found, {e: at}) == pytest.approx(value(further, {e: at}, width=0.25), rel=1e-12)  # float64


def test_the_example_has_no_integral_over_two_variables_in_its_risk() -> None:
    """What depends on e alone, and what on nothing, is over one variable; C(m, e) couples four."""
    risk = load("positional-semantic").problem.risk
    sizes = {len(k.variables) for k in expectations(risk)}
    assert sizes == {1, 4}
    names = [{s.name for s in k.free_symbols} for k in expectations(risk) if len(k.variables) == 1]
    assert {"e"} in names
    assert all(n <= {"e"} for n in names)


def test_the_rule_can_be_left_out() -> None:
    from derive.rules import RULES

    without: Sequence[Callable[[Expectation], sp.Expr | None]] = [r for r in RULES if r is not spectral]
    assert dimension(reduced(attention(2), without)) == 2
