"""Expectations whose integrand separates over two groups of Gaussian variables that one overlap correlates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import networkx as nx
import sympy as sp

from derive.expectation import Expectation
from solve.kinks import smoothness

__all__ = ["PairLaw", "Separation", "Term", "separate"]

_MOST_IN_A_SIDE = 3
_MOST_TERMS = 2000

Sum: TypeAlias = dict[tuple[sp.Expr, sp.Expr, sp.Expr], sp.Expr]  # (parameters, left, right) -> number


@dataclass(frozen=True)
class PairLaw:
    """Gaussian x = (left, right), of means origin + shift direction and mean_right, Cov(left, right) = overlap cross.

    `overlap` and `shift` are expressions of parameters, all else is made of numbers; shift = 0 for a fixed mean.
    """

    left: tuple[sp.Symbol, ...]
    right: tuple[sp.Symbol, ...]
    overlap: sp.Expr
    shift: sp.Expr
    origin: sp.Tuple
    direction: sp.Tuple
    mean_right: sp.Tuple
    cov_left: sp.ImmutableDenseMatrix
    cov_right: sp.ImmutableDenseMatrix
    cross: sp.ImmutableDenseMatrix


@dataclass(frozen=True)
class Term:
    """number coefficient left(x_left) right(x_right), where the coefficient is free of the variables."""

    number: sp.Expr
    coefficient: sp.Expr
    left: sp.Expr
    right: sp.Expr


@dataclass(frozen=True)
class Separation:
    """`expectation` as the sum of its terms' averages under `law`; `inside`: parameters that left and right read."""

    expectation: Expectation
    law: PairLaw
    terms: tuple[Term, ...]
    inside: frozenset[sp.Symbol]


def separate(e: Expectation) -> Separation | None:
    """E sum_i c_i f_i(x_A) g_i(x_B) with Cov(x_A, x_B) = rho K and at most three variables in A and in B.

    None where the integrand is not smooth or does not separate, or the law has another form: anything but rho
    and the place of one mean on a line that depends on parameters. A is the side whose mean may move.
    """
    if e.integrand.has(Expectation) or e.measure.has(Expectation):
        return None
    kind = smoothness(e.integrand, e.variables)
    if kind.kinks or kind.curved or kind.singular:
        return None
    sides = _sides(e)
    law = None if sides is None else _pair_law(e, *sides)
    if law is None:
        return None
    terms = _Separator(frozenset(law.left), frozenset(law.right)).separated(e.integrand)
    if terms is None:
        return None
    found = tuple(Term(number, *key) for key, number in terms.items() if number != 0)
    inside = set().union(*(t.left.free_symbols | t.right.free_symbols for t in found)) - set(e.variables)
    return Separation(e, law, found, frozenset(inside))


# ------------------------------------------------------------------------------------ sides


def _sides(e: Expectation) -> tuple[list[int], list[int]] | None:
    """The finest split of the variables, as positions, such that parameters correlate one side with the other."""
    together: nx.Graph[int] = nx.Graph()
    together.add_nodes_from(range(len(e.variables)))
    across = []
    for i, j in itertools.combinations(range(len(e.variables)), 2):
        if e.measure.cov[i, j].free_symbols:
            across.append((i, j))
        elif e.measure.cov[i, j] != 0:
            together.add_edge(i, j)
    place = {v: i for i, v in enumerate(e.variables)}
    for read in _inseparable(e.integrand, frozenset(place)):
        nx.add_path(together, [place[v] for v in read])
    part = {i: min(c) for c in nx.connected_components(together) for i in c}
    opposite: nx.Graph[int] = nx.Graph()
    opposite.add_nodes_from(part.values())
    opposite.add_edges_from((part[i], part[j]) for i, j in across)
    if not across or not nx.is_bipartite(opposite):
        return None
    left = _left_parts(opposite, {part[i] for i, mean in enumerate(e.measure.mean) if mean.free_symbols})
    sides = [[i for i in part if (part[i] in left) == wanted] for wanted in (True, False)]
    return (sides[0], sides[1]) if max(map(len, sides)) <= _MOST_IN_A_SIDE else None


def _left_parts(opposite: nx.Graph[int], moving: set[int]) -> set[int]:
    """One side of each connected piece: that with the moving means, else that with the first variable."""
    left: set[int] = set()
    for piece in nx.connected_components(opposite):
        colour = nx.bipartite.color(opposite.subgraph(piece))
        first = min(piece & moving or piece)
        left |= {p for p in piece if colour[p] == colour[first]}
    return left


def _inseparable(expr: sp.Expr, variables: frozenset[sp.Symbol]) -> Iterator[list[sp.Symbol]]:
    """The variables that each part of sums, products, powers and exponentials of sums reads."""
    if isinstance(expr, sp.exp):
        for a in sp.Add.make_args(expr.args[0]):
            yield sorted(a.free_symbols & variables, key=str)
    elif isinstance(expr, (sp.Add, sp.Mul)):
        for a in expr.args:
            yield from _inseparable(a, variables)
    elif _is_power(expr):
        yield from _inseparable(expr.base, variables)
    else:
        yield sorted(expr.free_symbols & variables, key=str)


def _is_power(expr: sp.Expr) -> bool:
    return isinstance(expr, sp.Pow) and bool(expr.exp.is_Integer and expr.exp.is_positive)


# -------------------------------------------------------------------------------------- law


def _pair_law(e: Expectation, left: list[int], right: list[int]) -> PairLaw | None:
    mean, cov = e.measure.mean, e.measure.cov
    line = _line([mean[i] for i in left])
    cross = _proportional(cov.extract(left, right))
    mean_right = sp.Tuple(*(mean[i] for i in right))
    blocks = cov.extract(left, left), cov.extract(right, right)
    if line is None or cross is None or mean_right.free_symbols or any(b.free_symbols for b in blocks):
        return None
    x, y = (tuple(e.variables[i] for i in side) for side in (left, right))
    return PairLaw(x, y, cross[0], *line, mean_right, *blocks, cross[1])


def _line(mean: Sequence[sp.Expr]) -> tuple[sp.Expr, sp.Tuple, sp.Tuple] | None:
    """shift, origin and direction with mean = origin + shift direction."""
    apart = [m.as_independent(*m.free_symbols, as_Add=True) if m.free_symbols else (m, sp.S.Zero) for m in mean]
    shift = next((moving for _, moving in apart if moving != 0), sp.S.Zero)
    direction = [moving / shift if moving != 0 else sp.S.Zero for _, moving in apart]
    if any(d.free_symbols for d in direction):
        return None
    return shift, sp.Tuple(*(fixed for fixed, _ in apart)), sp.Tuple(*direction)


def _proportional(block: sp.ImmutableDenseMatrix) -> tuple[sp.Expr, sp.ImmutableDenseMatrix] | None:
    """overlap and numbers K with block = overlap K."""
    first = next(c for c in block if c.free_symbols)
    overlap = first.as_independent(*first.free_symbols, as_Add=False)[1]
    cross = block.applyfunc(lambda c: c / overlap)
    return None if cross.free_symbols else (overlap, cross)


# ------------------------------------------------------------------------------------ terms


@dataclass(frozen=True)
class _Separator:
    left: frozenset[sp.Symbol]
    right: frozenset[sp.Symbol]

    def separated(self, expr: sp.Expr) -> Sum | None:
        """`expr` as a sum of products; parameters are taken out of a factor where they stand as factors in it."""
        free = expr.free_symbols
        one = sp.S.One
        if free.isdisjoint(self.left | self.right):
            number, coefficient = expr.as_independent(*free, as_Add=False) if free else (expr, one)
            return {(coefficient, one, one): number}
        if free <= self.left:
            return {(one, expr, one): one}
        if free <= self.right:
            return {(one, one, expr): one}
        if isinstance(expr, sp.Add):
            return self._total(expr.args)
        if isinstance(expr, sp.Mul):
            return self._product(expr.args)
        if _is_power(expr):
            return self._product([expr.base] * int(expr.exp))
        if free.isdisjoint(self.right):
            return {(one, expr, one): one}
        if free.isdisjoint(self.left):
            return {(one, one, expr): one}
        parts = self._by_side(expr.args[0]) if isinstance(expr, sp.exp) else []
        return self._product([sp.exp(a) for a in parts]) if len(parts) > 1 else None

    def _by_side(self, total: sp.Expr) -> list[sp.Expr]:
        """`total` as a sum of what reads the left side, the right one, both, and neither."""
        sides: dict[tuple[bool, bool], sp.Expr] = {}
        for a in sp.Add.make_args(total):
            side = a.has_free(*self.left), a.has_free(*self.right)
            sides[side] = sides.get(side, sp.S.Zero) + a
        return list(sides.values())

    def _total(self, addends: Sequence[sp.Expr]) -> Sum | None:
        total: Sum = {}
        for a in addends:
            found = self.separated(a)
            if found is None:
                return None
            for key, number in found.items():
                total[key] = total.get(key, sp.S.Zero) + number
        return total

    def _product(self, factors: Sequence[sp.Expr]) -> Sum | None:
        total: Sum = {(sp.S.One, sp.S.One, sp.S.One): sp.S.One}
        known: dict[sp.Expr, Sum | None] = {}
        for f in factors:
            found = known.setdefault(f, self.separated(f)) if f not in known else known[f]
            if found is None or len(found) * len(total) > _MOST_TERMS:
                return None
            total = _multiplied(total, found)
        return total


def _multiplied(a: Mapping[tuple[sp.Expr, ...], sp.Expr], b: Mapping[tuple[sp.Expr, ...], sp.Expr]) -> Sum:
    product: Sum = {}
    for (key, number), (other, factor) in itertools.product(a.items(), b.items()):
        coefficient, left, right = (p * q for p, q in zip(key, other, strict=True))
        place = (coefficient, left, right)
        product[place] = product.get(place, sp.S.Zero) + number * factor
    return product
