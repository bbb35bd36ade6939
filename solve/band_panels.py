"""Panels of nodes on the bands of a free convolution, halved until the density is resolved on each."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solve.atom_clusters import Index
from solve.nodes import Array, legendre
from solve.spectral_kernel import AbstractBase
from solve.subordination import Curve, on_curve

__all__ = ["FULL", "INNER", "LEFT", "RIGHT", "Block", "Panels", "joined", "moved", "refine", "rule"]

INNER, LEFT, RIGHT, FULL = range(4)  # which of its ends are edges of a band
_TAIL = 1e-8  # of the coefficients of a panel: a rule exact to twice the degree errs by about its square
_QUARTER = 1e-6  # the same for the last quarter: two coefficients alone may be small by chance
_RIPPLE = 1e-13  # of the whole: ripples of many atoms in one panel look like a tail and are not squared
_NOISE = 1e-12
_NOTHING = 1e-16  # of the whole: where two bands touch, v(u) is lost in rounding over 1e-8, and so is its mass
_LEVELS = 80


@dataclass(frozen=True)
class Panels:
    """Intervals of u: low and high are offsets from the anchor; kind says which ends are edges of a band."""

    kind: Index
    anchor: Index
    low: Array
    high: Array

    def __getitem__(self, rows: Index | slice) -> Panels:
        return Panels(self.kind[rows], self.anchor[rows], self.low[rows], self.high[rows])

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class Rule:
    """Places y in (0, 1) with u = low + y (high - low), and 1 - y; weights, and what reads the coefficients.

    Arrays (n,), or (4, n) with one row for each kind of panel.
    """

    below: Array
    above: Array
    weight: Array
    scale: Array  # v dx/du times this is what is expanded
    coefficients: Array  # (n, n) or (4, n, n): from values to coefficients


@functools.lru_cache(maxsize=16)
def rule(n: int) -> Rule:
    """By kind: Gauss-Legendre in y, or in sqrt(y), sqrt(1 - y) from an edge; the trapezoid rule in acos(1 - 2 y)."""
    y, rest, weight = legendre(n)
    values = np.polynomial.legendre.legvander(y - rest, n - 1)
    polynomials = (values * weight[:, None]).T * (2 * np.arange(n) + 1)[:, None]
    theta = np.arange(1, n + 1) * (np.pi / (n + 1))
    sines = np.sin(np.arange(1, n + 1)[:, None] * theta) * (2 / (n + 1))
    near, far = y * y, rest * (1 + y)
    rows = {
        INNER: (y, rest, weight, np.ones(n), polynomials),
        LEFT: (near, far, 2 * y * weight, 1 / y, polynomials),
        RIGHT: (far[::-1], near[::-1], 2 * rest * weight, 1 / rest, polynomials),
        FULL: (
            np.sin(theta / 2) ** 2,
            np.cos(theta / 2) ** 2,
            np.sin(theta) * np.pi / (2 * (n + 1)),
            np.ones(n),
            sines,
        ),
    }
    return Rule(*(np.stack([rows[kind][i] for kind in range(4)]) for i in range(5)))


@dataclass(frozen=True)
class Block:
    """Panels with their points on the curve and the weights of mu_t, (panels, nodes)."""

    panels: Panels
    curve: Curve
    weight: Array

    def __getitem__(self, rows: Index) -> Block:
        return Block(self.panels[rows], self.curve[rows], self.weight[rows])


def _evaluate(base: AbstractBase, t: float, p: Panels) -> tuple[Block, NDArray[np.bool_]]:
    """The block, and on which of its panels the density is resolved."""
    r = rule(base.order)
    length = (p.high - p.low)[:, None]
    below, above = r.below[p.kind], r.above[p.kind]
    offset = np.where(below < above, p.low[:, None] + length * below, p.high[:, None] - length * above)
    curve = on_curve(base, t, p.anchor, offset)
    density = curve.v * curve.slope
    block = Block(p, curve, density * r.weight[p.kind] * length / (np.pi * t))
    c = np.abs(np.matmul(r.coefficients[p.kind], (density * r.scale[p.kind])[:, :, None])[..., 0])
    size = c.max(axis=1)
    tail = c[:, -2:].max(axis=1) / size
    good = (tail <= _TAIL) & (c[:, -(base.order // 4) :].max(axis=1) <= _QUARTER * size)
    x = base.anchors[p.anchor][:, None] + curve.x_offset
    share = (block.weight * (1 + x * x / (base.second_moment + t))).sum(axis=1)
    if base.ripples:
        good &= (tail * share <= _RIPPLE) | (tail <= _NOISE)
    good |= share * tail <= _NOTHING
    return block, good


def refine(base: AbstractBase, t: float, panels: Panels) -> list[Block]:
    """Blocks of resolved panels that cover the given ones."""
    done: list[Block] = []
    for _ in range(_LEVELS):
        block, resolved = _evaluate(base, t, panels)
        good, bad = np.flatnonzero(resolved), np.flatnonzero(~resolved)
        done.append(block[good])
        if not len(bad):
            return done
        panels = _split(base, panels[bad])
    raise ArithmeticError(
        f"The density of the free convolution at t = {t} is not resolved after {_LEVELS} halvings: "
        f"{len(panels)} panels are left."
    )


_SHARE = np.array([0.5, 0.25, 0.75, 0.5])  # in the middle of u, or of sqrt(u) from an edge
_PARTS = np.array([[INNER, INNER], [LEFT, INNER], [INNER, RIGHT], [LEFT, RIGHT]])


def _split(base: AbstractBase, p: Panels) -> Panels:
    """Two of each, the lower ones first; parts without an edge move to their own anchor."""
    middle = p.low + _SHARE[p.kind] * (p.high - p.low)
    kinds = _PARTS[p.kind]
    return moved(
        base,
        joined([Panels(kinds[:, 0], p.anchor, p.low, middle), Panels(kinds[:, 1], p.anchor, middle, p.high)]),
    )


def joined(parts: list[Panels]) -> Panels:
    """All of them, in order."""
    return Panels(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("kind", "anchor", "low", "high")))


def moved(base: AbstractBase, p: Panels) -> Panels:
    """The same intervals, those without an edge from the anchors nearest to their middles."""
    nearest = base.nearest(base.anchors[p.anchor] + (p.low + p.high) / 2)
    anchor = np.where(p.kind == INNER, nearest, p.anchor)
    shift = base.anchors[p.anchor] - base.anchors[anchor]
    return Panels(p.kind, anchor, p.low + shift, p.high + shift)
