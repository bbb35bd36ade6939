"""Nodes and weights: Gauss-Hermite, trapezoid, Gauss-Legendre, tanh-sinh, scrambled Sobol."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import scipy.special
from numpy.typing import NDArray

__all__ = [
    "SCRAMBLINGS",
    "Array",
    "gauss_hermite",
    "legendre",
    "normal_density",
    "scrambled_normal",
    "sobol_normal",
    "tanh_sinh",
    "trapezoid",
]

Array: TypeAlias = NDArray[np.float64]
_LEGENDRE_ORDER = 32
_TANH_SINH_SPAN = 6.0  # the end nodes keep 2e-14 from the ends, so that rounding never puts one on them
_SOBOL_SEED = 20250603
_LEAST_SOBOL_DIM = 64
SCRAMBLINGS = 16


def normal_density(t: Array) -> Array:
    """exp(-t^2/2)/sqrt(2 pi)."""
    density: Array = np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    return density


def _read_only(*arrays: Array) -> tuple[Array, ...]:
    for a in arrays:
        a.setflags(write=False)
    return arrays


@functools.lru_cache(maxsize=64)
def gauss_hermite(n: int) -> tuple[Array, ...]:
    """t, w: (n,) with sum w f(t) = E f(z), z ~ N(0, 1), for polynomials of degree 2 n - 1."""
    # NumPy's nodes are the more accurate, but overflow from 372 on
    t, w = np.polynomial.hermite_e.hermegauss(n) if n <= 256 else scipy.special.roots_hermitenorm(n)
    t, w = (t - t[::-1]) / 2, (w + w[::-1]) / 2
    return _read_only(t, w / w.sum())


@functools.lru_cache(maxsize=64)
def trapezoid(n: int, reach: float) -> tuple[Array, ...]:
    """t, w: (n,) equally spaced on [-reach, reach], w the normal density times the spacing.

    Symmetric for even n. For odd n off the centre by a quarter, so that an even and an odd rule do not share
    their blind spots: both would count the same mass beyond a jump near zero.
    """
    spacing = 2 * reach / n
    t = (np.arange(n, dtype=np.float64) - (n - 1) / 2 + (n % 2) / 4) * spacing
    return _read_only(t, spacing * normal_density(t))


@functools.lru_cache(maxsize=64)
def legendre(n: int) -> tuple[Array, ...]:
    """u, 1 - u, w on [0, 1]: Gauss-Legendre with n nodes, of order 32 on equal parts when n > 64."""
    parts = 1 if n <= 2 * _LEGENDRE_ORDER else math.ceil(n / _LEGENDRE_ORDER)
    x, w = np.polynomial.legendre.leggauss(n if parts == 1 else _LEGENDRE_ORDER)
    u = ((np.arange(parts)[:, None] + (1 + x) / 2) / parts).ravel()
    return _read_only(u, u[::-1].copy(), np.tile(w / 2 / parts, parts))


@functools.lru_cache(maxsize=64)
def tanh_sinh(n: int) -> tuple[Array, ...]:
    """u, 1 - u, w on [0, 1]: the trapezoid rule in s, u = 1/(1 + exp(-pi sinh s)): any endpoint singularity."""
    spacing = _TANH_SINH_SPAN / (n - 1)
    s = (np.arange(n) - (n - 1) / 2) * spacing
    u = scipy.special.expit(math.pi * np.sinh(s))
    w = spacing * math.pi * np.cosh(s) * u * u[::-1]
    return _read_only(u, u[::-1].copy(), w / w.sum())


def sobol_normal(dim: int, log_points: int, replica: int, chunk: int) -> Iterator[Array]:
    """Chunks t: (dim, <= chunk) of an antithetic, scrambled Sobol sequence of 2^log_points normal points.

    Replicas are scrambled independently, each from a fixed seed.
    """
    from scipy.stats import qmc  # half a second, and few integrals need it

    generator = np.random.default_rng([_SOBOL_SEED, dim, replica])
    engine = qmc.Sobol(dim, scramble=True, rng=generator)
    half = 2 ** (log_points - 1)
    for start in range(0, half, chunk // 2):
        u = engine.random(min(chunk // 2, half - start))
        t = scipy.special.ndtri(np.clip(u, 1e-17, 1 - 1e-16)).T
        yield np.concatenate([t, -t], axis=1)


@functools.lru_cache(maxsize=4 * SCRAMBLINGS)
def scrambled_normal(dim: int, log_points: int, scrambling: int) -> Array:
    """t: (dim, 2^log_points) normal points by one scrambling of the Sobol sequence; `SCRAMBLINGS` of them go together.

    Up to 64 coordinates, the first ones are the same for any dim.
    """
    from scipy.stats import qmc  # half a second, and few integrals need it

    wide = max(_LEAST_SOBOL_DIM, 2 ** (dim - 1).bit_length())
    generator = np.random.default_rng([_SOBOL_SEED, wide, scrambling])
    u = qmc.Sobol(wide, scramble=True, rng=generator).random_base2(log_points)[:, :dim]
    (t,) = _read_only(np.ascontiguousarray(scipy.special.ndtri(np.clip(u, 1e-17, 1 - 1e-16)).T))
    return t
