"""Samples of sparse-token sequences, and of the features that a student reads of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from derive.tasks.sparse_token import Architecture, SparseToken
from verify.simulation import Values, value_of

__all__ = ["TokenData", "attended", "attending", "drawn_features", "query_numbers", "sequences", "token_data"]

_CHUNK = 2**24  # numbers of a block of tokens


@dataclass(frozen=True)
class TokenData:
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


def token_data(task: SparseToken, values: Values) -> TokenData:
    """The task's data at these values."""
    data = task.data
    weights = None if data.positions is None else torch.tensor([value_of(p, values) for p in data.positions]).double()
    return TokenData(data.length, data.signals, value_of(data.theta, values), value_of(data.pi, values), weights)


def drawn_features(
    task: SparseToken, values: Values, data: TokenData, d: int, n: int, query: Tensor | None, g: torch.Generator
) -> tuple[Tensor, Tensor]:
    """n features and labels: of whole sequences where the query is trained, of their law where it is given."""
    labels = data.labels(n, g)
    signal = data.signal(labels, g)
    if query is not None:
        return attending(signal, query, value_of(task.beta, values), g), labels
    if task.kind is Architecture.ATTENTION:
        cosine, kappa, _ = query_numbers(task, values, None, d)
        t, m, sigma = attended(signal, cosine, kappa, g)
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


def query_numbers(task: SparseToken, values: Values, query: Tensor | None, d: int) -> tuple[float, float, Tensor]:
    """s_q, kappa and the direction of the query, in the coordinates of the features: the second where it is given."""
    if query is not None:
        norm = float(query.norm())
        return float(query[0]) / norm, value_of(task.beta, values) * norm, query / norm
    assert task.query is not None
    cosine, kappa = (value_of(v, values) for v in task.query)
    return cosine, kappa, torch.eye(2, d, dtype=torch.float64)[1]


def attended(signal: Tensor, cosine: float, kappa: float, g: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """t, m, sigma of the features at a given query: (n,) each."""
    scores = cosine * signal + _normal(tuple(signal.shape), g)
    p = torch.softmax(kappa * scores, dim=1)
    across = math.sqrt(max(1 - cosine**2, 0.0))
    return (p * scores).sum(dim=1), across * (p * signal).sum(dim=1), p.norm(dim=1)


def attending(signal: Tensor, query: Tensor, beta: float, g: torch.Generator) -> Tensor:
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


def sequences(data: TokenData, d: int, n: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """X (n, L, d) and labels (n,)."""
    labels = data.labels(n, g)
    x = _normal((n, data.length, d), g)
    x[:, :, 0] += data.signal(labels, g)
    return x, labels


def _normal(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=g, dtype=torch.float64)
