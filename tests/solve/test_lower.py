"""Lowering: expectations with parameters, nested ones, batches; against mpmath, closed forms and the case list."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import solve.lower
from derive.expectation import Expectation
from derive.functions import He, Phi, orthonormal, relu, sigmoid, softmax, softplus
from derive.measures import Gaussian, standard_normal
from solve.lower import lower
from solve.quadrature import Accuracy

x, y, z, w = sp.symbols("x y z w", real=True)
m, e, a, b = sp.symbols("m e a b", real=True)
third, half = sp.Rational(1, 3), sp.S.Half
CASE = 1e-14  # the cases give fifteen digits
DEFAULT = 1e-10  # the default accuracy


def E(f: sp.Expr, *variables: sp.Symbol, cov: Any = None, mean: Any = None) -> sp.Expr:
    n = len(variables)
    return Expectation(f, variables, Gaussian(mean or [0] * n, cov or sp.eye(n)))


def value(*expressions: sp.Expr, **arguments: float) -> list[float]:
    found, error = lower(expressions, [sp.Symbol(n, real=True) for n in arguments])(*arguments.values())
    assert (error <= DEFAULT * np.abs(found) + 1e-13).all()
    return list(found.tolist())


def pair(r: Any) -> Any:
    return [[1, r], [r, 1]]


# ------------------------------------------------------------------------------- the cases


def test_cases_a01_and_a06_hermite_coefficients():
    right = [0.398942280401433, 0.5, 0.282094791773878, 0, -0.0814337519838200, 0, 0.0446031029038193]
    found = value(*(E(relu(z) * orthonormal(n, z), z) for n in range(7)))
    assert found == pytest.approx(right, rel=CASE, abs=CASE)
    assert value(E(relu(z - sp.Rational(1, 5)) * orthonormal(3, z), z)) == pytest.approx([0.0319285022627727], rel=CASE)


def test_cases_a03_a05_a11_a15_a16():
    found = value(
        E(z**4, z),
        E(sp.Abs(z - third), z),
        E(sp.Heaviside(z - third), z),
        E(Phi(z - 1), z),
        E(relu(x) * relu(y), x, y, cov=pair(half)),
        E(sp.tanh(z) ** 2, z),
        E(relu(z).diff(z, 2), z),
    )
    right = [3, 0.841805561931477, 0.369441340181764, 0.239750061093477]
    right += [0.304498890522115, 0.394294490397841, 0.398942280401433]
    assert found == pytest.approx(right, rel=CASE)


def attention(s: sp.Symbol, t: sp.Symbol) -> sp.MatrixBase:
    return softmax(sp.Matrix([[s * s, s * t], [s * t, t * t]]))


def test_case_a59_softmax_of_an_outer_product():
    assert value(E(attention(x, y)[0, 0], x, y)) == pytest.approx([1 - math.sqrt(2) / 4], rel=CASE)


def test_case_a58_a_loss_at_a_degenerate_point():
    """Teacher and student coincide at m = 1, e = 0: the covariance has rank two and the loss is exactly 0."""
    omega = sp.Symbol("omega", real=True)
    fixed = softmax(sp.Matrix([[a**2, -(a**2)], [-(a**2), a**2]]))
    rows = (1 - omega) * attention(x, y) + omega * fixed - attention(z, w)
    cov = [[1, 0, m, 0], [0, 1, 0, m], [m, 0, 1, 0], [0, m, 0, 1]]
    loss = E(sum(entry**2 for entry in rows) / 2, x, y, z, w, cov=cov, mean=[0, 0, e, -e])
    lowered = lower([loss], [m, e, omega, a], Accuracy(rtol=1e-6, atol=1e-9))
    found, error = lowered([1.0, 0.0, 1.0], 0.0, [0.0, 0.0, 0.5], 1.0)
    right = [0, 0.148696496261233, 0.046047133092408]
    assert abs(found[0, 0]) <= 1e-15  # rounding of sums of order one
    assert (np.abs(found[0] - right) <= error[0] + 1e-15).all()
    assert (error[0] <= 3e-7).all()  # the accuracy asked for, and its slow factor


# ------------------------------------------------------------------------------- closed forms and mpmath


def test_expectations_with_parameters_in_law_and_integrand():
    """E tanh(lambda q + sqrt(lambda q) z): the map whose fixed point at lambda = 2 is 0.618447509348823."""
    lam, q = sp.symbols("lambda q", positive=True)
    channel = lower(
        [E(sp.tanh(lam * q + sp.sqrt(lam * q) * z), z), E(sp.tanh(x), x, mean=[lam * q], cov=[[lam * q]])], [lam, q]
    )
    found, error = channel(2.0, 0.618447509348823)
    assert found == pytest.approx([0.618447509348823] * 2, abs=1e-12)  # fifteen digits and the slope of the map
    assert error.max() <= 1e-10


@settings(max_examples=10)
@given(st.floats(-2, 2), st.floats(0, 3), st.floats(-2, 2))
def test_against_mpmath(centre: float, variance: float, slope: float):
    integrand = relu(a * x - half) * sp.tanh(x) + softplus(3 * x) / (2 + sp.cos(a * x))
    found, error = lower([Expectation(integrand, [x], Gaussian([m], [[b]]))], [m, b, a])(centre, variance, slope)

    def f(t: mp.mpf) -> mp.mpf:
        s = centre + mp.sqrt(variance) * t
        smooth = mp.log1p(mp.exp(3 * s)) / (2 + mp.cos(slope * s))
        return (max(slope * s - mp.mpf(1) / 2, mp.mpf(0)) * mp.tanh(s) + smooth) * mp.npdf(t)

    splits = {mp.mpf(t) for t in (-12, -4, 0, 4, 12)}
    if slope * variance != 0:
        root = (mp.mpf(1) / 2 / slope - centre) / mp.sqrt(variance)
        splits |= {root} if abs(root) < 12 else set()
    with mp.workdps(20):
        exact = float(mp.quad(f, sorted(splits)))
    assert abs(found[0,] - exact) <= error[0] + 1e-14 * (1 + abs(exact))  # rounding of the reference's parameters
    assert error[0] <= 2 * DEFAULT * (1 + abs(exact))


def test_gradients_agree_with_finite_differences():
    """Bonnet and Price put point masses under E: the derivative of E|x| tanh(y) in the correlation."""
    mean = E(sp.Abs(x - a) * sp.tanh(y + x), x, y, cov=pair(m))
    values, errors = lower([mean.diff(m), mean.diff(a), mean], [m, a])(
        np.array([0.3, 0.3 - 1e-4, 0.3 + 1e-4, 0.3, 0.3]), np.array([0.2, 0.2, 0.2, 0.2 - 1e-4, 0.2 + 1e-4])
    )
    in_m, in_a = (values[2, 2] - values[2, 1]) / 2e-4, (values[2, 4] - values[2, 3]) / 2e-4
    # central differences: (1e-4)^2 times a third derivative of order one, and 1e-14/1e-4
    assert values[:2, 0] == pytest.approx([in_m, in_a], abs=1e-7)
    assert errors.max() < 1e-9


# ------------------------------------------------------------------------------- nested


def test_nested_expectations():
    inner = E(relu(y + x), y)
    outer = E(sp.tanh(x * inner) + m * inner**2, x)
    with mp.workdps(20):
        smoothed = lambda t: t * mp.ncdf(t) + mp.npdf(t)
        exact = mp.quad(lambda t: (mp.tanh(t * smoothed(t)) + smoothed(t) ** 2 / 2) * mp.npdf(t), [-12, -3, 0, 3, 12])
    assert value(outer, m=0.5) == pytest.approx([float(exact)], rel=DEFAULT)


def test_an_inner_law_that_depends_on_the_outer_variable():
    """The variance x^2 vanishes at 0, where the inner average |x|/sqrt(2 pi) has a kink."""
    inner = Expectation(relu(y) * (1 + sp.Heaviside(x - m)), [y], Gaussian([0], [[x**2]]))
    # E|x| = sqrt(2/pi), and E |x| 1[x > m] is the density at m > 0
    exact = (2 + math.exp(-0.125)) / (2 * math.pi)
    assert value(E(inner, x), m=0.5) == pytest.approx([exact], rel=DEFAULT)


def test_an_inner_variable_that_scales_an_outer_one():
    """Products of an outer and an inner variable are affine in the outer one, with a bound coefficient."""
    inner = E(sp.tanh(y * x + z) ** 2, y)
    swapped = E(E(sp.tanh(y * x + z) ** 2, x, z), y)
    assert value(E(inner, x, z)) == pytest.approx(value(swapped), rel=DEFAULT)


def test_a_kink_of_an_inner_expectation():
    inner = E(relu(y + x), y)
    with mp.workdps(20):
        smoothed = lambda t: t * mp.ncdf(t) + mp.npdf(t)
        root = mp.findroot(lambda t: smoothed(t) - 0.5, 0.2)
        exact = mp.quad(lambda t: (smoothed(t) - 0.5) * mp.npdf(t), [root, 2, 4, 12])
    assert value(E(relu(inner - half), x)) == pytest.approx([float(exact)], rel=DEFAULT)


def test_an_expectation_inside_a_law():
    spread = E(sp.tanh(m * y) ** 2, y)
    found = value(Expectation(sp.Abs(x), [x], Gaussian([0], [[spread]])), spread, m=1.5)
    assert found[0] == pytest.approx(math.sqrt(2 * found[1] / math.pi), rel=DEFAULT)


# ------------------------------------------------------------------------------- dimensions


def test_many_independent_tokens():
    tokens = sp.symbols("t1:9", real=True)
    product = sp.Mul(*(sp.tanh(m * t) * t for t in tokens))
    total = relu(sum(tokens) / sp.sqrt(8)) * sum(He(2, t) for t in tokens) / sp.sqrt(2)
    found = value(E(product, *tokens), E(total, *tokens), E(sp.tanh(m * x) * x, x), m=0.7)
    assert found[0] == pytest.approx(found[2] ** 8, rel=DEFAULT)
    # u = sum/sqrt 8 has covariance 1/sqrt 8 with each: 8 (1/8) E[relu(u) He_2(u)]/sqrt 2
    assert found[1] == pytest.approx(1 / math.sqrt(2 * math.pi) / math.sqrt(2), rel=DEFAULT)


def test_the_error_passes_through_the_outer_expression():
    tokens = sp.symbols("t1:8", real=True)
    cov = [[1 if i == j else half for j in range(7)] for i in range(7)]
    orthant = E(sp.Mul(*(sp.Heaviside(t) for t in tokens)), *tokens, cov=cov)
    found, error = lower([orthant, 1 / orthant, m + 0 * orthant], [m], Accuracy(rtol=3e-2))(1.0)
    assert abs(found[0] - 1 / 8) <= error[0] <= 3e-2 / 8
    assert error[1] == pytest.approx(64 * error[0], rel=0.1)  # d(1/p) = dp/p^2, to first order
    assert error[2] == 0.0


# ------------------------------------------------------------------------------- batches


def test_a_batch_equals_a_loop():
    expressions = [
        E(sp.tanh(m + x) ** 2, x) * a,
        E(relu(x) * relu(y - a), x, y, cov=pair(m)),
        E(sigmoid(30 * a * x), x, mean=[m]),
        m * a,
    ]
    lowered = lower(expressions, [m, a])
    ms, as_ = np.array([-1.0, -0.4, 0.0, 0.9, 1.0])[:, None], np.array([0.0, 0.1, 2.0])
    batch, errors = lowered(ms, as_)
    assert batch.shape == errors.shape == (4, 5, 3)
    for i, p in enumerate(ms[:, 0]):
        for j, q in enumerate(as_):
            single, error = lowered(p, q)
            assert single.shape == (4,)
            assert (np.abs(batch[:, i, j] - single) <= errors[:, i, j] + error).all()


def test_expectations_see_only_the_arguments_they_read(monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    original = solve.lower.integrate

    def counted(f: Any, count: int, mean: Any, *rest: Any) -> Any:
        sizes.append(mean.shape[0])
        return original(f, count, mean, *rest)

    monkeypatch.setattr(solve.lower, "integrate", counted)
    expr = a * E(sp.tanh(m * x) ** 2, x) + E(sp.tanh(x) ** 2, x) + b * E(sp.cos(x) * sp.tanh(x) ** 4, x)
    lowered = lower([expr, expr**2], [m, a, b])
    for _ in range(2):
        lowered(np.ones((3, 1)), np.ones((1, 4)), 2.0)
    assert sorted(sizes) == [1, 3, 3]  # constants once, the other on 3 points, twice


def test_shapes():
    lowered = lower([m, E(sp.tanh(m * x) ** 2, x)], [m])
    assert lowered(0.5)[0].shape == (2,)
    assert lowered(np.ones((2, 1, 3)))[0].shape == (2, 2, 1, 3)
    assert lowered(np.ones((0, 3)))[0].shape == (2, 0, 3)
    assert lower([], [m])(1.0)[0].shape == (0,)
    assert lower([E(sp.tanh(x) ** 2, x)], [])()[0].shape == (1,)


# ------------------------------------------------------------------------------- what is refused or marked


def test_points_without_a_law_are_marked():
    found, error = lower([Expectation(relu(x), [x], Gaussian([m], [[1 - m**2]]))], [m])(
        [0.5, 1.0, 1 + 1e-16, 1.5, np.nan]
    )
    assert found[0, 1:3] == pytest.approx([1.0, 1.0], rel=1e-15)  # rounding
    assert np.isfinite(error[0, :3]).all()
    assert np.isnan(found[0, 3:]).all()
    assert np.isinf(error[0, 3:]).all()


def test_a_hostile_name_is_harmless_inside_an_expectation():
    hostile = sp.Symbol("__import__('os').abort()", real=True)
    bound = sp.Symbol("x0); raise SystemExit; (", real=True)
    expr = Expectation(sp.tanh(hostile + bound) ** 2, [bound], standard_normal())
    assert lower([expr], [hostile])(0.0)[0] == pytest.approx([0.394294490397841], rel=CASE)


@pytest.mark.parametrize(
    ("expressions", "arguments", "kind", "message"),
    [
        ([x + y], [x], ValueError, "y are read but not among the arguments"),
        (["x"], [x], TypeError, "compiles SymPy expressions"),
        ([x], [x, x], ValueError, "x are given more than once"),
        ([E(sp.Function("f")(x), x)], [], NotImplementedError, "No numeric form for f"),
        ([sp.DiracDelta(m)], [m], NotImplementedError, "No numeric form for DiracDelta"),
    ],
)
def test_what_cannot_be_lowered(expressions: list[Any], arguments: list[sp.Symbol], kind: type, message: str):
    with pytest.raises(kind, match=message):
        lower(expressions, arguments)


def test_a_wrong_number_of_values_is_refused():
    with pytest.raises(ValueError, match="2 values for the 1 arguments"):
        lower([x], [x])(1.0, 2.0)
