"""Regions of R^n in which unknowns live: a box from the domains of quantities, and a disc of overlaps."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

from solve.result import Array

__all__ = ["AbstractRegion", "Box", "Disc"]

_TO_THE_EDGE = 0.9  # share of the way to an edge that a step beyond it is shortened to
_RIM = 1e-10  # a rim is curved: h^2 outside of it, for a difference of step h along it, is still on it


class AbstractRegion(abc.ABC):
    """A region of R^n. Points are x: (n,) or (n, *B)."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """n."""

    @property
    @abc.abstractmethod
    def diameter(self) -> float:
        """The largest side."""

    @abc.abstractmethod
    def contains(self, x: Array, slack: float = 0.0) -> NDArray[np.bool_]:
        """Whether x: (n, *B) lies in the region, enlarged by `slack` diameters -> (*B)."""

    @abc.abstractmethod
    def starts(self, count: int) -> Array:
        """About `count` points spread over the region, edges included: (n, B)."""

    @abc.abstractmethod
    def inwards(self, x: Array, fraction: float) -> Array:
        """x: (n,) moved towards the middle by that fraction of the way."""


@dataclass(frozen=True, eq=False)
class Box(AbstractRegion):
    """low <= x <= high, with < where an end is open; arrays (n,), ends may be infinite."""

    low: Array
    high: Array
    low_open: NDArray[np.bool_]
    high_open: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not np.all(self.low <= self.high):
            raise ValueError(f"Box: low must not exceed high, got low = {self.low} and high = {self.high}.")

    @staticmethod
    def closed(low: ArrayLike, high: ArrayLike) -> Box:
        """The closed box with these ends, scalars or (n,)."""
        a, b = (np.atleast_1d(np.asarray(e, dtype=float)) for e in (low, high))
        a, b = (np.array(e) for e in np.broadcast_arrays(a, b))
        never = np.zeros(a.shape, dtype=bool)
        return Box(a, b, never, never)

    @staticmethod
    def of(domains: Sequence[sp.Set]) -> Box:
        """The box of these one-dimensional sets; of a set with holes, the hull."""
        low, high, low_open, high_open = zip(*map(_ends, domains), strict=True)
        return Box(np.array(low), np.array(high), np.array(low_open), np.array(high_open))

    @property
    def dimension(self) -> int:
        return self.low.size

    @property
    def diameter(self) -> float:
        return float(np.max(self.high - self.low))

    def contains(self, x: Array, slack: float = 0.0) -> NDArray[np.bool_]:
        wide = slack * self.diameter if slack and np.isfinite(self.diameter) else 0.0
        column = (self.dimension,) + (1,) * (x.ndim - 1)
        low, high = (self.low - wide).reshape(column), (self.high + wide).reshape(column)
        strict = slack == 0
        above = (x > low) | ((x == low) & ~(self.low_open & strict).reshape(column))
        below = (x < high) | ((x == high) & ~(self.high_open & strict).reshape(column))
        inside: NDArray[np.bool_] = np.all(above & below, axis=0)
        return inside

    def shorten(self, x: Array, step: Array) -> Array:
        """The longest part of `step` from x: (n,) that stays inside, short of an edge that it would cross.

        A component that points out of the closed end on which it lies is dropped.
        """
        resting = ((x == self.low) & (step < 0)) | ((x == self.high) & (step > 0))
        step = np.where(resting, 0.0, step)
        room = np.where(step > 0, self.high - x, np.where(step < 0, x - self.low, np.inf))
        is_open = np.where(step > 0, self.high_open, self.low_open) & (step != 0)
        # x + step is what will be used, and it may round up to an open end that |step| < room clears
        beyond = (np.abs(step) > room) | (is_open & ((x + step <= self.low) | (x + step >= self.high)))
        if not beyond.any():
            return step
        shortened: Array = step * (_TO_THE_EDGE * np.min(room[beyond] / np.abs(step[beyond])))
        return shortened if self.contains(x + shortened) else np.zeros_like(step)  # no room between x and the edge

    def excludes(self, x: Array, error: float) -> bool:
        """Whether x: (n,) cannot be told from an open end, where nothing may lie."""
        low, high = self.low_open & (x - self.low <= error), self.high_open & (self.high - x <= error)
        return bool(np.any(low | high))

    def inside(self) -> Array:
        """A point in the interior: the middle, one unit from a single finite end, 1/2 if there is none."""
        low, high = self.low, self.high
        half_line = np.where(np.isfinite(low), low + 1, np.where(np.isfinite(high), high - 1, 0.5))
        both = np.isfinite(low) & np.isfinite(high)
        return np.where(both, (np.where(both, low, 0) + np.where(both, high, 0)) / 2, half_line)

    def starts(self, count: int) -> Array:
        if not np.all(np.isfinite(self.low) & np.isfinite(self.high)):
            raise ValueError(f"A search needs a bounded box, got low = {self.low}, high = {self.high}.")
        per_side = max(3, round(count ** (1 / self.dimension)))
        shrink = np.where(self.low_open | self.high_open, 1e-6, 0.0) * (self.high - self.low)
        sides = [np.linspace(a + s, b - s, per_side) for a, b, s in zip(self.low, self.high, shrink, strict=True)]
        return np.stack([g.ravel() for g in np.meshgrid(*sides, indexing="ij")])

    def inwards(self, x: Array, fraction: float) -> Array:
        return x + fraction * (self.inside() - x)


@dataclass(frozen=True)
class Disc(AbstractRegion):
    """|x| <= radius in R^n: where overlaps with orthonormal directions live."""

    n: int = 2
    radius: float = 1.0

    def __post_init__(self) -> None:
        if self.n < 1 or not self.radius > 0:
            raise ValueError(f"Disc: n >= 1 and radius > 0 are needed, got n = {self.n}, {self.radius}.")

    @property
    def dimension(self) -> int:
        return self.n

    @property
    def diameter(self) -> float:
        return 2 * self.radius

    def contains(self, x: Array, slack: float = 0.0) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = np.linalg.norm(x, axis=0) <= self.radius * (1 + _RIM + 2 * slack)
        return inside

    def starts(self, count: int) -> Array:
        cube = Box.closed(np.full(self.n, -self.radius), np.full(self.n, self.radius)).starts(count)
        # a cube's point goes to the sphere's point of its ray: the cube's surface becomes the rim
        length = np.linalg.norm(cube, axis=0)
        longest = np.max(np.abs(cube), axis=0)
        return cube * np.where(length > 0, longest / np.where(length > 0, length, 1), 1)

    def inwards(self, x: Array, fraction: float) -> Array:
        return (1 - fraction) * x


def _ends(domain: sp.Set) -> tuple[float, float, bool, bool]:
    ends: tuple[Any, Any] = (domain.inf, domain.sup)
    if not all(e.is_number for e in ends):
        raise ValueError(f"The domain {domain} has no numerical ends.")
    is_interval = isinstance(domain, sp.Interval)
    left, right = (bool(domain.left_open), bool(domain.right_open)) if is_interval else (False, False)
    return float(ends[0]), float(ends[1]), left, right
