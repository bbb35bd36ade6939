"""When a flow dx/dt = rate(x) escapes, where it rests, and which of its rest points are stable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from solve.differences import jacobian, solve_linear
from solve.domain import AbstractRegion, Box, Disc
from solve.integrator import LOOSER, AbstractIntegrator, DormandPrince, Rate, Step, Trajectory, resolution
from solve.result import Array, Status
from solve.stationary import FixedPoint, Stability, stationary_points

__all__ = [
    "AbstractIntegrator",
    "Box",
    "Disc",
    "DormandPrince",
    "Escape",
    "FixedPoint",
    "Measure",
    "Rate",
    "Stability",
    "Trajectory",
    "escape_time",
    "flow_fixed_points",
    "rests",
]

Measure: TypeAlias = Callable[[Array], float]  # (n,) -> how far out

_EPS = float(np.finfo(float).eps)
_AT_ZERO = 1e-15  # a displacement that counts as none for a component that is exactly 0
_SAMPLES = 8  # places inside a step at which the measure is looked at
_LOOK_EVERY = 8  # steps between two looks at whether the flow has settled
_FAR = 1e100  # a flow that has not arrived by this time never does
_DORMAND_PRINCE = DormandPrince()


@dataclass(frozen=True, eq=False)
class Escape:
    """When a measure first reaches a threshold; inf: it never does, nan: undecided (see status), with the reason.

    at: (n,), the point at that time, or the last one reached. error: estimated, absolute.
    """

    time: float
    error: float
    status: Status
    reason: str
    at: Array
    evaluations: int


def escape_time(
    rate: Rate,
    start: ArrayLike,
    threshold: float,
    measure: Measure | None = None,
    *,
    integrator: AbstractIntegrator = _DORMAND_PRINCE,
    perturbed: Rate | None = None,
) -> Escape:
    """The first t with measure(x(t)) >= threshold for dx/dt = rate(x), x(0) = start: (n,), to 1e-9.

    measure: the Euclidean norm if not given. A start that is a fixed point, a flow that settles at a stable
    fixed point below the threshold, and one that decays give inf with the reason. perturbed: the rate plus its
    own error; it is used by the second run, whose distance from the first is the error.
    """
    x0 = np.atleast_1d(np.asarray(start, dtype=float))
    how_far = measure or (lambda x: float(np.linalg.norm(x)))
    calls = 0

    def counted(x: Array) -> Array:
        nonlocal calls
        calls += 1
        with np.errstate(all="ignore"):
            return np.asarray(rate(x), dtype=float)

    if how_far(x0) >= threshold:
        return Escape(0.0, 0.0, Status.converged, "The start is already beyond the threshold.", x0, 0)
    noise = np.abs(perturbed(x0) - counted(x0)) if perturbed else None
    if rests(counted, x0, noise):
        reason = f"The start {_text(x0)} is a fixed point of the flow: nothing moves and nothing escapes."
        return Escape(np.inf, 0.0, Status.converged, reason, x0, calls)
    passage = _Passage(integrator, how_far, threshold, resolution(counted, x0, perturbed))
    time, status, reason, at = passage.first(counted, x0, 1.0)
    error = 0.0
    if np.isfinite(time):
        other, _, _, _ = passage.first(perturbed or counted, x0, LOOSER)
        error = 2 * abs(time - other) + integrator.precision * time
        if not np.isfinite(other):
            error, status = np.inf, Status.max_steps
            reason = "Whether it escapes is decided by the error of the integration: a second run does not."
    return Escape(float(time), float(error), status, reason, at, calls)


def rests(rate: Rate, x: Array, noise: Array | None = None) -> NDArray[np.bool_]:
    """Whether x: (n, *B) is a fixed point of dx/dt = rate(x), to rounding -> (*B).

    It is where the rate vanishes within 8 units of the last digit of x (1e-15 for a component that is exactly 0).
    `noise`, the error of the rate, counts as zero only in components of x that are exactly 0, where symmetry is the
    reason for a rate that should vanish: elsewhere a rate below its error is unknown, not zero.
    """
    r = np.asarray(rate(x), dtype=float)
    if noise is not None:
        r = np.where((x == 0) & (np.abs(r) <= 2 * noise), 0.0, r)
    still = np.asarray(np.all(r == 0, axis=0))
    if np.all(still):
        return still
    with np.errstate(all="ignore"):
        away, solved = _displacement(rate, x, r)
    return np.asarray(still | (solved & _negligible(away, x, 8 * _EPS)))


def flow_fixed_points(rate: Rate, region: AbstractRegion, *, points: int = 400) -> tuple[FixedPoint, ...]:
    """Every rest point of dx/dt = rate(x), rate: (n, B) -> (n, B), in a box or disc, rim included.

    Each has the eigenvalues of the rate's Jacobian and is stable, saddle, unstable or marginal. n = 1: found by
    changes of sign; n > 1: Newton from about `points` starts, merged; no proof that none is missed.
    """
    return stationary_points(rate, region, points)


@dataclass(frozen=True)
class _Passage:
    """The search for the first passage of a measure."""

    integrator: AbstractIntegrator
    measure: Measure
    threshold: float
    floor: Array

    def first(self, rate: Rate, x0: Array, looser: float) -> tuple[float, Status, str, Array]:
        """(time, status, reason, point): the time is inf when it never comes, nan when that is not decided."""
        for count, step in enumerate(self.integrator.steps(rate, x0, _FAR, looser, self.floor), 1):
            bracket = self._bracket(step)
            if bracket is not None:
                time, at = self._refined(rate, step, *bracket, looser)
                return time, Status.converged, "The threshold is reached.", at
            if step.status is Status.converged:
                return (
                    np.inf,
                    step.status,
                    f"The flow still creeps at time {_FAR:g}, below the threshold.",
                    step.x,
                )
            if step.status is not None:
                return np.nan, step.status, f"{step.status.value} Reached time {step.time:g}.", step.x
            reason = self._settled(rate, step.x, x0) if count % _LOOK_EVERY == 0 else ""
            if reason:
                return np.inf, Status.converged, reason, step.x
        raise AssertionError("the last step has a status")

    def _bracket(self, step: Step) -> tuple[float, float] | None:
        if step.time == step.old:
            return None
        t = np.linspace(step.old, step.time, _SAMPLES + 1)
        beyond = [self.measure(x) >= self.threshold for x in (*step.inside(t[1:-1]), step.x)]
        k = next((k for k, b in enumerate(beyond) if b), None)
        return None if k is None else (float(t[k]), float(t[k + 1]))

    def _refined(self, rate: Rate, step: Step, a: float, b: float, looser: float) -> tuple[float, Array]:
        """The passage between a and b on the method's own steps, not on its interpolant."""

        def point(after: float) -> Array:
            x = step.x_old
            for s in self.integrator.steps(rate, step.x_old, after, looser, self.floor):
                x = s.x
            return x

        def excess(after: float) -> float:
            return self.measure(point(after)) - self.threshold

        a, b = a - step.old, b - step.old
        # else the interpolant, which gave the bracket, and the method differ on which side an end lies
        inside = excess(a) < 0 <= excess(b)
        after = float(brentq(excess, a, b, xtol=4 * _EPS * b, rtol=4 * _EPS)) if inside else b
        return step.old + after, point(after)

    def _settled(self, rate: Rate, x: Array, start: Array) -> str:
        """Why the flow at x will never reach the threshold, or an empty text."""
        with np.errstate(all="ignore"):
            r = np.asarray(rate(x), dtype=float)
            away, solved = _displacement(rate, x, r)
        if np.all(np.abs(x) <= 1e-6 * np.abs(start)) and np.all(x * r <= 0):
            return f"The flow decays: every component fell below a millionth of the start {_text(start)}."
        if not solved:
            return ""
        if _negligible(away, x, 1e-10):
            return f"The flow comes to rest at the fixed point {_text(x + away)}, below the threshold."
        rest = _polished(rate, x + away)
        if rest is None or self.measure(rest) >= self.threshold:
            return ""
        if np.max(np.abs(x - rest)) > 1e-4 * np.max(np.abs(start - rest)):
            return ""
        rates = np.linalg.eigvals(jacobian(rate, rest)).real
        if np.max(rates) >= -1e-7 * np.max(np.abs(rates)):
            return ""
        return f"The flow settles at the stable fixed point {_text(rest)}, below the threshold."


def _displacement(rate: Rate, x: Array, r: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Newton's estimate (n, *B) of the way from x to a zero of the rate, and whether one was found: (*B)."""
    slope = jacobian(rate, x)
    n, batch = x.shape[0], x.shape[1:]
    matrices, rates = slope.reshape(n, n, -1), r.reshape(n, -1)
    away = np.stack([-solve_linear(matrices[..., k], rates[:, k]) for k in range(rates.shape[1])], axis=1)
    misfit = np.linalg.norm(np.einsum("ijk,jk->ik", matrices, away) + rates, axis=0)
    solved = misfit <= 1e-6 * np.linalg.norm(rates, axis=0)
    return away.reshape(n, *batch), solved.reshape(batch)


def _negligible(away: Array, x: Array, relative: float) -> NDArray[np.bool_]:
    return np.asarray(np.all(np.abs(away) <= np.where(x == 0, _AT_ZERO, relative * np.abs(x)), axis=0))


def _polished(rate: Rate, x: Array) -> Array | None:
    """The zero of the rate next to x by Newton steps, or None."""
    for _ in range(20):
        with np.errstate(all="ignore"):
            away, solved = _displacement(rate, x, np.asarray(rate(x), dtype=float))
        if not solved:
            return x if not np.any(rate(x)) else None
        x = x + away
        if np.max(np.abs(away)) <= 1e-13 * np.max(np.abs(x)) + _AT_ZERO:
            return x
    return None


def _text(x: Array) -> str:
    return np.array2string(np.asarray(x), precision=6)
