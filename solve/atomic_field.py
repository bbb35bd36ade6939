"""The integrals of `solve.spectral_kernel` over atoms: near ones by sums, remote ones by a power series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solve.atom_clusters import Sources
from solve.nodes import Array
from solve.spectral_kernel import AbstractField, Kernel

__all__ = ["AtomicField"]


@dataclass(frozen=True)
class AtomicField(AbstractField):
    """Of what each group of points sees of the atoms."""

    sources: Sources

    def slopes(self, offset: Array, w: Array) -> tuple[Array, Array]:
        f, f2 = np.empty_like(offset), np.empty_like(offset)
        for rows, shift, mass in self.sources.chunks(offset.shape[1]):
            d = shift[:, None, :] + offset[rows, :, None]
            q = 1 / (d * d + w[rows, :, None])
            f[rows] = np.matmul(q, mass[:, :, None])[..., 0]
            q *= q
            f2[rows] = np.matmul(q, mass[:, :, None])[..., 0]
        if self.sources.remote.size:
            more = self._remote(offset, w)
            f += more.f
            f2 += more.f2
        return f, f2

    def kernel(self, offset: Array, w: Array) -> Kernel:
        out = Kernel(*(np.empty_like(offset) for _ in range(4)))
        for rows, shift, mass in self.sources.chunks(offset.shape[1]):
            m = mass[:, :, None]
            d = shift[:, None, :] + offset[rows, :, None]
            q = 1 / (d * d + w[rows, :, None])
            dq = d * q
            for to, value in zip(out, (q, q * q, dq * q, dq), strict=True):
                to[rows] = np.matmul(value, m)[..., 0]
        if not self.sources.remote.size:
            return out
        return Kernel(*(a + b for a, b in zip(out, self._remote(offset, w), strict=True)))

    def _remote(self, offset: Array, w: Array) -> Kernel:
        """Of zeta^k = a_k + i y b_k, y = Im zeta: F = -sum_k c_k b_k and its derivatives, by the recurrence in k."""
        s = self.sources
        r = s.radius[:, None]
        x, square = (offset - s.middle[:, None]) / r, w / r**2
        size = x * x + square
        a, a_before = x, np.ones_like(x)
        b, b_before = np.ones_like(x), np.zeros_like(x)
        slope, slope_before = np.zeros_like(x), np.zeros_like(x)  # of b in y^2
        g = s.remote[:, :1] + s.remote[:, 1:2] * x
        f = s.remote[:, 1:2] * b
        f2, d = np.zeros_like(x), np.zeros_like(x)
        for k in range(2, s.remote.shape[1]):
            c = s.remote[:, k : k + 1]
            d += (k * c) * b
            slope, slope_before = 2 * x * slope - size * slope_before - b_before, slope
            b, b_before = 2 * x * b - size * b_before, b
            a, a_before = 2 * x * a - size * a_before, a
            g += c * a
            f += c * b
            f2 += c * slope
        return Kernel(-f / r, f2 / r**3, d / (2 * r**2), g)

    def argument(self, offset: Array, w: Array) -> Array:
        out = np.empty_like(offset)
        for rows, shift, mass in self.sources.chunks(offset.shape[1]):
            d = shift[:, None, :] + offset[rows, :, None]
            out[rows] = np.matmul(np.arctan2(np.sqrt(w)[rows, :, None], d), mass[:, :, None])[..., 0]
        return out
