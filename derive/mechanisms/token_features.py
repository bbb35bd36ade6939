"""Features of a sequence of L tokens, R of which carry the signal theta xi: pooled, vectorised, attended.

X = theta v xi^T + Z (L x d), v the indicator of the R signals for the label +1, 0 for -1  [arXiv:2509.25153].
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.equations import Quantity
from derive.features import Case, FeatureLaw
from derive.functions import SoftmaxEntry
from derive.table import TaskError

__all__ = ["SparseSequence", "attended", "pooled", "vectorised"]

_MOST_ARRANGEMENTS = 4096


@dataclass(frozen=True)
class SparseSequence:
    """length: L; signals: R; theta: their strength; pi: the probability of the label +1.

    positions: weights of the L positions, None for equal ones. A set of R positions holds the signals with a
    probability proportional to the product of their weights.
    """

    length: int
    signals: int
    theta: sp.Expr
    pi: sp.Expr
    positions: tuple[sp.Expr, ...] | None = None

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions of equal weight."""
        found: dict[sp.Expr, list[int]] = {}
        for i, weight in enumerate(self.positions or (sp.S.One,) * self.length):
            found.setdefault(weight, []).append(i)
        return tuple(tuple(g) for g in found.values())

    @property
    def arrangements(self) -> tuple[tuple[tuple[int, ...], sp.Expr], ...]:
        """How many signals each of the groups holds, with the probability of that."""
        groups = self.groups
        weights = [sp.S.One if self.positions is None else self.positions[g[0]] for g in groups]
        ranges = [range(min(len(g), self.signals) + 1) for g in groups]
        counts = [c for c in itertools.product(*ranges) if sum(c) == self.signals]
        if len(counts) > _MOST_ARRANGEMENTS:
            raise TaskError(
                f"data.positions: the signals have {len(counts)} arrangements; at most {_MOST_ARRANGEMENTS} are "
                "allowed. Give more positions the same weight."
            )
        chances = [
            sp.Mul(*(sp.binomial(len(g), k) * w**k for g, k, w in zip(groups, c, weights, strict=True))) for c in counts
        ]
        total = sp.Add(*chances)
        return tuple((c, p / total) for c, p in zip(counts, chances, strict=True) if p != 0)


def pooled(data: SparseSequence) -> FeatureLaw:
    """X^T 1/L: theta R/L along xi for positives, noise of standard deviation 1/sqrt L."""
    scale, signal = 1 / sp.sqrt(data.length), data.theta * data.signals / data.length
    cases = (_linear(data.pi, (signal,), scale, 1), _linear(1 - data.pi, (sp.S.Zero,), scale, -1))
    return FeatureLaw(cases, (), (_weight("mu", "weight along xi"),))


def vectorised(data: SparseSequence) -> FeatureLaw:
    """vec(X), with one direction for each group of positions.

    Positions of equal weight are exchangeable, and the minimiser of a convex risk is unique: their weights along xi
    are equal.
    """
    groups = data.groups
    roots = [sp.sqrt(len(g)) for g in groups]
    found = [
        _linear(data.pi * p, tuple(data.theta * c / root for c, root in zip(counts, roots, strict=True)), 1, 1)
        for counts, p in data.arrangements
    ]
    found.append(_linear(1 - data.pi, (sp.S.Zero,) * len(groups), 1, -1))
    names = ["mu"] if len(groups) == 1 else [f"mu{g + 1}" for g in range(len(groups))]
    meaning = "weight along xi of the positions of one probability, over all of them"
    return FeatureLaw(tuple(found), (), tuple(_weight(n, meaning) for n in names))


def attended(data: SparseSequence, cosine: sp.Expr, sharpness: sp.Expr) -> FeatureLaw:
    """X^T p, p = softmax(kappa g), g = X q/|q|: p.g along q, theta sqrt(1 - s_q^2) p.v along xi off q, |p| N(0, I).

    cosine: s_q = <q, xi>/|q|. sharpness: kappa, the inverse temperature times |q|. No position is preferred.
    """
    cases = tuple(
        _attended(data, probability, signals, cosine, sharpness)
        for probability, signals in ((data.pi, data.signals), (1 - data.pi, 0))
    )
    return FeatureLaw(cases, (_weight("w_q", "weight along q/|q|"),), (_weight("mu", "weight along xi off q"),))


def _attended(data: SparseSequence, probability: sp.Expr, signals: int, cosine: sp.Expr, sharpness: sp.Expr) -> Case:
    z = sp.symbols(f"z1:{data.length + 1}", real=True)
    p = sp.symbols(f"p1:{data.length + 1}", nonnegative=True)
    g = [zi + (data.theta * cosine if i < signals else 0) for i, zi in enumerate(z)]
    scaled = [sharpness * gi for gi in g]
    softmax = [SoftmaxEntry(a, *scaled[:i], *scaled[i + 1 :]) for i, a in enumerate(scaled)]
    along = sp.Add(*(a * b for a, b in zip(p, g, strict=True)))
    across = data.theta * sp.sqrt(1 - cosine**2) * sp.Add(*p[:signals])
    scale = sp.sqrt(sp.Add(*(a**2 for a in p)))
    label = sp.S.One if signals else sp.S.NegativeOne
    return Case(probability, z, (along,), (across,), scale, label, tuple(zip(p, softmax, strict=True)))


def _linear(probability: sp.Expr, mean: Sequence[sp.Expr], scale: Any, label: int) -> Case:
    return Case(probability, (), (), tuple(mean), sp.S(scale), sp.Integer(label))


def _weight(name: str, meaning: str) -> Quantity:
    return Quantity(sp.Symbol(name, real=True), meaning)
