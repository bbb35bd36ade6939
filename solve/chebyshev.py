"""Chebyshev series on [-1, 1]."""

from __future__ import annotations

import math

import numpy as np

from solve.nodes import Array

__all__ = ["coefficients", "polynomials"]


def polynomials(s: Array, n: int) -> Array:
    """T_0 .. T_(n-1) at s: (*B) -> (*B, n); outside [-1, 1] at the nearer end."""
    found: Array = np.cos(np.multiply.outer(np.arccos(np.clip(s, -1.0, 1.0)), np.arange(n)))
    return found


def coefficients(values: Array) -> Array:
    """Of the interpolant with these values at cos(pi i/n), i = 0..n, along the first axis."""
    n = len(values) - 1
    if n == 0:
        return values
    i = np.arange(n + 1)
    matrix = 2 / n * np.cos(math.pi * np.outer(i, i) / n)
    matrix[:, [0, -1]] /= 2
    matrix[[0, -1]] /= 2
    found: Array = np.tensordot(matrix, values, axes=(1, 0))
    return found
