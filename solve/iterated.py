"""Follow the iteration of a block of definitions, undamped, as the trajectory it is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import sympy as sp

from solve.blocks import LoweredBlock
from solve.implicit import box_of
from solve.iteration import Goal, cycle
from solve.ledger import Ledger
from solve.result import Array, Status

__all__ = ["iterate_block"]

_GOAL = Goal(rtol=1e-10, atol=1e-12, max_steps=1)


def iterate_block(block: LoweredBlock, ledger: Ledger, steps: int, start: Mapping[sp.Symbol, Array]) -> None:
    """Enter x_0 .. x_steps with x_(t+1) = F(x_t), where what F reads may itself be a series in t.

    Its error is the distance to an iteration in which every number is moved by its own error.
    """
    inside = box_of(block).inside()
    x0 = np.array([float(start.get(s, inside[i])) for i, s in enumerate(block.state)])
    values = {s: ledger.values[s] for s in block.reads}
    x = _trajectory(block, values, x0, steps, 0.0)
    moved = ledger.moved()
    other = _trajectory(block, {s: moved[s] for s in block.reads}, x0, steps, 1.0)
    ledger.evaluations += 2 * steps
    with np.errstate(invalid="ignore"):
        error, last = np.abs(x - other), float(np.max(np.abs(x[:, -1] - x[:, -2])))
    ledger.record(block, x, np.where(np.isnan(error), np.inf, error), _status(x), last)


def _trajectory(block: LoweredBlock, values: Mapping[sp.Symbol, Array], x0: Array, steps: int, shift: float) -> Array:
    x = np.empty((len(x0), steps + 1))
    x[:, 0] = x0
    for t in range(steps):
        now = {s: v[t] if np.ndim(v) else v for s, v in values.items()}
        x[:, t + 1] = block(now, x[:, t], shift).rhs
    return x


def _status(x: Array) -> Status:
    if not np.isfinite(x).all():
        return Status.nonfinite
    if cycle(list(x.T), _GOAL):
        return Status.oscillates
    steps = np.max(np.abs(np.diff(x, axis=1)) / _GOAL.allowed(x[:, -1:]), axis=0)
    contraction = steps[-1] / steps[-2] if len(steps) > 1 and steps[-2] > 0 else 0.0
    settled = steps[-1] == 0 or (contraction < 1 and steps[-1] * contraction <= 1 - contraction)
    return Status.converged if settled else Status.max_steps
