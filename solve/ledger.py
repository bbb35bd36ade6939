"""The running account of a computation: values, errors and statuses of all symbols, block after block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import sympy as sp

from solve.blocks import LoweredBlock
from solve.result import Array, Prediction, SolveError, Status, worst

__all__ = ["Ledger"]

_NEGLIGIBLE = 4 * float(np.finfo(float).eps)  # part of a value below which its error is not followed further


@dataclass
class Ledger:
    """Values and absolute errors by symbol, parameters included; statuses of unknowns; grows as blocks are done."""

    values: dict[sp.Symbol, Array]
    throw: bool
    parameters: tuple[sp.Symbol, ...]
    errors: dict[sp.Symbol, Array] = field(default_factory=dict)
    statuses: dict[sp.Symbol, Status] = field(default_factory=dict)
    unstable: set[sp.Symbol] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    residual: float = 0.0
    evaluations: int = 0

    def uncertain(self, symbols: Iterable[sp.Symbol]) -> list[sp.Symbol]:
        """Those whose errors matter further on."""
        return [
            s
            for s in sorted(symbols, key=str)
            if s in self.errors and np.any(self.errors[s] > _NEGLIGIBLE * np.abs(self.values[s]))
        ]

    def moved(self) -> dict[sp.Symbol, Array]:
        """All values, each moved by its error."""
        return {s: v + self.errors[s] if s in self.errors else v for s, v in self.values.items()}

    def state(self, block: LoweredBlock) -> Array:
        """The state of a block that is done, stacked: (k, *B)."""
        if not block.state:
            return np.empty((0,))
        return np.stack(np.broadcast_arrays(*(self.values[s] for s in block.state)))

    def record(self, block: LoweredBlock, x: Array, error: Array, status: Status, residual: float) -> None:
        """Enter the state of a block: x and error (k, *B); raises when it failed and `throw` is set."""
        inherited = worst(*(self.statuses[s] for s in block.reads if s in self.statuses))
        for i, s in enumerate(block.state):
            self.values[s], self.errors[s] = np.asarray(x[i]), np.asarray(error[i])
            self.statuses[s] = worst(status, inherited)
        self.residual = max(self.residual, residual)
        if status is not Status.converged:
            self.fail(block, status, residual)

    def derive(self, block: LoweredBlock) -> None:
        """Enter the unknowns of a block that follow from its state, with what the errors of all it reads do to them."""
        if not block.block.stages:
            return
        state = self.state(block)
        here = block(self.values, state)
        self.evaluations += 1
        errors = dict(here.stage_errors)
        if state.size:  # stages may read each other: follow their errors through
            through = block(self.values, state, shift=1.0).stages
            errors = {s: np.maximum(e, np.abs(through[s] - here.stages[s])) for s, e in errors.items()}
        for s in self.uncertain({*block.reads, *block.state}):
            shifted = self.values[s] + self.errors[s]
            other = block({**self.values, s: shifted}, self._shifted(block, state, s, shifted)).stages
            with np.errstate(invalid="ignore"):
                errors = {u: e + np.abs(other[u] - here.stages[u]) for u, e in errors.items()}
        inherited = worst(*(self.statuses[s] for s in (*block.reads, *block.state) if s in self.statuses))
        for u, v in here.stages.items():
            self.values[u] = v
            self.errors[u] = np.where(np.isnan(errors[u]), np.inf, errors[u])
            finite = bool(np.isfinite(v).all())
            self.statuses[u] = inherited if finite else worst(inherited, Status.nonfinite)
        if not all(np.isfinite(v).all() for v in here.stages.values()) and inherited is Status.converged:
            self.fail(block, Status.nonfinite, np.inf)

    def fail(self, block: LoweredBlock, status: Status, residual: float) -> None:
        """Raise `SolveError` if `throw` is set."""
        if not self.throw:
            return
        names = ", ".join(map(str, block.block.unknowns))
        at = ", ".join(f"{s}: {_short(self.values[s])}" for s in self.parameters if s in self.values)
        notes = "".join(f" {n}" for n in self.notes)
        raise SolveError(
            f"Block ({names}) at {{{at}}}: {status.value} Last residual {residual:.2e}.{notes}",
            status,
            residual,
        )

    def prediction(self, unknowns: Sequence[sp.Symbol], axis: Array | None = None) -> Prediction:
        """What was found for these unknowns, those that were reached."""
        found = [u for u in unknowns if u in self.values]
        return Prediction(
            values={u: self.values[u] for u in found},
            axis=axis,
            status=worst(*(self.statuses[u] for u in found)),
            residual=self.residual,
            error=max((float(np.max(self.errors[u], initial=0.0)) for u in found), default=0.0),
            evaluations=self.evaluations,
            errors={u: self.errors[u] for u in found},
            statuses={u: self.statuses[u] for u in found},
            unstable=frozenset(self.unstable),
            notes=tuple(self.notes),
        )

    @staticmethod
    def _shifted(block: LoweredBlock, state: Array, symbol: sp.Symbol, value: Array) -> Array:
        if symbol not in block.state:
            return state
        state = state.copy()
        state[block.state.index(symbol)] = value
        return state


def _short(value: Array) -> str:
    return f"{value:.6g}" if value.ndim == 0 else np.array2string(value, precision=4, threshold=6)
