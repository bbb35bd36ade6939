"""A float value of an expression: quick advice on what is worth proving, never a proof itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import sympy as sp

from derive.functions import Phi, relu, sigmoid, softplus

__all__ = ["glance"]

_FUNCTIONS: Mapping[type, Callable[[float], float]] = {
    sp.exp: math.exp,
    sp.log: math.log,
    sp.tanh: math.tanh,
    sp.sin: math.sin,
    sp.cos: math.cos,
    sp.erf: math.erf,
    sp.Abs: abs,
    sp.sign: lambda x: float((x > 0) - (x < 0)),
    sp.Heaviside: lambda x: 0.5 * (1 + (x > 0) - (x < 0)),
    relu: lambda x: max(x, 0.0),
    sigmoid: lambda x: 0.5 * (1 + math.tanh(x / 2)),
    softplus: lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    Phi: lambda x: 0.5 * math.erfc(-x / math.sqrt(2)),
}


def glance(e: sp.Expr, at: Mapping[sp.Symbol, float]) -> float | None:
    """The value of `e` in double precision; None for a node without one here, or out of range."""
    try:
        return _value(e, at)
    except (KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError):
        return None


def _value(e: sp.Expr, at: Mapping[sp.Symbol, float]) -> float:
    if isinstance(e, sp.Symbol):
        return at[e]
    if e.is_number and not e.args:
        return float(e)
    if isinstance(e, sp.Add):
        return math.fsum(_value(a, at) for a in e.args)
    if isinstance(e, sp.Mul):
        return math.prod(_value(a, at) for a in e.args)
    if isinstance(e, sp.Pow):
        base, power = _value(e.base, at), _value(e.exp, at)
        if base < 0 and not power.is_integer():
            raise ValueError("a root of a negative number")
        return float(base**power)
    return _FUNCTIONS[e.func](*(_value(a, at) for a in e.args[:1]))
