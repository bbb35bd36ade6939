"""The whole chain for one task: predictions, simulations at several sizes, verdict, negative control."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from derive.document import TaskError
from derive.equations import Equation, EquationSystem, Flow
from derive.task import Derivation, dimension
from solve.exponents import number
from solve.solution import Solution, solve_derivation
from verify.distance import compare_laws
from verify.experiment import Columns, Experiment, experiment
from verify.simulation import AbstractSimulation, Ensemble, replicate
from verify.statistics import compare, compare_ensembles
from verify.verdict import Comparison, Row, Tolerance, Verdict

__all__ = ["Check", "Control", "check", "check_record", "drift_times"]

_CONTROL_FACTORS = (1.05, 1.1, 1.2, 1.5, 2.0)
_REFERENCES = 16  # replicas of the simulation of equal law for each of the other: they cost next to nothing
_ENOUGH_SIZES = 3  # for an extrapolation in 1/d


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
    simulate = _Simulate(values, task.verify.dimensions, seed, task.verify.seeds, progress)
    ensembles = simulate(plan.simulation)
    references = () if plan.reference is None else simulate(plan.reference(1.0), _REFERENCES)
    predictions = tuple(plan.predict(derivation.system, e) for e in ensembles)
    tolerance = Tolerance(float(task.verify.false_alarm))
    # what is tested together shares the false-alarm rate: theory, laws, means
    share = tolerance if not references else tolerance.share(2 if len(ensembles) >= _ENOUGH_SIZES else 3)
    rows = [*compare(predictions, ensembles, share).rows, *_against(ensembles, references, share)]
    comparison = Comparison(tuple(rows), tolerance)
    control = _control(derivation.system, plan, ensembles, simulate, share)
    seconds = time.perf_counter() - begun
    return Check(derivation, solution, plan, ensembles, predictions, comparison, control, seconds)


@dataclass(frozen=True)
class _Simulate:
    """Ensembles of a simulation at all the sizes."""

    values: Mapping[sp.Symbol, float]
    sizes: tuple[int, ...]
    seed: int
    seeds: int
    progress: Callable[[str], None]

    def __call__(self, simulation: AbstractSimulation, times: int = 1) -> tuple[Ensemble, ...]:
        begun, found, seeds = time.perf_counter(), [], range(self.seed, self.seed + times * self.seeds)
        for i, size in enumerate(self.sizes):
            left = self._seconds_left(simulation, time.perf_counter() - begun, i)
            self.progress(f"simulating {len(seeds)} replicas at d = {size}{left}")
            found.append(replicate(simulation, self.values, size=size, seeds=seeds))
        self.progress(f"simulated in {time.perf_counter() - begun:.1f} s")
        return tuple(found)

    def _seconds_left(self, simulation: AbstractSimulation, spent: float, done: int) -> str:
        work = [simulation.work(size) for size in self.sizes]
        return f", about {spent * sum(work[done:]) / sum(work[:done]):.0f} s left" if done else ""


def _against(ensembles: Sequence[Ensemble], references: Sequence[Ensemble], tolerance: Tolerance) -> tuple[Row, ...]:
    """The simulation against one of equal law, where there is one: laws, and means where theory has too few sizes."""
    if not references:
        return ()
    laws = compare_laws(ensembles, references, tolerance).rows
    return laws if len(ensembles) >= _ENOUGH_SIZES else laws + compare_ensembles(ensembles, references, tolerance).rows


def drift_times(system: EquationSystem, factor: float, only: sp.Symbol | None = None) -> EquationSystem:
    """The system with the right-hand side of every flow, or of that of one unknown, multiplied by `factor`."""
    scale = sp.Rational(str(factor))

    def changed(e: Equation) -> Equation:
        wanted = isinstance(e, Flow) and (only is None or e.unknown.symbol == only)
        return replace(e, rhs=scale * e.rhs) if wanted else e

    return replace(system, equations=tuple(map(changed, system.equations)))


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
    system: EquationSystem, plan: Experiment, ensembles: Sequence[Ensemble], simulate: _Simulate, tolerance: Tolerance
) -> Control | None:
    for factor in _CONTROL_FACTORS:
        mutation, columns = _mutated(system, plan, ensembles, factor)
        comparison = compare(columns, ensembles, tolerance)
        if comparison.verdict is Verdict.disagrees:
            return Control(mutation, comparison)
    if plan.reference is None or len(ensembles) >= _ENOUGH_SIZES:
        return None
    return _simulated_control(plan.reference, ensembles, simulate, tolerance)


def _mutated(
    system: EquationSystem, plan: Experiment, ensembles: Sequence[Ensemble], factor: float
) -> tuple[str, list[Columns]]:
    """A wrong theory, in words and in columns."""
    if plan.moved is not None:
        return f"{plan.moved_name} times {factor}", [plan.moved(factor)] * len(ensembles)
    wrong = drift_times(system, factor, plan.wrong)
    name = f"drift{f' of {plan.wrong}' if plan.wrong else ''} times {factor}"
    return name, [plan.predict(wrong, e) for e in ensembles]


def _simulated_control(
    reference: Callable[[float], AbstractSimulation],
    ensembles: Sequence[Ensemble],
    simulate: _Simulate,
    tolerance: Tolerance,
) -> Control | None:
    """A simulation of another law than these ensembles', where they are too few to test a theory."""
    for factor in _CONTROL_FACTORS:
        wrong = simulate(reference(factor), _REFERENCES)
        at_the_same_steps = [replace(w, axis=e.axis) for w, e in zip(wrong, ensembles, strict=True)]
        comparison = compare_ensembles(ensembles, at_the_same_steps, tolerance)
        if comparison.verdict is Verdict.disagrees:
            return Control(f"projected simulation with the learning rate times {factor}", comparison)
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
