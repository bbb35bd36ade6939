"""Free additive convolution of a law of eigenvalues with a semicircle: mu_t = law of S0 + sqrt(t) Z, Z a GOE matrix.

By Biane's parametrisation (`solve.subordination`), never by an inversion at small imaginary parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from solve.atom_clusters import Index
from solve.band_panels import FULL, INNER, LEFT, RIGHT, Block, Panels, joined, moved, refine
from solve.free_cumulants import convolved_moments
from solve.nodes import Array
from solve.spectral_kernel import AbstractBase
from solve.subordination import Edges, edges
from solve.subordination_inverse import Points, points_at

__all__ = ["Convolved", "Nodes", "convolve"]

_REACHED = 1e-10
_STEPS = 100


@dataclass(frozen=True)
class Nodes:
    """Ascending x with sum(weight f(x)) = integral f dmu_t for f smooth between the breaks.

    hilbert = Re G(x), density = -Im G(x)/pi.
    error: the larger of the defects of mass and second moment, the latter relative to what is known exactly.
    """

    x: Array
    weight: Array
    hilbert: Array
    density: Array
    error: float


@dataclass(frozen=True)
class Convolved:
    """The law mu_t of S0 + sqrt(t) Z, S0 of the law `base`, Z of Wigner's semicircle law of variance 1."""

    base: AbstractBase
    t: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.t) and self.t > 0):
            raise ValueError(f"convolve: the variance t is {self.t}; it must be a finite number above zero.")

    @cached_property
    def _edges(self) -> Edges:
        return edges(self.base, self.t)

    @cached_property
    def _band_x(self) -> Array:
        return self.base.anchors[self._edges.anchor] + self._edges.x_offset

    @property
    def edges(self) -> list[tuple[float, float]]:
        """The bands of the support, ascending."""
        return [(float(a), float(b)) for a, b in self._band_x]

    @property
    def mean(self) -> float:
        return self.base.mean

    @property
    def second_moment(self) -> float:
        return self.base.second_moment + self.t

    def moments(self, n: int) -> Array:
        """E x^k, k = 0 .. n, from the free cumulants: t adds to the second."""
        return convolved_moments(self.base.moments(n), self.t)

    # -------------------------------------------------------------------------------- integrals

    def nodes(self, breaks: Sequence[float] = ()) -> Nodes:
        """Nodes whose panels end at the breaks, positions x; those outside the support change nothing."""
        blocks = refine(self.base, self.t, self._panels(breaks))
        x = np.concatenate([(self.base.anchors[b.curve.anchor][:, None] + b.curve.x_offset).ravel() for b in blocks])
        weight = np.concatenate([b.weight.ravel() for b in blocks])
        hilbert = np.concatenate([b.curve.hilbert.ravel() for b in blocks])
        density = np.concatenate([b.curve.v.ravel() for b in blocks]) / (np.pi * self.t)
        error = self._defect(blocks, x, weight)
        if not error < _REACHED:
            raise ArithmeticError(
                f"nodes: mass and second moment of the convolution at t = {self.t} are wrong by {error:.1e}, "
                f"more than {_REACHED}."
            )
        order = np.argsort(x, kind="stable")
        return Nodes(x[order], weight[order], hilbert[order], density[order], error)

    def _defect(self, blocks: list[Block], x: Array, weight: Array) -> float:
        second = self.second_moment
        return max(abs(math.fsum(weight) - 1), abs(math.fsum(weight * x * x) - second) / second)

    def _panels(self, breaks: Sequence[float]) -> Panels:
        e = self._edges
        cuts = self._cuts(breaks)
        kinds: list[Panels] = []
        cut_bands = np.unique(cuts.band)
        whole = np.setdiff1d(np.arange(len(e.anchor)), cut_bands)
        single = whole[e.anchor[whole, 0] == e.anchor[whole, 1]]
        several = whole[e.anchor[whole, 0] != e.anchor[whole, 1]]
        kinds.append(Panels(np.full(len(single), FULL), e.anchor[single, 0], *e.offset[single].T))
        middle = (e.offset[several].sum(axis=1) + self.base.anchors[e.anchor[several]].sum(axis=1)) / 2
        at = self.base.nearest(middle)
        kinds += self._ends(several, at, middle - self.base.anchors[at], several, at, middle - self.base.anchors[at])
        for band in cut_bands:
            rows = np.flatnonzero(cuts.band == band)
            first, last, b = rows[:1], rows[-1:], np.array([band])
            kinds += self._ends(b, cuts.anchor[first], cuts.offset[first], b, cuts.anchor[last], cuts.offset[last])
            low, high = rows[:-1], rows[1:]
            shift = self.base.anchors[cuts.anchor[high]] - self.base.anchors[cuts.anchor[low]]
            kinds.append(
                Panels(np.full(len(low), INNER), cuts.anchor[low], cuts.offset[low], cuts.offset[high] + shift)
            )
        return moved(self.base, joined(kinds))

    def _ends(self, left: Index, a: Index, xi_a: Array, right: Index, b: Index, xi_b: Array) -> list[Panels]:
        """From the lower edges of bands to points a + xi_a, and from points b + xi_b to the upper edges."""
        e, anchors = self._edges, self.base.anchors
        lower, upper = e.anchor[left, 0], e.anchor[right, 1]
        return [
            Panels(np.full(len(left), LEFT), lower, e.offset[left, 0], xi_a + (anchors[a] - anchors[lower])),
            Panels(np.full(len(right), RIGHT), upper, xi_b + (anchors[b] - anchors[upper]), e.offset[right, 1]),
        ]

    def _cuts(self, breaks: Sequence[float]) -> Points:
        """The breaks inside the bands, ascending; each a relative 1e-15 of the band from its edges at least."""
        x = np.unique(np.asarray(breaks, dtype=np.float64))
        if not np.isfinite(x).all():
            raise ValueError(f"nodes: the breaks {list(breaks)} must be finite.")
        low, high = self._band_x.T
        band = np.clip(np.searchsorted(low, x, side="right") - 1, 0, None)
        margin = 1e-15 * np.maximum(np.abs(low[band]), np.abs(high[band]))
        return points_at(self.base, self.t, self._edges, x[(x > low[band] + margin) & (x < high[band] - margin)])

    # -------------------------------------------------------------------------------- pointwise

    def _points(self, x: ArrayLike) -> tuple[Points, tuple[int, ...]]:
        array = np.asarray(x, dtype=np.float64)
        if not np.isfinite(array).all():
            raise ValueError("A position x is not finite.")
        return points_at(self.base, self.t, self._edges, array.ravel()), array.shape

    def density(self, x: ArrayLike) -> Array:
        """Of mu_t, v/(pi t)."""
        points, shape = self._points(x)
        found: Array = (points.v / (math.pi * self.t)).reshape(shape)
        return found

    def cdf(self, x: ArrayLike) -> Array:
        """mu_t((-inf, x]) = 1 - integral arg(z - s) mu(ds)/pi + v Re G(x)/pi, as G dx = d(log potential + t G^2/2)."""
        points, shape = self._points(x)
        offset, w = points.offset[:, None], points.v[:, None] ** 2
        field = self.base.field(points.anchor, points.offset, points.offset, points.v, np.full_like(points.v, np.inf))
        angle = field.argument(offset, w)[:, 0]
        found: Array = np.clip(1 - (angle - points.v * points.hilbert) / math.pi, 0.0, 1.0).reshape(shape)
        return found

    def mass(self, interval: tuple[float, float]) -> float:
        """Of the interval; its ends may be infinite."""
        ends = [float(e) for e in interval]
        if any(math.isnan(e) for e in ends) or ends[0] > ends[1]:
            raise ValueError(f"mass: the interval {interval} has its ends in the wrong order.")
        low, high = (float(e > 0) if math.isinf(e) else float(self.cdf(e)) for e in ends)
        return high - low

    def stieltjes_real(self, x: ArrayLike) -> Array:
        """Re G(x), G(x) = integral mu_t(dy)/(x - y), the principal value inside the support."""
        points, shape = self._points(x)
        return points.hilbert.reshape(shape)

    def expected_signal(self, x: ArrayLike) -> Array:
        """E[S0 | x] = 2 u - x, of the signal in the direction of an eigenvector with eigenvalue x."""
        points, shape = self._points(x)
        array = np.asarray(x, dtype=np.float64).ravel()
        found: Array = (array - 2 * self.t * points.hilbert).reshape(shape)
        return found

    def quantile(self, p: ArrayLike) -> Array:
        """The x with cdf(x) = p, 0 <= p <= 1; the lower of two where a gap separates them."""
        array = np.asarray(p, dtype=np.float64)
        if not ((array >= 0) & (array <= 1)).all():
            raise ValueError("quantile: p must lie in [0, 1].")
        masses, p = self._below, array.ravel()
        band = np.clip(np.searchsorted(masses[:, 1], p), 0, len(masses) - 1)
        low, high = self._band_x[band].T
        start = self.nodes()
        x = np.clip(np.interp(p, np.cumsum(start.weight) - start.weight / 2, start.x), low, high)
        x = np.where(p <= masses[band, 0], low, np.where(p >= masses[band, 1], high, x))
        rows = np.flatnonzero((x > low) & (x < high))
        if len(rows):
            x[rows] = self._newton(p[rows], x[rows], low[rows], high[rows])
        return x.reshape(array.shape)

    @cached_property
    def _below(self) -> Array:
        """cdf at the ends of the bands, (bands, 2)."""
        e = self._edges
        flat, anchor = e.offset.reshape(-1, 1), e.anchor.ravel()
        zero = np.zeros(len(flat))
        angle = self.base.field(anchor, flat[:, 0], flat[:, 0], zero, zero + np.inf).argument(flat, np.zeros_like(flat))
        found: Array = np.clip(1 - angle / math.pi, 0.0, 1.0).reshape(e.offset.shape)
        found[0, 0], found[-1, 1] = 0.0, 1.0
        return found

    def _newton(self, p: Array, x: Array, low: Array, high: Array) -> Array:
        """cdf(x) = p between low and high, by Newton's method that turns to bisection."""
        for _ in range(_STEPS):
            residual = self.cdf(x) - p
            low, high = np.where(residual < 0, x, low), np.where(residual >= 0, x, high)
            density = self.density(x)
            new = x - residual / np.where(density > 0, density, np.inf)
            new = np.where((new >= low) & (new <= high) & (density > 0), new, (low + high) / 2)
            moved_by, x = np.abs(new - x), new
            if ((moved_by <= 4e-15 * np.abs(x)) | (np.abs(residual) <= 4e-16)).all():
                return x
        raise ArithmeticError(f"quantile: not converged in {_STEPS} steps at t = {self.t}.")

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """n independent draws of mu_t."""
        return self.quantile(rng.random(n))


def convolve(base: AbstractBase, t: float) -> Convolved:
    """The free convolution of `base` with a semicircle of variance t > 0 (radius 2 sqrt(t))."""
    return Convolved(base, float(t))
