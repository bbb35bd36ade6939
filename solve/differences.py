"""What differences tell: Jacobians, the noise of a function; and linear systems that may be singular."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solve.domain import AbstractRegion
from solve.result import Array

__all__ = ["NOISE_WAY", "jacobian", "noise", "solve_linear"]

_STEP = float(np.finfo(float).eps) ** (1 / 3)  # balances truncation h^2 against rounding eps/h
NOISE_WAY = 4e-6  # relative length of the way along which noise is read off
# steps in h, their weights, and the weight of the centre: central, forward, backward difference
_STENCILS = (((1, -1), (0.5, -0.5), 0.0), ((1, 2), (2.0, -0.5), -1.5), ((-1, -2), (-2.0, 0.5), 1.5))


def jacobian(
    g: Callable[[Array], Array],
    x: Array,
    region: AbstractRegion | None = None,
    value: Array | None = None,
    typical: float = 1e-3,
) -> Array:
    """dg_i/dx_j: (n, n, *B) of g: (n, *B) -> (n, *B) at x: (n, *B), by 2n calls; `value` is g(x) if known.

    The step is 6e-6 max(|x_j|, typical); next to an edge of the region the difference is one-sided.
    """
    h = _STEP * np.maximum(np.abs(x), typical)
    columns = []
    for j in range(x.shape[0]):
        kind = _stencil(x, j, h[j], region)
        steps, weights, centre = (np.array([s[k] for s in _STENCILS])[kind] for k in range(3))
        total = np.zeros(x.shape)
        for k in range(2):
            moved = x.copy()
            moved[j] += steps[..., k] * h[j]
            total = total + weights[..., k] * np.asarray(g(moved), dtype=float)
        if np.any(centre):
            value = np.asarray(g(x), dtype=float) if value is None else value
            total = total + centre * value
        columns.append(total / h[j])
    return np.stack(columns, axis=1)


def _stencil(x: Array, j: int, h: Array, region: AbstractRegion | None) -> NDArray[np.int_]:
    """Which difference along x_j stays inside: (*B)."""
    if region is None:
        return np.zeros(x.shape[1:], dtype=int)

    def fits(steps: tuple[int, int]) -> NDArray[np.bool_]:
        inside = np.ones(x.shape[1:], dtype=bool)
        for k in steps:
            moved = x.copy()
            moved[j] += k * h
            inside = inside & region.contains(moved)
        return inside

    central, forward, backward = (fits(s[0]) for s in _STENCILS)
    return np.where(central, 0, np.where(forward, 1, np.where(backward, 2, 0)))


def noise(g: Callable[[Array], Array], x: Array, value: Array, way: float = NOISE_WAY) -> tuple[Array, Array]:
    """The noise of each g_i at x: (n, *B), and g at x (1 + way): third differences see nothing else.

    `value` is g(x); four more calls. [More and Wild, SIAM J. Sci. Comput. 33 (2011) 1292]
    """
    with np.errstate(all="ignore"):
        others = [np.asarray(g(x * (1 + way * k / 4)), dtype=float) for k in (1, 2, 3, 4)]
        third = np.diff(np.array([value, *others]), n=3, axis=0)
    level: Array = np.max(np.abs(third), axis=0) / np.sqrt(20)
    return level, others[-1]


def solve_linear(matrix: Array, rhs: Array) -> Array:
    """The shortest least-squares solution of matrix x = rhs; columns of zeros get 0; nan where not finite."""
    if not (np.isfinite(matrix).all() and np.isfinite(rhs).all()):
        return np.full(matrix.shape[1], np.nan)
    length = np.linalg.norm(matrix, axis=0)
    scale = np.where(length > 0, length, 1.0)
    solution: Array = np.linalg.lstsq(matrix / scale, rhs, rcond=1e-13)[0] / scale
    return solution
