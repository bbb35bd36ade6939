"""Symbolic functions to NumPy: one numerically stable function for each node, and the compiler that uses them.

Everything is evaluated for real float64 arguments, scalars or arrays that broadcast. Results that leave the
floating point range are inf or nan; callers run compiled functions under `numpy.errstate(all="ignore")`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.special
import sympy as sp
from numpy.typing import NDArray
from sympy.core.function import AppliedUndef
from sympy.core.numbers import NumberSymbol
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import BooleanAtom
from sympy.printing.numpy import NumPyPrinter
from sympy.printing.precedence import PRECEDENCE

from derive.table import Unsupported
from solve import stable

__all__ = [
    "OPERATIONS",
    "TABLE",
    "Array",
    "compile_expressions",
    "generate",
    "hermite_orthonormal",
    "tilted_normal_distribution",
]

Array: TypeAlias = NDArray[np.float64]
_MAX_MULTIPLIED = 16


def hermite_orthonormal(n: int, x: Any) -> Any:
    """h_n(x) = He_n(x)/sqrt(n!) by h_k+1 = (x h_k - sqrt(k) h_k-1)/sqrt(k+1): no overflow for any n."""
    before, now = 0.0 * x, 1.0 + 0.0 * x
    for k in range(int(n)):
        before, now = now, (x * now - math.sqrt(k) * before) / math.sqrt(k + 1)
    return now


def tilted_normal_distribution(a: Any, b: Any) -> Any:
    """exp(a) Phi(b); for b < 0 as exp(a - b^2/2) erfcx(-b/sqrt 2)/2, where neither factor under- or overflows."""
    below = np.minimum(b, 0.0)
    left = np.exp(a - below * below / 2) * scipy.special.erfcx(-below / math.sqrt(2)) / 2
    return np.where(b < 0, left, np.exp(a) * scipy.special.ndtr(b))


def _sech_spectrum(x: Any) -> Any:
    """x (x^2 + 2) exp(x^2/2) / sinh(x s/2), s = sqrt(x^2 + 4), by x s - x^2 = 4 x / (s + x): no overflow, no 0/0."""
    a, square = np.abs(x), x * x
    s = np.sqrt(square + 4)
    scale = 2 * math.sqrt(2) / math.pi**1.5
    return scale * (square + 2) * np.exp(-2 * a / (s + a)) / (s * scipy.special.exprel(-a * s))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _log_cosh(x: Any) -> Any:
    return np.abs(x) + np.log1p(np.exp(-2 * np.abs(x)))


def _softmax_entry(own: Any, *others: Any) -> Any:
    return 1 / (1 + sum(np.exp(x - own) for x in others))


def _power(x: Any, n: int) -> Any:
    """x^n, n >= 1, by repeated multiplication: several times faster than `pow` on arrays."""
    half = x if n < 4 else _power(x, n // 2)
    if n < 4:
        return x if n == 1 else (x * x if n == 2 else x * x * x)
    return half * half * x if n % 2 else half * half


def _choose(condition: Any, value: Any, otherwise: Any) -> Any:
    return np.where(condition, value, otherwise)


def _largest_eigenvalue(n: int, *entries: Any) -> Any:
    """Of symmetric (n, n) matrices given by their entries, numbers or arrays, row by row."""
    matrices = np.stack(np.broadcast_arrays(*entries), axis=-1).reshape(
        *np.broadcast_shapes(*map(np.shape, entries)), n, n
    )
    bad = ~np.isfinite(matrices).all(axis=(-2, -1))
    values = np.linalg.eigvalsh(np.where(bad[..., None, None], 0.0, matrices))[..., -1]
    return np.where(bad, np.nan, values)


TABLE: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "He": lambda n, x: math.sqrt(math.factorial(n)) * hermite_orthonormal(n, x),
    "Heaviside": np.heaviside,
    "LargestEigenvalue": _largest_eigenvalue,
    "LogCosh": _log_cosh,
    "Max": np.maximum,
    "Min": np.minimum,
    "Phi": scipy.special.ndtr,
    "SechSpectrum": _sech_spectrum,
    "SoftmaxEntry": _softmax_entry,
    "acos": np.arccos,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "exp": np.exp,
    "expm1": np.expm1,
    "largest": np.maximum,
    "log": np.log,
    "log1p": np.log1p,
    "log_normal_distribution": scipy.special.log_ndtr,
    "orthonormal_hermite": hermite_orthonormal,
    "relu": lambda x: np.maximum(x, 0.0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),  # four times as fast as expit
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "softplus": _softplus,
    "tan": np.tan,
    "tanh": np.tanh,
    "tilted_normal_distribution": tilted_normal_distribution,
}
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "choose": _choose,
    "integer_power": _power,
    "sqrt": np.sqrt,
    "both": np.logical_and,
    "either": np.logical_or,
}
_STRUCTURE = (
    sp.Add,
    sp.Mul,
    sp.Pow,
    sp.Symbol,
    sp.Number,
    NumberSymbol,
    sp.Piecewise,
    ExprCondPair,
    sp.Equality,
    sp.Unequality,
    sp.StrictLessThan,
    sp.LessThan,
    sp.StrictGreaterThan,
    sp.GreaterThan,
    sp.And,
    sp.Or,
    sp.Not,
    BooleanAtom,
)


class _Printer(NumPyPrinter):
    """NumPy source of the nodes in `_STRUCTURE` and `TABLE`; numbers are rounded once, from their exact value."""

    def _print_Integer(self, expr: sp.Integer) -> str:
        return str(int(expr)) if abs(int(expr)) < 2**53 else self._print_Float(expr)

    def _print_Float(self, expr: sp.Expr) -> str:
        value = float(expr)
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "(-inf)")

    _print_Infinity = _print_NegativeInfinity = _print_NaN = _print_Rational = _print_Float

    def _print_NumberSymbol(self, expr: sp.Expr) -> str:
        return repr(float(expr))

    _print_Pi = _print_Exp1 = _print_NumberSymbol

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        base, power = expr.args
        if not power.is_Rational:
            return f"{self.parenthesize(base, PRECEDENCE['Pow'])}**({self._print(power)})"
        if power.is_negative:
            return f"1/{self.parenthesize(base**-power, PRECEDENCE['Pow'])}"
        if power == sp.S.Half:
            return f"sqrt({self._print(base)})"
        if power.is_Integer and 2 < power <= _MAX_MULTIPLIED:
            return f"integer_power({self._print(base)}, {int(power)})"
        exponent = str(int(power)) if power.is_Integer else f"({int(power.p)}/{int(power.q)})"
        return f"{self.parenthesize(base, PRECEDENCE['Pow'])}**{exponent}"

    def _print_Piecewise(self, expr: sp.Piecewise) -> str:
        text = "nan"
        for value, condition in reversed(expr.args):
            held = self._print(value)
            text = held if condition == sp.true else f"choose({self._print(condition)}, {held}, {text})"
        return text

    def _print_And(self, expr: sp.And) -> str:
        return self._nested("both", expr)

    def _print_Or(self, expr: sp.Or) -> str:
        return self._nested("either", expr)

    def _print_largest(self, expr: sp.Basic) -> str:
        return self._nested(type(expr).__name__, expr)

    _print_Max = _print_Min = _print_largest

    def _nested(self, operation: str, expr: sp.Basic) -> str:
        first, *rest = (str(self._print(a)) for a in expr.args)
        return functools.reduce(lambda a, b: f"{operation}({a}, {b})", rest, first)

    def _print_Function(self, expr: sp.Function) -> str:
        return f"{type(expr).__name__}({', '.join(map(self._print, expr.args))})"

    _print_Heaviside = _print_Abs = _print_sign = _print_Function


def _check_nodes(expr: sp.Basic, table: Mapping[str, Callable[..., Any]]) -> None:
    for node in sp.preorder_traversal(expr):
        known = isinstance(node, _STRUCTURE) or (type(node).__name__ in table and not isinstance(node, AppliedUndef))
        if not known:
            raise Unsupported(
                f"No numeric form for {type(node).__name__} in {node}. Write it with the functions "
                f"{', '.join(sorted(set(table) - set(stable.__all__) - set(OPERATIONS)))}, or add it to the table "
                "of solve.elementary."
            )


def compile_expressions(expressions: Sequence[sp.Expr], arguments: Sequence[sp.Symbol]) -> Callable[..., Sequence[Any]]:
    """A function of `arguments` (floats or arrays) that returns the values of `expressions`, in order.

    Raises `NotImplementedError` for a node that is not in `TABLE`, `ValueError` for a free symbol.
    """
    names = {s: sp.Symbol(f"v{i}", real=True) for i, s in enumerate(arguments)}
    return generate(list(expressions), names, list(names.values()), {**TABLE, **OPERATIONS})


def generate(
    expressions: Sequence[sp.Expr],
    names: Mapping[sp.Symbol, sp.Symbol],
    inputs: Sequence[sp.Symbol],
    table: Mapping[str, Callable[..., Any]],
) -> Callable[..., Sequence[Any]]:
    """A Python function of `inputs` that returns `expressions`, in a list or a tuple as they are given.

    names: what stands for each symbol in the source, so that a symbol's own name is never part of it.
    table: what the nodes of `TABLE` and the `OPERATIONS` call.
    Raises `NotImplementedError` for a node that is not in `table`, `ValueError` for a symbol without a name.
    """
    free = set().union(*(e.free_symbols for e in expressions)) - set(names)
    if free:
        raise ValueError(
            f"{', '.join(sorted(map(str, free)))} are read but not among the arguments "
            f"({', '.join(map(str, names))}). Add them to the arguments."
        )
    for e in expressions:
        _check_nodes(e, table)
    rewritten = [stable.stable(e).xreplace(names) for e in expressions]
    printer = _Printer({"fully_qualified_modules": False, "inline": True, "user_functions": {}})
    compiled: Callable[..., Sequence[Any]] = sp.lambdify(
        list(inputs),
        tuple(rewritten) if isinstance(expressions, tuple) else rewritten,
        modules=[{**table, "inf": np.inf, "nan": np.nan}, "numpy"],
        printer=printer,
        cse=True,
        docstring_limit=0,
    )
    return compiled
