"""Every zero of g in a region, and the stability of each as a rest point of dx/dt = g or of x <- x + g."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from solve.differences import jacobian, solve_linear
from solve.domain import AbstractRegion, Box
from solve.result import Array

__all__ = ["Field", "FixedPoint", "Stability", "stationary_points"]

Field: TypeAlias = Callable[[Array], Array]  # (n, B) -> (n, B)

_EPS = float(np.finfo(float).eps)
_TOUCH = 1e-11  # |g| below this part of its size in the region counts as a zero without a change of sign
_MARGINAL = 1e-6  # rates below this part of the typical one have no sign
_MERGE = 1e-6  # solutions closer than this part of the region, and of their own errors, are one
_NEWTON_STEPS = 60


class Stability(enum.Enum):
    """What the eigenvalues of the linearised dynamics say; the name is the word of the JSON output."""

    stable = "All directions decay."
    saddle = "Some directions decay and some grow."
    unstable = "All directions grow."
    marginal = "A direction neither grows nor decays to linear order."


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """at: (n,). eigenvalues: (n,), of the rate's Jacobian for a flow, of F' for a map x <- F(x).

    residual: max|g|, error: estimated distance to the true zero. tangent: g touches zero here without a change
    of sign (found for n = 1), two solutions that meet.
    """

    at: Array
    stability: Stability
    eigenvalues: NDArray[np.complex128]
    residual: float
    error: float
    tangent: bool = False


def stationary_points(
    g: Field, region: AbstractRegion, points: int = 400, *, multiplier: bool = False
) -> tuple[FixedPoint, ...]:
    """The zeros of g: (n, B) -> (n, B) in the region, sorted, with their stability.

    multiplier: the dynamics is x <- x + g(x) and the eigenvalues are those of 1 + g' (stable: below 1 in size);
    else it is dx/dt = g(x) (stable: negative real part). Raises `ValueError` for an unbounded region.
    """

    def quiet(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(g(x), dtype=float)

    starts = region.starts(points)
    size = float(np.nanmax(np.where(np.isfinite(values := quiet(starts)), np.abs(values), np.nan)))
    if size == 0:
        raise ValueError("Every point of the region is a fixed point: the equations do not move anything.")
    if region.dimension == 1 and isinstance(region, Box):
        found = _on_interval(quiet, float(region.low[0]), float(region.high[0]), points, _TOUCH * size)
    else:
        found = [(x, False) for x in _by_newton(quiet, region, starts, size)]
    scale = 1.0 if multiplier else size / region.diameter
    return tuple(_classified(quiet, x, region, scale, multiplier, tangent) for x, tangent in found)


def _classified(
    g: Field, x: Array, region: AbstractRegion, scale: float, multiplier: bool, tangent: bool
) -> FixedPoint:
    slope = _slope(g, x, region)
    residual = g(x[:, None])[:, 0]
    eigenvalues = np.linalg.eigvals(slope + np.eye(x.size) * multiplier).astype(complex)
    growth = np.abs(eigenvalues) - 1 if multiplier else eigenvalues.real
    if tangent or np.any(np.abs(growth) <= _MARGINAL * scale):
        stability = Stability.marginal
        tangent = tangent or _keeps_its_sign(g, x, region)
    elif np.all(growth < 0):
        stability = Stability.stable
    else:
        stability = Stability.unstable if np.all(growth > 0) else Stability.saddle
    # at a double zero a residual eps is a distance sqrt(eps)
    distance = np.sqrt(_TOUCH) * region.diameter if tangent else np.max(np.abs(solve_linear(slope, residual)))
    error = float(distance + 4 * _EPS * np.max(np.abs(x)))
    return FixedPoint(x, stability, eigenvalues, float(np.max(np.abs(residual))), error, tangent)


def _keeps_its_sign(g: Field, x: Array, region: AbstractRegion) -> bool:
    """For n = 1: whether g has the same sign on both sides of its zero x."""
    beside = x[:, None] + 1e-4 * region.diameter * np.array([[-1.0, 1.0]])
    if x.size > 1 or not region.contains(beside).all():
        return False
    left, right = np.sign(g(beside)[0])
    return bool(left == right)


def _slope(g: Field, x: Array, region: AbstractRegion) -> Array:
    typical = 0.1 * region.diameter
    slope = jacobian(g, x, region, typical=typical)
    if np.isfinite(slope).all():
        return slope
    slope = jacobian(g, region.inwards(x, 1e-5), region, typical=typical)  # g ends at the edge
    if not np.isfinite(slope).all():
        raise ValueError(f"The equations have no finite Jacobian near the fixed point {x}.")
    return slope


# -------------------------------------------------------------------------------------------- one dimension


def _on_interval(g: Field, low: float, high: float, points: int, touch: float) -> list[tuple[Array, bool]]:
    """Zeros of g on [low, high]: on a grid, then on that grid refined at the ends and at every zero found."""
    grid = np.linspace(low, high, points + 1)
    near = (high - low) * np.geomspace(1e-8, 1e-2, 25)
    found: list[tuple[float, bool]] = []
    for _ in range(2):
        centres = np.array([low, high, *(z for z, _ in found)])
        extra = np.concatenate([centres, *(c + s * near for c in centres for s in (1, -1))])
        grid = np.unique(np.concatenate([grid, extra[(extra >= low) & (extra <= high)]]))
        found = _scan(g, grid, touch)
    merged: list[tuple[float, bool]] = []
    for z, tangent in sorted(found):
        if not merged or z - merged[-1][0] > 1e-9 * (high - low):
            merged.append((z, tangent))
    return [(np.array([z]), tangent) for z, tangent in merged]


def _scan(g: Field, grid: Array, touch: float) -> list[tuple[float, bool]]:
    """Zeros between and on the points of a sorted grid: exact ones, changes of sign, touching ones."""
    y = g(grid[None, :])[0]

    def value(x: float) -> float:
        return float(g(np.array([[x]]))[0, 0])

    found = [(float(x), False) for x in grid[y == 0]]
    ok = np.isfinite(y) & (y != 0)
    for i in np.flatnonzero(ok[:-1] & ok[1:] & (np.sign(y[:-1]) != np.sign(y[1:]))):
        found += _crossing(value, grid[i], grid[i + 1], max(abs(y[i]), abs(y[i + 1])))
    for i in np.flatnonzero(_dips(y)) + 1:
        found += _touching(value, grid[i - 1], grid[i + 1], float(np.sign(y[i])), touch)
    return found


def _dips(y: Array) -> NDArray[np.bool_]:
    """Interior points where |y| is smallest among its neighbours, without a change of sign."""
    size = np.abs(y)
    lowest = (size[1:-1] <= size[:-2]) & (size[1:-1] <= size[2:]) & (y[1:-1] != 0)
    same = (np.sign(y[1:-1]) == np.sign(y[:-2])) & (np.sign(y[1:-1]) == np.sign(y[2:]))
    dips: NDArray[np.bool_] = lowest & same & np.isfinite(y[:-2] + y[1:-1] + y[2:])
    return dips


def _crossing(value: Callable[[float], float], a: float, b: float, size: float) -> list[tuple[float, bool]]:
    z = float(brentq(value, a, b, xtol=4 * _EPS * max(abs(a), abs(b)), rtol=4 * _EPS))
    return [(z, False)] if abs(value(z)) <= 1e-3 * size else []  # else a jump over zero


def _touching(
    value: Callable[[float], float], a: float, b: float, sign: float, touch: float
) -> list[tuple[float, bool]]:
    lowest = minimize_scalar(
        lambda x: sign * value(x), bounds=(a, b), method="bounded", options={"xatol": 1e-9 * (b - a)}
    )
    x, least = float(lowest.x), float(lowest.fun)
    if least < -touch:
        size = abs(least)
        return _crossing(value, a, x, size) + _crossing(value, x, b, size)
    return [(x, True)] if least <= touch else []


# ------------------------------------------------------------------------------------------- more dimensions


def _by_newton(g: Field, region: AbstractRegion, starts: Array, size: float) -> list[Array]:
    """Damped Newton from all starts at once, (n, B); what converges inside, merged and sorted."""
    x = starts[:, np.isfinite(g(starts)).all(axis=0)]
    last = np.full(x.shape[1], np.inf)
    moving = np.ones(x.shape[1], dtype=bool)
    for _ in range(_NEWTON_STEPS):
        if not moving.any():
            break
        x[:, moving], last[moving], stuck = _newton_step(g, region, x[:, moving])
        moving[moving] = ~stuck & (last[moving] > 4 * _EPS * region.diameter)
    residual = np.max(np.abs(g(x)), axis=0)
    good = (residual <= 1e-8 * size) & (last <= 1e-4 * region.diameter) & region.contains(x, 1e-8)
    best_first = np.argsort(last[good], kind="stable")
    return _merged(g, region, x[:, good][:, best_first], last[good][best_first])


def _newton_step(g: Field, region: AbstractRegion, x: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """One step for each column of x: (n, B), halved until it stays inside and does not raise |g|.

    Returns the new x, the lengths (B,) of the full steps, and which columns no halving helped.
    """
    y = g(x)
    slopes = jacobian(g, x, region, y, typical=1e-2 * region.diameter)
    full = np.stack([-solve_linear(slopes[..., k], y[:, k]) for k in range(x.shape[1])], axis=1)
    length = np.max(np.abs(full), axis=0)
    waiting = np.isfinite(length)
    step = full * np.minimum(1, 0.25 * region.diameter / np.maximum(length, np.finfo(float).tiny))
    moved = x.copy()
    for _ in range(12):
        trial = x[:, waiting] + step[:, waiting]
        new = g(trial)
        lower = np.linalg.norm(new, axis=0) <= np.linalg.norm(y[:, waiting], axis=0)
        fits = lower & np.isfinite(new).all(axis=0) & region.contains(trial, 1e-9)
        done = np.flatnonzero(waiting)[fits]
        moved[:, done] = trial[:, fits]
        waiting[done] = False
        if not waiting.any():
            break
        step = step / 2
    return moved, length, waiting | ~np.isfinite(length)


def _merged(g: Field, region: AbstractRegion, x: Array, length: Array) -> list[Array]:
    """One of each group of columns of x closer than _MERGE or than ten times their last steps, the best first."""
    kept: list[Array] = []
    for column, last in zip(x.T, length, strict=True):
        point = _snapped(g, region, column)
        reach = max(_MERGE * region.diameter, 10 * float(last))
        if all(np.max(np.abs(point - k)) > reach for k in kept):
            kept.append(point)
    return sorted(kept, key=lambda k: [round(float(c), 9) for c in k])


def _snapped(g: Field, region: AbstractRegion, x: Array) -> Array:
    """x with components that are zero to solver accuracy set to zero, where that does not raise |g|."""
    near = np.where(np.abs(x) < 1e-4 * region.diameter, 0.0, x)
    better = np.max(np.abs(g(near[:, None]))) <= np.max(np.abs(g(x[:, None])))
    return near if better else x
