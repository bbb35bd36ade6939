"""What is observed of one trained classifier or regression, and the experiment that compares it with theory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp
import torch
from torch import Tensor

from derive.equations import EquationSystem
from derive.task import Derivation, dimension
from solve.compiled import compile_system
from solve.solution import Solution
from solve.static import StaticSolver, accuracy_of
from verify.erm import Minimum
from verify.experiment import Columns, Experiment
from verify.loss import LoweredLoss
from verify.simulation import AbstractSimulation, Ensemble, Observation, Values

__all__ = ["Fresh", "Replica", "observed", "one_by_one", "static_experiment"]

Replica = Mapping[str, float]
_VANISHING = 1e-9


def one_by_one(
    generators: Sequence[torch.Generator], simulate: Callable[[torch.Generator], Replica], names: Sequence[str]
) -> Observation:
    """The observation of replicas that are simulated one after the other; `names` are kept, as real symbols."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # problems are small, and threads that wait for each other cost more than they bring
    try:
        found = [simulate(g) for g in generators]
    finally:
        torch.set_num_threads(threads)
    columns = {sp.Symbol(n, real=True): np.array([f[n] for f in found]) for n in names if n in found[0]}
    return Observation(None, columns)


class Fresh:
    """Fresh samples, seen by a student: the outputs' means (m,), their standard deviations, the labels.

    The output is normal given these; its sign and its loss are averaged over that law.
    """

    def __init__(self, mean: Tensor, spread: Tensor, labels: Tensor) -> None:
        self.mean, self.spread, self.labels = mean, spread, labels

    def error(self) -> float:
        """P(y u < 0)."""
        z = -self.labels * self.mean / self.spread
        return float(torch.special.ndtr(z).mean())

    def loss(self, loss: LoweredLoss, generator: torch.Generator) -> float:
        """E loss(y, u), with one draw of the output for each sample."""
        noise = torch.randn(self.mean.shape, generator=generator, dtype=torch.float64, device=self.mean.device)
        return float(loss.value(self.labels, self.mean + self.spread * noise).mean())


def observed(
    found: Minimum, labels: Tensor, loss: LoweredLoss, fresh: Fresh, generator: torch.Generator, *, binary: bool
) -> dict[str, float]:
    """Losses and errors of a trained student, by the names of the theory."""
    values = {
        "training_loss": float(loss.value(labels, found.outputs).mean()),
        "objective": found.objective,
        "test_loss": fresh.loss(loss, generator),
    }
    if binary:
        values["training_error"] = float((labels * found.outputs < 0).double().mean())
        values["test_error"] = fresh.error()
    return values


def static_experiment(
    derivation: Derivation[Any], solution: Solution, simulation: AbstractSimulation, moved: str, names: Sequence[str]
) -> Experiment:
    """Theory of `names` that does not depend on the dimension; the control moves the parameter `moved`.

    Raises `TaskError` where the solution has no prediction.
    """
    task = derivation.task
    values = {q.symbol: solution.parameters[q.symbol] for q in task.parameters if q.symbol != dimension}

    def predicted(system: EquationSystem, at: Values) -> Columns:
        compiled = compile_system(system, accuracy_of(task))
        same = system.equations == derivation.system.equations
        found = StaticSolver(derivation, compiled).solve(at) if same else compiled.solve(at)
        by_name = {s.name: v for s, v in found.values.items()}
        return {sp.Symbol(n, real=True): np.asarray(by_name[n]) for n in names if n in by_name}

    found = predicted(derivation.system, values)
    # what vanishes by a symmetry has no scale against which a finite-size bias could be judged
    first = {s: v for s, v in found.items() if np.all(np.abs(v) > _VANISHING)}

    def predict(system: EquationSystem, _: Ensemble) -> Columns:
        return first if system is derivation.system else _of(predicted(system, values), first)

    def at_factor(factor: float) -> Columns:
        symbol = derivation.system.symbol(moved)
        return _of(predicted(derivation.system, {**values, symbol: factor * values[symbol]}), first)

    return Experiment(simulation, predict, "", "value", moved=at_factor, moved_name=moved)


def _of(columns: Columns, wanted: Columns) -> Columns:
    return {s: columns[s] for s in wanted}
