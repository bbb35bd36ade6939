"""Sparse-token classification at finite size: the steps of the query, classifiers of sampled features, separability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import sympy as sp
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from derive.document import TaskError
from derive.task import Derivation
from derive.tasks.sparse_token import Architecture, Goal, SparseToken
from solve.solution import Solution
from verify.erm import Minimum, Problem, SimulationError, minimise
from verify.erm_observations import Fresh, Replica, observed, one_by_one, static_experiment
from verify.experiment import Experiment
from verify.loss import LoweredLoss
from verify.simulation import AbstractSimulation, Observation, Values, checked_values, value_of
from verify.token_samples import TokenData, attended, drawn_features, query_numbers, sequences, token_data

__all__ = ["Separability", "SparseTokenSimulation", "experiment"]

Array: TypeAlias = NDArray[np.float64]

_FRESH = 50_000
_MOST_SEPARABLE = 40  # samples over the dimension
_MARGIN = 1e-7  # that of a separable sample beyond HiGHS's tolerance, weights being at most 1
_ORDER = ("w_q", "mu", "r", "b", "training_loss", "test_loss", "training_error", "test_error")
_ALIGNMENT = ("overlap_q", "norm_q", "s_q")


@dataclass(frozen=True)
class SparseTokenSimulation(AbstractSimulation):
    """xi is the first coordinate. The query is trained by the task's steps, if it has any, then the classifier."""

    task: SparseToken

    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """The query's overlap, norm and cosine, the classifier's weights, losses and errors."""
        values = checked_values(self.task.parameters, parameters)
        return one_by_one(generators, lambda g: self._replica(values, size, g), self.names)

    def device(self) -> torch.device:
        """The CPU: problems are solved one after the other."""
        return torch.device("cpu")

    def work(self, size: int) -> float:
        """Of linear algebra on small problems."""
        return float(size * self.task.dimension_ratio) ** 2

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What is observed."""
        steps = _ALIGNMENT if self.task.has_steps else ()
        if self.task.goal is Goal.ALIGNMENT:
            return steps
        weights = [q.symbol.name for q in (*self.task.law.exact_weights, *self.task.law.mean_weights)]
        bias = self.task.erm is not None and self.task.erm.bias
        order = [n for n in _ORDER[2:] if n != "b" or bias]
        return (*steps, *weights, *order)

    # ---- one replica --------------------------------------------------------------------------------------
    def _replica(self, values: dict[sp.Symbol, float], d: int, g: torch.Generator) -> Replica:
        data = token_data(self.task, values)
        found: dict[str, float] = {}
        query: Tensor | None = None
        if self.task.has_steps:
            query = self._stepped(values, data, d, g)
            norm = float(query.norm())
            found = {"overlap_q": float(query[0]), "norm_q": norm, "s_q": float(query[0]) / norm}
        if self.task.goal is Goal.ALIGNMENT:
            return found
        assert self.task.erm is not None
        loss = LoweredLoss.of(self.task.erm.loss, values)
        n = round(value_of(self.task.alpha1, values) * d)
        features, labels = drawn_features(self.task, values, data, d, n, query, g)
        problem = Problem(features, labels, loss, value_of(self.task.erm.ridge, values), self.task.erm.bias)
        student = minimise(problem)
        return found | self._judged(values, data, d, query, problem, student, loss, g)

    def _stepped(self, values: dict[sp.Symbol, float], data: TokenData, d: int, g: torch.Generator) -> Tensor:
        """The query after the two steps, by gradients of the risk of f = softmax(beta X q) . X w + b."""
        steps = self.task.steps
        assert steps is not None
        loss = LoweredLoss.of(steps.loss, values)
        n, beta = round(value_of(steps.alpha0, values) * d), value_of(self.task.beta, values)
        rates = [value_of(r, values) for r in (steps.eta_w, steps.eta_b, steps.eta_q)]
        w, q, b = torch.zeros(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64), 0.0
        x, y = sequences(data, d, n, g)
        dw, _, db = _gradient(x, y, w, q, b, beta, loss)
        w, b = -rates[0] * dw, -rates[1] * db
        if not steps.reuse:
            x, y = sequences(data, d, n, g)
        _, dq, _ = _gradient(x, y, w, q, b, beta, loss)
        return -rates[2] * dq

    def _judged(
        self,
        values: dict[sp.Symbol, float],
        data: TokenData,
        d: int,
        query: Tensor | None,
        problem: Problem,
        student: Minimum,
        loss: LoweredLoss,
        g: torch.Generator,
    ) -> dict[str, float]:
        w, b = student.w, student.b
        names = [q.symbol.name for q in (*self.task.law.exact_weights, *self.task.law.mean_weights)]
        labels = data.labels(_FRESH, g)
        signal = data.signal(labels, g)
        if self.task.kind is Architecture.ATTENTION:
            cosine, kappa, along = query_numbers(self.task, values, query, d)
            t, m, sigma = attended(signal, cosine, kappa, g)
            first = torch.eye(1, d, dtype=torch.float64)[0]
            across = first - along[0] * along
            across = across / across.norm()
            weights = [float(w @ along), float(w @ across)]
            rest = float((w - weights[0] * along - weights[1] * across).norm())
            fresh = Fresh(weights[0] * t + weights[1] * m + b, sigma * math.hypot(weights[1], rest), labels)
        elif self.task.kind is Architecture.POOLED:
            weights, rest = [float(w[0])], float(w[1:].norm())
            spread = torch.full_like(labels, float(w.norm()) / math.sqrt(data.length))
            fresh = Fresh(float(w[0]) * signal.mean(dim=1) + b, spread, labels)
        else:
            blocks = w.reshape(data.length, d)
            groups = self.task.data.groups
            directions = [blocks[list(group), 0].sum() / math.sqrt(len(group)) for group in groups]
            weights = [float(v) for v in directions]
            rest = math.sqrt(max(float(w @ w) - sum(v * v for v in weights), 0.0))
            fresh = Fresh(signal @ blocks[:, 0] + b, torch.full_like(labels, float(w.norm())), labels)
        known = observed(student, problem.labels, loss, fresh, g, binary=True)
        return {**known, **dict(zip(names, weights, strict=True)), "r": rest, "b": b}


@dataclass(frozen=True)
class Separability(AbstractSimulation):
    """The number of samples over d up to which a growing sample can be separated, by linear programming (HiGHS)."""

    task: SparseToken

    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """`capacity`: (the largest separable number of samples + 1/2)/d."""
        values = checked_values(self.task.parameters, parameters)
        return one_by_one(generators, lambda g: {"capacity": self._largest(values, size, g)}, ("capacity",))

    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def work(self, size: int) -> float:
        """Of linear programs."""
        return float(size * self.task.dimension_ratio) ** 2

    def _largest(self, values: dict[sp.Symbol, float], d: int, g: torch.Generator) -> float:
        size = d * self.task.dimension_ratio
        low, rows = 0, self._signed(values, d, 2 * size, g)
        while _separable(rows):
            low = len(rows)
            if low > _MOST_SEPARABLE * size:
                raise TaskError(f"The capacity exceeds {low / d:g}, the largest that is simulated.")
            rows = np.concatenate([rows, self._signed(values, d, low // 2, g)])
        high = len(rows)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _separable(rows[:middle]) else (low, middle)
        return (low + 0.5) / d

    def _signed(self, values: dict[sp.Symbol, float], d: int, n: int, g: torch.Generator) -> Array:
        """y (f, 1) of n samples: (n, dimension + 1)."""
        features, labels = drawn_features(self.task, values, token_data(self.task, values), d, n, None, g)
        return (labels[:, None] * torch.cat([features, torch.ones_like(labels)[:, None]], dim=1)).numpy()


def _separable(signed: Array) -> bool:
    """Whether some w has signed @ w > 0: the largest margin t of signed @ w >= t over the cube |w_j| <= 1 is not 0."""
    n, k = signed.shape
    cost = np.append(np.zeros(k), -1.0)
    rows = np.hstack([-signed, np.ones((n, 1))])
    found = linprog(cost, A_ub=rows, b_ub=np.zeros(n), bounds=[*[(-1, 1)] * k, (0, None)], method="highs")
    if found.status != 0:
        raise SimulationError(f"Linear programming could not decide separability: {found.message}")
    return bool(-found.fun > _MARGIN)


def _gradient(
    x: Tensor, y: Tensor, w: Tensor, q: Tensor, b: float, beta: float, loss: LoweredLoss
) -> tuple[Tensor, Tensor, float]:
    """The gradient of the mean loss in w, q and b, by automatic differentiation of the output."""
    w, q = w.clone().requires_grad_(), q.clone().requires_grad_()
    bias = torch.tensor(b, dtype=torch.float64, requires_grad=True)
    p = torch.softmax(beta * (x @ q), dim=1)
    outputs = (p * (x @ w)).sum(dim=1) + bias
    slope = loss.program((y, outputs.detach()))[1]
    dw, dq, db = torch.autograd.grad((slope * outputs).mean(), (w, q, bias))
    return dw, dq, float(db)


def experiment(derivation: Derivation[SparseToken], solution: Solution) -> Experiment:
    """What the task asks for, simulated; raises `TaskError` for an oracle, which is no limit of a finite system."""
    task = derivation.task
    if task.goal is Goal.ORACLE:
        raise TaskError("Oracle errors are exact for every d: there is no simulation to compare them with.")
    if task.goal is Goal.CAPACITY:
        if task.has_steps:
            raise TaskError("A capacity is simulated at a given query: state [query].")
        return static_experiment(derivation, solution, Separability(task), ("capacity",), (), (task.data.theta,))
    simulation = SparseTokenSimulation(task)
    ratios = [task.alpha1] if task.goal is Goal.ERM else []
    ratios += [task.steps.alpha0] if task.steps is not None else []
    return static_experiment(derivation, solution, simulation, simulation.names, ratios)
