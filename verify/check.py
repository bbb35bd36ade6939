"""The whole chain for one task: predictions, simulations at several sizes, verdict, negative control."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.document import TaskError
from derive.equations import EquationSystem, Flow
from derive.exponent import Exponent, Trapped
from derive.task import Derivation
from derive.tasks.sequence_single_index import SequenceSingleIndex, Start, dimension
from solve.compiled import compile_system
from solve.escape import mean_escape_time
from solve.exponents import number
from solve.solution import Solution, solve_derivation
from verify.simulation import Ensemble, replicate
from verify.simulations.sequence_single_index import ESCAPE, SphericalSGD
from verify.statistics import compare
from verify.verdict import Comparison, Row, Tolerance, Verdict

__all__ = ["Check", "Control", "check", "check_record", "drift_times"]

_CONTROL_FACTORS = (1.05, 1.1, 1.2, 1.5, 2.0)
_MOST_TIMES = 5

Values = Mapping[sp.Symbol, float]
Columns = Mapping[sp.Symbol, NDArray[np.float64]]


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
    simulation = _simulation(derivation)
    values = {q.symbol: solution.parameters[q.symbol] for q in task.parameters}
    ensembles = []
    for size in task.verify.dimensions:
        progress(f"simulating {task.verify.seeds} replicas at d = {size}")
        seeds = range(seed, seed + task.verify.seeds)
        ensembles.append(replicate(simulation, values, size=size, seeds=seeds))
        progress(f"  done after {time.perf_counter() - begun:.1f} s")
    predict = _predictor(derivation, values)
    predictions = tuple(predict(derivation.system, e) for e in ensembles)
    tolerance = Tolerance(float(task.verify.false_alarm))
    comparison = compare(predictions, ensembles, tolerance)
    control = _control(derivation.system, predict, ensembles, tolerance)
    seconds = time.perf_counter() - begun
    return Check(derivation, solution, tuple(ensembles), predictions, comparison, control, seconds)


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


def _simulation(derivation: Derivation[Any]) -> SphericalSGD:
    task: SequenceSingleIndex = derivation.task
    if not isinstance(task.start, Start):
        return SphericalSGD(task, times=_chosen_times(task))
    exponent: Exponent = derivation.exponents["sie"]
    if len(task.overlaps) > 1 or exponent.value not in (1, 2) or exponent.trapped is not Trapped.NO:
        raise TaskError(
            "training.start is random: that is compared for one overlap and exponent 1 or 2, where every run escapes. "
            "Give the overlaps at the start, e.g. start = { m = 1/10 }."
        )
    return SphericalSGD(task, escape=float(task.solve.escape))


def _chosen_times(task: SequenceSingleIndex) -> tuple[float, ...]:
    """At most five times of the grid, the last included: more would share the false-alarm rate for nothing."""
    times = [t for t in task.solve.times.points() if t > 0]
    places = np.unique(np.linspace(0, len(times) - 1, min(_MOST_TIMES, len(times))).round().astype(int))
    return tuple(times[i] for i in places)


def _predictor(derivation: Derivation[Any], values: Values) -> Callable[[EquationSystem, Ensemble], Columns]:
    task: SequenceSingleIndex = derivation.task

    def at_size(system: EquationSystem, size: int) -> dict[sp.Symbol, float]:
        known = {**values, dimension: float(size)}
        return {q.symbol: known[q.symbol] for q in system.parameters if q.symbol in known}

    def series(system: EquationSystem, ensemble: Ensemble) -> Columns:
        found = compile_system(system).integrate(at_size(system, ensemble.size), ensemble.axis)
        return {s: found[s] for s in task.overlap_symbols}

    def escape(system: EquationSystem, ensemble: Ensemble) -> Columns:
        own = at_size(system, ensemble.size)
        here = solve_derivation(derivation, {s.name: v for s, v in {**values, dimension: ensemble.size}.items()})
        spread = _law(here, "start_overlap")
        time_ = mean_escape_time(compile_system(system), own, spread, float(task.solve.escape))
        clock = task.clock.xreplace({s: sp.Float(v) for s, v in {**values, dimension: ensemble.size}.items()})
        return {ESCAPE: np.asarray(time_ * float(clock))}

    return escape if isinstance(task.start, Start) else series


def _law(solution: Solution, name: str) -> float:
    laws = solution.laws
    found = {} if laws is None else {s.name: float(v) for s, v in laws.values.items()}
    if not np.isfinite(found.get(name, np.nan)):
        raise TaskError(f"The law of {name} has no finite value at these parameters: does the start escape at all?")
    return found[name]


def _control(
    system: EquationSystem,
    predict: Callable[[EquationSystem, Ensemble], Columns],
    ensembles: Sequence[Ensemble],
    tolerance: Tolerance,
) -> Control | None:
    for factor in _CONTROL_FACTORS:
        wrong = drift_times(system, factor)
        comparison = compare([predict(wrong, e) for e in ensembles], ensembles, tolerance)
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
        "note": row.note,
    }
