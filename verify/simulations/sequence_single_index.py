"""What theory and simulation of a sequence single-index model are compared in, and by which simulation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.document import TaskError
from derive.equations import Equation, EquationSystem
from derive.exponent import Trapped
from derive.settings import Method
from derive.task import Derivation, dimension
from derive.tasks.sequence_single_index import SequenceSingleIndex, Start
from solve.basin import Basins
from solve.compiled import compile_system
from solve.escape import mean_escape_time
from solve.solution import Solution, solve_derivation
from solve.transitions import SEMANTIC, end_basins, start_noise, start_spread
from verify.experiment import Columns, Experiment
from verify.simulation import Ensemble, Values
from verify.simulations.direct_sgd import SphericalSGD
from verify.simulations.ends import SEMANTIC_END, Ends
from verify.simulations.projected_sgd import ProjectedSGD
from verify.simulations.training_run import ESCAPE, ESCAPE_TIME

__all__ = ["ESCAPE", "ESCAPE_TIME", "LARGEST_DIRECT", "ProjectedSGD", "SphericalSGD", "experiment"]

Array: TypeAlias = NDArray[np.float64]

LARGEST_DIRECT = 100_000
"""The largest dimension of a direct simulation: steps and the cost of a step grow with it."""

_LONGEST_SERIES = 5
_SETTLING = 10.0


@dataclass(frozen=True)
class _Plan:
    """What is observed of the training run, whatever simulates it."""

    task: SequenceSingleIndex
    times: tuple[float, ...] = ()
    escape: float | None = None

    def direct(self) -> SphericalSGD:
        return SphericalSGD(self.task, self.times, self.escape)

    def projected(self, factor: float = 1.0) -> ProjectedSGD:
        """With the learning rate times `factor`, after the same steps."""
        scale = sp.Rational(str(factor))
        task = replace(self.task, learning_rate=scale * self.task.learning_rate)
        return ProjectedSGD(task, tuple(t * factor for t in self.times), self.escape)


def experiment(derivation: Derivation[SequenceSingleIndex], solution: Solution) -> Experiment:
    """Overlaps at up to five times from a prepared start; else the mean number of steps to escape.

    Simulated as the task's [verify] method says. Raises `TaskError` for a random start from which not every run
    escapes by a law that is known, and for dimensions that the method does not take.
    """
    task = derivation.task
    _check_dimensions(task)
    values = {q.symbol: solution.parameters[q.symbol] for q in task.parameters if q.symbol != dimension}
    if task.start is Start.RANDOM and task.landscape is not None:
        return _of_ends(derivation, solution, values)
    plan = _plan(derivation)
    method = task.verify.method
    return Experiment(
        plan.projected() if method is Method.PROJECTED else plan.direct(),
        _predictor(derivation, values),
        "time tau = learning rate x steps / dimension",
        "overlap",
        plan.projected if method is Method.BOTH else None,
    )


def _of_ends(derivation: Derivation[SequenceSingleIndex], solution: Solution, values: Values) -> Experiment:
    """P(semantic) from random starts, observed long after the escape."""
    task = derivation.task
    found = solution.transitions.basins
    if found is None or not np.isfinite(found.kappa):
        reason = solution.transitions.reasons.get(SEMANTIC, "every start ends on the same side")
        raise TaskError(f"training.start is random: P(semantic) is what is compared, and here {reason}.")
    noise = start_noise(task, values)

    @functools.lru_cache(maxsize=8)
    def basins_of(equations: tuple[Equation, ...]) -> Basins:
        return end_basins(EquationSystem(equations, derivation.system.parameters), task, values)

    def predict(system: EquationSystem, ensemble: Ensemble) -> Columns:
        basins = basins_of(system.equations)
        spread = start_spread(task, basins.growth, {**values, dimension: float(ensemble.size)}, noise)
        return {SEMANTIC_END: np.asarray(basins.semantic(spread))}

    # from 1/sqrt(d) the slower overlap needs log(sqrt(d))/growth; four times that, and the approach to the end
    until = (2 * np.log(max(task.verify.dimensions)) + _SETTLING) / min(found.growth)
    plan = _Plan(task, times=(float(until),))
    projected = task.verify.method is Method.PROJECTED

    def reference(factor: float) -> Ends:
        return Ends(plan.projected(factor))

    return Experiment(
        Ends(plan.projected() if projected else plan.direct()),
        predict,
        "P(semantic)",
        "probability",
        reference if task.verify.method is Method.BOTH else None,
        task.overlap_symbols[0],
    )


def _check_dimensions(task: SequenceSingleIndex) -> None:
    dimensions, needed = task.verify.dimensions, len(task.overlaps) + 2
    if min(dimensions) < needed:
        raise TaskError(
            f"verify.dimensions: {min(dimensions)} is too small; {needed - 2} overlaps need {needed} or more."
        )
    if task.verify.method is not Method.PROJECTED and max(dimensions) > LARGEST_DIRECT:
        raise TaskError(
            f'verify.dimensions: {max(dimensions)} is too large for verify.method = "{task.verify.method.value}", '
            f'which moves all weights and takes {LARGEST_DIRECT} at most. Set verify.method = "projected", or lower it.'
        )


def _plan(derivation: Derivation[SequenceSingleIndex]) -> _Plan:
    task = derivation.task
    if not isinstance(task.start, Start):
        return _Plan(task, times=_chosen_times(task))
    exponent = derivation.exponents["sie"]
    if len(task.overlaps) > 1 or exponent.value not in (1, 2) or exponent.trapped is not Trapped.NO:
        raise TaskError(
            "training.start is random: that is compared for one overlap and exponent 1 or 2, where every run escapes. "
            "Give the overlaps at the start, e.g. start = { m = 1/10 }."
        )
    return _Plan(task, escape=float(task.solve.escape))


def _chosen_times(task: SequenceSingleIndex) -> tuple[float, ...]:
    """At most five times of the grid, the last included: more would share the false-alarm rate for nothing."""
    times = [t for t in task.solve.times.points() if t > 0]
    places = np.unique(np.linspace(0, len(times) - 1, min(_LONGEST_SERIES, len(times))).round().astype(int))
    return tuple(times[i] for i in places)


def _predictor(
    derivation: Derivation[SequenceSingleIndex], values: Values
) -> Callable[[EquationSystem, Ensemble], Columns]:
    task = derivation.task

    def at_size(system: EquationSystem, size: int) -> dict[sp.Symbol, float]:
        known = {**values, dimension: float(size)}
        return {q.symbol: known[q.symbol] for q in system.parameters if q.symbol in known}

    def series(system: EquationSystem, ensemble: Ensemble) -> Columns:
        found = (
            compile_system(system)
            .restricted(task.overlap_symbols)
            .integrate(at_size(system, ensemble.size), _axis(ensemble))
        )
        return {s: found[s] for s in task.overlap_symbols}

    def escape(system: EquationSystem, ensemble: Ensemble) -> Columns:
        known = {**values, dimension: float(ensemble.size)}
        spread = _start_spread(derivation, known)
        compiled = compile_system(system).restricted(task.overlap_symbols)
        mean = mean_escape_time(compiled, at_size(system, ensemble.size), spread, float(task.solve.escape))
        return {ESCAPE_TIME: np.asarray(mean)}

    return escape if isinstance(task.start, Start) else series


def _axis(ensemble: Ensemble) -> Array:
    assert ensemble.axis is not None
    return ensemble.axis


def _start_spread(derivation: Derivation[SequenceSingleIndex], values: Values) -> float:
    """The spread of the overlap from which the escape starts, by its law, noise of the first steps included."""
    laws = solve_derivation(derivation, {s.name: v for s, v in values.items()}).laws
    found = {} if laws is None else {s.name: float(v) for s, v in laws.values.items()}
    if not np.isfinite(found.get("start_overlap", np.nan)):
        raise TaskError("The start's escape has no finite law at these parameters: is it unstable at all?")
    return found["start_overlap"]
