"""An equation system as numbers: walk its blocks in order and solve, integrate or iterate them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike

from derive.equations import EquationSystem
from solve.blocks import LoweredBlock
from solve.domain import AbstractRegion, Box
from solve.fixed_point import AbstractFixedPointSolver, AndersonNewton, all_fixed_points
from solve.flow import Escape, escape_time, flow_fixed_points, rests
from solve.given import Given, by_symbol, parameter_values
from solve.implicit import box_of, fixed_point_map, solve_block
from solve.integrator import AbstractIntegrator, DormandPrince, Rate
from solve.iterated import iterate_block
from solve.ledger import Ledger
from solve.motion import Motion, start_of
from solve.plan import Plan, subsystem
from solve.quadrature import Accuracy
from solve.result import Array, Prediction
from solve.stationary import FixedPoint

__all__ = ["CompiledSystem", "compile_system"]

_SOLVER = AndersonNewton()
_INTEGRATOR = DormandPrince()


def compile_system(system: EquationSystem, accuracy: Accuracy | None = None) -> CompiledSystem:
    """The system with its blocks ready to be evaluated; each is compiled when first needed."""
    wanted = accuracy or Accuracy()
    return CompiledSystem(system, wanted, tuple(LoweredBlock(b, wanted) for b in system.blocks()))


@dataclass(frozen=True, eq=False)
class CompiledSystem:
    """The blocks of `system`, in an order in which they can be solved.

    Parameters are given by symbol or name; those with a default may be left out. A value may be an array: all
    that are broadcast to one shape B, over which unknowns are evaluated together (implicit blocks one point after
    the other, each from the last). Wrong or missing names and values outside their domains raise `ValueError`.
    Pickles as the equations, and is compiled again where it is opened.
    """

    system: EquationSystem
    accuracy: Accuracy
    blocks: tuple[LoweredBlock, ...]

    def __reduce__(self) -> tuple[Callable[..., CompiledSystem], tuple[Any, ...]]:
        return compile_system, (self.system, self.accuracy)

    @functools.cached_property
    def _plan(self) -> Plan:
        return Plan(self.system, self.blocks)

    @property
    def flow_unknowns(self) -> tuple[sp.Symbol, ...]:
        """The unknowns of flows, in the order of the components of `rate`."""
        return self._plan.motion.unknowns

    @property
    def iterated(self) -> frozenset[sp.Symbol]:
        """The unknowns that have a start: of flows, and of blocks that have to be solved."""
        return frozenset(s for b in self.blocks for s in b.state)

    @property
    def is_explicit(self) -> bool:
        """Whether every unknown is a formula of parameters and of unknowns before it."""
        return not self.iterated

    def needs(self, *unknowns: sp.Symbol) -> frozenset[sp.Symbol]:
        """The parameters without which these unknowns (all if none are named) cannot be computed."""
        return self._plan.parameters(unknowns or self.system.unknowns)

    def restricted(self, unknowns: Iterable[sp.Symbol]) -> CompiledSystem:
        """The part of the system that determines these unknowns: their equations and those they need."""
        return compile_system(subsystem(self.system, unknowns), self.accuracy)

    def solve(
        self,
        parameters: Given,
        *,
        solver: AbstractFixedPointSolver = _SOLVER,
        start: Given | None = None,
        throw: bool = True,
    ) -> Prediction:
        """The unknowns that do not depend on a flow: explicit ones evaluated, x = F(x) and 0 = g(x) solved.

        start: first iterates, by symbol or name; else those of the system, else the middle of the domain. Raises
        `SolveError` for what does not converge; with throw=False its status, and that of what reads it, says so.
        """
        if not self._plan.static:
            raise ValueError("Every unknown depends on a flow: use integrate().")
        ledger, starts = self._begin("solve", parameters, self._plan.static, start, throw=throw)
        self._walk(self._plan.static, ledger, solver, starts)
        return ledger.prediction(self.system.unknowns)

    def integrate(
        self,
        parameters: Given,
        times: ArrayLike,
        *,
        start: Given | None = None,
        integrator: AbstractIntegrator = _INTEGRATOR,
        solver: AbstractFixedPointSolver = _SOLVER,
        throw: bool = True,
    ) -> Prediction:
        """The flows from their start at time 0, at `times`: (n_times, *B), what they need, and what reads them.

        start: numbers or arrays, or expressions of the parameters; else that of the system. A start that is a
        fixed point is stated in `notes`. Raises `SolveError` when the flow ends before the last time.
        """
        motion = self._plan.motion
        if not motion.unknowns:
            raise ValueError("The system has no flow: use solve() or iterate().")
        before, after = self._plan.before, self._plan.after
        ledger, starts = self._begin("integrate", parameters, before + motion.blocks + after, start, throw=throw)
        self._walk(before, ledger, solver, starts)
        x0 = self._flow_start(ledger, starts)
        rate, perturbed = _rates(motion, ledger)
        moves = self._moves(ledger, rate, perturbed, x0)
        found = integrator.integrate(lambda x: rate(x) * moves, x0, times, lambda x: perturbed(x) * moves)
        ledger.evaluations += found.evaluations
        for block in motion.blocks:
            rows = [motion.unknowns.index(s) for s in block.state]
            if rows:
                x, error = (np.moveaxis(a[:, rows], 1, 0) for a in (found.x, found.error))
                ledger.record(block, x, error, found.status, 0.0)
        self._note_domains(ledger)
        for block in motion.blocks:
            ledger.derive(block)
        self._walk(after, ledger, solver, starts)
        return ledger.prediction(self.system.unknowns, found.times)

    def iterate(self, parameters: Given, steps: int, *, start: Given | None = None) -> Prediction:
        """x <- F(x) without damping, `steps` times from the start: (steps + 1,), the start first.

        Only the state of each block of definitions is iterated; the rest of it, and what reads it, follows at
        every step. The status says what the last steps look like; an iterate is what it is whatever they do.
        """
        if steps < 1:
            raise ValueError(f"iterate() needs at least one step, got {steps}.")
        if not self._plan.static:
            raise ValueError("Every unknown depends on a flow: use integrate().")
        ledger, starts = self._begin("iterate", parameters, self._plan.static, start, throw=False)
        for block in self._plan.static:
            if block.state and not block.has_roots:
                own = start_of(block.quantities, starts, ledger, needed=False)
                iterate_block(block, ledger, steps, own)
                ledger.derive(block)
            else:
                self._walk((block,), ledger, _SOLVER, starts)
        return ledger.prediction(self.system.unknowns, np.arange(steps + 1.0))

    def rate(self, parameters: Given, *, start: Given | None = None) -> tuple[Rate, Rate, Array]:
        """The rate of the flow, (n, *B) -> (n, *B), the same moved by its quadrature error, and the start (n, *B)."""
        ledger, starts = self._begin("rate", parameters, self._plan.before + self._plan.motion.blocks, start)
        self._walk(self._plan.before, ledger, _SOLVER, starts)
        return (*_rates(self._plan.motion, ledger), self._flow_start(ledger, starts))

    def escape_time(
        self,
        parameters: Given,
        threshold: float,
        *,
        of: Iterable[sp.Symbol] | None = None,
        start: Given | None = None,
        integrator: AbstractIntegrator = _INTEGRATOR,
    ) -> Escape:
        """When the Euclidean norm of the flow's unknowns `of` (all if None) first reaches the threshold."""
        rate, perturbed, x0 = self.rate(parameters, start=start)
        chosen = tuple(self.flow_unknowns if of is None else of)
        rows = [self.flow_unknowns.index(s) for s in chosen]
        return escape_time(
            rate,
            x0,
            threshold,
            lambda x: float(np.linalg.norm(x[rows])),
            integrator=integrator,
            perturbed=perturbed,
        )

    def fixed_points(
        self, parameters: Given, region: AbstractRegion | None = None, *, points: int = 400
    ) -> tuple[FixedPoint, ...]:
        """Every fixed point of the flow, or of the one block of definitions, in the region (else the domains).

        Components as in `flow_unknowns`, or in the `state` of that block, for which the region is a `Box`.
        """
        if self._plan.motion.unknowns:
            ledger, starts = self._begin(
                "fixed_points", parameters, self._plan.before, None, others=self._plan.motion.blocks
            )
            self._walk(self._plan.before, ledger, _SOLVER, starts)
            box = region or Box.of([q.domain for q in self._plan.motion.quantities])
            return flow_fixed_points(_rates(self._plan.motion, ledger)[0], box, points=points)
        block, above = self._plan.only_map()
        ledger, starts = self._begin("fixed_points", parameters, above, None, others=(block,))
        self._walk(above, ledger, _SOLVER, starts)
        box = region or box_of(block)
        if not isinstance(box, Box):
            raise ValueError(f"The fixed points of a map are looked for in a Box, got {region}.")
        return all_fixed_points(lambda x: fixed_point_map(block, ledger.values, x), box.low, box.high, points=points)

    # -------------------------------------------------------------------------------------------- the walk

    def _begin(
        self,
        verb: str,
        given: Given,
        blocks: tuple[LoweredBlock, ...],
        start: Given | None,
        *,
        others: tuple[LoweredBlock, ...] = (),
        throw: bool = True,
    ) -> tuple[Ledger, dict[sp.Symbol, Any]]:
        """A ledger with the parameters that the blocks (with their starts) and `others` (without) need, and starts."""
        starts = {**self.system.start, **by_symbol(start, self.iterated, "start")}
        parameters = tuple(p.symbol for p in self.system.parameters)
        needed = set().union(*(b.reads for b in blocks + others))
        for s in {s for b in blocks for s in b.state} & starts.keys():
            needed |= starts[s].free_symbols if isinstance(starts[s], sp.Basic) else set()
        values = parameter_values(given, self.system.parameters, needed & set(parameters), verb)
        return Ledger(values, throw, parameters), starts

    def _walk(
        self,
        blocks: tuple[LoweredBlock, ...],
        ledger: Ledger,
        solver: AbstractFixedPointSolver,
        starts: dict[sp.Symbol, Any],
    ) -> None:
        for block in blocks:
            if block.state:
                own = start_of(block.quantities, starts, ledger, needed=False)
                solve_block(block, ledger, solver, own)
            ledger.derive(block)

    def _flow_start(self, ledger: Ledger, starts: dict[sp.Symbol, Any]) -> Array:
        own = start_of(self._plan.motion.quantities, starts, ledger, needed=True)
        # what reads the flow later is evaluated along it: an array there gives the flow the same axis
        read = set().union(*(b.reads for b in (*self._plan.motion.blocks, *self._plan.after)))
        shape = np.broadcast_shapes(*(np.shape(v) for s, v in ledger.values.items() if s in read))
        shape = np.broadcast_shapes(shape, *(v.shape for v in own.values()))
        return np.stack([np.broadcast_to(own[s], shape) for s in self._plan.motion.unknowns])

    def _moves(self, ledger: Ledger, rate: Rate, perturbed: Rate, x0: Array) -> Array:
        """1 where a start moves, 0 where it is a fixed point: (*B); the latter is noted, and held against rounding."""
        with np.errstate(all="ignore"):
            still = rests(rate, x0, np.abs(perturbed(x0) - rate(x0)))
        if still.any():
            which = "The start" if still.size == 1 else f"The start of {still.sum()} of {still.size} trajectories"
            names = ", ".join(map(str, self._plan.motion.unknowns))
            ledger.notes.append(f"{which} ({names}) is a fixed point of the flow: nothing moves from there.")
        return np.where(still, 0.0, 1.0)

    def _note_domains(self, ledger: Ledger) -> None:
        for q in self._plan.motion.quantities:
            x, slack, box = ledger.values[q.symbol], 1e-9 + ledger.errors[q.symbol], Box.of([q.domain])
            if np.any((x < box.low - slack) | (x > box.high + slack)):
                ledger.notes.append(f"{q.symbol} leaves its domain {q.domain} along the flow.")


def _rates(motion: Motion, ledger: Ledger) -> tuple[Rate, Rate]:
    values, moved = dict(ledger.values), ledger.moved()
    return (lambda x: motion.rate(values, x), lambda x: motion.rate(moved, x, shift=1.0))
