"""The loss of one sample as torch programs: value, slopes and curvatures in the student's indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import sympy as sp
import torch
from torch import Tensor

from verify.lower import Lowered, lower

__all__ = ["IndexLoss", "at_values"]


def at_values(formula: sp.Expr, values: Mapping[sp.Symbol, float]) -> sp.Expr:
    """The formula with parameters as numbers, whole ones as integers, so that a power stays one."""
    numbers = {s: sp.Integer(int(v)) if float(v).is_integer() else sp.Float(v, 17) for s, v in values.items()}
    return formula.xreplace(numbers)


@dataclass(frozen=True)
class IndexLoss:
    """loss(target, own) for indices (pairs, n) each.

    What depends on the target alone is evaluated once: `labels` gives `known` (k, n), which the others take.
    """

    target: Lowered
    values: Lowered
    slopes: Lowered
    curvature: Lowered
    pairs: int

    @classmethod
    def of(
        cls,
        loss: sp.Expr,
        target: Sequence[sp.Symbol],
        own: Sequence[sp.Symbol],
        values: Mapping[sp.Symbol, float],
    ) -> Self:
        """The formula `loss` in the symbols of the target's and the student's indices, its parameters at `values`."""
        formula, parts = _separated(at_values(loss, values), own)
        slopes = [_without_masses(formula.diff(h)) for h in own]
        bends = [_without_masses(slopes[i].diff(own[j])) for i in range(len(own)) for j in range(i, len(own))]
        arguments = (*parts.values(), *own)
        values_of, slopes_of, bends_of = (lower(e, arguments) for e in ([formula], [formula, *slopes], bends))
        return cls(lower(list(parts), tuple(target)), values_of, slopes_of, bends_of, len(own))

    def labels(self, target: Tensor) -> Tensor:
        """What the loss has to know of the target's indices (pairs, n), noise included: (k, n)."""
        return self.target(tuple(target)) if self.target.expressions else target[:0]

    def value(self, known: Tensor, own: Tensor) -> Tensor:
        """(n,)."""
        return self.values((*known, *own))[0]

    def value_and_slopes(self, known: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) and d loss/d own (pairs, n)."""
        found = self.slopes((*known, *own))
        return found[0], found[1:]

    def curvatures(self, known: Tensor, own: Tensor) -> Tensor:
        """The Hessian in own: (n, pairs, pairs)."""
        found = self.curvature((*known, *own))
        k = self.pairs
        upper = torch.triu_indices(k, k, device=found.device)
        hessian = found.new_zeros((found.shape[1], k, k))
        hessian[:, upper[0], upper[1]] = found.T
        hessian[:, upper[1], upper[0]] = found.T
        return hessian


def _without_masses(expr: sp.Expr) -> sp.Expr:
    """The derivative between kinks."""
    return expr.replace(sp.DiracDelta, lambda *_: sp.S.Zero)


def _separated(expr: sp.Expr, own: Sequence[sp.Symbol]) -> tuple[sp.Expr, dict[sp.Expr, sp.Dummy]]:
    """The expression with a name for each largest part that does not hold `own`; and the parts with their names."""
    parts: dict[sp.Expr, sp.Dummy] = {}

    def visit(e: sp.Expr) -> sp.Expr:
        if e in own or not e.free_symbols:
            return e
        if not e.has_free(*own):
            return parts.setdefault(e, sp.Dummy("known", real=True))
        if isinstance(e, sp.Add | sp.Mul):
            apart = [a for a in e.args if not a.has_free(*own)]
            rest = [visit(a) for a in e.args if a.has_free(*own)]
            return e.func(visit(e.func(*apart)), *rest) if apart else e.func(*rest)
        return e.func(*(visit(a) for a in e.args))

    return visit(expr), parts
