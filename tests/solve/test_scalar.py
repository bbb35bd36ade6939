"""Machine code of one point at a time against the NumPy functions of the same expressions."""

import math

import numpy as np
import pytest
import sympy as sp

from derive.functions import He, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from solve.elementary import compile_expressions
from solve.scalar import compile_scalar

x, y, w = sp.symbols("x y w", real=True)
EXPRESSIONS = (
    sp.S.Zero,
    sp.sqrt(2) * sp.pi,
    SoftmaxEntry(x * x, x * y, x * w),
    sigmoid(40 * x) * softplus(5 * x),
    LogCosh(x) + sp.tanh(y),
    He(5, x) / 7,
    relu(x) * sp.Heaviside(y) + sp.Abs(w) * sp.sign(x),
    sp.Max(x, 0, y) - sp.Min(1, w),
    sp.exp(x) * Phi(y) + sp.log(Phi(10 * x)),
    sp.exp(-(x**2) / 2) / Phi(x),
    sp.erf(x) + sp.log(sigmoid(30 * y)),
    (1 + x**2) ** sp.Rational(-3, 2) * w**7,
    sp.Piecewise((1, (x > 0) & (y < 1)), (x * y, (w > 0) | (x < -1)), (sp.S.Zero, True)),
    sp.exp(y) - 1,
    sp.sqrt(1 + x**2) - 2**w,
)


def both(expressions, points):
    machine, arrays = compile_scalar(tuple(expressions), (x, y, w)), compile_expressions(expressions, (x, y, w))
    found, expected = np.empty((2, len(points), len(expressions)))
    for i, point in enumerate(points):
        machine(np.array(point), found[i])
        with np.errstate(all="ignore"):
            expected[i] = arrays(*np.array(point))
    return found, expected


def test_values_are_those_of_the_arrays():
    rng = np.random.default_rng(0)
    scales = np.array([0.1, 1.0, 3.0, 10.0])
    points = rng.normal(size=(400, 3)) * np.repeat(scales, 100)[:, None]
    found, expected = both(EXPRESSIONS, points)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)  # the rounding of b^2/2, b < 73, in exp


def test_what_leaves_the_range_is_inf_or_nan():
    found, _ = both([1 / x, sp.log(y), sp.exp(1000 * w), sp.Max(x, y), sigmoid(w), sp.sqrt(x - 1)], [[0.0, 0.0, 2.0]])
    assert found[0, :3].tolist() == [math.inf, -math.inf, math.inf]
    assert math.isnan(found[0, 5])
    nan, _ = both([sp.Max(x, y), sp.Min(x, y, w), sigmoid(x), relu(x), sp.Heaviside(x)], [[math.nan, 1.0, 0.0]])
    assert np.isnan(nan).all()
    assert compile_scalar((sp.Max(y, x),), (x, y, w)) is compile_scalar((sp.Max(y, x),), (x, y, w))


def test_what_has_no_machine_code_is_refused():
    with pytest.raises(NotImplementedError, match="No numeric form for f"):
        compile_scalar((sp.Function("f")(x),), (x,))
    with pytest.raises(ValueError, match="y are read but not among the arguments"):
        compile_scalar((x + y,), (x,))
