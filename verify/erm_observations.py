"""What is observed of one trained classifier or regression, and the experiment that compares it with theory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
import torch
from torch import Tensor

from derive.document import TaskError
from derive.equations import EquationSystem
from derive.task import Derivation, dimension
from solve.compiled import compile_system
from solve.result import Prediction
from solve.solution import Solution
from solve.static import StaticSolver, accuracy_of
from verify.erm import Minimum
from verify.experiment import Columns, Experiment
from verify.loss import LoweredLoss
from verify.simulation import AbstractSimulation, Ensemble, Observation, Values, value_of

__all__ = ["Fresh", "Replica", "observed", "one_by_one", "static_experiment"]

Replica = Mapping[str, float]
_VANISHING = 1e-9
_FEW = 20  # events whose number is about normal
_AT_REST = 1e-7  # an output on a kink at 0 is so up to the minimiser's gap, and no error


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
        values["training_error"] = float((labels * found.outputs < -_AT_REST).double().mean())
        values["test_error"] = fresh.error()
    return values


@dataclass(frozen=True, eq=False)
class _Theory:
    """The columns `names` of a derivation at `values`; ratios: see `static_experiment`."""

    derivation: Derivation[Any]
    values: Values
    names: Sequence[str]
    ratios: Sequence[sp.Expr]

    @cached_property
    def right(self) -> Prediction:
        """The solution itself."""
        return self._solver.solve(self.values)

    @cached_property
    def _solver(self) -> StaticSolver:
        task = self.derivation.task
        return StaticSolver(self.derivation, compile_system(self.derivation.system, accuracy_of(task)))

    @cached_property
    def _compared(self) -> tuple[str, ...]:
        """All names but a share of the training samples of which all replicas are not likely to hold a few."""
        verify = self.derivation.task.verify
        samples = min((value_of(f, self.values) for f in self.ratios), default=1.0)
        least = _FEW / (samples * min(verify.dimensions) * verify.seeds)
        shares = {s.name: float(v) for s, v in self.right.values.items() if s.name == "training_error"}
        rare = {n for n, share in shares.items() if _VANISHING < share < least}
        return tuple(n for n in self.names if n not in rare)

    def predict(self, system: EquationSystem, ensemble: Ensemble) -> Columns:
        """Of this system at the ensemble's own numbers of samples; a wrong one is solved next to the right one."""
        ratios = [s for s in self.ratios if s in self.values]
        at = {**self.values, **{s: round(self.values[s] * ensemble.size) / ensemble.size for s in ratios}}
        if system.equations == self.derivation.system.equations:
            return self._columns(self._solution(at))
        compiled = compile_system(system, accuracy_of(self.derivation.task))
        return self._columns(compiled.solve(at, start={s: float(self.right[s]) for s in compiled.iterated}))

    def moved(self, symbol: sp.Symbol, factor: float) -> Columns:
        """With that parameter times a factor."""
        return self._columns(self._solution({**self.values, symbol: factor * self.values[symbol]}))

    def _solution(self, at: Values) -> Prediction:
        return self.right if at == self.values else self._solver.solve(at)

    def _columns(self, found: Prediction) -> Columns:
        by_name = {s.name: np.asarray(v) for s, v in found.values.items()}
        # what is 0 by a symmetry is so exactly: rounding is no scale against which a bias could be judged
        return {
            sp.Symbol(n, real=True): np.where(np.abs(by_name[n]) > _VANISHING, by_name[n], 0.0)
            for n in self._compared
            if n in by_name
        }


def static_experiment(
    derivation: Derivation[Any],
    solution: Solution,
    simulation: AbstractSimulation,
    names: Sequence[str],
    ratios: Sequence[sp.Expr],
    moved_first: Sequence[sp.Expr] = (),
) -> Experiment:
    """Theory of `names` against a simulation without an axis.

    ratios: the formulas n/d of the numbers of samples; one that is a parameter is rounded at each size as n is. The
    negative control moves a parameter of `moved_first`, else of the ratios, else any.
    Raises `TaskError` where no parameter can be moved.
    """
    parameters = derivation.task.parameters
    values = {q.symbol: solution.parameters[q.symbol] for q in parameters if q.symbol != dimension}
    moved = _moved(derivation.system, values, (*moved_first, *ratios))
    theory = _Theory(derivation, values, names, ratios)
    return Experiment(
        simulation,
        theory.predict,
        "",
        "value",
        moved=functools.partial(theory.moved, moved),
        moved_name=moved.name,
    )


def _moved(system: EquationSystem, values: Values, formulas: Sequence[sp.Expr]) -> sp.Symbol:
    """The parameter of a negative control: it matters, and may be doubled."""
    read = set().union(*(e.reads() for e in system.equations))
    free = [q.symbol for q in system.parameters if q.symbol in read and 2 * values[q.symbol] in q.domain]
    first = [s for f in formulas for s in free if f.has_free(s)]
    for symbol in (*first, *free):
        if values[symbol]:
            return symbol
    raise TaskError(
        "verify moves a parameter to test its power, and this task has none to move: declare the number of samples "
        'over the dimension, e.g. alpha = { default = 2, domain = "(0,inf)" }.'
    )
