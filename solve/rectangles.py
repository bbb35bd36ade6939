"""Functions on many complex rectangles [low, high] + i [-height, height] at once, with rigorous bounds.

The functions are real on the real axis, so that the image of a symmetric rectangle is symmetric. Every result is
widened by 1e-12 relatively: NumPy's exp, sin, .. are exact to a few units in the last place (1e-16). What is not
bounded, at a pole or on a cut, has an infinite or undefined (nan) end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.functions import LogCosh, Phi

__all__ = ["FUNCTIONS", "Rectangle", "add", "inverse", "multiply", "power", "softmax_entry"]

Array: TypeAlias = NDArray[np.float64]
WIDER = 1 + 1e-12
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Re z in [low, high], |Im z| <= height; arrays of one shape."""

    low: Array
    high: Array
    height: Array

    @property
    def largest(self) -> Array:
        """sup |Re z|."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def least(self) -> Array:
        """inf |Re z|."""
        across = (self.low <= 0) & (self.high >= 0)
        return np.where(across, 0.0, np.minimum(np.abs(self.low), np.abs(self.high)))

    @property
    def modulus(self) -> Array:
        """sup |z|, infinite where it is not known."""
        size = WIDER * np.hypot(self.largest, self.height)
        return np.where(np.isnan(size), np.inf, size)


def _wide(low: Array, high: Array, height: Array) -> Rectangle:
    # an end that is exactly zero stays zero: it is a sign, not a rounded number
    return Rectangle(low - np.abs(low) * 1e-12, high + np.abs(high) * 1e-12, height * WIDER)


def _times(a: Array, b: Array) -> Array:
    return np.where((a == 0) | (b == 0), 0.0, a * b)


def add(a: Rectangle, b: Rectangle) -> Rectangle:
    """a + b."""
    low, high = a.low + b.low, a.high + b.high
    # ends of different sign cancel: widen by the size of the parts
    slack = 1e-15 * (np.abs(a.low) + np.abs(b.low)), 1e-15 * (np.abs(a.high) + np.abs(b.high))
    return Rectangle(low - slack[0], high + slack[1], (a.height + b.height) * WIDER)


def multiply(a: Rectangle, b: Rectangle) -> Rectangle:
    """a b; b is a for a square."""
    if a is b:
        low, high = a.least**2 - a.height**2, a.largest**2
        return _wide(low, high, 2 * _times(a.largest, a.height))
    ends = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    both = _times(a.height, b.height)
    low, high = np.minimum.reduce(ends) - both, np.maximum.reduce(ends) + both
    return _wide(low, high, _times(a.largest, b.height) + _times(b.largest, a.height))


def inverse(z: Rectangle) -> Rectangle:
    """1 / z where Re z keeps its sign: Re 1/z is largest on the real axis and least at a corner."""
    positive = z.low > 0
    a, b = np.where(positive, z.low, -z.high), np.where(positive, z.high, -z.low)
    a, y = np.where(a > 0, a, np.nan), z.height
    corner = np.fmin(a / (a**2 + y**2), b / (b**2 + y**2))
    least = np.where(np.isfinite(b) & np.isfinite(y), corner, np.where(y == 0, 0.0, -1 / a))
    height = np.where(y > 0, np.fmin(y / a**2, 1 / a), 0.0 * a)
    return _wide(np.where(positive, least, -1 / a), np.where(positive, 1 / a, -least), height)


def power(z: Rectangle, exponent: sp.Rational) -> Rectangle:
    """z^p; roots by exp(p log z), and on the real axis down to 0."""
    if exponent < 0:
        return inverse(power(z, -exponent))
    if not exponent.is_Integer:
        return _root(z, float(exponent))
    n = int(exponent)
    if n == 1:
        return z
    half = power(z, sp.Integer(n // 2))
    square = multiply(half, half)
    return multiply(square, z) if n % 2 else square


def _root(z: Rectangle, exponent: float) -> Rectangle:
    real = z.height == 0
    ends = _wide(np.maximum(z.low, 0) ** exponent, np.maximum(z.high, 0) ** exponent, z.height)
    logarithm = _log(z)
    general = _exp(Rectangle(exponent * logarithm.low, exponent * logarithm.high, exponent * logarithm.height * WIDER))
    return _choose(real, ends, general)


def _choose(condition: NDArray[np.bool_], a: Rectangle, b: Rectangle) -> Rectangle:
    return Rectangle(
        np.where(condition, a.low, b.low),
        np.where(condition, a.high, b.high),
        np.where(condition, a.height, b.height),
    )


def _exp(z: Rectangle) -> Rectangle:
    y = np.minimum(z.height, np.pi)
    small, large, cosine = np.maximum(np.exp(z.low) - _TINY, 0), np.exp(z.high) + _TINY, np.cos(y)
    sine = np.where(y < np.pi / 2, np.sin(y), 1.0)
    return _wide(np.where(cosine > 0, small, large) * cosine, large, _times(large, sine))


def _log(z: Rectangle) -> Rectangle:
    a = np.where(z.low > 0, z.low, np.nan)
    low, high = np.log(a), np.log(np.hypot(z.high, z.height))
    return Rectangle(
        low - 1e-12 * (1 + np.abs(low)),
        high + 1e-12 * (1 + np.abs(high)),
        np.where(z.height > 0, np.arctan(z.height / a) * WIDER, 0.0 * a),
    )


def _tanh(z: Rectangle) -> Rectangle:
    """Exact where |Im z| <= pi/4, else a bound of the modulus.

    Re tanh = sinh 2x / (cosh 2x + cos 2y) grows with x and in modulus with |y| while cos 2y >= 0;
    |tanh|^2 = (cosh 2x - cos 2y) / (cosh 2x + cos 2y) falls with |x| while cos 2y <= 0, and |tanh| <= coth |x|.
    """
    y, x = np.minimum(z.height, np.pi / 2), np.minimum(z.least, 100.0)
    cosine, sine = np.cos(2 * y), np.sin(2 * y)
    low, high = np.clip(z.low, -100, 100), np.clip(z.high, -100, 100)
    bent = [np.sinh(2 * e) / np.maximum(np.cosh(2 * e) + cosine, _TINY) for e in (low, high)]
    gap = np.cosh(2 * x) + cosine
    gap = np.where(gap > 1e-9, gap, np.nan)
    steady = _wide(np.where(low < 0, bent[0], np.tanh(low)), np.where(high > 0, bent[1], np.tanh(high)), sine / gap)
    size = np.where(z.height < np.pi / 2, np.sqrt((np.cosh(2 * x) - cosine) / gap), 1 / np.tanh(x))
    return _choose(z.height <= np.pi / 4, steady, _wide(-size, size, size))


def _log_cosh(z: Rectangle) -> Rectangle:
    """|2 cosh z|^2 = 2 cosh 2x + 2 cos 2y;  arg cosh z = atan(tanh x tan y), at most |y| for |y| < pi/2."""
    x, most = np.minimum(z.least, 300.0), z.largest
    square = 2 * np.cosh(2 * x) + 2 * np.cos(2 * np.minimum(z.height, np.pi / 2))
    square = np.where((z.height < np.pi / 2) & (square > 1e-9), square, np.nan)
    low = np.log(square) / 2
    low = low - 1e-12 * (1 + np.abs(low))
    return _wide(low, most + np.log1p(np.exp(-2 * most)), z.height)


def _wave(z: Rectangle) -> Rectangle:
    """sin and cos: |sin z| <= cosh y, |Im sin z| <= sinh |y|."""
    return _wide(-np.cosh(z.height), np.cosh(z.height), np.sinh(z.height))


def _normal_distribution(z: Rectangle) -> Rectangle:
    """Phi(x + iy) = Phi(x) + i int_0^y phi(x + it) dt with |phi(x + it)| = phi(x) exp(t^2/2)."""
    away = z.height * np.exp((z.height**2 - z.least**2) / 2)
    return _wide(-away, 1 + away, away)


def _step(z: Rectangle) -> Rectangle:
    crossing = (z.low <= 0) & (z.high >= 0)
    unknown = np.where(crossing & (z.height > 0), np.inf, 0.0)
    return Rectangle(np.where(z.low > 0, 1.0, 0.0), np.where(z.high < 0, 0.0, 1.0), unknown)


def softmax_entry(own: Rectangle, differences: list[Rectangle]) -> Rectangle:
    """1 / (1 + sum_j exp(d_j)), d_j = b_j - own: on the real axis in [0, 1]; `own` gives the shape."""
    one = np.ones_like(own.low)
    total = Rectangle(one, one, 0 * one)
    for difference in differences:
        total = add(total, _exp(difference))
    result = inverse(total)
    inside = Rectangle(np.clip(result.low, 0, 1), np.clip(result.high, 0, 1), result.height)
    return _choose(result.height == 0, inside, result)


FUNCTIONS: Mapping[type, Callable[[Rectangle], Rectangle]] = {
    sp.exp: _exp,
    sp.log: _log,
    sp.tanh: _tanh,
    sp.sin: _wave,
    sp.cos: _wave,
    LogCosh: _log_cosh,
    Phi: _normal_distribution,
    sp.Heaviside: _step,
}
