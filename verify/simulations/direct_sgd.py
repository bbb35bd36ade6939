"""One-pass spherical SGD of a sequence single-index model in d dimensions: every token drawn, every step taken.

Written for unit vectors: u = w/|w| (K, d), with K = 1 vector for the tied network and attention and K = L for the
untied one, and x_i ~ N(0, I) for the tokens times sqrt d. With the orthonormal directions q_0 = w*/|w*| and q_k of
the positions P (L, r), the model reads
    z*_i = <x_i, q_0>,   s_i = <u, x_i + sum_k P_ik q_k> (untied: s = sum_i <u_i, x_i>),   overlaps <u, q_k>,
    u <- (u - (lr/(K d)) sum_i D_i (x_i + sum_k P_ik q_k)) / |.|,   D_i = d loss/d s_i by autograd.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import sympy as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from derive.tasks.sequence_single_index import SequenceSingleIndex, Start
from verify.lower import Lowered, lower
from verify.simulation import LANES, Observation, Values, fill_normal, normal, row_sums
from verify.simulations.training_run import AbstractTraining, Clock

__all__ = ["SphericalSGD"]

Array: TypeAlias = NDArray[np.float64]

_CHUNK = 2**14  # normals that a replica draws at once
_SERIAL = 2**11 - 1  # numbers that torch always leaves to one thread; more threads would cut between vector lanes


@dataclass(frozen=True)
class SphericalSGD(AbstractTraining):
    """The training run in d dimensions, see `AbstractTraining`.

    The normals are drawn in float32 (3 to 5 times faster than in float64, rounded to 1e-7, none beyond 5.8) and
    then widened: overlaps, gradients and updates are float64.
    """

    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """Overlaps (n_replicas, n_times) by symbol, and `ESCAPE` (n_replicas,) where it is asked for."""
        clock = self.clock(parameters, size)
        model = _model(self.task, clock, generators[0].device)
        steps = self.steps(clock)
        record = np.full((len(steps), len(generators), len(model.overlaps)), np.nan)
        escape = np.full(len(generators), np.nan)
        n, last = 0, int(steps.max(initial=0))
        limit = last if self.escape is None else max(last, self.max_steps)
        for history in _trajectory(model, generators, limit):
            here = (steps >= n) & (steps < n + len(history))
            record[here] = history[steps[here] - n]
            if self.escape is not None:
                _note_escapes(escape, history, n, self.escape)
            n += len(history)
            lost = ~np.isfinite(history[-1]).all(axis=-1)
            if n > last and np.all(np.isfinite(escape) | lost):
                break
        return self.observation(clock, record, escape)


def _note_escapes(escape: Array, history: Array, first: int, threshold: float) -> None:
    reached = np.linalg.norm(history, axis=-1) >= threshold
    new = np.isnan(escape) & reached.any(axis=0)
    escape[new] = first + reached.argmax(axis=0)[new]


@dataclass(frozen=True)
class _Model:
    """A task at given parameters and size, ready to run."""

    size: int
    length: int
    vectors: int
    rate: float  # lr/(K d), the time of one step
    overlaps: tuple[sp.Symbol, ...]
    start: tuple[float, ...] | Start  # overlaps prepared, or how they are drawn
    positions: Tensor | None  # P (L, r)
    values: tuple[Tensor, ...]  # of the parameters
    target: Lowered  # tokens, parameters -> outputs
    loss: Lowered  # fields s, outputs of the target, parameters -> loss

    def truth(self, x: Tensor, teacher: Tensor) -> Tensor:
        """The target's outputs (n_steps, n_outputs, rows) on x (n_steps, rows, L, d), teacher (rows, 1, d)."""
        z = torch.stack([row_sums(tokens * teacher) for tokens in x])
        at_once = max(1, _SERIAL // z.shape[1])
        blocks = (z[i : i + at_once].permute(2, 0, 1).contiguous() for i in range(0, len(z), at_once))
        parts = [self.target((*tokens, *self.values)) for tokens in blocks]
        return torch.cat(parts, dim=1).transpose(0, 1).contiguous()

    def slopes(self, s: Tensor, y: Tensor) -> Tensor:
        """D_i = d loss/d s_i (rows, n_fields) by autograd; s (rows, L) the products per token, y the truth."""
        fields = s.T.contiguous() if self.vectors == 1 else _added(s)[None]
        fields.requires_grad_()
        loss = self.loss((*fields, *y, *self.values))
        (slopes,) = torch.autograd.grad(loss.sum(), fields)
        return slopes.T


def _added(x: Tensor, axis: int = 1) -> Tensor:
    """Sum over an axis, elementwise: of a few terms, in their order."""
    return functools.reduce(torch.add, x.unbind(axis))


def _model(task: SequenceSingleIndex, clock: Clock, device: torch.device) -> _Model:
    overlaps, values = task.overlap_symbols, clock.values
    start = clock.prepared(task.start, overlaps) if isinstance(task.start, Mapping) else task.start
    tensor = functools.partial(torch.tensor, dtype=torch.float64, device=device)
    positions = None if task.positions is None else tensor(np.array(task.positions.tolist(), dtype=np.float64))
    fixed = tuple(tensor(v) for v in values.values())
    target, loss = _programs(task, tuple(values))
    return _Model(clock.size, task.length, clock.vectors, clock.rate, overlaps, start, positions, fixed, target, loss)


def _programs(task: SequenceSingleIndex, parameters: tuple[sp.Symbol, ...]) -> tuple[Lowered, Lowered]:
    """The target of (tokens, parameters), and the loss of (s, target's outputs, parameters)."""
    student = task.student
    s = [sp.Dummy(f"s{t + 1}", real=True) for t in range(student.mixing.cols)]
    y = [sp.Dummy(f"y{k + 1}", real=True) for k in range(len(task.target))]
    fields = dict(zip(student.fields, student.mixing * sp.Matrix(s), strict=True))
    loss = task.loss(*(f.xreplace(fields) for f in student.output), *y)
    if not loss.has(*s):
        raise ValueError(f"The loss {loss} does not depend on the student's fields: there is nothing to train.")
    return lower(task.target, (*task.tokens, *parameters)), lower([loss], (*s, *y, *parameters))


# ---------------------------------------------------------------- the run


def _start(model: _Model, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
    """Unit vectors u (rows, K, d) and directions q (rows, 1 + r, d); the rows are padded by copies of the first."""
    n = 1 if model.positions is None else 1 + model.positions.shape[1]
    drawn = normal(generators, (n + model.vectors, model.size))
    drawn = torch.cat([drawn, drawn[:1].expand(-len(drawn) % LANES, -1, -1)])
    q, u = drawn[:, :0], drawn[:, n:]
    for k in range(n):
        q = torch.cat([q, _unit(_off(drawn[:, k : k + 1], q))], dim=1)
    match model.start:
        case Start.RANDOM:
            return _unit(u), q
        case Start.ORTHOGONAL:
            return _unit(_off(u, q[:, 1:])), q
        case tuple(values):
            c = torch.tensor(values, dtype=torch.float64, device=q.device)
            along = c[:, None] * q
            along = along if model.vectors > 1 else _added(along)[:, None]
            return along + math.sqrt(max(0.0, 1 - math.hypot(*values) ** 2)) * _unit(_off(u, q)), q
    raise AssertionError("a start is Start.RANDOM, Start.ORTHOGONAL or a mapping")


def _off(v: Tensor, q: Tensor) -> Tensor:
    """The part of v (rows, k, d) orthogonal to the orthonormal q (rows, n, d); twice, for full precision."""
    for _ in range(2):
        for direction in q.unbind(1):
            v = v - row_sums(v * direction[:, None])[..., None] * direction[:, None]
    return v


def _unit(v: Tensor) -> Tensor:
    """V (rows, k, d) with all its k vectors together of norm 1."""
    return v / _added(row_sums(v * v)).sqrt()[:, None, None]


def _trajectory(model: _Model, generators: Sequence[torch.Generator], steps: int) -> Iterator[Array]:
    """Overlaps at the start, then after each of the steps, in chunks (n_steps, n_replicas, n_overlaps)."""
    u, q = _start(model, generators)
    yield row_sums(u * q)[None, : len(generators)].cpu().numpy()
    rows, length, size = len(u), model.length, model.size
    chunk = min(256, max(1, _CHUNK // (length * size)))  # never of the number of replicas
    drawn = torch.zeros((rows, chunk, length, size), dtype=torch.float32, device=u.device)
    shift = None if model.positions is None else _combine(model.positions, q[:, 1:])
    for n in range(0, steps, chunk):
        fill_normal(drawn, generators)
        x = drawn[:, : steps - n].transpose(0, 1).to(torch.float64, memory_format=torch.contiguous_format)
        truth = model.truth(x, q[:, :1])
        if shift is not None:
            x.add_(shift)
        yield _advance(model, u, q, x, truth)[:, : len(generators)].cpu().numpy()


def _combine(positions: Tensor, frame: Tensor) -> Tensor:
    """sum_k P_ik q_k: positions (L, r), frame (rows, r, d) -> (rows, L, d)."""
    return _added(positions.T[None, :, :, None] * frame[:, :, None])


def _advance(model: _Model, u: Tensor, q: Tensor, x: Tensor, truth: Tensor) -> Tensor:
    """One step for each x[t], u in place; the overlaps after each step (n_steps, rows, n_overlaps)."""
    k = model.vectors
    moved = torch.empty_like(x[0])
    products = torch.empty((len(u), k + len(model.overlaps), model.size), dtype=u.dtype, device=u.device)
    history = torch.empty((len(x), *products.shape[:2]), dtype=u.dtype, device=u.device)
    for tokens, y, sums in zip(x, truth, history, strict=True):
        torch.mul(tokens, u, out=moved)
        slopes = model.slopes(row_sums(moved), y)
        torch.mul(tokens, (model.rate * slopes)[..., None], out=moved)
        for i in range(0, model.length, k):
            u.sub_(moved[:, i : i + k])
        torch.mul(u, u, out=products[:, :k])
        torch.mul(u, q, out=products[:, k:])
        sums.copy_(row_sums(products))
        u.div_(_added(sums[:, :k]).sqrt()[:, None, None])
    norm = _added(history[..., :k], axis=-1)[..., None].sqrt()
    return torch.where(norm.isfinite(), history[..., k:] / norm, math.nan)  # x/inf would pass for 0
