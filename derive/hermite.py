"""Hermite expansions g = sum_alpha c_alpha h_alpha of functions of L standard normal tokens.

h_alpha(z) = prod_i He_{alpha_i}(z_i) / sqrt(alpha_i!), so that c_alpha = E[g h_alpha] and
E g^2 = sum c_alpha^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import sympy as sp

from derive.expectation import Expectation
from derive.functions import expand_hermite, orthonormal
from derive.measures import standard_normal
from derive.polynomial import algebra, generators
from derive.rules import reduced
from derive.table import Unsupported

__all__ = ["HermiteExpansion", "largest_expansion", "multi_indices"]

largest_expansion = 10**6


@lru_cache(maxsize=4096)
def _root_factorial(alpha: tuple[int, ...]) -> sp.Expr:
    return sp.sqrt(sp.Mul(*(sp.factorial(a) for a in alpha)))


def multi_indices(length: int, degree: int) -> Iterator[tuple[int, ...]]:
    """All alpha in N^length with |alpha| = degree, in lexicographic order from (degree, 0, ..)."""
    for places in combinations_with_replacement(range(length), degree):
        alpha = [0] * length
        for i in places:
            alpha[i] += 1
        yield tuple(alpha)


def _hermite_in_variable(terms: dict[tuple[int, ...], Any], i: int) -> dict[tuple[int, ...], Any]:
    image: dict[tuple[int, ...], Any] = {}
    for powers, c in terms.items():
        for n, weight in _monomial_in_hermite(powers[i]):
            key = (*powers[:i], n, *powers[i + 1 :])
            image[key] = image.get(key, 0) + c * weight
    return {k: c for k, c in image.items() if c}


@lru_cache(maxsize=256)
def _monomial_in_hermite(n: int) -> list[tuple[int, int]]:
    # x^n = sum_k n! / (2^k k! (n-2k)!) He_{n-2k}
    f = sp.factorial
    return [(n - 2 * k, int(f(n) / (2**k * f(k) * f(n - 2 * k)))) for k in range(n // 2 + 1)]


@dataclass(frozen=True)
class HermiteExpansion:
    """The coefficients c_alpha = E[g(z) h_alpha(z)] of a scalar function g of the tokens z_1 .. z_L.

    Exact for polynomials (all at once, by exp(Laplacian / 2)); else by the rules, one by one, where what the
    rules do not close stays an `Expectation` over as few variables as they reach.
    Raises `ValueError` for a polynomial of more than 10^6 coefficients.
    """

    function: sp.Expr
    tokens: tuple[sp.Symbol, ...]

    @cached_property
    def degree(self) -> int | None:
        """The degree of a polynomial; None for other functions."""
        tokens = set(self.tokens)
        inside = expand_hermite(self.function)
        if any(g not in tokens and g.has_free(*tokens) for g in generators(inside)):
            return None
        degree = _degree_bound(inside, tokens)
        size = comb(degree + len(tokens), len(tokens))
        if size > largest_expansion:
            raise Unsupported(
                f"The expansion of a polynomial of degree {degree} in {len(tokens)} tokens has up to {size} "
                f"coefficients; at most {largest_expansion} are expanded. Lower the degree or the length."
            )
        return max((sum(a) for a in self._polynomial), default=0)

    @cached_property
    def _polynomial(self) -> dict[tuple[int, ...], sp.Expr]:
        """{alpha: coefficient of prod He_alpha_i} of a polynomial."""
        length = len(self.tokens)
        ring = algebra([self.function], self.tokens)
        current = dict(ring.element(self.function).terms())
        for i in range(length):
            current = _hermite_in_variable(current, i)
        if len(ring.exprs) == length:
            return {alpha: sp.Rational(int(c.numerator), int(c.denominator)) for alpha, c in current.items()}
        grouped = ring.collect(ring.ring.from_dict(current), length)
        return {alpha: ring.expr(f) for alpha, f in grouped.items()}

    def coefficient(self, alpha: tuple[int, ...]) -> sp.Expr:
        """c_alpha, in closed form or with expectations that the rules do not close."""
        if self.degree is None:
            return self._general(alpha)
        value = self._polynomial.get(alpha, sp.S.Zero)
        product = value * _root_factorial(alpha)
        return product if value.is_Rational else sp.expand(product)

    def _general(self, alpha: tuple[int, ...]) -> sp.Expr:
        h = sp.Mul(*(orthonormal(n, z) for n, z in zip(alpha, self.tokens, strict=True)))
        value = Expectation(self.function * h, self.tokens, standard_normal(len(self.tokens)))
        return reduced(value)

    def of_degree(self, k: int) -> dict[tuple[int, ...], sp.Expr]:
        """{alpha: c_alpha}, |alpha| = k; coefficients that are zero by algebra or symmetry are left out."""
        if self.degree is not None:
            found = [a for a in self._polynomial if sum(a) == k]
            return {a: self.coefficient(a) for a in sorted(found, reverse=True)}
        pairs = ((a, self.coefficient(a)) for a in multi_indices(len(self.tokens), k))
        return {a: c for a, c in pairs if c != 0}

    def norm_squared(self) -> sp.Expr:
        """E g^2, which is sum_alpha c_alpha^2 (Parseval)."""
        return reduced(Expectation(self.function**2, self.tokens, standard_normal(len(self.tokens))))


def _degree_bound(e: sp.Expr, tokens: set[sp.Symbol]) -> int:
    """An upper bound on the degree of a polynomial expression, without multiplying it out."""
    if not e.has_free(*tokens):
        return 0
    if e in tokens:
        return 1
    if isinstance(e, sp.Add):
        return max(_degree_bound(a, tokens) for a in e.args)
    if isinstance(e, sp.Mul):
        return sum(_degree_bound(a, tokens) for a in e.args)
    return _degree_bound(e.base, tokens) * int(e.exp)
