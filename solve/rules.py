"""Quadrature rules for a batch of Gaussian laws: each sums integrands over its nodes at a given order."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from solve.law import Law
from solve.nodes import Array, gauss_hermite, legendre, sobol_normal, tanh_sinh, trapezoid
from solve.panels import CHUNK, Index, Planes, Unit, walk

__all__ = ["REPLICAS", "AbstractRule", "GaussHermite", "Integrand", "Panels", "Sums", "Trapezoid", "sobol"]

REPLICAS = 16
_STUDENT = 3.0  # 99 per cent of Student's t with 15 degrees of freedom
_CENTRE = 9.0
_BALL = (1.0, 1.0, 0.785, 0.524, 0.308, 0.164)  # volume of a ball over that of its cube


class Integrand(Protocol):
    """Several functions of x in R^n, for each of a batch of laws."""

    def __call__(self, x: list[Array], owner: Index, /) -> Sequence[tuple[Array, Array | None]]:
        """x_i broadcastable to (rows, nodes), owner (rows,): the batch point of each row.

        Returns the values, broadcastable to (rows, nodes), and their errors or None, of each function.
        """


@dataclass(frozen=True)
class Sums:
    """Weighted sums, each (integrands, B): of f, of |f|, of |f| near the rim, of the error f came with."""

    value: Array
    mass: Array
    rim: Array
    inherited: Array

    @staticmethod
    def zeros(integrands: int, batch: int) -> Sums:
        """No nodes yet."""
        return Sums(*np.zeros((4, integrands, batch)))

    def add(
        self,
        found: Sequence[tuple[Array, Array | None]],
        owner: Index,
        weights: Array,
        rim: NDArray[Any] | None = None,
        left_out: Array | None = None,
    ) -> None:
        """Add rows of nodes; weights and rim: (rows, nodes) or (1, nodes).

        left_out: (rows, nodes), the share of each term that counts as error.
        """
        if not len(owner):
            return
        terms = np.empty((len(found), len(owner), weights.shape[1]))
        for k, (f, _) in enumerate(found):
            np.multiply(f, weights, out=terms[k])
        _gather(self.value, owner, terms.sum(axis=2))
        np.abs(terms, out=terms)
        _gather(self.mass, owner, terms.sum(axis=2))
        if rim is not None:
            _gather(self.rim, owner, np.where(rim, terms, 0.0).sum(axis=2))
        if left_out is not None:
            _gather(self.inherited, owner, (terms * left_out).sum(axis=2))
        for k, (_, error) in enumerate(found):
            if error is not None:
                total = np.broadcast_to(error * weights, terms.shape[1:]).sum(axis=1)
                _gather(self.inherited[k : k + 1], owner, total[None])


def _gather(total: Array, owner: Index, rows: Array) -> None:
    """Add rows (integrands, R) to total (integrands, B) at the batch points `owner` (R,), which are sorted."""
    first = owner[0]
    place = owner - first
    for k, values in enumerate(rows):
        found = np.bincount(place, values)
        total[k, first : first + found.size] += found


class AbstractRule(abc.ABC):
    """A rule whose error falls as its order rises; `exact`: it has none."""

    exact: ClassVar[bool] = False

    @abc.abstractmethod
    def orders(self, dim: int, max_points: int) -> tuple[int, ...]:
        """Increasing orders within `max_points` nodes for each batch point; may be empty."""

    @abc.abstractmethod
    def sums(self, f: Integrand, integrands: int, law: Law, rows: Index, order: int, reach: float) -> Sums:
        """Sums for the batch points `rows`, with |t| <= reach."""


@functools.lru_cache(maxsize=64)
def _growing(first: int, dim: int, points: float) -> tuple[int, ...]:
    """Even orders from `first` on whose power `dim` stays below `points`; points double, order * 1.5 at most."""
    ratio = min(1.5, 2.0 ** (1 / dim))
    orders = [first]
    while orders[-1] ** dim <= points:
        orders.append(max(orders[-1] + 2, 2 * round(orders[-1] * ratio / 2)))
    return tuple(orders[:-1])


@functools.lru_cache(maxsize=64)
def _alternating(orders: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n - 1 + k % 2 for k, n in enumerate(orders))


@functools.lru_cache(maxsize=16)
def _outer(
    rule: Callable[..., tuple[Array, ...]], arguments: tuple[float, ...], dim: int, reach: float
) -> tuple[Array, Array, Array]:
    """Nodes (dim, M) of a product rule in a ball, by increasing radius; weights and squared radii (M,)."""
    t, w = rule(*arguments)
    points, weights = np.zeros((0, 1)), np.ones(1)
    for _ in range(dim):
        points = np.concatenate([np.repeat(points, t.size, 1), np.tile(t, points.shape[1])[None]])
        weights = np.outer(weights, w).ravel()
        inside = (points**2).sum(axis=0) <= reach**2
        points, weights = points[:, inside], weights[inside]
    square = (points**2).sum(axis=0)
    order = np.argsort(square, kind="stable")
    return points[:, order], weights[order], square[order]


def _sum_product(
    f: Integrand,
    integrands: int,
    law: Law,
    rows: Index,
    rule: Callable[..., tuple[Array, ...]],
    arguments: tuple[float, ...],
    reach: float,
) -> Sums:
    """Sums over a product rule in the ball of radius `reach`; the last coordinate runs along the rows."""
    sums = Sums.zeros(integrands, len(rows))
    points, outer_weights, square = _outer(rule, arguments, law.dim - 1, reach)
    t, w = rule(*arguments)
    width = max(1, CHUNK // t.size)
    for start in range(0, outer_weights.size, width):
        part = slice(start, start + width)
        near = t * t <= reach**2 - square[start]
        if not near.any():
            break
        inner, count = t[near], len(square[part])
        weights = outer_weights[part, None] * w[near]
        rim = None if math.isinf(reach) else square[part, None] + inner**2 > (reach - 1) ** 2
        step = max(1, CHUNK // weights.size)
        for i in range(0, len(rows), step):
            local = np.arange(i, min(i + step, len(rows)))
            many, owner = len(local), np.repeat(local, count)
            coordinates = [np.tile(p, many)[:, None] for p in points[:, part]]
            x = law.points([*coordinates, inner[None, :]], rows[owner])
            sums.add(f(x, rows[owner]), owner, _tiled(weights, many), rim if rim is None else _tiled(rim, many))
    return sums


def _tiled(a: NDArray[Any], times: int) -> NDArray[Any]:
    return a if times == 1 or len(a) == 1 else np.tile(a, (times, 1))


@dataclass(frozen=True)
class GaussHermite(AbstractRule):
    """Exact for polynomials of total degree `degree`; one order only."""

    degree: int
    exact: ClassVar[bool] = True

    def orders(self, dim: int, max_points: int) -> tuple[int, ...]:
        """The least order that is exact."""
        order = self.degree // 2 + 1
        return (order,) if order**dim <= max_points else ()

    def sums(self, f: Integrand, integrands: int, law: Law, rows: Index, order: int, reach: float) -> Sums:
        """Sums over the product rule; it has no rim."""
        return _sum_product(f, integrands, law, rows, gauss_hermite, (order,), math.inf)


@dataclass(frozen=True)
class Trapezoid(AbstractRule):
    """For integrands that are analytic near the real axis: the error falls exponentially."""

    first: tuple[int, ...] = (0, 64, 48, 32, 24, 16)

    def orders(self, dim: int, max_points: int) -> tuple[int, ...]:
        """Nodes across the centre, in each coordinate: alternately odd and even."""
        return _alternating(_growing(self.first[dim], dim, max_points / _BALL[dim]))

    def sums(self, f: Integrand, integrands: int, law: Law, rows: Index, order: int, reach: float) -> Sums:
        """Sums over the nodes of the product rule in a ball."""
        odd = order % 2
        n = odd + 2 * round((order * reach / _CENTRE - odd) / 2)
        return _sum_product(f, integrands, law, rows, trapezoid, (n, reach), reach)


@dataclass(frozen=True)
class Panels(AbstractRule):
    """Gauss-Legendre (tanh-sinh where singular) between planes, trapezoid in coordinates without planes.

    `panels`: their number for each law.
    """

    planes: Callable[[Index, float], tuple[Planes, ...]]
    panels: float
    singular: bool = False
    first: tuple[int, ...] = (0, 24, 24, 20, 14, 10)

    def orders(self, dim: int, max_points: int) -> tuple[int, ...]:
        """Nodes in each panel."""
        return _growing(self.first[dim] + (16 if self.singular else 0), dim, max_points / self.panels)

    def sums(self, f: Integrand, integrands: int, law: Law, rows: Index, order: int, reach: float) -> Sums:
        """Sums over all panels."""
        split = _singular_unit(order) if self.singular else _unit(*legendre(order))
        u = (np.arange(2 * order, dtype=np.float64) + 0.5) / (2 * order)
        whole = _unit(u, u[::-1], np.full(u.size, 1 / u.size))
        sums = Sums.zeros(integrands, len(rows))
        for panel in walk(self.planes(rows, reach), split, whole, reach):
            t = [*(panel.outer[:, j, None] for j in range(law.dim - 1)), panel.inner]
            rim = functools.reduce(np.add, (s * s for s in t)) > (reach - 1) ** 2
            owner = rows[panel.owner]
            left_out = panel.left_out if self.singular else None
            sums.add(f(law.points(t, owner), owner), panel.owner, panel.weights, rim, left_out)
        return sums


def _unit(from_low: Array, from_high: Array, weights: Array) -> Unit:
    return Unit(from_low, from_high, weights, np.zeros(weights.size))


def _singular_unit(order: int) -> Unit:
    """The end nodes also stand for what is beyond them, if f grows slower than 1/distance^(3/4) there."""
    from_low, from_high, weights = tanh_sinh(order)
    left_out = np.zeros(order)
    left_out[[0, -1]] = 4 * from_low[0] / weights[0]
    return Unit(from_low, from_high, weights, left_out)


def sobol(f: Integrand, integrands: int, law: Law, rows: Index, log_points: int) -> tuple[Sums, Array]:
    """Sums over 16 independently scrambled Sobol sequences, and the error from their scatter."""
    weights = np.full((1, CHUNK), 0.5**log_points)
    replicas = []
    for r in range(REPLICAS):
        sums = Sums.zeros(integrands, len(rows))
        for t in sobol_normal(law.dim, log_points, r, CHUNK):
            step = max(1, CHUNK // t.shape[1])
            for i in range(0, len(rows), step):
                local = np.arange(i, min(i + step, len(rows)))
                x = law.points(list(t[:, None, :]), rows[local])
                sums.add(f(x, rows[local]), local, weights[:, : t.shape[1]])
        replicas.append(sums)
    value, mass, inherited = (
        np.mean([getattr(s, name) for s in replicas], axis=0) for name in ("value", "mass", "inherited")
    )
    error = _STUDENT * np.std([s.value for s in replicas], axis=0, ddof=1) / math.sqrt(REPLICAS)
    return Sums(value, mass, np.zeros_like(value), inherited), error
