"""Compiled elementary functions: against mpmath at 30 digits, in the tails, at the jumps, with hostile names."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from derive.functions import He, LogCosh, Phi, SoftmaxEntry, orthonormal, relu, sigmoid, softmax, softplus
from solve.elementary import compile_expressions, hermite_orthonormal
from solve.lower import lower

x, y, z = sp.symbols("x y z", real=True)
density = sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)


def number(expr: sp.Expr, **values: float) -> float:
    arguments = [sp.Symbol(name, real=True) for name in values]
    return float(lower([expr], arguments)(*values.values())[0][0])


# every expression loses its digits, or overflows, where it is evaluated as written
DELICATE = {
    "log Phi": (sp.log(Phi(x)), lambda t: mp.log(mp.ncdf(t))),
    "log of a multiple of erfc": (sp.log(3 * sp.erfc(x)), lambda t: mp.log(3 * mp.erfc(t))),
    "inverse Mills ratio": (density / Phi(-x), lambda t: mp.npdf(t) / mp.ncdf(-t)),
    "its square": (density**2 / Phi(-x) ** 2, lambda t: (mp.npdf(t) / mp.ncdf(-t)) ** 2),
    "scaled erfc": (sp.exp(x**2) * sp.erfc(x), lambda t: mp.exp(t**2) * mp.erfc(t)),
    "two distribution functions": (density * Phi(x) / Phi(-x), lambda t: mp.npdf(t) * mp.ncdf(t) / mp.ncdf(-t)),
    "1 - Phi": (2 - 2 * Phi(x), lambda t: 2 * mp.ncdf(-t)),
    "1 - erf": (1 - sp.erf(x), mp.erfc),
    "1 - sigmoid": (1 - sigmoid(x), lambda t: 1 / (1 + mp.exp(t))),
    "exp - 1": (sp.exp(x) - 1, mp.expm1),
    "log sigmoid": (sp.log(sigmoid(x)), lambda t: -mp.log1p(mp.exp(-t))),
    "log(1 + exp)": (sp.log(1 + sp.exp(x)), lambda t: mp.log1p(mp.exp(t))),
    "softplus": (softplus(x), lambda t: mp.log1p(mp.exp(t))),
    "log cosh": (LogCosh(x), lambda t: mp.log(2 * mp.cosh(t))),
    "softmax": (SoftmaxEntry(x, -x, sp.S(1)), lambda t: mp.exp(t) / (mp.exp(t) + mp.exp(-t) + mp.e)),
    "Hermite": (He(9, x), lambda t: mp.hermite(9, t / mp.sqrt(2)) * mp.mpf(2) ** mp.mpf("-4.5")),
    "power": (x**13 - 2 * x**-3, lambda t: t**13 - 2 / t**3),
}


@pytest.mark.parametrize("name", DELICATE)
def test_delicate_expressions_keep_their_digits(name: str):
    expr, reference = DELICATE[name]
    side = np.geomspace(1e-6, 25, 30)
    at = np.concatenate([-side[::-1], side])
    with mp.workdps(320):  # 1 - Phi(25) is 1e-137
        exact = [float(reference(mp.mpf(t))) for t in at]
    # rounding of the argument, amplified by the condition number |x f'/f| <= 2 25^2 of a Gaussian tail
    np.testing.assert_allclose(lower([expr], [x])(at)[0][0], exact, rtol=3e-13)


@given(at=st.floats(1e-3, 1e3), n=st.integers(0, 120))
def test_orthonormal_hermite_of_any_order(at: float, n: int):
    with mp.workdps(60):
        exact = mp.hermite(n, mp.mpf(at) / mp.sqrt(2)) * mp.mpf(2) ** (-mp.mpf(n) / 2) / mp.sqrt(mp.factorial(n))
        scale = mp.exp(mp.mpf(at) ** 2 / 4) if at < 2 * n**0.5 else abs(exact)
    # the recurrence is stable relative to the envelope exp(x^2/4) between the zeros, n roundings
    assert hermite_orthonormal(n, at) == pytest.approx(float(exact), abs=1e-14 * (n + 1) * float(scale))


def test_case_a04_a_high_order_does_not_overflow():
    for expr in (orthonormal(64, x), He(64, x) / sp.sqrt(sp.factorial(64))):
        assert number(expr, x=3.0) == pytest.approx(1.15037268310601, rel=1e-14)  # the digits of the case
    assert np.isfinite(number(orthonormal(400, x), x=3.0))


def test_case_a17_the_step_is_one_half_at_its_jump():
    assert number(sp.Heaviside(x), x=0.0) == 0.5
    assert number(relu(x).diff(x), x=0.0) == 0.5
    assert number(sp.sign(x), x=0.0) == 0.0


def test_case_a18_unselected_branches_are_harmless():
    continued = sp.Piecewise(((sp.exp(x) - 1) / x, sp.Ne(x, 0)), (1, True))
    values = lower([continued], [x])([-1.0, 0.0, 1.0])[0][0]
    np.testing.assert_allclose(values, [1 - np.exp(-1), 1, np.e - 1], rtol=1e-15)  # rounding
    guarded = sp.Piecewise((sp.log(x), (x > 0) & (x < 2)), (sp.sqrt(-x), x <= 0), (0, True))
    np.testing.assert_array_equal(lower([guarded], [x])([1.0, -4.0, 5.0])[0][0], [0.0, 2.0, 0.0])


def test_case_a19_overflow_of_exp():
    assert number(softplus(x), x=800.0) == 800.0
    for rows in (sp.Matrix([[x, y]]), sp.Matrix([[x, y, y]])):
        entries = lower(list(softmax(rows)), [x, y])(800.0, -800.0)[0]
        assert entries.tolist() == [1.0, *(0.0 for _ in entries[1:])]


def test_case_a20_underflow_before_the_logarithm():
    expected = -1604.95470383383, 40.0249688472073
    for at in (sp.Integer(40), x):
        found = number(sp.log(sp.erfc(at) / 2), x=40.0), number((density / Phi(-x)).subs(x, at), x=40.0)
        assert found == pytest.approx(expected, rel=1e-14)  # the digits of the case


def test_case_a22_cancellation_near_one():
    assert number(sp.log(Phi(x)), x=6.0) == pytest.approx(-9.86587645524376e-10, rel=1e-14)  # digits of the case


def test_softmax_entries_share_their_exponentials():
    logits = sp.Matrix([[x, 2 * y, x * y, z]])
    values = lower(list(softmax(logits)), [x, y, z])(1.0, 2.0, 700.0)[0]
    assert values.sum() == pytest.approx(1, rel=1e-15)  # rounding
    assert values[3] == 1.0


def test_constants_are_rounded_once():
    exact = sp.sqrt(2) * sp.pi / 3 + sp.erf(sp.Rational(1, 3)) - Phi(2) * sp.E
    with mp.workdps(40):
        expected = mp.sqrt(2) * mp.pi / 3 + mp.erf(mp.mpf(1) / 3) - mp.ncdf(2) * mp.e
    assert number(exact, x=0.0) == float(expected)
    assert number(sp.Rational(10**400, 3 * 10**399) * x, x=1.0) == 10 / 3


@pytest.mark.parametrize("name", ["x); import os; (", "__import__('os').system('true')", "x0", "v1", "exp", "lambda"])
def test_the_name_of_a_symbol_is_never_code(name: str):
    hostile, other = sp.Symbol(name, real=True), sp.Symbol("v0", real=True)
    repeated = (hostile + other) ** 2  # a common subexpression, which gets a name of its own
    value, _ = lower([sp.exp(-repeated) + repeated * hostile], [hostile, other])(0.5, 0.25)
    assert value[0] == pytest.approx(np.exp(-0.5625) + 0.28125, rel=1e-15)  # rounding


@pytest.mark.parametrize(
    "expr", [sp.Function("system('true')")(x), sp.Function("relu")(x), sp.gamma(x), sp.Integral(sp.exp(y), (y, 0, x))]
)
def test_a_node_without_a_numeric_form_is_refused(expr: sp.Expr):
    with pytest.raises(NotImplementedError, match="No numeric form for"):
        compile_expressions([expr], [x])


def test_out_of_range_is_marked_and_silent():
    value, error = lower([1 / x, sp.log(x), sp.sqrt(x - 1), x], [x])(0.0)
    np.testing.assert_array_equal(value, [np.inf, -np.inf, np.nan, 0.0])
    np.testing.assert_array_equal(error, [np.inf, np.inf, np.inf, 0.0])
