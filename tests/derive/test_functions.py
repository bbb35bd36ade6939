"""Function nodes: values, derivatives and identities against mpmath's own functions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath as mp
import pytest
import sympy as sp
from sympy.core.function import ArgumentIndexError

from derive.functions import (
    He,
    LargestEigenvalue,
    LogCosh,
    Phi,
    SoftmaxEntry,
    attention,
    expand_hermite,
    hermite_polynomial,
    orthonormal,
    relu,
    sigmoid,
    softmax,
    softplus,
    without_kinks_hidden,
)
from tests.derive.truth import MPMATH

x, y, w = sp.symbols("x y w", real=True)
DIGITS = 30
NODES = (relu, sigmoid, softplus, LogCosh, Phi)


def _meaning(node: type[sp.Function]) -> Callable[..., Any]:
    return MPMATH[node.__name__]


def _points(seed: int, count: int = 12, reach: int = 6) -> list[sp.Rational]:
    rng = random.Random(seed)
    return [sp.Rational(rng.randint(-1000 * reach, 1000 * reach), 1000) for _ in range(count)]


def _close(found: Any, expected: Any, digits: int = DIGITS - 4) -> bool:
    """Agreement to `digits` significant digits, or absolutely near zero."""
    with mp.workdps(DIGITS + 10):
        found, expected = mp.mpf(str(found)), mp.mpf(expected)
        return bool(abs(found - expected) <= mp.mpf(10) ** -digits * max(abs(expected), mp.mpf(10) ** -400))


def _argument(r: sp.Rational) -> mp.mpf:
    return mp.mpf(int(r.p)) / int(r.q)


# ---- values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", NODES)
def test_value_is_that_of_mpmath(node: type[sp.Function]) -> None:
    with mp.workdps(DIGITS + 10):
        for r in _points(1):
            assert _close(node(r).evalf(DIGITS), _meaning(node)(_argument(r))), (node, r)


@pytest.mark.parametrize(
    ("value", "expected"),
    [  # tails, where a formula that cancels returns zero or rounding noise
        (Phi(-10), "7.61985302416052606597337e-24"),
        (Phi(-9), "1.12858840595384064773552e-19"),
        (Phi(sp.Integer(6)) - 1, "-9.86587645037698140700864e-10"),
        (Phi(-40), lambda: mp.erfc(40 / mp.sqrt(2)) / 2),
        (sigmoid(-800), lambda: mp.exp(-800) / (1 + mp.exp(-800))),
        (sigmoid(800), "1"),
        (softplus(800), "800"),
        (softplus(-800), lambda: mp.log1p(mp.exp(-800))),
        (LogCosh(800), "800"),
        (SoftmaxEntry(800, -800), "1"),
        (SoftmaxEntry(-800, 800, 0), lambda: mp.exp(-1600) / (1 + mp.exp(-800) + mp.exp(-1600))),
        (relu(-800), "0"),
    ],
)
def test_value_in_the_tails(value: sp.Expr, expected: str | Callable[[], Any]) -> None:
    with mp.workdps(DIGITS):
        wanted = mp.mpf(expected) if isinstance(expected, str) else expected()
    assert _close(value.evalf(20), wanted, digits=15), value.evalf(20)  # 20 digits asked for


@pytest.mark.parametrize("node", NODES)
def test_evalf_takes_values_of_symbols(node: type[sp.Function]) -> None:
    for r in _points(2, 4):
        with mp.workdps(DIGITS):
            assert _close(node(x - 1).evalf(DIGITS, subs={x: r}), _meaning(node)(_argument(r) - 1))


@pytest.mark.parametrize("node", NODES)
def test_elementary_form_is_equal(node: type[sp.Function]) -> None:
    for r in _points(3):
        with mp.workdps(DIGITS):
            plain = sp.lambdify([x], node(x).elementary(), [MPMATH, "mpmath"])(_argument(r))
            assert _close(plain, _meaning(node)(_argument(r)), digits=22)  # 30 digits, ill-conditioned tails


def test_softmax_entry_elementary_form_is_equal() -> None:
    a, b, c = (_argument(r) for r in _points(4, 3))
    with mp.workdps(DIGITS):
        plain = sp.lambdify([x, y, w], SoftmaxEntry(x, y, w).elementary(), "mpmath")(a, b, c)
        assert _close(plain, mp.exp(a) / (mp.exp(a) + mp.exp(b) + mp.exp(c)))


def test_special_values_are_exact() -> None:
    assert (relu(0), relu(3), relu(-sp.sqrt(2))) == (0, 3, 0)
    assert (sigmoid(0), softplus(0), LogCosh(0), Phi(0)) == (sp.S.Half, sp.log(2), sp.log(2), sp.S.Half)
    assert (Phi(sp.oo), Phi(-sp.oo)) == (1, 0)
    assert SoftmaxEntry(x) == 1
    positive = sp.Symbol("p", positive=True)
    assert (relu(positive), relu(-positive)) == (positive, 0)


# ---- derivatives ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", NODES)
def test_derivative_is_the_slope(node: type[sp.Function]) -> None:
    slope = sp.lambdify([x], node(x).diff(x), [MPMATH, "mpmath"])
    with mp.workdps(DIGITS):
        for r in _points(5):
            numerical = mp.diff(_meaning(node), _argument(r))
            # mp.diff loses about half of the working precision
            assert abs(slope(_argument(r)) - numerical) < 1e-12, (node, r)


@pytest.mark.parametrize("node", [sigmoid, softplus, LogCosh, Phi])
def test_third_derivative_is_the_slope_of_the_second(node: type[sp.Function]) -> None:
    third = sp.lambdify([x], node(x).diff(x, 3), [MPMATH, "mpmath"])
    with mp.workdps(DIGITS + 20):
        for r in _points(6, 5):
            numerical = mp.diff(_meaning(node), _argument(r), 3)
            assert abs(third(_argument(r)) - numerical) < 1e-10, (node, r)  # third difference at 50 digits


def test_relu_bends_in_a_point_mass() -> None:
    assert relu(x).diff(x) == sp.Heaviside(x)
    assert relu(2 * x + 1).diff(x, 2) == 4 * sp.DiracDelta(2 * x + 1)


@pytest.mark.parametrize("which", range(4))
def test_softmax_entry_derivative_is_the_slope(which: int) -> None:
    a = sp.symbols("a1:5", real=True)
    derivative = sp.lambdify(a, SoftmaxEntry(*a).diff(a[which]), [MPMATH, "mpmath"])
    at = [_argument(r) for r in _points(7, 4, reach=2)]
    order = tuple(int(i == which) for i in range(4))
    with mp.workdps(DIGITS):
        numerical = mp.diff(MPMATH["SoftmaxEntry"], tuple(at), order)
        assert abs(derivative(*at) - numerical) < 1e-12  # mp.diff loses half of the working precision


def test_hermite_derivative() -> None:
    for n in range(1, 9):
        inner = x**2 - y
        found = He(n, inner).diff(x) - n * He(n - 1, inner) * 2 * x
        assert sp.expand(expand_hermite(found)) == 0
    with pytest.raises(ArgumentIndexError):
        He(3, x).fdiff(1)


# ---- Hermite polynomials -------------------------------------------------------------------------------------


def _moment(n: int) -> Fraction:
    return Fraction(0) if n % 2 else Fraction(int(sp.factorial2(n - 1))) if n else Fraction(1)


def _coefficients(n: int) -> dict[int, Fraction]:
    """He_n by its recurrence, in plain fractions."""
    previous: dict[int, Fraction] = {}
    current = {0: Fraction(1)}
    for k in range(n):
        following = {i + 1: c for i, c in current.items()}
        for i, c in previous.items():
            following[i] = following.get(i, Fraction(0)) - k * c
        previous, current = current, following
    return current


def test_hermite_polynomials_are_those_of_the_recurrence() -> None:
    for n in range(20):
        written = sp.Poly(hermite_polynomial(n, x), x)
        found = {i: Fraction(int(c)) for (i,), c in written.terms()}
        assert found == {i: c for i, c in _coefficients(n).items() if c}


def test_hermite_polynomials_are_orthogonal() -> None:
    for j, k in itertools.product(range(9), repeat=2):
        product = sp.Poly(expand_hermite(He(j, x) * He(k, x)), x)
        mean = sum((Fraction(int(c)) * _moment(i) for (i,), c in product.terms()), Fraction(0))
        assert mean == (int(sp.factorial(k)) if j == k else 0)


def test_hermite_at_numbers_and_signs() -> None:
    assert (He(0, x), He(1, x)) == (1, x)
    assert He(4, sp.sqrt(2)) == 4 - 12 + 3
    assert He(5, sp.S.Zero) == 0
    for n in range(2, 7):
        assert He(n, -x) == (-1) ** n * He(n, x)
        assert He(n, y - x) == (-1) ** n * He(n, x - y)
    assert orthonormal(3, x) == He(3, x) / sp.sqrt(6)
    exact = sum(c * Fraction(7, 3) ** i for i, c in _coefficients(6).items())
    found = He(6, x).evalf(DIGITS, subs={x: sp.Rational(7, 3)})
    assert _close(found, _argument(sp.Rational(exact.numerator, exact.denominator)), digits=14)  # a float64


@pytest.mark.parametrize("order", [sp.Integer(-1), sp.S.Half, sp.Symbol("n")])
def test_hermite_refuses_other_orders(order: sp.Expr) -> None:
    with pytest.raises(ValueError, match="non-negative integer n, got n ="):
        He(order, x)


# ---- parity, symmetry ----------------------------------------------------------------------------------------


def test_log_cosh_is_even() -> None:
    assert LogCosh(-x) == LogCosh(x)
    assert LogCosh(y - x) == LogCosh(x - y)


def test_softmax_entry_forgets_the_order_of_the_others() -> None:
    a, b, c, d = sp.symbols("a b c d", real=True)
    for order in itertools.permutations([b, c, d]):
        assert SoftmaxEntry(a, *order) == SoftmaxEntry(a, b, c, d)
    assert SoftmaxEntry(a, b, c, d) != SoftmaxEntry(b, a, c, d)
    assert SoftmaxEntry(a, b) == sigmoid(a - b)


def test_softmax_rows_sum_to_one() -> None:
    matrix = sp.Matrix(3, 3, lambda i, j: sp.Rational(int(i) - 2 * int(j), 1 + int(i)))
    for i in range(3):
        assert _close(sum(softmax(matrix)[i, j] for j in range(3)).evalf(DIGITS), 1)
    z = sp.Matrix([sp.Rational(1, 3), -2, sp.Rational(5, 7)])
    first = attention(z)[1, 2].evalf(DIGITS)
    with mp.workdps(DIGITS):
        t = [_argument(v) for v in z]
        assert _close(first, mp.exp(t[1] * t[2]) / sum(mp.exp(t[1] * v) for v in t))


# ---- rewriting -----------------------------------------------------------------------------------------------

HIDDEN: Sequence[sp.Expr] = (
    relu(x) - relu(-2 * x + 1),
    sp.Abs(x - y) ** 3 + sp.sign(x + y),
    sp.Max(x, y, w),
    sp.Min(x, y, 1) * sp.Max(x - 1, -w),
    sp.Max(sp.Min(x, y), relu(w), sp.Abs(x) - 1),
    sigmoid(x * y) * softplus(x - y),
    sp.erf(x / 3) + softplus(sp.erf(y)),
    relu(relu(x) - sp.Abs(y)),
    sp.sqrt(sp.Abs(x)) + sp.Abs(sigmoid(x) - sp.Rational(1, 3)),
    SoftmaxEntry(relu(x), sp.Abs(y), w),
)


@pytest.mark.parametrize("expr", HIDDEN)
def test_rewriting_keeps_the_value(expr: sp.Expr) -> None:
    plain = without_kinks_hidden(expr)
    assert not plain.has(relu, sp.Abs, sp.sign, sp.Max, sp.Min, sigmoid, softplus, sp.erf)
    before, after = (sp.lambdify([x, y, w], e, [MPMATH, "mpmath"]) for e in (expr, plain))
    kink = [mp.mpf(0)] * 3
    with mp.workdps(DIGITS):
        for at in (*([_argument(r) for r in _points(s, 3, reach=3)] for s in range(10, 18)), kink):
            assert abs(before(*at) - after(*at)) < mp.mpf(10) ** -(DIGITS - 5), at


def test_expand_hermite_keeps_the_value() -> None:
    expr = He(5, x + y) * sp.tanh(He(2, x)) - He(3, He(2, y))
    plain = expand_hermite(expr)
    assert not plain.has(He)
    before, after = (sp.lambdify([x, y], e, [MPMATH, "mpmath"]) for e in (expr, plain))
    for s in range(5):
        at = [_argument(r) for r in _points(20 + s, 2, reach=2)]
        assert abs(before(*at) - after(*at)) < 1e-10 * (1 + abs(before(*at)))  # float64, powers up to 6


# ---- largest eigenvalue --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_largest_eigenvalue_is_that_of_mpmath(seed: int) -> None:
    rng = random.Random(seed)
    n = 2 + seed
    half = sp.Matrix(n, n, lambda i, j: sp.Rational(rng.randint(-9, 9), 4))
    symmetric = half + half.T
    with mp.workdps(20):
        expected = max(mp.eigsy(mp.matrix(symmetric.evalf(20).tolist()), eigvals_only=True))
    assert _close(LargestEigenvalue.of(symmetric).evalf(15), expected, digits=12)  # 15 digits asked for


def test_largest_eigenvalue_of_a_multiple_of_one_is_the_entry() -> None:
    assert LargestEigenvalue.of(x * sp.eye(3)) == x
    assert LargestEigenvalue.of(sp.Matrix([[y]])) == y
