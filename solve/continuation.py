"""A solution that is hard to find from afar, reached from that of an easier system along a parameter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import sympy as sp

from solve.compiled import CompiledSystem
from solve.fixed_point import AndersonNewton, Newton
from solve.given import Given
from solve.result import Prediction, Status

__all__ = ["NEGLIGIBLE", "QUICK", "continued"]

QUICK = AndersonNewton(newton=Newton(max_steps=15))
"""A try that gives up early: the path leads there in the end."""

_ROUGH = AndersonNewton(newton=Newton(rtol=1e-4, atol=1e-6, max_steps=15))
_EASY = (1.0, 0.1, 0.01, 10.0, 100.0)
_MOST_STEPS = 60
_FIRST_RATIO = 0.1
_CLOSEST_RATIO = 0.9
NEGLIGIBLE = 1e-14
_SETTLED = 0.3  # relative change over a step, below which the end is tried


def continued(
    compiled: CompiledSystem, easing: sp.Symbol, values: Given, start: Given | None = None, least: float = NEGLIGIBLE
) -> Prediction:
    """The solution at `easing` = 0, led to from that at about 1 by steps of constant ratio, smaller where one fails.

    The state alone is solved for on the way, to few digits. `diverges` where it still changes by its own size when the
    parameter is below `least`; `max_steps` where the path does not lead there, which says nothing of the end.
    """
    state = compiled.restricted(compiled.iterated)
    spent = 0
    for eps in _EASY:
        found = state.solve({**values, easing: eps}, solver=_ROUGH, start=start, throw=False)
        spent += found.evaluations
        if found.status is Status.converged:
            break
    ratio = _FIRST_RATIO
    settled = False
    for _ in range(_MOST_STEPS):
        if found.status is not Status.converged:
            return _lost(found)
        near = {s: found[s] for s in state.iterated}
        if settled or eps < least:
            last = compiled.solve({**values, easing: 0.0}, solver=QUICK, start=near, throw=False)
            if last.status is Status.converged:
                return replace(last, evaluations=last.evaluations + spent)
            if eps < least:
                return replace(last, status=Status.diverges)
        ahead = state.solve({**values, easing: eps * ratio}, solver=_ROUGH, start=near, throw=False)
        spent += ahead.evaluations
        if ahead.status is Status.converged:
            settled = _change(found, ahead, state.iterated) < _SETTLED
            found, eps, ratio = ahead, eps * ratio, _FIRST_RATIO
        elif ratio**0.5 < _CLOSEST_RATIO:
            ratio = ratio**0.5
        else:
            return _lost(ahead)
    return _lost(found)


def _lost(last: Prediction) -> Prediction:
    """What the path ended with, as not converged."""
    return last if last.status is Status.nonfinite else replace(last, status=Status.max_steps)


def _change(before: Prediction, after: Prediction, state: frozenset[sp.Symbol]) -> float:
    """The largest change of an unknown relative to itself or to a tenth of the largest."""
    a, b = (np.array([float(p[s]) for s in state]) for p in (before, after))
    return float(np.max(np.abs(b - a) / (np.abs(b) + 0.1 * np.max(np.abs(b), initial=0.0))))
