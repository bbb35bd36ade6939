"""Minimisers of (1/n) sum_i loss(y_i, f_i.w + b) + (ridge/2)|w|^2 to a stated optimality gap, for any convex loss.

Newton's method where the loss is smooth. Else the method of multipliers: with the outputs u = F w + b split off,
each round minimises the sum of the Moreau envelopes of step V at F w + b + V p, by Newton steps on its piecewise
smooth gradient, and takes the forces (a - u)/V as the next p  [Rockafellar 1976; Li, Sun, Toh, arXiv:1607.05428].

The forces g_i lie in d loss_i(u_i), so with sum_i g_i = 0 they are a dual solution, and by Fenchel's equality
    gap = (1/n) sum_i [loss_i(a_i) - loss_i(u_i) - g_i (a_i - u_i)] + |ridge w + F^T g/n|^2/(2 ridge) >= 0
bounds what the objective lies above its minimum: no conjugate of the loss is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from derive.document import TaskError
from solve.result import SolveError
from verify.loss import LoweredLoss, Response

__all__ = ["Minimum", "Problem", "SimulationError", "minimise"]

TOLERANCE = 1e-10
"""The largest gap, in units of the objective."""

_MOST_ROUNDS = 60
_MOST_NEWTON_STEPS = 100
_INNER = 0.1  # a round ends where its own error is this part of the gap
_LINE_TOLERANCE = 0.1  # slope along a Newton step, in units of that at its start, that ends the search
_STEP, _FACTOR, _SMALLEST_STEP = 10.0, 0.5, 1e-4  # of the Moreau envelopes, from round to round


class SimulationError(SolveError):
    """A simulation did not reach the accuracy that it states."""


@dataclass(frozen=True, eq=False)
class Problem:
    """features (n, d), labels (n,); ridge >= 0, with 0 for the limit of small ridges; bias: whether b is free."""

    features: Tensor
    labels: Tensor
    loss: LoweredLoss
    ridge: float
    bias: bool

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1] or not len(self.labels):
            raise ValueError(
                f"Problem: features (n, d) and labels (n,) are needed, got shapes {tuple(self.features.shape)} and "
                f"{tuple(self.labels.shape)}."
            )
        if {self.features.dtype, self.labels.dtype} != {torch.float64}:
            raise ValueError(f"Problem: float64 is needed, got {self.features.dtype} and {self.labels.dtype}.")
        if not self.ridge >= 0:
            raise ValueError(f"Problem: the ridge must not be negative, got {self.ridge}.")
        if self.ridge == 0 and not self.loss.smooth(self.labels):
            raise TaskError(
                "erm.ridge is 0: a loss with kinks need not have one minimum then, and none is simulated. Give a "
                "positive ridge, e.g. 1e-5."
            )

    def __str__(self) -> str:
        n, d = self.features.shape
        return f"The empirical risk at n = {n}, d = {d}, ridge {self.ridge:g}"

    def outputs(self, w: Tensor, b: float) -> Tensor:
        """F w + b (n,)."""
        return self.features @ w + b


@dataclass(frozen=True, eq=False)
class Minimum:
    """w (d,), b, the outputs F w + b (n,), the objective there, and a bound of what it lies above its minimum."""

    w: Tensor
    b: float
    outputs: Tensor
    objective: float
    gap: float
    newton_steps: int


@dataclass(frozen=True, eq=False)
class _Point:
    """A point of the search, with the response of the envelopes of step V at F w + b + V p."""

    problem: Problem
    w: Tensor
    b: float
    outputs: Tensor
    response: Response

    @property
    def gradient(self) -> Tensor:
        p = self.problem
        return p.ridge * self.w + p.features.T @ self.response.force / len(p.labels)

    @property
    def slope(self) -> float:
        """That of the objective in b."""
        return float(self.response.force.mean()) if self.problem.bias else 0.0

    def objective(self) -> float:
        p = self.problem
        return float(p.loss.value(p.labels, self.outputs).mean()) + p.ridge / 2 * float(self.w @ self.w)

    def split(self) -> float:
        """What the outputs of the envelopes add to the gap."""
        p, (u, force, _) = self.problem, self.response
        left = p.loss.value(p.labels, self.outputs) - p.loss.value(p.labels, u) - force * (self.outputs - u)
        return max(0.0, float(left.mean()))

    def stationarity(self) -> float:
        """What the gradient adds to it: for a bias within max(1, |b|) of b, and for ridge 0 for w likewise of w."""
        square, ridge = float(self.gradient.square().sum()), self.problem.ridge
        along = square / (2 * ridge) if ridge else square**0.5 * max(1.0, float(self.w.norm()))
        return along + abs(self.slope) * max(1.0, abs(self.b))


def minimise(problem: Problem, tolerance: float = TOLERANCE) -> Minimum:
    """The minimiser, with gap <= tolerance * objective; of a quadratic loss by one linear solve.

    Raises `SimulationError` where that is not reached, as where data can be separated and the ridge is 0.
    """
    if problem.loss.quadratic and problem.ridge == 0:
        return _least_squares(problem, tolerance)
    search = _newton(problem) if problem.loss.smooth(problem.labels) else _multipliers(problem, tolerance)
    for steps, (point, gap) in enumerate(search):
        if gap <= tolerance * abs(point.objective()):
            return Minimum(point.w, point.b, point.outputs, point.objective(), gap, steps)
    raise SimulationError(
        f"{problem} was minimised to a gap of {gap:.1e} only, of an objective {point.objective():.4g}, in {steps} "
        "Newton steps. Raise the ridge, or the tolerance."
    )


# ---------------------------------------------------------------- the two methods


_Search = Iterator[tuple[_Point, float]]


def _newton(problem: Problem) -> _Search:
    """The points of Newton's method from zero, with their gaps."""
    point = _start(problem, 0.0)
    yield point, point.stationarity()
    for _ in range(_MOST_NEWTON_STEPS):
        point = _descend(point, 0.0, torch.zeros_like(point.outputs))
        yield point, point.stationarity()


def _multipliers(problem: Problem, tolerance: float) -> _Search:
    """The points of the method of multipliers; a round's Newton steps end where its own error is a part of the gap."""
    zero = torch.zeros_like(problem.labels)
    slope = float(problem.loss.response(problem.labels, zero, 0.0).force.abs().mean())
    unit = 1 / slope if slope > 0 else 1.0  # steps are outputs over forces
    step, shift = unit * _STEP, zero
    point = _start(problem, step)
    for _ in range(_MOST_ROUNDS):
        for _ in range(_MOST_NEWTON_STEPS):
            point = _descend(point, step, shift)
            own, split = point.stationarity(), point.split()
            yield point, own + split
            if own <= max(_INNER * split, _INNER * tolerance * abs(point.objective())):
                break
        step = max(unit * _SMALLEST_STEP, _FACTOR * step)
        shift = step * point.response.force
        point = _at(problem, point.w, point.b, point.outputs, step, shift)


def _start(problem: Problem, step: float) -> _Point:
    d = problem.features.shape[1]
    outputs = torch.zeros_like(problem.labels)
    return _at(problem, problem.features.new_zeros(d), 0.0, outputs, step, outputs)


def _at(problem: Problem, w: Tensor, b: float, outputs: Tensor, step: float, shift: Tensor) -> _Point:
    return _Point(problem, w, b, outputs, problem.loss.response(problem.labels, outputs + shift, step))


def _descend(point: _Point, step: float, shift: Tensor) -> _Point:
    """The minimum along the Newton step of the envelopes of that step, at outputs shifted by `shift`."""
    problem = point.problem
    dw, db = _newton_step(point)
    along = problem.outputs(dw, db)

    def at(t: float) -> tuple[_Point, float]:
        there = _at(problem, point.w + t * dw, point.b + t * db, point.outputs + t * along, step, shift)
        pull = problem.ridge * float(there.w @ dw)
        return there, pull + float(there.response.force @ along) / len(problem.labels)

    begun = float(point.gradient @ dw) + point.slope * db
    found = _along(at, begun)
    return _at(problem, found.w, found.b, problem.outputs(found.w, found.b), step, shift)


def _along(at: Callable[[float], tuple[_Point, float]], begun: float) -> _Point:
    """The point on a ray where the slope, `begun` < 0 at its start, is nearly 0: the whole step where that will do."""
    low, high, t = 0.0, float("inf"), 1.0
    found, slope = at(t)
    for _ in range(_MOST_NEWTON_STEPS):
        if abs(slope) <= _LINE_TOLERANCE * abs(begun) or high - low <= 1e-12 * t:
            break
        low, high = (t, high) if slope < 0 else (low, t)
        t = 2 * t if high == float("inf") else (low + high) / 2
        found, slope = at(t)
    return found


# ---------------------------------------------------------------- linear algebra


def _newton_step(point: _Point) -> tuple[Tensor, float]:
    """-H^-1 gradient in w and b, with H = ridge + F^T D F/n and D the stiffness."""
    problem, g = point.problem, point.gradient
    weight = point.response.stiffness / len(problem.labels)
    solve = _solver(problem.features, weight, problem.ridge)
    if not problem.bias:
        return -solve(g[:, None])[:, 0], 0.0
    # eliminate w: H_bw = F^T D 1/n
    mixed = problem.features.T @ weight
    inverse = solve(torch.stack([g, mixed], dim=1))
    total = float(weight.sum())
    left = max(total - float(mixed @ inverse[:, 1]), _FLAT * max(total, 1.0))
    db = -(point.slope - float(mixed @ inverse[:, 0])) / left
    return -inverse[:, 0] - db * inverse[:, 1], db


_FLAT = 1e-9  # of the curvature in b: below it, the step is as long as the line search allows


def _solver(features: Tensor, weight: Tensor, ridge: float) -> Callable[[Tensor], Tensor]:
    """The function r -> (ridge + F^T diag(weight) F)^-1 r, by the smaller of the two Gram matrices."""
    active = weight > 0
    root = features[active] * weight[active].sqrt()[:, None]
    n, d = root.shape
    if n >= d or ridge == 0:
        factor = _cholesky(root.T @ root, ridge)
        return lambda r: torch.cholesky_solve(r, factor)
    factor = _cholesky(root @ root.T, ridge)
    return lambda r: (r - root.T @ torch.cholesky_solve(root @ r, factor)) / ridge


def _cholesky(gram: Tensor, ridge: float) -> Tensor:
    gram.diagonal().add_(ridge)
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(gram)
    if int(info):
        raise SimulationError(
            f"The curvature of the empirical risk at ridge {ridge:g} is singular, as where the data can be separated. "
            "Raise the ridge."
        )
    return factor


def _least_squares(problem: Problem, tolerance: float) -> Minimum:
    """The limit ridge -> 0 of a quadratic loss: of all minimisers that of the smallest |w|."""
    start = _start(problem, 0.0)
    root = start.response.stiffness.sqrt()
    target = -start.response.force / root
    rows = root[:, None] * problem.features
    if problem.bias:
        unit = root / root.norm()
        rows, target = rows - unit[:, None] * (unit @ rows), target - unit * (unit @ target)
    w = torch.linalg.lstsq(rows.cpu(), target.cpu()[:, None], driver="gelsd").solution[:, 0].to(rows.device)
    stiffness, force = start.response.stiffness, start.response.force
    b = -float((force + stiffness * (problem.features @ w)).sum() / stiffness.sum()) if problem.bias else 0.0
    point = _at(problem, w, b, problem.outputs(w, b), 0.0, torch.zeros_like(target))
    gap = point.stationarity()
    if not gap <= tolerance * start.objective():
        raise SimulationError(f"Least squares without a ridge: the gap is {gap:.1e}. Give a ridge, e.g. 1e-8.")
    return Minimum(w, b, point.outputs, point.objective(), gap, 1)
