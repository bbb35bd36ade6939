"""Mehler's series: E f(x) g(y) of correlated Gaussian vectors as a power series in their overlap.

With u, v standard normal, Cov(u_i, v_i) = rho kappa_i, and h_alpha the orthonormal Hermite polynomials,
E f(u) g(v) = sum_k rho^k sum_(|alpha| = k) kappa^alpha E[f h_alpha] E[g h_alpha]   [Mehler 1866].
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solve.chebyshev import coefficients, polynomials
from solve.hermite_series import Frames, Functions, Side, by_degree
from solve.nodes import Array, trapezoid
from solve.panels import Index

__all__ = ["Channels", "Table", "Terms", "tabulate"]

# nodes and reach in each coordinate, and the highest degree, by the number of coordinates of the larger side
_GRIDS: dict[int, tuple[tuple[int, float], ...]] = {
    1: ((150, 12.0), (211, 13.0), (296, 14.0), (419, 15.0)),
    2: ((150, 12.0), (211, 13.0), (296, 14.0), (419, 15.0)),
    3: ((64, 10.5), (91, 11.5), (128, 12.5)),
}
_DEGREES = {1: (64, 128, 256), 2: (32, 48, 64, 96, 128, 192, 256), 3: (16, 32, 48, 64)}
_INTERVALS = (16, 32, 64, 128)
_MARGIN = 0.1  # of the accuracy, for each source of error
_ROUNDING = 4e-15
_USUAL = 0.9  # |rho| up to which the accuracy is met; closer to 1 the error says what is left
_CORNER = 1e-14  # from |rho| = 1, where a vanishing loss, say, should vanish to rounding


@dataclass(frozen=True)
class Channels:
    """What is averaged: for each channel c, sum_ij weights[c, i, j] left_i(x) right_j(y).

    `left` and `right` map lists of coordinates to values; x moves with t as origin + t direction.
    """

    left: Functions
    right: Functions
    weights: Array
    origin: Array
    direction: Array
    mean_right: Array

    @property
    def moves(self) -> bool:
        return bool(np.any(self.direction))


@dataclass(frozen=True)
class Table:
    """Chebyshev coefficients (n, channels, K + 1) of D_k(t), |t| <= radius; errors of each channel.

    The error at overlap rho is fixed + |rho|^(K+1) tail. `mass`: sum_k |D_k|, the size of what is summed.
    `corners`: those of the values at rho = -1 and 1, (n, channels, 2), and their error, where y is a function of x
    there, or x of y.
    """

    radius: float
    series: Array
    tail: Array
    fixed: Array
    mass: Array
    corners: tuple[Array, Array] | None

    @functools.cached_property
    def _flat(self) -> Array:
        return np.ascontiguousarray(self.series.reshape(len(self.series), -1))

    def at(self, t: Array, rho: Array) -> tuple[Array, Array]:
        """Values and errors, (channels, T) for t and rho of shape (T,)."""
        n, channels, terms = self.series.shape
        values = np.empty((channels, t.size))
        step = max(1, 2**18 // (channels * terms))
        for start in range(0, t.size, step):
            part = slice(start, start + step)
            along = (polynomials(t[part] / self.radius, n) @ self._flat).reshape(-1, channels, terms)
            values[:, part] = np.matmul(along, _powers(rho[part], terms)[:, :, None])[:, :, 0].T
        error = self._error(rho)
        for sign, corner in self._on_corners(rho):
            values[:, corner], error[:, corner] = self._corner(t[corner], sign), self._corner_error
        return values, error

    def outer(self, t: Array, rho: Array) -> tuple[Array, Array]:
        """Values (channels, T, R) on the grid of t (T,) and rho (R,), and errors (channels, R)."""
        n, channels, terms = self.series.shape
        along = (polynomials(t / self.radius, n) @ self._flat).reshape(-1, channels, terms)
        values = np.moveaxis(np.tensordot(along, _powers(rho, terms), axes=(2, 1)), 1, 0)
        error = self._error(rho)
        for sign, corner in self._on_corners(rho):
            values[:, :, corner], error[:, corner] = self._corner(t, sign)[:, :, None], self._corner_error
        return values, error

    def _error(self, rho: Array) -> Array:
        found: Array = self.fixed[:, None] + self.tail[:, None] * np.abs(rho) ** self.series.shape[2]
        return found

    def _on_corners(self, rho: Array) -> list[tuple[int, NDArray[np.bool_]]]:
        if self.corners is None or not (np.abs(rho) > 1 - _CORNER).any():
            return []
        return [(sign, sign * rho > 1 - _CORNER) for sign in (-1, 1)]

    def _corner(self, t: Array, sign: int) -> Array:
        """(channels, T)."""
        assert self.corners is not None
        series = self.corners[0][:, :, (sign + 1) // 2]
        found: Array = (polynomials(t / self.radius, len(series)) @ series).T
        return found

    @property
    def _corner_error(self) -> Array:
        assert self.corners is not None
        return self.corners[1][:, None]


def _powers(rho: Array, terms: int) -> Array:
    return np.vander(rho, terms, increasing=True)


# ------------------------------------------------------------------------------------ table


@dataclass(frozen=True)
class Terms:
    """D_k, the bound of the terms beyond each k, and the corners, as functions of t, at one resolution and degree."""

    channels: Channels
    frames: Frames
    degree: int
    grid: tuple[int, float]

    def _side(self, functions: Functions, frame: Array) -> Side:
        return Side(functions, frame, len(self.frames.kappa), self.grid)

    @functools.cached_property
    def _left(self) -> Side:
        return self._side(self.channels.left, self.frames.left)

    @functools.cached_property
    def _right(self) -> tuple[Array, Array]:
        right = self._side(self.channels.right, self.frames.right)
        found, rest = right.coefficients(right.values(self.channels.mean_right), self.degree)
        alpha = by_degree(right.paired, self.degree)[2]
        return found * np.prod(self.frames.kappa[:, None] ** alpha, axis=0), rest

    @functools.cached_property
    def _partners(self) -> tuple[tuple[Index, Array], ...]:
        """For each channel the left functions in it, and sum_j weights_ij g_j of each."""
        kept = [np.flatnonzero(w.any(axis=1)) for w in self.channels.weights]
        return tuple((k, w[k] @ self._right[0]) for k, w in zip(kept, self.channels.weights, strict=True))

    @functools.cached_property
    def _opposite(self) -> Array:
        """E[g_j | u] at u = -v and u = v, weighted, on the nodes of the left side: (2, right functions, nodes)."""
        right, (t, w) = self._side(self.channels.right, self.frames.right), trapezoid(*self.grid)
        shape = (t.size,) * len(self.frames.left)
        weights = functools.reduce(np.multiply.outer, [w] * len(shape))
        found = []
        for g in (g for sign in (-1, 1) for g in right.values(self.channels.mean_right, sign)):
            known = functools.reduce(lambda v, _: v @ w, range(g.ndim - right.paired), g)
            found.append((weights * known.reshape(known.shape + (1,) * (len(shape) - known.ndim))).ravel())
        return np.array(found).reshape(2, -1, weights.size)

    def at(self, t: float) -> tuple[Array, Array, Array]:
        """D_k(t) and the bound of the terms beyond k, (channels, degree + 1); the corners, (channels, 2)."""
        weights, first = self.channels.weights, by_degree(self._left.paired, self.degree)[1]
        values = self._left.values(self.channels.origin + t * self.channels.direction)
        found, rest = self._left.coefficients(values, self.degree)
        terms = [np.einsum("ia,ia->a", found[kept], partner) for kept, partner in self._partners]
        beyond = np.einsum("cij,ik,jk->ck", np.abs(weights), np.sqrt(rest), np.sqrt(self._right[1]))
        corners = np.zeros((len(weights), 2))
        if self.frames.whole:
            flat = np.array([v.ravel() for v in values])
            corners = np.stack([np.einsum("cij,ij->c", weights, flat @ g.T) for g in self._opposite], axis=1)
        return np.add.reduceat(np.array(terms), first, axis=1), beyond, corners


def tabulate(channels: Channels, frames: Frames, radius: float, rtol: float, atol: float) -> Table:
    """D_k(t) of all channels for |t| <= radius, of the lowest degree that meets the accuracy for |rho| <= 0.9.

    Where none does, of the highest. The errors: two resolutions compared at t = 0 and +-radius, Parseval's
    remainder of both sides, the last Chebyshev coefficients. They are inf where something is not finite.
    """
    dim = max(len(channels.origin), len(channels.mean_right))
    probes = (0.0, radius, -radius) if channels.moves else (0.0,)
    degree = _degree(channels, frames, probes, rtol, atol)
    before: Array | None = None
    for grid in _GRIDS[dim]:
        terms = Terms(channels, frames, degree, grid)
        found, _, corners = (np.array(a) for a in zip(*map(terms.at, probes), strict=True))
        mass = np.abs(found).sum(axis=2).max(axis=0)
        allowed = _MARGIN * np.maximum(atol, rtol * mass)
        now = np.concatenate([found, corners], axis=2)
        change = np.full(len(mass), np.inf) if before is None else np.abs(now - before).sum(axis=2).max(axis=0)
        if (change <= allowed).all():
            break
        before = now
    return _interpolated(terms, radius, allowed, change + _ROUNDING * mass, mass)


def _degree(channels: Channels, frames: Frames, probes: Sequence[float], rtol: float, atol: float) -> int:
    """The lowest degree whose remainder is allowed, as the coarsest grid sees it; else the highest."""
    dim = max(len(channels.origin), len(channels.mean_right))
    terms = Terms(channels, frames, _DEGREES[dim][-1], _GRIDS[dim][0])
    found, beyond, _ = (np.array(a) for a in zip(*map(terms.at, probes), strict=True))
    tail, mass = beyond.max(axis=0), np.abs(found).sum(axis=2).max(axis=0)
    allowed = _MARGIN * np.maximum(atol, rtol * mass)
    return next((k for k in _DEGREES[dim] if (tail[:, k] * _USUAL ** (k + 1) <= allowed).all()), terms.degree)


def _interpolated(terms: Terms, radius: float, allowed: Array, error: Array, mass: Array) -> Table:
    """The table from Chebyshev nodes, as many as the accuracy needs; `error` that of the values there."""
    at = functools.cache(lambda i, n: terms.at(radius * math.cos(math.pi * i / n)))
    for n in _INTERVALS if terms.channels.moves else (0,):
        nodes = [(i // math.gcd(i, n), n // math.gcd(i, n)) for i in range(n + 1)] if n else [(1, 2)]
        values, beyond, corners = (np.array(a) for a in zip(*itertools.starmap(at, nodes), strict=True))
        series = coefficients(np.concatenate([values, corners], axis=2))
        last = np.abs(series[-4:] if n else 0 * series).sum(axis=(0, 2))
        if (last <= allowed).all():
            break
    tail, fixed = (np.where(np.isfinite(a), a, np.inf) for a in (beyond[:, :, -1].max(axis=0), error + last))
    whole = (series[:, :, -2:], fixed) if terms.frames.whole else None
    return Table(radius, series[:, :, :-2], tail, fixed, mass, whole)
