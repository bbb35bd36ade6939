"""A batch of Gaussian laws as affine images of the standard one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solve.nodes import Array
from solve.panels import Index

__all__ = ["Law", "factorise"]


@dataclass(frozen=True)
class Law:
    """x = mean + factor t, t ~ N(0, I). mean: (B, n), factor: (B, n, n)."""

    mean: Array
    factor: Array

    @property
    def dim(self) -> int:
        """n."""
        return int(self.mean.shape[1])

    @functools.cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each x_i the t_j that it depends on, for any batch point."""
        n = self.dim
        return tuple(tuple(j for j in range(n) if self.factor[:, i, j].any()) for i in range(n))

    def turned(self, rotation: Array) -> Law:
        """The same laws in rotated coordinates: t_old = rotation t_new."""
        # summed term by term: equal rows of the factor stay equal to the last bit
        parts = [self.factor[:, :, i, None] * rotation[:, None, i, :] for i in range(self.dim)]
        return Law(self.mean, functools.reduce(np.add, parts))

    def points(self, t: Sequence[Array], owner: Index) -> list[Array]:
        """x_i from t_j, each (rows, nodes), (rows, 1) or (1, nodes)."""
        mean, factor = self.mean[owner], self.factor[owner]
        return [
            functools.reduce(np.add, (factor[:, i, j, None] * t[j] for j in reads), mean[:, i, None])
            for i, reads in enumerate(self.reads)
        ]


def factorise(cov: Array) -> tuple[Array, NDArray[np.bool_]]:
    """L with L L^T = cov, and whether cov is positive semidefinite; cov: (B, n, n) -> (B, n, n), (B,).

    The largest remaining variance is eliminated first, so that a covariance of any rank is reproduced to
    rounding, and rows of equal variables stay equal.
    """
    rest = np.array(cov, dtype=float)
    batch, n, _ = rest.shape
    if n == 1:
        return np.sqrt(np.maximum(rest, 0.0)), np.isfinite(rest[:, 0, 0]) & (rest[:, 0, 0] >= -1e-12)
    scale = np.maximum(np.abs(np.diagonal(rest, axis1=1, axis2=2)).max(axis=1), 1e-300)
    factor = np.zeros_like(rest)
    rows = np.arange(batch)
    for k in range(n):
        pivot = np.argmax(np.diagonal(rest, axis1=1, axis2=2), axis=1)
        variance = rest[rows, pivot, pivot]
        positive = variance > 4e-16 * n * scale
        root = np.sqrt(np.where(positive, variance, 1.0))
        column = np.where(positive[:, None], rest[rows, :, pivot] / root[:, None], 0.0)
        factor[:, :, k] = column
        rest -= column[:, :, None] * column[:, None, :]
        done = rows[positive]
        rest[done, pivot[positive], :] = 0.0
        rest[done, :, pivot[positive]] = 0.0
    # 1e-12: a variance such as 1 - m^2 that rounding made negative is zero
    valid = np.isfinite(cov).all(axis=(1, 2)) & (np.abs(rest).max(axis=(1, 2)) <= 1e-10 * scale + 1e-12)
    return factor, valid
