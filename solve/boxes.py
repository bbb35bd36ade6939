"""First-order bounds of an integrand on many complex boxes at once.

In a box the variables are x_j = c_j + d_j with |Re d_j| <= radius_j and |Im d_j| <= height_j. Polynomials stay
affine in d, with a remainder, which keeps the distance to a pole of tanh(x_1 x_2) sharp; functions of them are
rectangles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import sympy as sp
from flint import arb
from numpy.typing import NDArray

from derive.functions import SoftmaxEntry
from solve import rectangles
from solve.rectangles import WIDER, Rectangle
from solve.straightline import Arithmetic, NotEnclosed

__all__ = ["Affine", "BoxBounds"]

Array: TypeAlias = NDArray[np.float64]
_ROUNDING = 1e-13  # of the size of the parts; float64 loses 1e-16


@dataclass(frozen=True, slots=True)
class Affine:
    """f = centre + slope . d + r with |Re r| <= real, |Im r| <= imaginary; slope (dim, n), the others (n,).

    `linear_real`, `linear_imaginary`: bounds of |Re slope . d| and |Im slope . d|.
    """

    centre: Array
    slope: Array
    real: Array
    imaginary: Array
    linear_real: Array
    linear_imaginary: Array

    @property
    def rectangle(self) -> Rectangle:
        radius = (self.linear_real + self.real) * WIDER + _ROUNDING * np.abs(self.centre)
        height = (self.linear_imaginary + self.imaginary) * WIDER
        return Rectangle(self.centre - radius, self.centre + radius, height)

    @property
    def size(self) -> Array:
        return np.abs(self.centre) + self.linear_real

    @property
    def height(self) -> Array:
        return self.linear_imaginary + self.imaginary


Value: TypeAlias = Affine | Rectangle


@dataclass(frozen=True)
class BoxBounds(Arithmetic[Value]):
    """Bounds on n boxes; radius and height have the shape (dim, n)."""

    radius: Array
    height: Array

    def variable(self, i: int, centre: Array) -> Affine:
        slope = np.zeros_like(self.radius)
        slope[i] = 1
        return self._affine(centre, slope, _ROUNDING * np.abs(centre), np.zeros_like(centre))

    def constant(self, value: arb) -> Affine:
        centre, radius = float(value.mid()), float(value.rad()) * WIDER + _ROUNDING * abs(float(value.mid()))
        none = np.zeros(1)  # one entry for all boxes
        return Affine(np.array([centre]), np.zeros((len(self.radius), 1)), np.array([radius]), none, none, none)

    def _affine(self, centre: Array, slope: Array, real: Array, imaginary: Array) -> Affine:
        size = np.abs(slope)
        linear = (size * self.radius).sum(0), (size * self.height).sum(0)
        return Affine(centre, slope, real * WIDER, imaginary * WIDER, *linear)

    def add(self, a: Value, b: Value) -> Value:
        if not (isinstance(a, Affine) and isinstance(b, Affine)):
            return rectangles.add(_rectangle(a), _rectangle(b))
        real = a.real + b.real + _ROUNDING * (a.size + b.size)
        imaginary = a.imaginary + b.imaginary + _ROUNDING * (a.linear_imaginary + b.linear_imaginary)
        return self._affine(a.centre + b.centre, a.slope + b.slope, real, imaginary)

    def multiply(self, a: Value, b: Value) -> Value:
        if not (isinstance(a, Affine) and isinstance(b, Affine)):
            return rectangles.multiply(_rectangle(a), _rectangle(b))
        if _is_constant(a) or _is_constant(b):
            return self._scaled(a, b) if _is_constant(b) else self._scaled(b, a)
        if a is b:
            # Re (slope . d)^2 lies between -Im^2 and Re^2
            up, down = a.linear_real**2, a.linear_imaginary**2
            bend = (up + down) / 2, 2 * a.linear_real * a.linear_imaginary
            return self._product(a, b, bend, (up - down) / 2)
        re = a.linear_real * b.linear_real + a.linear_imaginary * b.linear_imaginary
        im = a.linear_real * b.linear_imaginary + a.linear_imaginary * b.linear_real
        return self._product(a, b, (re, im), np.zeros_like(re))

    def _scaled(self, a: Affine, factor: Affine) -> Affine:
        c, size = factor.centre, np.abs(factor.centre)
        loss = factor.real + _ROUNDING * size  # of the constant, and of the products
        real, imaginary = size * a.real + loss * (a.size + a.real), size * a.imaginary + loss * a.height
        linear = size * a.linear_real, size * a.linear_imaginary
        return Affine(c * a.centre, c * a.slope, real * WIDER, imaginary * WIDER, *(v * WIDER for v in linear))

    def _product(self, a: Affine, b: Affine, bend: tuple[Array, Array], shift: Array) -> Affine:
        """(c + l + r)(c' + l' + r') = c c' + (c l' + c' l) + l l' + r (c' + l' + r') + r' (c + l).

        l l' is within `bend` of `shift`.
        """
        size = b.size + b.real
        re = bend[0] + a.real * size + a.imaginary * b.height + b.real * a.size
        re = re + b.imaginary * a.linear_imaginary + _ROUNDING * a.size * b.size
        im = bend[1] + a.real * b.height + a.imaginary * size + b.real * a.linear_imaginary
        im = im + b.imaginary * a.size
        im = im + _ROUNDING * (a.size * b.linear_imaginary + b.size * a.linear_imaginary)
        return self._affine(a.centre * b.centre + shift, a.centre * b.slope + b.centre * a.slope, re, im)

    def power(self, a: Value, exponent: sp.Rational) -> Value:
        if isinstance(a, Rectangle) or not (exponent.is_Integer and exponent.is_positive):
            return rectangles.power(_rectangle(a), exponent)
        n = int(exponent)
        if n == 1:
            return a
        half = self.power(a, sp.Integer(n // 2))
        square = self.multiply(half, half)
        return self.multiply(square, a) if n % 2 else square

    def apply(self, function: type, arguments: Sequence[Value]) -> Value:
        if function is SoftmaxEntry:
            minus_own = self.multiply(self.constant(arb(-1)), arguments[0])
            differences = [_rectangle(self.add(b, minus_own)) for b in arguments[1:]]
            return rectangles.softmax_entry(_rectangle(minus_own), differences)
        if function not in rectangles.FUNCTIONS:
            raise NotEnclosed(f"no bound on complex boxes for {function.__name__} of a variable")
        return rectangles.FUNCTIONS[function](_rectangle(arguments[0]))


def _is_constant(a: Affine) -> bool:
    return a.slope.shape[1] == 1 and not a.slope.any()


def _rectangle(a: Value) -> Rectangle:
    return a.rectangle if isinstance(a, Affine) else a
