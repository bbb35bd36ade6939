"""Expressions and domains as plain text, and back: exact numbers, nothing is evaluated but by `derive.parse`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as Collection
from typing import Any

import sympy as sp
from sympy.core.parameters import distribute

from derive.binding import Binder
from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.parse import parse_expression
from derive.patterns import nodes_of
from derive.spectra import Listed
from derive.spectrum import SechSpectrum
from derive.text_laws import TextLaws, listed_name

__all__ = ["domain_text", "listed_spectra", "read_domain", "read_text", "text"]

_NAMES: Mapping[type[sp.Function], str] = {
    He: "He",
    LargestEigenvalue: "largest_eigenvalue",
    LogCosh: "logcosh",
    Phi: "Phi",
    SechSpectrum: "sech_spectrum",
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


class _Text(TextLaws):
    """SymPy's plain printer with the names of `derive.parse`; what these cannot say is an error."""

    printmethod = "_limitlaw_text"

    def __init__(self, free: Collection[str], bound: Collection[str]) -> None:
        super().__init__(free, bound)
        self._pi = _PI_BESIDE_A_QUANTITY if "pi" in free else "pi"

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


def text(expr: sp.Expr, declared: Iterable[str] = ()) -> str:
    """The text of an expression in the names of `derive.parse`; variables of expectations avoid free names.

    `declared`: further names in use. Where pi is one of them, the constant is written `pi_constant`.
    A long list of eigenvalues is written as its name (`listed_spectra`).
    Raises `ValueError` where there is no text: floating point numbers, other functions or laws.

    >>> x = sp.Symbol("x", real=True)
    >>> text(sp.Heaviside(x) * sp.Abs(x) / sp.sqrt(2))
    'sqrt(2)*abs(x)*step(x)/2'
    """
    bound = {v.name for e in nodes_of(expr, Expectation, Binder) for v in e.variables}
    return str(_Text({s.name for s in expr.free_symbols}.union(declared), bound).doprint(expr))


def listed_spectra(exprs: Iterable[sp.Basic]) -> dict[str, Listed]:
    """The lists of eigenvalues that `text` writes as names."""
    found = sorted((law for e in exprs for law in nodes_of(e, Listed)), key=lambda law: len(law.values))
    return {name: law for law in found if (name := listed_name(law))}


def read_text(words: str, symbols: Mapping[str, sp.Symbol], spectra: Mapping[str, Listed] | None = None) -> sp.Expr:
    """The expression that `text` wrote, with the symbols of these names. Raises what `derive.parse` raises.

    spectra: the lists of eigenvalues that it names.
    """
    # Without automatic distribution 2*(x + 1) stays the product that was written.
    with distribute(False):
        value = parse_expression(words, {_PI_BESIDE_A_QUANTITY: sp.pi, **symbols}, equations=True, spectra=spectra)
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
