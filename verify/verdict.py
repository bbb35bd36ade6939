"""What a comparison of theory and simulation says: rows, their verdicts, the verdict of them all."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
import sympy as sp
from scipy import special

__all__ = ["Comparison", "Row", "Tolerance", "Verdict"]

POWER = 0.95  # the chance with which a deviation of the size `resolution` is found


class Verdict(enum.Enum):
    """The outcome of a comparison: the name is the word of the JSON output, the value a sentence."""

    agrees = "Every compared number lies within what chance allows."
    disagrees = "A compared number lies further from the prediction than chance allows."
    inconclusive = "The simulations cannot decide: see the notes of the rows."


@dataclass(frozen=True)
class Tolerance:
    """false_alarm: the chance that a correct theory is rejected, over all the numbers of a report together."""

    false_alarm: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 < self.false_alarm < 1:
            raise ValueError(f"Tolerance: false_alarm is a probability in (0, 1), got {self.false_alarm}.")

    def share(self, reports: int) -> Tolerance:
        """The tolerance of each of several comparisons that together keep this one."""
        return Tolerance(self.false_alarm / reports)

    def quantile(self, comparisons: int, freedom: float) -> float:
        """Student's t at 1 - false_alarm/(2 comparisons)  [Bonferroni]."""
        return -float(special.stdtrit(freedom, self.false_alarm / (2 * comparisons)))


@dataclass(frozen=True)
class Row:
    """One number compared. `size` is inf for an extrapolation, and `mean`, `stderr` are then those of p.

    z = (mean - predicted)/stderr; effect: the same in standard deviations between replicas; relative: in units
    of |predicted|. allowed: the largest |mean - predicted| that passes. resolution: the relative deviation that
    would be found with a chance of 95 per cent; a row that passes says nothing about smaller ones. verdict is
    None for a row that informs and is not tested.
    """

    quantity: sp.Symbol
    at: float | None
    size: float
    trials: int
    predicted: float
    mean: float
    stderr: float
    spread: float
    freedom: float
    allowed: float = math.nan
    verdict: Verdict | None = None
    note: str = ""

    @property
    def rounding(self) -> float:
        """What the sums of d products behind an overlap may lose."""
        d = self.size if math.isfinite(self.size) else 1.0
        return 8 * float(np.finfo(np.float64).eps) * d * max(1.0, abs(self.predicted))

    @property
    def agrees(self) -> bool | None:
        return None if self.verdict is None else self.verdict is Verdict.agrees

    @property
    def z(self) -> float:
        return _ratio(self.mean - self.predicted, self.stderr)

    @property
    def effect(self) -> float:
        return _ratio(self.mean - self.predicted, self.spread)

    @property
    def relative(self) -> float:
        return _ratio(self.mean - self.predicted, abs(self.predicted))

    @property
    def resolution(self) -> float:
        # another ensemble's mean varies by stderr, and its allowed deviation by 1/sqrt(2 freedom) of itself
        blur = math.hypot(self.stderr, self.allowed / math.sqrt(2 * self.freedom))
        found = self.allowed + float(special.stdtrit(self.freedom, POWER)) * blur
        return found / abs(self.predicted) if self.predicted else math.inf


def _ratio(difference: float, unit: float) -> float:
    if unit:
        return difference / unit
    return math.copysign(math.inf, difference) if difference else 0.0


@dataclass(frozen=True)
class Comparison:
    """The rows of a report, tested together at `tolerance`."""

    rows: tuple[Row, ...]
    tolerance: Tolerance

    @property
    def tested(self) -> tuple[Row, ...]:
        return tuple(r for r in self.rows if r.verdict is not None)

    @property
    def comparisons(self) -> int:
        return len(self.tested)

    @property
    def verdict(self) -> Verdict:
        """Disagrees if a row does; else inconclusive if a row is, or if nothing was tested; else agrees.

        Where other rows only inform, rows without spread (a prepared start) are not enough for agreement.
        """
        found = {r.verdict for r in self.tested}
        if Verdict.disagrees in found:
            return Verdict.disagrees
        decisive = len(self.tested) == len(self.rows) or any(r.spread > 0 for r in self.tested)
        return Verdict.agrees if found == {Verdict.agrees} and decisive else Verdict.inconclusive

    @property
    def agrees(self) -> bool:
        return self.verdict is Verdict.agrees

    @property
    def resolution(self) -> float:
        """The smallest relative deviation that some row would find, inf where no row has that power.

        Rows without spread (a prepared start) do not count: they test the preparation, not the theory.
        """
        return min((r.resolution for r in self.tested if r.spread > 0), default=math.inf)
