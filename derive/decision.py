"""Is this constant zero, positive or negative? A decision with its certificate, never a float's threshold."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import sympy as sp

from derive.expectation import Expectation
from derive.polynomial import is_zero

__all__ = ["Certificate", "Decide", "Decision", "Sign", "decide_symbolically"]


class Sign(enum.Enum):
    """The sign of a constant; NONZERO when it is a free symbol times something nonzero."""

    ZERO = "zero"
    POSITIVE = "positive"
    NEGATIVE = "negative"
    NONZERO = "nonzero"
    UNDECIDED = "undecided"


class Certificate(enum.Enum):
    """How a decision was reached: `exact` by algebra or symmetry, `enclosure` by ball arithmetic."""

    EXACT = "exact"
    ENCLOSURE = "enclosure"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Decision:
    """A sign, its certificate, the reason in words, and an interval of the value where one is known."""

    sign: Sign
    certificate: Certificate
    reason: str
    interval: tuple[str, str] | None = None

    @property
    def is_nonzero(self) -> bool:
        return self.sign in (Sign.POSITIVE, Sign.NEGATIVE, Sign.NONZERO)


Decide: TypeAlias = Callable[[sp.Expr], Decision]


def decide_symbolically(value: sp.Expr) -> Decision:
    """The decision by algebra alone: UNDECIDED while an expectation or an unknown sign of a sum remains."""
    if value.has(Expectation):
        return Decision(Sign.UNDECIDED, Certificate.UNDECIDED, "an expectation without a closed form")
    if is_zero(value):
        return Decision(Sign.ZERO, Certificate.EXACT, "zero by algebra or symmetry")
    if value.free_symbols:
        return _decide_with_symbols(value)
    sign = Sign.POSITIVE if value.is_positive else Sign.NEGATIVE if value.is_negative else Sign.UNDECIDED
    certificate = Certificate.UNDECIDED if sign is Sign.UNDECIDED else Certificate.EXACT
    return Decision(sign, certificate, "closed form")


def _decide_with_symbols(value: sp.Expr) -> Decision:
    names = ", ".join(sorted(s.name for s in value.free_symbols))
    if value.is_positive or value.is_negative:
        sign = Sign.POSITIVE if value.is_positive else Sign.NEGATIVE
        return Decision(sign, Certificate.EXACT, f"closed form in {names}")
    if not _differs_from_zero(value):
        return Decision(Sign.UNDECIDED, Certificate.UNDECIDED, f"it may vanish identically in {names}")
    return Decision(Sign.NONZERO, Certificate.EXACT, f"not identically zero in {names}")


def _differs_from_zero(value: sp.Expr) -> bool:
    """Whether the value is nonzero at some rational point, to 30 digits; the point respects the symbols' signs."""
    symbols = sorted(value.free_symbols, key=str)
    for seed in (3, 7, 11):
        at = {s: sp.Rational(seed + i, 2 * seed + 13) * (-1 if s.is_negative else 1) for i, s in enumerate(symbols)}
        there = value.xreplace(at).evalf(30, maxn=200)
        if there.is_number and there.is_comparable and abs(there) > sp.Float("1e-20"):
            return True
    return False
