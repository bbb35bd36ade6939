"""Proximal operators and Moreau envelopes of losses of several variables: nodes and their derivatives.

The losses need not be convex: of several local minima the least is meant, sought from the starts that a node names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import sympy as sp

from derive.proximal import LossNode

__all__ = ["VectorCurvature", "VectorMoreau", "VectorProx", "VectorSlope"]


class _VectorProximal(LossNode):
    """A node of a loss (a Lambda of k variables), a step V > 0, a point w and starts (tuples of k). Abstract.

    `indices`: which components are meant, from 0.
    """

    COUNT = 0

    def __new__(cls, loss: sp.Lambda, V: Any, w: Sequence[Any], starts: Sequence[Sequence[Any]], *indices: int) -> Self:
        k = len(loss.variables)
        rows = [sp.Tuple(*map(sp.S, row)) for row in starts]
        if len(w) != k or not rows or any(len(row) != k for row in rows):
            raise ValueError(f"{cls.__name__}: a loss of {k} variables needs a point and starts of {k} numbers each.")
        if len(indices) != cls.COUNT or not all(0 <= int(i) < k for i in indices):
            raise ValueError(f"{cls.__name__}: {cls.COUNT} indices below {k} are needed, got {indices}.")
        names = [sp.Symbol(f"u{i + 1}", real=True, bound=True) for i in range(k)]
        canonical = sp.Lambda(tuple(names), loss.expr.xreplace(dict(zip(loss.variables, names, strict=True))))
        whole = (canonical, sp.S(V), sp.Tuple(*map(sp.S, w)), sp.Tuple(*rows), *map(sp.Integer, indices))
        new: Self = super().__new__(cls, *whole)
        return new

    @property
    def w(self) -> sp.Tuple:
        return self.args[2]

    @property
    def starts(self) -> tuple[sp.Tuple, ...]:
        return tuple(self.args[3])

    @property
    def indices(self) -> tuple[int, ...]:
        return tuple(map(int, self.args[4:]))

    def _slope(self, i: int) -> sp.Expr:
        return VectorSlope(*self.args[:4], i)

    def _moved(self, s: sp.Symbol) -> bool:
        """Whether the step or the point reads s: the starts do not matter to the minimum."""
        return bool(self.V.has_free(s) or self.w.has_free(s))


class VectorMoreau(_VectorProximal):
    """M_V(w) = min_u loss(u) + |u - w|^2/(2 V)."""

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        """dM = r.dw - |r|^2/2 dV, r = `VectorSlope`  [envelope theorem]."""
        self.without(s)
        slopes = [self._slope(i) for i in range(len(self.w))]
        along = sp.Add(*(r * w.diff(s) for r, w in zip(slopes, self.w, strict=True)))
        return along - sp.Add(*(r**2 for r in slopes)) / 2 * self.V.diff(s)


class VectorProx(_VectorProximal):
    """The component i of Prox = argmin_u loss(u) + |u - w|^2/(2 V) = w - V r."""

    COUNT = 1

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        (i,) = self.indices
        r = self._slope(i)
        return self.w[i].diff(s) - self.V.diff(s) * r - self.V * r.diff(s)


class VectorSlope(_VectorProximal):
    """The component i of r = (w - Prox)/V, the gradient of the Moreau envelope in w."""

    COUNT = 1

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        """dr_i = sum_j c_ij (dw_j - r_j dV), c = `VectorCurvature`; jumps of Prox are left out."""
        self.without(s)
        if not self._moved(s):
            return sp.S.Zero
        (i,) = self.indices
        changes = [w.diff(s) - self._slope(j) * self.V.diff(s) for j, w in enumerate(self.w)]
        return sp.Add(*(VectorCurvature(*self.args[:4], i, j) * c for j, c in enumerate(changes) if c != 0))


class VectorCurvature(_VectorProximal):
    """The component i, j of c = dr/dw = H (1 + V H)^-1, H the second derivatives of the loss at Prox."""

    COUNT = 2

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        self.without(s)
        if not self._moved(s):
            return sp.S.Zero
        raise NotImplementedError("VectorCurvature has no derivative rule.")
