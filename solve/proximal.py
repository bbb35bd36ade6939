"""Proximal operators in numbers: prox, the loss there, its slope and its curvature, of one solution, to rounding.

u = prox_{V loss}(w) solves u + V loss'(u) = w, whose left side rises at least as fast as u: |u - u*| is at most its
excess at u. Newton's method on this equation, and on asinh(V loss'(u)) = asinh(w - u), in which exponential tails are
straight, take turns inside a bracket.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.functions import LogCosh, softplus
from derive.proximal import kinks, regions, slope_at
from solve.elementary import Array, compile_expressions

__all__ = ["POINT", "STEP", "Solver", "parameters_of", "proximal_solver"]

Solved: TypeAlias = tuple[Array, Array, Array, Array]  # Prox, the loss there, r, c
Solver: TypeAlias = Callable[..., Solved]  # of V, w and the parameters of the loss

STEP = sp.Dummy("V", positive=True)
POINT = sp.Dummy("w", real=True)
_CLOSE = 1e-9  # a step below this part of u, or of loss'/loss'', is the last: what it leaves is of second order
_NARROW = 4 * float(np.finfo(float).eps)
_SPRINT = 8  # the most evaluations of all points together
_LEAST = 3  # evaluations after which it is looked how many points are close
_MOST = 0.8
_PATIENCE = 20  # evaluations after which every third one halves the bracket
_MOST_EVALUATIONS = 400
_FAR = 1e300
_CHUNK = 2**13


def parameters_of(loss: sp.Lambda) -> tuple[sp.Symbol, ...]:
    """The free symbols of a loss, sorted by name."""
    return tuple(sorted(loss.free_symbols, key=str))


@functools.lru_cache(maxsize=256)
def proximal_solver(loss: sp.Lambda) -> Solver:
    """(V, w, *parameters) -> prox, the loss there, r = (w - prox)/V and c = dr/dw, arrays of one shape.

    For V >= 0; parameters: the free symbols of the loss, sorted by name. By regions for linear and quadratic pieces,
    else by Newton's method between the kinks, as far as they are known. nan where an argument is not finite, V < 0,
    or no solution is found.
    """
    parameters = parameters_of(loss)
    closed = regions(loss, STEP, POINT)
    if closed is not None:
        inputs = (STEP, POINT, *parameters)
        starts = compile_expressions([r.start for r in closed[1:]], inputs)
        parts = [compile_expressions([r.prox, r.loss, r.slope, r.curvature], inputs) for r in closed]
        return _Checked(_ByRegions(starts, tuple(parts)))
    (u,) = loss.variables
    written = loss.expr.replace(sp.log, _log)
    first = _without_masses(written.diff(u))
    values = compile_expressions([written], (u, *parameters))
    slopes = compile_expressions([first, _without_masses(first.diff(u))], (u, *parameters))
    return _Checked(_ByPieces(values, slopes, _edges(loss, parameters)))


def _log(x: sp.Expr) -> sp.Expr:
    """log(1 + exp(a)) and log(cosh(a)) by functions whose derivatives do not overflow."""
    one, rest = x.as_coeff_Add()
    if one == 1 and isinstance(rest, sp.exp):
        return softplus(rest.args[0])
    factor, node = x.as_coeff_Mul()
    if factor.is_positive and isinstance(node, sp.cosh):
        return LogCosh(node.args[0]) + sp.log(factor / 2)
    return sp.log(x)


def _without_masses(expr: sp.Expr) -> sp.Expr:
    """The derivative between kinks."""
    return expr.replace(sp.DiracDelta, lambda *_: sp.S.Zero)


def _edges(loss: sp.Lambda, parameters: tuple[sp.Symbol, ...]) -> Callable[..., Sequence[Any]]:
    """For each kink its place, loss'(place -) and loss'(place +)."""
    places = kinks(loss) or ()
    try:
        slopes = [(slope_at(loss, k, from_below=True), slope_at(loss, k, from_below=False)) for k in places]
    except ValueError:
        places, slopes = (), []
    return compile_expressions([e for k, s in zip(places, slopes, strict=True) for e in (k, *s)], parameters)


@dataclass(frozen=True)
class _Checked:
    """Shapes and arguments outside the domain, for a solver of vectors (n,)."""

    solver: Solver

    def __call__(self, V: Any, w: Any, *parameters: Any) -> Solved:
        arrays = np.broadcast_arrays(V, w, *parameters)
        shape = arrays[0].shape
        flat = [np.asarray(a, dtype=float).ravel() for a in arrays]
        bad = ~np.isfinite(np.sum(flat, axis=0)) | (flat[0] < 0)
        if bad.any():
            flat = [np.where(bad, 1.0, a) for a in flat]
        found = [self.solver(*(a[i : i + _CHUNK] for a in flat)) for i in range(0, max(len(bad), 1), _CHUNK)]
        columns = [np.concatenate(c) if len(c) > 1 else c[0] for c in zip(*found, strict=True)]
        if bad.any():
            columns = [np.where(bad, np.nan, c) for c in columns]
        prox, loss, r, c = (a.reshape(shape) for a in columns)
        return prox, loss, r, c


@dataclass(frozen=True)
class _ByRegions:
    """`starts`: where the regions but the first begin; `parts`: the four functions in each region."""

    starts: Callable[..., Sequence[Any]]
    parts: tuple[Callable[..., Sequence[Any]], ...]

    def __call__(self, V: Array, w: Array, *parameters: Array) -> Solved:
        columns = self.parts[0](V, w, *parameters)
        for start, part in zip(self.starts(V, w, *parameters), self.parts[1:], strict=True):
            beyond = w > start
            columns = [np.where(beyond, b, a) for a, b in zip(columns, part(V, w, *parameters), strict=True)]
        prox, loss, r, c = (np.broadcast_to(a, w.shape) for a in columns)
        return prox, loss, r, c


@dataclass(frozen=True)
class _ByPieces:
    """`values`: the loss; `slopes`: its first and second derivative; `edges`: its kinks with their slopes."""

    values: Callable[..., Sequence[Any]]
    slopes: Callable[..., Sequence[Any]]
    edges: Callable[..., Sequence[Any]]

    def __call__(self, V: Array, w: Array, *parameters: Array) -> Solved:
        edges = [np.broadcast_to(e, w.shape) for e in self.edges(*parameters)]
        low, high, resting = np.full(w.shape, -_FAR), np.full(w.shape, _FAR), np.zeros(w.shape, dtype=bool)
        found = np.empty((3, *w.shape))
        for k, before, after in zip(edges[::3], edges[1::3], edges[2::3], strict=True):
            from_below, from_above = w < k + V * before, w > k + V * after
            high = np.where(from_below, np.minimum(high, k), high)
            low = np.where(from_above, k, low)
            here = ~(from_below | from_above)
            resting |= here
            found[:, here] = np.stack([k, (w - k) / V, 1 / V])[:, here]
        moving = ~resting
        everything = (V, w, low, high, *parameters)
        if moving.any():
            whole = bool(moving.all())
            found[:, moving] = self._newton(*(everything if whole else (a[moving] for a in everything)))
        prox, r, c = found
        return prox, np.broadcast_to(self.values(prox, *parameters)[0], w.shape), r, c

    def _newton(self, V: Array, w: Array, low: Array, high: Array, *parameters: Array) -> Array:
        """prox, r and c: (3, n), for solutions between low and high."""
        origin = np.clip(0.0, low, high)
        start = origin + self._at(V, w, origin, parameters).step
        inside = (low < start) & (start < high)
        at = self._sprint(V, w, start if inside.all() else np.where(inside, start, _between(low, high)), *parameters)
        found = at.found()
        good = at.close & (low < found[0]) & (found[0] < high)
        if not good.all():
            rest = ~good
            u = np.where((low < at.u) & (at.u < high), at.u, _between(low, high))
            found[:, rest] = self._safeguarded(*(a[rest] for a in (V, w, u, low, high, *parameters)))
        return found

    def _at(self, V: Array, w: Array, u: Array, parameters: Sequence[Array]) -> _Iterate:
        first, second = (np.broadcast_to(s, u.shape) for s in self.slopes(u, *parameters))
        return _Iterate(V, w, u, first, second)

    def _sprint(self, V: Array, w: Array, u: Array, *parameters: Array) -> _Iterate:
        """A few steps of all points without a bracket, until most are close."""
        for count in range(_SPRINT):
            at = self._at(V, w, u, parameters)
            if count >= _LEAST and np.count_nonzero(at.close) >= _MOST * u.size:
                break
            u = at.u + at.step if count % 2 else at.in_the_tail()
        return at

    def _safeguarded(self, V: Array, w: Array, u: Array, low: Array, high: Array, *parameters: Array) -> Array:
        result = np.full((3, w.size), np.nan)
        place = np.arange(w.size)
        for count in range(_MOST_EVALUATIONS):
            at = self._at(V, w, u, parameters)
            low, high = at.narrowed(low, high)
            torn = ~at.close & (high - low <= _NARROW * (np.abs(low) + np.abs(high)))
            done, found = at.close | torn, at.found()
            found[:, torn] = np.stack([u, at.distance / V, 1 / V])[:, torn]
            result[:, place[done]] = found[:, done]
            if done.all():
                break
            new = at.u + at.step if count % 2 else at.in_the_tail()
            halved = ~((low < new) & (new < high)) | (count > _PATIENCE and count % 3 == 0)
            new[halved] = _between(low[halved], high[halved])
            left = ~done
            place, V, w, u, low, high = place[left], V[left], w[left], new[left], low[left], high[left]
            parameters = tuple(p[left] for p in parameters)
        return result


@dataclass(frozen=True)
class _Iterate:
    """u with loss'(u) = first and loss''(u) = second."""

    V: Array
    w: Array
    u: Array
    first: Array
    second: Array

    @functools.cached_property
    def pull(self) -> Array:
        return self.V * self.first

    @functools.cached_property
    def distance(self) -> Array:
        return self.w - self.u

    @functools.cached_property
    def slope(self) -> Array:
        return self.V * self.second

    @functools.cached_property
    def step(self) -> Array:
        """Newton's."""
        step: Array = (self.distance - self.pull) / (1 + self.slope)
        return step

    @functools.cached_property
    def close(self) -> NDArray[np.bool_]:
        """Whether the next step is the last."""
        size = np.abs(self.u)
        rounding = _NARROW * (size + np.abs(self.w) + np.abs(self.pull)) / (1 + self.slope)
        scale = np.fmax(size, np.fmin(np.abs(self.first / self.second), 1.0))
        close: NDArray[np.bool_] = np.abs(self.step) <= np.maximum(_CLOSE * scale, rounding)
        return close

    def in_the_tail(self) -> Array:
        """u after Newton's step on asinh(V loss') = asinh(w - u)."""
        excess = np.arcsinh(self.pull) - np.arcsinh(self.distance)
        rise = self.slope / np.sqrt(1 + self.pull**2) + 1 / np.sqrt(1 + self.distance**2)
        moved: Array = self.u - excess / rise
        return moved

    def narrowed(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The bracket with what the excess at u says."""
        excess = self.pull - self.distance
        end = self.u - excess
        slack = _NARROW * np.maximum(np.abs(self.u), np.abs(end))
        above = excess > 0
        return (
            np.fmax(low, np.where(above, end - slack, self.u)),
            np.fmin(high, np.where(above, self.u, end + slack)),
        )

    def found(self) -> Array:
        """Prox, r and c after the step: (3, n); r = (loss' + loss'' (w - u))/(1 + V loss'') cancels for no V."""
        steepness = 1 + self.slope
        found: Array = np.empty((3, self.u.size))
        np.add(self.u, self.step, out=found[0])
        np.divide(self.first + self.second * self.distance, steepness, out=found[1])
        np.divide(self.second, steepness, out=found[2])
        return found


def _between(low: Array, high: Array) -> Array:
    """The middle, on the scale of asinh."""
    middle: Array = np.sinh((np.arcsinh(low) + np.arcsinh(high)) / 2)
    return np.clip(middle, low, high)
