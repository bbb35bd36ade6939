"""Gradient training of W with S = W W^T/sqrt(p d), or of S itself: L-BFGS and Adam to a stated relative gradient."""

from __future__ import annotations

import abc
import math
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor

from verify.attention_indexed.risk import Minimum, Risk, checked

__all__ = ["AbstractParameters", "Direct", "Factorised", "adam", "lbfgs", "start_weights"]

TOLERANCE = 1e-6
"""Of the relative gradient: the objective is then accurate to about its square."""
ADAM_TOLERANCE = 1e-2
"""Adam's last steps still jump by its learning rate; the objective is accurate to about the square of this."""

_MEMORY = 30
_MOST_STEPS = 20_000
_ARMIJO, _CURVATURE = 1e-4, 0.9
_MOST_TRIALS = 40
_ROUNDING = 1e-13  # of the objective


class AbstractParameters(abc.ABC):
    """What is trained, as a function of the weights theta."""

    @abc.abstractmethod
    def matrix(self, theta: Tensor) -> Tensor:
        """S."""

    @abc.abstractmethod
    def pull(self, theta: Tensor, gradient: Tensor) -> Tensor:
        """The gradient in theta from that in S."""


@dataclass(frozen=True)
class Factorised(AbstractParameters):
    """theta = W (d, p), S = W W^T/sqrt(p d)."""

    def matrix(self, theta: Tensor) -> Tensor:
        return theta @ theta.T / math.sqrt(theta.numel())

    def pull(self, theta: Tensor, gradient: Tensor) -> Tensor:
        return 2 / math.sqrt(theta.numel()) * gradient @ theta


@dataclass(frozen=True)
class Direct(AbstractParameters):
    """theta = S, symmetric, as all gradients are."""

    def matrix(self, theta: Tensor) -> Tensor:
        return theta

    def pull(self, theta: Tensor, gradient: Tensor) -> Tensor:
        return gradient


def start_weights(d: int, p: int, generator: torch.Generator) -> Tensor:
    """W of independent N(0, 1)."""
    return torch.randn((d, p), generator=generator, dtype=torch.float64, device=generator.device)


@dataclass(frozen=True, eq=False)
class _Point:
    """theta with the objective, its gradient, and the norms of the two parts of that."""

    theta: Tensor
    value: float
    gradient: Tensor
    scale: float


@dataclass
class _Objective:
    """risk + penalty as a function of theta; without a penalty, gradients are measured by the first."""

    risk: Risk
    parameters: AbstractParameters
    first: float | None = field(default=None)

    def __call__(self, theta: Tensor) -> _Point:
        s = self.parameters.matrix(theta)
        value, data = self.risk.data(s)
        gradient = self.parameters.pull(theta, data)
        penalty = self.parameters.pull(theta, self.risk.penalty.gradient(s))
        if self.first is None:
            self.first = float(gradient.norm())
        scale = self.first if self.risk.penalty.vanishes else float(gradient.norm()) + float(penalty.norm())
        return _Point(theta, value + self.risk.penalty.value(s), gradient + penalty, scale)

    def minimum(self, point: _Point, steps: int) -> Minimum:
        return Minimum(self.parameters.matrix(point.theta), _residual(point), steps)


def _residual(point: _Point) -> float:
    return float(point.gradient.norm()) / point.scale if point.scale else 0.0


# ---------------------------------------------------------------- L-BFGS


def lbfgs(
    risk: Risk,
    parameters: AbstractParameters,
    theta: Tensor,
    *,
    tolerance: float = TOLERANCE,
    most_steps: int = _MOST_STEPS,
) -> Minimum:
    """The minimum that a descent from theta reaches, by L-BFGS with a line search for Wolfe's conditions.

    Raises `TrainingError` where the relative gradient does not fall to the tolerance.
    """
    objective = _Objective(risk, parameters)
    point, memory = objective(theta), _Memory()
    for step in range(most_steps):
        if _residual(point) <= tolerance:
            break
        direction = memory.direction(point.gradient)
        following = _along(objective, point, direction, first=step == 0)
        if following is None and memory.pairs:  # rounding: once more, from the gradient
            memory = _Memory()
            following = _along(objective, point, memory.direction(point.gradient), first=True)
        if following is None:
            break
        memory.add(following.theta - point.theta, following.gradient - point.gradient)
        point = following
    return checked(objective.minimum(point, step), tolerance, "L-BFGS")


class _Memory:
    """The last differences of weights and gradients."""

    def __init__(self) -> None:
        self.pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=_MEMORY)

    def add(self, s: Tensor, y: Tensor) -> None:
        curvature = float((s * y).sum())
        if curvature > 0:
            self.pairs.append((s, y, curvature))

    def direction(self, gradient: Tensor) -> Tensor:
        """-H gradient by the two loops  [Nocedal and Wright, algorithm 7.4]."""
        q, factors = gradient.clone(), []
        for s, y, curvature in reversed(self.pairs):
            a = float((s * q).sum()) / curvature
            q.sub_(y, alpha=a)
            factors.append(a)
        if self.pairs:
            _, y, curvature = self.pairs[-1]
            q.mul_(curvature / float(y.square().sum()))
        for (s, y, curvature), a in zip(self.pairs, reversed(factors), strict=True):
            q.add_(s, alpha=a - float((y * q).sum()) / curvature)
        return q.neg_()


def _along(objective: _Objective, point: _Point, direction: Tensor, *, first: bool) -> _Point | None:
    """A point of Wolfe's weak conditions by bisection, None if none is found  [Lewis and Overton 2013]."""
    slope = float((point.gradient * direction).sum())
    if not slope < 0:
        return None
    low, high = 0.0, math.inf
    t = min(1.0, float(point.theta.norm() + 1) * 1e-2 / float(direction.norm())) if first else 1.0
    slack = _ROUNDING * abs(point.value)
    for _ in range(_MOST_TRIALS):
        there = objective(point.theta + t * direction)
        along = float((there.gradient * direction).sum())
        # beside the minimum values are rounding, and the slope alone tells
        flat = abs(along) <= _CURVATURE * abs(slope) and there.value <= point.value + slack
        if not (there.value <= point.value + _ARMIJO * t * slope or flat):
            high = t
        elif along < _CURVATURE * slope:
            low = t
        else:
            return there
        t = (low + high) / 2 if high < math.inf else 2 * t
    return None


# ---------------------------------------------------------------- Adam


def adam(
    risk: Risk,
    parameters: AbstractParameters,
    theta: Tensor,
    *,
    learning_rate: float = 0.05,
    steps: int = 3000,
    tolerance: float = ADAM_TOLERANCE,
) -> Minimum:
    """Where Adam on all samples ends from theta, its learning rate falling to zero as half a cosine.

    Raises `TrainingError` where the relative gradient does not fall to the tolerance.
    """
    objective = _Objective(risk, parameters)
    weights = theta.clone().requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        weights.grad = objective(weights.detach()).gradient
        optimiser.step()
        schedule.step()
    return checked(objective.minimum(objective(weights.detach()), steps), tolerance, "Adam")
