"""Bounds of an integrand on all of R^n, and of what a Gaussian integral leaves outside a box."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp
from flint import arb, ctx

from derive.functions import LogCosh, Phi, SoftmaxEntry
from derive.spectrum import SechSpectrum
from solve.straightline import Arithmetic, NotEnclosed

__all__ = ["Growth", "GrowthBounds", "box_radius"]

Powers = tuple[int, ...]
_LARGEST_RADIUS = 64.0


def _up(x: float) -> float:
    """x >= 0, raised by far more than the rounding of the operations that gave it."""
    return x * (1 + 1e-12) + 1e-300


def _down(x: float) -> float:
    return x - abs(x) * 1e-12 - 1e-300


@dataclass(frozen=True, slots=True)
class Growth:
    """|f(x)| <= sum_p c_p prod_i |x_i|^p_i * exp(sum_i rate_i |x_i|) and low <= f(x) <= high, for all x.

    `above`, where it is known: f(x) <= sum_p above_p prod_i |x_i|^p_i, on one side.
    """

    powers: Mapping[Powers, float]
    rate: tuple[float, ...]
    low: float = -math.inf
    high: float = math.inf
    above: Mapping[Powers, float] | None = None

    @property
    def one_sided(self) -> Mapping[Powers, float] | None:
        """The powers that bound f from above, or None."""
        if self.high < math.inf:
            return {(0,) * len(self.rate): max(self.high, 0.0)}
        return self.above if self.above is not None or any(self.rate) else self.powers

    @property
    def bound(self) -> float:
        """sup |f|, which may be infinite."""
        return max(abs(self.low), abs(self.high))


def _sum(a: Mapping[Powers, float], b: Mapping[Powers, float]) -> Mapping[Powers, float]:
    return {k: _up(a.get(k, 0.0) + b.get(k, 0.0)) for k in {*a, *b}}


def _range_product(a: Growth, b: Growth) -> tuple[float, float]:
    ends = [0.0 if 0 in (x, y) else x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return _widened(min(ends), max(ends))


def _widened(low: float, high: float) -> tuple[float, float]:
    # zero as an end stays zero: the sign of a range must not be lost
    return (_down(low) if low else 0.0), (high + abs(high) * 1e-12 if high else 0.0)


@dataclass(frozen=True, slots=True)
class GrowthBounds(Arithmetic[Growth]):
    """Growth of a function of `dim` variables from that of its parts."""

    dim: int

    def variable(self, i: int) -> Growth:
        return Growth({tuple(int(j == i) for j in range(self.dim)): 1.0}, (0.0,) * self.dim)

    def constant(self, value: arb) -> Growth:
        low, high = float(value.lower()), float(value.upper())
        return self._bounded(low, high) if low == high == 0 else self._bounded(*_widened(low, high))

    def _bounded(self, low: float, high: float) -> Growth:
        return Growth({(0,) * self.dim: _up(max(abs(low), abs(high)))}, (0.0,) * self.dim, low, high)

    def add(self, a: Growth, b: Growth) -> Growth:
        rate = tuple(max(x, y) for x, y in zip(a.rate, b.rate, strict=True))
        one, other = a.one_sided, b.one_sided
        above = None if one is None or other is None else _sum(one, other)
        return Growth(_sum(a.powers, b.powers), rate, *_widened(a.low + b.low, a.high + b.high), above)

    def multiply(self, a: Growth, b: Growth) -> Growth:
        powers: dict[Powers, float] = {}
        for p, c in a.powers.items():
            for q, d in b.powers.items():
                key = tuple(i + j for i, j in zip(p, q, strict=True))
                powers[key] = _up(powers.get(key, 0.0) + _up(c * d))
        rate = tuple(_up(x + y) if x + y else 0.0 for x, y in zip(a.rate, b.rate, strict=True))
        return Growth(powers, rate, *_range_product(a, b))

    def power(self, a: Growth, exponent: sp.Rational) -> Growth:
        if exponent.is_negative:
            return self.power(self._inverse(a), -exponent)
        if not exponent.is_Integer:
            return self._root(a, float(exponent))
        result = a
        for _ in range(int(exponent) - 1):
            result = self.multiply(result, a)
        if exponent % 2 == 0:
            return Growth(result.powers, result.rate, max(result.low, 0.0), result.high)
        return result

    def _inverse(self, a: Growth) -> Growth:
        if a.low <= 0 <= a.high:
            raise NotEnclosed("a denominator that no bound keeps away from zero")
        return self._bounded(*_widened(*sorted((1 / a.low, 1 / a.high))))

    def _root(self, a: Growth, exponent: float) -> Growth:
        # x^p <= (1 + x)^ceil(p) for x >= 0
        if a.low < 0:
            raise NotEnclosed("a root of what no bound keeps non-negative")
        one = self.add(self._bounded(1.0, 1.0), a)
        powers = self.power(one, sp.Integer(math.ceil(exponent)))
        return Growth(powers.powers, powers.rate, *_widened(a.low**exponent, a.high**exponent))

    def apply(self, function: type, arguments: Sequence[Growth]) -> Growth:
        if function in _RANGES:
            return self._bounded(*_RANGES[function])
        (a,) = arguments
        if function is sp.exp:
            return self._exponential(a)
        if function is LogCosh:  # log 2 <= log(2 cosh x) <= log 2 + |x|
            two = self._bounded(*_widened(math.log(2), math.log(2)))
            sum_ = self.add(two, a)
            return Growth(sum_.powers, sum_.rate, two.low, _up(two.high + a.bound))
        if function is SechSpectrum:  # x / (1 - exp(-x s)) <= x + 1/2 for x >= 0, and s >= 2
            half, two = self._bounded(0.5, 0.5), self._bounded(2.0, 2.0)
            size = self.multiply(self.add(half, a), self.add(two, self.multiply(a, a)))
            scaled = self.multiply(self._bounded(*_widened(0.508, 0.508)), size)
            return Growth(scaled.powers, scaled.rate, 0.0)
        if function is sp.log and a.low > 0:  # |log x| <= |log low| + x
            sum_ = self.add(self._bounded(0.0, abs(math.log(a.low))), a)
            high = math.inf if a.high == math.inf else math.log(a.high)
            return Growth(sum_.powers, sum_.rate, *_widened(math.log(a.low), high))
        raise NotEnclosed(f"no bound at infinity for {function.__name__} of a variable")

    def _exponential(self, a: Growth) -> Growth:
        low = math.exp(a.low) if a.low > -700 else 0.0
        if a.high < 700:
            return self._bounded(*_widened(low, math.exp(a.high)))
        above = a.one_sided
        if above is None or any(sum(p) > 1 for p in above) or above.get((0,) * self.dim, 0.0) > 700:
            raise NotEnclosed("an exponential that grows faster than exp(c |x|)")
        rate = tuple(above.get(tuple(int(i == j) for i in range(self.dim)), 0.0) for j in range(self.dim))
        size = _up(math.exp(above.get((0,) * self.dim, 0.0)))
        return Growth({(0,) * self.dim: size}, rate, _down(low) if low else 0.0)


_RANGES: Mapping[type, tuple[float, float]] = {
    sp.sin: (-1.0, 1.0),
    sp.cos: (-1.0, 1.0),
    sp.tanh: (-1.0, 1.0),
    Phi: (0.0, 1.0),
    SoftmaxEntry: (0.0, 1.0),
    sp.Heaviside: (0.0, 1.0),
}


def box_radius(growth: Growth, tolerance: arb, least: float = 4.0) -> tuple[float, arb]:
    """(R, b): the integral of |f| against the standard normal law outside [-R, R]^n is at most b <= tolerance.

    Raises `NotEnclosed` when no R <= 64 will do.
    """
    radius = least
    while radius <= _LARGEST_RADIUS:
        bound = _tail(growth, radius)
        if bound < tolerance:
            return radius, bound
        radius += 0.5
    raise NotEnclosed(f"the integrand does not fall below {tolerance.str(3)} within {_LARGEST_RADIUS} deviations")


def _tail(growth: Growth, radius: float) -> arb:
    with ctx.workprec(64):
        total = arb(0)
        for powers, c in growth.powers.items():
            whole = [_moment(p, a, 0.0) for p, a in zip(powers, growth.rate, strict=True)]
            far = [_moment(p, a, radius) for p, a in zip(powers, growth.rate, strict=True)]
            for i, tail in enumerate(far):
                others = math.prod((w for j, w in enumerate(whole) if j != i), start=arb(1))
                total += arb(c) * tail * others
        return total.upper()


def _moment(power: int, rate: float, radius: float) -> arb:
    """At least E[|x|^p exp(a |x|) 1(|x| > R)] = 2 exp(a^2/2) int_{R-a} (u + a)^p phi(u) du."""
    a, start = arb(rate), arb(radius) - arb(rate)
    total = arb(0)
    for k in range(power + 1):
        order = arb(k + 1) / 2
        moment = (arb(2).log() * k / 2).exp() * order.gamma() / arb.pi().sqrt()  # E |u|^k
        if start > 0:
            moment *= (start * start / 2).gamma_upper(order, regularized=1) / 2
        total += math.comb(power, k) * a ** (power - k) * moment
    return 2 * (a * a / 2).exp() * total if rate or radius else _moment_of_all(power)


def _moment_of_all(power: int) -> arb:
    return (arb(2).log() * power / 2).exp() * (arb(power + 1) / 2).gamma() / arb.pi().sqrt()
