"""Sparse polynomial algebra against SymPy's own expansion and against numbers."""

from __future__ import annotations

import random

import mpmath as mp
import pytest
import sympy as sp

from derive.functions import He, Phi, expand_hermite
from derive.polynomial import affine, algebra, expand, is_zero, quadratic

x, y, z = sp.symbols("x y z", real=True)
m, t = sp.symbols("m t", real=True)
v = sp.Symbol("v", positive=True)
TWO, THREE, SIX = sp.sqrt(2), sp.sqrt(3), sp.sqrt(6)
R_PI = sp.Rational(31415926535897932384626433832795028841971693993751, 10**49)
CONSTANTS = (TWO, THREE, SIX, sp.sqrt(10), TWO / 3, sp.Rational(-5, 7), m, 1 / (1 + m), sp.pi, sp.tanh(m))


def random_polynomial(rng: random.Random, degree: int, depth: int = 3) -> sp.Expr:
    """An unexpanded polynomial in x, y, z with constants of every kind."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice((x, y, z, *CONSTANTS))
    left, right = (random_polynomial(rng, degree, depth - 1) for _ in range(2))
    kind = rng.random()
    if kind < 0.45:
        return left + rng.randint(-3, 3) * right
    if kind < 0.8:
        return left * right
    return left ** rng.randint(2, 3) if kind < 0.92 else He(rng.randint(2, 4), left)


@pytest.mark.parametrize("seed", range(30))
def test_normal_form_is_equal_and_unique(seed: int) -> None:
    rng = random.Random(seed)
    p, q = random_polynomial(rng, 3), random_polynomial(rng, 3)
    form = expand(p)
    assert sp.expand(expand_hermite(p) - form) == 0
    assert expand(form) == form
    assert expand(p * (q + TWO) - p * q) == expand(TWO * p)
    assert is_zero((p + q) ** 2 - p**2 - 2 * p * q - q**2)
    assert not is_zero((p + q) ** 2 - p**2 - 2 * p * q - q**2 + sp.Rational(1, 10**30))


@pytest.mark.parametrize(
    "zero",
    [
        sp.S.Zero,
        TWO * THREE - SIX,
        (TWO + THREE) ** 2 - 5 - 2 * SIX,
        sp.sqrt(10) * sp.sqrt(15) - 5 * SIX,
        1 / (TWO + THREE) - THREE + TWO,
        1 / (1 + TWO + THREE) - (2 + TWO - SIX) / 4,
        m / (m + 1) + 1 / (m + 1) - 1,
        (m**2 - 1) / (m - 1) - m - 1,
        He(2, m + 1) - m**2 - 2 * m,
        sp.sqrt(sp.Rational(2, 3)) - SIX / 3,
        (1 + TWO * m) ** 3 - 1 - 3 * TWO * m - 6 * m**2 - 2 * TWO * m**3,
        sp.sqrt(1000003 * 1000033) ** 2 - 1000003 * 1000033,
    ],
)
def test_zero_is_recognised(zero: sp.Expr) -> None:
    assert is_zero(zero)


@pytest.mark.parametrize(
    "zero",
    [
        (1 + sp.sqrt(sp.pi)) ** 2 - 1 - 2 * sp.sqrt(sp.pi) - sp.pi,
        (1 + sp.sqrt(v)) ** 2 - 1 - 2 * sp.sqrt(v) - v,
        (sp.exp(m) + 1) ** 2 - sp.exp(2 * m) - 2 * sp.exp(m) - 1,
        (sp.exp(m) + 1) * (sp.exp(t) + 1) - sp.exp(m + t) - sp.exp(m) - sp.exp(t) - 1,
        sp.sqrt(1000003) * sp.sqrt(1000033) - sp.sqrt(1000003 * 1000033),
    ],
)
def test_zero_is_recognised_after_powers_of_one_generator_are_merged(zero: sp.Expr) -> None:
    assert sp.expand(zero) == 0 or sp.N(zero) < 1e-8  # the premise
    assert is_zero(zero)


@pytest.mark.parametrize(
    "zero",
    [
        sp.sqrt(3 + 2 * TWO) - 1 - TWO,
        sp.sqrt(5 + 2 * SIX) - TWO - THREE,
        sp.sqrt(TWO + 1) * sp.sqrt(TWO - 1) - 1,
        (1 + sp.root(2, 4)) ** 2 - 1 - TWO - 2 * sp.root(2, 4),
        (sp.root(2, 3) + 1) ** 3 - 3 - 3 * sp.root(2, 3) - 3 * sp.root(4, 3),
    ],
)
def test_zero_is_recognised_in_nested_radicals(zero: sp.Expr) -> None:
    assert abs(sp.N(zero, 30)) < sp.Float("1e-25")  # the premise
    assert is_zero(zero)


@pytest.mark.parametrize(
    "nonzero",
    [
        TWO * THREE - SIX + sp.Rational(1, 10**40),
        sp.sqrt(2) - sp.Rational(14142135623730950488016887242096980785696718753769, 10**49),
        sp.sqrt(3 + 2 * TWO) - 1 - THREE,
        m - t,
        sp.tanh(m) - sp.tanh(t),
        1 / (1 + m) - 1 / (1 + t),
        Phi(m) - Phi(-m),
        sp.pi - R_PI,
        sp.sqrt(sp.pi + TWO) - sp.Rational(int(sp.floor(sp.sqrt(sp.pi + TWO) * 10**60)), 10**60),
        Phi(sp.Rational(1, 3)) - sp.Rational(63055865981823634, 10**17),
    ],
)
def test_what_is_not_zero_is_not_called_zero(nonzero: sp.Expr) -> None:
    assert not is_zero(nonzero)


# ---- affine and quadratic ------------------------------------------------------------------------------------


def _coefficient(rng: random.Random) -> sp.Expr:
    return rng.choice((sp.S.Zero, sp.S.One, sp.Rational(rng.randint(-9, 9), 4), *CONSTANTS))


@pytest.mark.parametrize("seed", range(20))
def test_affine_finds_what_was_put_in(seed: int) -> None:
    rng = random.Random(seed)
    a, b = tuple(_coefficient(rng) for _ in range(3)), _coefficient(rng)
    hidden = sum(c * s for c, s in zip(a, (x, y, z), strict=True)) + b
    disguised = (hidden + x * y) * (1 + TWO) * (TWO - 1) - He(2, x + y) / 2 + He(2, x) / 2 + He(2, y) / 2 + sp.S.Half
    found = affine(disguised, (x, y, z))
    # He_2(x + y) - He_2(x) - He_2(y) = 2 x y + 1
    assert found is not None
    assert all(is_zero(f - g) for f, g in zip((*found[0], found[1]), (*a, b), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_quadratic_finds_what_was_put_in(seed: int) -> None:
    rng = random.Random(seed)
    half = sp.Matrix(3, 3, lambda i, j: _coefficient(rng))
    q, a, b = half + half.T, sp.Matrix([_coefficient(rng) for _ in range(3)]), _coefficient(rng)
    s = sp.Matrix([x, y, z])
    hidden = ((s.T * q * s)[0] + (a.T * s)[0] + b) + x**3 * (TWO + 1) * (TWO - 1) - x**3
    found = quadratic(hidden, (x, y, z))
    assert found is not None
    assert all(is_zero(f - g) for f, g in zip(found[0], q, strict=True))
    assert all(is_zero(f - g) for f, g in zip((*found[1], found[2]), (*a, b), strict=True))
    assert found[0] == found[0].T


@pytest.mark.parametrize("other", [x**2 + y, x * y, sp.tanh(x) + y, sp.Abs(x), 1 / (1 + x), x * sp.exp(y), sp.sqrt(x)])
def test_other_functions_are_not_affine(other: sp.Expr) -> None:
    assert affine(other, (x, y)) is None


@pytest.mark.parametrize("other", [x**3 + y, x * y**2, He(3, x), sp.tanh(x) * y, sp.exp(x), x / y, sp.cos(x) ** 2])
def test_other_functions_are_not_quadratic(other: sp.Expr) -> None:
    assert quadratic(other, (x, y)) is None


def test_constants_may_be_anything() -> None:
    assert affine(sp.tanh(m) * x + sp.exp(t), (x, y)) == ((sp.tanh(m), 0), sp.exp(t))
    assert affine(sp.S(3), (x,)) == ((0,), 3)
    assert quadratic(m * x * y, (x, y)) == (sp.Matrix([[0, m / 2], [m / 2, 0]]), (0, 0), 0)


# ---- the algebra ---------------------------------------------------------------------------------------------


def test_collecting_by_leading_generators() -> None:
    ring = algebra([(x + TWO * y * m) ** 2], [y, x])
    groups = ring.collect(ring.element((x + TWO * y * m) ** 2), 2)
    assert {k: ring.expr(f) for k, f in groups.items()} == {(0, 2): 1, (1, 1): 2 * TWO * m, (2, 0): 2 * m**2}


def test_values_are_kept() -> None:
    rng = random.Random(5)
    p = random_polynomial(rng, 3, depth=5)
    at = {x: sp.Rational(1, 3), y: sp.Rational(-7, 5), z: sp.Rational(2, 7), m: sp.Rational(3, 11)}
    with mp.workdps(30):
        before, after = (mp.mpf(str(e.xreplace(at).evalf(30))) for e in (expand_hermite(p), expand(p)))
        assert abs(before - after) <= mp.mpf(10) ** -25 * max(1, abs(before))  # 30 digits, some cancel
