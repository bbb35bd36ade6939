"""Eigenvalues of trained matrices against a predicted law: Kolmogorov-Smirnov distances, the mass at zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ZERO", "rank_fraction", "snapped", "spectral_distance"]

Array: TypeAlias = NDArray[np.float64]

ZERO = 1e-5
"""An eigenvalue below this part of the largest is counted as zero: gradient training only comes near to it."""


def snapped(eigenvalues: Array, zero: float = ZERO) -> Array:
    """The eigenvalues, those within `zero` of 0 in units of the largest size set to 0."""
    size = float(np.abs(eigenvalues).max(initial=0.0))
    return np.where(np.abs(eigenvalues) <= zero * size, 0.0, eigenvalues)


def rank_fraction(eigenvalues: Array, zero: float = ZERO) -> float:
    """The part of the eigenvalues that is not counted as zero."""
    return float(np.count_nonzero(snapped(eigenvalues, zero)) / max(1, eigenvalues.size))


def spectral_distance(
    eigenvalues: Array, cdf: Callable[[Array], Array], *, atoms: tuple[float, ...] = (0.0,), zero: float = ZERO
) -> float:
    """D = sup_x |F_n(x) - F(x)| of eigenvalues (n,) and a distribution function F, right-continuous with `atoms`.

    The supremum lies at an eigenvalue or an atom, or just before one. Eigenvalues of one matrix repel each other: D is
    O(log d/d) for the right law, far below the 1/sqrt(n) of independent numbers.
    """
    values = np.sort(snapped(np.asarray(eigenvalues, dtype=np.float64).ravel(), zero))
    if not values.size or not np.isfinite(values).all():
        raise ValueError(f"spectral_distance: finite eigenvalues are needed, got {values.size} of them.")
    at = np.unique(np.concatenate([values, np.asarray(atoms, dtype=np.float64)]))
    found = 0.0
    for places in (at, np.nextafter(at, -np.inf)):
        own = np.searchsorted(values, places, side="right") / values.size
        found = max(found, float(np.abs(own - np.asarray(cdf(places), dtype=np.float64)).max()))
    return found
