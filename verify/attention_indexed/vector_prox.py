"""min over v of loss(target, h) + (v - omega)^T V^-1 (v - omega)/2, sample by sample, by Newton's method.

v = h/scale are orthonormal coordinates of the indices, scale sqrt(2) on the diagonal and 1 beside it; V is a sample's
own response matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.attention_indexed.index_loss import IndexLoss
from verify.attention_indexed.risk import TrainingError

__all__ = ["Responses", "respond", "scales_of"]

_MOST_STEPS = 200
_MOST_HALVINGS = 40
_TOLERANCE = 1e-10  # of the gradient in w, in units of 1 + |w|
_FLOOR = 1e-3  # below it a curvature in w is not trusted in a step


@dataclass(frozen=True, eq=False)
class Responses:
    """points: v at the minimum, (k, n). forces: V^-1 (v - omega). divergence: sum_j d forces_j/d omega_j, (n,)."""

    points: Tensor
    forces: Tensor
    divergence: Tensor


def scales_of(pairs: Sequence[tuple[int, int]], like: Tensor) -> Tensor:
    """h/v of each entry: (pairs,)."""
    return like.new_tensor([math.sqrt(2) if a == b else 1.0 for a, b in pairs])


@dataclass(frozen=True, eq=False)
class _Local:
    """The samples' own problems, for some of the samples: omega (k, n), roots (n, k, k) with V = root root^T."""

    loss: IndexLoss
    known: Tensor
    scales: Tensor
    omega: Tensor
    roots: Tensor

    def part(self, where: Tensor) -> _Local:
        return _Local(self.loss, self.known[:, where], self.scales, self.omega[:, where], self.roots[where])

    def point(self, w: Tensor) -> Tensor:
        """v = omega + root w: in w the quadratic term is |w|^2/2."""
        return self.omega + torch.einsum("nij,jn->in", self.roots, w)

    def value(self, w: Tensor) -> Tensor:
        return self.loss.value(self.known, self.scales[:, None] * self.point(w)) + w.square().sum(0) / 2

    def gradient(self, w: Tensor) -> Tensor:
        _, slopes = self.loss.value_and_slopes(self.known, self.scales[:, None] * self.point(w))
        return torch.einsum("nij,in->jn", self.roots, self.scales[:, None] * slopes) + w

    def curvature(self, w: Tensor) -> Tensor:
        """Of the loss in w: (n, k, k)."""
        found = self.loss.curvatures(self.known, self.scales[:, None] * self.point(w))
        return self.roots.mT @ (self.scales[:, None] * self.scales * found) @ self.roots


def respond(
    loss: IndexLoss, known: Tensor, omega: Tensor, response: Tensor, scales: Tensor, starts: Sequence[Tensor] = ()
) -> Responses:
    """The minimisers for omega (k, n) and V (n, k, k), each the lowest of those from omega and from `starts` (k, n).

    Raises `TrainingError` where Newton's method does not converge for a sample.
    """
    problem = _Local(loss, known, scales, omega, torch.linalg.cholesky(response))
    best = _newton(problem, torch.zeros_like(omega))
    lowest = problem.value(best)
    for start in starts:
        away = torch.linalg.solve_triangular(problem.roots, (start - omega).T[:, :, None], upper=False)[:, :, 0].T
        other = _newton(problem, away)
        value = problem.value(other)
        best, lowest = torch.where(value < lowest, other, best), torch.minimum(value, lowest)
    unit = torch.eye(len(omega), dtype=omega.dtype, device=omega.device)
    # v - omega = root w and V^-1 root w = root^-T w; with C the curvature in w, dv/domega = root (1 + C)^-1 root^-1
    forces = torch.linalg.solve_triangular(problem.roots.mT, best.T[:, :, None], upper=True)[:, :, 0].T
    inner = torch.linalg.inv(unit + problem.curvature(best)) - unit
    inverse = torch.linalg.inv(problem.roots)
    divergence = (inverse.mT @ inner @ inverse).diagonal(dim1=1, dim2=2).sum(1)
    return Responses(problem.point(best), forces, divergence)


def _newton(problem: _Local, start: Tensor) -> Tensor:
    w = start.clone()
    active = torch.arange(w.shape[1], device=w.device)
    for _ in range(_MOST_STEPS):
        local, here = problem.part(active), w[:, active]
        gradient = local.gradient(here)
        moving = gradient.abs().amax(0) > _TOLERANCE * (1 + here.abs().amax(0))
        if not bool(moving.any()):
            return w
        active, local, here, gradient = active[moving], local.part(moving), here[:, moving], gradient[:, moving]
        w[:, active] = _descended(local, here, gradient)
    raise TrainingError(
        f"The proximal operator of the loss did not converge for {len(active)} of {w.shape[1]} samples."
    )


def _descended(local: _Local, w: Tensor, gradient: Tensor) -> Tensor:
    """A Newton step, halved until the value falls."""
    move = -_divided(local.curvature(w), gradient)
    value = local.value(w)
    slack = 1e-14 * (1 + value.abs())
    t = torch.ones_like(value)
    for _ in range(_MOST_HALVINGS):
        worse = local.value(w + t * move) > value + slack
        if not bool(worse.any()):
            break
        t = torch.where(worse, t / 2, t)
    return w + t * move


def _divided(curvature: Tensor, gradient: Tensor) -> Tensor:
    """(1 + C)^-1 gradient, (k, n); where 1 + C is not positive, with its eigenvalues taken by their size."""
    hessian = curvature + torch.eye(len(gradient), dtype=curvature.dtype, device=curvature.device)
    factor, info = torch.linalg.cholesky_ex(hessian)
    bent = info > 0
    found: Tensor = torch.cholesky_solve(gradient.T[:, :, None], factor)[:, :, 0].T
    if bool(bent.any()):
        values, basis = torch.linalg.eigh(hessian[bent])
        along = torch.einsum("nij,in->jn", basis, gradient[:, bent]) / values.abs().clamp_min(_FLOOR).T
        found = found.clone()
        found[:, bent] = torch.einsum("nij,jn->in", basis, along)
    return found
