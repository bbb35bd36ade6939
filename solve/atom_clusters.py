"""Many atoms seen from far: clusters of them replaced by the Gauss rules of their own moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solve.nodes import Array

__all__ = ["ClusterTree", "Index", "Sources", "gauss_rules"]

Index: TypeAlias = NDArray[np.intp]
_WIDTH = 12  # points of a rule: exact for the moments up to 23
_FAR = 2.6  # radii: integrands are analytic in an ellipse of semi-axes' sum 5, the rule errs by about 5^-24
_REMOTE = 5.0  # radii of a group: from there on its atoms are a power series
_ORDER = 24  # of that series: 5^-24
_ROWS = 64
_LEAF = 3 * _WIDTH
_CHUNK = 60_000  # numbers in one temporary array, for the cache


def gauss_rules(x: Array, mass: Array, n: int) -> tuple[Array, Array]:
    """Nodes and weights (rows, n) with the moments 0 .. 2 n - 1 of each row of points x in [-1, 1]: (rows, points).

    Lanczos' recurrence with full orthogonalisation; rows of fewer than n points get weights zero.
    """
    total = mass.sum(axis=1)
    q = np.sqrt(mass / total[:, None])
    basis = np.zeros((*x.shape, n))
    alpha, beta = np.zeros((len(x), n)), np.zeros((len(x), n))
    for k in range(n):
        basis[:, :, k] = q
        q = x * q
        alpha[:, k] = (basis[:, :, k] * q).sum(axis=1)
        for _ in range(2):
            q = q - np.matmul(basis, np.matmul(basis.transpose(0, 2, 1), q[:, :, None]))[..., 0]
        norm = np.sqrt((q * q).sum(axis=1))
        beta[:, k] = np.where(norm > 1e-14, norm, 0.0)
        q = q * np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 1e-14)[:, None]
    jacobi = np.zeros((len(x), n, n))
    i = np.arange(n)
    jacobi[:, i, i] = alpha
    jacobi[:, i[1:], i[:-1]] = jacobi[:, i[:-1], i[1:]] = beta[:, :-1]
    nodes, vectors = np.linalg.eigh(jacobi)
    return nodes, vectors[:, 0, :] ** 2 * total[:, None]


@dataclass(frozen=True)
class Sources:
    """What each group of points sees, blocks of points with masses: shift = anchor less point, (groups, sources).

    remote: the Stieltjes transform of the rest about a point of each group, sum_k remote[:, k] zeta^k with
    zeta = (offset - middle + i v)/radius, |zeta| <= 1; empty where there is no rest.
    """

    shift: Array
    mass: Array
    remote: Array
    middle: Array
    radius: Array

    def chunks(self, points: int) -> Iterator[tuple[slice, Array, Array]]:
        """(rows, shift, mass) for groups of so many points, within the memory of a temporary."""
        step = max(1, _CHUNK // max(1, points * self.shift.shape[1]))
        for start in range(0, len(self.shift), step):
            rows = slice(start, start + step)
            yield rows, self.shift[rows], self.mass[rows]


@dataclass(frozen=True)
class _Level:
    """Cells of equal numbers of atoms: centre, radius, and the first of each cell's blocks."""

    centre: Array
    radius: Array
    block: Index


@dataclass(frozen=True)
class ClusterTree:
    """Distinct points, ascending, with their masses, in halved cells down to at most 36 points."""

    points: Array
    masses: Array

    @cached_property
    def depth(self) -> int:
        """Of the tree; 0 where all points are always taken one by one."""
        depth = 0
        while (len(self.points) >> depth) > _LEAF - 1:
            depth += 1
        return depth

    @cached_property
    def _built(self) -> tuple[list[_Level], Array, Array, Array]:
        """Levels from the root to the leaves, and of all blocks origin (blocks,), position less origin, and mass."""
        x, m, n = self.points, self.masses, len(self.points)
        bounds = (np.arange(2**self.depth + 1) * n) >> self.depth
        place = bounds[:-1, None] + np.arange(_LEAF)
        real = place < bounds[1:, None]
        place = np.minimum(place, bounds[1:, None] - 1)
        origin = x[bounds[:-1]]
        rest, mass = x[place] - origin[:, None], np.where(real, m[place], 0.0)
        blocks = [(np.repeat(origin, 3), rest.reshape(-1, _WIDTH), mass.reshape(-1, _WIDTH))]
        count = 3 * len(origin)
        levels: list[_Level] = [_Level(origin, np.zeros_like(origin), 3 * np.arange(len(origin)))]
        for level in range(self.depth, -1, -1):
            if level < self.depth:
                bounds = bounds[::2]
                shift = origin[1::2] - origin[::2]
                rest = np.concatenate([rest[::2], rest[1::2] + shift[:, None]], axis=1)
                mass, origin = np.concatenate([mass[::2], mass[1::2]], axis=1), origin[::2]
            radius = (x[bounds[1:] - 1] - origin) / 2
            scale = np.where(radius > 0, radius, 1.0)[:, None]
            nodes, mass = gauss_rules(rest / scale - 1, mass, _WIDTH)
            rest = (nodes + 1) * scale
            blocks.append((origin, rest, mass))
            levels.append(_Level(origin + radius, radius, count + np.arange(len(origin))))
            count += len(origin)
        blocks.append((x[:1] - 1 - 2 * (x[-1:] - x[:1]), np.zeros((1, _WIDTH)), np.zeros((1, _WIDTH))))  # padding
        first, rests, masses = (np.concatenate([b[i] for b in blocks]) for i in range(3))
        return levels[::-1], first, rests, masses

    def sources(self, anchor: Array, low: Array, high: Array, v_low: Array, v_high: Array) -> Sources:
        """For points z = u + i v with u in anchor + [low, high], v_low <= v <= v_high, all arrays (groups,)."""
        middle = (low + high) / 2
        radius = np.maximum(np.hypot((high - low) / 2, v_high), 1e-12 * (self.points[-1] - self.points[0]))
        if not self.depth:
            shift = anchor[:, None] - self.points
            return Sources(shift, np.broadcast_to(self.masses, shift.shape), shift[:, :0], middle, radius)
        levels, origin, rest, _ = self._built
        group, block = self._seen(levels, anchor + middle, (high - low) / 2, v_low)
        start = (anchor[group] - origin[block]) + middle[group]
        apart = np.maximum(np.maximum(rest[block, 0] - start, start - rest[block, -1]), 0.0)
        far = apart >= _REMOTE * radius[group]
        shift, masses = self._gathered(anchor, group[~far], block[~far])
        coefficients = np.zeros((len(anchor), _ORDER))
        for i in range(0, len(anchor), _ROWS):
            some = far & (group >= i) & (group < i + _ROWS)
            rows = slice(i, i + _ROWS)
            d, m = self._gathered(anchor[rows], group[some] - i, block[some])
            ratio = radius[rows, None] / (d + middle[rows, None])
            m = m * ratio / radius[rows, None]  # mass/(c - s)
            for k in range(_ORDER):
                coefficients[rows, k] = m.sum(axis=1)
                m *= -ratio
        return Sources(shift, masses, coefficients, middle, radius)

    def _gathered(self, anchor: Array, group: Index, block: Index) -> tuple[Array, Array]:
        """Anchor less point, and mass, (groups, sources), of pairs (group, block), padded by masses of zero."""
        _, origin, rest, mass = self._built
        counts = np.bincount(group, minlength=len(anchor))
        order = np.argsort(group, kind="stable")
        group, block = group[order], block[order]
        table = np.full((len(anchor), counts.max(initial=0)), len(origin) - 1)
        table[group, np.arange(len(group)) - (np.cumsum(counts) - counts)[group]] = block
        shift = (anchor[:, None] - origin[table])[:, :, None] - rest[table]
        seen = len(anchor), table.shape[1] * _WIDTH
        return shift.reshape(seen), mass[table].reshape(seen)

    def _seen(self, levels: list[_Level], middle: Array, half: Array, v_low: Array) -> tuple[Index, Index]:
        """Pairs (group, block): from the root down, a cell is one block where it is far from all of the group."""
        group: Index = np.arange(len(middle))
        cell: Index = np.zeros(len(middle), dtype=np.intp)
        groups: list[Index] = []
        blocks: list[Index] = []
        *inner, leaves = levels
        for level in inner:
            gap = np.maximum(np.abs(middle[group] - level.centre[cell]) - half[group], 0.0)
            far = gap**2 + v_low[group] ** 2 >= (_FAR * level.radius[cell]) ** 2
            groups.append(group[far])
            blocks.append(level.block[cell[far]])
            group, cell = group[~far], cell[~far]
            if level is not inner[-1]:
                group, cell = np.repeat(group, 2), (2 * cell[:, None] + np.arange(2)).ravel()
        groups.append(np.repeat(group, 3))
        blocks.append((leaves.block[cell][:, None] + np.arange(3)).ravel())
        return np.concatenate(groups), np.concatenate(blocks)
