"""Expressions and domains as plain text, and back: exact numbers, nothing is evaluated but by `derive.parse`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as Collection
from typing import Any

import sympy as sp
from sympy.core.parameters import distribute
from sympy.printing.str import StrPrinter

from derive.binders import PROXIMAL
from derive.binding import Binder
from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.measures import Gaussian, Measure, Pushforward
from derive.minimum import Minimum
from derive.parse import parse_expression
from derive.patterns import in_parts, nodes_of
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.spectrum import SechSpectrum
from derive.sums import PositiveSum

__all__ = ["domain_text", "read_domain", "read_text", "text"]

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
_PROXIMAL_NAMES: Mapping[type[sp.Expr], str] = {node: name for name, node in PROXIMAL.items()}


class _Text(StrPrinter):
    """SymPy's plain printer with the names of `derive.parse`; what these cannot say is an error.

    free: names that bound variables must not have.
    """

    printmethod = "_limitlaw_text"

    def __init__(self, free: Collection[str], bound: Collection[str]) -> None:
        super().__init__()
        self._shift = next(k for k in itertools.count() if free.isdisjoint(_shifted(b, k) for b in bound))
        self._pi = _PI_BESIDE_A_QUANTITY if "pi" in free else "pi"
        self._u, self._g, self._q = (_head(letter, free) for letter in "ugq")

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

    # ---- nodes with variables of their own; see `derive.binders`

    def _print_Expectation(self, expr: Expectation) -> str:
        variables, (integrand,) = self._renamed(expr.variables, [expr.integrand])
        return f"Expectation({self._print(integrand)}, {self._list(variables)}, {self._law(expr.measure)})"

    def _renamed(
        self, variables: Sequence[sp.Symbol], inside: Sequence[sp.Expr]
    ) -> tuple[Sequence[sp.Symbol], Sequence[sp.Expr]]:
        """Renamed before printing: SymPy's order of terms is not reproducible where two symbols share a name."""
        if not self._shift:
            return variables, inside
        fresh = {v: sp.Symbol(_shifted(v.name, self._shift), real=True) for v in variables}
        with distribute(False):
            return list(fresh.values()), [e.xreplace(fresh) for e in inside]

    def _list(self, items: Iterable[sp.Expr]) -> str:
        return f"[{self.stringify(items, ', ')}]"

    def _law(self, law: Measure) -> str:
        if isinstance(law, Pushforward):
            return self._pushforward(law)
        if not isinstance(law, Gaussian):
            return self.emptyPrinter(law)
        return f"{self._list(law.mean)}, [{', '.join(map(self._list, law.cov.tolist()))}]"

    def _pushforward(self, law: Pushforward) -> str:
        base = self._base(law.base)
        own, heads = [*law.inputs, *(s for s, _ in law.definitions)], {"g": self._g, "q": self._q}
        fresh = {s: sp.Symbol(heads[s.name[0]] + s.name[1:], real=True) for s in own}
        definitions = law.definitions
        if self._g + self._q != "gq":
            with distribute(False):
                definitions = tuple((s, e.xreplace(fresh)) for s, e in definitions)
        parts = [p.formulas for p in in_parts(definitions)]
        words = (f"softmax({self._list(f)})" if len(f) > 1 else self._print(f[0]) for f in parts)
        outputs = self._list(fresh[s] for s in law.outputs)
        return f"Pushforward({self._g}, {base}, {self._q}, [{', '.join(words)}], {outputs})"

    def _base(self, law: Gaussian) -> str:
        standard = not any(law.mean) and law.cov == sp.eye(law.dim)
        return f"normal({law.dim if standard else self._law(law)})"

    def _proximal(self, expr: Prox | Moreau | MoreauSlope | MoreauCurvature) -> str:
        (u,) = expr.loss.variables
        loss = expr.loss.expr
        if self._u != u.name:
            with distribute(False):
                loss = loss.xreplace({u: sp.Symbol(self._u, real=True)})
        return f"{_PROXIMAL_NAMES[type(expr)]}({self._u}, {self.stringify((loss, expr.V, expr.w), ', ')})"

    _print_Prox = _print_Moreau = _print_MoreauSlope = _print_MoreauCurvature = _proximal

    def _print_Minimum(self, expr: Minimum) -> str:
        variables, (body,) = self._renamed(expr.variables, [expr.expr])
        starts = ", ".join(map(self._list, expr.starts))
        return f"Minimum({self._print(body)}, {self._list(variables)}, [{starts}], {expr.index})"

    def _print_PositiveSum(self, expr: PositiveSum) -> str:
        variables, summands = self._renamed(expr.variables, expr.inside)
        return f"PositiveSum({', '.join(map(self._list, (variables, summands, expr.outside)))})"


def text(expr: sp.Expr, declared: Iterable[str] = ()) -> str:
    """The text of an expression in the names of `derive.parse`; variables of expectations avoid free names.

    `declared`: further names in use. Where pi is one of them, the constant is written `pi_constant`.
    Raises `ValueError` where there is no text: floating point numbers, other functions or laws.

    >>> x = sp.Symbol("x", real=True)
    >>> text(sp.Heaviside(x) * sp.Abs(x) / sp.sqrt(2))
    'sqrt(2)*abs(x)*step(x)/2'
    """
    bound = {v.name for e in nodes_of(expr, Expectation, Binder) for v in e.variables}
    return str(_Text({s.name for s in expr.free_symbols}.union(declared), bound).doprint(expr))


def _head(letter: str, free: Collection[str]) -> str:
    """The letter, repeated until no free name is it or it with a number: g -> gg."""
    heads = (letter * k for k in itertools.count(1))
    return next(h for h in heads if not any(re.fullmatch(rf"{h}\d*", name) for name in free))


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
