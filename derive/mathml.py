"""Presentation MathML for HTML reports, in the notation of `derive.latex`; valid XML, no script."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from xml.dom.minidom import Element
from xml.sax.saxutils import escape

import sympy as sp
from sympy.printing.mathml import MathMLPresentationPrinter
from sympy.printing.precedence import PRECEDENCE, precedence_traditional

from derive.equations import Define, Equation, Flow
from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, SoftmaxEntry
from derive.measures import Gaussian, Measure
from derive.notation import (
    ACCENT_MARKS,
    Display,
    Name,
    Notation,
    function_head,
    is_standard,
    is_wide,
    matrix_rows,
    notation_for,
    ordered_terms,
    plain,
    split_name,
)

__all__ = ["MathML", "mathml", "mathml_expression", "mathml_name"]

_TIMES, _DOT, _APPLY, _STAR, _MINUS = "\u2062", "\u22c5", "\u2061", "\u22c6", "\u2212"
_EXPECTATION, _NORMAL, _ONE = "\U0001d53c", "\U0001d4a9", "\U0001d7cf"
_TALL = ("mfrac", "msqrt", "mroot", "mtable")
_NAMED_ENTITY = re.compile(r"&(?!amp;|lt;|gt;|quot;|apos;)\w+;")
_POWER_ON_HEAD = (sp.sin, sp.cos, sp.tan, sp.sinh, sp.cosh, sp.tanh)
_WITHOUT_BRACKETS = (sp.log, LogCosh)


class MathML(Display, MathMLPresentationPrinter):
    """SymPy's presentation printer with the field's notation; `notation` is made by `notation_for`."""

    def __init__(self, notation: Notation) -> None:
        MathMLPresentationPrinter.__init__(self)
        self.notation = notation
        self.scope = {}
        self._laws: dict[str, Element] = {}

    def equation(self, equation: Equation) -> Element:
        """A `math` element: the equation, then the laws that are not standard normal."""
        parts = [self._left(equation), self._mo("="), self.show(equation.rhs)]
        for i, law in enumerate(self._laws.values()):
            parts += [self._el("mtext", ",\u2003" if i else "\u2003with\u00a0"), law]
        return self.math(parts)

    def math(self, parts: Sequence[Element]) -> Element:
        """A displayed `math` element."""
        element = self._el("math", self._row(*parts))
        element.setAttribute("xmlns", "http://www.w3.org/1998/Math/MathML")
        element.setAttribute("display", "block")
        return element

    def _left(self, equation: Equation) -> Element:
        unknown = self.show(equation.unknown.symbol)
        if isinstance(equation, Define):
            return unknown
        if isinstance(equation, Flow):
            above, below = self._row(self._upright("d"), unknown), self._row(self._upright("d"), self._el("mi", "τ"))
            return self._el("mfrac", above, below)
        return self._el("mn", "0")

    def show(self, expr: sp.Basic) -> Element:
        """The element of an expression."""
        element: Element = self._print(expr)
        return element

    # ---- elements

    def _el(self, tag: str, *children: Element | str) -> Element:
        element: Element = self.dom.createElement(tag)
        for c in children:
            element.appendChild(self.dom.createTextNode(escape(c)) if isinstance(c, str) else c)
        return element

    def _row(self, *children: Element) -> Element:
        first, *rest = children
        return self._el("mrow", first, *rest) if rest else first

    def _mo(self, sign: str) -> Element:
        return self._el("mo", sign)

    def _upright(self, text: str) -> Element:
        element = self._el("mi", text)
        if len(text) == 1:
            element.setAttribute("mathvariant", "normal")
        return element

    def _thin_space(self) -> Element:
        space = self._el("mspace")
        space.setAttribute("width", "0.17em")
        return space

    def _separated(self, items: Sequence[Element]) -> list[Element]:
        return [e for i, item in enumerate(items) for e in ([self._mo(","), item] if i else [item])]

    def _fenced(self, *items: Element, fence: str = "()") -> Element:
        left, right = self._mo(fence[0]), self._mo(fence[1])
        if not any(item.getElementsByTagName(tag) or item.tagName == tag for item in items for tag in _TALL):
            left.setAttribute("stretchy", "false")
            right.setAttribute("stretchy", "false")
        return self._el("mrow", left, *self._separated(items), right)

    def parenthesize(self, item: sp.Expr, level: int, strict: bool = False) -> Element:
        """The item, in brackets where its precedence asks for them."""
        precedence = precedence_traditional(item)
        needed = precedence < level or (not strict and precedence <= level)
        return self._fenced(self.show(item)) if needed else self.show(item)

    # ---- names, sums, products, powers

    def _print_Symbol(self, sym: sp.Symbol, style: str = "plain") -> Element:
        return self._name(self.name_of(sym))

    def _name(self, name: Name, power: Element | None = None) -> Element:
        base = self._el("mn" if name.base.isdigit() else "mi", plain(name.base))
        if name.accent:
            base = self._el("mover", base, self._mo(ACCENT_MARKS[name.accent]))
            base.setAttribute("accent", "true")
        below = [self._name(s) for s in name.subscripts]
        subscript = [self._row(*self._separated(below))] if below else []
        above = [self._mo(_STAR)] if name.star else [] if power is None else [power]
        tag = {(1, 0): "msub", (0, 1): "msup", (1, 1): "msubsup"}.get((len(subscript), len(above)))
        return self._el(tag, base, *subscript, *above) if tag else base

    def _print_Pi(self, e: sp.Expr) -> Element:
        return self._upright("π")

    def _print_Exp1(self, e: sp.Expr) -> Element:
        return self._upright("e") if self.notation.power_of_e else self._apply(self._upright("exp"), [sp.S.One])

    def _print_Add(self, expr: sp.Add, order: None = None) -> Element:
        parts: list[Element] = []
        for i, term in enumerate(ordered_terms(expr)):
            minus = term.could_extract_minus_sign()
            if i or minus:
                parts.append(self._mo(_MINUS if minus else "+"))
            parts.append(self.parenthesize(-term if minus else term, PRECEDENCE["Mul"], strict=True))
        return self._el("mrow", *parts)

    def _print_Mul(self, expr: sp.Mul) -> Element:
        if expr.could_extract_minus_sign():
            return self._row(self._mo(_MINUS), self.parenthesize(-expr, PRECEDENCE["Mul"], strict=True))
        wide = [a for a in expr.args if is_wide(a)]
        numerator, denominator = sp.fraction(expr, exact=True)
        if denominator == 1:
            return self._factors(expr)
        numerator = sp.Mul(*(a for a in sp.Mul.make_args(numerator) if not is_wide(a)))
        fraction = self._el("mfrac", self._factors(numerator), self._factors(denominator))
        after = [element for a in wide for element in (self._mo(_TIMES), self.parenthesize(a, PRECEDENCE["Mul"]))]
        return self._row(fraction, *after)

    def _factors(self, expr: sp.Expr) -> Element:
        factors = expr.as_ordered_factors() if expr.is_Mul else [expr]
        if len(factors) == 1:
            return self.show(factors[0])
        parts: list[Element] = []
        for i, f in enumerate(factors):
            if i:
                parts.append(self._mo(_DOT if _starts_with_number(f) else _TIMES))
            if i and isinstance(f, sp.Function) and not isinstance(f, sp.exp):
                parts.append(self._thin_space())
            open_ended = isinstance(f, _WITHOUT_BRACKETS) and i + 1 < len(factors)
            parts.append(self._fenced(self.show(f)) if open_ended else self.parenthesize(f, PRECEDENCE["Mul"]))
        return self._el("mrow", *parts)

    def _print_Pow(self, e: sp.Pow) -> Element:
        base, power = e.args
        if power.is_Rational and power.is_negative:
            return self._el("mfrac", self._el("mn", "1"), self.show(base**-power))
        if power.is_Integer and power.is_positive and isinstance(base, _POWER_ON_HEAD):
            head = self._el("msup", self._upright(function_head(base)[1]), self.show(power))
            return self._el("mrow", head, self._mo(_APPLY), self._fenced(*map(self.show, base.args)))
        if base.is_Symbol and power.is_Integer and not self.name_of(base).star:
            return self._name(self.name_of(base), self.show(power))
        if isinstance(base, _WITHOUT_BRACKETS) or (base.is_Symbol and self.name_of(base).star):
            return self._el("msup", self._fenced(self.show(base)), self.show(power))
        element: Element = super()._print_Pow(e)
        return element

    # ---- functions

    def _apply(self, head: Element, args: Sequence[sp.Expr]) -> Element:
        return self._el("mrow", head, self._mo(_APPLY), self._fenced(*map(self.show, args)))

    def _print_Function(self, e: sp.Function) -> Element:
        return self._apply(self._upright(function_head(e)[1]), e.args)

    def _print_log(self, e: sp.Function) -> Element:
        (x,) = e.args
        if not (x.is_Symbol or (x.is_Integer and x.is_positive)):
            return self._print_Function(e)
        head = self._upright(function_head(e)[1])
        return self._el("mrow", head, self._mo(_APPLY), self._thin_space(), self.show(x))

    _print_LogCosh = _print_log

    def _print_Max(self, e: sp.Function) -> Element:
        return self._print_Function(e)

    _print_Min = _print_Max

    def _print_exp(self, e: sp.Function) -> Element:
        if not self.notation.power_of_e or len(str(e)) > 30:
            return self._print_Function(e)
        return self._el("msup", self._upright("e"), self.show(e.args[0]))

    def _print_He(self, e: He) -> Element:
        n, x = e.args
        return self._apply(self._el("msub", self._upright("He"), self.show(n)), [x])

    def _print_SoftmaxEntry(self, e: SoftmaxEntry) -> Element:
        return self._apply(self._el("msub", self._upright("softmax"), self._el("mn", "1")), e.args)

    def _print_LargestEigenvalue(self, e: LargestEigenvalue) -> Element:
        head = self._el("msub", self._el("mi", "λ"), self._upright("max"))
        return self._el("mrow", head, self._mo(_APPLY), self._table(matrix_rows(e)))

    def _print_Heaviside(self, e: sp.Heaviside) -> Element:
        condition = self._row(self.show(e.args[0]), self._mo(">"), self._el("mn", "0"))
        return self._el("mrow", self._el("mn", _ONE), self._fenced(condition, fence="[]"))

    def _print_DiracDelta(self, e: sp.DiracDelta) -> Element:
        order = int(e.args[1]) if len(e.args) > 1 else 0
        delta = self._el("mi", "δ")
        return self._apply(self._el("msup", delta, self._mo("′" * order)) if order else delta, e.args[:1])

    # ---- expectations

    def _print_Expectation(self, e: Expectation) -> Element:
        names = self.enter(e)
        subscript = self._row(*self._separated(self._variables(names)))
        body = self.show(e.integrand)
        if not is_standard(e.measure):
            variables = self._variables(names)
            left = variables[0] if len(names) == 1 else self._fenced(*variables)
            law = self._row(left, self._mo("∼"), self._law(e.measure))
            self._laws[law.toxml()] = law
        head = self._el("msub", self._upright(_EXPECTATION), subscript)
        return self._el("mrow", head, self._mo(_APPLY), self._fenced(body, fence="[]"))

    def _variables(self, names: Sequence[str]) -> list[Element]:
        return [self._name(split_name(n)) for n in names]

    def _law(self, law: Measure) -> Element:
        if not isinstance(law, Gaussian):
            return self._apply(self._upright(type(law).__name__), law.args)
        if law.dim == 1:
            arguments = [self.show(law.mean[0]), self.show(law.cov[0, 0])]
        else:
            mean = self._table([[m] for m in law.mean]) if any(law.mean) else self._el("mn", "0")
            arguments = [mean, self._table(law.cov.tolist())]
        return self._el("mrow", self._upright(_NORMAL), self._mo(_APPLY), self._fenced(*arguments))

    def _table(self, rows: Sequence[Sequence[sp.Expr]]) -> Element:
        lines = [self._el("mtr", *(self._el("mtd", self.show(e)) for e in row)) for row in rows]
        return self._fenced(self._el("mtable", *lines))


def _starts_with_number(f: sp.Expr) -> bool:
    return bool(f.is_Rational or (f.is_Pow and f.base.is_Rational and f.exp != sp.S.Half))


def _xml(element: Element) -> str:
    text = _NAMED_ENTITY.sub(lambda m: html.unescape(m[0]), element.toxml())
    text = text.replace("<mo>-</mo>", f"<mo>{_MINUS}</mo>")
    return text.encode("ascii", "xmlcharrefreplace").decode()


def mathml(equation: Equation) -> str:
    """One equation as a `math` element with the laws of its expectations; ASCII, well-formed XML."""
    return _xml(MathML(notation_for([equation.rhs], [equation.unknown.symbol])).equation(equation))


def mathml_expression(expr: sp.Expr) -> str:
    """An expression as a `math` element; the laws of its expectations are not stated."""
    printer = MathML(notation_for([expr]))
    return _xml(printer.math([printer.show(expr)]))


def mathml_name(symbol: sp.Symbol) -> str:
    """A quantity's name as an inline `math` element."""
    printer = MathML(notation_for([symbol]))
    element = printer.math([printer.show(symbol)])
    element.removeAttribute("display")
    return _xml(element)
