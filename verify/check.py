"""The whole chain for one task: predictions, simulations at several sizes, verdict, negative control."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from derive.document import TaskError
from derive.equations import EquationSystem, Flow
from derive.task import Derivation, dimension
from solve.exponents import number
from solve.solution import Solution, solve_derivation
from verify.experiment import Columns, Experiment, experiment
from verify.simulation import Ensemble, replicate
from verify.statistics import compare
from verify.verdict import Comparison, Row, Tolerance, Verdict

__all__ = ["Check", "Control", "check", "check_record", "drift_times"]

_CONTROL_FACTORS = (1.05, 1.1, 1.2, 1.5, 2.0)


@dataclass(frozen=True, eq=False)
class Control:
    """A theory made wrong on purpose: the smallest change of the drift that these ensembles reject, if one does."""

    mutation: str
    comparison: Comparison


@dataclass(frozen=True, eq=False)
class Check:
    """Theory and simulation of one task, compared.

    `verdict` is the comparison's, but inconclusive where no wrong theory of the control was rejected either.
    """

    derivation: Derivation[Any]
    solution: Solution
    plan: Experiment
    ensembles: tuple[Ensemble, ...]
    predictions: tuple[Columns, ...]
    comparison: Comparison
    control: Control | None
    seconds: float

    @property
    def verdict(self) -> Verdict:
        found = self.comparison.verdict
        return Verdict.inconclusive if found is Verdict.agrees and self.control is None else found


def check(
    derivation: Derivation[Any],
    parameters: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Check:
    """Compare the derivation's overlaps (prepared start) or escape times (random start) with simulations.

    parameters: by name, over the task's own. seed: of the first replica; the others follow.
    Raises `TaskError` where a parameter has no value or the task cannot be compared.
    """
    begun = time.perf_counter()
    task = derivation.task
    solution = solve_derivation(derivation, parameters or {})
    lacking = [name for name in solution.missing if name != dimension.name]
    if lacking:
        raise TaskError(f"verify needs a value for {', '.join(lacking)}. Give it with --set NAME=VALUE.")
    plan = experiment(derivation, solution)
    values = {q.symbol: solution.parameters[q.symbol] for q in task.parameters if q.symbol != dimension}
    ensembles: list[Ensemble] = []
    simulating = time.perf_counter()
    for i, size in enumerate(task.verify.dimensions):
        left = _seconds_left(time.perf_counter() - simulating, task.verify.dimensions, i)
        progress(f"simulating {task.verify.seeds} replicas at d = {size}{left}")
        seeds = range(seed, seed + task.verify.seeds)
        ensembles.append(replicate(plan.simulation, values, size=size, seeds=seeds))
    progress(f"simulated in {time.perf_counter() - simulating:.1f} s")
    predictions = tuple(plan.predict(derivation.system, e) for e in ensembles)
    tolerance = Tolerance(float(task.verify.false_alarm))
    comparison = compare(predictions, ensembles, tolerance)
    control = _control(derivation.system, plan, ensembles, tolerance)
    seconds = time.perf_counter() - begun
    return Check(derivation, solution, plan, tuple(ensembles), predictions, comparison, control, seconds)


def _seconds_left(spent: float, sizes: Sequence[int], done: int) -> str:
    """An estimate for the sizes from `done` on: steps and the cost of a step are both proportional to the size."""
    work = [float(size) ** 2 for size in sizes]
    return f", about {spent * sum(work[done:]) / sum(work[:done]):.0f} s left" if done else ""


def drift_times(system: EquationSystem, factor: float) -> EquationSystem:
    """The system with every flow's right-hand side multiplied by `factor`."""
    scale = sp.Rational(str(factor))
    return replace(
        system, equations=tuple(replace(e, rhs=scale * e.rhs) if isinstance(e, Flow) else e for e in system.equations)
    )


def check_record(checked: Check) -> dict[str, Any]:
    """The JSON record `verify/1` without its head."""
    comparison, control = checked.comparison, checked.control
    tested = control.comparison.verdict.name if control else None
    return {
        "agrees": checked.verdict is Verdict.agrees,
        "verdict": checked.verdict.name,
        "false_alarm": comparison.tolerance.false_alarm,
        "comparisons": comparison.comparisons,
        "resolution": number(comparison.resolution),
        "rows": [_row_record(r) for r in comparison.rows],
        "negative_control": {"mutation": control.mutation if control else None, "verdict": tested},
        "seeds": list(checked.ensembles[0].seeds),
        "device": checked.ensembles[0].device,
        "seconds": checked.seconds,
    }


def _control(
    system: EquationSystem,
    plan: Experiment,
    ensembles: Sequence[Ensemble],
    tolerance: Tolerance,
) -> Control | None:
    for factor in _CONTROL_FACTORS:
        wrong = drift_times(system, factor)
        comparison = compare([plan.predict(wrong, e) for e in ensembles], ensembles, tolerance)
        if comparison.verdict is Verdict.disagrees:
            return Control(f"drift times {factor}", comparison)
    return None


def _row_record(row: Row) -> dict[str, Any]:
    return {
        "quantity": row.quantity.name,
        "at": row.at,
        "dimension": number(row.size),
        "predicted": number(row.predicted),
        "mean": number(row.mean),
        "stderr": number(row.stderr),
        "z": number(row.z),
        "effect": number(row.effect),
        "allowed": number(row.allowed),
        "agrees": row.agrees,
        "note": row.note or ("" if row.verdict else "for information: the limit of three sizes or more is tested"),
    }
