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
_TIMES = 4000
_LONGEST_DOUBLING = 40


def mean_escape_time(
    compiled: CompiledSystem, values: Mapping[sp.Symbol, float], spread: float, threshold: float
) -> float:
    """E of the time at which |x| first reaches `threshold`, over x(0) ~ N(0, spread^2), for a flow of one unknown.

    The mean over the midpoints of 1000 equally likely intervals of the start; the logarithm at 0 costs less than
    a part in 10^3. Raises `SolveError` where a start never escapes.
    """
    (unknown,) = compiled.flow_unknowns
    quantiles = (np.arange(_STARTS) + 0.5) / _STARTS
    start = spread * ndtri(quantiles)
    until = 1.0
    for _ in range(_LONGEST_DOUBLING):
        times = np.linspace(0.0, until, _TIMES)
        path = np.abs(compiled.integrate(values, times, start={unknown: start})[unknown])
        if (path.max(axis=0) >= threshold).all():
            return float(_first_passage(times, path, threshold).mean())
        if np.ptp(path[-2:], axis=0).max() == 0:
            break
        until *= 2
    raise SolveError(
        f"Some starts of spread {spread:.3g} never reach |{unknown}| = {threshold}: there is no mean escape time.",
        Status.max_steps,
    )


def _first_passage(times: Array, path: Array, threshold: float) -> Array:
    """Times (n_starts,) of the first crossing of path (n_times, n_starts), linear between the times."""
    after = np.argmax(path >= threshold, axis=0)
    before = np.maximum(after - 1, 0)
    rows = np.arange(path.shape[1])
    low, high = path[before, rows], path[after, rows]
    part = np.where(after > 0, (threshold - low) / np.where(high > low, high - low, 1.0), 0.0)
    passage: Array = times[before] + part * (times[after] - times[before])
    return passage
