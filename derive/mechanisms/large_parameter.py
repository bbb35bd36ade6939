"""Expansion of a chain of definitions for a large parameter: limits, and first corrections in 1/parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy as sp

from derive.equations import Define

__all__ = ["LargeParameter"]


@dataclass
class LargeParameter:
    """f = limit + correction / parameter + O(1 / parameter^2) for expressions of unknowns that definitions give.

    Expectations are expanded by differentiation (Bonnet, Price). Raises `ValueError` where a limit does not exist.
    """

    equations: Sequence[Define]
    parameter: sp.Symbol
    _small: sp.Symbol = field(default_factory=lambda: sp.Dummy("small", positive=True))
    _limits: dict[sp.Symbol, sp.Expr] = field(default_factory=dict)
    _corrections: dict[sp.Symbol, sp.Expr] = field(default_factory=dict)

    def limit(self, e: sp.Expr) -> sp.Expr:
        """The value at parameter = infinity, in the other parameters."""
        return self._at_zero(self._in_small(e))

    def correction(self, e: sp.Expr) -> sp.Expr:
        """The coefficient of 1/parameter, by the chain rule through the definitions."""
        e = self._in_small(e)
        total = self._at_zero(e.diff(self._small))
        for equation in self.equations:
            u = equation.unknown.symbol
            if e.has_free(u):
                slope = self._at_zero(e.diff(u))
                total += slope * self._correction_of(equation) if slope != 0 else 0
        return total

    def _in_small(self, e: sp.Expr) -> sp.Expr:
        return e.subs(self.parameter, 1 / self._small)

    def _at_zero(self, e: sp.Expr) -> sp.Expr:
        for equation in self.equations:
            if e.has_free(equation.unknown.symbol):
                e = e.subs(equation.unknown.symbol, self._limit_of(equation))
        value = e.subs(self._small, sp.S.Zero)
        if value.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
            raise ValueError(f"{e} has no limit as {self.parameter} goes to infinity, so there is no expansion.")
        return value

    def _limit_of(self, equation: Define) -> sp.Expr:
        u = equation.unknown.symbol
        if u not in self._limits:
            self._limits[u] = self.limit(equation.rhs)
        return self._limits[u]

    def _correction_of(self, equation: Define) -> sp.Expr:
        u = equation.unknown.symbol
        if u not in self._corrections:
            self._corrections[u] = self.correction(equation.rhs)
        return self._corrections[u]
