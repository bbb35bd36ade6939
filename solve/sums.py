"""P(sum of many independent terms > 0): the terms' laws on a lattice, convolved by fast Fourier transforms.

A term h(z), z ~ N(0, 1), is put on lattice points by sixth-order interpolation, which keeps its first five moments
whatever its smoothness, so that the error of a sum is of high order in the spacing where the sum's own law is smooth.
What can make it rough at zero itself, many small negative terms, is taken out exactly: all terms negative.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from derive.sums import PositiveSum
from solve.nodes import normal_density
from solve.quadrature import Accuracy, Array, Estimate

__all__ = ["Compiler", "SumGroup", "Term", "positive_probability", "sum_group"]

_REACH = 9.5  # of z: 2e-21 lies beyond
_SCAN, _COARSE_SCAN = 4001, 501
_RATES = 60
_LOST = 1e-14  # probability of what the lattice does not hold
_MARGIN = 1.25
_LOG_CELLS = range(10, 18)
_NODES = 16
_CELLS_IN_A_PANEL, _LONGEST_PANEL = 6.0, 0.75
_STENCIL = np.arange(-2, 4)
_FIRST_ORDER = (1.6, 2.5)  # ratios of successive changes that say: halving the spacing halves the error
_ROUNDING = 1e-14
_HUGE = 1e280

Compiler = Callable[[Sequence[Any], tuple[Any, ...]], Callable[[list[Any]], Sequence[tuple[Any, Any]]]]
"""What compiles expressions of arguments: the result maps their values to (value, error or None) each."""


@dataclass(frozen=True)
class Term:
    """`count` independent terms value(z), z ~ N(0, 1); value maps arrays to arrays, nan is not allowed."""

    value: Callable[[Array], Array]
    count: int


def positive_probability(terms: Sequence[Term], atol: float = 1e-10) -> tuple[float, float]:
    """P(sum_j sum_{i <= n_j} h_j(z_ji) > 0) and its estimated absolute error, aimed at `atol`.

    The lattice is refined up to 2^17 cells; the error says what was reached. One side of the sum has to be within
    reach: below or above, all but 1e-14 of its parts of that sign within about 1e5 times the width of its law.
    """
    used = [t for t in terms if t.count]
    if not used:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        below, above = _reaches(used)
        if above < below:
            value, error = _negative_probability([Term(_negated(t), t.count) for t in used], above, atol)
            return value, error
        value, error = _negative_probability(used, below, atol)
        return 1 - value, error


def _negated(term: Term) -> Callable[[Array], Array]:
    return lambda z: -term.value(z)


def _reaches(terms: Sequence[Term]) -> tuple[float, float]:
    """The smallest A with P(sum of negative parts < -A) <= 1e-14 by Chernoff's bound, and the same above zero."""
    z = np.linspace(-_REACH, _REACH, _COARSE_SCAN)
    weight = normal_density(z) * (z[1] - z[0])
    values = [
        np.nan_to_num(t.value(z) + 0 * z, nan=0.0, posinf=_HUGE, neginf=-_HUGE).clip(-_HUGE, _HUGE) for t in terms
    ]
    counts = [t.count for t in terms]
    below, above = (_reach([np.maximum(s * v, 0.0) for v in values], counts, weight) for s in (-1, 1))
    return below, above


def _reach(parts: Sequence[Array], counts: Sequence[int], weight: Array) -> float:
    """A with P(sum of the parts, all >= 0, > A) <= 1e-14."""
    most = math.fsum(n * float(p.max()) for n, p in zip(counts, parts, strict=True))
    if most == 0 or not math.isfinite(most):
        return most
    mean = math.fsum(n * float(weight @ p) for n, p in zip(counts, parts, strict=True))
    rates = np.geomspace(1 / most, 100 / max(mean, 1e-6 * most), _RATES)
    growth = np.zeros(_RATES)
    for n, p in zip(counts, parts, strict=True):
        top = rates * p.max()
        growth += n * (top + np.log(np.exp(rates[:, None] * p - top[:, None]) @ weight))
    return min(most, float(np.min((growth - math.log(_LOST)) / rates)))


def _negative_probability(terms: Sequence[Term], reach: float, atol: float) -> tuple[float, float]:
    """P(sum < 0) where sums below -reach do not occur."""
    pieces = [_Pieces.of(t) for t in terms]
    all_negative = math.exp(math.fsum(t.count * math.log(max(p.negative, 1e-300)) for t, p in _pair(terms, pieces)))
    if reach == 0 or all(p.negative >= 1 for p in pieces):
        return (0.0 if reach == 0 else 1.0), _ROUNDING
    found: list[float] = []
    error = math.inf
    for log_cells in _LOG_CELLS:
        lattice = _Lattice(_MARGIN * reach, 2**log_cells)
        found.append(all_negative + lattice.negative(terms, pieces, all_negative > _LOST))
        value, error = _accelerated(found)
        if error <= atol:
            break
    return min(max(value, 0.0), 1.0), error + _ROUNDING * (1 + sum(t.count for t in terms))


def _pair(terms: Sequence[Term], pieces: Sequence[_Pieces]) -> list[tuple[Term, _Pieces]]:
    return list(zip(terms, pieces, strict=True))


def _accelerated(found: Sequence[float]) -> tuple[float, float]:
    """The last value and how far it may be off, judged by the last changes; extrapolated where they halve."""
    if len(found) < 3:
        return found[-1], math.inf
    before, last = found[-2] - found[-3], found[-1] - found[-2]
    if len(found) > 3 and last != 0:
        ratios = before / last, (found[-3] - found[-4]) / before if before else 0.0
        if all(_FIRST_ORDER[0] < r < _FIRST_ORDER[1] for r in ratios):
            return found[-1] + last, max(abs(2 * last - before), abs(last) / 8)
    return found[-1], max(abs(last), abs(before) / 16)


@dataclass(frozen=True)
class _Pieces:
    """The intervals of z between the zeros of h, with the probability that h < 0."""

    zeros: tuple[float, ...]
    scan: Array
    values: Array
    negative: float

    @classmethod
    def of(cls, term: Term) -> _Pieces:
        z = np.linspace(-_REACH, _REACH, _SCAN)
        values = np.nan_to_num(term.value(z) + 0 * z, nan=0.0, posinf=_HUGE, neginf=-_HUGE)
        below = values < 0
        zeros = [
            brentq(lambda x: float(term.value(np.array([x]))[0]), z[i], z[i + 1], xtol=1e-15)
            for i in np.flatnonzero(below[1:] != below[:-1])
        ]
        signs = [below[0]]
        for _ in zeros:
            signs.append(not signs[-1])
        ends = np.array([-np.inf, *zeros, np.inf])
        negative = float(np.sum((ndtr(ends[1:]) - ndtr(ends[:-1]))[np.array(signs)]))
        return cls(tuple(zeros), z, values, negative)


@dataclass(frozen=True)
class _Lattice:
    """The points (i - cells/2) 2 reach/cells, i < cells. Sums that leave it above never come back to it."""

    reach: float
    cells: int

    @property
    def spacing(self) -> float:
        return 2 * self.reach / self.cells

    def negative(self, terms: Sequence[Term], pieces: Sequence[_Pieces], apart: bool) -> float:
        """P(sum < 0), less the probability that all terms are negative where that stands `apart`."""
        laws = [self.law(t, p) for t, p in _pair(terms, pieces)]
        total = self.sum_law([every for every, _ in laws], terms)
        if apart:
            total = total - self.sum_law([below for _, below in laws], terms)
        return self._mass_below_zero(total)

    def law(self, term: Term, pieces: _Pieces) -> tuple[Array, Array]:
        """The masses of h(z) on the lattice, and of the part with h < 0."""
        z, weight = self._nodes(pieces)
        h = term.value(z)
        place = h / self.spacing + self.cells / 2
        held = (place > -_STENCIL[0] + 1) & (place < self.cells - _STENCIL[-1] - 1)
        place, weight, below = place[held], weight[held], h[held] < 0
        every, negative = np.zeros((2, self.cells))
        first = np.floor(place).astype(np.intp)
        offset = place - first
        for i in map(int, _STENCIL):
            share = weight * _interpolation(offset, i)
            every += np.bincount(first + i, share, self.cells)
            negative += np.bincount((first + i)[below], share[below], self.cells)
        return every, negative

    def _nodes(self, pieces: _Pieces) -> tuple[Array, Array]:
        """Gauss-Legendre panels over each of which h moves by a few cells, cut at its zeros."""
        held = np.clip(pieces.values, -1.1 * self.reach, 1.1 * self.reach)
        steps = np.abs(np.diff(held)) / (_CELLS_IN_A_PANEL * self.spacing) + np.diff(pieces.scan) / _LONGEST_PANEL
        work = np.concatenate([[0.0], np.cumsum(steps)])
        even = np.interp(np.linspace(0, work[-1], math.ceil(work[-1]) + 1), work, pieces.scan)
        edges = np.union1d(even, pieces.zeros)
        x, w = _legendre()
        half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
        z = (middle + half * x).ravel()
        return z, (half * w).ravel() * normal_density(z)

    def sum_law(self, laws: Sequence[Array], terms: Sequence[Term]) -> Array:
        """The law of the sum of `count` terms of each law."""
        powers = (self._power(law, t.count) for law, t in zip(laws, terms, strict=True))
        return functools.reduce(lambda a, b: self._convolved(self._transform(a), self._transform(b)), powers)

    def _power(self, law: Array, count: int) -> Array:
        result: Array | None = None
        while True:
            transform = self._transform(law)
            if count & 1:
                result = law if result is None else self._convolved(self._transform(result), transform)
            count >>= 1
            if not count:
                assert result is not None
                return result
            law = self._convolved(transform, transform)

    def _transform(self, law: Array) -> Any:
        return np.fft.rfft(law, 2 * self.cells)

    def _convolved(self, a: Any, b: Any) -> Array:
        half = self.cells // 2
        found: Array = np.fft.irfft(a * b, 2 * self.cells)[half : half + self.cells]
        return found

    def _mass_below_zero(self, law: Array) -> float:
        """By the Euler-Maclaurin formula, its derivatives by central differences."""
        k = self.cells // 2
        odd = [float(law[k + i] - law[k - i]) for i in (1, 2, 3)]
        first = 3 / 4 * odd[0] - 3 / 20 * odd[1] + odd[2] / 60
        third = -13 / 8 * odd[0] + odd[1] - odd[2] / 8
        return float(law[:k].sum() + law[k] / 2) - first / 12 + third / 720


@functools.cache
def _legendre() -> tuple[Array, Array]:
    x, w = np.polynomial.legendre.leggauss(_NODES)
    return x, w


def _interpolation(offset: Array, i: int) -> Array:
    """Lagrange's polynomial of lattice point i of the stencil at 0 <= offset < 1."""
    share = np.ones_like(offset)
    for j in _STENCIL:
        if j != i:
            share *= (offset - j) / (i - j)
    return share


# ---- nodes of expressions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SumGroup:
    """A `PositiveSum` as a function of the arguments it reads, at the positions `reads` among all."""

    node: PositiveSum
    reads: tuple[int, ...]
    accuracy: Accuracy
    summands: Callable[[list[Any]], Sequence[tuple[Any, Any]]] = field(repr=False)
    counts: Callable[[list[Any]], Sequence[tuple[Any, Any]]] = field(repr=False)

    def __call__(self, arguments: list[Any]) -> Estimate:
        """value and error: (1, *shape), of the shape to which the arguments it reads broadcast."""
        own = [np.asarray(arguments[i], dtype=float) for i in self.reads]
        shape = np.broadcast_shapes(*(a.shape for a in own))
        rows = np.stack([np.broadcast_to(a, shape).ravel() for a in own], axis=-1) if own else np.empty((1, 0))
        found = np.array([self._at(tuple(row)) for row in rows]).reshape(-1, 2).T
        return Estimate(*(a.reshape(1, *shape) for a in found))

    def _at(self, own: tuple[float, ...]) -> tuple[float, float]:
        if not np.isfinite(own).all():
            return math.nan, math.inf
        counts = [float(v) for v, _ in self.counts(list(own))]
        if any(n < 0 or n != round(n) for n in counts):
            return math.nan, math.inf
        terms = [Term(self._summand(i, own), round(n)) for i, n in enumerate(counts)]
        return positive_probability(terms, max(self.accuracy.atol, _FINEST))

    def _summand(self, i: int, own: tuple[float, ...]) -> Callable[[Array], Array]:
        return lambda z: np.asarray(self.summands([*own, z])[i][0] + 0 * z)


_FINEST = 1e-9  # what the lattice reaches in reasonable time


def sum_group(node: PositiveSum, arguments: tuple[Any, ...], accuracy: Accuracy, compiler: Compiler) -> SumGroup:
    """The node as a function of `arguments`; `compiler` compiles what stands in it."""
    own = tuple(s for s in arguments if s in node.free_symbols)
    return SumGroup(
        node,
        tuple(arguments.index(s) for s in own),
        accuracy,
        compiler(node.inside, (*own, *node.variables)),
        compiler(node.outside, own),
    )
