"""The regions of a phase diagram of two overlaps, at a small learning rate."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

from derive.mechanisms.transitions import CRITERIA, Landscape
from solve.lower import lower
from solve.result import Array

__all__ = ["Region", "regions"]

_ANGLES = 64  # on the arc from one corner to the other
_CHUNK = 4096  # points whose arcs are looked at together


class Region(enum.Enum):
    """What the landscape is like and where a small start leads; the value is the word of the JSON output."""

    SEMANTIC_ONLY = "semantic_only"
    SEMANTIC_ONLY_START_POSITIONAL = "semantic_only_start_positional"
    BISTABLE_START_SEMANTIC = "bistable_start_semantic"
    BISTABLE_SEMANTIC_GLOBAL_START_POSITIONAL = "bistable_semantic_global_start_positional"
    BISTABLE_POSITIONAL_GLOBAL = "bistable_positional_global"
    POSITIONAL_ONLY = "positional_only"
    RIM = "rim"


def regions(landscape: Landscape, parameters: Mapping[sp.Symbol, ArrayLike]) -> NDArray[np.object_]:
    """A `Region` at each point of the parameters, broadcast to a common shape; None where none of them fits.

    A corner of the disc is a minimum where R falls towards it and rises from it along the rim. A minimum on the
    open arc between the corners is `rim`. None: the risk rises towards a corner that would be a minimum, so that
    minima are inside the disc; or m and e mix at the start; or the loss is no polynomial.
    """
    symbols = tuple(parameters)
    shape = np.broadcast_shapes(*(np.shape(v) for v in parameters.values()))
    values = [np.broadcast_to(np.asarray(v, dtype=float), shape) for v in parameters.values()]
    criteria = {c.name: c.value for c in landscape.criteria}
    if set(criteria) != set(CRITERIA) or landscape.slopes is None:
        return np.full(shape, None, dtype=object)
    (turn, global_, lost, gained, *slopes), _ = lower([*(criteria[n] for n in CRITERIA), *landscape.slopes], symbols)(
        *values
    )
    semantic, positional = lost > 0, gained < 0
    starts = turn > 0
    found = np.full(shape, None, dtype=object)
    both, one, other = semantic & positional, semantic & ~positional, positional & ~semantic
    found[both & starts] = Region.BISTABLE_START_SEMANTIC
    found[both & ~starts & (global_ > 0)] = Region.BISTABLE_SEMANTIC_GLOBAL_START_POSITIONAL
    found[both & ~starts & ~(global_ > 0)] = Region.BISTABLE_POSITIONAL_GLOBAL
    found[one & starts] = Region.SEMANTIC_ONLY
    found[one & ~starts] = Region.SEMANTIC_ONLY_START_POSITIONAL
    found[other] = Region.POSITIONAL_ONLY
    found[_on_the_arc(landscape, symbols, values)] = Region.RIM
    found[(semantic & (slopes[0] > 0)) | (positional & (slopes[1] > 0))] = None
    return found


def _on_the_arc(landscape: Landscape, symbols: tuple[sp.Symbol, ...], values: list[Array]) -> NDArray[np.bool_]:
    """Whether R has a local minimum on the open arc (cos t, sin t), 0 < t < pi/2, at each point."""
    risk = lower([landscape.risk], [*landscape.overlaps, *symbols])
    angle = np.linspace(0, np.pi / 2, _ANGLES + 1)
    m, e = np.cos(angle), np.sin(angle)
    m[-1] = e[0] = 0.0
    flat = [v.reshape(-1, 1) for v in values]
    count = flat[0].size if flat else 1
    found = np.zeros(count, dtype=bool)
    for start in range(0, count, _CHUNK):
        part = slice(start, start + _CHUNK)
        (r,), _ = risk(m, e, *(v[part] for v in flat))
        inner = np.atleast_2d(r)
        found[part] = ((inner[:, 1:-1] < inner[:, :-2]) & (inner[:, 1:-1] < inner[:, 2:])).any(axis=1)
    return found.reshape(values[0].shape if values else ())
