"""Symmetric matrices of indices h_ab of T tokens, and the coordinates of which a function of them depends.

h = sqrt(2) sum_j v_j E_j with orthonormal symmetric E_j, so that independent coordinates of variance q mean
Var h_ab = (1 + delta_ab) q, as for h = (x_a^T S x_b - delta_ab Tr S)/sqrt d with tr S^2 = q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mpmath
import sympy as sp

from derive.functions import elementary
from derive.polynomial import expand

__all__ = ["Indices", "adapted_basis", "invariant_directions"]

_DIGITS = 40
_ZERO = mpmath.mpf(10) ** -30
_PLACES = 3  # points beyond as many as there are entries


@dataclass(frozen=True)
class Indices:
    """The symmetric matrix h of `tokens` rows, of symbols `name`11, `name`12, .."""

    tokens: int
    name: str

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The places (a, b), a <= b, of the entries."""
        return tuple((a, b) for a in range(self.tokens) for b in range(a, self.tokens))

    @cached_property
    def entries(self) -> tuple[sp.Symbol, ...]:
        """The symbols on and above the diagonal, row by row."""
        comma = "," if self.tokens > 9 else ""
        return tuple(sp.Symbol(f"{self.name}{a + 1}{comma}{b + 1}", real=True) for a, b in self.pairs)

    @cached_property
    def matrix(self) -> sp.ImmutableDenseMatrix:
        """h: (tokens, tokens)."""
        at = dict(zip(self.pairs, self.entries, strict=True))
        n = self.tokens
        return sp.ImmutableDenseMatrix(n, n, lambda a, b: at[min(a, b), max(a, b)])

    @cached_property
    def scales(self) -> tuple[sp.Expr, ...]:
        """h_ab/v_ab: sqrt(2) on the diagonal, 1 beside it."""
        return tuple(sp.sqrt(2) if a == b else sp.S.One for a, b in self.pairs)

    def from_coordinates(self, basis: sp.MatrixBase, v: Sequence[sp.Expr]) -> dict[sp.Symbol, sp.Expr]:
        """The entries for coordinates v along the rows of an orthonormal basis: (k, entries)."""
        along = basis.T * sp.Matrix(list(v))
        return {s: c * along[i] for i, (s, c) in enumerate(zip(self.entries, self.scales, strict=True))}


def invariant_directions(functions: Sequence[sp.Expr], symbols: Sequence[sp.Symbol]) -> list[sp.Matrix]:
    """A basis, of rational vectors, of the directions along which none of the functions changes, found and confirmed.

    Gradients at as many random points as there are symbols, and some more, to forty digits: their common null space.
    """
    slopes = [elementary(f.diff(s)) for f in functions for s in symbols]
    others = sorted(set().union(*(f.free_symbols for f in functions)) - set(symbols), key=str)
    evaluate = sp.lambdify([*symbols, *others], slopes, [{"Heaviside": _step}, "mpmath"], cse=True)
    n = len(symbols)
    with mpmath.workdps(_DIGITS):
        rows = [r for k in range(n + _PLACES) for r in _gradients(evaluate, n, len(others), k)]
        return _null_space(mpmath.matrix(rows))


def _step(x: mpmath.mpf, _at_zero: mpmath.mpf | None = None) -> mpmath.mpf:
    return (1 + mpmath.sign(x)) / 2


def _gradients(evaluate: Callable[..., Any], n: int, others: int, k: int) -> list[list[mpmath.mpf]]:
    point = [mpmath.sin(1 + 3 * k + 7 * i * (k + 1)) for i in range(n + others)]
    flat = [mpmath.mpf(v) for v in evaluate(*point)]
    return [flat[i : i + n] for i in range(0, len(flat), n)]


def _null_space(rows: mpmath.matrix) -> list[sp.Matrix]:
    """By Gauss elimination with full pivots; entries that are no small rationals leave their direction out."""
    n = rows.cols
    work = [[rows[i, j] for j in range(n)] for i in range(rows.rows)]
    pivots: list[int] = []
    for r in range(min(len(work), n)):
        best = max(((abs(work[i][j]), i, j) for i in range(r, len(work)) for j in range(n)), key=lambda t: t[0])
        if best[0] < _ZERO:
            break
        _, i, j = best
        work[r], work[i] = work[i], work[r]
        work[r] = [x / work[r][j] for x in work[r]]
        for other in range(len(work)):
            if other != r and work[other][j]:
                factor = work[other][j]
                work[other] = [x - factor * y for x, y in zip(work[other], work[r], strict=True)]
        pivots.append(j)
    found = []
    for free in (j for j in range(n) if j not in pivots):
        vector = [sp.S.Zero] * n
        vector[free] = sp.S.One
        for r, j in enumerate(pivots):
            vector[j] = sp.nsimplify(sp.Float(str(-work[r][free]), 30), rational=True, tolerance=sp.Float("1e-25"))
        if all(max(abs(int(c.p)), int(c.q)) < 1000 for c in vector):
            found.append(sp.Matrix(vector))
    return found


def adapted_basis(indices: Indices, invariant: Sequence[sp.Matrix]) -> tuple[sp.ImmutableDenseMatrix, int]:
    """An orthonormal basis of the coordinates, its first k rows orthogonal to the invariant directions; and k.

    invariant: directions of the entries h; of coordinates v = h/scale.
    """
    n = len(indices.entries)
    scaled = [sp.Matrix([d[i] / s for i, s in enumerate(indices.scales)]) for d in invariant]
    kept: list[sp.Matrix] = []
    for vector in [*scaled, *(sp.eye(n).col(i) for i in range(n))]:
        rest = vector
        for unit in kept:
            rest = (rest - unit * (unit.T * vector)[0]).applyfunc(expand)
        size = expand((rest.T * rest)[0])
        if size != 0:
            kept.append((rest / sp.sqrt(size)).applyfunc(sp.radsimp))
    split = len(scaled)
    rows = [v.T for v in (*kept[split:], *kept[:split])]
    return sp.ImmutableDenseMatrix(sp.Matrix.vstack(*rows)), n - split
