"""Proximal operators in numbers: against mpmath, closed forms by regions, and as nodes of expressions."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import sympy as sp

from derive.expectation import Expectation
from derive.functions import LogCosh, relu, softplus
from derive.measures import standard_normal
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox, closed_proximal
from solve.functions import compile_functions
from solve.lower import lower
from solve.proximal import proximal_solver

u, w, x, y, z, a = sp.symbols("u w x y z a", real=True)
V, delta = sp.symbols("V delta", positive=True)
NODES = (Prox, Moreau, MoreauSlope, MoreauCurvature)
ROUNDING = 1e-13  # of some tens of operations; what cancels in u - w is measured against u, w and V r

# losses with their slopes and curvatures in mpmath
SMOOTH = {
    "logistic": (softplus(-u), lambda t: -1 / (1 + mp.exp(t)), lambda t: mp.exp(-abs(t)) / (1 + mp.exp(-abs(t))) ** 2),
    "logistic, as a formula": (
        sp.log(1 + sp.exp(-u)),
        lambda t: -1 / (1 + mp.exp(t)),
        lambda t: mp.exp(-abs(t)) / (1 + mp.exp(-abs(t))) ** 2,
    ),
    "exponential": (sp.exp(-u), lambda t: -mp.exp(-t), lambda t: mp.exp(-t)),
    "log cosh": (LogCosh(u), mp.tanh, lambda t: mp.sech(t) ** 2),
    "pseudo-Huber": (sp.sqrt(1 + u**2), lambda t: t / mp.sqrt(1 + t * t), lambda t: (1 + t * t) ** mp.mpf(-1.5)),
    "square": ((1 - u) ** 2 / 2, lambda t: t - 1, lambda t: mp.mpf(1)),
    "quartic": (u**4 / 4, lambda t: t**3, lambda t: 3 * t**2),
    "sharp": (
        softplus(1000 * u) / 1000,
        lambda t: 1 / (1 + mp.exp(-1000 * t)),
        lambda t: 1000 * mp.exp(-1000 * abs(t)) / (1 + mp.exp(-1000 * abs(t))) ** 2,
    ),
}


def solved(loss: sp.Expr, step: float, points: np.ndarray) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        return proximal_solver(sp.Lambda(u, loss))(step, points)


def exact_prox(slope, step: float, point: float) -> mp.mpf:
    """u + V loss'(u) = w by bisection: the left side rises, and |u - w| <= V |loss'(w)|."""
    step, point = mp.mpf(step), mp.mpf(point)
    reach = mp.mpf(1)
    while (point - reach) + step * slope(point - reach) > point or (point + reach) + step * slope(
        point + reach
    ) < point:
        reach *= 4
    low, high = point - reach, point + reach
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (low, middle) if middle + step * slope(middle) > point else (middle, high)
    return (low + high) / 2


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("step", [1e-8, 1e-3, 1.0, 37.0, 1e5, 1e8])
def test_smooth_losses_against_bisection_at_forty_digits(name: str, step: float):
    loss, slope, curvature = SMOOTH[name]
    points = np.array([-1e6, -321.0, -20.0, -3.0, -0.4, 1e-9, 0.7, 2.5, 30.0, 4567.0, 1e6])
    if name == "exponential":
        points = points[1:]  # exp(1e6) is no double
    found = solved(loss, step, points)
    with mp.workdps(40):
        for i, point in enumerate(points):
            exact = exact_prox(slope, step, float(point))
            r, second = slope(exact), curvature(exact)
            c = second / (1 + step * second)
            size = abs(exact) + abs(point) / (1 + step * second)  # what rounding w does to u
            assert abs(found[0][i] - exact) <= ROUNDING * size
            assert abs(found[2][i] - r) <= ROUNDING * (abs(r) + second * size + 1e-300)
            # the slope of log c is 1e3 at most; 1 - tanh^2 is rounded to 1e-16
            assert abs(found[3][i] - c) <= 1e4 * ROUNDING * c * (1 + size) + 2e-16


def test_a_step_of_zero_is_the_identity_and_bad_arguments_are_nan():
    found = solved(softplus(-u), 0.0, np.array([-2.0, 5.0]))
    assert found[0].tolist() == [-2.0, 5.0]
    assert found[2] == pytest.approx([-1 / (1 + math.exp(-2)), -1 / (1 + math.exp(5))], rel=1e-15)
    with np.errstate(all="ignore"):
        bad = proximal_solver(sp.Lambda(u, softplus(-u)))(
            np.array([-1.0, 1.0, np.inf, 1.0]), np.array([0, np.nan, 0, 1.0])
        )
    assert np.isnan(bad[0]).tolist() == np.isnan(bad[2]).tolist() == [True, True, True, False]


@pytest.mark.parametrize("step", [1e-6, 0.3, 5.0, 1e6])
def test_hinge_rests_on_its_kink(step: float):
    """prox = w + V below 1 - V, 1 up to 1, then w."""
    points = np.array([-1e3, 1 - step - 1e-3, 1 - step / 2, 1 - 1e-9, 1.5])
    prox, value, r, c = solved(relu(1 - u), step, points)
    right = np.where(points < 1 - step, points + step, np.minimum(np.maximum(points, 1), points))
    right = np.where((points >= 1 - step) & (points <= 1), 1.0, right)
    assert prox == pytest.approx(right, rel=1e-15)
    assert value == pytest.approx(np.maximum(1 - right, 0), abs=1e-12)
    resting = right == 1.0
    assert r == pytest.approx(np.where(resting, (points - 1) / step, np.where(points < 1, -1.0, 0.0)), abs=1e-9)
    assert c == pytest.approx(np.where(resting, 1 / step, 0.0))


def test_a_kink_between_curved_pieces():
    """|u| + softplus(u)/2: at rest on 0 for w in V [-1 + 1/4, 1 + 1/4]."""
    step = 2.0
    points = np.array([-9.0, -1.51, -1.49, 0.0, 2.49, 2.51, 40.0])
    prox, value, r, c = solved(sp.Abs(u) + softplus(u) / 2, step, points)
    assert (prox == 0).tolist() == [False, False, True, True, True, False, False]
    moving = prox != 0
    slope = np.sign(prox) + 0.5 / (1 + np.exp(-prox))
    assert (prox + step * slope)[moving] == pytest.approx(points[moving], abs=1e-13)  # rounding
    assert r == pytest.approx((points - prox) / step, abs=1e-13)
    assert c[~moving].tolist() == [1 / step] * 3
    assert value == pytest.approx(np.abs(prox) + np.log1p(np.exp(prox)) / 2, rel=1e-15)


def test_a_kink_that_is_not_known_is_found():
    """(exp(u) - a)_+ + u^2/2 at a = e has a kink at 1, of slopes 1 and 1 + e: at rest for V = 1 and 2 <= w <= 2 + e."""
    loss = sp.Lambda(u, relu(sp.exp(u) - a) + u**2 / 2)
    with np.errstate(all="ignore"):
        prox, _, r, c = proximal_solver(loss)(1.0, np.array([1.0, 2.1, 4.0, 10.0]), math.e)
    assert prox[:3] == pytest.approx([0.5, 1, 1], abs=1e-14)  # rounding
    assert r[:3] == pytest.approx([0.5, 1.1, 3], abs=1e-14)
    assert c[:3] == pytest.approx([0.5, 1, 1], abs=1e-14)
    assert 2 * prox[3] + math.exp(prox[3]) == pytest.approx(10, abs=1e-13)


PIECEWISE = {
    "hinge": relu(1 - u),
    "squared hinge": relu(1 - u) ** 2,
    "Huber": u**2 / 2 - relu(sp.Abs(u) - delta) ** 2 / 2,
    "epsilon-insensitive": relu(sp.Abs(u) - sp.Rational(1, 2)),
    "pinball": sp.Max(u / 3, -2 * u / 3),
}


@pytest.mark.parametrize("name", PIECEWISE)
def test_piecewise_losses_agree_with_their_closed_forms(name: str):
    loss = sp.Lambda(u, PIECEWISE[name])
    nodes = [node(loss, V, w) for node in NODES]
    arguments = (V, w, delta)
    steps, points = np.exp(np.linspace(-6, 6, 41)), np.linspace(-7.03, 7.05, 41)
    grid = [*np.meshgrid(steps, points), 0.8]
    with np.errstate(all="ignore"):
        found = compile_functions(nodes, arguments)(*grid)
        right = compile_functions([closed_proximal(n) for n in nodes], arguments)(*grid)
    for have, want in zip(found, right, strict=True):
        assert have == pytest.approx(np.broadcast_to(want, have.shape), rel=1e-12, abs=1e-12)  # rounding


def test_nodes_of_equal_arguments_share_one_solution_and_may_be_nested():
    loss = sp.Lambda(u, softplus(-y * u))
    inner = Prox(loss, V, w)
    outer = MoreauSlope(loss, V**2, inner + 1)
    function = compile_functions([inner, Moreau(loss, V, w) + V, outer, x], (x, y, V, w))
    with np.errstate(all="ignore"):
        first, moreau, second, third = function(4.0, -1.0, 2.0, np.array([0.3, 1.0]))
    slope = 1 / (1 + np.exp(-first))
    assert first + 2 * slope == pytest.approx([0.3, 1.0], abs=1e-14)
    assert moreau == pytest.approx(np.log1p(np.exp(first)) + 2 * slope**2 / 2 + 2, rel=1e-14)
    after = first + 1 - 4 * second
    assert second == pytest.approx(1 / (1 + np.exp(-after)), rel=1e-13)
    assert third == 4.0


def test_expectations_of_moreau_envelopes_and_their_derivatives():
    """dM/da, by the rules, under E: against mpmath at 20 digits."""
    logistic = sp.Lambda(u, softplus(-u))
    mean = Expectation(Moreau(logistic, V, a + 2 * z), [z], standard_normal())
    found, error = lower([mean, mean.diff(a), mean.diff(V)], [a, V])(0.3, 1.7)
    with mp.workdps(20):

        def prox(t: mp.mpf) -> mp.mpf:
            return exact_prox(SMOOTH["logistic"][1], 1.7, t)

        def moments(t: mp.mpf) -> tuple[mp.mpf, ...]:
            at = prox(mp.mpf(0.3) + 2 * t)
            r = SMOOTH["logistic"][1](at)
            return (mp.log1p(mp.exp(-at)) + mp.mpf(1.7) * r * r / 2, r, -r * r / 2)

        # the trapezoid rule is exponentially accurate here; spacing 1/8 leaves 1e-14
        points = [mp.mpf(k) / 8 for k in range(-80, 81)]
        weights = [mp.npdf(t) / 8 for t in points]
        exact = [float(mp.fsum(p * m[i] for p, m in zip(weights, map(moments, points), strict=True))) for i in range(3)]
    assert found == pytest.approx(exact, rel=1e-10)  # the default accuracy
    assert error.max() <= 1e-9


def test_an_expectation_with_kinks_where_prox_comes_to_rest():
    hinge = sp.Lambda(u, relu(1 - u))
    nodes = [node(hinge, V, a + w * z) for node in NODES]
    found, right = (
        lower([Expectation(n, [z], standard_normal()) for n in some], [a, V, w])(0.3, 1.7, 1.3)[0]
        for some in (nodes, [closed_proximal(n) for n in nodes])
    )
    # A ~ N(0.3, 1.69): r = -1 below 1 - V and (A - 1)/V up to 1, so E c = P(1 - V < A < 1)/V
    inside = (mp.ncdf((1 - 0.3) / 1.3) - mp.ncdf((1 - 1.7 - 0.3) / 1.3)) / 1.7
    assert found == pytest.approx(right, rel=1e-10)  # the default accuracy
    assert found[3] == pytest.approx(float(inside), rel=1e-10)


def test_a_label_that_is_averaged_over():
    """E over y ~ N(0, 1) of the envelope of (u - y)^2/2 at w: (w^2 + 1)/(2 (1 + V)); here by Newton with 4th powers."""
    square = sp.Lambda(u, (u - y) ** 2 / 2)
    smooth = sp.Lambda(u, sp.sqrt(1 + (u - y) ** 2))
    found, error = lower(
        [Expectation(Moreau(loss, V, w), [y], standard_normal()) for loss in (square, smooth)], [V, w]
    )(0.7, 1.1)
    assert found[0] == pytest.approx((1.1**2 + 1) / (2 * 1.7), rel=1e-12)
    with mp.workdps(20):
        slope = lambda t: t / mp.sqrt(1 + t * t)
        total = mp.mpf(0)
        for k in range(-80, 81):
            t = mp.mpf(k) / 8
            at = exact_prox(slope, 0.7, mp.mpf(1.1) - t)
            total += mp.npdf(t) / 8 * (mp.sqrt(1 + at * at) + mp.mpf(0.7) * slope(at) ** 2 / 2)
    assert found[1] == pytest.approx(float(total), rel=1e-10)
    assert error.max() <= 1e-9
