"""Training of S itself for any convex spectral penalty: accelerated proximal gradients; conjugate gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from verify.attention_indexed.penalty import Denoised
from verify.attention_indexed.risk import Minimum, Risk, checked

__all__ = ["conjugate_gradients", "proximal_gradient", "subgradient_residual"]

TOLERANCE = 1e-6
_MOST_STEPS = 20_000
_LOOK = 10  # steps between two certificates, each of which costs a pass over the data
_GROW, _SHRINK = 1.1, 0.5  # of the step size
_SLACK = 1e-12  # of the loss: differences below it are rounding


def proximal_gradient(
    risk: Risk, start: Tensor | None = None, *, tolerance: float = TOLERANCE, most_steps: int = _MOST_STEPS
) -> Minimum:
    """The minimum by FISTA with backtracking and restarts  [Beck and Teboulle 2009; O'Donoghue and Candes 2015].

    Of a loss that is not convex in S a stationary point. Raises `TrainingError` where the subgradient
    (y - s)/t - grad(y) + grad(s) at s = prox(y - t grad(y)) does not fall to the tolerance.
    """
    s = risk.tokens.x.new_zeros((risk.d, risk.d)) if start is None else start
    y, momentum, step = s, 1.0, _first_step(risk, s)
    first, residual, count = float(risk.data(s)[1].norm()), math.inf, 0
    for count in range(1, most_steps + 1):
        value, gradient = risk.data(y)
        found, step = _prox_step(risk, y, value, gradient, step)
        if count % _LOOK == 0:
            residual = _residual(risk, found.matrix, (y - found.matrix) / step - gradient, first)
            if residual <= tolerance:
                return Minimum(found.matrix, residual, count)
        moved = found.matrix - s
        if float(((y - found.matrix) * moved).sum()) > 0:  # uphill: start the momentum anew
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        y = found.matrix + (momentum - 1) / following * moved
        s, momentum, step = found.matrix, following, _GROW * step
    return checked(Minimum(s, residual, count), tolerance, "The proximal gradient method")


def _first_step(risk: Risk, s: Tensor) -> float:
    """From the curvature along the gradient."""
    _, gradient = risk.data(s)
    size = float(gradient.norm())
    if not size:
        return 1.0
    probe = 1e-4 * gradient / size
    bend = float(((risk.data(s + probe)[1] - gradient) * probe).sum()) / float(probe.square().sum())
    return 1 / bend if bend > 0 else 1.0


def _prox_step(risk: Risk, y: Tensor, value: float, gradient: Tensor, step: float) -> tuple[Denoised, float]:
    """The step shrinks until the quadratic model of that curvature lies above the loss."""
    while True:
        found = risk.penalty.denoise(y - step * gradient, step)
        moved = found.matrix - y
        model = value + float((gradient * moved).sum()) + float(moved.square().sum()) / (2 * step)
        if risk.data_value(found.matrix) <= model + _SLACK * abs(value) or step < 1e-300:
            return found, step
        step *= _SHRINK


def _residual(risk: Risk, s: Tensor, pull: Tensor, first: float) -> float:
    """pull: an element of the penalty's subdifferential at s."""
    _, data = risk.data(s)
    scale = first if risk.penalty.vanishes else float(data.norm()) + float(pull.norm())
    return float((data + pull).norm()) / scale if scale else 0.0


def subgradient_residual(risk: Risk, s: Tensor, step: float) -> float:
    """The residual of `Minimum` at prox(s - step gradient(s)), which is s itself at a minimum."""
    _, gradient = risk.data(s)
    found = risk.penalty.denoise(s - step * gradient, step)
    first = float(risk.data(torch.zeros_like(s))[1].norm()) if risk.penalty.vanishes else 0.0
    return _residual(risk, found.matrix, (s - found.matrix) / step - gradient, first)


def conjugate_gradients(risk: Risk, *, tolerance: float = 1e-12, most_steps: int = 10_000) -> Minimum:
    """The minimum of a loss quadratic in S with a penalty a s + b s^2 and no positivity, by conjugate gradients.

    Raises `ValueError` for another penalty, and `TrainingError` where the residual, here over that of S = 0, does not
    fall to the tolerance, as for a loss that is not quadratic.
    """
    if risk.penalty.quadratic is None or risk.penalty.positive:
        raise ValueError("conjugate_gradients: the penalty must be a s + b s^2 for all s, e.g. Frobenius.")

    def gradient(s: Tensor) -> Tensor:
        return risk.data(s)[1] + risk.penalty.gradient(s)

    s = risk.tokens.x.new_zeros((risk.d, risk.d))
    constant = gradient(s)
    left = -constant
    direction, size, count = left, float(left.square().sum()), 0
    first = math.sqrt(size) or 1.0
    while count < most_steps and math.sqrt(size) > 0.1 * tolerance * first:
        count += 1
        image = gradient(direction) - constant
        t = size / float((direction * image).sum())
        s, left = s + t * direction, left - t * image
        size, before = float(left.square().sum()), size
        direction = left + size / before * direction
    return checked(Minimum(s, float(torch.linalg.norm(gradient(s))) / first, count), tolerance, "Conjugate gradients")
