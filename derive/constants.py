"""Float values of constants, with refusals: what is complex, undefined, infinite or too large has none.

They are what untrusted formulas are judged by before SymPy sees them; results stay exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from derive.functions import LargestEigenvalue, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.proximal import Confined
from derive.spectrum import SechSpectrum
from derive.syntax import Fault

__all__ = [
    "ELEMENTARY",
    "Elementary",
    "bounded",
    "constant_value",
    "finite_parts",
    "is_finite",
    "largest_eigenvalue",
    "power",
    "real",
    "softmax_entry",
    "total",
]

_NOT_FINITE = (sp.I, sp.zoo, sp.oo, -sp.oo, sp.nan)
_LARGEST = 1e60
_CANCELLED = 1e-12  # a sum this small beside its terms may be an exact zero in disguise


@dataclass(frozen=True, slots=True)
class Elementary:
    """A function of one variable: its node, its float value, and where it is real."""

    build: Callable[[sp.Expr], sp.Expr]
    value: Callable[[float], float]
    domain: str = ""


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def _within_a_million(function: Callable[[float], float]) -> Callable[[float], float]:
    """Beyond, the float of a sine says nothing about its sign."""

    def value(x: float) -> float:
        if abs(x) > 1e6:
            raise ValueError
        return function(x)

    return value


def _sech_spectrum(x: float) -> float:
    a, s = abs(x), math.sqrt(x * x + 4)
    ratio = -a * s / math.expm1(-a * s) if a else 1.0
    return 2 * math.sqrt(2 / math.pi) / math.pi * (2 + x * x) * math.exp(-2 * a / (s + a)) * ratio / s


def _step(x: float) -> float:
    return 0.5 if x == 0 else float(x > 0)


def _delta(x: float) -> float:
    if x == 0:
        raise ValueError
    return 0.0


ELEMENTARY: Mapping[str, Elementary] = {
    "exp": Elementary(sp.exp, math.exp),
    "log": Elementary(sp.log, math.log, "a positive number"),
    "sqrt": Elementary(sp.sqrt, math.sqrt, "a number that is not negative"),
    "sin": Elementary(sp.sin, _within_a_million(math.sin), "a number within 1e6"),
    "cos": Elementary(sp.cos, _within_a_million(math.cos), "a number within 1e6"),
    "tanh": Elementary(sp.tanh, math.tanh),
    "sigmoid": Elementary(sigmoid, _sigmoid),
    "softplus": Elementary(softplus, lambda x: max(x, 0) + math.log1p(math.exp(-abs(x)))),
    "erf": Elementary(sp.erf, math.erf),
    "Phi": Elementary(Phi, lambda x: math.erfc(-x / math.sqrt(2)) / 2),
    "relu": Elementary(relu, lambda x: max(x, 0.0)),
    "abs": Elementary(sp.Abs, abs),
    "sign": Elementary(sp.sign, lambda x: 2 * _step(x) - 1),
    "step": Elementary(sp.Heaviside, _step),
    "logcosh": Elementary(LogCosh, lambda x: abs(x) + math.log1p(math.exp(-2 * abs(x)))),
    "delta": Elementary(sp.DiracDelta, _delta, "a number other than 0"),
    "asin": Elementary(sp.asin, math.asin, "a number from -1 to 1"),
    "acos": Elementary(sp.acos, math.acos, "a number from -1 to 1"),
    "atan": Elementary(sp.atan, math.atan),
    "sinh": Elementary(sp.sinh, math.sinh),
    "cosh": Elementary(sp.cosh, math.cosh),
    "erfc": Elementary(sp.erfc, math.erfc),
    "sech_spectrum": Elementary(SechSpectrum, _sech_spectrum),
}
_VALUE_OF_CLASS: Mapping[type, Callable[[float], float]] = {
    f.build: f.value for f in ELEMENTARY.values() if isinstance(f.build, type)
}


def finite_parts(node: sp.Basic) -> list[sp.Basic]:
    """The arguments, but for the ends at infinity that an interval may have."""
    return [a for a in node.args if not (isinstance(node, Confined) and a in (-sp.oo, sp.oo))]


def is_finite(expr: sp.Expr) -> bool:
    """Whether no part is infinite, undefined or complex."""
    if not expr.has(*_NOT_FINITE):
        return True
    pending, seen = [expr], set[sp.Basic]()
    while pending:
        node = pending.pop()
        if node in _NOT_FINITE:
            return False
        if node not in seen:
            seen.add(node)
            pending.extend(finite_parts(node))
    return True


def constant_value(expr: sp.Expr) -> float:
    """The float value of a constant made of numbers and the functions of formulas. Raises `Fault`."""
    if expr.is_Rational or expr.is_NumberSymbol:
        return bounded(float(expr))
    values = [constant_value(a) for a in expr.args]
    return bounded(_value_of_node(expr, values))


def _value_of_node(expr: sp.Expr, values: list[float]) -> float:
    if expr.is_Add:
        return total(values)
    if expr.is_Mul:
        return math.prod(values)
    if expr.is_Pow:
        return power(*values)
    if isinstance(expr, sp.Max | sp.Min):
        return max(values) if isinstance(expr, sp.Max) else min(values)
    if isinstance(expr, SoftmaxEntry):
        return softmax_entry(values)
    if isinstance(expr, LargestEigenvalue):
        return largest_eigenvalue(int(values[0]), values[1:])
    if type(expr) in _VALUE_OF_CLASS and values:
        return real(_VALUE_OF_CLASS[type(expr)], values[0], "a real number")
    raise Fault("has no known real value")


def bounded(value: float) -> float:
    """The value itself. Raises `Fault` unless it is finite and below 1e60 in magnitude."""
    if not abs(value) < _LARGEST:
        raise Fault("has a value of 1e60 or more")
    return value


def real(function: Callable[[float], float], x: float, domain: str) -> float:
    """function(x). Raises `Fault` outside the `domain`, said in words, and where it overflows."""
    try:
        return function(x)
    except ValueError:
        raise Fault(f"has no real value: the argument must be {domain}, and is {x:g}") from None
    except OverflowError:
        raise Fault("has a value of 1e60 or more") from None


def total(values: Sequence[float]) -> float:
    """The sum of the values. Raises `Fault` where it may be zero."""
    result = math.fsum(values)
    if abs(result) < _CANCELLED * max(map(abs, values)):
        raise Fault("cancels to nothing within rounding; write its exact value")
    return result


def power(base: float, exponent: float) -> float:
    """base ** exponent. Raises `Fault` where it is not real or overflows."""
    if base == 0 and exponent < 0:
        raise Fault("divides by zero")
    if base < 0 and not exponent.is_integer():
        raise Fault("has no real value: a negative number to a fractional power")
    try:
        return float(base**exponent)
    except OverflowError:
        raise Fault("has a value of 1e60 or more") from None


def softmax_entry(x: Sequence[float]) -> float:
    """exp(x_1) / sum_i exp(x_i)."""
    top = max(x)
    return math.exp(x[0] - top) / math.fsum(math.exp(a - top) for a in x)


def largest_eigenvalue(n: int, entries: Sequence[float]) -> float:
    """Of the symmetric (n, n) matrix with these entries by rows; roughly: its sign and size are what matters.

    Power iteration on the matrix, shifted to be positive.
    """
    shift = max(math.fsum(map(abs, entries[i * n : (i + 1) * n])) for i in range(n)) or 1.0
    v, value = [1.0 + i / n for i in range(n)], 0.0
    for _ in range(300):
        w = [math.fsum(map(operator.mul, entries[i * n : (i + 1) * n], v)) for i in range(n)]
        value = math.fsum(map(operator.mul, v, w)) / math.fsum(x * x for x in v)
        norm = max(abs(x + shift * y) for x, y in zip(w, v, strict=True))
        v = [(x + shift * y) / norm for x, y in zip(w, v, strict=True)]
    return value
