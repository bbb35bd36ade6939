"""Whether two simulations have one law at each size: Kolmogorov-Smirnov distances, as rows of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from verify.simulation import Ensemble
from verify.verdict import Comparison, Row, Tolerance, Verdict

__all__ = ["compare_laws", "distance"]

Array: TypeAlias = NDArray[np.float64]

NOTE = "KS(x): the Kolmogorov-Smirnov distance between the laws of x in the direct and the projected simulation"
_DIGITS = 10  # a step that moves nothing leaves an atom, which the two round differently


def distance(x: Array, y: Array) -> float:
    """D = sup_t |F_x(t) - F_y(t)| of samples (n,), (k,) taken to 10 decimals; nan counts as beyond every number."""
    a, b = (np.sort(np.nan_to_num(np.round(v, _DIGITS), nan=math.inf)) for v in (x, y))
    at = np.concatenate([a, b])
    share = [np.searchsorted(v, at, side="right") / v.size for v in (a, b)]
    return float(np.abs(share[0] - share[1]).max())


def largest_distance(n: int, k: int, chance: float) -> float:
    """D that two samples of n and k from one law exceed with at most this chance: 2 exp(-2 D^2 n k/(n + k)) = chance.

    [Dvoretzky, Kiefer, Wolfowitz; for two samples Wei and Dudley, arXiv:1107.5356.]
    """
    return math.sqrt(math.log(2 / chance) * (n + k) / (2 * n * k))


def compare_laws(
    ensembles: Sequence[Ensemble], references: Sequence[Ensemble], tolerance: Tolerance | None = None
) -> Comparison:
    """Test whether the laws of two simulations are equal, size by size, in each quantity at each point of the axis.

    The row KS(x) has the distance in x as its `mean`, and 0 as `predicted`.
    Raises `ValueError` where sizes or axes differ.
    """
    tolerance = tolerance or Tolerance()
    samples = [s for pair in zip(ensembles, references, strict=True) for s in _samples(*pair)]
    return Comparison(tuple(_row(*s, tolerance.false_alarm / len(samples)) for s in samples), tolerance)


def _samples(a: Ensemble, b: Ensemble) -> Iterator[tuple[sp.Symbol, float | None, int, Array, Array]]:
    at, other = (np.zeros(0) if e.axis is None else e.axis for e in (a, b))
    if a.size != b.size or at.shape != other.shape or not np.allclose(at, other, rtol=1e-12):
        raise ValueError(
            f"compare_laws: size {a.size} at {a.axis} against size {b.size} at {b.axis}. Simulate both at the same "
            "sizes and times."
        )
    for q in (q for q in a.observed if q in b.observed):
        if a[q].ndim == 1:
            yield q, None, a.size, a[q], b[q]
        else:
            yield from ((q, float(t), a.size, x, y) for t, x, y in zip(at, a[q].T, b[q].T, strict=True))


def _row(quantity: sp.Symbol, at: float | None, size: int, x: Array, y: Array, chance: float) -> Row:
    found, allowed = distance(x, y), largest_distance(x.size, y.size, chance)
    verdict = Verdict.agrees if found <= allowed else Verdict.disagrees
    name, unknown = sp.Symbol(f"KS({quantity.name})"), math.nan
    return Row(name, at, size, x.size, 0.0, found, unknown, unknown, x.size - 1, allowed, verdict, NOTE)
