"""Follow solutions over parameters: sweeps with continuation, critical values, exponents."""

from __future__ import annotations

import itertools
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from solve.compiled import CompiledSystem
from solve.fixed_point import AbstractFixedPointSolver, AndersonNewton
from solve.given import Given
from solve.result import Array, Prediction, SolveError, Status

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Critical", "Exponent", "critical", "exponent", "sweep"]

_SOLVER = AndersonNewton()
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Critical:
    """Where a function changes its sign; `jump`: without passing through zero there. residual: |f| at value."""

    value: float
    error: float
    residual: float
    jump: bool
    evaluations: int


@dataclass(frozen=True)
class Exponent:
    """y = exp(intercept) x^slope fitted in logarithms, with the standard error of the slope.

    chi2: squared residuals in units of sigma per degree of freedom; nan without sigma or without a degree.
    """

    slope: float
    stderr: float
    intercept: float
    chi2: float


def sweep(
    compiled: CompiledSystem,
    parameters: Given,
    over: sp.Symbol | str | Sequence[sp.Symbol | str],
    grid: ArrayLike | Sequence[ArrayLike],
    *,
    solver: AbstractFixedPointSolver = _SOLVER,
    start: Given | None = None,
    times: ArrayLike | None = None,
) -> xr.Dataset:
    """`compiled.solve` at every point of a grid over one or two parameters, each from its neighbour's solution.

    The dataset has a dimension for each parameter, in their order, and a variable for each unknown, nan where it
    did not converge or, in a flow, was not reached; besides `status` (the name of each point's `Status`), `residual`
    and `error` (with "_" appended where a quantity has that name). With `times` it is `compiled.integrate`, all
    points at once, and a last dimension `time`. Systems without implicit blocks are evaluated at all points at once.
    Attributes, as JSON: `parameters`, `versions`, `notes`. Raises `ValueError` for names, values or shapes that do
    not fit.
    """
    axes = _axes(over, grid)
    fixed = {_name(k): v for k, v in parameters.items()}
    twice = sorted(axes.keys() & fixed.keys())
    if twice:
        raise ValueError(f"{', '.join(twice)} is given both as a parameter and as what is swept over.")
    points = dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    table = _Table(compiled, axes, None if times is None else np.atleast_1d(np.asarray(times, dtype=float)))
    if times is not None:
        together = compiled.integrate({**fixed, **points}, times, start=start, throw=False)
        if together.status is Status.converged:
            table.enter((), together)
        else:  # one trajectory that ends early stops the others
            for index in np.ndindex(table.shape):
                here = {n: p[index] for n, p in points.items()}
                table.enter(index, compiled.integrate({**fixed, **here}, times, start=start, throw=False))
    elif compiled.is_explicit:
        table.enter((), compiled.solve({**fixed, **points}, throw=False))
    else:
        for index, found in _continued(compiled, fixed, points, solver, start or {}):
            table.enter(index, found)
    return table.dataset(fixed)


def critical(f: Callable[[float], float], bracket: tuple[float, float], *, f_error: float = 0.0) -> Critical:
    """The x in the bracket where f changes its sign, by Brent's method to rounding.

    f_error: the error of f, which over the slope is that of x. Raises `SolveError` when f has the same sign at
    both ends or is not finite somewhere.
    """
    calls = 0

    def value(x: float) -> float:
        nonlocal calls
        calls += 1
        y = float(f(x))
        if not np.isfinite(y):
            raise SolveError(f"critical: f({x:.17g}) = {y}; f must be finite in {bracket}.", Status.nonfinite)
        return y

    a, b = sorted(map(float, bracket))
    at_a, at_b = value(a), value(b)
    if np.sign(at_a) == np.sign(at_b) != 0:
        raise SolveError(
            f"critical: f does not change its sign in {bracket}: f({a:.6g}) = {at_a:.3g}, f({b:.6g}) = {at_b:.3g}. "
            "There may be no critical value, or two; choose a bracket around one."
        )
    x = a if at_a == 0 else b if at_b == 0 else float(brentq(value, a, b, xtol=1e-300, rtol=4 * _EPS, maxiter=500))
    residual = abs(value(x))
    far, near = ((max(a, x - h), min(b, x + h)) for h in ((b - a) * 1e-5, max((b - a) * 1e-9, 16 * _EPS * abs(x))))
    far_y, near_y = tuple(map(value, far)), tuple(map(value, near))
    jump = min(map(abs, near_y)) > 0.5 * min(map(abs, far_y)) > 0
    slope = abs(far_y[1] - far_y[0]) / (far[1] - far[0])
    error = 4 * _EPS * abs(x) + (0.0 if jump else (residual + f_error) / slope if slope else np.inf)
    return Critical(x, float(error), residual, jump, calls)


def exponent(x: ArrayLike, y: ArrayLike, sigma: ArrayLike | None = None) -> Exponent:
    """The slope of log y against log x by least squares, weighted by (y/sigma)^2 where the errors of y are given.

    stderr comes from sigma, times sqrt(chi2) where that is above 1, or else from the scatter around the line.
    Raises `ValueError` for values that are not positive or too few: three points, two with sigma.
    """
    X, Y = (np.asarray(a, dtype=float).ravel() for a in (x, y))
    S = None if sigma is None else np.broadcast_to(np.asarray(sigma, dtype=float), Y.shape)
    if X.shape != Y.shape or X.size < (3 if S is None else 2) or np.unique(X).size < 2:
        raise ValueError(f"exponent: x {X.shape} and y {Y.shape} must have 3 points (2 with sigma) at distinct x.")
    if not all(np.isfinite(a).all() and (a > 0).all() for a in (X, Y, *(() if S is None else (S,)))):
        raise ValueError("exponent: x, y and sigma must be positive and finite; drop what did not converge.")
    w = np.ones_like(Y) if S is None else (Y / S) ** 2
    u, v = np.log(X), np.log(Y)
    mean_u, mean_v = np.average(u, weights=w), np.average(v, weights=w)
    spread = float(np.sum(w * (u - mean_u) ** 2))
    slope = float(np.sum(w * (u - mean_u) * (v - mean_v)) / spread)
    intercept = float(mean_v - slope * mean_u)
    freedom = X.size - 2
    scatter = float(np.sum(w * (v - intercept - slope * u) ** 2)) / freedom if freedom else np.nan
    widened = scatter if S is None else max(1.0, scatter) if freedom else 1.0
    return Exponent(slope, float(np.sqrt(widened / spread)), intercept, np.nan if S is None else scatter)


class _Table:
    """The arrays of a dataset, filled point by point or at once."""

    def __init__(self, compiled: CompiledSystem, axes: Mapping[str, Array], times: Array | None) -> None:
        self.compiled, self.axes, self.times = compiled, axes, times
        self.shape = tuple(a.size for a in axes.values())
        self.values: dict[sp.Symbol, Array] = {}
        self.status = np.full(self.shape, Status.converged.name, dtype=object)
        self.residual, self.error = np.zeros(self.shape), np.zeros(self.shape)
        self.notes: dict[str, None] = {}

    def enter(self, index: tuple[int, ...], found: Prediction) -> None:
        """A prediction for one point of the grid, or, with the index (), for all of them at once."""
        where: Any = (*index, ...)
        shape = () if index else self.shape
        status = np.full(shape, (found.status if index else Status.converged).name, dtype=object)
        largest = np.zeros(shape)
        for s, raw in found.values.items():
            value, error = self._time_last(raw, shape), self._time_last(found.errors[s], shape)
            series = value.ndim > len(shape)  # has nan from where it ends; what comes before stands
            known = series or found.statuses[s] in (Status.converged, Status.nonfinite)
            value = value if known else np.full_like(value, np.nan)
            target = self.values.setdefault(s, np.full(self.shape + value.shape[len(shape) :], np.nan))
            target[where] = np.where(np.isfinite(value), value, np.nan)
            over_time = tuple(range(len(shape), value.ndim))
            largest = np.maximum(largest, np.max(error, axis=over_time))
            bad = ~np.isfinite(value).all(axis=over_time)
            status[bad & (status == Status.converged.name)] = Status.nonfinite.name
        self.residual[where], self.error[where], self.status[where] = found.residual, largest, status
        self.notes |= dict.fromkeys(found.notes)

    def _time_last(self, value: Array, shape: tuple[int, ...]) -> Array:
        """(*B) or (n_times, *B) to (*B) or (*B, n_times), where B broadcasts to `shape`."""
        if self.times is None or np.ndim(value) <= len(shape):
            return np.broadcast_to(value, shape)
        return np.moveaxis(np.broadcast_to(value, (self.times.size, *shape)), 0, -1)

    def dataset(self, fixed: Mapping[str, Any]) -> xr.Dataset:
        import xarray as xr  # 0.5 s, which only sweeps should pay

        quantities = {e.unknown.symbol: e.unknown for e in self.compiled.system.equations}
        taken = {s.name for s in quantities} | self.axes.keys()
        time = _free("time", taken)
        dims = tuple(self.axes)
        data: dict[str, Any] = {
            s.name: (dims if v.ndim == len(dims) else (*dims, time), v, {"long_name": quantities[s].meaning})
            for s, v in self.values.items()
        }
        statuses = self.status.astype(str)
        diagnostics = {"status": statuses, "residual": self.residual, "error": self.error}
        data |= {_free(n, taken): (dims, a) for n, a in diagnostics.items()}
        coordinates: dict[str, Any] = dict(self.axes)
        if self.times is not None:
            coordinates[time] = self.times
        defaults = {p.symbol.name: p.default for p in self.compiled.system.parameters if p.default is not None}
        used = {k: v for k, v in {**defaults, **fixed}.items() if k not in self.axes}
        attributes = {"parameters": used, "versions": _versions(), "notes": list(self.notes)}
        return xr.Dataset(data, coordinates, {k: json.dumps(v, default=str) for k, v in attributes.items()})


def _continued(
    compiled: CompiledSystem,
    fixed: Given,
    points: Mapping[str, Array],
    solver: AbstractFixedPointSolver,
    start: Given,
) -> Iterator[tuple[tuple[int, ...], Prediction]]:
    """Solve along a path that turns at the ends of rows; where the neighbour's solution leads nowhere, or to a
    solution that its own iteration leaves, try the common start too.
    """
    shape = next(iter(points.values())).shape
    near: dict[sp.Symbol | str, Any] = {}
    for index in _snake(shape):
        here = {**fixed, **{n: float(p[index]) for n, p in points.items()}}
        found = compiled.solve(here, solver=solver, start={**start, **near}, throw=False)
        if near and (found.status is not Status.converged or found.unstable):
            other = compiled.solve(here, solver=solver, start=start, throw=False)
            found = min(found, other, key=lambda p: (p.status is not Status.converged, bool(p.unstable)))
        near |= {s: found[s] for s in compiled.iterated if found.statuses.get(s) is Status.converged}
        yield index, found


def _snake(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for row, head in enumerate(itertools.product(*map(range, shape[:-1]))):
        tail = range(shape[-1])
        yield from ((*head, j) for j in (tail if row % 2 == 0 else reversed(tail)))


def _axes(over: Any, grid: Any) -> dict[str, Array]:
    several = not isinstance(over, (str, sp.Symbol))
    names = [_name(n) for n in (over if several else [over])]
    axes = [np.asarray(a, dtype=float) for a in (grid if several else [grid])]
    if not 1 <= len(names) <= 2 or len(axes) != len(names) or len(set(names)) != len(names):
        raise ValueError(f"A sweep is over one or two parameters with a grid each, got {names} and {len(axes)} grids.")
    for n, a in zip(names, axes, strict=True):
        if a.ndim != 1 or a.size == 0 or not np.isfinite(a).all():
            raise ValueError(f"The grid of {n} must be a vector of finite numbers, got shape {a.shape}.")
    return dict(zip(names, axes, strict=True))


def _name(key: sp.Symbol | str) -> str:
    return key if isinstance(key, str) else str(key.name)


def _free(name: str, taken: set[str]) -> str:
    return name + "_" if name in taken else name


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("limitlaw", "numpy", "scipy", "sympy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a checkout that is not installed
            found[package] = "unknown"
    return found
