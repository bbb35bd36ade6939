"""Panels for integrands with kinks on hyperplanes: iterated integrals, each split where the next is not smooth.

The standard coordinates are turned so that the k-th hyperplane reads the first k of them only. A hyperplane
whose last coordinate is t_j splits the integral over t_j at a point that depends on t_1 .. t_j-1. Where two
such points cross, the integral over t_j is not smooth in t_1 .. t_j-1: that crossing is a hyperplane in fewer
coordinates, which splits at the lower level. A hyperplane that is nearly parallel to the t_j axis is crossed
within a thin layer of the lower coordinates; the layer gets its own panels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solve.nodes import Array, normal_density

__all__ = ["CHUNK", "Index", "Panel", "Planes", "Unit", "levels", "sign_changes", "triangular", "walk"]

Index: TypeAlias = NDArray[np.intp]
CHUNK = 2**15
_NEGLIGIBLE = 1e-13
_LAYER_RATIO = 0.5
_SHORTEST = 1e-14
_SCAN = 512
_SCAN_SHIFT = 1e-3  # off the symmetric points, where functions like to vanish


@dataclass(frozen=True)
class Planes:
    """The zeros of slope . t + offset in the first j coordinates. slope: (B, S, j), offset: (B, S).

    Slopes have length one, or zero: no plane.
    """

    slope: Array
    offset: Array


@dataclass(frozen=True)
class Panel:
    """Rows of nodes: owner (R,), outer coordinates (R, dim - 1), innermost one and weights (R, nodes).

    left_out: (R, nodes), what a singular integrand may hold beyond the end of a panel, relative to its term here.
    """

    owner: Index
    outer: Array
    inner: Array
    weights: Array
    left_out: Array


def triangular(directions: Array) -> tuple[Array, Array]:
    """Turn the coordinates so that direction k has no component beyond the first k.

    directions: (B, D, n) -> turned directions (B, D, n) and rotation Q (B, n, n), t_old = Q t_new.
    """
    rotation, upper = np.linalg.qr(np.swapaxes(directions, 1, 2), mode="complete")
    turned = np.swapaxes(upper, 1, 2)
    size = np.linalg.norm(turned, axis=2, keepdims=True)
    turned[np.abs(turned) <= _NEGLIGIBLE * size] = 0.0
    return turned, rotation


def _unit(slope: Array, offset: Array, exists: NDArray[np.bool_]) -> Planes:
    """Scale to slopes of length one; remove the columns in which no plane exists."""
    size = np.linalg.norm(slope, axis=2)
    exists = exists & (size > _NEGLIGIBLE)
    keep = exists.any(axis=0)
    scale = np.where(exists, 1 / np.where(exists, size, 1.0), 0.0)[:, keep]
    return Planes(slope[:, keep] * scale[..., None], offset[:, keep] * scale)


def levels(slope: Array, offset: Array, first: tuple[int, ...], reach: float) -> tuple[Planes, ...]:
    """The splitting planes of each coordinate, outermost first.

    slope: (B, K, n), offset: (B, K), with plane k free of the coordinates beyond the first `first[k]`.
    """
    n = slope.shape[2]
    own = np.array(first, dtype=int)
    found: list[Planes] = []
    for j in range(n, 0, -1):
        mine = own == j
        slopes, offsets = [slope[:, mine, :j]], [offset[:, mine]]
        exists = [np.ones(offsets[0].shape, dtype=bool)]
        if found:
            for s, c, e in _inherited(found[-1], reach):
                slopes.append(s)
                offsets.append(c)
                exists.append(e)
        found.append(_unit(np.concatenate(slopes, 1), np.concatenate(offsets, 1), np.concatenate(exists, 1)))
    return tuple(_splitting(p) for p in reversed(found))


def _splitting(planes: Planes) -> Planes:
    """Without the planes that are parallel to the last coordinate for the whole batch."""
    keep = (np.abs(planes.slope[..., -1]) > _NEGLIGIBLE).any(axis=0)
    return Planes(planes.slope[:, keep], planes.offset[:, keep])


def _inherited(planes: Planes, reach: float) -> Iterator[tuple[Array, Array, NDArray[np.bool_]]]:
    """The planes in one coordinate less across which the integral over the last one is not smooth."""
    last, lower = planes.slope[..., -1], planes.slope[..., :-1]
    flat = np.abs(last) <= _NEGLIGIBLE
    layered = ~flat & (np.abs(last) < _LAYER_RATIO * np.linalg.norm(lower, axis=2))
    yield lower, planes.offset, flat | layered
    yield lower, planes.offset - reach * last, layered
    yield lower, planes.offset + reach * last, layered
    pairs = list(itertools.combinations(range(last.shape[1]), 2))
    if pairs:
        a, b = (np.array(side) for side in zip(*pairs, strict=True))
        slope = last[:, b, None] * lower[:, a] - last[:, a, None] * lower[:, b]
        offset = last[:, b] * planes.offset[:, a] - last[:, a] * planes.offset[:, b]
        yield slope, offset, ~flat[:, a] & ~flat[:, b]


@dataclass(frozen=True)
class Unit:
    """A rule on [0, 1]: nodes u and 1 - u, weights, and what is left out beyond them as in `Panel`."""

    from_low: Array
    from_high: Array
    weights: Array
    left_out: Array


def walk(planes: tuple[Planes, ...], split: Unit, whole: Unit, reach: float) -> Iterator[Panel]:
    """The nodes of the iterated integral of the normal density over the ball of radius `reach`, in chunks.

    split: the rule for a panel between planes; whole: the rule where a coordinate has no planes.
    """
    batch = planes[0].slope.shape[0]
    start = Panel(np.arange(batch), np.empty((batch, 0)), np.empty(0), np.ones(batch), np.zeros(batch))
    yield from _walk(planes, split, whole, reach, start)


def _walk(planes: tuple[Planes, ...], split: Unit, whole: Unit, reach: float, start: Panel) -> Iterator[Panel]:
    """`start`: the coordinates so far are `outer`; weights and left_out are (R,)."""
    here, below = planes[0], planes[1:]
    unit = split if here.slope.shape[1] else whole
    step = max(1, CHUNK // ((2 + here.slope.shape[1]) * unit.weights.size))
    for i in range(0, len(start.owner), step):
        panel = _panel(here, unit, reach, start, slice(i, i + step))
        if not below:
            yield panel
            continue
        count = panel.inner.shape[1]
        outer = np.concatenate([np.repeat(panel.outer, count, axis=0), panel.inner.reshape(-1, 1)], axis=1)
        inside = Panel(np.repeat(panel.owner, count), outer, panel.inner, panel.weights.ravel(), panel.left_out.ravel())
        yield from _walk(below, split, whole, reach, inside)


def _panel(planes: Planes, unit: Unit, reach: float, start: Panel, part: slice) -> Panel:
    owner, outer = start.owner[part], start.outer[part]
    limit = np.sqrt(np.maximum(reach**2 - (outer**2).sum(axis=1), _SHORTEST))[:, None]
    slope = planes.slope[owner]
    last = slope[..., -1]
    splits = np.abs(last) > _NEGLIGIBLE
    height = planes.offset[owner] + (slope[..., :-1] * outer[:, None, :]).sum(axis=2)
    root = np.where(splits, -height / np.where(splits, last, 1.0), limit)
    centre = [np.zeros_like(limit)] if slope.shape[1] else []
    ends = [-limit, *centre, limit, np.clip(root, -limit, limit)]
    edges = np.sort(np.concatenate(ends, axis=1), axis=1)
    row, number = np.nonzero(np.diff(edges, axis=1) > _SHORTEST)
    low, high = edges[row, number, None], edges[row, number + 1, None]
    # counted from the nearer end, where the integrand may be singular
    t = np.where(unit.from_low < 0.5, low + (high - low) * unit.from_low, high - (high - low) * unit.from_high)
    w = (start.weights[part][row, None] * (high - low)) * unit.weights * normal_density(t)
    return Panel(owner[row], outer[row], t, w, start.left_out[part][row, None] + unit.left_out)


def sign_changes(functions: Callable[[Array, Index], list[Array]], batch: int, reach: float) -> Array:
    """Zeros in [-reach, reach] of functions of one variable that change sign, by a scan and bisection.

    functions(t (R, N), owner (R,)) -> list of (R, N). Returns (batch, largest number of zeros), nan where fewer.
    """
    grid = np.linspace(-reach, reach, _SCAN) + _SCAN_SHIFT
    values = functions(np.broadcast_to(grid, (batch, _SCAN)), np.arange(batch))
    sign = np.stack([np.broadcast_to(_sign(v), (batch, _SCAN)) for v in values], axis=1)
    owner, which, i = np.nonzero(sign[..., :-1] != sign[..., 1:])
    roots = _bisect(functions, owner, which, grid[i], grid[i + 1])
    first = np.searchsorted(owner, np.arange(batch))
    place = np.arange(owner.size) - first[owner]
    found = np.full((batch, int(place.max(initial=-1)) + 1), np.nan)
    found[owner, place] = roots
    return found


def _sign(values: Array) -> Array:
    """The sign, 2 for nan: the end of a function's domain counts as a change."""
    return np.where(np.isnan(values), 2.0, np.sign(values))


def _bisect(
    functions: Callable[[Array, Index], list[Array]], owner: Index, which: Index, low: Array, high: Array
) -> Array:
    def chosen(t: Array) -> Array:
        values = [np.broadcast_to(v, (t.size, 1)) for v in functions(t[:, None], owner)]
        return _sign(np.stack(values)[which, np.arange(t.size), 0])

    if not owner.size:
        return low
    sign = chosen(low)
    for _ in range(54):
        middle = (low + high) / 2
        left = chosen(middle) == sign
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return (low + high) / 2
