"""Proximal operators of smooth losses of several variables in numbers, by Newton's method from several starts.

u = prox_{V loss}(w) is where loss(u) + |u - w|^2/(2 V) is least. The loss need not be convex: of the minima that are
found from the starts the least is taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from solve.elementary import Array, compile_expressions
from solve.proximal import parameters_of

__all__ = ["VectorSolver", "vector_solver"]

Columns: TypeAlias = list[Array]
VectorSolver: TypeAlias = Callable[..., Columns]
_CLOSE = 1e-8  # a step below this part of 1 + |u| is the last: what it leaves is of second order
_MOST = 200
_SHORTEST = 1e-12  # of a step's part, below which the objective no longer falls: rounding
_DECREASE = 1e-4  # part of the predicted decrease that a step must bring
_LEAST_PIVOT = 1e-2
_ROUNDING = 1e-13


@functools.lru_cache(maxsize=64)
def vector_solver(loss: sp.Lambda, starts: int) -> VectorSolver:
    """(V, w_1 .. w_k, starts row by row, parameters) -> prox (k), the loss there, slopes (k), curvatures (k^2).

    One list of arrays of the common shape. parameters: the free symbols of the loss, sorted by name. nan where an
    argument is not finite, V <= 0, or no start leads to a minimum.
    """
    variables, parameters = tuple(loss.variables), parameters_of(loss)
    gradient = [loss.expr.diff(u) for u in variables]
    k = len(variables)
    hessian = [gradient[i].diff(variables[j]) for i in range(k) for j in range(i, k)]
    inputs = (*variables, *parameters)
    return _Solver(k, starts, compile_expressions([loss.expr, *gradient, *hessian], inputs))


@dataclass(frozen=True)
class _Solver:
    """derivatives: the loss, its gradient and the upper triangle of its second derivatives, of u and parameters."""

    k: int
    starts: int
    derivatives: Callable[..., Sequence[Any]]

    def __call__(self, V: Any, *columns: Any) -> Columns:
        arrays = np.broadcast_arrays(V, *columns)
        shape = arrays[0].shape
        flat = np.array([np.asarray(a, dtype=float).ravel() for a in arrays])
        bad = ~np.isfinite(flat.sum(axis=0)) | (flat[0] <= 0)
        flat[:, bad] = 1.0
        k = self.k
        V_, w, first = flat[0], flat[1 : 1 + k], flat[1 + k : 1 + k + k * self.starts]
        parameters = flat[1 + k + k * self.starts :]
        best: Array | None = None
        for row in range(self.starts):
            found = self._minimum(V_, w, first[row * k : (row + 1) * k], parameters)
            if best is None:
                best = found
            else:
                better = ~(found[k] >= best[k])
                best[:, better] = found[:, better]
        assert best is not None
        return [c.reshape(shape) for c in self._columns(V_, w, best, parameters, bad)]

    def _columns(self, V: Array, w: Array, best: Array, parameters: Array, bad: Array) -> Columns:
        k = self.k
        u = best[:k]
        loss, gradient, hessian = self._at(u, parameters)
        curvature = _curvature(V, hessian)
        columns = [*u, loss, *gradient, *curvature]
        lost = bad | ~np.isfinite(best[k])
        return [np.where(lost, np.nan, c) for c in columns]

    def _at(self, u: Array, parameters: Array) -> tuple[Array, Array, Array]:
        """The loss (n,), its gradient (k, n) and second derivatives (k, k, n)."""
        found = [np.broadcast_to(v, u.shape[1:]) for v in self.derivatives(*u, *parameters)]
        k = self.k
        hessian = np.empty((k, k, u.shape[1]))
        rest = iter(found[1 + k :])
        for i in range(k):
            for j in range(i, k):
                hessian[i, j] = hessian[j, i] = next(rest)
        return found[0], np.array(found[1 : 1 + k]), hessian

    def _minimum(self, V: Array, w: Array, start: Array, parameters: Array) -> Array:
        """The place of a local minimum and the objective there, inf where none was reached: (k + 1, n)."""
        k, n = self.k, len(V)
        result = np.full((k + 1, n), np.inf)
        place = np.arange(n)
        run = _Run.begin(self, V, w, start, parameters)
        for _ in range(_MOST):
            done = run.done
            if done.any():
                result[:k, place[done]] = (run.u + run.step)[:, done]
                result[k, place[done]] = run.objective[done]
                if done.all():
                    break
                place, run = place[~done], run.restricted(~done)
            run = run.advanced(self)
        return result


@dataclass(frozen=True)
class _Run:
    """Points u with their objective V loss + |u - w|^2/2, its slope along the step, and the part of it to be tried."""

    V: Array
    w: Array
    parameters: Array
    u: Array
    objective: Array
    step: Array
    fall: Array
    part: Array

    @classmethod
    def begin(cls, solver: _Solver, V: Array, w: Array, u: Array, parameters: Array) -> _Run:
        objective, step, fall = _newton(solver, V, w, u, parameters)
        return cls(V, w, parameters, u, objective, step, fall, np.ones(len(V)))

    @property
    def done(self) -> NDArray[np.bool_]:
        """Whether the whole next step is the last, or no part of it lowers the objective."""
        size = 1 + np.abs(self.u).sum(axis=0)
        close: NDArray[np.bool_] = (np.abs(self.step).max(axis=0) <= _CLOSE * size) | (self.part < _SHORTEST)
        return close

    def restricted(self, kept: NDArray[np.bool_]) -> _Run:
        return _Run(*(np.ascontiguousarray(a[..., kept]) for a in self._all))

    @property
    def _all(self) -> tuple[Array, ...]:
        return self.V, self.w, self.parameters, self.u, self.objective, self.step, self.fall, self.part

    def advanced(self, solver: _Solver) -> _Run:
        """Steps that lower the objective are taken, the others shortened."""
        tried = self.u + self.part * self.step
        objective, step, fall = _newton(solver, self.V, self.w, tried, self.parameters)
        allowed = self.objective + _DECREASE * self.part * self.fall + _ROUNDING * (1 + np.abs(self.objective))
        good = objective <= allowed
        return _Run(
            self.V,
            self.w,
            self.parameters,
            np.where(good, tried, self.u),
            np.where(good, objective, self.objective),
            np.where(good, step, self.step),
            np.where(good, fall, self.fall),
            np.where(good, 1.0, self.part / 4),
        )


def _newton(solver: _Solver, V: Array, w: Array, u: Array, parameters: Array) -> tuple[Array, Array, Array]:
    """The objective, Newton's step from u with second derivatives made positive, and its slope along the step."""
    loss, gradient, hessian = solver._at(u, parameters)
    away = u - w
    objective = V * loss + (away**2).sum(axis=0) / 2
    slope = away + V * gradient
    matrix = V * hessian
    k = len(u)
    for i in range(k):
        matrix[i, i] += 1
    factor, pivots = _factorised(matrix)
    weak = (pivots < _LEAST_PIVOT).any(axis=0)
    if weak.any():
        part = matrix[:, :, weak]
        beside = np.abs(part).sum(axis=1) - np.abs(np.einsum("iin->in", part))
        lowest = (np.einsum("iin->in", part) - beside).min(axis=0)  # Gershgorin
        for i in range(k):
            part[i, i] += np.maximum(0.0, 1 - lowest)
        factor[:, :, weak], pivots[:, weak] = _factorised(part)
    step = -_solved(factor, pivots, slope)
    return objective, step, (step * slope).sum(axis=0)


def _factorised(matrix: Array) -> tuple[Array, Array]:
    """L with ones on its diagonal and D of L D L^T, for symmetric matrices (k, k, n)."""
    k = len(matrix)
    factor = np.zeros_like(matrix)
    pivots = np.empty((k, matrix.shape[2]))
    for j in range(k):
        pivots[j] = matrix[j, j] - sum((factor[j, i] ** 2 * pivots[i] for i in range(j)), np.zeros(1))
        factor[j, j] = 1.0
        safe = np.where(pivots[j] == 0, 1.0, pivots[j])
        for r in range(j + 1, k):
            rest = matrix[r, j] - sum((factor[r, i] * factor[j, i] * pivots[i] for i in range(j)), np.zeros(1))
            factor[r, j] = rest / safe
    return factor, pivots


def _solved(factor: Array, pivots: Array, right: Array) -> Array:
    """x of L D L^T x = right: (k, n)."""
    k = len(right)
    x = np.empty_like(right)
    for j in range(k):
        x[j] = right[j] - sum((factor[j, i] * x[i] for i in range(j)), np.zeros(1))
    x /= pivots
    for j in reversed(range(k)):
        x[j] -= sum((factor[i, j] * x[i] for i in range(j + 1, k)), np.zeros(1))
    return x


def _curvature(V: Array, hessian: Array) -> list[Array]:
    """H (1 + V H)^-1 row by row: 1 + V H is positive at a minimum."""
    k = len(hessian)
    matrix = V * hessian
    for i in range(k):
        matrix[i, i] += 1
    factor, pivots = _factorised(matrix)
    columns = [_solved(factor, pivots, hessian[:, j]) for j in range(k)]  # symmetric: H and (1 + V H)^-1 commute
    return [columns[j][i] for i in range(k) for j in range(k)]
