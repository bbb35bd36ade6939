"""Hermite expansions against brute-force moments in fractions and quadrature at 30 digits."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import comb, factorial

import mpmath as mp
import pytest
import sympy as sp

from derive.expectation import Expectation
from derive.functions import He, Phi, expand_hermite, orthonormal, relu, sigmoid, softmax
from derive.hermite import HermiteExpansion, multi_indices
from derive.measures import standard_normal
from tests.derive.truth import value, value_mp

z1, z2, z3, z4 = Z = sp.symbols("z1:5", real=True)
q = sp.Symbol("q", real=True)
R = sp.Rational
Terms = Mapping[tuple[int, ...], Fraction]


# ---- polynomials: moments in fractions -------------------------------------------------------------------------


def _moment(n: int) -> int:
    """E z^n = (n - 1)!! for even n."""
    return 0 if n % 2 else factorial(n) // (2 ** (n // 2) * factorial(n // 2))


def _he(n: int) -> dict[int, int]:
    previous: dict[int, int] = {}
    current = {0: 1}
    for k in range(n):
        following = {i + 1: c for i, c in current.items()}
        for i, c in previous.items():
            following[i] = following.get(i, 0) - k * c
        previous, current = current, following
    return current


def _mean_with_hermite(terms: Terms, alpha: tuple[int, ...]) -> Fraction:
    """E[g prod_i He_alpha_i(z_i)] for g = sum of terms, by the moments of each token."""
    total = Fraction(0)
    for powers, c in terms.items():
        factor = Fraction(1)
        for n, k in zip(powers, alpha, strict=True):
            factor *= sum(h * _moment(n + i) for i, h in _he(k).items())
        total += c * factor
    return total


def _random_terms(seed: int) -> tuple[int, Terms]:
    rng = random.Random(seed)
    length = 1 + seed % 4
    terms = {
        tuple(rng.randint(0, 5 - length) if length > 1 else rng.randint(0, 9) for _ in range(length)): Fraction(
            rng.randint(-20, 20), rng.randint(1, 7)
        )
        for _ in range(5)
    }
    return length, {k: c for k, c in terms.items() if c} or {(1,) * length: Fraction(1)}


def _expression(terms: Terms) -> sp.Expr:
    def monomial(powers: tuple[int, ...]) -> sp.Expr:
        return sp.Mul(*(z**n for z, n in zip(Z, powers, strict=False)))

    return sp.Add(*(R(c.numerator, c.denominator) * monomial(powers) for powers, c in terms.items()))


@pytest.mark.parametrize("seed", range(40))
def test_polynomials_are_expanded_exactly(seed: int) -> None:
    length, terms = _random_terms(seed)
    g = HermiteExpansion(_expression(terms), Z[:length])
    degree = max(map(sum, terms))
    assert g.degree == degree
    found = {alpha: c for k in range(degree + 2) for alpha, c in g.of_degree(k).items()}
    for k in range(degree + 2):
        for alpha in multi_indices(length, k):
            mean = _mean_with_hermite(terms, alpha)
            expected = R(mean.numerator, mean.denominator) / sp.sqrt(sp.Mul(*map(sp.factorial, alpha)))
            assert g.coefficient(alpha) == expected
            assert (alpha in found) == (mean != 0)
    assert sum(c**2 for c in found.values()) == g.norm_squared()  # Parseval


def test_a_polynomial_in_hermite_polynomials_returns_its_coefficients() -> None:
    g = HermiteExpansion(q * He(3, z1) * He(2, z2) - sp.sqrt(6) * orthonormal(4, z2) + sp.pi, (z1, z2))
    assert g.degree == 5
    assert g.of_degree(5) == {(3, 2): q * sp.sqrt(12)}
    assert g.of_degree(4) == {(0, 4): -sp.sqrt(6)}
    assert (g.of_degree(0), g.of_degree(3)) == ({(0, 0): sp.pi}, {})
    assert sp.expand(g.norm_squared() - (12 * q**2 + 6 + sp.pi**2)) == 0


def test_a_degree_that_cancels_is_not_counted() -> None:
    g = HermiteExpansion((z1 + z2) ** 4 - (z1 - z2) ** 4 - 8 * z1**3 * z2 - 8 * z1 * z2**3 + z1, (z1, z2))
    assert g.degree == 1
    assert HermiteExpansion(He(2, z1) ** 2 - He(4, z1) - 4 * He(2, z1), (z1,)).degree == 0
    assert HermiteExpansion(sp.S(7), (z1, z2)).of_degree(0) == {(0, 0): 7}


def test_reconstruction() -> None:
    g = (z1 + 2 * z2 - z3) ** 3 * (1 + z2) + q * z3**2
    expansion = HermiteExpansion(g, (z1, z2, z3))
    back = sp.Add(
        *(
            c * sp.Mul(*(orthonormal(n, z) for n, z in zip(alpha, Z, strict=False)))
            for k in range(5)
            for alpha, c in expansion.of_degree(k).items()
        )
    )
    assert sp.expand(expand_hermite(back) - g) == 0


def test_six_tokens_to_degree_twelve() -> None:
    tokens = sp.symbols("z1:7", real=True)
    started = time.perf_counter()
    g = HermiteExpansion((sum((i + 1) * z for i, z in enumerate(tokens)) / 10) ** 12, tokens)
    top = g.of_degree(12)
    assert len(top) == comb(17, 5)
    # the top coefficient of (a . z)^12 is 12! / sqrt(alpha!) prod a_i^alpha_i / alpha_i! * alpha!
    alpha = (1, 2, 0, 3, 2, 4)
    weights = sp.Mul(*(R(i + 1, 10) ** n for i, n in enumerate(alpha)))
    assert top[alpha] == sp.factorial(12) * weights / sp.sqrt(sp.Mul(*map(sp.factorial, alpha)))
    # E[(a . z)^12 He_2(z_1)] = 12 * 11 a_1^2 E[(a . z)^10], a . z ~ N(0, |a|^2)
    norm = R(sum((i + 1) ** 2 for i in range(6)), 100)
    assert g.coefficient((2, 0, 0, 0, 0, 0)) == 132 * R(1, 100) * 945 * norm**5 / sp.sqrt(2)
    assert time.perf_counter() - started < 60  # about 3 s; a dense Expr expansion takes minutes


@pytest.mark.parametrize(
    ("function", "length"),
    [((z1 + 1) ** 1_000_000, 1), (sp.Mul(*((1 + z) ** 18 for z in sp.symbols("z1:5", real=True))), 4)],
)
def test_more_than_a_million_coefficients_are_refused(function: sp.Expr, length: int) -> None:
    with pytest.raises(ValueError, match=rf"in {length} tokens has up to \d+ coefficients; at most 1000000"):
        _ = HermiteExpansion(function, Z[:length]).degree


# ---- other functions: quadrature -------------------------------------------------------------------------------

ONE_TOKEN: Sequence[sp.Expr] = (
    relu(z1),
    relu(z1 - R(1, 5)) * z1,
    sp.tanh(z1),
    pytest.param(sp.tanh(z1 + R(1, 2)) ** 2, marks=pytest.mark.slow),
    pytest.param(sp.erf(z1) - z1, marks=pytest.mark.slow),
    sp.exp(z1 / 2),
    sigmoid(2 * z1 - 1),
    sp.Abs(z1 - 1) ** 3,
    sp.cos(z1) * z1,
    pytest.param(Phi(z1) ** 2, marks=pytest.mark.slow),
    pytest.param(sp.sign(z1 - R(1, 3)) * z1**2, marks=pytest.mark.slow),
    sp.Max(z1, R(1, 2)) - sigmoid(z1),
)
TWO_TOKENS: Sequence[sp.Expr] = (
    relu(z1) * sp.tanh(z2),
    relu(z1 + z2),
    sp.tanh(z1 * z2 / 2),
    sp.erf(z1) * sp.exp(z2 / 3) + relu(z2),
    sigmoid(z1 - 2 * z2),
    softmax(sp.Matrix([z1, z2]) * sp.Matrix([[z1, z2]]))[0, 1],
    relu(z1 - z2) * relu(z2),
    (sp.tanh(z1) + sp.Abs(z2)) ** 2,
    sp.Max(z1, z2) * z1,
)


@pytest.mark.parametrize("g", ONE_TOKEN, ids=str)
def test_functions_of_one_token(g: sp.Expr) -> None:
    expansion = HermiteExpansion(g, (z1,))
    assert expansion.degree is None
    with mp.workdps(30):
        for k in range(1, 4):
            c = expansion.coefficient((k,))
            found = c.xreplace({e: _by_mpmath(e) for e in c.atoms(Expectation)}).evalf(25)
            expected = value_mp(g * orthonormal(k, z1), z1)
            assert abs(mp.mpf(str(found)) - expected) < mp.mpf(10) ** -18  # two runs of mp.quad
            assert (k in {a[0] for a in expansion.of_degree(k)}) or abs(expected) < mp.mpf(10) ** -18


def _by_mpmath(e: Expectation) -> sp.Float:
    (x,) = e.variables
    return sp.Float(str(value_mp(e.integrand, x, e.measure.mean[0], e.measure.cov[0, 0])), 28)


@pytest.mark.parametrize("g", TWO_TOKENS, ids=str)
def test_functions_of_two_tokens(g: sp.Expr) -> None:
    expansion = HermiteExpansion(g, (z1, z2))
    width = 0.7 if g.has(z1 * z2, z1**2) else 1.5  # poles of tanh(z1 z2) come near the real axis
    for k in range(4):
        found = expansion.of_degree(k)
        for alpha in multi_indices(2, k):
            h = orthonormal(alpha[0], z1) * orthonormal(alpha[1], z2)
            from_rules = value(found.get(alpha, sp.S.Zero), width=width)
            expected = value(Expectation(g * h, (z1, z2), standard_normal(2)), width=width)
            assert from_rules == pytest.approx(expected, abs=1e-10)  # panels: 1e-12


def test_a_coefficient_keeps_no_token_that_it_does_not_need() -> None:
    c = HermiteExpansion(sp.tanh(z1) * z2**2 + relu(z2), (z1, z2)).coefficient((1, 2))
    assert {len(e.variables) for e in c.atoms(Expectation)} == {1}
    assert HermiteExpansion(sp.tanh(z1) * z2, (z1, z2)).coefficient((2, 1)) is sp.S.Zero


def test_parity_and_symmetry_give_exact_zeros() -> None:
    odd = HermiteExpansion(sp.tanh(z1) * sp.Abs(z2), (z1, z2))
    assert odd.of_degree(2) == {}
    assert set(odd.of_degree(3)) <= {(3, 0), (1, 2)}
    matrix = softmax(sp.Matrix([z1, z2]) * sp.Matrix([[z1, z2]]))
    even = HermiteExpansion(matrix[0, 0] + matrix[1, 1], (z1, z2))
    assert (even.of_degree(1), even.of_degree(3)) == ({}, {})
    absolute = HermiteExpansion(sp.Abs(z1) * sp.tanh(z1) ** 2, (z1,))
    assert absolute.of_degree(1) == {}
    assert absolute.of_degree(3) == {}


# ---- Parseval ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("g", [relu(z1), sp.tanh(z1) * sp.Abs(z1), sp.exp(z1 / 2) - sigmoid(z1)], ids=str)
def test_partial_sums_rise_to_the_norm(g: sp.Expr) -> None:
    expansion = HermiteExpansion(g, (z1,))
    squares = [value(expansion.coefficient((k,))) ** 2 for k in range(13)]
    norm = value(expansion.norm_squared())
    partial = list(itertools.accumulate(squares))
    assert all(a <= b + 1e-14 for a, b in itertools.pairwise(partial))
    assert partial[-1] <= norm + 1e-12  # quadrature
    assert partial[-1] > 0.995 * norm  # the tails fall as k^(-5/2) for kinks


def test_partial_sums_of_two_tokens() -> None:
    expansion = HermiteExpansion(relu(z1 + z2), (z1, z2))
    total = sum(value(c) ** 2 for k in range(7) for c in expansion.of_degree(k).values())
    assert value(expansion.norm_squared()) == pytest.approx(1, rel=1e-12)
    # E relu(sqrt 2 x)^2 = 1, and the weights are twice those of relu: sum_k 2 sigma_k^2
    sigma = [1 / (2 * mp.pi), mp.mpf(1) / 4, 1 / (4 * mp.pi), 0, 1 / (48 * mp.pi), 0, 9 / (1440 * mp.pi)]
    assert total == pytest.approx(float(2 * sum(sigma)), rel=1e-12)


def test_multi_indices_are_complete_and_ordered() -> None:
    for length, degree in itertools.product(range(1, 5), range(6)):
        found = list(multi_indices(length, degree))
        assert len(set(found)) == len(found) == comb(degree + length - 1, length - 1)
        assert found == sorted(found, reverse=True)
        assert all(sum(alpha) == degree for alpha in found)
    assert list(multi_indices(0, 0)) == [()]
    assert list(multi_indices(0, 2)) == []
