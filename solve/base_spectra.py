"""Laws of eigenvalues that can be convolved with a semicircle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from solve.atom_clusters import ClusterTree, Index
from solve.atomic_field import AtomicField
from solve.nodes import Array
from solve.spectral_kernel import AbstractBase, AbstractField
from solve.wishart_field import WishartField

__all__ = ["AbstractBase", "AtomicBase", "WishartBase"]

_WEIGHT_TOLERANCE = 1e-9
_LEAST = 0.1  # of the width of the narrowest band: below, no cluster is small enough


@dataclass(frozen=True)
class WishartBase(AbstractBase):
    """Of W W^T/sqrt(p d), W (d, p) of independent N(0, 1) entries, p = kappa0 d.

    With k = max(kappa0, 1/kappa0), b = 1/sqrt(k) and Joukowski's z = b + 1/b + omega + 1/omega, |omega| >= 1, the law
    without its atom has G = 1/(b + omega)  [from R(g) = kappa0/(sqrt(kappa0) - g), of the free Poisson law]; where
    kappa0 < 1 it weighs kappa0 beside an atom 1 - kappa0 at zero.
    """

    kappa0: float
    anchors: Array = field(init=False, repr=False, compare=False)
    components: Index = field(init=False, repr=False, compare=False)
    order: int = field(default=32, init=False, repr=False, compare=False)
    near: int = field(default=32, init=False, repr=False, compare=False)
    ripples: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        k = _positive("WishartBase: kappa0", self.kappa0)
        low = (1 - math.sqrt(k)) ** 2 / math.sqrt(k)
        ends = [low, low + 4]
        anchors, components = ([0.0, *ends], [[0, 0], [1, 2]]) if k < 1 else (ends, [[0, 1]])
        object.__setattr__(self, "anchors", np.array(anchors))
        object.__setattr__(self, "components", np.array(components, dtype=np.intp))

    @property
    def atoms(self) -> tuple[Array, Array]:
        n = 1 if self.kappa0 < 1 else 0
        return np.zeros(n), np.full(n, 1 - self.kappa0)

    def moments(self, n: int) -> Array:
        # kappa0^(-k/2) sum_j Narayana(k, j) kappa0^j
        found = [1.0]
        for k in range(1, n + 1):
            terms = [math.comb(k, j) * math.comb(k, j - 1) // k * self.kappa0**j for j in range(1, k + 1)]
            found.append(math.fsum(terms) * self.kappa0 ** (-k / 2))
        return np.array(found)

    def reach(self, t: float) -> Array:
        guess = 1e-3 * min(t, t * t) * min(self.kappa0, 1.0)
        found = np.full(self.components.shape, guess)
        if self.kappa0 < 1:
            found[0] = math.sqrt(t * (1 - self.kappa0))
        return found

    def bounds(self, t: float, anchor: Index, offset: Array) -> tuple[Array, Array]:
        return np.zeros(len(anchor)), np.full(len(anchor), math.sqrt(t))

    @cached_property
    def _from_ends(self) -> tuple[Array, Array]:
        """Anchors less the lower and upper end of the continuous part, without rounding between the two ends."""
        shift = self.anchors - self.anchors[-2]
        shift[-1] = 4.0
        return shift, np.array([*(self.anchors[:-2] - self.anchors[-1]), -4.0, 0.0])

    def field(self, anchor: Index, low: Array, high: Array, v_low: Array, v_high: Array) -> AbstractField:
        from_low, from_high = self._from_ends
        a = anchor[:, None]
        b, share = math.sqrt(min(self.kappa0, 1 / self.kappa0)), min(self.kappa0, 1.0)
        return WishartField(b, share, self.anchors[a], from_low[a], from_high[a])


@dataclass(frozen=True)
class AtomicBase(AbstractBase):
    """sum_j weights_j delta(points_j): any order, equal points joined; the weights sum to one within 1e-9."""

    points: Array
    weights: Array
    anchors: Array = field(init=False, repr=False, compare=False)
    components: Index = field(init=False, repr=False, compare=False)
    order: int = field(default=16, init=False, repr=False, compare=False)
    near: int = field(default=4, init=False, repr=False, compare=False)
    ripples: bool = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        points, weights = _checked(self.points, self.weights)
        for name, value in [("points", points), ("weights", weights), ("anchors", points)]:
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "components", np.repeat(np.arange(len(points))[:, None], 2, axis=1))

    @property
    def atoms(self) -> tuple[Array, Array]:
        return self.points, self.weights

    def moments(self, n: int) -> Array:
        return np.array([math.fsum(self.weights * self.points**k) for k in range(n + 1)])

    def reach(self, t: float) -> Array:
        return np.repeat(np.sqrt(t * self.weights)[:, None], 2, axis=1)

    def bounds(self, t: float, anchor: Index, offset: Array) -> tuple[Array, Array]:
        v_low, v_high = np.zeros(len(anchor)), np.full(len(anchor), math.sqrt(t))
        if not self._tree.depth:
            return v_low, v_high
        low, high = offset.min(axis=1), offset.max(axis=1)
        middle = self.points[anchor] + (low + high) / 2
        atom = self.nearest(middle)
        apart = np.maximum(np.abs(middle - self.points[atom]) - (high - low) / 2, 0.0)
        alone = np.sqrt(t * self.weights[atom])  # half the band of that atom without the others

        def inverse(rows: Index, v: Array) -> Array:
            at = self.field(anchor[rows], low[rows], high[rows], v, v)
            return t * at.slopes(offset[rows], np.broadcast_to(v[:, None] ** 2, offset[rows].shape))[0]

        rows = np.arange(len(anchor))
        narrow = (inverse(rows, 2 * alone) < 1).all(axis=1)
        v_high[narrow] = np.minimum(2 * alone[narrow], v_high[narrow])
        rows = rows[~narrow]
        trial = math.sqrt(t) / 4
        while len(rows):
            over = inverse(rows, np.full(len(rows), trial))
            below, above = (over >= 1).all(axis=1), (over < 1).all(axis=1)
            v_low[rows[below]], v_high[rows[above]] = trial, trial
            rows = rows[~below]
            trial /= 4
            rows = rows[(trial > apart[rows]) & (trial > _LEAST * alone[rows])]
        return v_low, v_high

    @cached_property
    def _tree(self) -> ClusterTree:
        return ClusterTree(self.points, self.weights)

    def field(self, anchor: Index, low: Array, high: Array, v_low: Array, v_high: Array) -> AbstractField:
        return AtomicField(self._tree.sources(self.points[anchor], low, high, v_low, v_high))


def _positive(name: str, value: float) -> float:
    value = float(value)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; it must be a finite number above zero.")
    return value


def _checked(points: Sequence[float] | Array, weights: Sequence[float] | Array) -> tuple[Array, Array]:
    x, m = np.array(points, dtype=np.float64).ravel(), np.array(weights, dtype=np.float64).ravel()
    if not len(x) or len(x) != len(m):
        raise ValueError(f"AtomicBase: {len(x)} points and {len(m)} weights; give at least one point, each its weight.")
    if not (np.isfinite(x).all() and np.isfinite(m).all()):
        raise ValueError("AtomicBase: a point or a weight is not finite.")
    if (m < 0).any():
        raise ValueError(f"AtomicBase: the weight {m.min()} is negative; weights are masses.")
    total = math.fsum(m)
    if abs(total - 1) > _WEIGHT_TOLERANCE:
        raise ValueError(f"AtomicBase: the weights sum to {total!r}; they must sum to one within {_WEIGHT_TOLERANCE}.")
    distinct, place = np.unique(x[m > 0], return_inverse=True)
    return distinct, np.bincount(place, m[m > 0], len(distinct)) / total
