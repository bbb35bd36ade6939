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
from verify.simulation import AbstractSimulation, Observation, Values, checked_values

__all__ = ["Separability", "SparseTokenSimulation", "experiment"]

Array: TypeAlias = NDArray[np.float64]

_FRESH = 50_000
_CHUNK = 2**24  # numbers of a block of tokens
_MOST_SEPARABLE = 40  # samples over the dimension
_MARGIN = 1e-7  # that of a separable sample beyond HiGHS's tolerance, weights being at most 1
_ORDER = ("w_q", "mu", "r", "b", "training_loss", "test_loss", "training_error", "test_error")
_ALIGNMENT = ("overlap_q", "norm_q", "s_q")


@dataclass(frozen=True)
class _Data:
    """The numbers of a task."""

    length: int
    signals: int
    theta: float
    pi: float
    weights: Tensor | None

    def labels(self, n: int, g: torch.Generator) -> Tensor:
        """+1 with probability pi, else -1: (n,)."""
        return 2 * (torch.rand(n, generator=g, dtype=torch.float64) < self.pi).double() - 1

    def signal(self, labels: Tensor, g: torch.Generator) -> Tensor:
        """theta v: (n, L), zero for negatives."""
        places = torch.zeros((len(labels), self.length), dtype=torch.float64)
        places.scatter_(1, self._places(len(labels), g), self.theta)
        return places * (labels > 0)[:, None]

    def _places(self, n: int, g: torch.Generator) -> Tensor:
        """R different positions for each of n samples: (n, R), a set with the product of its weights."""
        if self.weights is None:
            return torch.rand((n, self.length), generator=g, dtype=torch.float64).argsort(dim=1)[:, : self.signals]
        sets = torch.combinations(torch.arange(self.length), self.signals)
        chances = self.weights[sets].prod(dim=1)
        return sets[torch.multinomial(chances, n, replacement=True, generator=g)]


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
        data = data_of(self.task, values)
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
        n = round(number(self.task.alpha1, values) * d)
        features, labels = features_of(self.task, values, data, d, n, query, g)
        problem = Problem(features, labels, loss, number(self.task.erm.ridge, values), self.task.erm.bias)
        student = minimise(problem)
        return found | self._judged(values, data, d, query, problem, student, loss, g)

    def _stepped(self, values: dict[sp.Symbol, float], data: _Data, d: int, g: torch.Generator) -> Tensor:
        """The query after the two steps, by gradients of the risk of f = softmax(beta X q) . X w + b."""
        steps = self.task.steps
        assert steps is not None
        loss = LoweredLoss.of(steps.loss, values)
        n, beta = round(number(steps.alpha0, values) * d), number(self.task.beta, values)
        rates = [number(r, values) for r in (steps.eta_w, steps.eta_b, steps.eta_q)]
        w, q, b = torch.zeros(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64), 0.0
        x, y = _sequences(data, d, n, g)
        dw, _, db = _gradient(x, y, w, q, b, beta, loss)
        w, b = -rates[0] * dw, -rates[1] * db
        if not steps.reuse:
            x, y = _sequences(data, d, n, g)
        _, dq, _ = _gradient(x, y, w, q, b, beta, loss)
        return -rates[2] * dq

    def _judged(
        self,
        values: dict[sp.Symbol, float],
        data: _Data,
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
            cosine, kappa, along = _query_numbers(self.task, values, query, d)
            t, m, sigma = _attended(signal, cosine, kappa, g)
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
        features, labels = features_of(self.task, values, data_of(self.task, values), d, n, None, g)
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


# ---- samples ----------------------------------------------------------------------------------------------
def number(expr: sp.Expr, values: Values) -> float:
    """A formula of the parameters as a number."""
    return float(expr.xreplace({s: sp.Float(v) for s, v in values.items()}))


def data_of(task: SparseToken, values: Values) -> _Data:
    """The task's data at these values."""
    data = task.data
    weights = None if data.positions is None else torch.tensor([number(p, values) for p in data.positions]).double()
    return _Data(data.length, data.signals, number(data.theta, values), number(data.pi, values), weights)


def features_of(
    task: SparseToken, values: Values, data: _Data, d: int, n: int, query: Tensor | None, g: torch.Generator
) -> tuple[Tensor, Tensor]:
    """n features and labels: of whole sequences where the query is trained, of their law where it is given."""
    labels = data.labels(n, g)
    signal = data.signal(labels, g)
    if query is not None:
        return _attending(signal, query, number(task.beta, values), g), labels
    if task.kind is Architecture.ATTENTION:
        cosine, kappa, _ = _query_numbers(task, values, None, d)
        t, m, sigma = _attended(signal, cosine, kappa, g)
        features = sigma[:, None] * _normal((n, d), g)
        features[:, 0] += m
        # the coordinates of xi off q come first, q itself second
        features[:, 1] = t
        return features, labels
    if task.kind is Architecture.POOLED:
        features = _normal((n, d), g) / math.sqrt(data.length)
        features[:, 0] += signal.mean(dim=1)
        return features, labels
    features = _normal((n, data.length, d), g)
    features[:, :, 0] += signal
    return features.reshape(n, data.length * d), labels


def _query_numbers(task: SparseToken, values: Values, query: Tensor | None, d: int) -> tuple[float, float, Tensor]:
    """s_q, kappa and the direction of the query, in the coordinates of the features: the second where it is given."""
    if query is not None:
        norm = float(query.norm())
        return float(query[0]) / norm, number(task.beta, values) * norm, query / norm
    assert task.query is not None
    cosine, kappa = (number(v, values) for v in task.query)
    return cosine, kappa, torch.eye(2, d, dtype=torch.float64)[1]


def _attended(signal: Tensor, cosine: float, kappa: float, g: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """t, m, sigma of the features at a given query: (n,) each."""
    scores = cosine * signal + _normal(tuple(signal.shape), g)
    p = torch.softmax(kappa * scores, dim=1)
    across = math.sqrt(max(1 - cosine**2, 0.0))
    return (p * scores).sum(dim=1), across * (p * signal).sum(dim=1), p.norm(dim=1)


def _attending(signal: Tensor, query: Tensor, beta: float, g: torch.Generator) -> Tensor:
    """X^T softmax(beta X q) of sequences with this signal: (n, d), block by block."""
    n, length = signal.shape
    d = len(query)
    rows = max(1, _CHUNK // (length * d))
    found = torch.empty((n, d), dtype=torch.float64)
    for i in range(0, n, rows):
        x = _normal((min(rows, n - i), length, d), g)
        x[:, :, 0] += signal[i : i + rows]
        p = torch.softmax(beta * (x @ query), dim=1)
        found[i : i + rows] = torch.bmm(p[:, None, :], x)[:, 0]
    return found


def _sequences(data: _Data, d: int, n: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """X (n, L, d) and labels (n,)."""
    labels = data.labels(n, g)
    x = _normal((n, data.length, d), g)
    x[:, :, 0] += data.signal(labels, g)
    return x, labels


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


def _normal(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=g, dtype=torch.float64)


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
