"""Convex risk minimisation on n = alpha d sampled features, stated by the user: trained to a stated gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy as sp
import torch
from torch import Tensor

from derive.task import Derivation
from derive.tasks.convex_erm import ConvexErmTask, Latent
from solve.solution import Solution
from verify.erm import Problem, minimise
from verify.erm_observations import Fresh, Replica, observed, one_by_one, static_experiment
from verify.experiment import Experiment
from verify.loss import LoweredLoss
from verify.lower import Lowered, lower
from verify.simulation import AbstractSimulation, Observation, Values, checked_values, value_of

__all__ = ["ErmSimulation", "experiment"]

_FRESH = 50_000


@dataclass(frozen=True)
class ErmSimulation(AbstractSimulation):
    """Features in R^d, the first coordinates along the special directions, those without noise after all others."""

    task: ConvexErmTask

    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """Weights along the directions, r, rho, b, losses, and errors for labels +-1."""
        values = checked_values(self.task.parameters, parameters)
        loss = LoweredLoss.of(self.task.erm.loss, values)
        return one_by_one(generators, lambda g: self._replica(values, size, loss, g), self.names)

    def device(self) -> torch.device:
        """The CPU: problems are solved one after the other."""
        return torch.device("cpu")

    def work(self, size: int) -> float:
        """Of linear algebra on small problems."""
        return float(size) ** 2

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What is observed."""
        weights = [q.symbol.name for q in (*self.task.law.exact_weights, *self.task.law.mean_weights)]
        bias = ["b"] if self.task.erm.bias else []
        errors = ["training_error", "test_error"] if self.task.law.is_binary else []
        return (*weights, "r", *bias, "training_loss", "test_loss", *errors)

    # ---- one replica --------------------------------------------------------------------------------------
    def _replica(self, values: dict[sp.Symbol, float], d: int, loss: LoweredLoss, g: torch.Generator) -> Replica:
        task = self.task
        n = round(value_of(task.alpha, values) * d)
        mean, exact, scale, latents = self._drawn(values, n, g)
        features = scale[:, None] * torch.randn((n, d), generator=g, dtype=torch.float64)
        features[:, : mean.shape[1]] += mean
        labels = self._labelled(values, latents, features[:, : mean.shape[1]])
        ridge = value_of(task.erm.ridge, values)
        problem = Problem(torch.cat([features, exact], dim=1), labels, loss, ridge, task.erm.bias)
        found = minimise(problem)
        k = mean.shape[1]
        along, rest, free = found.w[:k], found.w[k:d], found.w[d:]
        fresh = self._fresh(values, along, float(rest.norm()), free, found.b, g)
        known = observed(found, labels, loss, fresh, g, binary=task.law.is_binary)
        names = [s.name for s in _weights(task)]
        weights = dict(zip(names, [*free.tolist(), *along.tolist()], strict=True))
        return {**known, **weights, "r": float(rest.norm()), "b": found.b}

    def _fresh(
        self, values: dict[sp.Symbol, float], along: Tensor, rest: float, free: Tensor, b: float, g: torch.Generator
    ) -> Fresh:
        mean, exact, scale, latents = self._drawn(values, _FRESH, g)
        shift = exact @ free + b
        if not self._reads_components:
            total = float(torch.hypot(along.norm(), torch.tensor(rest, dtype=torch.float64)))
            return Fresh(shift + mean @ along, scale * total, self._labelled(values, latents, mean))
        components = mean + scale[:, None] * torch.randn(mean.shape, generator=g, dtype=torch.float64)
        return Fresh(shift + components @ along, scale * rest, self._labelled(values, latents, components))

    @property
    def _reads_components(self) -> bool:
        return bool(self.task.label.has_free(*self.task.components))

    def _drawn(
        self, values: dict[sp.Symbol, float], n: int, g: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor, dict[sp.Symbol, Tensor]]:
        """mean (n, k), exact (n, j), scale (n,) and the latents of n samples."""
        latents = {v.symbol: _draw(v, n, g) for v in self.task.latents}
        known = {**{s: torch.full((n,), v, dtype=torch.float64) for s, v in values.items()}, **latents}
        program = self._features
        found = [torch.broadcast_to(x, (n,)) for x in program(tuple(known[s] for s in program.arguments))]
        k, j = len(self.task.mean), len(self.task.exact)
        empty = torch.zeros((n, 0), dtype=torch.float64)
        mean = torch.stack(found[:k], dim=1) if k else empty
        exact = torch.stack(found[k : k + j], dim=1) if j else empty
        return mean, exact, found[-1].clone(), latents

    def _labelled(self, values: dict[sp.Symbol, float], latents: dict[sp.Symbol, Tensor], components: Tensor) -> Tensor:
        n = components.shape[0]
        known = {s: torch.full((n,), v, dtype=torch.float64) for s, v in values.items()}
        known |= latents | {x: components[:, k] for k, x in enumerate(self.task.components)}
        program = self._label
        (label,) = program(tuple(known[s] for s in program.arguments))
        return torch.broadcast_to(label, (n,)).clone()

    @cached_property
    def _features(self) -> Lowered:
        return _lowered([*self.task.mean, *self.task.exact, self.task.scale])

    @cached_property
    def _label(self) -> Lowered:
        return _lowered([self.task.label])


def _lowered(formulas: Sequence[sp.Expr]) -> Lowered:
    symbols = sorted(set().union(*(f.free_symbols for f in formulas)), key=str)
    return lower(list(formulas), tuple(symbols))


def _draw(latent: Latent, n: int, g: torch.Generator) -> Tensor:
    if latent.values is None or latent.probabilities is None:
        noise = torch.randn(n, generator=g, dtype=torch.float64)
        return float(latent.mean) + float(sp.sqrt(latent.variance)) * noise
    chances = torch.tensor([float(p) for p in latent.probabilities], dtype=torch.float64)
    values = torch.tensor([float(v) for v in latent.values], dtype=torch.float64)
    return values[torch.multinomial(chances, n, replacement=True, generator=g)]


def _weights(task: ConvexErmTask) -> list[sp.Symbol]:
    """The symbols of the weights along the exact directions, then those along the directions of `mean`, in order."""
    law = task.law
    symbols = [q.symbol for q in (*law.exact_weights, *law.mean_weights)]
    return sorted(symbols, key=lambda s: (s.name[0] != "w", int(s.name.lstrip("muw") or 1)))


def experiment(derivation: Derivation[ConvexErmTask], solution: Solution) -> Experiment:
    """Order parameters, losses and errors of the trained student."""
    simulation = ErmSimulation(derivation.task)
    return static_experiment(derivation, solution, simulation, simulation.names, (derivation.task.alpha,))
