"""Expressions and domains as plain text, and back: exact numbers, nothing is evaluated but by `derive.parse`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import sympy as sp
from sympy.core.parameters import distribute
from sympy.printing.str import StrPrinter

from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.measures import Gaussian
from derive.parse import parse_expression

__all__ = ["domain_text", "read_domain", "read_text", "text"]

_NAMES: Mapping[type[sp.Function], str] = {
    He: "He",
    LargestEigenvalue: "largest_eigenvalue",
    LogCosh: "logcosh",
    Phi: "Phi",
    SoftmaxEntry: "softmax_entry",
    relu: "relu",
    sigmoid: "sigmoid",
    softplus: "softplus",
    sp.Abs: "abs",
    sp.DiracDelta: "delta",
    sp.Heaviside: "step",
    sp.Max: "max",
    sp.Min: "min",
    sp.acos: "acos",
    sp.asin: "asin",
    sp.atan: "atan",
    sp.cos: "cos",
    sp.cosh: "cosh",
    sp.erf: "erf",
    sp.erfc: "erfc",
    sp.exp: "exp",
    sp.log: "log",
    sp.sign: "sign",
    sp.sin: "sin",
    sp.sinh: "sinh",
    sp.tanh: "tanh",
}
_PI_BESIDE_A_QUANTITY = "pi_constant"


class _Text(StrPrinter):
    """SymPy's plain printer with the names of `derive.parse`; what these cannot say is an error."""

    printmethod = "_limitlaw_text"

    def __init__(self, shift: int, pi: str) -> None:
        super().__init__()
        self._shift = shift
        self._pi = pi

    def emptyPrinter(self, expr: Any) -> str:
        raise ValueError(
            f"text: {expr!r} ({type(expr).__name__}) has no text form. Use numbers, symbols, + - * / **, "
            f"Expectation and the functions {', '.join(sorted(_NAMES.values()))}."
        )

    def _print_Function(self, expr: sp.Function) -> str:
        name = _NAMES.get(type(expr))
        if name is None:
            return self.emptyPrinter(expr)
        if isinstance(expr, sp.DiracDelta) and len(expr.args) > 1:
            return self.emptyPrinter(expr)
        args = expr.args[:1] if isinstance(expr, sp.Heaviside) else expr.args
        return f"{name}({self.stringify(args, ', ')})"

    _print_Heaviside = _print_Function
    _print_Max = _print_Min = _print_Function
    _print_Float = _print_Basic = emptyPrinter
    _print_Infinity = _print_NegativeInfinity = _print_ComplexInfinity = _print_NaN = emptyPrinter
    _print_ImaginaryUnit = emptyPrinter

    def _print_Exp1(self, expr: sp.Expr) -> str:
        return "exp(1)"

    def _print_Pi(self, expr: sp.Expr) -> str:
        return self._pi

    def _print_Expectation(self, expr: Expectation) -> str:
        law = expr.measure
        if not isinstance(law, Gaussian):
            return self.emptyPrinter(law)
        fresh = {v: sp.Symbol(_shifted(v.name, self._shift), real=True) for v in expr.variables}
        # Renamed before printing: SymPy's order of terms is not reproducible where two symbols share a name.
        with distribute(False):
            integrand = expr.integrand.xreplace(fresh) if self._shift else expr.integrand
        variables, mean = (self.stringify(a, ", ") for a in (fresh.values(), law.mean))
        rows = ", ".join(f"[{self.stringify(row, ', ')}]" for row in law.cov.tolist())
        return f"Expectation({self._print(integrand)}, [{variables}], [{mean}], [{rows}])"


def text(expr: sp.Expr, declared: Iterable[str] = ()) -> str:
    """The text of an expression in the names of `derive.parse`; variables of expectations avoid free names.

    `declared`: further names in use. Where pi is one of them, the constant is written `pi_constant`.
    Raises `ValueError` where there is no text: floating point numbers, other functions or laws.

    >>> x = sp.Symbol("x", real=True)
    >>> text(sp.Heaviside(x) * sp.Abs(x) / sp.sqrt(2))
    'sqrt(2)*abs(x)*step(x)/2'
    """
    bound = {v.name for e in expr.atoms(Expectation) for v in e.variables}
    free = {s.name for s in expr.free_symbols}.union(declared)
    shift = next(k for k in itertools.count() if not free & {_shifted(b, k) for b in bound})
    return str(_Text(shift, _PI_BESIDE_A_QUANTITY if "pi" in free else "pi").doprint(expr))


def _shifted(name: str, shift: int) -> str:
    """A canonical bound name, `shift` levels further out: x2 -> x1_2 -> x2_2."""
    level, _, i = name[1:].rpartition("_")
    return f"x{int(level or 0) + shift}_{i}" if shift else name


def read_text(words: str, symbols: Mapping[str, sp.Symbol]) -> sp.Expr:
    """The expression that `text` wrote, with the symbols of these names. Raises what `derive.parse` raises."""
    # Without automatic distribution 2*(x + 1) stays the product that was written.
    with distribute(False):
        value = parse_expression(words, {_PI_BESIDE_A_QUANTITY: sp.pi, **symbols}, equations=True)
    if isinstance(value, sp.MatrixBase):
        raise ValueError(f"read_text: {words!r} is a matrix; one number is needed.")
    return value


def domain_text(domain: sp.Set) -> str:
    """An interval as "[0,1]" or "(0,inf)". Raises `ValueError` for other sets."""
    if not isinstance(domain, sp.Interval) and domain != sp.S.Reals:
        raise ValueError(f"domain_text: {domain} is no interval; give the quantity an interval as domain.")
    left, right = "(" if domain.left_open else "[", ")" if domain.right_open else "]"
    return f"{left}{_bound(domain.inf)},{_bound(domain.sup)}{right}"


def _bound(value: sp.Expr) -> str:
    return {sp.oo: "inf", -sp.oo: "-inf"}.get(value) or text(value)


def read_domain(words: str) -> sp.Set:
    """The interval of a text such as "[0,1]" or "(0,inf)". Raises `ValueError` for other texts."""
    inside = words.strip()
    ends = inside[1:-1].split(",")
    if len(ends) != 2 or inside[0] not in "[(" or inside[-1] not in "])":
        raise ValueError(f'read_domain: {words!r} is no interval. Write it as "[0,1]" or "(0,inf)".')
    low, high = (_read_bound(e.strip()) for e in ends)
    return sp.Interval(low, high, inside[0] == "(", inside[-1] == ")")


def _read_bound(words: str) -> sp.Expr:
    return {"inf": sp.oo, "+inf": sp.oo, "-inf": -sp.oo}.get(words) or read_text(words, {})
