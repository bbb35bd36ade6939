"""Gaussian expectations of a batch of laws, by a rule that suits the integrand, each with an error estimate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solve.law import Law, factorise
from solve.nodes import Array
from solve.panels import Index, Planes, Unit, levels, sign_changes, triangular, walk
from solve.rules import REPLICAS, AbstractRule, GaussHermite, Integrand, Panels, Sums, Trapezoid, sobol

__all__ = ["Accuracy", "Array", "Estimate", "Structure", "integrate"]

_REACHES = (9.0, 13.0, 19.0, 28.0)
_MAX_TENSOR_DIM = 5
_STEEP = 4.0  # slope of a step that gets panels
_STEEPER = 15.0  # the same where panels for all of those would be too many
_STEP_WIDTH = 20.0
_ROUNDING = 4e-15  # of a sum of products, relative to the sum of their absolute values
_HOPEFUL = 1e-6  # a product rule with a smaller relative error is not tried against Sobol points
_CUT_OFF = 0.01  # of the mass near the rim: a larger reach comes before a higher order
_LOG_POINTS = range(9, 23)
_FEWEST_SAMPLES = 2**9


@dataclass(frozen=True)
class Accuracy:
    """Aim at |error| <= max(atol, rtol |value|), with at most `max_points` nodes for each law of a batch.

    samples: Sobol points, of all scramblings together, for laws of what is made of many Gaussian variables.
    scrambled: which set of scramblings these have; the results of two sets are independent.
    """

    rtol: float = 1e-10
    atol: float = 1e-13
    max_points: int = 2**22
    samples: int = 2**15
    scrambled: int = 0

    def __post_init__(self) -> None:
        if not (self.rtol >= 0 and self.atol >= 0 and self.rtol + self.atol > 0 and self.max_points > 0):
            raise ValueError(f"Accuracy needs tolerances >= 0, not both zero, and max_points > 0; got {self}.")
        if self.samples < _FEWEST_SAMPLES:
            raise ValueError(f"Accuracy needs at least {_FEWEST_SAMPLES} samples, got {self.samples}.")


@dataclass(frozen=True)
class Structure:
    """How smooth an integrand of x in R^n is, for each of B laws.

    degree: of a polynomial in x, else None. kinks: (B, K, n + 1), rows (a, c): analytic between the zeros of
    a.x + c. steps: (B, S, n + 1), forms across which it changes within |a.x + c| < 20. curved: values of
    functions whose zeros are further kinks, called as an integrand. singular: infinite, or of infinite slope,
    on a kink.
    """

    degree: int | None = None
    kinks: Array | None = None
    steps: Array | None = None
    curved: Callable[[list[Array], Index], list[Array]] | None = None
    singular: bool = False


@dataclass(frozen=True)
class Estimate:
    """value and error: (integrands, B). The error is absolute, inf where nothing is known.

    scatter: (integrands, B, scramblings), None unless sampled: the mean on each scrambling of the points less that on
    all; an error beside `error`.
    """

    value: Array
    error: Array
    scatter: Array | None = None


def integrate(
    integrand: Integrand,
    integrands: int,
    mean: Array,
    cov: Array,
    structure: Structure | None = None,
    accuracy: Accuracy | None = None,
) -> Estimate:
    """E f_k(x), x ~ N(mean_b, cov_b) for k < integrands, b < B, with error estimates (integrands, B).

    integrand(x, owner): x a list of n arrays (rows, nodes), owner (rows,) the batch point of each row -> for
    each f_k its values, broadcastable to (rows, nodes), and their errors or None. mean: (B, n), cov: (B, n, n).
    Laws that are not finite or not positive semidefinite give nan with error inf.
    """
    structure, accuracy = structure or Structure(), accuracy or Accuracy()
    shape = (integrands, mean.shape[0])
    result = Estimate(np.full(shape, np.nan), np.full(shape, np.inf))
    with np.errstate(all="ignore"):
        factor, valid = factorise(cov)
        known = np.flatnonzero(valid & np.isfinite(mean).all(axis=1))
        for rows, rule, law in _choose(Law(mean, factor), known, structure, accuracy.max_points):
            refinement = _Refinement(integrand, integrands, law, accuracy, result)
            hopeless = refinement.refine(rule, rows) if rule else rows
            if hopeless.size:
                refinement.sample(hopeless)
    result.error[~np.isfinite(result.value) | np.isnan(result.error)] = np.inf
    return result


def _choose(
    law: Law, rows: Index, structure: Structure, max_points: int
) -> list[tuple[Index, AbstractRule | None, Law]]:
    """The batch points `rows`, grouped by the rule that suits them; no rule means Sobol points."""
    if structure.degree is not None:
        return [(rows, GaussHermite(structure.degree), law)]
    if law.dim > _MAX_TENSOR_DIM or (structure.curved and law.dim > 1):
        return [(rows, None, law)]
    if all(s is None for s in (structure.kinks, structure.steps, structure.curved)) and not structure.singular:
        return [(rows, Trapezoid(), law)]
    kinks, steps = (_in_standard_coordinates(law, f) for f in (structure.kinks, structure.steps))
    steep = _steep(steps, _STEEP)
    everywhere = bool(kinks.slope.shape[1] or structure.curved or structure.singular)
    paneled = steep[rows].any(axis=1) | np.full(rows.shape, everywhere)
    smooth, split = rows[~paneled], rows[paneled]
    groups: list[tuple[Index, AbstractRule | None, Law]] = []
    if smooth.size:
        groups.append((smooth, Trapezoid(), law))
    if split.size:
        rule, turned = _panels(law, structure, kinks, _only(steps, steep, split), split)
        if not rule.orders(law.dim, max_points):
            rule, turned = _panels(law, structure, kinks, _only(steps, _steep(steps, _STEEPER), split), split)
        groups.append((split, rule, turned))
    return groups


def _only(planes: Planes, wanted: NDArray[np.bool_], rows: Index) -> Planes:
    some = wanted[rows].any(axis=0)
    slope = np.where(wanted[..., None], planes.slope, 0.0)
    return Planes(slope[:, some], planes.offset[:, some])


def _in_standard_coordinates(law: Law, forms: Array | None) -> Planes:
    """a.x + c as slope.t + offset; rounding in a slope that should vanish is removed."""
    if forms is None:
        batch = law.mean.shape[0]
        return Planes(np.empty((batch, 0, law.dim)), np.empty((batch, 0)))
    a = forms[..., :-1]
    slope = (a[..., :, None] * law.factor[:, None, :, :]).sum(axis=2)
    terms = np.abs(a[..., :, None] * law.factor[:, None, :, :]).sum(axis=2)
    slope = np.where(np.abs(slope) <= 1e-15 * terms, 0.0, slope)
    return Planes(slope, (a * law.mean[:, None, :]).sum(axis=2) + forms[..., -1])


def _steep(steps: Planes, least: float) -> NDArray[np.bool_]:
    """Steps of slope `least` or more that are within reach."""
    size = np.linalg.norm(steps.slope, axis=2)
    steep: NDArray[np.bool_] = (size > least) & (np.abs(steps.offset) < size * _REACHES[-1] + _STEP_WIDTH)
    return steep


def _panels(law: Law, structure: Structure, kinks: Planes, steps: Planes, rows: Index) -> tuple[AbstractRule, Law]:
    slope = np.concatenate([kinks.slope, steps.slope], axis=1)
    directions, n, batch = slope.shape[1], law.dim, slope.shape[0]
    rotation = np.broadcast_to(np.eye(n), (batch, n, n)).copy()
    if n > 1 and directions:
        slope[rows], rotation[rows] = triangular(slope[rows])
    first = [min(k + 1, n) for k in range(directions)]
    number = kinks.slope.shape[1]
    parallel = [slope, slope[:, number:], slope[:, number:]]
    offsets = [kinks.offset, steps.offset, steps.offset - _STEP_WIDTH, steps.offset + _STEP_WIDTH]
    planes = Planes(np.concatenate(parallel, axis=1), np.concatenate(offsets, axis=1))
    turned = law.turned(rotation) if n > 1 and directions else law
    splitting = _Splitting(planes, (*first, *first[number:], *first[number:]), structure, turned, rows)
    every = functools.cache(splitting.levels)  # for the reaches that are needed, once for all orders

    def planes_of(some: Index, reach: float) -> tuple[Planes, ...]:
        place = np.searchsorted(rows, some)
        return tuple(Planes(p.slope[place], p.offset[place]) for p in every(reach))

    return Panels(planes_of, _count(every(_REACHES[0])), structure.singular), turned


def _count(planes: tuple[Planes, ...]) -> float:
    """Panels for each batch point; a coordinate without planes counts as two."""
    one, two = (Unit(u, u[::-1], u, u) for u in (np.full(1, 0.5), np.array([0.25, 0.75])))
    return sum(p.inner.size for p in walk(planes, one, two, _REACHES[0])) / len(planes[0].offset)


@dataclass(frozen=True)
class _Splitting:
    """The planes of the batch points `rows` in their turned standard coordinates."""

    planes: Planes
    first: tuple[int, ...]
    structure: Structure
    law: Law
    rows: Index

    def levels(self, reach: float) -> tuple[Planes, ...]:
        slope, offset, first = self.planes.slope[self.rows], self.planes.offset[self.rows], self.first
        if self.structure.curved:
            roots = sign_changes(self._curved, len(self.rows), reach)
            known = np.isfinite(roots)
            slope = np.concatenate([slope, np.where(known, 1.0, 0.0)[..., None]], axis=1)
            offset = np.concatenate([offset, np.where(known, -roots, 1.0)], axis=1)
            first = (*first, *(1 for _ in range(roots.shape[1])))
        return levels(slope, offset, first, reach)

    def _curved(self, t: Array, owner: Index) -> list[Array]:
        assert self.structure.curved is not None
        owner = self.rows[owner]
        return self.structure.curved(self.law.points([t], owner), owner)


@dataclass(frozen=True)
class _Refinement:
    """Raises the order until two successive ones agree; writes into `result`."""

    integrand: Integrand
    integrands: int
    law: Law
    accuracy: Accuracy
    result: Estimate

    def refine(self, rule: AbstractRule, rows: Index) -> Index:
        """Refine the batch points `rows`; returns those for which the rule is not good enough."""
        orders = rule.orders(self.law.dim, self.accuracy.max_points)
        if not orders:
            return rows
        pending = rows
        for reach in _REACHES:
            pending = self._at_reach(rule, orders, pending, reach)
            if not pending.size:
                break
        if self.law.dim < 3:
            return rows[:0]
        error, size = self.result.error[:, rows], np.abs(self.result.value[:, rows])
        rough = (error > np.maximum(self._allowed(size), _HOPEFUL * size.max(axis=0))) & np.isfinite(size)
        return rows[np.any(rough, axis=0)]

    def _allowed(self, value: Array) -> Array:
        return np.maximum(self.accuracy.atol, self.accuracy.rtol * np.abs(value))

    def _sums(self, rule: AbstractRule, rows: Index, order: int, reach: float) -> Sums:
        return rule.sums(self.integrand, self.integrands, self.law, rows, order, reach)

    def _at_reach(self, rule: AbstractRule, orders: tuple[int, ...], rows: Index, reach: float) -> Index:
        """Raise the order with |t| <= reach; returns the batch points that need a larger reach."""
        shape = (self.integrands, len(rows))
        before, previous = np.zeros(shape), np.full(shape, np.inf)
        beyond = []
        for order in orders:
            first = order == orders[0] and not rule.exact
            now = self._sums(rule, rows, order, reach)
            noise = _ROUNDING * now.mass
            allowed = np.maximum(self._allowed(now.value), np.maximum(10 * noise, now.inherited))
            known = np.isfinite(now.value)
            change = np.zeros(now.value.shape) if rule.exact else np.abs(now.value - before)
            reached = np.all(((change <= np.maximum(allowed, now.rim)) & (not first)) | ~known, axis=0)
            apart = now.mass if first else _unsettled(change, previous, now.mass, reached)
            self.result.value[:, rows] = now.value
            self.result.error[:, rows] = apart + now.rim + noise + now.inherited
            cut = ((now.rim > allowed) & known).any(axis=0)
            settled = reached | (order == orders[-1]) | (cut & (now.rim > _CUT_OFF * now.mass).any(axis=0))
            beyond.append(rows[settled & cut])
            rows, before = rows[~settled], now.value[:, ~settled]
            previous = previous[:, ~settled] if first else change[:, ~settled]
            if not rows.size:
                break
        return np.concatenate(beyond)

    def sample(self, rows: Index) -> None:
        """Sobol points for the batch points `rows`, more until the error is met; keeps the better result."""
        value, error = (np.full((self.integrands, len(rows)), v) for v in (np.nan, np.inf))
        for log_points in _LOG_POINTS:
            if 2**log_points * REPLICAS > self.accuracy.max_points:
                break
            sums, scatter = sobol(self.integrand, self.integrands, self.law, rows, log_points)
            value, error = sums.value, scatter + _ROUNDING * sums.mass + sums.inherited
            if (error <= self._allowed(value)).all():
                break
        better = error < self.result.error[:, rows]
        self.result.value[:, rows] = np.where(better, value, self.result.value[:, rows])
        self.result.error[:, rows] = np.where(better, error, self.result.error[:, rows])


def _unsettled(change: Array, previous: Array, mass: Array, reached: NDArray[Any]) -> Array:
    """The error after two successive changes, where they have not become small enough to trust the last.

    Up to ten times the last where they fall slowly; and two orders may agree by chance: the least that is
    believed after a change p of a mass M is M (p/M)^(3/2), as if it came from exponential convergence.
    """
    if reached.all():
        return change
    ratio = np.where(np.isfinite(previous), np.clip(change / previous, 0.0, 10 / 11), 0.0)
    slow = change * np.maximum(1.0, np.nan_to_num(ratio / (1 - ratio)))
    least = np.where(np.isfinite(previous), mass * np.minimum(previous / mass, 1.0) ** 1.5, 0.0)
    unsettled: Array = np.where(reached, change, np.fmax(slow, least))
    return unsettled
