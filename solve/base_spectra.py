"""Laws of eigenvalues that can be convolved with a semicircle: what the convolution asks of them.

With z = u + i v, v >= 0, and w = v^2 the integrals over a law mu of eigenvalues s are

    F = integral mu(ds)/|z - s|^2,  F2 = integral mu(ds)/|z - s|^4,  D = integral (u - s) mu(ds)/|z - s|^4,

and the real part of G(z) = integral mu(ds)/(z - s). All but the last two are sums of positive terms, so that none
loses digits as v goes to zero, where -Im G/v would. A point u is given as an anchor, one of the end points of the
support, and an offset from it: beside an eigenvalue of 300 a band of width 1e-6 still has all its digits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from solve.atom_clusters import ClusterTree, Index, Sources
from solve.nodes import Array

__all__ = ["AbstractBase", "AbstractField", "AtomicBase", "Index", "Kernel", "WishartBase"]

_WEIGHT_TOLERANCE = 1e-9
_LEAST = 0.1  # of the width of the narrowest band: below, no cluster is small enough


class Kernel(NamedTuple):
    """The four integrals at given points: F, F2, D and Re G of the module's docstring."""

    f: Array
    f2: Array
    d: Array
    g: Array


class AbstractField(ABC):
    """The integrals at points near those that it was made for. Shapes: offset and w (groups, points)."""

    @abstractmethod
    def slopes(self, offset: Array, w: Array) -> tuple[Array, Array]:
        """F and F2."""

    @abstractmethod
    def kernel(self, offset: Array, w: Array) -> Kernel: ...

    @abstractmethod
    def argument(self, offset: Array, w: Array) -> Array:
        """integral arg(z - s) mu(ds), between 0 (far right) and pi (far left)."""


class AbstractBase(ABC):
    """A law of eigenvalues with bounded support."""

    anchors: Array  # the end points of the support's components, ascending; of an atom both are one
    components: Index  # (n, 2): the anchors of the two ends of each component, ascending
    order: int  # nodes a panel
    near: int  # points in a group, a divisor of the order
    ripples: bool  # v(u) may oscillate many times in a panel

    @abstractmethod
    def field(self, anchor: Index, low: Array, high: Array, v_low: Array, v_high: Array) -> AbstractField:
        """For groups of points in [low, high] off the anchor with v_low <= v <= v_high: all arrays (groups,)."""

    @abstractmethod
    def reach(self, t: float) -> Array:
        """(n, 2): lower bounds of the distance from each component's ends to where F(u, 0) = 1/t, without a gap."""

    @abstractmethod
    def bounds(self, t: float, anchor: Index, offset: Array) -> tuple[Array, Array]:
        """Bounds (groups,) of v where F = 1/t, for the fields of those groups; loose where none are needed."""

    @property
    @abstractmethod
    def atoms(self) -> tuple[Array, Array]:
        """Positions and masses of the atoms."""

    @abstractmethod
    def moments(self, n: int) -> Array:
        """E s^k, k = 0 .. n."""

    @property
    def mean(self) -> float:
        return float(self.moments(1)[1])

    @property
    def second_moment(self) -> float:
        return float(self.moments(2)[2])

    @property
    def support(self) -> Array:
        """(n, 2): the components of the support, an atom by itself being one of length zero."""
        return self.anchors[self.components]

    def nearest(self, position: Array) -> Index:
        """The anchor nearest to each position."""
        if len(self.anchors) == 1:
            return np.zeros(position.shape, dtype=np.intp)
        right = np.clip(np.searchsorted(self.anchors, position), 1, len(self.anchors) - 1)
        nearer_left = position - self.anchors[right - 1] < self.anchors[right] - position
        return right - nearer_left

    def stieltjes(self, z: complex) -> complex:
        """G(z) = integral mu(ds)/(z - s); Im z != 0, or z off the support."""
        anchor = self.nearest(np.array([z.real]))
        offset, v = z.real - self.anchors[anchor], np.array([abs(z.imag)])
        at = self.field(anchor, offset, offset, v, v).kernel(offset[:, None], v[:, None] ** 2)
        return complex(at.g[0, 0], -z.imag * at.f[0, 0])


def _positive(name: str, value: float) -> float:
    value = float(value)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; it must be a finite number above zero.")
    return value


# ------------------------------------------------------------------------------------------------ Wishart


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
        return _WishartField(b, share, self.anchors[a], from_low[a], from_high[a])


class _Omega(NamedTuple):
    """|omega|^2 = y as 1 + excess, sinh^2 of log |omega|, |b + omega|^2, and the slope's denominator."""

    y: Array
    excess: Array
    sinh2: Array
    modulus: Array
    root: Array


@dataclass(frozen=True)
class _WishartField(AbstractField):
    b: float
    share: float  # of the continuous part
    zero: Array  # anchor less 0, less the lower end, less the upper end
    low: Array
    high: Array

    def _omega(self, offset: Array, w: Array) -> _Omega:
        # with X = z - b - 1/b: 4 S^2 + (4 - X^2 - w) S - w = 0, S = sinh^2 log |omega|
        p = self.low + offset
        excess = p * (self.high + offset) + w
        root = np.sqrt(excess * excess + 16 * w)
        sinh2 = np.where(excess > 0, (excess + root) / 8, 2 * w / np.maximum(root - excess, 1e-300))
        s = np.sqrt(sinh2)
        more = 2 * s * (s + np.sqrt(1 + sinh2))
        y = 1 + more
        # |b + omega|^2 = ((y - b)^2 + y (1 - b)^2 + 2 b p y)/(1 + y), p = u less the lower end
        b = self.b
        modulus = ((more + (1 - b)) ** 2 + y * ((1 - b) ** 2 + 2 * b * p)) / (1 + y)
        return _Omega(y, more, sinh2, modulus, root)

    def _continuous(self, offset: Array, w: Array) -> tuple[_Omega, Array, Array, Array]:
        """omega and F, F2, D without the atom: phi = 1/F = (1 - 1/y) |b + omega|^2 differentiated in w and u."""
        at = self._omega(offset, w)
        p, b, y = self.low + offset, self.b, at.y
        x = p - 2
        phi = at.excess / y * at.modulus
        by_y = at.modulus / y**2 + at.excess / y * (1 + 2 * b * x / (1 + y) ** 2)
        y_by_s = y / np.sqrt(at.sinh2 * (1 + at.sinh2))
        by_w = by_y * y_by_s * (1 + at.sinh2) / at.root
        by_u = by_y * y_by_s * 2 * x * at.sinh2 / at.root + 2 * b * at.excess / (1 + y)
        f = 1 / phi
        return at, f, by_w * f * f, 0.5 * by_u * f * f

    def slopes(self, offset: Array, w: Array) -> tuple[Array, Array]:
        _, f, f2, _ = self._continuous(offset, w)
        if self.share == 1:
            return f, f2
        r = 1 / ((self.zero + offset) ** 2 + w)
        return self.share * f + (1 - self.share) * r, self.share * f2 + (1 - self.share) * r * r

    def kernel(self, offset: Array, w: Array) -> Kernel:
        at, f, f2, d = self._continuous(offset, w)
        p, b = self.low + offset, self.b
        g = ((b - 1) + (p * at.y - at.excess) / (1 + at.y)) / at.modulus
        if self.share == 1:
            return Kernel(f, f2, d, g)
        u, c, m = self.zero + offset, self.share, 1 - self.share
        r = 1 / (u * u + w)
        return Kernel(c * f + m * r, c * f2 + m * r * r, c * d + m * u * r * r, c * g + m * u * r)

    def argument(self, offset: Array, w: Array) -> Array:
        # integral log(z - s) = (1 - k) log(b + omega) + k log(omega) + sqrt(k)/omega
        at = self._omega(offset, w)
        b, k = self.b, 1 / self.b**2
        re = (self.low + offset - 2) * at.y / (1 + at.y)
        im = np.sqrt(w) * at.y / at.excess
        found = (1 - k) * np.arctan2(im, b + re) + k * np.arctan2(im, re) - im / (b * at.y)
        atom = np.arctan2(np.sqrt(w), self.zero + offset)
        total: Array = self.share * found + (1 - self.share) * atom
        return total


# ------------------------------------------------------------------------------------------------ atoms


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
        return _AtomicField(self._tree.sources(self.points[anchor], low, high, v_low, v_high))


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


@dataclass(frozen=True)
class _AtomicField(AbstractField):
    sources: Sources

    def slopes(self, offset: Array, w: Array) -> tuple[Array, Array]:
        f, f2 = np.empty_like(offset), np.empty_like(offset)
        for rows, shift, mass in self.sources.chunks(offset.shape[1]):
            d = shift[:, None, :] + offset[rows, :, None]
            q = 1 / (d * d + w[rows, :, None])
            f[rows] = np.matmul(q, mass[:, :, None])[..., 0]
            q *= q
            f2[rows] = np.matmul(q, mass[:, :, None])[..., 0]
        if self.sources.remote.size:
            more = self._remote(offset, w)
            f += more.f
            f2 += more.f2
        return f, f2

    def kernel(self, offset: Array, w: Array) -> Kernel:
        out = Kernel(*(np.empty_like(offset) for _ in range(4)))
        for rows, shift, mass in self.sources.chunks(offset.shape[1]):
            m = mass[:, :, None]
            d = shift[:, None, :] + offset[rows, :, None]
            q = 1 / (d * d + w[rows, :, None])
            dq = d * q
            for to, value in zip(out, (q, q * q, dq * q, dq), strict=True):
                to[rows] = np.matmul(value, m)[..., 0]
        if not self.sources.remote.size:
            return out
        return Kernel(*(a + b for a, b in zip(out, self._remote(offset, w), strict=True)))

    def _remote(self, offset: Array, w: Array) -> Kernel:
        """Of zeta^k = a_k + i y b_k, y = Im zeta: F = -sum_k c_k b_k and its derivatives, by the recurrence in k."""
        s = self.sources
        r = s.radius[:, None]
        x, square = (offset - s.middle[:, None]) / r, w / r**2
        size = x * x + square
        a, a_before = x, np.ones_like(x)
        b, b_before = np.ones_like(x), np.zeros_like(x)
        slope, slope_before = np.zeros_like(x), np.zeros_like(x)  # of b in y^2
        g = s.remote[:, :1] + s.remote[:, 1:2] * x
        f = s.remote[:, 1:2] * b
        f2, d = np.zeros_like(x), np.zeros_like(x)
        for k in range(2, s.remote.shape[1]):
            c = s.remote[:, k : k + 1]
            d += (k * c) * b
            slope, slope_before = 2 * x * slope - size * slope_before - b_before, slope
            b, b_before = 2 * x * b - size * b_before, b
            a, a_before = 2 * x * a - size * a_before, a
            g += c * a
            f += c * b
            f2 += c * slope
        return Kernel(-f / r, f2 / r**3, d / (2 * r**2), g)

    def argument(self, offset: Array, w: Array) -> Array:
        out = np.empty_like(offset)
        for rows, shift, mass in self.sources.chunks(offset.shape[1]):
            d = shift[:, None, :] + offset[rows, :, None]
            out[rows] = np.matmul(np.arctan2(np.sqrt(w)[rows, :, None], d), mass[:, :, None])[..., 0]
        return out
