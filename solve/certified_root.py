"""The root of a function of one variable with a proof that it exists and is the only one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import sympy as sp
from flint import arb, ctx, fmpq

from solve.decimals import outward
from solve.enclosure import evaluate_ball
from solve.straightline import NotEnclosed

__all__ = ["CertifiedRoot", "root"]

_MOST_PIECES = 400
_MOST_STEPS = 60
# pieces are cut off-centre: a root at the middle of a bracket, as by symmetry, is then no end of a piece
_CUT = sp.Rational(61, 128)


@dataclass(frozen=True, slots=True)
class CertifiedRoot:
    """A ball that holds exactly one root of the function, the only one in [low, high]."""

    ball: arb
    low: sp.Rational
    high: sp.Rational

    def interval(self, digits: int) -> tuple[str, str]:
        """(low, high) as decimal numbers of so many digits, rounded outwards."""
        return outward(self.ball, digits)


@dataclass(frozen=True)
class _Function:
    f: sp.Expr
    x: sp.Symbol
    derivative: sp.Expr

    def at(self, x: arb, bits: int) -> arb:
        return self._value(self.f, x, bits)

    def slope(self, x: arb) -> arb:
        # as sharp as the width of x allows, and no sharper
        width = float(x.rad()) or 2.0**-60
        return self._value(self.derivative, x, max(8, 8 - math.floor(math.log2(width))))

    def _value(self, e: sp.Expr, x: arb, bits: int) -> arb:
        try:
            return evaluate_ball(e, bits, {self.x: x})
        except NotEnclosed:
            return arb(0, math.inf)


def root(f: sp.Expr, low: sp.Rational, high: sp.Rational, digits: int) -> CertifiedRoot:
    """x in [low, high] with f(x) = 0 to `digits` digits, by the interval Newton method x - f(x) / f'([x]).

    f: an expression in one free symbol, expectations included. The bracket is cut into pieces where f has no zero
    or f' has none; one sign change in all proves that the root exists and is unique. Raises `ValueError` for a
    bracket with no root or several; `NotEnclosed` where neither is proved, as at a double root.
    """
    symbols = f.free_symbols
    if len(symbols) != 1:
        raise ValueError(f"root: f must have one free symbol, got {sorted(map(str, symbols))}.")
    x = next(iter(symbols))
    low, high = sp.Rational(low), sp.Rational(high)
    function = _Function(f, x, f.diff(x))
    found = list(_monotone_pieces(function, low, high))
    if len(found) != 1:
        raise ValueError(f"root: {len(found)} roots in [{low}, {high}]; give a bracket with exactly one.")
    return CertifiedRoot(_newton(function, *found[0], digits), low, high)


def _monotone_pieces(f: _Function, low: sp.Rational, high: sp.Rational) -> Iterator[tuple[sp.Rational, sp.Rational]]:
    """The pieces where f is monotone and changes sign; all others are proved to have no root."""
    pending, seen = [(low, high)], 0
    while pending:
        a, b = pending.pop()
        seen += 1
        if seen > _MOST_PIECES:
            raise NotEnclosed(f"root: f and f' are both near zero around {sp.Rational(a + b, 2).n(8)}")
        hull = _hull(a, b)
        if not f.slope(hull).contains(0):
            if _sign(f, a) != _sign(f, b):
                yield a, b
        elif f.at(hull, 12).contains(0):
            cut = a + (b - a) * _CUT
            pending += [(a, cut), (cut, b)]


def _ball(q: sp.Rational) -> arb:
    return arb(fmpq(int(q.p), int(q.q)))


def _hull(a: sp.Rational, b: sp.Rational) -> arb:
    return _ball(a).union(_ball(b))


def _sign(f: _Function, at: sp.Rational) -> int:
    for bits in (12, 40, 120):
        with ctx.workprec(bits + 40):
            value = f.at(_ball(at), bits)
        if not value.contains(0):
            return 1 if value > 0 else -1
    raise NotEnclosed(f"root: the sign of f at {at} is not decided; move the end of the bracket a little")


def _newton(f: _Function, a: sp.Rational, b: sp.Rational, digits: int) -> arb:
    """Newton's step from the middle keeps every root of the ball; on a monotone piece that is the one root."""
    x, goal = _hull(a, b), arb(10) ** -digits
    for _ in range(_MOST_STEPS):
        if x.rad() < goal * abs(x) / 4:
            return x
        bits = min(4 * digits, 2 * max(8, -math.floor(math.log2(float(x.rad())))) + 16)
        with ctx.workprec(bits + 40):
            slope = f.slope(x)
            step = x.mid() - f.at(x.mid(), bits) / slope
            narrower = step.intersection(x) if not slope.contains(0) else x
            x = narrower if narrower.rad() < x.rad() * 0.9 else _half_with_sign_change(f, x, bits)
    raise NotEnclosed(f"root: {digits} digits are out of reach; it lies in {outward(x, digits)}")


def _half_with_sign_change(f: _Function, x: arb, bits: int) -> arb:
    a, b = x.lower(), x.upper()
    cut = (a + (b - a) * _ball(_CUT)).mid()
    left, right = f.at(a, bits), f.at(cut, bits)
    if left.contains(0) or right.contains(0):
        raise NotEnclosed("root: f is too flat to be told from zero at this precision")
    return a.union(cut) if (left > 0) != (right > 0) else cut.union(b)
