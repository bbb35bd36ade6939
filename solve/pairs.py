"""Expectations over two correlated groups of variables, evaluated from tables of their Mehler series."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.expectation import Expectation
from solve.functions import compile_functions
from solve.hermite_series import Frames, frames
from solve.mehler import Channels, Table, tabulate
from solve.quadrature import Accuracy, Array, Estimate
from solve.separation import PairLaw, Separation, separate

__all__ = ["PairGroup", "Program", "separation_in_pairs"]

Program: TypeAlias = Callable[[list[Any]], Sequence[tuple[Any, "Array | None"]]]

_LEAST_DIM = 3
_RADIUS = 1.05  # a little more than 1, for steps across the edge of an overlap's domain
_MOST_DOUBLINGS = 3
_TABLES = 32
_OUTSIDE = 1e-12
_HOPEFUL = 1e-5  # a series with a smaller error relative to its terms is not tried against quadrature


@functools.lru_cache(maxsize=1024)
def separation_in_pairs(e: Expectation) -> Separation | None:
    """The separation of an expectation that a `PairGroup` evaluates; None for all that is better left to quadrature."""
    found = separate(e) if e.measure.dim >= _LEAST_DIM else None
    return None if found is None or _frames(found.law) is None else found


@functools.lru_cache(maxsize=256)
def _frames(law: PairLaw) -> Frames | None:
    return frames(*(_numbers(block) for block in (law.cov_left, law.cov_right, law.cross)))


def _numbers(entries: Any) -> Array:
    found: Array = np.array(entries.tolist() if hasattr(entries, "tolist") else list(entries), dtype=float)
    return found


@dataclass(frozen=True)
class _Tables:
    """The tables of D_k(t) of expectations under one pair law, for each radius of t and each value of `inside`."""

    members: tuple[Separation, ...]
    inside: tuple[sp.Symbol, ...]
    accuracy: Accuracy

    @property
    def law(self) -> PairLaw:
        return self.members[0].law

    @functools.cached_property
    def frames(self) -> Frames:
        found = _frames(self.law)
        assert found is not None
        return found

    @functools.cached_property
    def owned(self) -> tuple[tuple[int, sp.Expr], ...]:
        """(member, coefficient) of each channel."""
        pairs = ((i, t.coefficient) for i, m in enumerate(self.members) for t in m.terms)
        return tuple(dict.fromkeys(pairs))

    @functools.cached_property
    def _sums(self) -> Mapping[tuple[int, sp.Expr], sp.Expr]:
        """{(channel, right factor): the sum of the left factors that go with it}."""
        found: dict[tuple[int, sp.Expr], sp.Expr] = {}
        for i, m in enumerate(self.members):
            for t in m.terms:
                key = self.owned.index((i, t.coefficient)), t.right
                found[key] = found.get(key, sp.S.Zero) + t.number * t.left
        return found

    @functools.cached_property
    def _factors(self) -> tuple[tuple[sp.Expr, ...], tuple[sp.Expr, ...]]:
        return tuple(dict.fromkeys(self._sums.values())), tuple(dict.fromkeys(right for _, right in self._sums))

    @functools.cached_property
    def left(self) -> Callable[..., Sequence[Any]]:
        """The factors of x, compiled."""
        return compile_functions(self._factors[0], (*self.inside, *self.law.left))

    @functools.cached_property
    def right(self) -> Callable[..., Sequence[Any]]:
        """The factors of y, compiled."""
        return compile_functions(self._factors[1], (*self.inside, *self.law.right))

    @functools.cached_property
    def _weights(self) -> Array:
        left, right = self._factors
        weights = np.zeros((len(self.owned), len(left), len(right)))
        for (channel, factor), total in self._sums.items():
            weights[channel, left.index(total), right.index(factor)] = 1.0
        return weights

    @functools.cached_property
    def at(self) -> Callable[[float, tuple[float, ...]], Table]:
        """The table of a radius and of values of `inside`, kept."""
        return functools.lru_cache(maxsize=_TABLES)(self._tabulated)

    def _tabulated(self, radius: float, inside: tuple[float, ...]) -> Table:
        channels = Channels(
            lambda x: self.left(*inside, *x),
            lambda y: self.right(*inside, *y),
            self._weights,
            _numbers(self.law.origin),
            _numbers(self.law.direction),
            _numbers(self.law.mean_right),
        )
        with np.errstate(all="ignore"):
            return tabulate(channels, self.frames, radius, self.accuracy.rtol, self.accuracy.atol)


@functools.lru_cache(maxsize=64)
def _tables(members: tuple[Separation, ...], inside: tuple[sp.Symbol, ...], accuracy: Accuracy) -> _Tables:
    """One object for equal expectations, so that systems compiled apart share what is tabulated."""
    return _Tables(members, inside, accuracy)


@dataclass(frozen=True)
class PairGroup:
    """Expectations under one pair law, from tables of D_k(t).

    `inside`: the parameters that the factors read. `program` compiles expectations for quadrature, which is used
    where the tables do not serve.
    """

    members: tuple[Separation, ...]
    arguments: tuple[sp.Symbol, ...]
    inside: tuple[sp.Symbol, ...]
    accuracy: Accuracy
    program: Callable[[Sequence[sp.Expr], tuple[sp.Symbol, ...]], Program]

    def __post_init__(self) -> None:
        # a node without a numeric form is found out when compiling
        _ = self._outside, self._tables.left, self._tables.right

    @property
    def _tables(self) -> _Tables:
        return _tables(self.members, self.inside, self.accuracy)

    def __call__(self, arguments: list[Any]) -> Estimate:
        """value and error (members, *shape), of the shape to which the arguments they read broadcast."""
        own = [arguments[i] for i in self._reads]
        shape = np.broadcast_shapes(*(np.shape(a) for a in own))
        shift, overlap, *rest = self._outside(*own)
        inside, coefficients = rest[: len(self.inside)], rest[len(self.inside) :]
        t, rho = np.asarray(shift, dtype=float), self._tables.frames.scale * np.asarray(overlap, dtype=float)
        value, error, mass = self._combined(self._channels(inside, t, rho, shape), coefficients)
        found = Estimate(value, error)
        enough = np.maximum(self.accuracy.atol, np.maximum(self.accuracy.rtol, _HOPEFUL) * mass)
        good = (error <= enough).all(axis=0) | ~(np.isfinite(t) & (np.abs(rho) <= 1 + _OUTSIDE))
        return found if good.all() else self._with_quadrature(found, own, good)

    # ------------------------------------------------------------------------ what is compiled

    @functools.cached_property
    def _own(self) -> tuple[sp.Symbol, ...]:
        free = set().union(*(m.expectation.free_symbols for m in self.members))
        return tuple(s for s in self.arguments if s in free)

    @functools.cached_property
    def _reads(self) -> tuple[int, ...]:
        return tuple(self.arguments.index(s) for s in self._own)

    @functools.cached_property
    def _outside(self) -> Callable[..., Sequence[Any]]:
        coefficients = [c for _, c in self._tables.owned] if self._mixed else []
        return compile_functions(
            [self.members[0].law.shift, self.members[0].law.overlap, *self.inside, *coefficients], self._own
        )

    @functools.cached_property
    def _mixed(self) -> bool:
        return any(c != 1 for _, c in self._tables.owned) or len(self._tables.owned) != len(self.members)

    # --------------------------------------------------------------------------------- tables

    def _channels(self, inside: list[Any], t: Array, rho: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
        """Values, errors and masses of the channels, (channels, *shape)."""
        if not inside:
            return self._read((), t, rho, shape)
        t, rho, *values = (np.broadcast_to(a, shape).ravel() for a in (t, rho, *inside))
        keys, which = np.unique(np.stack(values, axis=1), axis=0, return_inverse=True)
        found = np.empty((3, len(self._tables.owned), t.size))
        for i, key in enumerate(keys):
            at = np.flatnonzero(which.ravel() == i)
            found[:, :, at] = self._read(tuple(key.tolist()), t[at], rho[at], at.shape)
        return tuple(a.reshape(-1, *shape) for a in found)

    def _read(self, inside: tuple[float, ...], t: Array, rho: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
        if not shape and abs(t) <= _RADIUS and abs(rho) <= 1:
            table = self._tables.at(_RADIUS, inside)
            return (*_look_up(table, t, rho, shape), table.mass)
        size = np.abs(t)
        largest = _RADIUS * 2**_MOST_DOUBLINGS
        outside = ~((size <= largest) & (np.abs(rho) <= 1 + _OUTSIDE))
        reach = size[size <= largest].max(initial=0.0)
        radius = next(r for r in (_RADIUS * 2**k for k in range(_MOST_DOUBLINGS + 1)) if reach <= r)
        table = self._tables.at(radius, inside)
        t, rho = np.where(size <= radius, t, 0.0), np.clip(np.nan_to_num(rho), -1.0, 1.0)
        value, error = _look_up(table, t, rho, shape)
        if outside.any():
            value, error = np.where(outside, np.nan, value), np.where(outside, np.inf, error)
        return value, error, np.broadcast_to(table.mass.reshape(-1, *[1] * len(shape)), value.shape)

    def _combined(self, channels: tuple[Array, ...], coefficients: list[Any]) -> tuple[Array, Array, Array]:
        """Values, errors and masses of the members, from those of their channels."""
        value, error, mass = channels
        if not self._mixed:
            return value, error, mass
        totals = np.zeros((3, len(self.members), *value.shape[1:]))
        for (member, _), c, v, e, size in zip(self._tables.owned, coefficients, value, error, mass, strict=True):
            totals[0, member] += c * v
            totals[1, member] += np.abs(c) * e
            totals[2, member] += np.abs(c) * size
        return totals[0], totals[1], totals[2]

    # ---------------------------------------------------------------------------- quadrature

    def _with_quadrature(self, found: Estimate, own: list[Any], good: NDArray[np.bool_]) -> Estimate:
        """Quadrature at the points where the series is not good, unless its error is larger."""
        value, error, where = np.array(found.value), np.array(found.error), ~good
        for i, (v, e) in enumerate(self._otherwise([np.broadcast_to(a, where.shape)[where] for a in own])):
            apart = np.where(np.isfinite(v), 0.0 if e is None else e, np.inf)
            better = ~(apart > error[i, where])
            value[i, where] = np.where(better, v, value[i, where])
            error[i, where] = np.where(better, apart, error[i, where])
        return Estimate(value, error)

    @functools.cached_property
    def _otherwise(self) -> Program:
        return self.program([m.expectation for m in self.members], self._own)


def _look_up(table: Table, t: Array, rho: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Values and errors (channels, *shape); repeated values of t and rho, as on a grid, are used once."""
    if not shape:
        value, error = table.at(t[None], rho[None])
        return value[:, 0], error[:, 0]
    ts, i = np.unique(t, return_inverse=True)
    rhos, j = np.unique(rho, return_inverse=True)
    i, j = np.broadcast_to(i.reshape(t.shape), shape), np.broadcast_to(j.reshape(rho.shape), shape)
    if ts.size * rhos.size <= 2 * i.size:
        value, error = table.outer(ts, rhos)
        return value[:, i, j], error[:, j]
    value, error = table.at(ts[i.ravel()], rhos[j.ravel()])
    return value.reshape(-1, *shape), error.reshape(-1, *shape)
