"""Biane's curve z = u + i v(u): where the free convolution of a law with a semicircle of variance t is real.

v(u) >= 0 solves F(u, v) = integral mu(ds)/((u - s)^2 + v^2) = 1/t, or is 0 where F(u, 0) <= 1/t. On the curve
x = u + t Re G(z), the density there is v/(pi t) and dx/du = 2 t (v^2 F2 + D^2/F2), all of it sums of positive terms
[Biane 1997, On the free convolution with a semi-circular distribution, Indiana Univ. Math. J. 46].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solve.atom_clusters import Index
from solve.nodes import Array
from solve.spectral_kernel import AbstractBase, Kernel

__all__ = ["Curve", "Edges", "edges", "on_curve"]

_STEPS = 100
_GROUPS = 1024  # solved at once, for the memory
_TINY = 1e-24
_ROUNDING = 3e-15
_OUTSIDE = 1e4  # t F(u, 0) below this: the point is outside the support of the law, and Newton from w = 0 is best
_CLOSE = 1e-8  # a relative step after which one more Newton step leaves rounding alone


@dataclass(frozen=True)
class Curve:
    """Points of the curve, (groups, points): u = anchor + offset, x = anchor + x_offset."""

    anchor: Index
    offset: Array
    v: Array
    x_offset: Array
    slope: Array  # dx/du
    hilbert: Array  # Re G(x)

    def __getitem__(self, rows: Index) -> Curve:
        return Curve(*(getattr(self, f)[rows] for f in ("anchor", "offset", "v", "x_offset", "slope", "hilbert")))


def on_curve(base: AbstractBase, t: float, anchor: Index, offset: Array) -> Curve:
    """The curve over u = anchor + offset; anchor: (groups,), offset: (groups, points), inside the bands."""
    shape = offset.shape
    points = base.near if shape[1] % base.near == 0 else shape[1]
    groups, near = np.repeat(anchor, shape[1] // points), offset.reshape(-1, points)
    parts = [_solved(base, t, groups[i : i + _GROUPS], near[i : i + _GROUPS]) for i in range(0, len(groups), _GROUPS)]
    w, *at = (np.concatenate(a).reshape(shape) for a in zip(*parts, strict=True))
    k = Kernel(*at)
    slope = 2 * t * (w * k.f2 + k.d * k.d / k.f2)
    return Curve(anchor, offset, np.sqrt(w), offset + t * k.g, slope, k.g)


def _solved(base: AbstractBase, t: float, anchor: Index, offset: Array) -> tuple[Array, ...]:
    """w = v^2 and the integrals there.

    1/F is concave and increasing in w, so that Newton's method stays left of the root once it is there.
    """
    v_low, v_high = base.bounds(t, anchor, offset)
    field = base.field(anchor, offset.min(axis=1), offset.max(axis=1), v_low, v_high)
    most = v_high[:, None] ** 2
    w = np.broadcast_to(np.maximum(v_low[:, None] ** 2, _TINY * t), offset.shape)
    f, f2 = field.slopes(offset, w)
    least = np.maximum(w, (t - 1 / f) * f * f / f2)  # left of the root
    w = np.where(t * f < _OUTSIDE, least, most)
    for _ in range(_STEPS):
        f, f2 = field.slopes(offset, w)
        residual = t - 1 / f
        step = residual * f * f / f2
        right = residual < 0
        least = np.where(right, least, np.maximum(least, w))
        # from the right also Newton's method for log(1/F) in log w, exact where 1/F is a power of w
        power = w * np.exp(np.clip(np.log(t * f) * f / (w * f2), -60.0, 60.0))
        new = np.minimum(np.maximum(w + step, np.where(right, np.maximum(power, least), least)), most)
        close = (np.abs(new - w) <= _CLOSE * new) | (np.abs(residual) <= _ROUNDING * t)
        w = new
        if close.all():
            break
    else:
        raise ArithmeticError(f"on_curve: v(u) did not converge at t = {t} in {_STEPS} Newton steps.")
    return w, *field.kernel(offset, w)


@dataclass(frozen=True)
class Edges:
    """Ends of the bands, (bands, 2): u = anchor + offset, x = anchor + x_offset."""

    anchor: Index
    offset: Array
    x_offset: Array


def edges(base: AbstractBase, t: float) -> Edges:
    """The bands {F(u, 0) > 1/t}: F(u, 0)^(-1/2) is concave in each gap of the support, a power mean of distances.

    Newton's method from either end of a gap therefore rises to its root, or meets a slope <= 0 or the other end
    where the gap has closed.
    """
    ends = base.components
    gap = np.diff(base.anchors[ends].ravel())[1::2]
    out = np.concatenate([gap, [np.inf]])  # room beyond the upper end of each component
    room = np.stack([np.concatenate([[np.inf], gap]), out], axis=1)
    room[np.concatenate([[False], _closed(base, t, gap)]), 0] = 0.0
    room[np.concatenate([_closed(base, t, gap), [False]]), 1] = 0.0
    distance = _distances(base, t, ends.ravel(), np.tile([-1.0, 1.0], len(ends)), room.ravel()).reshape(room.shape)
    found = np.isfinite(distance)
    is_open = found[:-1, 1] & found[1:, 0]
    is_open &= np.where(is_open, distance[:-1, 1] + distance[1:, 0], np.inf) < gap
    starts, stops = np.concatenate([[True], is_open]), np.concatenate([is_open, [True]])
    anchor = np.stack([ends[starts, 0], ends[stops, 1]], axis=1)
    offset = np.stack([-distance[starts, 0], distance[stops, 1]], axis=1)
    flat = offset.reshape(-1, 1)
    zero = np.zeros(len(flat))
    field = base.field(anchor.ravel(), flat[:, 0], flat[:, 0], zero, zero)
    g = field.kernel(flat, np.zeros_like(flat)).g.reshape(offset.shape)
    return Edges(anchor, offset, offset + t * g)


def _closed(base: AbstractBase, t: float, gap: Array) -> NDArray[np.bool_]:
    """Gaps that already the two atoms beside them close: min over u of m/(u - s)^2 + m'/(u - s')^2 > 1/t."""
    reach = base.reach(t)
    closed: NDArray[np.bool_] = np.cbrt(reach[:-1, 1] ** 2) + np.cbrt(reach[1:, 0] ** 2) > np.cbrt(gap**2)
    return closed


def _distances(base: AbstractBase, t: float, anchor: Index, side: Array, room: Array) -> Array:
    """From each anchor outwards to F = 1/t, nan where the gap has closed. All arrays (n,)."""
    rows = np.flatnonzero(base.reach(t).ravel() < room)
    found = np.full(len(anchor), np.nan)
    with np.errstate(all="ignore"):
        for i in range(0, len(rows), _GROUPS):
            some = rows[i : i + _GROUPS]
            found[some] = _climb(base, math.sqrt(t), anchor[some], side[some], room[some], base.reach(t).ravel()[some])
    return found


def _climb(base: AbstractBase, delta: float, anchor: Index, side: Array, room: Array, xi: Array) -> Array:
    found = np.full(len(anchor), np.nan)
    active = np.arange(len(anchor))
    done: NDArray[np.bool_] = np.zeros(len(anchor), dtype=bool)
    for _ in range(4 * _STEPS):
        if not len(active):
            return found
        offset = (side[active] * xi[active])[:, None]
        zero = np.zeros(len(active))
        field = base.field(anchor[active], offset[:, 0], offset[:, 0], zero, zero)
        at = field.kernel(offset, np.zeros_like(offset))
        mean = at.f[:, 0] ** -0.5
        slope = side[active] * at.d[:, 0] * at.f[:, 0] ** -1.5
        step = (delta - mean) / slope
        moved = np.where(mean > delta, np.maximum(xi[active] + step, xi[active] / 16), xi[active] + step)
        closed = (slope <= 0) | ~(moved < room[active])
        finished = done[active] & ~closed
        found[active[finished]] = moved[finished]
        done[active] = np.abs(moved - xi[active]) <= _CLOSE * moved
        xi[active] = moved
        active = active[~(closed | finished)]
    return found  # what is left touches its neighbour: closed to rounding
