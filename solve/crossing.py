"""Numbers read off several solutions of one derivation, with errors: critical parameters, laws of many samples.

Where expectations are sampled, all solutions of one run share their points, so that they vary smoothly with the
parameters and their differences are far more accurate than they are; runs with independent points give the error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from scipy.optimize import brentq

from derive.measures import Pushforward
from derive.task import Derivation
from solve.compiled import compile_system
from solve.result import SolveError, Status
from solve.solution import given_values
from solve.static import StaticSolver, Values, accuracy_of

__all__ = ["Branch", "Criterion", "Measured", "crossing", "many_samples", "measured"]

_RUNS = 8
_LOOKED_AT = 9  # values of the parameter at which the sign of a criterion is looked at
_NEARBY = 0.1  # of the bracket, where the crossing of another run is sought
_FEW = 1e3  # samples over the dimension, from which an expansion in their inverse is read off
_ROUNDING = 4 * float(np.finfo(float).eps)


@dataclass(frozen=True)
class Measured:
    """error: the standard error over independent runs where expectations are sampled, else a bound of quadrature."""

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Branch:
    """Solutions of one run, by the names of parameters and unknowns; values: of the parameters that are not given."""

    solver: StaticSolver
    values: Values

    def at(self, unknown: str, **given: float) -> Measured:
        """An unknown where the parameters given have these values; raises `SolveError` where none is found."""
        here = {**self.values, **{self._parameter(name): float(v) for name, v in given.items()}}
        found = self.solver.solve(here)
        if found.status is not Status.converged:
            raise SolveError(f"{unknown} at {given}: {found.status.value}", found.status, found.residual)
        symbol = self.solver.main.system.symbol(unknown)
        return Measured(float(found[symbol]), float(found.errors[symbol]))

    def _parameter(self, name: str) -> sp.Symbol:
        known = {q.symbol.name: q.symbol for q in self.solver.main.system.parameters}
        if name not in known:
            raise ValueError(f"{name} is no parameter of this task; there are {', '.join(sorted(known))}.")
        return known[name]


Criterion: TypeAlias = Callable[[Branch, float], Measured]
"""Of a parameter's value; its sign says on which side of the critical value it lies."""


def measured(
    derivation: Derivation[Any],
    quantity: Callable[[Branch], Measured],
    values: Mapping[str, float] | None = None,
    runs: int = _RUNS,
) -> Measured:
    """A quantity, averaged over independent runs; one run where nothing is sampled, with its own error."""
    if runs < 2:
        raise ValueError(f"measured needs at least 2 runs for an error, got {runs}.")
    found = [quantity(branch) for branch in _branches(derivation, values or {}, runs)]
    return found[0] if len(found) == 1 else _mean(found)


def _mean(found: list[Measured]) -> Measured:
    """The mean, with its standard error; what the runs have in common, an expansion's remainder, is not in it."""
    x = np.array([m.value for m in found])
    return Measured(float(x.mean()), float(x.std(ddof=1)) / math.sqrt(x.size))


def _branches(derivation: Derivation[Any], values: Mapping[str, float], runs: int) -> list[Branch]:
    accuracy, at = accuracy_of(derivation.task), given_values(derivation, values)
    read = {q.symbol for q in derivation.system.parameters}
    own = {s: v for s, v in at.items() if s in read}
    count = runs if any(e.rhs.has(Pushforward) for e in derivation.system.equations) else 1
    compiled = (compile_system(derivation.system, replace(accuracy, scrambled=i)) for i in range(count))
    return [Branch(StaticSolver(derivation, c), own) for c in compiled]


# ---- critical values --------------------------------------------------------------------------------------
def crossing(
    derivation: Derivation[Any],
    criterion: Criterion,
    low: float,
    high: float,
    values: Mapping[str, float] | None = None,
    runs: int = _RUNS,
) -> Measured:
    """The value in [low, high] at which the criterion changes sign.

    Raises `SolveError` where it does not, or does so more than once among nine values between.
    """
    if not low < high:
        raise ValueError(f"crossing needs low < high, got {low:g} and {high:g}.")
    near: float | None = None

    def root(branch: Branch) -> Measured:
        nonlocal near
        found = _root(branch, criterion, low, high, near)
        near = found.value
        return found

    return measured(derivation, root, values, runs)


def _root(branch: Branch, criterion: Criterion, low: float, high: float, near: float | None) -> Measured:
    def value(x: float) -> float:
        return criterion(branch, x).value

    a, b = _bracket(value, low, high, near)
    x = float(brentq(value, a, b, xtol=1e-10 * (high - low), rtol=_ROUNDING))
    step = 1e-3 * (high - low)
    left, right = max(x - step, low), min(x + step, high)
    slope = (value(right) - value(left)) / (right - left)
    return Measured(x, criterion(branch, x).error / abs(slope) if slope else math.inf)


def _bracket(value: Callable[[float], float], low: float, high: float, near: float | None) -> tuple[float, float]:
    if near is not None:
        a, b = max(near - _NEARBY * (high - low), low), min(near + _NEARBY * (high - low), high)
        if value(a) * value(b) < 0:
            return a, b
    grid = np.linspace(low, high, _LOOKED_AT).tolist()
    y = [value(x) for x in grid]
    changes = [(a, b) for (a, s), (b, t) in itertools.pairwise(zip(grid, y, strict=True)) if s * t <= 0]
    if len(changes) == 1:
        return changes[0]
    ends = f"it is {y[0]:.4g} at {low:g} and {y[-1]:.4g} at {high:g}"
    if not changes:
        raise SolveError(f"crossing: the criterion does not change sign; {ends}. Widen the bracket.")
    places = ", ".join(f"between {a:.4g} and {b:.4g}" for a, b in changes)
    raise SolveError(f"crossing: the criterion changes sign {len(changes)} times, {places}. Narrow the bracket.")


# ---- many samples -----------------------------------------------------------------------------------------
def many_samples(branch: Branch, unknown: str, ratio: str, **given: float) -> tuple[Measured, Measured]:
    """(E_inf, K) of `unknown` = E_inf + K/ratio + O(1/ratio^2) as the parameter `ratio`, samples over d, grows.

    The parabola in 1/ratio through three solutions, less its difference from another, which is part of the error.
    """
    ratios = [_FEW * 2**k for k in range(4)]
    found = [branch.at(unknown, **{**given, ratio: r}) for r in ratios]
    rough, fine = (_at_zero(ratios[i : i + 3], found[i : i + 3]) for i in range(2))
    return tuple(  # type: ignore[return-value]
        Measured(f.value, f.error + abs(f.value - r.value)) for f, r in zip(fine, rough, strict=True)
    )


def _at_zero(ratios: list[float], found: list[Measured]) -> tuple[Measured, Measured]:
    """Value and slope at x = 0 of the parabola through (1/ratio, value)."""
    inverse = np.linalg.inv(np.vander(1 / np.array(ratios), increasing=True))
    y, e = (np.array([getattr(m, name) for m in found]) for name in ("value", "error"))
    level, slope = (Measured(float(row @ y), float(np.abs(row) @ e)) for row in inverse[:2])
    return level, slope
