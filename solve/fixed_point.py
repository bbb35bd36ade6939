"""Solve x = F(x), x: (n,), with a bound on the error that knows how slowly the iteration contracts.

The last step of an iteration says little about its error: when each step is c times the one before, what is
left is step/(1 - c). All solvers here stop on that bound, and report it. A root problem g(x) = 0 is the fixed
point of F(x) = x + g(x), for `Newton` only.
"""

from __future__ import annotations

import abc
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from solve.differences import jacobian, solve_linear
from solve.domain import Box
from solve.iteration import Goal, Map, Outcome, follow
from solve.result import Array, Status
from solve.stationary import FixedPoint, Stability, stationary_points

__all__ = [
    "AbstractFixedPointSolver",
    "Anderson",
    "AndersonNewton",
    "FixedPoint",
    "Map",
    "Newton",
    "Outcome",
    "Picard",
    "Stability",
    "all_fixed_points",
]


class AbstractFixedPointSolver(abc.ABC):
    """A method for x = F(x). Final subclasses are frozen dataclasses that hold its settings.

    Converged means: the bound step/(1 - contraction) on the error of every x_i is below atol + rtol |x_i|.
    """

    @abc.abstractmethod
    def solve(self, F: Map, x0: ArrayLike, domain: Box | None = None) -> Outcome:
        """The solution of x = F(x) reached from x0: (n,), every iterate inside `domain`.

        Steps that would leave the domain are shortened. Raises `ValueError` if x0 is outside or F(x0) does not
        have the shape of x0; all other failures are in the status.
        """


@dataclass(frozen=True)
class Picard(AbstractFixedPointSolver):
    """x <- (1 - damping) x + damping F(x): `damping` is the weight of the NEW value, in (0, 1].

    From x = 0.2 with F(x) = 0.6, damping 0.8 goes to 0.52. Damping 1 is the plain iteration.
    """

    damping: float = 1.0
    rtol: float = 1e-10
    atol: float = 1e-12
    max_steps: int = 20_000

    def __post_init__(self) -> None:
        _check_weight("Picard", self.damping)

    def solve(self, F: Map, x0: ArrayLike, domain: Box | None = None) -> Outcome:
        """The fixed point by damped iteration, see the base class."""
        goal = Goal(self.rtol, self.atol, self.max_steps)
        return follow(F, x0, domain, lambda x, r: self.damping * r, goal)


@dataclass(frozen=True)
class Anderson(AbstractFixedPointSolver):
    """Anderson's extrapolation over the last `memory` differences dX, dR of iterates and residuals r = F(x) - x.

    x <- x + b r - (dX + b dR) g, with g the least-squares solution of dR g = r and b = `damping`, the weight of
    the new value. A difference of coinciding residuals gets no weight. [Walker and Ni 2011, algorithm AA]

    attracting: a step against the residual leads to a fixed point that the iteration itself leaves (a trivial branch,
    often); the plain step is taken instead.
    """

    memory: int = 5
    damping: float = 1.0
    attracting: bool = True
    rtol: float = 1e-10
    atol: float = 1e-12
    max_steps: int = 2_000

    def __post_init__(self) -> None:
        _check_weight("Anderson", self.damping)
        if self.memory < 1:
            raise ValueError(f"Anderson: memory must be at least 1, got {self.memory}.")

    def solve(self, F: Map, x0: ArrayLike, domain: Box | None = None) -> Outcome:
        """The fixed point by extrapolation, see the base class."""
        # more differences than unknowns are dependent, and the least of their solutions prefers none
        past: deque[tuple[Array, Array]] = deque(maxlen=min(self.memory, np.size(x0)) + 1)

        def proposal(x: Array, r: Array) -> Array:
            past.append((x, r))
            if len(past) == 1:
                return self.damping * r
            dX, dR = (np.diff(np.array(a), axis=0).T for a in zip(*past, strict=True))
            step = self.damping * r - (dX + self.damping * dR) @ solve_linear(dR, r)
            return self.damping * r if self.attracting and _against(step, r, x) else step

        return follow(F, x0, domain, proposal, Goal(self.rtol, self.atol, self.max_steps))


@dataclass(frozen=True)
class Newton(AbstractFixedPointSolver):
    """x <- x - (F'(x) - 1)^-1 (F(x) - x), the step halved until the residual falls.

    jacobian: x -> F'(x), (n,) -> (n, n); differences of second order, 2n calls of F a step, without it.
    """

    jacobian: Map | None = None
    rtol: float = 1e-10
    atol: float = 1e-12
    max_steps: int = 100

    def solve(self, F: Map, x0: ArrayLike, domain: Box | None = None) -> Outcome:
        """The fixed point by Newton's method, see the base class."""
        calls, radius = 0, np.nan

        def counted(x: Array) -> Array:
            nonlocal calls
            calls += 1
            return np.asarray(F(x), dtype=float)

        def proposal(x: Array, r: Array) -> Array:
            nonlocal radius
            with np.errstate(all="ignore"):
                found = self.jacobian(x) if self.jacobian else jacobian(counted, x, domain, x + r)
            slope = np.asarray(found, dtype=float)
            radius = float(np.max(np.abs(np.linalg.eigvals(slope)))) if np.isfinite(slope).all() else np.inf
            matrix = slope - np.eye(x.size)
            step = -solve_linear(matrix, r)
            solved = np.linalg.norm(matrix @ step + r) <= 1e-6 * np.linalg.norm(r)
            return step if solved or not np.isfinite(step).all() else r  # singular: the plain step, which moves

        goal = Goal(self.rtol, self.atol, self.max_steps)
        outcome = follow(F, x0, domain, proposal, goal, descend=True)
        return replace(outcome, evaluations=outcome.evaluations + calls, contraction=radius)


@dataclass(frozen=True)
class AndersonNewton(AbstractFixedPointSolver):
    """Anderson until the error is about `near` of the solution, then Newton; Anderson alone where Newton fails."""

    anderson: Anderson = field(default_factory=Anderson)
    newton: Newton = field(default_factory=Newton)
    near: float = 1e-2

    def solve(self, F: Map, x0: ArrayLike, domain: Box | None = None) -> Outcome:
        """The fixed point by both methods, see the base class."""
        rough = replace(self.anderson, rtol=self.near, atol=self.near**2)
        first = rough.solve(F, x0, domain)
        if first.status is Status.nonfinite:
            return first
        near = first.x if first.status is not Status.diverges else np.asarray(x0, dtype=float)
        last = self.newton.solve(F, near, domain)
        total = first.evaluations + last.evaluations
        if last.status is Status.converged:
            return replace(last, evaluations=total)
        other = self.anderson.solve(F, near, domain)
        best = min(last, other, key=lambda o: (o.status is not Status.converged, o.residual))
        return replace(best, evaluations=total + other.evaluations)


def all_fixed_points(F: Map, low: ArrayLike, high: ArrayLike, *, points: int = 400) -> tuple[FixedPoint, ...]:
    """Every x = F(x) in the closed box low <= x <= high, with the eigenvalues of F' and what they say.

    F: (n, B) -> (n, B). n = 1: the sign changes of F(x) - x on a grid refined at the ends, at every solution
    found and where |F(x) - x| is smallest; where it touches zero without changing its sign the solution is
    flagged `tangent`. n > 1: Newton from about `points` starts, merged; many starts, no proof that none is
    missed. Stable: all |eigenvalues| < 1. Raises `ValueError` for an unbounded box.
    """

    def g(x: Array) -> Array:
        return np.asarray(F(x), dtype=float) - x

    return stationary_points(g, Box.closed(low, high), points, multiplier=True)


def _against(step: Array, r: Array, x: Array) -> bool:
    size = np.abs(x) + 1e-3 * np.max(np.abs(x), initial=0.0) + np.finfo(float).tiny
    return float(np.dot(step / size, r / size)) < 0


def _check_weight(method: str, damping: float) -> None:
    if not 0 < damping <= 1:
        raise ValueError(f"{method}: damping is the weight of the new value and must lie in (0, 1], got {damping}.")
