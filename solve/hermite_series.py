"""Hermite coefficients of functions of a Gaussian vector, by a product trapezoid rule."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from solve.nodes import Array, trapezoid
from solve.panels import Index

__all__ = ["Frames", "Functions", "Side", "by_degree", "frames"]

_ROUNDING = 4e-15
_VANISHING = 1e-14  # a singular value below this is zero
_NEAR_SINGULAR = 1e-9

Functions: TypeAlias = Callable[[list[Array]], Sequence[Array]]


@dataclass(frozen=True)
class Frames:
    """x = mean + left u, y = mean_right + right v, Cov(u_i, v_j) = rho kappa_i delta_ij, rho = scale overlap."""

    left: Array
    right: Array
    kappa: Array
    scale: float

    @property
    def whole(self) -> bool:
        """Whether at |rho| = 1 the smaller of the two vectors is a function of the other."""
        smaller = min(len(self.left), len(self.right))
        return len(self.kappa) == smaller and bool(np.all(self.kappa > 1 - 1e-12))


def frames(cov_left: Array, cov_right: Array, cross: Array) -> Frames | None:
    """Coordinates in which both covariances are 1 and the cross-covariance is diagonal; None if singular or zero."""
    for cov in (cov_left, cov_right):
        spread = np.linalg.eigvalsh(cov)
        if not spread[0] > _NEAR_SINGULAR * spread[-1]:
            return None
    left, right = np.linalg.cholesky(cov_left), np.linalg.cholesky(cov_right)
    u, s, vt = np.linalg.svd(np.linalg.solve(right, np.linalg.solve(left, cross).T).T)
    if s[0] == 0:
        return None
    kept = s > _VANISHING * s[0]
    return Frames(left @ u, right @ vt.T, s[kept] / s[0], float(s[0]))


@functools.lru_cache(maxsize=16)
def _weighted_hermite(degree: int, nodes: int, reach: float) -> Array:
    """h_k(t_p) w_p, (degree + 1, nodes), h_k+1 = (t h_k - sqrt(k) h_k-1)/sqrt(k+1), upward."""
    t, w = trapezoid(nodes, reach)
    rows = np.empty((degree + 1, nodes))
    rows[0], rows[1] = w, t * w
    for k in range(1, degree):
        rows[k + 1] = (t * rows[k] - math.sqrt(k) * rows[k - 1]) / math.sqrt(k + 1)
    rows.setflags(write=False)
    return rows


@functools.lru_cache(maxsize=16)
def by_degree(dim: int, degree: int) -> tuple[Index, Index, Index]:
    """Of all alpha in {0..degree}^dim with |alpha| <= degree, by |alpha|: place, first of each degree, alpha."""
    alpha = np.indices((degree + 1,) * dim).reshape(dim, -1)
    total = alpha.sum(axis=0)
    place = np.argsort(total, kind="stable")[: math.comb(degree + dim, dim)]
    return place, np.searchsorted(total[place], np.arange(degree + 1)), alpha[:, place]


@dataclass(frozen=True)
class Side:
    """Functions of mean + frame u on the nodes (count, reach) of u, and their Hermite coefficients.

    The coefficients are those in the first `paired` coordinates of u; the others are averaged over.
    """

    functions: Functions
    frame: Array
    paired: int
    grid: tuple[int, float]

    def values(self, mean: Array, sign: int = 1) -> list[Array]:
        """The functions at the nodes, each (N, .., N); `sign` that of the paired coordinates."""
        n, t = len(mean), trapezoid(*self.grid)[0]
        u = [(sign if j < self.paired else 1) * t.reshape((-1,) + (1,) * (n - 1 - j)) for j in range(n)]
        x = [m + functools.reduce(np.add, map(np.multiply, row, u)) for m, row in zip(mean, self.frame, strict=True)]
        return [np.broadcast_to(v, (t.size,) * n) for v in self.functions(x)]

    def coefficients(self, values: Sequence[Array], degree: int) -> tuple[Array, Array]:
        """c = E f h_alpha, (functions, alpha) by degree, and E f^2 - sum_(|alpha| <= k) c^2, (functions, k)."""
        place, first, _ = by_degree(self.paired, degree)
        rows = _weighted_hermite(degree, *self.grid)
        found = np.array([self.contracted(v, rows).ravel()[place] for v in values])
        square = np.array([self.contracted(v**2, rows[:1]).item() for v in values])[:, None]
        rest = square - np.cumsum(np.add.reduceat(found**2, first, axis=1), axis=1)
        return found, np.maximum(rest, 0.0) + _ROUNDING * square

    def contracted(self, values: Array, rows: Array) -> Array:
        """Each paired axis summed with `rows`, (.., N), each other one with the weights."""
        weights = [rows if j < self.paired else trapezoid(*self.grid)[1][None] for j in range(values.ndim)]
        if values.ndim == 2:
            found: Array = weights[0] @ np.ascontiguousarray(values) @ weights[1].T
            return found
        for w in weights:
            values = np.tensordot(values, w, axes=(0, 1))
        return values
