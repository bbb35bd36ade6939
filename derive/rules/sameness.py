"""Expressions written so that equal parts look equal."""

from __future__ import annotations

import sympy as sp

from derive.functions import sigmoid
from derive.polynomial import expand

__all__ = ["one_of_each"]


def one_of_each(expr: sp.Expr) -> sp.Expr:
    """Arguments of functions multiplied out, sigmoid(-x) = 1 - sigmoid(x), even powers of one sign."""
    expr = expr.replace(lambda e: isinstance(e, sp.Function), lambda e: e.func(*map(expand, e.args)))
    expr = expr.replace(lambda e: isinstance(e, sigmoid) and _is_negative(e.args[0]), lambda e: 1 - sigmoid(-e.args[0]))
    return expr.replace(
        lambda e: isinstance(e, sp.Pow) and e.exp.is_even and _is_negative(e.base), lambda e: (-e.base) ** e.exp
    )


def _is_negative(expr: sp.Expr) -> bool:
    return bool(expr.could_extract_minus_sign())
