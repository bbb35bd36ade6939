"""Signs, digits and roots with a proof: exact algebra first, then ball arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import sympy as sp
from flint import arb

from derive.decision import Certificate, Decision, Sign, decide_symbolically
from derive.polynomial import algebra
from derive.rules import reduced
from solve.decimals import outward
from solve.enclosure import DEFAULT_BUDGET, evaluate_ball
from solve.estimate import estimate
from solve.gaussian_form import cancels
from solve.straightline import NotAffordable, NotEnclosed

__all__ = ["decide", "enclose"]

_LADDER = (6, 10, 30, 64, 128)
_SHOWN = 8  # digits of the interval of a decision
_SAMPLES = (sp.Rational(3, 7), sp.Rational(5, 11), sp.Rational(2, 13), sp.Rational(7, 17), sp.Rational(4, 19))


def decide(value: sp.Expr, bits: Sequence[int] = _LADDER, budget: float = DEFAULT_BUDGET) -> Decision:
    """The sign of `value`: exact by algebra, else by an enclosure that excludes zero, to `bits` in turn.

    Zero is only ever decided by algebra or symmetry. With free symbols the sign is NONZERO when the value is not
    identically zero in them; a common factor that is not zero does not matter. An enclosure that holds 0, or none
    within `budget` evaluations of an integrand, leaves the sign UNDECIDED, and the reason says what is known.
    """
    decision = decide_symbolically(value)
    if decision.sign is not Sign.UNDECIDED:
        return decision
    value = reduced(value)
    decision = decide_symbolically(value)
    if decision.sign is not Sign.UNDECIDED:
        return decision
    if cancels(value):
        return Decision(Sign.ZERO, Certificate.EXACT, "zero by algebra or symmetry")
    if value.free_symbols:
        return _decide_with_symbols(value, lambda c: decide(c, bits, budget))
    return _decide_number(value, bits, budget)


def _decide_number(value: sp.Expr, bits: Sequence[int], budget: float) -> Decision:
    ball: arb | None = None
    reason = "the enclosure still holds zero"
    for b in bits:
        try:
            ball = evaluate_ball(value, b, budget=budget)
        except NotAffordable as failed:
            reason = str(failed)
            break
        except NotEnclosed as failed:
            reason = str(failed)
            continue
        if not ball.contains(0):
            sign = Sign.POSITIVE if ball > 0 else Sign.NEGATIVE
            return Decision(sign, Certificate.ENCLOSURE, "ball arithmetic", outward(ball, _SHOWN))
    if ball is None:
        return Decision(Sign.UNDECIDED, Certificate.UNDECIDED, f"{reason}; {estimate(value)}")
    return Decision(Sign.UNDECIDED, Certificate.UNDECIDED, reason, outward(ball, _SHOWN))


# ------------------------------------------------------------------------------------------- free symbols


def _decide_with_symbols(value: sp.Expr, decide_constant: Callable[[sp.Expr], Decision]) -> Decision:
    symbols = sorted(value.free_symbols, key=lambda s: str(s.name))
    monomials = _monomials(value, symbols)
    if monomials is None:
        return _decide_by_samples(value, symbols, decide_constant)
    names = ", ".join(s.name for s in symbols)
    decisions = []
    for factor, c in monomials.items():
        decision = decide_constant(c)
        if len(monomials) == 1:
            return _times(decision, factor)
        if decision.is_nonzero:
            reason = f"not identically zero in {names}: the coefficient of {factor} is {decision.sign.value}"
            return Decision(Sign.NONZERO, decision.certificate, reason)
        decisions.append(decision)
    return next(d for d in decisions if d.sign is Sign.UNDECIDED)


def _monomials(value: sp.Expr, symbols: Sequence[sp.Symbol]) -> Mapping[sp.Expr, sp.Expr] | None:
    """{monomial in the symbols: constant coefficient}, or None where the value is no polynomial in them."""
    ring = algebra([value], symbols)
    groups = ring.collect(ring.element(value), len(symbols))
    result = {
        sp.Mul(*(s**n for s, n in zip(symbols, powers, strict=True))): ring.expr(f) for powers, f in groups.items()
    }
    return None if any(c.has_free(*symbols) for c in result.values()) else result


def _times(decision: Decision, factor: sp.Expr) -> Decision:
    """The sign of a decided constant times `factor`, a monomial of free symbols."""
    if not decision.is_nonzero:
        return decision
    reason = f"{decision.reason}; a constant that is {decision.sign.value}, times {factor}"
    if factor.is_positive:
        return replace(decision, reason=reason, interval=None)
    return Decision(Sign.NONZERO, decision.certificate, reason)


def _decide_by_samples(
    value: sp.Expr, symbols: Sequence[sp.Symbol], decide_constant: Callable[[sp.Expr], Decision]
) -> Decision:
    """Not zero at one value of the parameters: not identically zero."""
    names = ", ".join(s.name for s in symbols)
    for point in _points(symbols):
        decision = decide_constant(value.subs(point))
        if decision.is_nonzero:
            at = ", ".join(f"{s.name} = {v}" for s, v in point.items())
            reason = f"not identically zero in {names}: {decision.sign.value} at {at}"
            return Decision(Sign.NONZERO, decision.certificate, reason)
    return Decision(Sign.UNDECIDED, Certificate.UNDECIDED, f"no values of {names} show that it is not zero")


def _points(symbols: Sequence[sp.Symbol]) -> Iterator[dict[sp.Symbol, sp.Expr]]:
    for shift in range(2):
        yield {s: (-1 if s.is_negative else 1) * _SAMPLES[(i + shift) % len(_SAMPLES)] for i, s in enumerate(symbols)}


# ------------------------------------------------------------------------------------------- digits


def enclose(value: sp.Expr, digits: int, budget: float = DEFAULT_BUDGET) -> tuple[str, str]:
    """(low, high), decimal numbers of `digits` digits with low <= value <= high, one or two units apart.

    Raises `NotEnclosed` when so many digits are out of reach, or for a value that may be zero.
    """
    value = reduced(value)
    bits = math.ceil((digits + 1) * math.log2(10)) + 4
    for _ in range(4):
        ball = evaluate_ball(value, bits, budget=budget)
        if ball.rad() * arb(10) ** digits < abs(ball) / 4:
            return outward(ball, digits)
        # the accuracy of evaluate_ball is absolute: a small value takes as many bits more
        bits += max(8, -math.floor(math.log2(float(abs(ball).upper()) or 2.0**-bits)))
    raise NotEnclosed(f"{digits} digits of {value} are out of reach: it lies in {outward(ball, digits)}.")
