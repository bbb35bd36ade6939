"""Rigorous Gauss-Legendre cubature of an analytic integrand under the standard normal law, in any dimension.

Each variable is x = start + width u with u in [0, 1]. The unit cube is cut into cells; in a cell, n nodes in a
direction err by at most (64/15) M rho^(-2n) / (1 - rho^-2) a half-width, where M bounds the integrand on the
Bernstein ellipse rho in that direction: its Chebyshev coefficients are at most 2 M rho^-k, the rule is exact to
degree 2n - 1, and |integral| + |rule| <= 2 + 2/15 for T_k, even k >= 4. The errors of the directions add up,
because the weights are positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from solve.balls import BallArrays, gaussian_factor
from solve.boxes import BoxBounds
from solve.cells import Axis, Cells, Symmetry, first_cells, joined
from solve.rectangles import WIDER, Rectangle
from solve.straightline import NotAffordable, Program

__all__ = ["cubature"]

Array: TypeAlias = NDArray[np.float64]
_ELLIPSES = np.array([1.1, 1.2, 1.35, 1.6, 2.0, 2.5, 3.3, 4.5, 6.5, 10.0])
_LARGEST_CELLS = 400_000
_DEEPEST = 60
_BATCH = 2**15  # points evaluated at once
_CHUNK = 2**12  # cells bounded at once


@dataclass(frozen=True)
class _Problem:
    """The integrand times prod_i phi(x_i) width_i on the unit cube."""

    program: Program
    constants: tuple[arb, ...]
    axes: tuple[Axis, ...]
    symmetries: tuple[Symmetry, ...]

    @property
    def dim(self) -> int:
        return len(self.axes)

    def bound(self, cells: Cells, direction: int = 0, rho: float = 1.0) -> Array:
        """sup |integrand * density| over each cell, widened in `direction` to the Bernstein ellipse of rho."""
        parts = [np.arange(i, min(i + _CHUNK, len(cells))) for i in range(0, len(cells), _CHUNK)]
        bounds = [self._bound_on(cells.take(part), direction, rho) for part in parts]
        return np.concatenate(bounds) if bounds else np.zeros(0)

    def _bound_on(self, cells: Cells, direction: int, rho: float) -> Array:
        start = np.array([[float(a.start.mid())] for a in self.axes])
        width = np.array([[float(a.width.upper())] for a in self.axes])
        loose = np.array([[float(a.start.rad()) + 2 * float(a.width.rad())] for a in self.axes])
        half = width * cells.half * WIDER
        radius = half + loose + 1e-13 * (np.abs(start) + width)
        height = np.zeros_like(radius)
        if rho > 1:
            height[direction] = half[direction] * ((rho - 1 / rho) / 2) * WIDER
            radius[direction] += half[direction] * ((rho + 1 / rho) / 2 - 1) * WIDER
        with np.errstate(all="ignore"):
            return self._bound(start + width * cells.centre, radius, height, width)

    def _bound(self, centre: Array, radius: Array, height: Array, width: Array) -> Array:
        arithmetic = BoxBounds(radius, height)
        variables = [arithmetic.variable(i, centre[i]) for i in range(self.dim)]
        value = self.program.run(arithmetic, variables, [arithmetic.constant(c) for c in self.constants])
        modulus = (value if isinstance(value, Rectangle) else value.rectangle).modulus
        least = np.maximum(np.abs(centre) - radius, 0)
        # |phi(x + iy)| = exp((y^2 - x^2) / 2) / sqrt(2 pi)
        density = np.exp(((height**2 - least**2) / 2).sum(0)) * np.prod(width / math.sqrt(2 * math.pi))
        bound = modulus * density * WIDER
        return np.where(np.isnan(bound), np.inf, bound)


@dataclass(frozen=True)
class _Plan:
    """Cells with their numbers of nodes (dim, n), and the bound of all that is left out."""

    cells: Cells
    nodes: NDArray[np.int64]
    error: float


def cubature(
    program: Program,
    constants: Sequence[arb],
    axes: Sequence[Axis],
    tolerance: float,
    budget: float,
    symmetries: Sequence[Symmetry] = (),
) -> arb:
    """A ball that holds E[f(x) 1(x in the box)], x standard normal, about as narrow as `tolerance`.

    `symmetries`: reflections and exchanges of variables that keep f and the box; cells are done once for all
    their images. Raises `NotAffordable` when that takes more than `budget` evaluations.
    """
    problem = _Problem(program, tuple(constants), tuple(axes), tuple(symmetries))
    plan = _plan(problem, tolerance, budget)
    total = arb(0, plan.error)
    for cells, nodes in _batches(plan):
        total += _evaluate(problem, cells, nodes)
    return total


# ------------------------------------------------------------------------------------------- the plan


def _plan(problem: _Problem, tolerance: float, budget: float) -> _Plan:
    cells = first_cells(problem.axes, problem.symmetries)
    done: list[Cells] = []
    counts: list[NDArray[np.int64]] = []
    error, spent, most = 0.0, 0.0, _most_nodes(problem.dim, tolerance)
    for _ in range(_DEEPEST):
        finished = sum(float(c.copies.sum()) for c in done)
        share = tolerance / 2 / (finished + float(cells.copies.sum()))
        size = problem.bound(cells) * (2 * cells.half).prod(0)
        error += float((size * cells.copies)[size <= share].sum()) * WIDER
        cells = cells.take(size > share)
        nodes, errors = _nodes(problem, cells, share)
        ready = nodes.max(axis=0, initial=0) <= most
        error += float((errors.sum(0) * cells.copies)[ready].sum()) * WIDER
        done.append(cells.take(ready))
        counts.append(nodes[:, ready].astype(np.int64))
        spent += float(nodes[:, ready].prod(0).sum())
        if ready.all() and spent <= budget:
            return _Plan(joined(done), np.concatenate(counts, axis=1), error)
        cells = cells.take(~ready).bisected(_direction(nodes[:, ~ready], cells.half[:, ~ready]))
        if len(cells) > _LARGEST_CELLS or spent > budget:
            break
    raise NotAffordable(
        f"an accuracy of {tolerance:.1e} in {problem.dim} variables takes more than {budget:.1e} evaluations"
    )


def _most_nodes(dim: int, tolerance: float) -> int:
    """More nodes than this in a direction and the cell is cut: digits / 2 within reason, few in many dimensions."""
    digits = max(1.0, -math.log10(tolerance))
    return max(4, round(digits * {1: 2.0, 2: 1.5, 3: 1.2}.get(dim, 1.0) + 2))


def _nodes(problem: _Problem, cells: Cells, share: float) -> tuple[Array, Array]:
    """Per direction and cell: nodes for an error of share / dim with the best ellipse, and that error."""
    allowed, volume = share / problem.dim, (2 * cells.half).prod(0)
    counts = np.full(cells.centre.shape, np.inf)
    errors = np.full(cells.centre.shape, np.inf)
    for i in range(problem.dim):
        for rho in _ELLIPSES:
            with np.errstate(all="ignore"):
                # (vol / 2) (64/15) M rho^-2n / (1 - rho^-2) <= allowed
                scale = problem.bound(cells, i, rho) * volume * (32 / 15) / (1 - rho**-2) * WIDER
                n = np.maximum(np.ceil(np.log(scale / allowed) / (2 * math.log(rho))), 2)
                better = n < counts[i]
                counts[i] = np.where(better, n, counts[i])
                errors[i] = np.where(better, scale * rho ** (-2 * n) * WIDER, errors[i])
    return counts, errors


def _direction(nodes: Array, half: Array) -> NDArray[np.int64]:
    """Where most nodes are needed; among directions without an ellipse, the widest."""
    key = np.where(np.isfinite(nodes), nodes, 1e6 * (1 + half))
    return np.asarray(key.argmax(axis=0), dtype=np.int64)


# ------------------------------------------------------------------------------------------- the evaluation


def _batches(plan: _Plan) -> Iterator[tuple[Cells, tuple[int, ...]]]:
    """Cells of equal numbers of nodes, in pieces that fit the cache."""
    patterns, which = np.unique(plan.nodes, axis=1, return_inverse=True)
    for k, pattern in enumerate(patterns.T):
        members = np.flatnonzero(which == k)
        size = max(1, _BATCH // int(pattern.prod()))
        for first in range(0, len(members), size):
            yield plan.cells.take(members[first : first + size]), tuple(int(n) for n in pattern)


@lru_cache(maxsize=512)
def _legendre(n: int, bits: int) -> tuple[Any, Any]:
    """Nodes and weights on [-1, 1], as object arrays of balls."""
    with ctx.workprec(bits):
        pairs = [arb.legendre_p_root(n, k, weight=True) for k in range(n)]
    return np.array([x for x, _ in pairs], dtype=object), np.array([w for _, w in pairs], dtype=object)


def _evaluate(problem: _Problem, cells: Cells, nodes: tuple[int, ...]) -> arb:
    """The sum of the tensor rules of all `cells`."""
    points, weights = [], []
    for i, (axis, n) in enumerate(zip(problem.axes, nodes, strict=True)):
        x, w = _along(axis, cells, i, n)
        points.append(_on_axis(x, i, problem.dim))
        weights.append(w)
    arithmetic = BallArrays()
    constants = [arithmetic.constant(c) for c in problem.constants]
    value = problem.program.run(arithmetic, points, constants)
    for i in reversed(range(problem.dim)):
        value = (value * _on_axis(weights[i], i, i + 1)).sum(axis=-1)
    total: arb = (value * cells.copies).sum()
    return total


def _along(axis: Axis, cells: Cells, i: int, n: int) -> tuple[Any, Any]:
    """Points x and weights w_k half width phi(x) of shape (cells, n)."""
    xi, w = _legendre(n, ctx.prec)
    exact = np.frompyfunc(arb, 1, 1)
    half = exact(cells.half[i])
    u = exact(cells.centre[i])[:, None] + half[:, None] * xi
    x = axis.start + axis.width * u
    return x, np.frompyfunc(gaussian_factor, 1, 1)(x) * (axis.width * half)[:, None] * w


def _on_axis(values: Any, i: int, dim: int) -> Any:
    """(cells, n) -> (cells, 1, .., n, .., 1) with n on axis 1 + i of 1 + dim."""
    return values.reshape(values.shape[0], *(1,) * i, values.shape[1], *(1,) * (dim - 1 - i))
