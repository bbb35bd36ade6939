"""How large a signal each model class needs for a target error, against the sequence length, and by which law."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
from scipy.optimize import brentq

from derive.mechanisms.oracle import ModelClass
from solve.lower import Lowered, lower
from solve.minimum import minimise
from solve.quadrature import Accuracy, Array
from solve.result import SolveError

__all__ = ["LAWS", "Fit", "Need", "fits", "needed"]

_ROUGH = Accuracy(rtol=1e-6, atol=1e-6)
_GROWTH = 1.25
_MOST_GROWTHS = 60
_ROUNDS = 12
_SETTLED = 1e-5

LAWS: Mapping[str, Callable[[Array], Array]] = {
    "sqrt L": np.sqrt,
    "log L": np.log,
    "sqrt(2 log L)": lambda length: np.sqrt(2 * np.log(length)),
}
"""Laws of the sequence length, by their names in tables."""


@dataclass(frozen=True)
class Need:
    """The signal at which the least error of a class is the target, its absolute error, and the best variables."""

    value: float
    error: float
    place: Array


def needed(
    model: ModelClass,
    signal: sp.Symbol,
    values: Mapping[sp.Symbol, float],
    target: float,
    near: float,
    place: Array | None = None,
) -> Need:
    """The smallest signal found, near `near` or above, at which min over the variables of the error is `target`.

    place: variables to start from, those of a like problem, instead of the starts of the class.
    The signal is solved for at fixed variables and these are minimised over at that signal, in turn: each round
    lowers it, and by the envelope theorem the last change is of second order. Raises `SolveError` where no signal
    reaches the target or the rounds do not settle.
    """
    problem = _Needed.of(model, signal, values)
    start = near
    for _ in range(_MOST_GROWTHS):
        best, least = problem.least(start, place)
        if least <= target:
            break
        start *= _GROWTH
    else:
        raise SolveError(f"needed: the error of {model.name} stays above {target} up to {signal} = {start:.4g}.")
    for _ in range(_ROUNDS):
        found = problem.solved(start, best, target)
        if not model.variables or start - found <= _SETTLED * start:
            return Need(found, max(problem.doubt(found, best), _SETTLED * found), best)
        start = found
        best, _ = problem.least(start, best)
    raise SolveError(f"needed: {signal} for {model.name} has not settled in {_ROUNDS} rounds; it is near {start:.6g}.")


@dataclass(frozen=True)
class _Needed:
    error: Lowered
    starts: Lowered
    fixed: tuple[float, ...]
    variables: int

    @classmethod
    def of(cls, model: ModelClass, signal: sp.Symbol, values: Mapping[sp.Symbol, float]) -> _Needed:
        order = sorted(values, key=str)
        starts = [v for row in model.starts for v in row]
        return cls(
            lower([model.error], [signal, *order, *model.variables], _ROUGH),
            lower(starts, [signal, *order], _ROUGH),
            tuple(values[s] for s in order),
            len(model.variables),
        )

    def least(self, signal: float, place: Array | None) -> tuple[Array, float]:
        """Where the error is least at this signal, and its value; sought from `place` if there is one."""
        if not self.variables:
            return np.empty(0), self.at(signal, np.empty(0))[0]
        rows = self.starts(signal, *self.fixed)[0] if place is None else place

        def function(points: Array) -> tuple[Array, Array]:
            value, error = self.error(signal, *self.fixed, *points.T)
            return np.asarray(value[0]), np.asarray(error[0])

        found = minimise(function, rows.reshape(-1, self.variables))
        if found is None:
            raise SolveError(f"needed: no finite error at the starts {rows}.")
        return found.place, found.value

    def at(self, signal: float, place: Array) -> tuple[float, float]:
        """The error of the class and that of the number itself."""
        value, error = self.error(signal, *self.fixed, *place)
        return float(value[0]), float(error[0])

    def solved(self, above: float, place: Array, target: float) -> float:
        """The signal, at most `above`, at which the error at `place` is the target."""

        def excess(signal: float) -> float:
            return math.log(max(self.at(signal, place)[0], 1e-300) / target)

        low = above
        for _ in range(_MOST_GROWTHS):
            if excess(low) > 0:
                break
            low /= _GROWTH
        if low == above:
            return above
        return float(brentq(excess, low, above, xtol=1e-9 * above, rtol=1e-9))

    def doubt(self, signal: float, place: Array) -> float:
        """What the error of the error means for the signal."""
        step = 1e-3 * signal
        value, error = self.at(signal, place)
        slope = (value - self.at(signal + step, place)[0]) / step
        return error / slope if slope > 0 else math.inf


@dataclass(frozen=True)
class Fit:
    """needed = slope * law(L) + intercept by least squares, and the root mean square of what is left."""

    law: str
    slope: float
    intercept: float
    residual: float


def fits(lengths: Sequence[float], signals: Sequence[float]) -> tuple[Fit, ...]:
    """The fit of each law in `LAWS`, the best first; at least four lengths tell them apart."""
    if len(lengths) < 4 or len(lengths) != len(signals):
        raise ValueError(f"fits() needs a signal for each of at least 4 lengths, got {len(lengths)}, {len(signals)}.")
    x, y = np.asarray(lengths, dtype=float), np.asarray(signals, dtype=float)
    found = []
    for name, law in LAWS.items():
        basis = np.stack([law(x), np.ones_like(x)], axis=1)
        (slope, intercept), *_ = np.linalg.lstsq(basis, y, rcond=None)
        left = y - basis @ np.array([slope, intercept])
        found.append(Fit(name, float(slope), float(intercept), float(np.sqrt(np.mean(left**2)))))
    return tuple(sorted(found, key=lambda fit: fit.residual))
