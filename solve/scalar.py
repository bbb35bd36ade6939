"""Symbolic functions as machine code for one point at a time: the source of `solve.elementary`, compiled by Numba."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from numba import literal_unroll, njit, types

from solve.elementary import generate

__all__ = ["SIGNATURE", "compile_scalar"]

SIGNATURE = types.void(types.float64[::1], types.float64[::1])
"""Of what is compiled: (values of the arguments, where the values of the expressions go), both contiguous float64."""

_compiled = njit(error_model="numpy")  # 1/0 is inf, as everywhere else


@_compiled
def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@_compiled
def _sigmoid(x: float) -> float:
    t = math.exp(-abs(x))
    return (1.0 if x >= 0 else t) / (1.0 + t) if x == x else x


@_compiled
def _log_cosh(x: float) -> float:
    return abs(x) + math.log1p(math.exp(-2.0 * abs(x)))


@_compiled
def _relu(x: float) -> float:
    return 0.0 if x < 0 else 1.0 * x


@_compiled
def _sign(x: float) -> float:
    return 1.0 if x > 0 else (-1.0 if x < 0 else 1.0 * x)


@_compiled
def _step(x: float, at_zero: float) -> float:
    return 1.0 if x > 0 else (0.0 if x < 0 else (1.0 * at_zero if x == 0 else 1.0 * x))


@_compiled
def _larger(a: float, b: float) -> float:
    return 1.0 * a if a > b or a != a else 1.0 * b


@_compiled
def _smaller(a: float, b: float) -> float:
    return 1.0 * a if a < b or a != a else 1.0 * b


@_compiled
def _softmax_entry(own: float, *others: float) -> float:
    total = 1.0
    for v in literal_unroll(others):
        total += math.exp(v - own)
    return 1.0 / total


@_compiled
def _hermite_orthonormal(n: int, x: float) -> float:
    before, now = 0.0, 1.0
    for k in range(n):
        before, now = now, (x * now - math.sqrt(k) * before) / math.sqrt(k + 1.0)
    return now


@_compiled
def _hermite(n: int, x: float) -> float:
    scale = 1.0
    for k in range(n):
        scale *= math.sqrt(k + 1.0)
    return scale * _hermite_orthonormal(n, x)


@_compiled
def _normal_distribution(x: float) -> float:
    return 0.5 * math.erfc(-x * math.sqrt(0.5))


@_compiled
def _tail_series(x: float) -> float:
    """sqrt(pi) x exp(x^2) erfc(x) from x = 20 on: the terms left out are below 1e-15."""
    t = 0.5 / (x * x)
    return 1.0 - t * (1.0 - 3.0 * t * (1.0 - 5.0 * t * (1.0 - 7.0 * t * (1.0 - 9.0 * t * (1.0 - 11.0 * t)))))


@_compiled
def _scaled_erfc(x: float) -> float:
    """exp(x^2) erfc(x), x >= 0."""
    if x < 20:
        return math.exp(x * x) * math.erfc(x)
    return _tail_series(x) / (math.sqrt(math.pi) * x)


@_compiled
def _log_normal_distribution(x: float) -> float:
    if x > 0:
        return math.log1p(-_normal_distribution(-x))
    y = -x * math.sqrt(0.5)
    return -y * y + math.log(0.5 * _scaled_erfc(y))


@_compiled
def _tilted_normal_distribution(a: float, b: float) -> float:
    if b < 0:
        return math.exp(a - 0.5 * b * b) * 0.5 * _scaled_erfc(-b * math.sqrt(0.5))
    return math.exp(a) * _normal_distribution(b)


@_compiled
def _power(x: float, n: int) -> float:
    result = 1.0 * x
    for _ in range(n - 1):
        result *= x
    return result


@_compiled
def _choose(condition: bool, value: float, otherwise: float) -> float:
    return 1.0 * value if condition else 1.0 * otherwise


def _of_one(function: Callable[[float], float]) -> Callable[[float], float]:
    compiled: Callable[[float], float] = _compiled(lambda x: function(1.0 * x))
    return compiled


_TABLE: Mapping[str, Callable[..., Any]] = {
    "Abs": _of_one(abs),
    "He": _hermite,
    "Heaviside": _step,
    "LogCosh": _log_cosh,
    "Max": _larger,
    "Min": _smaller,
    "Phi": _normal_distribution,
    "SoftmaxEntry": _softmax_entry,
    "atan2": _compiled(lambda y, x: math.atan2(1.0 * y, 1.0 * x)),
    "largest": _larger,
    "log_normal_distribution": _log_normal_distribution,
    "orthonormal_hermite": _hermite_orthonormal,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "sign": _sign,
    "softplus": _softplus,
    "tilted_normal_distribution": _tilted_normal_distribution,
    "choose": _choose,
    "integer_power": _power,
    "both": _compiled(lambda a, b: a and b),
    "either": _compiled(lambda a, b: a or b),
    **{
        name: _of_one(getattr(math, name))
        for name in (
            *("acos", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "exp", "expm1"),
            *("log", "log1p", "sin", "sinh", "sqrt", "tan", "tanh"),
        )
    },
}


@functools.lru_cache(maxsize=64)
def compile_scalar(expressions: tuple[sp.Expr, ...], arguments: tuple[sp.Symbol, ...]) -> Callable[..., None]:
    """Machine code that writes `expressions` at the values of `arguments`, of the type `SIGNATURE`.

    The values are those of `solve.elementary.compile_expressions` to rounding; what leaves the floating point range
    is inf or nan. Raises `NotImplementedError` for a node without a scalar form, `ValueError` for a free symbol.
    """
    slots = {s: sp.Symbol(f"v[{i}]", real=True) for i, s in enumerate(arguments)}
    moving = [e for e in expressions if e.free_symbols]
    values = _compiled(generate(tuple(moving), slots, [sp.Symbol("v")], _TABLE))
    fixed = np.array([math.nan if e.free_symbols else float(e) for e in expressions])
    places = np.array([i for i, e in enumerate(expressions) if e.free_symbols], dtype=np.intp)

    def constants(v: Any, out: Any) -> None:
        for i in range(fixed.size):
            out[i] = fixed[i]

    def write(v: Any, out: Any) -> None:
        constants(v, out)
        found = values(v)
        for k in range(places.size):
            out[places[k]] = found[k]

    compiled = njit([SIGNATURE], error_model="numpy")
    constants = compiled(constants)
    return compiled(write) if moving else constants
