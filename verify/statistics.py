"""The verdict of theory against simulation: finite-size extrapolation, allowed deviations, resolution.

Each size d gives a mean with its standard error. With three sizes or more mean_d = p + b/d is fitted and p is
tested; b is whatever the fit says. Every number that is compared counts towards the false-alarm rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray
from scipy import special

from verify.simulation import Ensemble
from verify.verdict import Comparison, Row, Tolerance, Verdict

__all__ = [
    "Comparison",
    "Extrapolation",
    "Row",
    "Tolerance",
    "Verdict",
    "compare",
    "compare_ensembles",
    "extrapolate",
    "rate",
]

Array: TypeAlias = NDArray[np.float64]

STANDARD = Tolerance()
LARGEST_BIAS = 0.2  # |b|/d at the largest size, as a part of |p|, beyond which an extrapolation proves nothing


class Extrapolation(NamedTuple):
    """mean_d = p + b/d with standard errors, and chi2 = sum_d ((mean_d - p - b/d)/stderr_d)^2."""

    p: float
    p_err: float
    b: float
    b_err: float
    chi2: float


def extrapolate(sizes: ArrayLike, means: ArrayLike, stderrs: ArrayLike) -> Extrapolation:
    """Weighted least squares of mean_d = p + b/d, weights 1/stderr_d^2; all arguments (n_sizes,).

    Raises `ValueError` for fewer than two different sizes or a standard error that is not positive.
    """
    d, y, s = (np.asarray(a, dtype=np.float64) for a in (sizes, means, stderrs))
    if not (np.all(s > 0) and np.all(np.isfinite(s)) and np.all(np.isfinite(y))):
        raise ValueError(f"extrapolate: means must be finite and standard errors positive, got {y} and {s}.")
    (p, b), cov, chi2 = _line(1 / d, y, s)
    return Extrapolation(p, math.sqrt(cov[0, 0]), b, math.sqrt(cov[1, 1]), chi2)


def rate(sizes: ArrayLike, values: ArrayLike, errors: ArrayLike) -> tuple[float, float]:
    """The exponent of |value| ~ size^slope and its standard error, by weighted least squares of the logarithms.

    Where the points scatter more than their errors say, the standard error is widened by sqrt(chi2/(n - 2)).
    Raises `ValueError` for fewer than two sizes, or a value within two errors of 0, whose logarithm is noise.
    """
    d, y, s = (np.asarray(a, dtype=np.float64) for a in (sizes, values, errors))
    if not np.all(np.abs(y) > 2 * s):
        raise ValueError(f"rate: every value must exceed twice its error, got {y} with errors {s}.")
    (_, slope), cov, chi2 = _line(np.log(d), np.log(np.abs(y)), s / np.abs(y))
    widen = math.sqrt(max(1.0, chi2 / (d.size - 2))) if d.size > 2 else 1.0
    return slope, widen * math.sqrt(cov[1, 1])


def _line(x: Array, y: Array, s: Array) -> tuple[tuple[float, float], Array, float]:
    """y = a + c x with errors s > 0: (a, c), their covariance (2, 2), and chi2."""
    if np.unique(x).size < 2:
        raise ValueError(f"A line needs two different sizes, got {x.size} points at {np.unique(x).size} sizes.")
    centre = np.average(x, weights=s**-2)
    basis = np.stack([np.ones_like(x), x - centre], axis=1) / s[:, None]
    coefficients, *_ = np.linalg.lstsq(basis, y / s, rcond=None)
    level, c = (float(v) for v in coefficients)
    var_level, var_c = 1 / np.sum(basis**2, axis=0)
    cov = np.array([[var_level + centre**2 * var_c, -centre * var_c], [-centre * var_c, var_c]])
    return (level - c * float(centre), c), cov, float(np.sum((y / s - basis @ coefficients) ** 2))


# ---------------------------------------------------------------- the comparison


def compare(
    predictions: Sequence[Mapping[sp.Symbol, ArrayLike]],
    ensembles: Sequence[Ensemble],
    tolerance: Tolerance = STANDARD,
    *,
    finite_size: bool = False,
) -> Comparison:
    """Test predictions against ensembles of several sizes, in all quantities that both hold.

    Args:
        predictions: one for each ensemble, with values () or (n_axis,) at that ensemble's own size and axis; a
            limit that does not depend on d is given several times.
        ensembles: one for each size, all with the same number of points on the axis.
        tolerance: shared by all rows that are tested (Bonferroni).
        finite_size: the predictions hold at each size as they are, and every size is tested. Otherwise they are
            limits: with three sizes or more the extrapolated differences mean_d - predicted_d = p + b/d are
            tested; with fewer the rows only inform, and the verdict is inconclusive.

    The degrees of freedom of an extrapolation are those of its smallest ensemble, n - 1: the weights come from
    the same replicas, and more (Welch's, or the sum) raise too many false alarms far out in the tail.
    Raises `ValueError` where the arguments do not match, or an ensemble has fewer than two replicas.
    """
    rows: list[Row] = []
    candidates: list[_Candidate] = []
    for column in _columns(predictions, ensembles):
        if finite_size:
            candidates += [_Candidate(r) for r in column]
        elif all(r.spread == 0 for r in column):  # a prepared start: no size is better than another
            candidates.append(_Candidate(max(column, key=lambda r: abs(r.mean - r.predicted) / r.rounding)))
        else:
            rows += column
            candidates += [_extrapolated(column)] if len(column) >= 3 else []
    return Comparison((*rows, *_judged(candidates, tolerance)), tolerance)


def compare_ensembles(
    ensembles: Sequence[Ensemble], references: Sequence[Ensemble], tolerance: Tolerance = STANDARD
) -> Comparison:
    """Test whether two simulations have equal means, size by size  [Welch's t]; `predicted` is the reference's.

    Raises `ValueError` where sizes or axes differ, or an ensemble has fewer than two replicas.
    """
    candidates = []
    for ensemble, reference in zip(ensembles, references, strict=True):
        if ensemble.size != reference.size or not _equal_axes(ensemble, reference):
            raise ValueError(
                f"compare_ensembles: size {ensemble.size} at {ensemble.axis} against size {reference.size} at "
                f"{reference.axis}. Simulate both at the same sizes and times."
            )
        shared = [q for q in ensemble.observed if q in reference.observed]
        zeros = {q: np.zeros(ensemble[q].shape[1:]) for q in shared}
        pairs = zip(_columns([zeros], [ensemble]), _columns([zeros], [reference]), strict=True)
        candidates += [_Candidate(_two_sample(a, b)) for (a,), (b,) in pairs]
    return Comparison(_judged(candidates, tolerance), tolerance)


def _equal_axes(a: Ensemble, b: Ensemble) -> bool:
    if a.axis is None or b.axis is None:
        return a.axis is b.axis
    return np.array_equal(a.axis, b.axis)


@dataclass(frozen=True)
class _Candidate:
    """A row to be tested, with what may leave it undecided: the bias b/d (and its error), the misfit of the fit."""

    row: Row
    bias: float = 0.0
    bias_err: float = 0.0
    chi2: float = 0.0
    fit_freedom: int = 0


def _columns(
    predictions: Sequence[Mapping[sp.Symbol, ArrayLike]], ensembles: Sequence[Ensemble]
) -> Iterator[list[Row]]:
    """For each quantity and point of the axis the rows of all sizes, rising, not yet tested."""
    sizes = [e.size for e in ensembles]
    if len(predictions) != len(ensembles) or len(set(sizes)) < len(sizes) or not sizes:
        raise ValueError(f"compare: {len(predictions)} predictions for sizes {sizes}; give one for each size.")
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    quantities = [q for q in ensembles[0].observed if q in predictions[0]]
    if not quantities:
        raise ValueError(f"compare: of {list(ensembles[0].observed)} nothing is predicted.")
    for q in quantities:
        cells = [_cells(q, predictions[i][q], ensembles[i]) for i in order]
        yield from (list(column) for column in zip(*cells, strict=True))


def _cells(quantity: sp.Symbol, predicted: ArrayLike, ensemble: Ensemble) -> list[Row]:
    """The rows of one quantity at one size, one for each point of the axis."""
    samples = ensemble[quantity]
    values = np.asarray(predicted, dtype=np.float64)
    if values.shape != samples.shape[1:] or len(samples) < 2:
        raise ValueError(
            f"compare: {quantity} at size {ensemble.size} is predicted with shape {values.shape} and observed with "
            f"{samples.shape}; it needs two replicas or more, and one predicted value for each point of the axis."
        )
    if values.ndim == 0:
        return [_cell(quantity, None, float(values), ensemble.size, samples)]
    axis = ensemble.axis if ensemble.axis is not None else np.arange(values.size, dtype=np.float64)
    return [
        _cell(quantity, float(t), float(v), ensemble.size, x) for t, v, x in zip(axis, values, samples.T, strict=True)
    ]


def _cell(quantity: sp.Symbol, at: float | None, predicted: float, size: int, x: Array) -> Row:
    lost = int(np.sum(~np.isfinite(x)))
    note = f"{lost} of {x.size} replicas have no finite value" if lost else ""
    mean, spread = (math.nan, math.nan) if lost else (float(x.mean()), float(x.std(ddof=1)))
    row = Row(quantity, at, size, x.size, predicted, mean, math.nan, spread, x.size - 1, note=note)
    spread = 0.0 if spread <= row.rounding else spread
    return replace(row, spread=spread, stderr=spread / math.sqrt(x.size))


def _extrapolated(column: list[Row]) -> _Candidate:
    """The fit of mean_d - predicted_d = p + b/d, told as p against the prediction at the largest size."""
    last = column[-1]
    trials, freedom = min(r.trials for r in column), min(r.freedom for r in column)
    row = replace(last, size=math.inf, trials=trials, freedom=freedom, note=_joined(column))
    differences = [r.mean - r.predicted for r in column]
    if not all(map(math.isfinite, differences)):
        return _Candidate(replace(row, mean=math.nan, stderr=math.nan))
    sizes = [r.size for r in column]
    fit = extrapolate(sizes, differences, [max(r.stderr, r.rounding) for r in column])
    row = replace(row, mean=last.predicted + fit.p, stderr=fit.p_err)
    return _Candidate(row, abs(fit.b) / last.size, fit.b_err / last.size, fit.chi2, len(column) - 2)


def _two_sample(row: Row, reference: Row) -> Row:
    stderr = math.hypot(row.stderr, reference.stderr)
    parts = row.stderr**4 / row.freedom + reference.stderr**4 / reference.freedom
    return replace(
        row,
        predicted=reference.mean,
        stderr=stderr,
        spread=math.sqrt((row.spread**2 + reference.spread**2) / 2),
        freedom=stderr**4 / parts if parts > 0 else row.freedom,
        note=_joined([row, reference]),
    )


def _joined(rows: Sequence[Row]) -> str:
    return "; ".join(f"size {r.size:g}: {r.note}" for r in rows if r.note)


def _judged(candidates: Sequence[_Candidate], tolerance: Tolerance) -> tuple[Row, ...]:
    return tuple(_judge(c, tolerance, len(candidates)) for c in candidates)


def _judge(candidate: _Candidate, tolerance: Tolerance, comparisons: int) -> Row:
    row = candidate.row
    allowed = max(tolerance.quantile(comparisons, row.freedom) * row.stderr, row.rounding)
    row = replace(row, allowed=allowed)
    doubt = _doubt(candidate, tolerance, comparisons)
    if doubt:
        return replace(row, verdict=Verdict.inconclusive, note="; ".join(filter(None, (row.note, doubt))))
    agrees = abs(row.mean - row.predicted) <= allowed
    return replace(row, verdict=Verdict.agrees if agrees else Verdict.disagrees)


def _doubt(candidate: _Candidate, tolerance: Tolerance, comparisons: int) -> str:
    """Why the row cannot decide, empty where it can."""
    row, bias = candidate.row, candidate.bias
    if not math.isfinite(row.mean - row.predicted):
        return "nothing finite to compare"
    if bias > LARGEST_BIAS * abs(row.mean):
        # against a prediction of 0 every p is small: there the bias must stand out of its own error
        noise = 0.0 if row.predicted else tolerance.quantile(comparisons, row.freedom) * candidate.bias_err
        if bias > noise:
            share = bias / abs(row.mean) if row.mean else math.inf
            return f"the finite-size bias b/d is {share:.0%} of p at the largest size; simulate larger sizes"
    if candidate.fit_freedom:
        mean_square = candidate.chi2 / candidate.fit_freedom
        tail = tolerance.false_alarm / comparisons
        if mean_square > 1 / float(special.fdtri(row.freedom, candidate.fit_freedom, tail)):
            return f"the means do not follow p + b/d (chi2 {candidate.chi2:.1f}); simulate larger sizes"
    return ""
