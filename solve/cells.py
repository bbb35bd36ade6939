"""Cells of the unit cube: a first grid up to symmetry, and bisection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from flint import arb
from numpy.typing import NDArray

from solve.straightline import NotAffordable

__all__ = ["Axis", "Cells", "Symmetry", "first_cells", "joined"]

Array: TypeAlias = NDArray[np.float64]
Symmetry: TypeAlias = tuple[tuple[int, int], ...]  # ((place, sign), ..): x_i -> sign x_place
_LARGEST_FIRST_CUT = 2**21
_WIDEST = 2.2


@dataclass(frozen=True, slots=True)
class Axis:
    """x = start + width u, u in [0, 1]."""

    start: arb
    width: arb

    @property
    def first_cut(self) -> int:
        """The number of cells, a power of 2, of which none is wider than _WIDEST."""
        pieces = max(1.0, float(self.width.upper()) / _WIDEST)
        return 1 << math.ceil(math.log2(pieces))


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of the unit cube: centre and half-width, both exact, of shape (dim, n); each stands for `copies`."""

    centre: Array
    half: Array
    copies: Array

    def __len__(self) -> int:
        return int(self.centre.shape[1])

    def take(self, which: NDArray[Any]) -> Cells:
        return Cells(self.centre[:, which], self.half[:, which], self.copies[which])

    def bisected(self, direction: NDArray[np.int64]) -> Cells:
        n = np.arange(len(self))
        half = self.half.copy()
        half[direction, n] /= 2
        shift = np.zeros_like(half)
        shift[direction, n] = half[direction, n]
        return joined([Cells(self.centre + sign * shift, half, self.copies) for sign in (-1, 1)])


def joined(parts: Sequence[Cells]) -> Cells:
    """All cells of `parts`, in that order."""
    return Cells(
        np.concatenate([c.centre for c in parts], axis=1),
        np.concatenate([c.half for c in parts], axis=1),
        np.concatenate([c.copies for c in parts]),
    )


def first_cells(axes: Sequence[Axis], symmetries: Sequence[Symmetry]) -> Cells:
    """A grid of cells, one of each orbit of the group that the symmetries generate.

    Raises `NotAffordable` for more than 2^21 cells.
    """
    counts = [a.first_cut for a in axes]
    if math.prod(counts) > _LARGEST_FIRST_CUT:
        raise NotAffordable(f"{math.prod(counts)} cells to start with")
    index = np.stack([g.ravel() for g in np.meshgrid(*map(np.arange, counts), indexing="ij")])
    half = np.array([[0.5 / n] for n in counts])
    representative, copies = _orbits(index, counts, symmetries)
    index = index[:, representative]
    return Cells((2 * index + 1) * half, np.broadcast_to(half, index.shape).copy(), copies)


def _orbits(
    index: NDArray[np.int64], counts: list[int], symmetries: Sequence[Symmetry]
) -> tuple[NDArray[np.int64], Array]:
    """One cell of each orbit of the group that the symmetries generate, and the sizes of the orbits."""
    label = np.arange(index.shape[1])
    images = [_image(index, counts, s) for s in symmetries]
    while True:
        lowest = np.minimum.reduce([label, *(label[image] for image in images)])
        if (lowest == label).all():
            break
        label = lowest
    representative, copies = np.unique(label, return_counts=True)
    return representative, copies.astype(float)


def _image(index: NDArray[np.int64], counts: list[int], symmetry: Symmetry) -> NDArray[np.int64]:
    moved = [index[j] if sign > 0 else counts[j] - 1 - index[j] for j, sign in symmetry]
    return np.asarray(np.ravel_multi_index(moved, counts), dtype=np.int64)
