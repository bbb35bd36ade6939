"""The one loop of all fixed-point solvers: follow proposed steps until an error bound, or a failure, ends it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from solve.differences import NOISE_WAY, noise
from solve.domain import Box
from solve.result import Array, Status

__all__ = ["Goal", "Map", "Outcome", "follow"]

Map: TypeAlias = Callable[[Array], Array]
Proposal: TypeAlias = Callable[[Array, Array], Array]  # (x, F(x) - x) -> the step to take from x

_EPS = float(np.finfo(float).eps)
_ROUNDING = 64 * _EPS  # a residual below this part of x is a rounding error
_SMALL = 1e-6  # part of x, or of the largest residual seen, that the residual of a solution may be
_ABOVE_NOISE = 10
_RUNAWAY = 1e12  # growth of the iterate that counts as divergence
_LONGEST_CYCLE = 8
_PATIENCE = 50  # steps at rounding level, or against the edge of the domain, before giving up
_HALVINGS = 30


@dataclass(frozen=True)
class Goal:
    """Stop when the error of every x_i is below atol + rtol |x_i|, or after max_steps."""

    rtol: float
    atol: float
    max_steps: int

    def __post_init__(self) -> None:
        if self.rtol < 0 or self.atol < 0 or self.rtol + self.atol == 0 or self.max_steps < 1:
            raise ValueError(f"rtol or atol must be positive and max_steps at least 1, got {self}.")

    def allowed(self, x: Array) -> Array:
        """The error allowed in each x_i."""
        return self.atol + self.rtol * np.abs(x) + np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class Outcome:
    """x: (n,), how the run ended, residual max|F(x) - x|, the error bound of x, and the number of calls of F.

    contraction: ratio of successive steps of the iteration (nan when it took none), for Newton the spectral radius
    of F'; near 1 the solution is nearly degenerate. error: max over i of (|step_i| + rounding)/(1 - ratio of steps),
    inf where that means nothing, plus what the noise of F, seen in its third differences, does to x. It is sharp
    for one dominant direction; where several spiral in, the true error may be twice as large.
    """

    x: Array
    status: Status
    residual: float
    error: float
    evaluations: int
    contraction: float


def follow(
    F: Map, x0: ArrayLike, domain: Box | None, proposal: Proposal, goal: Goal, *, descend: bool = False
) -> Outcome:
    """Iterate x <- x + proposal(x, F(x) - x); steps are shortened to stay in the domain and where F is finite.

    descend: a step is also halved until it lowers the residual. Raises `ValueError` for a start outside the
    domain or an F that changes the shape.
    """
    x = _start(x0, domain)
    residual = _Residual(F)
    r = residual(x)
    trace = _Trace(goal, x, quadratic=descend)
    status = None if np.isfinite(r).all() else Status.nonfinite
    for _ in range(goal.max_steps):
        if status is not None:
            break
        step = proposal(x, r)
        status = trace.judge(x, r, step)
        if status is None:
            allowed = domain.shorten(x, step) if domain else step
            status = trace.press(step, allowed)
        if status is None:
            x, r, status = _advance(residual, x, r, allowed, goal if descend else None)
    status = status or Status.max_steps
    if status is Status.converged and domain and domain.excludes(x, trace.error):
        status = Status.diverges
    error = trace.error if status in (Status.converged, Status.max_steps) else np.inf
    if status is Status.converged:
        error += _effect_of_noise(residual, x, r, domain, float(error))
    largest = float(np.max(np.abs(r), initial=0.0))
    return Outcome(x, status, largest, float(error), residual.calls, float(trace.contraction))


def cycle(iterates: list[Array], goal: Goal) -> int | None:
    """The period, 2 to 8, with which the last iterates (n,) repeat to nine digits, or None."""
    last = iterates[-1]
    for period in range(2, min(_LONGEST_CYCLE, (len(iterates) - 1) // 2) + 1):
        amplitude = max(float(np.max(np.abs(last - iterates[-1 - j]))) for j in range(1, period))
        drift = max(float(np.max(np.abs(iterates[-1 - j] - iterates[-1 - j - period]))) for j in range(period))
        if amplitude > 1e3 * float(np.max(goal.allowed(last))) and drift <= 1e-9 * amplitude:
            return period
    return None


class _Residual:
    """x -> F(x) - x, counting the calls; inf and nan are looked for by the caller."""

    def __init__(self, F: Map) -> None:
        self.F = F
        self.calls = 0

    def __call__(self, x: Array) -> Array:
        self.calls += 1
        with np.errstate(all="ignore"):
            y = np.asarray(self.F(x), dtype=float)
        if y.shape != x.shape:
            raise ValueError(f"F must keep the shape of x: it turned {x.shape} into {y.shape}.")
        return y - x


class _Trace:
    """What the past of a run says about the error of its present."""

    def __init__(self, goal: Goal, x0: Array, quadratic: bool) -> None:
        self.goal, self.quadratic = goal, quadratic
        self.size0 = float(np.max(np.abs(x0), initial=1.0))
        self.xs: deque[Array] = deque(maxlen=2 * _LONGEST_CYCLE + 1)
        self.steps: deque[Array] = deque(maxlen=5)
        self.bounds: deque[float] = deque(maxlen=_LONGEST_CYCLE)
        self.contraction = np.nan
        self.error = np.inf
        self.largest = 0.0
        self.count = self.waiting = self.pressed = 0

    def judge(self, x: Array, r: Array, step: Array) -> Status | None:
        """The status in which the run ends at x, with residual r and this next step; None: go on."""
        self.count += 1
        self.xs.append(x)
        self.steps.append(step)
        if not np.isfinite(step).all():
            return Status.nonfinite
        if np.max(np.abs(x), initial=0.0) > _RUNAWAY * self.size0:
            return Status.diverges
        allowed = self.goal.allowed(x)
        at_rounding = _at_rounding(x, r)
        if len(self.steps) > 1 and not (at_rounding and self.contraction < 1):
            self.contraction = self._contraction(allowed)
        if not at_rounding and not step.any():
            return Status.max_steps
        bound = self._bound(self._typical(step) + 2 * _EPS * np.abs(x), at_rounding)
        self.error = float(np.max(bound, initial=0.0))
        self.largest = max(self.largest, float(np.max(np.abs(r), initial=0.0)))
        if np.all(bound <= allowed) and self._is_small(x, r):
            return Status.converged
        self.waiting = self.waiting + 1 if at_rounding else 0
        if self.waiting > _PATIENCE:
            return Status.max_steps
        looks_back = self.count % _LONGEST_CYCLE == 0
        return Status.oscillates if looks_back and cycle(list(self.xs), self.goal) else None

    def press(self, step: Array, shortened: Array) -> Status | None:
        """`diverges` when the domain leaves nothing of the steps, again and again."""
        if np.max(np.abs(shortened)) >= 1e-12 * np.max(np.abs(step)):
            self.pressed = 0
            return None
        self.pressed += 1
        return Status.diverges if self.pressed > _PATIENCE or not shortened.any() else None

    def _is_small(self, x: Array, r: Array) -> bool:
        """Next to a singularity of F the steps vanish but the residual does not: that is no solution."""
        beside_x = np.all(np.abs(r) <= _SMALL * (np.abs(x) + self.goal.atol))
        return bool(beside_x or np.max(np.abs(r)) <= _SMALL * self.largest)

    def _contraction(self, allowed: Array) -> float:
        sizes = [float(np.max(np.abs(s) / allowed)) for s in self.steps]
        if sizes[-2] == 0 or sizes[0] == 0:
            return 0.0 if sizes[-1] == 0 else np.inf
        mean = float(np.power(sizes[-1] / sizes[0], 1 / (len(sizes) - 1)))
        return max(sizes[-1] / sizes[-2], mean)

    def _typical(self, step: Array) -> Array:
        """|step|, or what the steps before it led to expect where it is small by chance, as in a spiral."""
        size = np.abs(step)
        if self.quadratic or not self.contraction < 1 or not step.any():
            return size
        for age, past in enumerate(reversed(self.steps)):
            size = np.maximum(size, np.abs(past) * self.contraction**age)
        return size

    def _bound(self, step: Array, at_rounding: bool) -> Array:
        """step/(1 - c), times the order p of a fixed point that is approached like k^(-1/(p-1)), where c -> 1."""
        if not self.contraction < 1:
            return step if at_rounding else np.full_like(step, np.inf)
        bound = step / (1 - self.contraction)
        self.bounds.append(float(np.max(bound, initial=0.0)))
        if self.contraction > 0.9 and len(self.bounds) == _LONGEST_CYCLE:
            # the bounds of the past should have shrunk by the way travelled since; p-fold roots do 1/p of it
            travelled = float(np.max(np.abs(self.xs[-1] - self.xs[-_LONGEST_CYCLE])))
            shrunk = self.bounds[0] - self.bounds[-1]
            bound = bound * (min(max(travelled / shrunk, 1.0), 10.0) if shrunk > 0 else 10.0)
        return bound


def _effect_of_noise(residual: _Residual, x: Array, r: Array, domain: Box | None, error: float) -> float:
    """The noise of F over the slope of F(x) - x."""
    inside = domain is None or bool(domain.contains(x * (1 + NOISE_WAY)))
    way = NOISE_WAY if inside else -NOISE_WAY
    each, last = noise(residual, x, r, way)
    level = float(np.max(each, initial=0.0))
    if level == 0 or not np.isfinite(level):
        return 0.0
    rise = float(np.max(np.abs(last - r)))
    visible = rise > _ABOVE_NOISE * level
    while rise <= _ABOVE_NOISE * level and abs(way) < 1e3:  # so far on, F(x) - x cannot be told from its noise
        way *= 10
        if domain and not domain.contains(x * (1 + way)):
            break
        rise = float(np.max(np.abs(residual(x * (1 + way)) - r)))
    effect = abs(way) * float(np.max(np.abs(x))) * (level / rise if visible else 1.0)
    largest = float(np.max(np.abs(r)))
    return max(effect, level * error / largest) if largest > _ABOVE_NOISE * level else effect


def _advance(
    residual: _Residual, x: Array, r: Array, step: Array, goal: Goal | None
) -> tuple[Array, Array, Status | None]:
    """The largest x + step/2^k where F is finite and, with a goal, the residual smaller."""
    finite = False
    for _ in range(_HALVINGS):
        moved = x + step
        new = residual(moved)
        if np.isfinite(new).all():
            finite = True
            if goal is None or _at_rounding(moved, new) or _length(new, x, goal) < _length(r, x, goal):
                return moved, new, None
        step = step / 2
    return x, r, Status.max_steps if finite else Status.nonfinite


def _length(r: Array, x: Array, goal: Goal) -> float:
    return float(np.linalg.norm(r / goal.allowed(x)))


def _at_rounding(x: Array, r: Array) -> bool:
    return bool(np.all(np.abs(r) <= _ROUNDING * np.abs(x)))


def _start(x0: ArrayLike, domain: Box | None) -> Array:
    x = np.array(x0, dtype=float)
    if x.ndim != 1:
        raise ValueError(f"x0 must be a vector (n,), got shape {x.shape}.")
    if domain and not domain.contains(x):
        raise ValueError(f"x0 = {x} lies outside its domain, from {domain.low} to {domain.high}.")
    return x
