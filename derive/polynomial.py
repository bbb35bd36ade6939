"""Sparse polynomial algebra for expressions: exact, expanded, and far faster than `sympy.expand`.

An expression is read as a polynomial over Q in its *generators*: variables, symbols, square roots of primes
and whatever else is not a sum, product or natural power. Square roots are reduced, so that the normal form of
an expression with rational and square-root constants is unique and "is zero" is decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from typing import Any

import sympy as sp
from sympy.polys.domains import QQ
from sympy.polys.rings import PolyElement, PolyRing

from derive.functions import He

__all__ = ["Algebra", "affine", "algebra", "expand", "is_zero", "quadratic", "vanishes"]

_LARGEST_FACTORED = 10**12


def _radical_primes(e: sp.Expr) -> tuple[int, ...] | None:
    """(p_1, .., p_n) when e = sqrt(p_1 .. p_n) with distinct primes."""
    if not (isinstance(e, sp.Pow) and e.exp == sp.S.Half and e.base.is_Integer and e.base > 1):
        return None
    if e.base > _LARGEST_FACTORED:
        return None
    factors: dict[int, int] = sp.factorint(int(e.base))
    return tuple(factors) if set(factors.values()) == {1} else None


def _is_natural_power(e: sp.Expr) -> bool:
    return isinstance(e, sp.Pow) and bool(e.exp.is_Integer) and bool(e.exp.is_positive)


def generators(e: sp.Expr) -> set[sp.Expr]:
    """The generators of e as a polynomial over Q."""
    if e.is_Rational:
        return set()
    if isinstance(e, sp.Add | sp.Mul):
        return set().union(*(generators(a) for a in e.args))
    if _is_natural_power(e):
        return generators(e.base)
    if isinstance(e, He):
        return generators(e.args[1])
    primes = _radical_primes(e)
    return {sp.sqrt(p) for p in primes} if primes else {e}


@dataclass(frozen=True)
class Algebra:
    """The ring Q[leading generators, other generators], with square roots of primes reduced."""

    ring: PolyRing
    exprs: tuple[sp.Expr, ...]
    leading: int

    def generator(self, e: sp.Expr) -> PolyElement:
        return self.ring.gens[self.exprs.index(e)]

    def element(self, e: sp.Expr) -> PolyElement:
        """e as a reduced polynomial."""
        return self.reduce(self._read(e, {}))

    def _read(self, e: sp.Expr, memo: dict[sp.Expr, PolyElement]) -> PolyElement:
        if e not in memo:
            memo[e] = self._read_new(e, memo)
        return memo[e]

    def _read_new(self, e: sp.Expr, memo: dict[sp.Expr, PolyElement]) -> PolyElement:
        ring = self.ring
        if e.is_Rational:
            return ring.ground_new(QQ(int(e.p), int(e.q)))
        if isinstance(e, sp.Add):
            return sum((self._read(a, memo) for a in e.args), ring.zero)
        if isinstance(e, sp.Mul):
            product = ring.one
            for a in e.args:
                product = product * self._read(a, memo)
            return product
        if _is_natural_power(e):
            return self.reduce(self._read(e.base, memo)) ** int(e.exp)
        if isinstance(e, He):
            return _hermite(ring, int(e.args[0]), self._read(e.args[1], memo))
        primes = _radical_primes(e)
        if primes:
            product = ring.one
            for p in primes:
                product = product * self.generator(sp.sqrt(p))
            return product
        return self.generator(e)

    def reduce(self, f: PolyElement) -> PolyElement:
        """sqrt(p)**2 -> p."""
        roots = [(i, e.base) for i, e in enumerate(self.exprs) if _radical_primes(e)]
        if not any(monom[i] > 1 for monom in f for i, _ in roots):
            return f
        result = self.ring.zero
        for monom, c in f.terms():
            powers, value = list(monom), c
            for i, p in roots:
                value = value * QQ(int(p)) ** (powers[i] // 2)
                powers[i] %= 2
            key = tuple(powers)
            result[key] = result.get(key, QQ(0)) + value
        result.strip_zero()
        return result

    def collect(self, f: PolyElement, count: int) -> dict[tuple[int, ...], PolyElement]:
        """f grouped by the powers of the first `count` generators."""
        groups: dict[tuple[int, ...], PolyElement] = {}
        zeros = (0,) * count
        for monom, c in f.terms():
            group = groups.setdefault(monom[:count], self.ring.zero.copy())
            group[zeros + monom[count:]] = c
        return groups

    def expr(self, f: PolyElement) -> sp.Expr:
        """The expanded expression of f."""
        return sp.Add(
            *(
                sp.Mul(
                    sp.Rational(int(c.numerator), int(c.denominator)),
                    *(e**n for e, n in zip(self.exprs, monom, strict=True) if n),
                )
                for monom, c in f.terms()
            )
        )


def _hermite(ring: PolyRing, n: int, x: PolyElement) -> PolyElement:
    # He_{k+1} = x He_k - k He_{k-1}
    previous, current = ring.zero, ring.one
    for k in range(n):
        previous, current = current, x * current - k * previous
    return current


def algebra(exprs: Iterable[sp.Expr], leading: Sequence[sp.Expr] = ()) -> Algebra:
    """The smallest algebra that holds `exprs`, with the generators `leading` first and in their order."""
    found = set().union(*(generators(sp.S(e)) for e in exprs)) - set(leading)
    gens = (*leading, *sorted(found, key=sp.default_sort_key))
    names = [f"g{i}" for i in range(len(gens))] or ["g0"]
    return Algebra(PolyRing(names, QQ), gens or (sp.Dummy(),), len(leading))


def expand(e: sp.Expr) -> sp.Expr:
    """e multiplied out, in normal form."""
    ring = algebra([e])
    return ring.expr(ring.element(e))


@lru_cache(maxsize=65536)
def is_zero(e: sp.Expr) -> bool:
    """True when e is shown to be zero: as a rational expression in its generators, or as a constant.

    Powers of one base and exponentials of multiples of one argument count as powers of one generator.
    """
    if e.is_Rational:
        return bool(e == 0)
    numerator = sp.together(e).as_numer_denom()[0] if e.has(sp.Pow) else e
    if vanishes(numerator) or (e.has(sp.Pow, sp.exp) and vanishes(_one_root(numerator))):
        return True
    return not e.free_symbols and _is_zero_constant(e)


def vanishes(e: sp.Expr) -> bool:
    """Whether e is zero as a polynomial in its generators: fast, and less than `is_zero` can show."""
    return not algebra([e]).element(e)


def _one_root(e: sp.Expr) -> sp.Expr:
    """e with b^(1/q), b^(2/q), .. of each base b, and exp(a), exp(2 a + ..), .. of each a, as powers of one symbol."""
    exponents: dict[sp.Expr, set[sp.Rational]] = {}
    for p in e.atoms(sp.Pow):
        if p.exp.is_Rational and not p.exp.is_Integer and not p.base.is_Rational:
            exponents.setdefault(p.base, set()).add(p.exp)
    exponentials = {p: [a.as_coeff_Mul() for a in sp.Add.make_args(p.exp)] for p in e.atoms(sp.exp)}
    for parts in exponentials.values():
        for ratio, rest in parts:
            exponents.setdefault(sp.exp(rest), set()).add(ratio)
    change: dict[sp.Expr, sp.Expr] = {}
    for base, powers in exponents.items():
        q = lcm(*(int(r.q) for r in powers))
        root = sp.Dummy(positive=True)
        change |= {base**r: root ** (r * q) for r in powers} | {base: root**q}
    for p, parts in exponentials.items():
        change[p] = sp.Mul(*(change[sp.exp(rest) ** ratio] for ratio, rest in parts))
    return sp.together(e.xreplace(change)).as_numer_denom()[0]


def _is_zero_constant(e: sp.Expr) -> bool:
    near = e.evalf(40, maxn=200)
    return bool(near.is_number and abs(near) < sp.Float("1e-30") and e.equals(0))


def _coefficients(e: sp.Expr, variables: Sequence[sp.Symbol], degree: int) -> Mapping[Any, sp.Expr] | None:
    wanted = set(variables)
    found = generators(e)
    if any(g not in wanted and g.has_free(*variables) for g in found):
        return None
    ring = algebra([e], variables)
    groups = ring.collect(ring.element(e), len(variables))
    if any(sum(powers) > degree for powers in groups):
        return None
    return {powers: ring.expr(f) for powers, f in groups.items()}


@lru_cache(maxsize=65536)
def affine(e: sp.Expr, variables: tuple[sp.Symbol, ...]) -> tuple[tuple[sp.Expr, ...], sp.Expr] | None:
    """(a, b) with e = a . variables + b, or None when e is not affine in the variables."""
    groups = _coefficients(e, variables, 1)
    if groups is None:
        return None
    n = len(variables)
    unit = [tuple(int(i == j) for j in range(n)) for i in range(n)]
    return tuple(groups.get(u, sp.S.Zero) for u in unit), groups.get((0,) * n, sp.S.Zero)


def quadratic(
    e: sp.Expr, variables: tuple[sp.Symbol, ...]
) -> tuple[sp.ImmutableDenseMatrix, tuple[sp.Expr, ...], sp.Expr] | None:
    """(Q, a, b) with e = x^T Q x + a . x + b and Q symmetric, or None."""
    groups = _coefficients(e, variables, 2)
    if groups is None:
        return None
    n = len(variables)

    def power(*which: int) -> tuple[int, ...]:
        return tuple(which.count(k) for k in range(n))

    def entry(i: int, j: int) -> sp.Expr:
        return groups.get(power(i, j), sp.S.Zero) / (1 if i == j else 2)

    q = sp.ImmutableDenseMatrix(n, n, lambda i, j: entry(int(i), int(j)))
    return q, tuple(groups.get(power(i), sp.S.Zero) for i in range(n)), groups.get(power(), sp.S.Zero)
