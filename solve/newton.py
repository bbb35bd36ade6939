"""Newton's method for R(x) = 0 with a given derivative, in logarithms of unknowns on a half-line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solve.differences import solve_linear
from solve.domain import Box
from solve.iteration import Outcome
from solve.result import Array, Status

__all__ = ["Coordinates", "solve_root"]

_EPS = float(np.finfo(float).eps)
_HALVINGS = 12
_LONGEST = 2.0  # change of a logarithm in one step
_FAR = 36.0  # of a logarithm: 4e15
_RUNAWAY = 10.0  # a step, in units of the unknowns, that is far from any solution; growing again and again
_RISES = 6
_LOST = 1e3  # the same of a step of which no part lowers the residual
_SOLVED = 1e-6  # part of a residual that a linear solution may leave; a singular derivative leaves more
_STALLED = 1e-5  # the step, of which the rest is rounding, when it no longer falls
_SMALL = 1e-2  # the least part of the largest unknown against which a change of another is measured


@dataclass(frozen=True, eq=False)
class Coordinates:
    """y = log(x - low) where the domain is (low, oo), y = x elsewhere."""

    box: Box

    @property
    def logarithmic(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = np.isfinite(self.box.low) & self.box.low_open & np.isposinf(self.box.high)
        return found

    def of(self, x: Array) -> Array:
        """y of x: (n,)."""
        far = self.logarithmic
        return np.where(far, np.log(np.where(far, x - self.box.low, 1.0)), x)

    def back(self, y: Array) -> Array:
        """x of y: (n,)."""
        far = self.logarithmic
        return np.where(far, np.where(far, self.box.low, 0.0) + np.exp(np.where(far, y, 0.0)), y)

    def rate(self, x: Array) -> Array:
        """dx/dy: (n,)."""
        far = self.logarithmic
        return np.where(far, x - np.where(far, self.box.low, 0.0), 1.0)

    def nearer(self, x: Array, part: float) -> Array:
        """x with only that part of its way from the end of its half-line, where it lives on one."""
        far = self.logarithmic
        low = np.where(far, self.box.low, 0.0)
        return np.where(far, low + part * (x - low), x)

    def shorten(self, y: Array, step: Array) -> Array:
        """The part of a step for which no logarithm changes by much, inside the domains of the others."""
        far = self.logarithmic
        longest = float(np.max(np.abs(step[far]), initial=0.0))
        step = step * min(1.0, _LONGEST / longest) if longest > 0 else step
        free = np.where(far, -np.inf, self.box.low), np.where(far, np.inf, self.box.high)
        other = Box(*free, self.box.low_open & ~far, self.box.high_open & ~far)
        return other.shorten(y, step)


Linear = Callable[[Array], tuple[Array, Array]]  # x -> R(x): (n,), dR/dx: (n, n)


def solve_root(linear: Linear, x0: Array, box: Box, *, rtol: float, atol: float, max_steps: int) -> Outcome:
    """The solution of R(x) = 0 from x0: (n,), inside the box.

    A step is halved until it lowers the Newton step of the old derivative, which no scaling of the equations changes
    [Deuflhard, Newton Methods for Nonlinear Problems, section 3.1]. Converged: the next step is below atol + rtol |x|,
    or is at rounding and no longer falls; `error` is its size. `diverges`: a logarithm runs to infinity, or steps that
    are large already grow one after the other, or such a one leads nowhere.
    """
    coordinates = Coordinates(box)
    run = _Run(coordinates, linear, rtol, atol)
    y = coordinates.of(np.asarray(x0, dtype=float))
    status = run.start(y)
    for _ in range(max_steps):
        if status is not None:
            break
        status = run.advance()
    return run.outcome(status or Status.max_steps)


class _Run:
    """The iterate y with R and its derivative in y there, and the Newton step."""

    def __init__(self, coordinates: Coordinates, linear: Linear, rtol: float, atol: float) -> None:
        self.coordinates, self.linear, self.rtol, self.atol = coordinates, linear, rtol, atol
        self.evaluations = 0
        self.size = np.inf
        self.rises = 0
        self.error = np.inf

    def start(self, y: Array) -> Status | None:
        self.y = y
        self.residual, self.slope = self._evaluate(y)
        if not (np.isfinite(self.residual).all() and np.isfinite(self.slope).all()):
            return Status.nonfinite
        return self._judged()

    def advance(self) -> Status | None:
        """One damped step; the status where it ends the run."""
        size = self.size
        way = self.coordinates.shorten(self.y, self.step)
        if not way.any() and self.step.any():
            return Status.diverges
        part = self._size(way) / size
        for _ in range(_HALVINGS):
            y = self.y + way
            residual, slope = self._evaluate(y)
            finite = bool(np.isfinite(residual).all() and np.isfinite(slope).all())
            if finite and self._size(self._solved(residual)) <= (1 - part / 4) * size:
                self.y, self.residual, self.slope = y, residual, slope
                return self._judged()
            if finite and size <= _STALLED:  # at rounding: no step lowers the residual
                return Status.converged
            way, part = way / 2, part / 2
        return Status.diverges if size > _LOST else Status.max_steps

    def _judged(self) -> Status | None:
        self.step = self._solved(self.residual)
        if not np.isfinite(self.step).all():
            return Status.nonfinite
        x = self.coordinates.back(self.y)
        way = np.abs(self.step * self.coordinates.rate(x))
        self.error = float(np.max(way + 2 * _EPS * np.abs(x), initial=0.0))
        if np.all(way <= self.atol + self.rtol * np.abs(x)):
            left = np.linalg.norm(self.slope @ self.step + self.residual)
            return Status.converged if left <= _SOLVED * np.linalg.norm(self.residual) else Status.max_steps
        before, self.size = self.size, self._size(self.step)
        self.rises = self.rises + 1 if self.size > max(before, _RUNAWAY) else 0
        far = np.any(np.abs(self.y[self.coordinates.logarithmic]) > _FAR)
        return Status.diverges if far or self.rises >= _RISES else None

    def outcome(self, status: Status) -> Outcome:
        x = self.coordinates.back(self.y)
        largest = float(np.max(np.abs(self.residual), initial=0.0))
        return Outcome(x, status, largest, float(self.error), self.evaluations, np.nan)

    def _evaluate(self, y: Array) -> tuple[Array, Array]:
        self.evaluations += 1
        x = self.coordinates.back(y)
        with np.errstate(all="ignore"):
            residual, slope = self.linear(x)
            return residual, slope * self.coordinates.rate(x)

    def _solved(self, residual: Array) -> Array:
        rows = np.max(np.abs(self.slope), axis=1)
        rows = np.where(rows > 0, rows, 1.0)
        return -solve_linear(self.slope / rows[:, None], residual / rows)

    def _size(self, step: Array) -> float:
        """Changes of logarithms, and of the others in units of themselves or of the largest of them."""
        plain = ~self.coordinates.logarithmic
        largest = float(np.max(np.abs(self.y[plain]), initial=0.0))
        unit = np.where(plain, np.abs(self.y) + _SMALL * max(largest, 1.0), 1.0)
        return float(np.max(np.abs(step) / unit, initial=0.0))
