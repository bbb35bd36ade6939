"""Many atoms near the middle of a spectrum, replaced by a few: exact to rounding under enough noise."""

from __future__ import annotations

import numpy as np

from solve.base_spectra import AtomicBase
from solve.nodes import Array

__all__ = ["condensed"]

_NODES = 16
_FEW = 4 * _NODES  # atoms that are not worth replacing
_PART = 0.5
_LEAST_SIZE = 1e-12  # of a Gauss rule's off-diagonal entries, relative to the radius


def condensed(base: AtomicBase, t: float) -> AtomicBase:
    """A base whose convolution with a semicircle of variance t is the same to 1e-14.

    Atoms within r of their mean, of weight p, matter by 1/((u - s)^2 + v^2) on the curve where its average is 1/t; so
    none of its points is nearer to their mean than sqrt(p t) - r. For r <= sqrt(p t)/2 a Gauss rule of n nodes for
    these atoms is off by at most (2 + sqrt 3)^(-2 n), 5e-19 for the n = 16 here  [Trefethen 2008, Theorem 4.5].
    """
    points, weights = base.atoms
    middle = float(weights @ points)
    distance = np.abs(points - middle)
    order = np.argsort(distance)
    inside = np.cumsum(weights[order])
    fits = np.flatnonzero(distance[order] <= _PART * np.sqrt(inside * t))
    count = 0 if len(fits) == 0 else int(fits[-1]) + 1
    if count <= _FEW:
        return base
    near, rest = order[:count], order[count:]
    nodes, parts = _gauss(points[near], weights[near])
    return AtomicBase(np.concatenate([nodes, points[rest]]), np.concatenate([parts, weights[rest]]))


def _gauss(points: Array, weights: Array) -> tuple[Array, Array]:
    """Nodes and weights that integrate polynomials of degree 2 n - 1 as the atoms do: Lanczos' method."""
    total = float(weights.sum())
    middle = float(weights @ points) / total
    x = points - middle
    radius = float(np.abs(x).max())
    basis = [np.sqrt(weights / total)]
    diagonal, beside = [], []
    for _ in range(_NODES):
        image = x * basis[-1]
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):
            for b in basis:
                image = image - (image @ b) * b
        size = float(np.linalg.norm(image))
        if size <= _LEAST_SIZE * radius or len(diagonal) == _NODES:
            break
        beside.append(size)
        basis.append(image / size)
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return values + middle, total * vectors[0] ** 2
