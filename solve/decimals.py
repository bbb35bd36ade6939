"""Balls as decimal numbers, rounded outwards."""

from __future__ import annotations

from fractions import Fraction

from flint import arb

__all__ = ["outward"]


def outward(ball: arb, digits: int) -> tuple[str, str]:
    """(low, high) with `digits` digits of the larger end, low <= ball <= high."""
    # not ball.lower(), which rounds to the current precision
    middle, radius = _exact(ball.mid()), _exact(ball.rad())
    low, high = middle - radius, middle + radius
    unit = _unit(max(abs(low), abs(high)), digits)
    # floor and ceiling
    return _decimal(low // unit, unit), _decimal(-(-high // unit), unit)


def _exact(number: arb) -> Fraction:
    mantissa, exponent = number.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _unit(size: Fraction, digits: int) -> Fraction:
    """The place of the last of `digits` digits of `size`, a power of 10."""
    power = 0
    while size and size >= Fraction(10) ** power:
        power += 1
    while size and size < Fraction(10) ** (power - 1):
        power -= 1
    return Fraction(10) ** (power - digits)


def _decimal(count: int, unit: Fraction) -> str:
    """count * unit, exactly: positional for moderate sizes, else with an exponent."""
    exponent = len(str(unit.numerator)) - 1 - (len(str(unit.denominator)) - 1)
    text = str(abs(count))
    sign = "-" if count < 0 else ""
    leading = len(text) + exponent
    if count == 0:
        return "0"
    if exponent >= 0 and leading <= 20:
        return sign + text + "0" * exponent
    if -6 < leading <= 20:
        padded = text.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    return f"{sign}{text[0]}.{text[1:] or '0'}e{leading - 1:+d}"
