"""What a solver returns: numbers with their status, residual and error, never numbers alone."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

__all__ = ["Array", "Prediction", "SolveError", "Status"]

Array: TypeAlias = NDArray[np.float64]


class Status(enum.Enum):
    """How a computation ended: the name is the word of the JSON output, the value a sentence for a person."""

    converged = "The result is within its stated error."
    max_steps = (
        "The solver used all its steps, or came to the accuracy it can reach, before its error bound met the "
        "tolerance. Start closer, raise max_steps, or loosen rtol; a contraction near 1 means that the "
        "solution is about to be lost or to split, and that its error is much larger than the last step."
    )
    nonfinite = "The equations gave inf or nan. Check the parameters and the domains, or start elsewhere."
    diverges = "The iterates grow without bound or press against the end of their domain. There may be no solution."
    oscillates = "The iterates repeat in a cycle and do not converge. Use a smaller damping weight, or Newton."


_WORST_FIRST = (Status.nonfinite, Status.diverges, Status.oscillates, Status.max_steps, Status.converged)


def worst(*statuses: Status) -> Status:
    """The status of the whole, given those of its parts."""
    return min(statuses, key=_WORST_FIRST.index, default=Status.converged)


class SolveError(RuntimeError):
    """A computation did not converge. The message names the block, the parameters and the last residual."""

    def __init__(self, message: str, status: Status = Status.max_steps, residual: float = float("nan")) -> None:
        RuntimeError.__init__(self, message, status, residual)
        self.message = message
        self.status = status
        self.residual = residual

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, eq=False)
class Prediction:
    """Values of the unknowns by symbol: () for a solution, (n_times, *B) for a flow or an iteration.

    axis: the times or the iteration numbers. residual: the largest |F(x) - x| of the blocks solved; for a flow
    0. error: the largest of `errors`, the estimated absolute errors of each unknown (quadrature, solver and the
    effect of the errors of what it reads). statuses: one per unknown; an unknown that reads one that did not
    converge has its status. unstable: the unknowns solved for at a fixed point that their own undamped or damped
    iteration leaves, so that there is another. notes: what a reader must know (a start that is a fixed point, say).
    """

    values: Mapping[sp.Symbol, Array]
    axis: Array | None
    status: Status
    residual: float
    error: float
    evaluations: int
    errors: Mapping[sp.Symbol, Array] = field(default_factory=dict)
    statuses: Mapping[sp.Symbol, Status] = field(default_factory=dict)
    unstable: frozenset[sp.Symbol] = frozenset()
    notes: tuple[str, ...] = ()

    def __getitem__(self, unknown: sp.Symbol) -> Array:
        if unknown not in self.values:
            raise KeyError(f"No value of {unknown} here; there are {', '.join(map(str, self.values))}.")
        return self.values[unknown]
