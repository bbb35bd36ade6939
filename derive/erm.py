"""The table [erm] of a task: a convex loss of label y and output u, by name or formula, a ridge, a bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import sympy as sp

from derive.parse import parse_expression
from derive.proximal import non_convex_point
from derive.table import Table, TaskError
from derive.text import text

__all__ = ["LOSSES", "Erm", "read_convex_loss"]

y, u = sp.symbols("y u", real=True)

LOSSES: Mapping[str, str] = {
    "square": "(u - y)**2/2",
    "logistic": "softplus(-y*u)",
    "hinge": "relu(1 - y*u)",
    "squared-hinge": "relu(1 - y*u)**2",
    "huber": "(u - y)**2/2 - relu(abs(u - y) - 1)**2/2",
    "exponential": "exp(-y*u)",
}
"""The named losses; for y = +-1, square and huber are functions of the margin y u, too."""

_PLACES = (sp.S.NegativeOne, sp.S.One)
_MORE_PLACES = (sp.Integer(-3), sp.Rational(-1, 3), sp.S.Zero, sp.Rational(5, 2))


@dataclass(frozen=True)
class Erm:
    """min over w and b of (1/n) sum loss(y, <f, w> + b) + (ridge/2) |w|^2; b = 0 without bias."""

    loss: sp.Lambda
    ridge: sp.Expr
    bias: bool

    @classmethod
    def read(cls, table: Table, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr], *, binary: bool) -> Self:
        """From [erm]; binary: whether all labels are +-1. Raises `TaskError`."""
        loss = read_convex_loss(table, "loss", names, values, binary=binary)
        ridge = table.scalar("ridge", names, "0")
        here = ridge.xreplace(dict(values))
        if here.is_nonnegative is False or (here.is_number and not here.is_nonnegative):
            raise TaskError(f"erm.ridge is {text(here)}; it must not be negative.")
        return cls(loss, ridge, table.boolean("bias", default=True))


def read_convex_loss(
    table: Table, key: str, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr], *, binary: bool
) -> sp.Lambda:
    """The loss under that key, a Lambda of (y, u): one of `LOSSES` or a convex formula; raises `TaskError`."""
    stated = table.raw(key, default="logistic")
    formula = LOSSES.get(str(stated))
    if formula is not None:
        table.text(key, default=formula)
    in_use = {**names, "y": y, "u": u}
    expr = table.scalar(key, in_use) if formula is None else parse_expression(formula, in_use)
    if not expr.has_free(u):
        raise TaskError(
            f"{table.name}.{key} is {text(expr)}, which does not read the output u. Name one of "
            f"{', '.join(LOSSES)}, or write a convex formula in y and u, e.g. log(1+exp(-y*u))."
        )
    loss = sp.Lambda((y, u), expr)
    _check_convex(loss, f"{table.name}.{key}", values, _PLACES if binary else (*_PLACES, *_MORE_PLACES))
    if not expr.has_free(y):
        raise TaskError(
            f"{table.name}.{key} is {text(expr)}, which does not read the label y: nothing is learned from it. Name "
            f"one of {', '.join(LOSSES)}, or write a convex formula in y and u, e.g. (u - y)**2."
        )
    return loss


def _check_convex(loss: sp.Lambda, key: str, values: Mapping[sp.Symbol, sp.Expr], labels: Sequence[sp.Expr]) -> None:
    """Raises `TaskError` with the label and the output at which the loss is not convex, at the parameters' values."""
    expr = loss.expr.xreplace(dict(values))
    free = expr.free_symbols - {y, u}
    expr = expr.xreplace(dict.fromkeys(free, sp.S.One))
    for label in labels:
        place = non_convex_point(sp.Lambda(u, expr.xreplace({y: label})))
        if place is not None:
            raise TaskError(
                f"{key} is {text(loss.expr)}, which is not convex in u: at y = {label}, u = {place:g} it bends down. "
                f"The theory is of convex losses, e.g. {', '.join(LOSSES)}."
            )
