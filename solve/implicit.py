"""Solve a block of definitions and roots for its state, at one point or along a series, with its error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from solve.blocks import LoweredBlock
from solve.differences import jacobian, solve_linear
from solve.domain import Box
from solve.fixed_point import AbstractFixedPointSolver, AndersonNewton, Newton, Outcome
from solve.ledger import Ledger
from solve.linearised import LinearisedBlock
from solve.newton import Coordinates, solve_root
from solve.nodes import SCRAMBLINGS
from solve.result import Array, Status, worst
from solve.stationary import stationary_points

__all__ = ["box_of", "fixed_point_map", "solve_block"]

_NEARER = (0.1, 0.01)  # parts of the way from the end of a half-line to a start that failed: other starts
_UNSTABLE = 1e-6  # growth per step of the iteration, beyond the errors of differences
_SMALL_UNIT = 1e-3
_DEGENERATE = 1e4  # amplification of the residual's error above which the user is told


@dataclass(frozen=True, eq=False)
class _Point:
    """One solution: x, its error (k,) and scatter (k, scramblings), and whether its own iteration leaves it."""

    outcome: Outcome
    error: Array
    notes: tuple[str, ...] = ()
    unstable: bool = False
    scatter: Array | None = None


def solve_block(
    block: LoweredBlock, ledger: Ledger, solver: AbstractFixedPointSolver, start: Mapping[sp.Symbol, Array]
) -> None:
    """Enter the solution of the block; where what it reads is a series, one for each point, each from the last."""
    names = ", ".join(map(str, block.state))
    own = solver_for(block, solver)
    shape = np.broadcast_shapes(*(np.shape(ledger.values[s]) for s in block.reads if s in ledger.values))
    inside = box_of(block).inside()
    x0 = np.array([float(np.ravel(start.get(s, inside[i]))[0]) for i, s in enumerate(block.state)])
    x, error = np.empty((len(x0), *shape)), np.empty((len(x0), *shape))
    scatter = np.zeros((len(x0), *shape, SCRAMBLINGS))
    status, residual, notes = Status.converged, 0.0, dict.fromkeys(ledger.notes)
    for index in np.ndindex(shape):
        point = _solve_point(block, ledger, own, x0, index)
        x[(slice(None), *index)], error[(slice(None), *index)] = point.outcome.x, point.error
        if point.scatter is not None:
            scatter[(slice(None), *index)] = point.scatter
        if point.outcome.status is Status.converged:
            x0 = point.outcome.x
        status = worst(status, point.outcome.status)
        residual = max(residual, point.outcome.residual)
        ledger.evaluations += point.outcome.evaluations
        notes |= dict.fromkeys(f"Block ({names}): {n}" for n in point.notes)
        if point.unstable:
            ledger.unstable |= set(block.state)
    ledger.notes = list(notes)
    ledger.record(block, x, error, status, residual, scatter if scatter.any() else None)


def solver_for(block: LoweredBlock, solver: AbstractFixedPointSolver) -> AbstractFixedPointSolver:
    """Roots are for Newton: an iteration of x + rhs has no reason to contract."""
    if not block.has_roots or isinstance(solver, Newton):
        return solver
    if isinstance(solver, AndersonNewton):
        return solver.newton
    raise ValueError(
        f"Block ({', '.join(map(str, block.block.unknowns))}) has equations 0 = rhs, which "
        f"{type(solver).__name__} cannot iterate. Use Newton() or AndersonNewton()."
    )


def box_of(block: LoweredBlock) -> Box:
    """The domains of the state."""
    return Box.of([q.domain for q in block.quantities])


def fixed_point_map(block: LoweredBlock, values: Mapping[sp.Symbol, Array], x: Array) -> Array:
    """F(x) with x = F(x) at a solution: rhs for a definition, x + rhs for a root."""
    rows = block.defines.reshape(-1, *(1,) * (x.ndim - 1))
    return np.where(rows, 0.0, x) + block(values, x).rhs


def _solve_point(
    block: LoweredBlock, ledger: Ledger, solver: AbstractFixedPointSolver, x0: Array, index: tuple[int, ...]
) -> _Point:
    values = {s: _point_of(ledger.values[s], index) for s in block.reads}
    errors = {s: _point_of(ledger.errors[s], index) for s in ledger.uncertain(block.reads)}
    spread = {s: _point_of(ledger.scatter[s], (*index, slice(None))) for s in block.reads & ledger.scatter.keys()}
    box = box_of(block)
    newton = _by_rules(block, solver)
    linear = None if newton is None else block.linearised(tuple(sorted({*errors, *spread}, key=str)))
    if linear is not None and newton is not None:
        outcome = _newton(block.coarse(linear), linear, values, newton, x0, box)
        if outcome.status is not Status.converged and not block.has_roots:
            rough = block.coarse(linear) or linear
            near = solver.solve(lambda x: x + rough.residual(values, x).value, x0, box)
            nearer = _newton(None, linear, values, newton, near.x, box)
            outcome = replace(nearer, evaluations=sum(o.evaluations for o in (outcome, near, nearer)))
        if outcome.status is Status.converged:
            return _followed(linear, values, errors, spread, outcome)
        if len(x0) > 1:
            return _Point(outcome, np.full(len(x0), np.inf))
    outcome = solver.solve(lambda x: fixed_point_map(block, values, x), x0, box)
    notes: tuple[str, ...] = ()
    if outcome.status is not Status.converged and block.has_roots and len(x0) == 1:
        outcome, notes = _by_search(block, values, x0, box, outcome)
    if outcome.status is not Status.converged:
        return _Point(outcome, np.full(len(x0), outcome.error), notes)
    error, amplification, growth = _error(block, values, errors, outcome, box)
    notes += _degeneracy(amplification)
    unstable = not block.has_roots and growth > _UNSTABLE
    if unstable:
        notes += ("at a fixed point that its own iteration leaves: there is another; see fixed_points().",)
    return _Point(outcome, error, notes, unstable)


def _by_rules(block: LoweredBlock, solver: AbstractFixedPointSolver) -> Newton | None:
    """Newton's method as the solver has it, where derivatives by rule serve: for roots, and for sampled averages.

    These are costly, and derivatives give each scrambling's part of their error.
    """
    newton = solver.newton if isinstance(solver, AndersonNewton) else solver
    wanted = (block.has_roots or block.is_sampled) and isinstance(newton, Newton) and newton.jacobian is None
    return newton if wanted and isinstance(newton, Newton) else None


def _newton(
    coarse: LinearisedBlock | None,
    fine: LinearisedBlock,
    values: Mapping[sp.Symbol, Array],
    solver: Newton,
    x0: Array,
    box: Box,
) -> Outcome:
    """Newton's method with derivatives by rule; from nearer to the ends of half-lines where it fails from the start.

    coarse: the same equations, cheaper, solved first.
    """
    rough = coarse or fine
    outcome = _from(rough, values, solver, x0, box)
    evaluations = outcome.evaluations
    for part in _NEARER if outcome.status is not Status.converged else ():
        other = _from(rough, values, solver, Coordinates(box).nearer(x0, part), box)
        evaluations += other.evaluations
        if other.status is Status.converged:
            outcome = other
            break
    if rough is not fine and outcome.status is Status.converged:
        outcome = _from(fine, values, solver, outcome.x, box)
        evaluations += outcome.evaluations
    return replace(outcome, evaluations=evaluations)


def _from(linear: LinearisedBlock, values: Mapping[sp.Symbol, Array], solver: Newton, x0: Array, box: Box) -> Outcome:
    def at(x: Array) -> tuple[Array, Array]:
        here = linear.residual(values, x)
        return here.value, here.slope[:, : len(x)]

    return solve_root(at, x0, box, rtol=solver.rtol, atol=solver.atol, max_steps=solver.max_steps)


def _followed(
    linear: LinearisedBlock,
    values: Mapping[sp.Symbol, Array],
    errors: Mapping[sp.Symbol, Array],
    spread: Mapping[sp.Symbol, Array],
    outcome: Outcome,
) -> _Point:
    """The solution with what the errors and the scatter of its equations, and of what they read, do to it."""
    size = len(outcome.x)
    with np.errstate(all="ignore"):
        here = linear.residual(values, outcome.x)
    slope, outer = here.slope[:, :size], dict(zip(linear.moving[size:], here.slope[:, size:].T, strict=True))
    with np.errstate(invalid="ignore"):  # an unbounded error of what is read is one of the result
        error = here.error + np.abs(here.value) + sum((np.abs(outer[s]) * e for s, e in errors.items()), np.zeros(size))
        scatter = here.scatter + sum((outer[s][:, None] * d for s, d in spread.items()), np.zeros((size, SCRAMBLINGS)))
    error = np.where(np.isnan(error), np.inf, error)
    inverse = _inverse(slope)
    if inverse is None:
        return _Point(outcome, np.full(size, np.inf))
    bound = np.maximum(np.abs(inverse) @ error, outcome.error if not error.any() else 0.0)
    # in units of the unknowns and of each equation's largest term
    units = np.maximum(np.abs(outcome.x), _SMALL_UNIT)
    weights = np.max(np.abs(slope) * units, axis=1)
    notes = _degeneracy(_amplification(inverse * weights / units[:, None]))
    return _Point(outcome, bound, notes, scatter=-inverse @ scatter)


def _by_search(
    block: LoweredBlock, values: Mapping[sp.Symbol, Array], x0: Array, box: Box, outcome: Outcome
) -> tuple[Outcome, tuple[str, ...]]:
    """A single root in a bounded domain where Newton fails: the nearest change of sign on a grid, if any."""
    if not np.isfinite(box.diameter):
        return outcome, ()
    found = stationary_points(lambda x: block.residual(values, x), box)
    if not found:
        name, domain = block.state[0], block.quantities[0].domain
        return outcome, (f"its right-hand side does not change its sign for {name} in {domain}.",)
    best = min(found, key=lambda p: float(abs(p.at[0] - x0[0])))
    several = (f"{len(found)} solutions in its domain; the one nearest to the start is taken.",)
    better = Outcome(best.at, Status.converged, best.residual, best.error, outcome.evaluations, outcome.contraction)
    return better, several if len(found) > 1 else ()


def _error(
    block: LoweredBlock,
    values: Mapping[sp.Symbol, Array],
    errors: Mapping[sp.Symbol, Array],
    outcome: Outcome,
    box: Box,
) -> tuple[Array, float, float]:
    """|R'^-1| (|R| + the error of R) for the residual R, at least the solver's bound; the norm of |R'^-1|; growth.

    The growth is the largest real part of the eigenvalues of R' = F' - 1: above 0 no damping makes x <- F(x) stay.
    """
    x = outcome.x
    here = block.residual(values, x)
    error = np.abs(here) + np.abs(block.residual(values, x, shift=1.0) - here)
    for s, e in errors.items():
        error = error + np.abs(block.residual({**values, s: values[s] + e}, x) - here)
    with np.errstate(all="ignore"):
        slope = jacobian(lambda p: block.residual(values, p), x, box)
    inverse = _inverse(slope)
    if inverse is None:
        return np.full(len(x), np.inf), np.inf, 0.0
    propagated = np.abs(inverse) @ error
    largest = float(np.max(propagated))
    if outcome.error > largest > 0:
        propagated = propagated * (outcome.error / largest)
    propagated = np.maximum(propagated, outcome.error if largest == 0 else 0.0)
    return propagated, _amplification(inverse), float(np.max(np.linalg.eigvals(slope).real))


def _inverse(slope: Array) -> Array | None:
    """None where the matrix is singular."""
    inverse = np.stack([solve_linear(slope, unit) for unit in np.eye(len(slope))], axis=1)
    regular = np.isfinite(inverse).all() and np.allclose(slope @ inverse, np.eye(len(slope)), atol=1e-3)
    return inverse if regular else None


def _amplification(inverse: Array) -> float:
    return float(np.max(np.abs(inverse).sum(axis=1)))


def _degeneracy(amplification: float) -> tuple[str, ...]:
    if amplification <= _DEGENERATE:
        return ()
    return (
        f"nearly degenerate, errors of its equations are amplified {amplification:.1e} times: the solution is "
        "about to be lost or to meet another.",
    )


def _point_of(value: Array, index: tuple[Any, ...]) -> NDArray[np.float64]:
    """The entry of a value that broadcasts to the shape of the series."""
    value = np.asarray(value)
    own = index[len(index) - value.ndim :]
    return np.asarray(value[tuple(i if n > 1 else 0 for i, n in zip(own, value.shape, strict=True))])
