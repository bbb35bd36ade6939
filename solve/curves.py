"""Smooth expectations that depend on one argument alone, interpolated: E_t[f] is analytic in t.

A Gaussian average of an analytic function is analytic in the mean and in the integrand's parameters, so that its
Chebyshev coefficients fall geometrically  [Trefethen, Approximation Theory and Approximation Practice, chapter 8].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from solve.chebyshev import coefficients, polynomials
from solve.quadrature import Accuracy, Array, Estimate

__all__ = ["Curve"]

_RADIUS = 1.05  # a little more than 1, for steps across the edge of an overlap's domain
_MOST_DOUBLINGS = 3
_INTERVALS = (16, 32, 64, 128)
_LAST = 4
_MARGIN = 0.1  # of the accuracy
_SLACK = 10.0  # by which the error of a table may exceed the accuracy where quadrature itself does


@dataclass(frozen=True)
class _Table:
    """Chebyshev coefficients (n + 1, members) on |t| <= radius and the error of each member; None: no good."""

    radius: float
    series: Array
    error: Array


@dataclass(frozen=True)
class Curve:
    """A group of expectations that read only the argument number `index`; `direct` evaluates them by quadrature.

    Called like the group itself. Points with |t| > 8.4, and groups whose coefficients do not fall, stay with it.
    """

    direct: Callable[[list[Any]], Estimate]
    index: int
    count: int
    accuracy: Accuracy

    def __call__(self, arguments: list[Any]) -> Estimate:
        """value and error (members, *shape) for the argument of that shape."""
        t = np.asarray(arguments[self.index], dtype=float)
        reach = float(np.max(np.abs(t), initial=0.0))
        radius = next((r for r in (_RADIUS * 2**k for k in range(_MOST_DOUBLINGS + 1)) if reach <= r), None)
        table = None if radius is None else self._table(radius)
        if table is None:
            return self.direct(arguments)
        values = (polynomials(t.ravel() / table.radius, len(table.series)) @ table.series).T
        error = np.broadcast_to(table.error[:, None], values.shape)
        return Estimate(values.reshape(-1, *t.shape), error.reshape(-1, *t.shape))

    @functools.cached_property
    def _table(self) -> Callable[[float], _Table | None]:
        return functools.lru_cache(maxsize=_MOST_DOUBLINGS + 1)(self._tabulated)

    def _tabulated(self, radius: float) -> _Table | None:
        at = functools.cache(lambda i, n: self._at(radius * math.cos(math.pi * i / n)))
        for n in _INTERVALS:
            nodes = [at(i // math.gcd(i, n), n // math.gcd(i, n)) for i in range(n + 1)]
            values, errors = np.array([e.value for e in nodes]), np.array([e.error for e in nodes])
            if not np.isfinite(values).all():
                return None
            series = coefficients(values)
            last, size = np.abs(series[-_LAST:]).sum(axis=0), np.abs(series).sum(axis=0)
            allowed = np.maximum(self.accuracy.atol, self.accuracy.rtol * size)
            if (last <= _MARGIN * allowed).all():
                error = errors.max(axis=0) + last
                return _Table(radius, series, error) if (error <= _SLACK * allowed).all() else None
        return None

    def _at(self, t: float) -> Estimate:
        arguments: list[Any] = [None] * (self.index + 1)
        arguments[self.index] = t
        return self.direct(arguments)
