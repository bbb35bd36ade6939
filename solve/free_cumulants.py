"""Moments and free cumulants: sums over non-crossing partitions."""

from __future__ import annotations

import numpy as np

from solve.nodes import Array

__all__ = ["convolved_moments", "cumulants_of", "moments_of"]


def _of_order(moments: Array, s: int, n: int) -> float:
    """sum over i_1 + .. + i_s = n of m_{i_1} .. m_{i_s}."""
    power = np.zeros(n + 1)
    power[0] = 1.0
    for _ in range(s):
        power = np.convolve(power, moments[: n + 1])[: n + 1]
    return float(power[n])


def cumulants_of(moments: Array) -> Array:
    """k_0 = 0, k_1 .. k_n from m_0 = 1, m_1 .. m_n: m_n = sum_s k_s [sum over i_1 + .. + i_s = n - s of products]."""
    k = np.zeros(len(moments))
    for n in range(1, len(moments)):
        k[n] = moments[n] - sum(k[s] * _of_order(moments, s, n - s) for s in range(1, n))
    return k


def moments_of(cumulants: Array) -> Array:
    """The inverse of `cumulants_of`."""
    m = np.zeros(len(cumulants))
    m[0] = 1.0
    for n in range(1, len(cumulants)):
        m[n] = sum(cumulants[s] * _of_order(m, s, n - s) for s in range(1, n + 1))
    return m


def convolved_moments(moments: Array, t: float) -> Array:
    """Moments after free convolution with a semicircle of variance t."""
    k = cumulants_of(moments)
    if len(k) > 2:
        k[2] += t
    return moments_of(k)
