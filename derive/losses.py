"""Losses of outputs f and labels y, as functions of their entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from derive.document import TaskError
from derive.table import Table

__all__ = ["HALF_SQUARED", "read_loss"]

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
        raise TaskError("training.loss is a matrix; it must be one number, e.g. sum((f-y)**2)/2.")
    return sp.Lambda((*f, *y), loss)
