"""Where on Biane's curve a position x lies: x(u) = u + t Re G(u + i v(u)) is increasing on the whole line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solve.atom_clusters import Index
from solve.band_panels import FULL, rule
from solve.nodes import Array
from solve.spectral_kernel import AbstractBase
from solve.subordination import Edges, on_curve

__all__ = ["Points", "points_at"]

_STEPS = 200
_NEWTON = 30
_TABLE = 32
_CLOSE = 1e-8


@dataclass(frozen=True)
class Points:
    """One a position: u = anchor + offset, v = 0 outside the bands, Re G(x); band: the last one that starts below."""

    band: Index
    anchor: Index
    offset: Array
    v: Array
    hilbert: Array


def points_at(base: AbstractBase, t: float, edges: Edges, x: Array) -> Points:
    """The points of the curve at positions x: (n,)."""
    low, high = (base.anchors[edges.anchor] + edges.x_offset).T
    band = np.searchsorted(low, x, side="right") - 1
    inside = (band >= 0) & (x < high[np.maximum(band, 0)])
    n = len(x)
    out = Points(band, np.zeros(n, dtype=np.intp), np.zeros(n), np.zeros(n), np.zeros(n))
    for rows, find in ((np.flatnonzero(inside), _inside), (np.flatnonzero(~inside), _outside)):
        if len(rows):
            found = find(base, t, edges, x[rows], band[rows])
            for to, value in zip((out.anchor, out.offset, out.v, out.hilbert), found, strict=True):
                to[rows] = value
    return out


_Found = tuple[Index, Array, Array, Array]


def _relative(base: AbstractBase, x: Array, anchor: Index) -> Array:
    return x - base.anchors[anchor]


def _outside(base: AbstractBase, t: float, edges: Edges, x: Array, band: Index) -> _Found:
    """Newton's method for u + t G0(u) = x, increasing in a gap, kept between its ends by bisection."""
    last = len(edges.anchor) - 1
    far = 2 * (np.abs(x).max() + np.abs(base.anchors).max() + 2 * t**0.5 + 1)
    below, above = np.maximum(band, 0), np.minimum(band + 1, last)
    # from the end whose anchor is the nearer
    lower_x = np.where(band >= 0, base.anchors[edges.anchor[below, 1]] + edges.x_offset[below, 1], -np.inf)
    upper_x = np.where(band < last, base.anchors[edges.anchor[above, 0]] + edges.x_offset[above, 0], np.inf)
    from_lower = x - lower_x < upper_x - x
    anchor = np.where(from_lower, edges.anchor[below, 1], edges.anchor[above, 0])
    low_end = base.anchors[edges.anchor[below, 1]] - base.anchors[anchor] + edges.offset[below, 1]
    high_end = base.anchors[edges.anchor[above, 0]] - base.anchors[anchor] + edges.offset[above, 0]
    low = np.where(band >= 0, low_end, -far)
    high = np.where(band < last, high_end, far)
    target = _relative(base, x, anchor)
    offset = np.clip(np.where(from_lower, low, high), -far, far)
    zero = np.zeros_like(offset)
    g = zero
    settled = np.zeros(len(x), dtype=bool)
    for _ in range(_STEPS):
        at = base.field(anchor, offset, offset, zero, zero).kernel(offset[:, None], zero[:, None])
        g = at.g[:, 0]
        if settled.all():
            return anchor, offset, zero, g
        residual = offset + t * g - target
        low, high = np.where(residual < 0, offset, low), np.where(residual >= 0, offset, high)
        slope = 1 - t * at.f[:, 0]
        step = -residual / np.where(slope > 0, slope, np.inf)
        new = offset + step
        fine = (new >= low) & (new <= high) & (slope > 0)
        new = np.where(fine, new, (low + high) / 2)
        settled = fine & (np.abs(step) <= _CLOSE * np.abs(new)) | (high - low <= 4e-16 * np.abs(high))
        offset = new
    return anchor, offset, zero, g


def _inside(base: AbstractBase, t: float, edges: Edges, x: Array, band: Index) -> _Found:
    """Newton's method for the complex z + t G0(z) = x from a table of each band, by bisection where it fails."""
    bands, place = np.unique(band, return_inverse=True)
    first, last = edges.anchor[bands].T
    low = edges.offset[bands, 0]
    high = edges.offset[bands, 1] + (base.anchors[last] - base.anchors[first])
    y = rule(_TABLE).below[FULL]
    table = on_curve(base, t, first, low[:, None] + (high - low)[:, None] * y)
    target = _relative(base, x, first[place])
    ends_x = np.stack([edges.x_offset[bands, 0], edges.x_offset[bands, 1] + (base.anchors[last] - base.anchors[first])])
    ends_u = np.stack([low, high])
    xs = np.concatenate([ends_x[:1].T, table.x_offset, ends_x[1:].T], axis=1)
    us = np.concatenate([ends_u[:1].T, table.offset, ends_u[1:].T], axis=1)
    vs = np.concatenate([0 * low[:, None], table.v, 0 * low[:, None]], axis=1)
    k = np.clip((xs[place] <= target[:, None]).sum(axis=1) - 1, 0, _TABLE)
    lo, hi = us[place, k], us[place, k + 1]
    part = np.clip((target - xs[place, k]) / (xs[place, k + 1] - xs[place, k]), 1e-12, 1 - 1e-12)
    offset = lo + part * (hi - lo)
    v = np.sqrt((1 - part) * vs[place, k] ** 2 + part * vs[place, k + 1] ** 2)
    anchor = base.nearest(base.anchors[first[place]] + offset)
    shift = base.anchors[first[place]] - base.anchors[anchor]
    lo, hi, offset, target = lo + shift, hi + shift, offset + shift, _relative(base, x, anchor)
    offset, v, g, good = _newton(base, t, anchor, target, lo, hi, offset, v)
    bad = np.flatnonzero(~good)
    if len(bad):
        offset[bad], v[bad], g[bad] = _bisected(base, t, anchor[bad], target[bad], lo[bad], hi[bad])
    return anchor, offset, v, g


def _newton(
    base: AbstractBase, t: float, anchor: Index, target: Array, low: Array, high: Array, offset: Array, v: Array
) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """offset, v, Re G, and where it converged, to a point of the curve between low and high."""
    settled = np.zeros(len(offset), dtype=bool)
    for _ in range(_NEWTON):
        at = base.field(anchor, offset, offset, v, v).kernel(offset[:, None], v[:, None] ** 2)
        f, f2, d, g = (a[:, 0] for a in at)
        if settled.all():
            break
        # z + t G0(z) = x, derivative 1 + t G0'(z) = 1 - t F + 2 t v^2 F2 + 2 i t v D
        re, im = target - offset - t * g, -v * (1 - t * f)
        a, b = 1 - t * f + 2 * t * v * v * f2, 2 * t * v * d
        size = a * a + b * b
        du, dv = (a * re + b * im) / size, (a * im - b * re) / size
        new_offset, new_v = np.clip(offset + du, low, high), np.maximum(v + dv, v / 8)
        settled = np.abs(new_offset - offset) + np.abs(new_v - v) <= _CLOSE * new_v
        offset, v = new_offset, new_v
    return offset, v, g, settled


def _bisected(
    base: AbstractBase, t: float, anchor: Index, target: Array, low: Array, high: Array
) -> tuple[Array, Array, Array]:
    """The same by a bracketed Newton's method in u alone, v(u) solved at each step."""
    offset = (low + high) / 2
    for _ in range(_STEPS):
        at = on_curve(base, t, anchor, offset[:, None])
        residual = at.x_offset[:, 0] - target
        low, high = np.where(residual < 0, offset, low), np.where(residual >= 0, offset, high)
        new = offset - residual / at.slope[:, 0]
        new = np.where((new >= low) & (new <= high), new, (low + high) / 2)
        close = (np.abs(new - offset) <= 1e-15 * np.abs(new)) | (high - low <= 4e-16 * np.abs(new)) | (residual == 0)
        if close.all():
            return offset, at.v[:, 0], at.hilbert[:, 0]
        offset = new
    return offset, at.v[:, 0], at.hilbert[:, 0]
