"""Attention-indexed models at dimension d: n = alpha d^2 samples of T tokens, trained to a stated gradient."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import sympy as sp
import torch
from torch import Tensor

from derive.document import TaskError
from derive.settings import Optimiser
from derive.spectra import Wishart
from derive.task import Derivation
from derive.tasks.attention_indexed import AttentionIndexed, Parametrisation
from solve.solution import Solution
from verify.attention_indexed.descent import Direct, Factorised, adam, lbfgs, start_weights
from verify.attention_indexed.index_loss import IndexLoss
from verify.attention_indexed.message_passing import iterates, message_passing
from verify.attention_indexed.observables import NAMES, overlaps, student_errors, training
from verify.attention_indexed.penalty import Penalty
from verify.attention_indexed.proximal_gradient import proximal_gradient
from verify.attention_indexed.risk import Minimum, Risk
from verify.attention_indexed.target import draw_target
from verify.attention_indexed.tokens import draw_tokens, index_noise
from verify.erm_observations import static_experiment
from verify.experiment import Experiment
from verify.simulation import AbstractSimulation, Observation, Values, checked_values, value_of

__all__ = ["AttentionIndexedSimulation", "Instance", "MessagePassing", "experiment", "threads_for"]

_MANY = 100  # rows of a matrix that are worth several threads


@dataclass(frozen=True, eq=False)
class Instance:
    """A target S0 (d, d) and the training problem of its samples."""

    target: Tensor
    risk: Risk


@dataclass(frozen=True)
class AttentionIndexedSimulation(AbstractSimulation):
    """One target and one sample for each replica. optimiser: the task's own, or W by L-BFGS and S by proximal steps."""

    task: AttentionIndexed
    optimiser: Optimiser | None = None

    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """Errors, overlaps, losses and rank of the trained student."""
        values = checked_values(self.task.parameters, parameters)
        with threads_for(size):
            found = [self.observe(values, size, g) for g in generators]
        return Observation(None, {sp.Symbol(n, real=True): np.array([f[n] for f in found]) for n in NAMES})

    def work(self, size: int) -> float:
        """Passes over d^2 samples, each of d^2 numbers."""
        return float(size) ** 4

    # ---- one replica --------------------------------------------------------------------------------------
    def observe(self, values: Values, d: int, generator: torch.Generator) -> Mapping[str, float]:
        """The observables of one instance, by name."""
        instance = self.instance(values, d, generator)
        s = self.train(instance, values, generator).s
        noise = value_of(self.task.noise, values)
        errors = student_errors(s, instance.target, instance.risk.loss, self.task.tokens, noise, generator)
        return {**errors, **asdict(overlaps(s, instance.target)), **training(instance.risk, s)}

    def instance(self, values: Values, d: int, generator: torch.Generator) -> Instance:
        """A target and round(alpha d^2) samples with noisy labels."""
        task = self.task
        target = draw_target(task.spectrum, values, d, generator)
        n = max(1, round(value_of(task.alpha, values) * d**2))
        tokens = draw_tokens(task.tokens, n, d, generator)
        noisy = tokens.indices(target) + index_noise(tokens.pairs, n, value_of(task.noise, values), generator)
        loss = _lowered(task.loss, task.target.entries, task.student.entries, tuple(values.items()))
        return Instance(target, Risk(tokens, loss, loss.labels(noisy), Penalty.of(task.penalty, values)))

    def train(self, instance: Instance, values: Values, generator: torch.Generator) -> Minimum:
        """The trained student; raises `TrainingError` where it does not reach the optimiser's tolerance."""
        risk = instance.risk
        match self._optimiser:
            case Optimiser.PROXIMAL:
                return proximal_gradient(risk)
            case Optimiser.AMP:
                return message_passing(risk)
            case Optimiser.ADAM:
                return self._descended(adam, risk, values, generator)
            case _:
                return self._descended(lbfgs, risk, values, generator)

    @property
    def _optimiser(self) -> Optimiser:
        factorised = self.task.parametrisation is Parametrisation.FACTORISED
        return self.optimiser or self.task.verify.optimiser or (Optimiser.LBFGS if factorised else Optimiser.PROXIMAL)

    def _descended(
        self, method: Callable[..., Minimum], risk: Risk, values: Values, generator: torch.Generator
    ) -> Minimum:
        factorised = self.task.parametrisation is Parametrisation.FACTORISED
        _check_smooth(risk.penalty, factorised)
        if not factorised:
            return method(risk, Direct(), risk.tokens.x.new_zeros((risk.d, risk.d)))
        p = max(1, round(value_of(self.task.kappa, values) * risk.d))
        return method(risk, Factorised(), start_weights(risk.d, p, generator))


@dataclass(frozen=True)
class MessagePassing(AbstractSimulation):
    """Message passing on the data, along its first `steps` iterations from S = 0; sigma: the first response."""

    task: AttentionIndexed
    steps: int
    sigma: float = 1.0

    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """q, m, mse and Sigma after 1 .. steps iterations."""
        values = checked_values(self.task.parameters, parameters)
        with threads_for(size):
            found = [self._path(values, size, g) for g in generators]
        columns = {n: np.array([[row[n] for row in path] for path in found]) for n in ("q", "m", "mse", "Sigma")}
        axis = np.arange(1.0, self.steps + 1)
        return Observation(axis, {sp.Symbol(n, real=True): x for n, x in columns.items()})

    def _path(self, values: Values, d: int, generator: torch.Generator) -> list[dict[str, float]]:
        instance = AttentionIndexedSimulation(self.task).instance(values, d, generator)
        path = itertools.islice(iterates(instance.risk, sigma=self.sigma), 1, self.steps + 1)
        return [{**asdict(overlaps(here.s, instance.target)), "Sigma": here.sigma} for here in path]


@contextlib.contextmanager
def threads_for(d: int) -> Iterator[None]:
    """One thread for small matrices: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if d < _MANY else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@functools.lru_cache(maxsize=16)
def _lowered(
    loss: sp.Expr,
    target: tuple[sp.Symbol, ...],
    own: tuple[sp.Symbol, ...],
    values: tuple[tuple[sp.Symbol, float], ...],
) -> IndexLoss:
    return IndexLoss.of(loss, target, own, dict(values))


def _check_smooth(penalty: Penalty, factorised: bool) -> None:
    """Raises `TaskError` for a penalty with kinks where eigenvalues of a trained matrix may lie; those of W W^T do not
    pass through zero."""
    places = penalty.places
    if places is None or any(k > 0 or not factorised for k in places) or (penalty.positive and not factorised):
        raise TaskError(
            "verify.optimiser is a gradient descent and regulariser.spectral has kinks: it comes to rest on none. Use "
            'verify.optimiser = "proximal".'
        )


def experiment(derivation: Derivation[AttentionIndexed], solution: Solution) -> Experiment:
    """Errors, overlaps, losses and rank of the trained student; ranks are whole numbers p, and so are p/d at each d."""
    task = derivation.task
    if task.asks_thresholds:
        raise TaskError(
            "Thresholds are no observables of one training; leave out [thresholds] to compare a training near one."
        )
    ratios = [task.kappa] if task.parametrisation is Parametrisation.FACTORISED else []
    if isinstance(task.spectrum, Wishart):
        ratios.append(task.spectrum.kappa0)
    return static_experiment(
        derivation, solution, AttentionIndexedSimulation(task), NAMES, ratios, moved_first=(task.alpha,)
    )
