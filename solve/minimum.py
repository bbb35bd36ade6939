"""The least value of a function of a few variables, sought from several starts, with what is known of its error."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from derive.minimum import Minimum
from solve.quadrature import Accuracy, Array, Estimate
from solve.sums import Compiler

__all__ = ["Found", "MinimumGroup", "minimise", "minimum_group"]

_STEPS = 1e-4, 3e-2  # the least and largest step of a central difference, relative to a variable (at least 1)
_GAIN = 1e-10  # of the value: a step that promises less is the last one
_LONGEST = 1.0
_MOST_STEPS = 80
_SHORTEST = 0.02  # fraction of a step that is still tried
_NEAR = 1e-7  # values that differ by less belong to minima that are not told apart
_SEARCH = 1e-7  # accuracy of values while a minimum is sought
_ROUNDING = 1e-16
_TINY = 1e-300
_UNKNOWN = 1e3  # times its size: the error of a coordinate that nothing determines
_KEPT = 4096

Function = Callable[[Array], tuple[Array, Array]]
"""Values and errors (n,) at points (n, k)."""


@dataclass(frozen=True)
class Found:
    """A minimum: its value, place (k,), their absolute errors, and the distinct values that the starts led to.

    `definite`: whether the curvature at the place is positive in all directions but those along which the function
    does not change.
    """

    value: float
    place: Array
    value_error: float
    place_error: Array
    others: tuple[float, ...]
    definite: bool


def minimise(function: Function, starts: Array, final: Function | None = None) -> Found | None:
    """The least of the minima reached from `starts` (n, k) by Newton's method on central differences.

    final: the function to a higher accuracy, for the value that is returned. None where no start has a finite value.
    """
    usable = starts[np.isfinite(starts).all(axis=1)]
    if len(usable):
        usable = usable[np.isfinite(function(usable)[0])]
    ends = sorted((_descend(function, x) for x in usable), key=lambda end: end.value)
    if not ends:
        return None
    others = [e.value for i, e in enumerate(ends) if i == 0 or e.value > ends[i - 1].value + _NEAR]
    return _described(function, final or function, ends[0], tuple(others))


@dataclass(frozen=True)
class _Local:
    """Value and error at x; slopes and curvatures along the axes; what is within their doubt is entered as zero."""

    x: Array
    value: float
    error: float
    slope: Array
    curvature: Array
    axes: Array

    @classmethod
    def of(cls, function: Function, x: Array) -> _Local:
        value, error = (float(a[0]) for a in function(x[None]))
        doubt = max(error, _ROUNDING * abs(value))
        steps = np.clip(doubt**0.25, *_STEPS) * np.maximum(1.0, np.abs(x))
        gradient, hessian = _derivatives(function, x, value, steps)
        curvature, axes = np.linalg.eigh(hessian)
        slope, step = axes.T @ gradient, float(steps.min())
        slope[np.abs(slope) <= 4 * doubt / step] = 0.0
        curvature[np.abs(curvature) <= max(40 * doubt / step**2, 1e-9 * float(np.abs(curvature).max()))] = 0.0
        return cls(x, value, error, slope, curvature, axes)

    def step(self) -> Array:
        """Newton's step towards less, of at most a certain length; that length down a slope without curvature."""
        along = -self.slope / np.maximum(np.abs(self.curvature), np.abs(self.slope) / _LONGEST + _TINY)
        step: Array = self.axes @ along
        return step * min(1.0, _LONGEST / max(float(np.linalg.norm(step)), _TINY))

    def gain(self) -> float:
        """What the step promises."""
        return float(np.abs(self.slope) @ np.abs(self.axes.T @ self.step())) / 2


def _derivatives(function: Function, x: Array, middle: float, steps: Array) -> tuple[Array, Array]:
    """Gradient and second derivatives by central differences."""
    k, moves = len(x), np.diag(steps)
    pairs = [(i, j) for i in range(k) for j in range(i)]
    corners = [a * moves[i] + b * moves[j] for i, j in pairs for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
    values = function(x + np.concatenate([moves, -moves, np.reshape(corners, (-1, k))]))[0]
    up, down, mixed = values[:k], values[k : 2 * k], values[2 * k :].reshape(-1, 4)
    hessian = np.diag((up - 2 * middle + down) / steps**2)
    for (i, j), m in zip(pairs, mixed, strict=True):
        hessian[i, j] = hessian[j, i] = (m[0] - m[1] - m[2] + m[3]) / (4 * steps[i] * steps[j])
    return (up - down) / (2 * steps), hessian


def _descend(function: Function, start: Array) -> _Local:
    """Newton's method, its steps shortened until the value falls, until little more is to be had."""
    here = _Local.of(function, start)
    for _ in range(_MOST_STEPS):
        step = here.step()
        x = _lower(function, here, step)
        last = here.gain() <= max(here.error, _GAIN * abs(here.value))
        if x is None:
            return here
        here = _Local.of(function, x)
        if last:
            return here
    return here


def _lower(function: Function, here: _Local, step: Array) -> Array | None:
    """The first of here + step, step/2, .. whose value is less; None where none is."""
    part = 1.0
    while part >= _SHORTEST and np.isfinite(step).all():
        x: Array = here.x + part * step
        if float(function(x[None])[0][0]) < here.value:
            return x
        part /= 2
    return None


def _described(function: Function, final: Function, here: _Local, others: tuple[float, ...]) -> Found:
    """The end of a descent after one more step, judged by curvature, slope and the errors of the values."""
    pair = np.stack([here.x, here.x + here.step()])
    values, errors = final(pair)
    better = int(np.isfinite(values[1]) and values[1] <= values[0] + errors.max())
    curved = here.curvature > 0
    doubt = math.sqrt(max(here.error, _ROUNDING))
    spread = np.abs(here.axes[:, curved]) @ (doubt / np.sqrt(here.curvature[curved]))
    loose = (here.axes[:, ~curved] ** 2).sum(axis=1) > _NEAR
    gain = here.gain()
    return Found(
        float(values[better]),
        pair[better],
        float(errors[better]) + (gain if better == 0 else min(gain, abs(float(values[1] - values[0])))),
        np.where(loose, _UNKNOWN * np.maximum(1.0, np.abs(here.x)), spread),
        others,
        bool((here.curvature >= 0).all()),
    )


# ---- nodes of expressions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MinimumGroup:
    """The value of a minimum, or one coordinate, as a function of the arguments at `reads`."""

    problem: _Problem
    index: int
    reads: tuple[int, ...]

    def __call__(self, arguments: list[Any]) -> Estimate:
        """value and error: (1, *shape), of the shape to which the arguments it reads broadcast."""
        own = [np.asarray(arguments[i], dtype=float) for i in self.reads]
        shape = np.broadcast_shapes(*(a.shape for a in own))
        columns = [np.broadcast_to(a, shape).ravel() for a in own]
        points = [tuple(float(c[i]) for c in columns) for i in range(math.prod(shape))]
        found = np.array([self.problem.at(p)[:, self.index] for p in points]).reshape(-1, 2).T
        return Estimate(*(a.reshape(1, *shape) for a in found))


@dataclass(frozen=True)
class _Problem:
    """A minimum in parameters; what it was at recent values of them is kept."""

    node: Minimum
    rough: Callable[[list[Any]], Sequence[tuple[Any, Any]]] = field(repr=False)
    fine: Callable[[list[Any]], Sequence[tuple[Any, Any]]] = field(repr=False)
    starts: Callable[[list[Any]], Sequence[tuple[Any, Any]]] = field(repr=False)

    @functools.cached_property
    def at(self) -> Callable[[tuple[float, ...]], Array]:
        """(2, 1 + k): value and coordinates, and their errors; nan and inf where no start is good."""
        return functools.lru_cache(maxsize=_KEPT)(self._at)

    def _at(self, parameters: tuple[float, ...]) -> Array:
        found = self.search(parameters)
        if found is None:
            return np.stack([np.full(len(self.node.variables) + 1, v) for v in (np.nan, np.inf)])
        return np.array([[found.value, *found.place], [found.value_error, *found.place_error]])

    def search(self, parameters: tuple[float, ...]) -> Found | None:
        """The minimum with all that is known of it."""
        values = [float(v) for v, _ in self.starts(list(parameters))]
        starts = np.array(values).reshape(-1, len(self.node.variables))
        with np.errstate(all="ignore"):
            return minimise(_at(self.rough, parameters), starts, _at(self.fine, parameters))


def _at(program: Callable[[list[Any]], Sequence[tuple[Any, Any]]], parameters: tuple[float, ...]) -> Function:
    def function(points: Array) -> tuple[Array, Array]:
        ((value, error),) = program([*parameters, *points.T])
        shape = len(points)
        none = np.zeros(shape) if error is None else np.broadcast_to(error, shape)
        return np.broadcast_to(np.asarray(value, dtype=float), shape), none

    return function


def minimum_group(
    node: Minimum, arguments: tuple[Any, ...], accuracy: Accuracy, compiler: Callable[[Accuracy], Compiler]
) -> MinimumGroup:
    """The node as a function of `arguments`; `compiler` compiles to an accuracy.

    Nodes that differ in the index alone share one search, wherever they stand.
    """
    problem = _problem(node.place(0), accuracy, compiler)
    return MinimumGroup(problem, node.index, tuple(arguments.index(s) for s in _parameters(node)))


def _parameters(node: Minimum) -> tuple[Any, ...]:
    return tuple(sorted(node.free_symbols, key=str))


@functools.lru_cache(maxsize=64)
def _problem(node: Minimum, accuracy: Accuracy, compiler: Callable[[Accuracy], Compiler]) -> _Problem:
    own = _parameters(node)
    inside = (*own, *node.variables)
    rough = replace(accuracy, rtol=max(accuracy.rtol, _SEARCH), atol=max(accuracy.atol, _SEARCH))
    return _Problem(
        node,
        compiler(rough)([node.expr], inside),
        compiler(accuracy)([node.expr], inside),
        compiler(rough)(node.outside, own),
    )
