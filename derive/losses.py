"""Losses of outputs f and labels y, as functions of their entries, and what of them SGD's limit can be derived for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy as sp

from derive.polynomial import affine
from derive.table import Table, TaskError, Unsupported
from derive.text import text

__all__ = ["HALF_SQUARED", "check_descent", "check_generic", "check_point_masses", "read_loss", "without_jumps"]

HALF_SQUARED = "sum((f-y)**2)/2"


def read_loss(training: Table, shape: tuple[int, int], names: Mapping[str, Any]) -> sp.Lambda:
    """The loss that `training.loss` states, a Lambda of the flattened outputs f and labels y; raises `TaskError`."""
    rows, columns = shape
    if shape == (1, 1):
        f, y = ((sp.Symbol(name, real=True),) for name in "fy")
        values: dict[str, Any] = {"f": f[0], "y": y[0]}
    else:
        f, y = (
            tuple(sp.Symbol(f"{name}{i + 1}_{j + 1}", real=True) for i in range(rows) for j in range(columns))
            for name in "fy"
        )
        values = {"f": sp.ImmutableDenseMatrix(rows, columns, f), "y": sp.ImmutableDenseMatrix(rows, columns, y)}
    loss = training.formula("loss", {**names, **values}, default=HALF_SQUARED)
    if isinstance(loss, sp.MatrixBase):
        raise TaskError(
            f"training.loss is a matrix, as the output f and the label y are here ({rows} x {columns}); it must be one "
            "number: sum its entries, e.g. sum((f-y)**2)/2."
        )
    return sp.Lambda((*f, *y), loss)


# ---- what can be derived ----------------------------------------------------------------------------------
def check_descent(loss: sp.Lambda, outputs: Sequence[sp.Expr], fields: Sequence[sp.Symbol]) -> None:
    """Raises `TaskError` where SGD does not move: a loss that does not read f, outputs that are constant or jump."""
    f = loss.variables[: len(outputs)]
    if not loss.expr.has_free(*f):
        name = "f" if len(f) == 1 else "the outputs f"
        raise TaskError(
            f"training.loss is {text(loss.expr)}, which does not read {name}: its gradient is zero and SGD does not "
            "move. Use a loss of f and y, e.g. (f-y)**2/2."
        )
    if not any(o.has_free(*fields) for o in outputs):
        raise TaskError(
            f"student: the output {outputs[0]} does not depend on the weights, so the gradient is zero and SGD does "
            "not move. Use an activation that varies, e.g. relu(x)."
        )
    for what, pairs in (("student.activation", (outputs, fields)), ("training.loss", ((loss.expr,), f))):
        for expr in pairs[0]:
            if expr.has(sp.Heaviside, sp.sign):
                without_jumps([expr.diff(v) for v in pairs[1]], what)


def without_jumps(gradient: Sequence[sp.Expr], what: str) -> tuple[sp.Expr, ...]:
    """The gradient, point masses of weight zero taken out; raises `TaskError` where one has a weight: a jump."""
    clean = tuple(map(_without_empty_masses, gradient))
    if not any(g.has(sp.DiracDelta) for g in clean):
        return clean
    moving = any(g.replace(sp.DiracDelta, lambda *_: sp.S.Zero) != 0 for g in clean)
    effect = "no gradient sees the jump" if moving else "its gradient is zero almost everywhere and SGD does not move"
    raise TaskError(
        f"{what}: the loss jumps as a function of the student's fields, so {effect}. Use a continuous activation "
        "and loss, e.g. relu(x) or tanh(x) and (f-y)**2/2."
    )


def _without_empty_masses(expr: sp.Expr) -> sp.Expr:
    """g delta(a) = 0 where g vanishes at the root of an affine a, as in the derivative of x step(x)."""
    for mass in expr.atoms(sp.DiracDelta):
        marker = sp.Dummy("mass")
        marked = expr.xreplace({mass: marker})
        symbols = sorted(mass.args[0].free_symbols, key=str)
        form = affine(mass.args[0], (symbols[0],)) if len(mass.args) == 1 and symbols else None
        if form is None:
            continue
        (slope,), offset = form
        if marked.diff(marker).xreplace({symbols[0]: -offset / slope}).is_zero:
            expr = marked.xreplace({marker: sp.S.Zero})
    return expr


def check_generic(loss: sp.Lambda, outputs: int) -> None:
    """Raises `Unsupported` for a loss that is no polynomial of outputs and labels.

    Of a generic activation only the Hermite coefficients have names, which no other loss can be written with.
    """
    if loss.expr.as_poly(*loss.variables) is None:
        raise Unsupported(
            f"training.loss is {text(loss.expr)}: a generic activation needs a loss that is a polynomial of f and y, "
            "such as (f-y)**2/2 or -f*y. Name an activation, e.g. relu(x), for other losses."
        )


def check_point_masses(
    slopes: Sequence[sp.Expr], teacher: Sequence[sp.Symbol], fields: tuple[sp.Symbol, ...], cause: str
) -> None:
    """Raises `Unsupported` where the derivative of a slope in the teacher's fields is a point mass on a bent line.

    slopes: d loss / d phi, or the factors of it that hold the teacher's fields. By Price's theorem the drift is
    the mean of their derivatives; a point mass is averaged where an affine form of the fields vanishes.
    """
    for g in slopes:
        if not g.has(sp.Heaviside, sp.sign, sp.DiracDelta):
            continue
        masses = set().union(*(g.diff(z).atoms(sp.DiracDelta) for z in teacher))
        for mass in sorted(masses, key=str):
            if affine(mass.args[0], fields) is None:
                raise Unsupported(
                    f"{cause} puts a point mass into the drift where "
                    f"{text(mass.args[0])} = 0. That is supported where this is an affine form of the "
                    "fields, not on a curved or bent line. Use a smooth loss, e.g. sqrt(1/100 + (f-y)**2) for "
                    "abs(f-y) or log(1+exp(-f*y)) for max(0, 1-f*y); for a jump of the target a smooth step, e.g. "
                    "sigmoid(20*x)."
                )
