"""Sparse-token classification: the laws of its features against sampling, reading, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from derive.document import TaskError
from derive.mechanisms.token_features import SparseSequence, attended, pooled, vectorised
from derive.task import load
from derive.tasks.sparse_token import Architecture, Goal, SparseToken

half = sp.S.Half


def test_features_of_attention_are_those_of_sampled_sequences() -> None:
    """X^T softmax(beta X q) along q/|q|, along xi off q, and the variance of the rest: their means."""
    length, signals, theta, cosine, kappa, d, count = 4, 2, 1.5, 0.6, 1.3, 6, 200_000
    data = SparseSequence(length, signals, sp.Rational(3, 2), half)
    case = attended(data, sp.Rational(3, 5), sp.Rational(13, 10)).cases[0]
    rng = np.random.default_rng(5)
    z = rng.standard_normal((length, count))
    p = sp.lambdify(case.normals, [e.elementary() for _, e in case.definitions])(*z)
    symbols = [*case.normals, *(s for s, _ in case.definitions)]
    predicted = sp.lambdify(symbols, [*case.exact, *case.mean, case.scale**2])(*z, *p)

    xi, q = np.eye(d)[0], cosine * np.eye(d)[0] + np.sqrt(1 - cosine**2) * np.eye(d)[1]
    across = (xi - cosine * q) / np.linalg.norm(xi - cosine * q)
    x = rng.standard_normal((count, length, d))
    x[:, :signals, 0] += theta
    weights = np.exp(kappa * x @ q)
    weights /= weights.sum(axis=1, keepdims=True)
    feature = np.einsum("nl,nld->nd", weights, x)
    rest = feature - np.outer(feature @ q, q) - np.outer(feature @ across, across)
    seen = [feature @ q, feature @ across, (rest**2).sum(axis=1) / (d - 2)]
    for values, theory in zip(seen, predicted, strict=True):
        error = np.hypot(np.std(values), np.std(theory)) / np.sqrt(count)
        assert abs(np.mean(values) - np.mean(theory)) < 5 * error  # chance 6e-7
        assert 5 * error < 0.02 * abs(np.mean(theory))  # so that 2 per cent are seen


def test_arrangements_of_the_signals() -> None:
    weights = tuple(map(sp.Rational, ["1/2", "1/4", "1/4"]))
    data = SparseSequence(3, 2, sp.S.One, half, weights)
    # sets {1,2}, {1,3} of weight 1/8 each, {2,3} of 1/16
    assert dict(data.arrangements) == {(1, 1): sp.Rational(4, 5), (0, 2): sp.Rational(1, 5)}
    assert sum(p for _, p in SparseSequence(10, 3, sp.S.One, half).arrangements) == 1


def test_linear_features() -> None:
    data = SparseSequence(10, 1, sp.Integer(5), half)
    positive = pooled(data).cases[0]
    assert positive.mean[0] / positive.scale == 5 / sp.sqrt(10)  # s = theta R/sqrt L
    assert vectorised(data).cases[0].mean[0] == 5 / sp.sqrt(10)
    skew = vectorised(SparseSequence(3, 1, sp.Integer(5), half, (half, sp.Rational(1, 4), sp.Rational(1, 4))))
    assert len(skew.mean_weights) == 2
    assert sum(c.probability for c in skew.cases) == 1


def read(name: str, **changes: str) -> SparseToken:
    task = load(name, {k.replace("__", "."): v for k, v in changes.items()})
    assert isinstance(task, SparseToken)
    return task


def test_what_is_asked() -> None:
    assert read("sparse-token-alignment").goal is Goal.ALIGNMENT
    assert read("sparse-token-capacity", model="pooled").kind is Architecture.POOLED
    assert read("sparse-token-oracle").goal is Goal.ORACLE
    task = read("sparse-token-attention", theta="6", s_q="1/2", loss="hinge")
    assert task.data.theta.xreplace(dict(task.values)) == 6
    assert task.goal is Goal.ERM
    assert not task.has_steps


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("sparse-token-pooled", {"pi": "0"}, "outside the domain"),
        ("sparse-token-pooled", {"data__pi": "1"}, "strictly between 0 and 1"),
        ("sparse-token-pooled", {"R": "11"}, "more than the 10 tokens"),
        ("sparse-token-pooled", {"lam": "-1"}, "outside the domain"),
        ("sparse-token-pooled", {"ridge": "-1"}, "must not be negative"),
        ("sparse-token-pooled", {"loss": "cos(u)"}, "not convex"),
        ("sparse-token-pooled", {"loss": "abs(y*u)*(-1)"}, "not convex in u: at y = -1, u = 0"),
        ("sparse-token-attention", {"s_q": "2"}, "outside the domain"),
        ("sparse-token-attention", {"query__s_q": "-2"}, "between -1 and 1"),
        ("sparse-token-attention", {"L": "65"}, "1 to 64"),
        ("sparse-token-vectorised", {"positions": "[1, 2]"}, "10 weights"),
        ("sparse-token-alignment", {"alpha0": "0"}, "outside the domain"),
        ("sparse-token-alignment", {"L": "1"}, "softmax of one token is 1"),
        ("sparse-token-alignment", {"eta_w": "0"}, "has no direction"),
        ("sparse-token-attention", {"alpha0": "2"}, "the example sparse-token-protocol"),
        ("sparse-token-attention", {"solve__times": "0:1:2"}, "times"),
    ],
)
def test_bad_input(name: str, changes: dict[str, str], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        read(name, **changes)
