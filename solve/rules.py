"""Quadrature rules for a batch of Gaussian laws: each sums integrands over its nodes at a given order."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from solve.nodes import Array, gauss_hermite, legendre, sobol_normal, tanh_sinh, trapezoid
from solve.panels import CHUNK, Index, Planes, walk

__all__ = ["AbstractRule", "GaussHermite", "Integrand", "Law", "Panels", "Sums", "Trapezoid", "sobol"]

_REPLICAS = 16
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
class Law:
    """x = mean + factor t, t ~ N(0, I). mean: (B, n), factor: (B, n, n)."""

    mean: Array
    factor: Array

    @property
    def dim(self) -> int:
        return self.mean.shape[1]

    @functools.cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each x_i the t_j that it depends on, for any batch point."""
        used = self.factor.any(axis=0)
        return tuple(tuple(np.flatnonzero(row)) for row in used)

    def turned(self, rotation: Array) -> Law:
        """The same laws in rotated coordinates: t_old = rotation t_new."""
        # summed term by term: equal rows of the factor stay equal to the last bit
        parts = [self.factor[:, :, i, None] * rotation[:, None, i, :] for i in range(self.dim)]
        return Law(self.mean, functools.reduce(np.add, parts))

    def points(self, t: Sequence[Array], owner: Index) -> list[Array]:
        """x_i from t_j, each (rows, nodes), (rows, 1) or (1, nodes)."""
        mean, factor = self.mean[owner], self.factor[owner]
        return [
            functools.reduce(np.add, (factor[:, i, j, None] * t[j] for j in reads), mean[:, i, None])
            for i, reads in enumerate(self.reads)
        ]


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
        rim: NDArray[np.bool_] | None = None,
        ends: float = 0.0,
    ) -> None:
        """Add rows of nodes; weights and rim: (rows, nodes) or (1, nodes).

        The terms at the ends of the rows, times `ends`, count as error: what is left out beyond them.
        """
        terms = np.empty((len(found), len(owner), weights.shape[1]))
        for k, (f, _) in enumerate(found):
            np.multiply(f, weights, out=terms[k])
        place = slice(None), owner
        np.add.at(self.value, place, terms.sum(axis=2))
        np.abs(terms, out=terms)
        np.add.at(self.mass, place, terms.sum(axis=2))
        if rim is not None:
            np.add.at(self.rim, place, np.where(rim, terms, 0.0).sum(axis=2))
        if ends:
            np.add.at(self.inherited, place, ends * (terms[:, :, 0] + terms[:, :, -1]))
        for k, (_, error) in enumerate(found):
            if error is not None:
                total = np.broadcast_to(error * weights, terms.shape[1:]).sum(axis=1)
                np.add.at(self.inherited[k], owner, total)


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
            tiled = (np.tile(a, (many, 1)) if count > 1 and many > 1 else a for a in (weights, rim) if a is not None)
            sums.add(f(x, rows[owner]), owner, *tiled)
    return sums


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
        """Nodes across the centre, in each coordinate."""
        return _growing(self.first[dim], dim, max_points / _BALL[dim])

    def sums(self, f: Integrand, integrands: int, law: Law, rows: Index, order: int, reach: float) -> Sums:
        """Sums over the nodes of the product rule in a ball."""
        n = 2 * round(order * reach / _CENTRE / 2)
        return _sum_product(f, integrands, law, rows, trapezoid, (n, reach), reach)


@dataclass(frozen=True)
class Panels(AbstractRule):
    """Gauss-Legendre (tanh-sinh where singular) between planes, trapezoid in coordinates without planes.

    `panels`: their number for each law.
    """

    planes: Callable[[Index, float], tuple[Planes, ...]]
    panels: float
    singular: bool = False
    first: int = 24

    def orders(self, dim: int, max_points: int) -> tuple[int, ...]:
        """Nodes in each panel."""
        return _growing(40 if self.singular else self.first, dim, max_points / self.panels)

    def sums(self, f: Integrand, integrands: int, law: Law, rows: Index, order: int, reach: float) -> Sums:
        """Sums over all panels."""
        split = (tanh_sinh if self.singular else legendre)(order)
        # f grows towards a singular end slower than 1/distance^(3/4)
        ends = 4 * split[0][0] / split[2][0] if self.singular else 0.0
        u = (np.arange(2 * order) + 0.5) / (2 * order)
        whole = u, u[::-1], np.full(u.size, 1 / u.size)
        sums = Sums.zeros(integrands, len(rows))
        for panel in walk(self.planes(rows, reach), split, whole, reach):
            t = [*(panel.outer[:, j, None] for j in range(law.dim - 1)), panel.inner]
            rim = functools.reduce(np.add, (s * s for s in t)) > (reach - 1) ** 2
            owner = rows[panel.owner]
            sums.add(f(law.points(t, owner), owner), panel.owner, panel.weights, rim, ends)
        return sums


def sobol(f: Integrand, integrands: int, law: Law, rows: Index, log_points: int) -> tuple[Sums, Array]:
    """Sums over 16 independently scrambled Sobol sequences, and the error from their scatter."""
    weights = np.full((1, CHUNK), 0.5**log_points)
    replicas = []
    for r in range(_REPLICAS):
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
    error = _STUDENT * np.std([s.value for s in replicas], axis=0, ddof=1) / math.sqrt(_REPLICAS)
    return Sums(value, mass, np.zeros_like(value), inherited), error
