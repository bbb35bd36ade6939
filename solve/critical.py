"""Critical values: where a criterion changes sign in one parameter, over all of that parameter's domain."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
from flint import ctx
from scipy.optimize import brentq

from derive.equations import EquationSystem, Root
from derive.expectation import expectations
from solve.certified_root import root
from solve.domain import Box
from solve.lower import Lowered, lower
from solve.quadrature import Accuracy
from solve.straightline import NotEnclosed

__all__ = ["Critical", "CriticalSystem"]

_ACCURACY = Accuracy(rtol=1e-14, atol=1e-15)
_POINTS = 65
# integrals in three variables or more, with kinks where output and label coincide, cost seconds for four digits
_COSTLY_DIM = 3
_COSTLY_ACCURACY = Accuracy(rtol=1e-4, atol=1e-5, max_points=2**18)
_COSTLY_POINTS = 9
_EPS = float(np.finfo(float).eps)
_DIGITS = (30, 12, 8)
_AROUND = sp.Rational(1, 10**6)


@dataclass(frozen=True, slots=True)
class Critical:
    """value: nan with a `reason` where there is none. error: the quadrature's over the slope, and rounding."""

    value: float
    residual: float
    error: float
    reason: str = ""

    @staticmethod
    def none(reason: str) -> Critical:
        """No critical value."""
        return Critical(math.nan, math.nan, math.nan, reason)


@dataclass(frozen=True)
class CriticalSystem:
    """Root equations of one unknown each, to be solved on the domain of that unknown."""

    system: EquationSystem

    @property
    def unknowns(self) -> tuple[sp.Symbol, ...]:
        """What is solved for."""
        return self.system.unknowns

    def values(self, parameters: Mapping[sp.Symbol, float]) -> dict[sp.Symbol, Critical]:
        """The critical values at these parameters; those for which one lacks a parameter say so."""
        return {u: self._solve(u, parameters) for u in self.unknowns}

    def certified(
        self, parameters: Mapping[sp.Symbol, sp.Expr], near: Mapping[str, Critical], reasons: dict[str, str]
    ) -> dict[str, tuple[str, str]]:
        """Of each value found, an interval that is proved to hold it alone, 1e-6 around it.

        To 30 digits where that is affordable, else to what is; `reasons` says where nothing could be proved. The
        parameters are exact.
        """
        proved: dict[str, tuple[str, str]] = {}
        for u in (u for u in self.unknowns if math.isfinite(near[u.name].value)):
            f = self.system.equation(u).rhs.xreplace(dict(parameters))
            middle = sp.Rational(near[u.name].value)
            for digits in _DIGITS:
                try:
                    found = root(f, middle - _AROUND, middle + _AROUND, digits)
                except (NotEnclosed, ValueError) as failed:
                    reasons[u.name] = f"not certified to {digits} digits: {failed}"
                    continue
                with ctx.workprec(256):
                    proved[u.name] = found.interval(digits)
                break
        return proved

    @functools.cached_property
    def _functions(self) -> Mapping[sp.Symbol, tuple[Lowered, tuple[sp.Symbol, ...], int]]:
        """The criterion compiled, its parameters, and at how many points its sign is looked at."""
        found = {}
        for e in self.system.equations:
            assert isinstance(e, Root)
            others = tuple(sorted(e.reads() - {e.unknown.symbol}, key=str))
            costly = any(len(x.variables) >= _COSTLY_DIM for x in expectations(e.rhs))
            accuracy, points = (_COSTLY_ACCURACY, _COSTLY_POINTS) if costly else (_ACCURACY, _POINTS)
            found[e.unknown.symbol] = lower([e.rhs], [e.unknown.symbol, *others], accuracy), others, points
        return found

    def _solve(self, unknown: sp.Symbol, parameters: Mapping[sp.Symbol, float]) -> Critical:
        function, others, points = self._functions[unknown]
        lacking = sorted(s.name for s in others if s not in parameters)
        if lacking:
            return Critical.none(f"needs a value for {', '.join(lacking)}")
        box = Box.of([self.system.equation(unknown).unknown.domain])
        low, high = float(box.low[0]), float(box.high[0])
        if not (math.isfinite(low) and math.isfinite(high)):
            return Critical.none("the domain of the parameter is unbounded: state a bounded one")
        own = [parameters[s] for s in others]
        grid = np.linspace(low, high, points)
        y = function(grid, *own)[0][0]
        grid, y = grid[np.isfinite(y)], y[np.isfinite(y)]
        if grid.size < points // 2:
            return Critical.none("the criterion is not finite on most of the domain of the parameter")
        changes = np.flatnonzero(np.sign(y[:-1]) * np.sign(y[1:]) < 0)
        exact = [Critical(float(x), 0.0, _EPS) for x in grid[y == 0]]
        found = exact + [_root(function, own, grid[i], grid[i + 1]) for i in changes]
        if not found:
            side = "positive" if y[0] > 0 else "negative"
            return Critical.none(f"the criterion stays {side} on all of [{grid[0]:g}, {grid[-1]:g}]")
        if len(found) > 1:
            places = ", ".join(f"{c.value:.6g}" for c in sorted(found, key=lambda c: c.value))
            return Critical.none(f"the criterion changes sign more than once, at {places}")
        return found[0]


def _root(function: Lowered, own: Sequence[float], low: float, high: float) -> Critical:
    def value(x: float) -> float:
        return float(function(x, *own)[0][0])

    uncertainty = float(function((low + high) / 2, *own)[1][0])
    size = abs(value(high) - value(low)) or 1.0
    close = max(4 * _EPS * max(abs(low), abs(high)), 0.01 * (high - low) * uncertainty / size)
    x = float(brentq(value, low, high, xtol=close, rtol=4 * _EPS))
    step = 1e-2 * (high - low)
    slope = abs(value(x + step) - value(x - step)) / (2 * step)
    (residual,), (uncertain,) = function(x, *own)
    return Critical(x, float(abs(residual)), float((uncertain + abs(residual)) / slope) + 4 * _EPS * abs(x))
