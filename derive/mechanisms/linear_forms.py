"""Expressions of many variables as functions of the few linear forms through which they read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import sympy as sp

from derive.polynomial import is_zero

__all__ = ["Form", "Forms", "linear_parts"]

Coefficients = dict[sp.Symbol, sp.Expr]


def linear_parts(
    e: sp.Expr, variables: frozenset[sp.Symbol], random: frozenset[sp.Symbol] = frozenset()
) -> tuple[Coefficients, sp.Expr] | None:
    """({x: a_x}, b) where e is written as sum_x a_x x + b; None where it is not affine as it is written.

    Coefficients that hold one of the symbols `random` make no affine form.
    """
    if e in variables:
        return {e: sp.S.One}, sp.S.Zero
    if not e.has_free(*variables):
        return {}, e
    if isinstance(e, sp.Mul):
        inside = [a for a in e.args if a.has_free(*variables)]
        parts = linear_parts(inside[0], variables, random) if len(inside) == 1 else None
        factor = sp.Mul(*(a for a in e.args if a is not inside[0]))
        if parts is None or factor.has_free(*random):
            return None
        return {x: factor * a for x, a in parts[0].items()}, factor * parts[1]
    return _sum_of(e.args, variables, random) if isinstance(e, sp.Add) else None


def _sum_of(
    terms: Sequence[sp.Expr], variables: frozenset[sp.Symbol], random: frozenset[sp.Symbol]
) -> tuple[Coefficients, sp.Expr] | None:
    collected: dict[sp.Symbol, list[sp.Expr]] = {}
    constants = []
    for term in terms:
        parts = linear_parts(term, variables, random)
        if parts is None:
            return None
        for x, a in parts[0].items():
            collected.setdefault(x, []).append(a)
        constants.append(parts[1])
    sums = {x: sp.Add(*a) for x, a in collected.items()}
    return {x: a for x, a in sums.items() if a != 0}, sp.Add(*constants)


@dataclass(frozen=True)
class Form:
    """symbol = sum_x coefficients[x] x."""

    symbol: sp.Symbol
    coefficients: Coefficients


@dataclass(frozen=True)
class Forms:
    """The linear forms met so far, and expressions written in them. `random`: what no coefficient may hold.

    Two parallel forms have one symbol, up to its sign that form which is the argument of a function where there is one.
    """

    variables: frozenset[sp.Symbol]
    random: frozenset[sp.Symbol] = frozenset()
    found: list[Form] = field(default_factory=list)

    def rewrite(self, e: sp.Expr) -> sp.Expr:
        """`e` in the symbols of forms, new ones where needed."""
        for argument in _arguments(e, self.variables):
            parts = self._parts(argument)
            if parts is not None and parts[0]:
                self._named(parts[0])
        return self._written(e)

    def _written(self, e: sp.Expr) -> sp.Expr:
        if not e.has_free(*self.variables):
            return e
        parts = self._parts(e)
        if parts is not None:
            return (self._named(parts[0]) if parts[0] else 0) + parts[1]
        if not isinstance(e, sp.Add):
            return e.func(*(self._written(a) for a in e.args))
        flat = [a for a in e.args if self._parts(a) is not None]
        rest = [a for a in e.args if a not in flat]
        together = [self._written(sp.Add(*flat))] if flat else []
        return sp.Add(*together, *(self._written(a) for a in rest))

    def _parts(self, e: sp.Expr) -> tuple[Coefficients, sp.Expr] | None:
        return linear_parts(e, self.variables, self.random)

    def _named(self, coefficients: Coefficients) -> sp.Expr:
        for known in self.found:
            k = _ratio(coefficients, known.coefficients)
            if k is not None:
                return k * known.symbol
        sign = -1 if _leading(coefficients).could_extract_minus_sign() else 1
        symbol = sp.Dummy(f"form{len(self.found) + 1}", real=True)
        self.found.append(Form(symbol, {x: sign * a for x, a in coefficients.items()}))
        return sign * symbol


def _leading(coefficients: Coefficients) -> sp.Expr:
    return coefficients[min(coefficients, key=lambda x: (x.name, str(x)))]


def _arguments(e: sp.Expr, variables: frozenset[sp.Symbol]) -> Iterator[sp.Expr]:
    """The arguments of functions in `e`, in an order that does not depend on hashes."""
    if not e.has_free(*variables):
        return
    if isinstance(e, sp.Function | sp.exp):
        yield from (a for a in e.args if a.has_free(*variables))
    for a in e.args:
        yield from _arguments(a, variables)


def _ratio(a: Coefficients, b: Coefficients) -> sp.Expr | None:
    """k with a = k b, None where there is none."""
    if a.keys() != b.keys():
        return None
    first = next(iter(a))
    k = a[first] / b[first]
    return k if all(v == k * b[x] or is_zero(v * b[first] - a[first] * b[x]) for x, v in a.items()) else None
