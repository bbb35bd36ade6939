"""The running account of a computation: values, errors and statuses of all symbols, block after block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import sympy as sp

from solve.blocks import Evaluation, LoweredBlock
from solve.measured import standard_error
from solve.result import Array, Prediction, SolveError, Status, worst

__all__ = ["Ledger"]

_NEGLIGIBLE = 4 * float(np.finfo(float).eps)  # part of a value below which its error is not followed further


@dataclass
class Ledger:
    """Values and absolute errors by symbol, parameters included; statuses of unknowns; grows as blocks are done.

    `errors` are bounds on those of quadrature and of solvers; `scatter`, of what is sampled, is what a value would be
    off on each scrambling of the points, (*B, scramblings), which together are a statistical error.
    """

    values: dict[sp.Symbol, Array]
    throw: bool
    parameters: tuple[sp.Symbol, ...]
    errors: dict[sp.Symbol, Array] = field(default_factory=dict)
    scatter: dict[sp.Symbol, Array] = field(default_factory=dict)
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

    def total(self, symbol: sp.Symbol) -> Array:
        """The error of a value, with one standard error of the scatter."""
        error = self.errors[symbol]
        return error + standard_error(self.scatter[symbol]) if symbol in self.scatter else error

    def moved(self) -> dict[sp.Symbol, Array]:
        """All values, each moved by its error."""
        return {s: v + self.total(s) if s in self.errors else v for s, v in self.values.items()}

    def state(self, block: LoweredBlock) -> Array:
        """The state of a block that is done, stacked: (k, *B)."""
        if not block.state:
            return np.empty((0,))
        return np.stack(np.broadcast_arrays(*(self.values[s] for s in block.state)))

    def record(
        self,
        block: LoweredBlock,
        x: Array,
        error: Array,
        status: Status,
        residual: float,
        scatter: Array | None = None,
    ) -> None:
        """Enter the state of a block: x and error (k, *B), scatter (k, *B, scramblings).

        Raises when it failed and `throw` is set.
        """
        inherited = worst(*(self.statuses[s] for s in block.reads if s in self.statuses))
        for i, s in enumerate(block.state):
            self.values[s], self.errors[s] = np.asarray(x[i]), np.asarray(error[i])
            if scatter is not None:
                self.scatter[s] = scatter[i]
            self.statuses[s] = worst(status, inherited)
        self.residual = max(self.residual, residual)
        if status is not Status.converged:
            self.fail(block, status, residual)

    def derive(self, block: LoweredBlock) -> None:
        """Enter the unknowns of a block that follow from its state, with what the errors of all it reads do to them."""
        if not block.block.stages:
            return
        if not block.state and (block.is_sampled or block.reads & self.scatter.keys()) and self._derive_by_rules(block):
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
        scatter = self._derived_scatter(block, state, here)
        self._enter(block, here.stages, errors, scatter)

    def _enter(
        self,
        block: LoweredBlock,
        stages: Mapping[sp.Symbol, Array],
        errors: Mapping[sp.Symbol, Array],
        scatter: Mapping[sp.Symbol, Array],
    ) -> None:
        inherited = worst(*(self.statuses[s] for s in (*block.reads, *block.state) if s in self.statuses))
        for u, v in stages.items():
            self.values[u] = v
            self.errors[u] = np.where(np.isnan(errors[u]), np.inf, errors[u])
            if u in scatter:
                self.scatter[u] = np.nan_to_num(scatter[u])
            finite = bool(np.isfinite(v).all())
            self.statuses[u] = inherited if finite else worst(inherited, Status.nonfinite)
        if not all(np.isfinite(v).all() for v in stages.values()) and inherited is Status.converged:
            self.fail(block, Status.nonfinite, np.inf)

    def _derive_by_rules(self, block: LoweredBlock) -> bool:
        """`derive` by rules of derivatives in what is uncertain, for a block without a state; False if one lacks."""
        moving = tuple(sorted({*self.uncertain(block.reads), *(block.reads & self.scatter.keys())}, key=str))
        linear = block.linearised(moving)
        if linear is None:
            return False
        rows = linear.rows(self.values, np.empty((0,)))
        self.evaluations += 1
        errors, scatter = {}, {}
        for u, row in rows.items():
            slopes = dict(zip(moving, row.slope, strict=True))
            error, spread = row.error, row.scatter
            for s, slope in slopes.items():
                with np.errstate(invalid="ignore"):
                    error = error + np.abs(slope) * self.errors[s]
                if s in self.scatter:
                    spread = spread + slope[..., None] * self.scatter[s]
            errors[u] = error
            if np.any(spread):
                scatter[u] = spread
        self._enter(block, {u: r.value for u, r in rows.items()}, errors, scatter)
        return True

    def _derived_scatter(self, block: LoweredBlock, state: Array, here: Evaluation) -> dict[sp.Symbol, Array]:
        """Of the stages: their own, and that of what they read times its effect on them."""
        found = dict(here.scatter)
        for s in sorted({*block.reads, *block.state} & self.scatter.keys(), key=str):
            spread = self.scatter[s]
            step = standard_error(spread)
            if not np.any(step):
                continue
            shifted = self.values[s] + step
            other = block({**self.values, s: shifted}, self._shifted(block, state, s, shifted)).stages
            self.evaluations += 1
            for u, value in here.stages.items():
                with np.errstate(invalid="ignore", divide="ignore"):
                    change = np.asarray((other[u] - value) / step)[..., None] * spread
                found[u] = found[u] + change if u in found else change
        return found

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
        errors = {u: self.total(u) for u in found}
        return Prediction(
            values={u: self.values[u] for u in found},
            axis=axis,
            status=worst(*(self.statuses[u] for u in found)),
            residual=self.residual,
            error=max((float(np.max(e, initial=0.0)) for e in errors.values()), default=0.0),
            evaluations=self.evaluations,
            errors=errors,
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
