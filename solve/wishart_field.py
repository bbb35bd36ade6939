"""The integrals of `solve.spectral_kernel` over Marchenko and Pastur's law, in closed form without cancellation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solve.nodes import Array
from solve.spectral_kernel import AbstractField, Kernel

__all__ = ["WishartField"]


class _Omega(NamedTuple):
    """|omega|^2 = y as 1 + excess, sinh^2 of log |omega|, |b + omega|^2, and the slope's denominator."""

    y: Array
    excess: Array
    sinh2: Array
    modulus: Array
    root: Array


@dataclass(frozen=True)
class WishartField(AbstractField):
    """Near given anchors, of the law of `solve.base_spectra.WishartBase`, in its notation. Arrays (groups, 1)."""

    b: float
    share: float  # of the continuous part
    zero: Array  # anchor less 0, less the lower end, less the upper end
    low: Array
    high: Array

    def _omega(self, offset: Array, w: Array) -> _Omega:
        # with X = z - b - 1/b: 4 S^2 + (4 - X^2 - w) S - w = 0, S = sinh^2 log |omega|
        p = self.low + offset
        excess = p * (self.high + offset) + w
        root = np.sqrt(excess * excess + 16 * w)
        sinh2 = np.where(excess > 0, (excess + root) / 8, 2 * w / np.maximum(root - excess, 1e-300))
        s = np.sqrt(sinh2)
        more = 2 * s * (s + np.sqrt(1 + sinh2))
        y = 1 + more
        # |b + omega|^2 = ((y - b)^2 + y (1 - b)^2 + 2 b p y)/(1 + y), p = u less the lower end
        b = self.b
        modulus = ((more + (1 - b)) ** 2 + y * ((1 - b) ** 2 + 2 * b * p)) / (1 + y)
        return _Omega(y, more, sinh2, modulus, root)

    def _continuous(self, offset: Array, w: Array) -> tuple[_Omega, Array, Array, Array]:
        """omega and F, F2, D without the atom: phi = 1/F = (1 - 1/y) |b + omega|^2 differentiated in w and u."""
        at = self._omega(offset, w)
        p, b, y = self.low + offset, self.b, at.y
        x = p - 2
        phi = at.excess / y * at.modulus
        by_y = at.modulus / y**2 + at.excess / y * (1 + 2 * b * x / (1 + y) ** 2)
        y_by_s = y / np.sqrt(at.sinh2 * (1 + at.sinh2))
        by_w = by_y * y_by_s * (1 + at.sinh2) / at.root
        by_u = by_y * y_by_s * 2 * x * at.sinh2 / at.root + 2 * b * at.excess / (1 + y)
        f = 1 / phi
        return at, f, by_w * f * f, 0.5 * by_u * f * f

    def slopes(self, offset: Array, w: Array) -> tuple[Array, Array]:
        _, f, f2, _ = self._continuous(offset, w)
        if self.share == 1:
            return f, f2
        r = 1 / ((self.zero + offset) ** 2 + w)
        return self.share * f + (1 - self.share) * r, self.share * f2 + (1 - self.share) * r * r

    def kernel(self, offset: Array, w: Array) -> Kernel:
        at, f, f2, d = self._continuous(offset, w)
        p, b = self.low + offset, self.b
        g = ((b - 1) + (p * at.y - at.excess) / (1 + at.y)) / at.modulus
        if self.share == 1:
            return Kernel(f, f2, d, g)
        u, c, m = self.zero + offset, self.share, 1 - self.share
        r = 1 / (u * u + w)
        return Kernel(c * f + m * r, c * f2 + m * r * r, c * d + m * u * r * r, c * g + m * u * r)

    def argument(self, offset: Array, w: Array) -> Array:
        # integral log(z - s) = (1 - k) log(b + omega) + k log(omega) + sqrt(k)/omega
        at = self._omega(offset, w)
        b, k = self.b, 1 / self.b**2
        re = (self.low + offset - 2) * at.y / (1 + at.y)
        im = np.sqrt(w) * at.y / at.excess
        found = (1 - k) * np.arctan2(im, b + re) + k * np.arctan2(im, re) - im / (b * at.y)
        atom = np.arctan2(np.sqrt(w), self.zero + offset)
        total: Array = self.share * found + (1 - self.share) * atom
        return total
