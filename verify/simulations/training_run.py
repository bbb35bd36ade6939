"""What is observed of a training run, whoever simulates it: overlaps at times, and the step of escape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.students import StudentKind
from derive.task import dimension
from derive.tasks.sequence_single_index import SequenceSingleIndex
from verify.simulation import AbstractSimulation, Observation, Values, checked_values

__all__ = ["ESCAPE", "ESCAPE_TIME", "AbstractTraining", "Clock"]

Array: TypeAlias = NDArray[np.float64]

ESCAPE = sp.Symbol("n_escape", positive=True)
"""The number of steps until the norm of the overlaps first reaches the threshold."""
ESCAPE_TIME = sp.Symbol("tau_escape", positive=True)
"""The same in units of tau."""


@dataclass(frozen=True)
class AbstractTraining(AbstractSimulation):
    """The task's training run, observed at `times` and until the norm of the overlaps reaches `escape`.

    times: tau = lr n/(K d), each taken at the nearest step n; the axis of the observation holds the tau of that
    step. escape: a threshold in (0, 1], which adds `ESCAPE` and `ESCAPE_TIME` (nan for a replica that took more than
    `max_steps`); the run then ends when all times are passed and all replicas have escaped.

    Raises `ValueError` for times or a threshold outside their ranges, or where nothing is to be observed.
    """

    task: SequenceSingleIndex
    times: tuple[float, ...] = ()
    escape: float | None = None
    max_steps: int = 10**7

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not self.times and self.escape is None:
            raise ValueError(f"{name} observes nothing. Give times, or a threshold for the escape.")
        if not all(0 <= t < math.inf for t in self.times):
            raise ValueError(f"{name}: times must be finite and not negative, got {self.times}.")
        if self.escape is not None and not 0 < self.escape <= 1:
            raise ValueError(f"{name}: the escape threshold lies in (0, 1], got {self.escape}.")

    def clock(self, parameters: Values, size: int) -> Clock:
        """The task's numbers at `parameters` and `size`.

        Raises `ValueError` for parameters that are not the task's, a size too small for the overlaps, or a
        learning rate that is not positive.
        """
        task, overlaps = self.task, len(self.task.overlap_symbols)
        if size < overlaps + 2:
            raise ValueError(f"{overlaps} overlaps need a size of {overlaps + 2} or more, got {size}.")
        values = checked_values(task.parameters, parameters)
        vectors = task.length if task.student.kind is StudentKind.UNTIED else 1
        clock = Clock(values, size, vectors, math.nan)
        rate = clock.number(task.learning_rate) / (vectors * size)
        if not rate > 0:
            raise ValueError(f"The learning rate {task.learning_rate} is {rate * vectors * size}; it must be positive.")
        return Clock(values, size, vectors, rate)

    def steps(self, clock: Clock) -> NDArray[np.int64]:
        """The step (n_times,) nearest to each of the times."""
        return np.rint(np.asarray(self.times, dtype=np.float64) / clock.rate).astype(np.int64)

    def observation(self, clock: Clock, overlaps: Array, escape: Array) -> Observation:
        """Of overlaps (n_times, n_replicas, n_overlaps) at the steps and escapes (n_replicas,), steps or nan."""
        symbols = self.task.overlap_symbols
        observed = {s: overlaps[:, :, k].T for k, s in enumerate(symbols)} if self.times else {}
        if self.escape is not None:
            observed[ESCAPE] = np.where(escape <= self.max_steps, escape, np.nan)
            observed[ESCAPE_TIME] = observed[ESCAPE] * clock.rate
        return Observation(np.asarray(self.steps(clock) * clock.rate, dtype=np.float64), observed)


@dataclass(frozen=True)
class Clock:
    """A task at given parameters and size; rate: lr/(K d), the time of one step of K = `vectors` weight vectors."""

    values: Values
    size: int
    vectors: int
    rate: float

    def number(self, expr: sp.Expr) -> float:
        """The value of a formula in the parameters and d."""
        known = {s: sp.Integer(self.size) for s in expr.free_symbols if s.name == dimension.name}
        value = expr.xreplace(known | {s: sp.Float(v) for s, v in self.values.items()})
        if value.free_symbols:
            raise ValueError(f"{expr} holds {value.free_symbols}, which is neither a parameter of the task nor d.")
        return float(value)

    def prepared(self, start: Mapping[sp.Symbol, sp.Expr], overlaps: tuple[sp.Symbol, ...]) -> tuple[float, ...]:
        """The overlaps at the start, 0 where none is given; raises `ValueError` outside the unit ball."""
        values = tuple(self.number(start.get(s, sp.S.Zero)) for s in overlaps)
        if math.hypot(*values) > 1 + 1e-12:  # rounding of a start on the rim
            raise ValueError(
                f"The start {dict(start)} lies outside the unit sphere: the norm is {math.hypot(*values)}."
            )
        return values
