"""Which minimum SGD ends in from small random overlaps (m, e): the separatrix of a flow on the disc.

Near zero overlap m ~ exp(l_m t), e ~ exp(l_e t), so that trajectories are e = K m^r, r = l_e / l_m. One of them, with
K = kappa, runs into the saddle between two basins: starts below it end on the side of m, those above on that of e.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import quad, solve_ivp
from scipy.special import erf

from solve.differences import jacobian
from solve.domain import Disc
from solve.flow import flow_fixed_points
from solve.result import Array
from solve.stationary import FixedPoint, Stability

__all__ = ["Basins", "basins", "probability"]

Rate = Callable[[Array], Array]

_DISC = Disc(2)
_STEPS = (4e-2, 2e-2, 1e-2)  # at which rates near zero overlap are read
_OFF_SADDLE = 1e-5
_STARTS = 150  # of the search for fixed points
_NEAR = 1e-3  # where the separatrix is read off: its corrections are quadratic
_LONGEST = 1e5
_TOLERANCE = 1e-11
_SETTLED = 1e-6  # a rate below this part of the typical one is at rest
_SAMPLES = ((0.31, 0.17), (0.12, 0.55), (0.6, 0.4))


@dataclass(frozen=True)
class Basins:
    """The basins of m's and e's side in a flow that is even in both.

    growth: (l_m, l_e) at zero overlap. ends: where starts close to either axis go. kappa: of the separatrix, nan
    where all starts end on one side. points: the fixed points. reason: why there is no answer.
    """

    growth: tuple[float, float]
    ends: tuple[Array, Array] | None
    kappa: float
    points: tuple[FixedPoint, ...]
    reason: str = ""

    @property
    def exponent(self) -> float:
        """r = l_e / l_m."""
        return self.growth[1] / self.growth[0]

    def semantic(self, spread: tuple[float, float] = (1.0, 1.0)) -> float:
        """P(the end has |m| > |e|) for m(0) ~ N(0, spread_m^2), e(0) ~ N(0, spread_e^2), both small."""
        if self.ends is None:
            return math.nan
        below, above = (float(abs(x[0]) > abs(x[1])) for x in self.ends)
        if below == above:
            return below
        p = probability(self.kappa * spread[0] ** self.exponent / spread[1], self.exponent)
        return p if below else 1 - p


def probability(kappa: float, exponent: float) -> float:
    """P(|y| < kappa |x|^r), x and y independent N(0, 1); (2/pi) arctan kappa for r = 1."""
    if exponent == 1:
        return 2 / math.pi * math.atan(kappa)

    def density(x: float) -> float:
        return math.sqrt(2 / math.pi) * math.exp(-x * x / 2) * float(erf(kappa * x**exponent / math.sqrt(2)))

    return float(quad(density, 0, 40, limit=500, epsabs=1e-12, points=[1.0, 8.0])[0])


def basins(rate: Rate, points: tuple[FixedPoint, ...] | None = None) -> Basins:
    """The basins of dx/dt = rate(x), x = (m, e): (2, *B). `points`: its fixed points where they are known."""
    growth = (_growth(rate, 0), _growth(rate, 1))
    found = flow_fixed_points(rate, _DISC, points=_STARTS) if points is None else points
    quarter = tuple(p for p in found if (p.at > -1e-7).all())
    if not _even(rate):
        return Basins(growth, None, math.nan, found, "the flow is not even in both overlaps: basins are not followed")
    if max(growth) <= 0:
        return Basins(growth, None, math.nan, found, "zero overlap is a minimum: small starts stay there")
    if min(growth) <= 0:
        end = _end(rate, np.array([_NEAR, _NEAR**2]) if growth[0] > 0 else np.array([_NEAR**2, _NEAR]))
        if end is None:
            return Basins(growth, None, math.nan, found, "the flow from a small start does not settle")
        return Basins(growth, (end, end), math.nan, found)
    kappas = [k for p in quarter if p.stability is Stability.saddle and (k := _separatrix(rate, p, growth)) is not None]
    ends = [_end(rate, x) for x in _beside(growth, kappas)]
    if ends[0] is None or ends[1] is None:
        return Basins(growth, None, math.nan, found, "the flow from a small start does not settle")
    apart = float(np.max(np.abs(ends[0] - ends[1]))) > 1e-3
    if apart and len(kappas) != 1:
        reason = f"{len(kappas)} separatrices reach zero overlap; one is needed"
        return Basins(growth, None, math.nan, found, reason)
    return Basins(growth, (ends[0], ends[1]), kappas[0] if apart else math.nan, found)


def _growth(rate: Rate, i: int) -> float:
    """The growth rate of x_i at zero overlap: of an odd function by Richardson's extrapolation, to h^6."""
    x = np.zeros((2, len(_STEPS)))
    x[i] = _STEPS
    rows = list(rate(x)[i] / x[i])
    for order in range(1, len(rows)):
        rows = [b + (b - a) / (4**order - 1) for a, b in itertools.pairwise(rows)]
    return float(rows[0])


def _even(rate: Rate) -> bool:
    """Whether the flow maps to itself under m -> -m and under e -> -e, at a few points."""
    x = np.array(_SAMPLES).T
    here = rate(x)
    size = float(np.max(np.abs(here)))
    flips = (np.array([[-1.0], [1.0]]), np.array([[1.0], [-1.0]]))
    return all(bool(np.max(np.abs(rate(f * x) - f * here)) <= 1e-7 * size) for f in flips)


def _beside(growth: tuple[float, float], kappas: list[float]) -> tuple[Array, Array]:
    """Small starts well on the side of m and well on the side of e of any separatrix."""
    r = growth[1] / growth[0]
    kappa = kappas[0] if len(kappas) == 1 else 1.0
    m = _NEAR if r >= 1 else (_NEAR / kappa) ** (1 / r)
    e = kappa * m**r
    return np.array([m, 1e-3 * e]), np.array([1e-3 * m, e])


def _separatrix(rate: Rate, saddle: FixedPoint, growth: tuple[float, float]) -> float | None:
    """kappa of the stable manifold of a saddle, followed backwards; None where it does not come from zero overlap."""
    slopes = jacobian(rate, saddle.at, _DISC, typical=1.0)
    values, vectors = np.linalg.eig(slopes)
    stable = vectors[:, int(np.argmin(values.real))].real
    inward = -np.sign(stable @ saddle.at) * stable / np.linalg.norm(stable)
    start = saddle.at + _OFF_SADDLE * inward

    def small(_: float, x: Array) -> float:
        return float(np.linalg.norm(x)) - _NEAR

    small.terminal = True  # type: ignore[attr-defined]  # how SciPy marks an event that ends the integration
    back = solve_ivp(lambda _, x: -rate(x), (0, _LONGEST), start, "DOP853", events=small, rtol=_TOLERANCE, atol=1e-14)
    if back.status != 1:
        return None
    m, e = np.abs(back.y[:, -1])
    return float(e / m ** (growth[1] / growth[0])) if m > 0 and e > 0 else None


def _end(rate: Rate, start: Array) -> Array | None:
    """The point at which the flow settles."""

    def still(_: float, x: Array) -> float:
        return float(np.max(np.abs(rate(x)))) - _SETTLED * scale

    scale = float(np.max(np.abs(rate(np.array(_SAMPLES).T))))
    still.terminal = True  # type: ignore[attr-defined]
    still.direction = -1  # type: ignore[attr-defined]
    path = solve_ivp(lambda _, x: rate(x), (0, _LONGEST), start, "DOP853", events=still, rtol=1e-8, atol=1e-13)
    return np.asarray(path.y[:, -1]) if path.status == 1 else None
