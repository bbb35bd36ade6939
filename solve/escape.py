"""The mean escape time of a flow that starts at a random point close to a fixed point."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import sympy as sp
from scipy.special import ndtri

from solve.compiled import CompiledSystem
from solve.result import Array, SolveError, Status

__all__ = ["mean_escape_time"]

_STARTS = 1000
_POINTS = 4000
_CLOSE = 1e-4  # of the spread: below the innermost start, which is 1.2e-3 of it


def mean_escape_time(
    compiled: CompiledSystem, values: Mapping[sp.Symbol, float], spread: float, threshold: float
) -> float:
    """E of the time at which |x| first reaches `threshold`, over x(0) ~ N(0, spread^2), for a flow of one unknown.

    T(x0) = int dx/rate(x) along the way, on a grid even in log |x|; the mean is over the midpoints of 1000 equally
    likely intervals of the start (the logarithm at 0 costs less than a part in 10^3).
    Raises `SolveError` where a start never escapes.
    """
    (unknown,) = compiled.flow_unknowns
    rate, _, _ = compiled.rate(values, start={unknown: spread})
    far = max(threshold, 10 * spread)
    x = np.unique(np.concatenate([np.geomspace(_CLOSE * spread, far, _POINTS), [threshold]]))
    up, down = rate(x[None])[0], -rate(-x[None])[0]  # both outwards
    right, left = _times(x, up, threshold), _times(x, down, threshold)
    through = 2 * x[0] / abs(up[0])
    if right is None and left is not None and (up < 0).all():
        right = np.where(x < threshold, through + left[0] - _cumulative(x, up), 0.0)
    elif left is None and right is not None and (down < 0).all():
        left = np.where(x < threshold, through + right[0] - _cumulative(x, down), 0.0)
    if right is None or left is None:
        raise SolveError(
            f"Some starts of spread {spread:.3g} never reach |{unknown}| = {threshold}: there is no mean escape time.",
            Status.max_steps,
        )
    start = np.log(spread * ndtri(1 - (np.arange(_STARTS // 2) + 0.5) / _STARTS))
    return float(np.mean([np.interp(start, np.log(x), side) for side in (right, left)]))


def _cumulative(x: Array, outwards: Array) -> Array:
    """int_{x_0}^{x_i} dx/outwards, by the trapezoid rule in log x."""
    y = x / outwards
    return np.concatenate([[0.0], np.cumsum((y[1:] + y[:-1]) / 2 * np.diff(np.log(x)))])


def _times(x: Array, outwards: Array, threshold: float) -> Array | None:
    """Times from each x outwards to the threshold, 0 beyond it; None where the flow turns back before it."""
    inside = x <= threshold
    if not (outwards[inside] > 0).all():
        return None
    passed = _cumulative(x[inside], outwards[inside])
    return np.concatenate([passed[-1] - passed, np.zeros(np.count_nonzero(~inside))])
