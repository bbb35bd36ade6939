from __future__ import annotations

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb

from derive.expectation import Expectation
from derive.functions import He, LogCosh, Phi, SoftmaxEntry, orthonormal, relu, sigmoid, softplus
from derive.measures import Gaussian, standard_normal
from solve.certify import enclose
from solve.enclosure import evaluate_ball
from solve.straightline import NotEnclosed

x = sp.Symbol("x", real=True)
z = sp.symbols("z1:6", real=True)
R = sp.Rational
HALF = R(1, 2)


def expect(f: sp.Expr, dim: int = 1, cov: object = None) -> sp.Expr:
    return Expectation(f, z[:dim], Gaussian([0] * dim, cov) if cov else standard_normal(dim))


def exact(number: arb) -> mpmath.mpf:
    mantissa, exponent = number.man_exp()
    return mpmath.mpf(int(mantissa)) * mpmath.mpf(2) ** int(exponent)


def holds(ball: arb, value: mpmath.mpf, digits: int) -> bool:
    """The ball holds a value that is known to `digits` digits, and is no wider than that."""
    with mpmath.workdps(60):
        middle, radius, slack = exact(ball.mid()), exact(ball.rad()), mpmath.mpf(10) ** -digits
        return bool(abs(middle - value) <= radius + slack and radius < 2 * slack)


# ----------------------------------------------------------------------------- constants

mp = mpmath.mp
CONSTANTS = [
    (sp.exp(R(-7, 3)) + sp.log(R(5, 7)), lambda: mp.exp(mp.mpf(-7) / 3) + mp.log(mp.mpf(5) / 7)),
    (sp.sqrt(2) * sp.sin(3) - sp.cos(sp.pi / 7), lambda: mp.sqrt(2) * mp.sin(3) - mp.cos(mp.pi / 7)),
    (sp.tanh(R(9, 4)) ** R(-2, 3), lambda: mp.tanh(mp.mpf(9) / 4) ** (-mp.mpf(2) / 3)),
    (
        sp.asin(R(1, 3)) + sp.acos(R(2, 7)) * sp.atan(5),
        lambda: mp.asin(mp.mpf(1) / 3) + mp.acos(mp.mpf(2) / 7) * mp.atan(5),
    ),
    (sp.erf(R(1, 3)) * sp.erfc(2), lambda: mp.erf(mp.mpf(1) / 3) * mp.erfc(2)),
    (Phi(R(-8)), lambda: mp.ncdf(-8)),
    (He(5, sp.sqrt(3) + sp.pi), lambda: (lambda t: t**5 - 10 * t**3 + 15 * t)(mp.sqrt(3) + mp.pi)),
    (relu(sp.pi - 3) + relu(3 - sp.pi), lambda: mp.pi - 3),
    (sigmoid(R(-7, 2)), lambda: 1 / (1 + mp.exp(mp.mpf(7) / 2))),
    (softplus(R(-30)), lambda: mp.log1p(mp.exp(-30))),
    (LogCosh(R(5, 3)), lambda: mp.log(2 * mp.cosh(mp.mpf(5) / 3))),
    (SoftmaxEntry(R(1), R(2), R(1, 2)), lambda: mp.e / (mp.e + mp.e**2 + mp.sqrt(mp.e))),
    (sp.gamma(R(1, 3)) * sp.pi ** R(5, 2), lambda: mp.gamma(mp.mpf(1) / 3) * mp.pi ** (mp.mpf(5) / 2)),
    (2 ** sp.sqrt(2) + sp.Abs(sp.sin(4)), lambda: 2 ** mp.sqrt(2) + abs(mp.sin(4))),
    (sp.Max(sp.sin(3), sp.cos(3), R(1, 7)), lambda: mp.mpf(1) / 7),
]


@pytest.mark.parametrize(("expr", "value"), CONSTANTS, ids=[str(e)[:30] for e, _ in CONSTANTS])
def test_a_constant_is_in_its_ball(expr, value):
    with mpmath.workdps(45):
        assert holds(evaluate_ball(expr, 120), value(), 35)  # 120 bits are 36 digits


def test_a_float_or_an_unknown_symbol_is_no_constant():
    with pytest.raises(ValueError, match="give rationals"):
        evaluate_ball(sp.Float(0.5) * sp.pi)
    with pytest.raises(ValueError, match="x"):
        evaluate_ball(x + 1)
    with pytest.raises(ValueError, match="not real"):
        evaluate_ball(sp.sqrt(sp.sin(4)))


# ----------------------------------------------------------------------------- one variable


def normal_quad(f, *cuts):
    """E f(z), z ~ N(0, 1), to 30 digits: tanh-sinh on pieces that end where f has a kink."""
    ends = sorted([-16, *(c + 0.0 for c in range(-12, 13, 4)), 16, *cuts])
    return mpmath.quad(lambda t: f(t) * mpmath.npdf(t), ends)


LINES = [
    (sp.tanh(R(3, 4) * x - R(2, 5)) ** 3, lambda t: mp.tanh(t * 3 / 4 - mp.mpf(2) / 5) ** 3, ()),
    (sigmoid(3 * x**2 - 1) * x**4, lambda t: t**4 / (1 + mp.exp(1 - 3 * t**2)), ()),
    (softplus(x - 2) * LogCosh(2 * x), lambda t: mp.log1p(mp.exp(t - 2)) * mp.log(2 * mp.cosh(2 * t)), ()),
    (relu(x - R(3, 4)) * sp.cos(3 * x), lambda t: max(t - mp.mpf(3) / 4, 0) * mp.cos(3 * t), (mp.mpf(3) / 4,)),
    (sp.Abs(2 * x + 1) * Phi(x), lambda t: abs(2 * t + 1) * mp.ncdf(t), (-0.5,)),
    (sp.sign(1 - x) * sp.exp(x / 2), lambda t: mp.sign(1 - t) * mp.exp(t / 2), (1,)),
    (sp.Max(x, 0, 1 - x) * sp.erf(x), lambda t: max(t, 0, 1 - t) * mp.erf(t), (0, 0.5, 1)),
    (1 / (1 + x**2), lambda t: 1 / (1 + t**2), ()),
    (sp.log(2 + sp.sin(x)) * sp.sqrt(1 + x**2), lambda t: mp.log(2 + mp.sin(t)) * mp.sqrt(1 + t**2), ()),
    (sp.exp(-(x**4)) * SoftmaxEntry(x, 0, x**2), lambda t: mp.exp(t - t**4) / (mp.exp(t) + 1 + mp.exp(t**2)), ()),
]


@pytest.mark.parametrize(("f", "reference", "cuts"), LINES, ids=[str(f)[:30] for f, _, _ in LINES])
def test_an_expectation_of_one_variable_is_in_its_ball(f, reference, cuts):
    with mpmath.workdps(30):
        value = normal_quad(reference, *cuts)
    ball = evaluate_ball(Expectation(f, [x], standard_normal()), 80)
    assert holds(ball, value, 22)  # 80 bits are 24 digits; the reference has 28


def test_mean_and_variance_may_be_any_constants():
    law = Gaussian([sp.log(2)], [[sp.sqrt(2)]])
    with mpmath.workdps(30):
        mean, spread = mpmath.log(2), mpmath.sqrt(mpmath.sqrt(2))
        value = normal_quad(lambda t: mpmath.tanh(mean + spread * t))
    assert holds(evaluate_ball(Expectation(sp.tanh(x), [x], law), 80), value, 22)  # as above


def test_hermite_coefficients_of_relu():
    # sigma_0 = 1/sqrt(2 pi), sigma_1 = 1/2, even k: (-1)^(k/2+1) (k-3)!! / sqrt(2 pi k!)
    for k, c in {
        0: 1 / sp.sqrt(2 * sp.pi),
        1: HALF,
        3: 0,
        4: -1 / sp.sqrt(48 * sp.pi),
        6: 3 / sp.sqrt(1440 * sp.pi),
    }.items():
        difference = evaluate_ball(Expectation(relu(x) * orthonormal(k, x), [x], standard_normal()) - c, 100)
        assert difference.contains(0)
        assert difference.rad() < 1e-28  # 100 bits are 30 digits


def test_a_kink_that_is_not_affine_is_bisected():
    # E 1[x^2 > 1] = 2 Phi(-1)
    ball = evaluate_ball(Expectation(sp.Heaviside(x**2 - 1), [x], standard_normal()), 30)
    assert (ball - evaluate_ball(2 * Phi(-1), 60)).contains(0)
    assert ball.rad() < 1e-7  # bisection stops where its evaluations are used up


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (sp.exp(x**2), "grows faster"),
        (sp.DiracDelta(x) * sp.tanh(x), "DiracDelta"),
        (1 / (x + sp.tanh(x)), "away from zero"),
    ],
)
def test_without_a_bound_at_infinity_there_is_no_enclosure(f, why):
    with pytest.raises(NotEnclosed, match=why):
        evaluate_ball(Expectation(f, [x], standard_normal()))


def test_a_wide_parameter_gives_all_its_values():
    k = sp.Symbol("k", real=True)
    mean = Expectation(relu(x - k) * sp.tanh(x), [x], standard_normal())
    whole = evaluate_ball(mean, 12, {k: arb(1.5, 1.5)})
    for at in (0, 1, 3):
        assert whole.contains(evaluate_ball(mean, 40, {k: arb(at)}).mid())


# ----------------------------------------------------------------------------- two variables

KAPPA = expect(z[0] * z[1] * sp.tanh(z[0] * z[1] / 2), 2, [[HALF, 0], [0, 1]]) / 2
ATTENTION = sigmoid(z[0] * (z[0] - z[1]))


def trapezoid(f, dim: int, step: float, cov: object = None) -> float:
    """E f by the trapezoid rule on [-9, 9]^dim, in float64."""
    grid = np.arange(-9, 9 + step / 2, step)
    weight = np.exp(-(grid**2) / 2) * step / np.sqrt(2 * np.pi)
    points = np.meshgrid(*[grid] * dim, indexing="ij")
    if cov is not None:
        points = list(np.einsum("ij,j...->i...", np.linalg.cholesky(np.array(cov, float)), np.array(points)))
    total = f(*points)
    for _ in range(dim):
        total = total @ weight
    return float(total)


def test_values_of_the_positional_and_semantic_problem():
    low, high = map(float, enclose(KAPPA, 15))
    assert low <= 0.0996867747123848 <= high + 1e-16  # the reference has 15 digits
    assert high - low < 3e-16
    ball = evaluate_ball(expect(ATTENTION, 2) - (1 - sp.sqrt(2) / 4), 60)
    assert ball.contains(0)
    assert ball.rad() < 1e-17  # 60 bits
    c20 = evaluate_ball(expect(ATTENTION * orthonormal(2, z[0]), 2), 40)
    assert c20.contains(arb(1) / 8)
    assert c20.rad() < 1e-11  # 40 bits
    assert enclose(expect(sp.tanh(z[0]) ** 2), 15)[0].startswith("0.394294490397841")


@pytest.mark.parametrize("r", [R(-9, 10), R(1, 3), R(1, 2)])
def test_a_pair_of_tanh(r):
    cov = [[1, r], [r, 1]]
    ball = evaluate_ball(expect(sp.tanh(z[0]) * sp.tanh(2 * z[1] - 1), 2, cov), 45)
    value = trapezoid(lambda a, b: np.tanh(a) * np.tanh(2 * b - 1), 2, 0.05, cov)
    assert abs(float(ball.mid()) - value) < 1e-12  # rounding of 1e5 terms; the trapezoid rule errs by exp(-pi^2/0.1)
    assert ball.rad() < 1e-13  # 45 bits


def test_kinks_of_two_variables_are_cut_along():
    # E |u| v tanh(v), u = (x + y)/sqrt 2, v = (x - y)/sqrt 2 independent: sqrt(2/pi) E v tanh v
    u, v = (z[0] + z[1]) / sp.sqrt(2), (z[0] - z[1]) / sp.sqrt(2)
    whole = evaluate_ball(expect(sp.Abs(u) * v * sp.tanh(v), 2), 40)
    product = evaluate_ball(sp.sqrt(2 / sp.pi) * expect(z[0] * sp.tanh(z[0])), 60)
    assert (whole - product).contains(0)
    assert whole.rad() < 1e-11  # 40 bits


def test_oblique_kinks_are_bisected():
    # E 1[x > 0] 1[x + y > 0] = 1/4 + asin(1/sqrt 2) / (2 pi) = 3/8
    ball = evaluate_ball(expect(sp.Heaviside(z[0]) * sp.Heaviside(z[0] + z[1]), 2), 10)
    assert ball.contains(arb(3) / 8)
    assert ball.rad() < 1e-3  # 10 bits


def test_nested_expectations_become_one():
    inner = Expectation(sp.tanh(z[0] + x), [x], standard_normal())
    flat = expect(sp.tanh(z[0] + z[1]) * sp.tanh(z[0] + z[2]), 3)
    assert (evaluate_ball(expect(inner**2), 30) - evaluate_ball(flat, 30)).contains(0)
    with pytest.raises(NotEnclosed, match="inside"):
        evaluate_ball(expect(sp.exp(inner)))
