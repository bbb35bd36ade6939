"""Theory and simulation of one task along a parameter: curves, and every simulated number tested together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.document import TaskError
from derive.task import Derivation
from solve.compiled import compile_system
from solve.result import Status
from solve.solution import given_values, solve_derivation
from solve.static import StaticSolver, accuracy_of
from verify.experiment import experiment
from verify.simulation import Ensemble, replicate
from verify.statistics import Comparison, Row, Tolerance, compare

__all__ = ["Curve", "along", "table"]

Array = NDArray[np.float64]
_SILENT: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, eq=False)
class Curve:
    """One task along `parameter`.

    grid, theory: the predicted curves, (n_grid,), at the points, too. ensembles: one for each dimension, rising, with
    the simulated points as their axis. comparison: of all numbers, against the limit extrapolated from three dimensions
    or more.
    """

    name: str
    parameter: sp.Symbol
    grid: Array
    theory: Mapping[sp.Symbol, Array]
    ensembles: tuple[Ensemble, ...]
    comparison: Comparison

    @property
    def rows(self) -> tuple[Row, ...]:
        """What was tested."""
        return self.comparison.tested


def along(
    derivation: Derivation[Any],
    parameter: str,
    grid: Sequence[float],
    points: Sequence[float],
    *,
    quantities: Sequence[str],
    dimensions: Sequence[int] | None = None,
    seeds: int | None = None,
    name: str = "",
    tolerance: Tolerance | None = None,
    progress: Callable[[str], None] = _SILENT,
) -> Curve:
    """Solve a task without flows on `grid`, simulate it at `points`, and compare `quantities`.

    dimensions, seeds: those of the task's [verify] where not given; replicas of different points are independent.
    tolerance: of all rows of this curve together; the task's own if None. Each point is compared at the parameter's
    own value: a ratio n/d is to be a multiple of 1/d at every dimension. Raises `TaskError` for what is not there.
    """
    task = derivation.task
    sizes = tuple(sorted(dimensions or task.verify.dimensions))
    count = seeds or task.verify.seeds
    values = given_values(derivation, {})
    symbol = next((s for s in values if s.name == parameter), None)
    if symbol is None:
        raise TaskError(f"along: {parameter} is no parameter; there are {', '.join(sorted(s.name for s in values))}.")
    solver = StaticSolver(derivation, compile_system(derivation.system, accuracy_of(task)))
    line = sorted({*map(float, grid), *map(float, points)})
    theory = _solved(solver, symbol, values, line, quantities)
    predicted = {s: v[[line.index(x) for x in points]] for s, v in theory.items()}
    simulation = experiment(derivation, solve_derivation(derivation)).simulation
    ensembles = []
    for size in sizes:
        parts = []
        for i, x in enumerate(points):
            progress(f"{name}: {parameter} = {x:g}, d = {size}")
            own = range(i * count, (i + 1) * count)
            parts.append(replicate(simulation, {**values, symbol: x}, size=size, seeds=own))
        columns = {q: np.stack([p[q] for p in parts], axis=1) for q in predicted}
        ensembles.append(Ensemble(size, tuple(range(count)), np.asarray(points, dtype=float), columns))
    comparison = compare([predicted] * len(sizes), ensembles, tolerance or Tolerance(float(task.verify.false_alarm)))
    return Curve(name, symbol, np.array(line), theory, tuple(ensembles), comparison)


def _solved(
    solver: StaticSolver,
    symbol: sp.Symbol,
    values: Mapping[sp.Symbol, float],
    at: Sequence[float],
    quantities: Sequence[str],
) -> dict[sp.Symbol, Array]:
    """The quantities at these values of one parameter, each sought from the last unless the task has nearer starts."""
    wanted = [solver.main.system.symbol(q) for q in quantities]
    found, start = [], None
    for x in at:
        prediction = solver.solve({**values, symbol: float(x)}, start)
        if prediction.status is Status.converged and solver.proxy is None:
            start = {s: float(prediction[s]) for s in solver.main.iterated}
        found.append([float(prediction[s]) for s in wanted])
    return dict(zip(wanted, np.array(found).T, strict=True))


def table(curves: Sequence[Curve]) -> str:
    """The tested numbers of all curves as a Markdown table; no z where simulation and theory differ by rounding."""
    lines = [
        "| curve | quantity | at | theory | simulation | stderr | z | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for curve in curves:
        for r in curve.rows:
            z = f"{r.z:+.2f}" if abs(r.mean - r.predicted) > r.rounding else ""
            numbers = " | ".join(f"{v:.4g}" for v in (r.at or 0.0, r.predicted, r.mean, r.stderr))
            verdict = "" if r.verdict is None else r.verdict.name
            lines.append(f"| {curve.name} | {r.quantity} | {numbers} | {z} | {verdict} |")
    return "\n".join(lines)
