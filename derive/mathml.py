"""Presentation MathML for HTML reports, in the notation of `derive.latex`; valid XML, no script."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from xml.dom.minidom import Element

import sympy as sp
from sympy.printing.mathml import MathMLPresentationPrinter
from sympy.printing.precedence import PRECEDENCE

from derive.equations import Define, Equation, Flow
from derive.functions import He, LargestEigenvalue, LogCosh, SoftmaxEntry
from derive.letters import Notation, notation_for
from derive.mathml_elements import APPLY, DOT, TIMES
from derive.mathml_laws import Laws
from derive.notation import function_head, is_wide, matrix_rows, ordered_terms
from derive.patterns import DOTS, by_index, shortened
from derive.proximal import Prox
from derive.spectrum import SechSpectrum
from derive.vector_proximal import VectorCurvature, VectorProx, VectorSlope

__all__ = ["MathML", "mathml", "mathml_expression", "mathml_name"]

_MINUS, _ONE = "\u2212", "\U0001d7cf"
_NAMED_ENTITY = re.compile(r"&(?!amp;|lt;|gt;|quot;|apos;)\w+;")
_POWER_ON_HEAD = (sp.sin, sp.cos, sp.tan, sp.sinh, sp.cosh, sp.tanh)
_WITHOUT_BRACKETS = (sp.log, LogCosh)
_IN_BRACKETS = (*_WITHOUT_BRACKETS, VectorSlope, VectorCurvature)  # under a power
_MOST_LAWS_ON_A_LINE = 2


class MathML(Laws):
    """SymPy's presentation printer with the field's notation; `notation` is made by `notation_for`."""

    def __init__(self, notation: Notation) -> None:
        MathMLPresentationPrinter.__init__(self)
        self.notation = notation
        self.scope = {}
        self.stated = set()
        self.laws = {}

    def equation(self, equation: Equation) -> Element:
        """A `math` element: the equation, then the laws that are not standard normal."""
        parts = [self._left(equation), self._mo("="), self.show(equation.rhs)]
        if len(self.laws) > _MOST_LAWS_ON_A_LINE:
            return self.math([self._lines(parts)])
        for i, law in enumerate(self.laws.values()):
            parts += [self._el("mtext", ",\u2003" if i else "\u2003with\u00a0"), law]
        return self.math(parts)

    def _lines(self, formula: Sequence[Element]) -> Element:
        """The formula, and below it the laws, one on each line."""
        laws = [
            self._row(self._el("mtext", "\u2003" if i else "with\u00a0"), law)
            for i, law in enumerate(self.laws.values())
        ]
        rows = [self._el("mtr", self._el("mtd", line)) for line in (self._row(*formula), *laws)]
        table = self._el("mtable", *rows)
        table.setAttribute("columnalign", "left")
        return table

    def _left(self, equation: Equation) -> Element:
        unknown = self.show(equation.unknown.symbol)
        if isinstance(equation, Define):
            return unknown
        if isinstance(equation, Flow):
            above, below = self._row(self._upright("d"), unknown), self._row(self._upright("d"), self._el("mi", "τ"))
            return self._el("mfrac", above, below)
        return self._el("mn", "0")

    # ---- sums, products, powers

    def _print_Symbol(self, sym: sp.Symbol, style: str = "plain") -> Element:
        return self._mo("\u22ef") if sym == DOTS else self._name(self.name_of(sym))

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
        if any(isinstance(a, SechSpectrum) for a in expr.args):
            return self.show(SechSpectrum.written_out(expr))
        wide = [a for a in expr.args if is_wide(a)]
        numerator, denominator = sp.fraction(expr, exact=True)
        if denominator == 1:
            return self._factors(expr)
        numerator = sp.Mul(*(a for a in sp.Mul.make_args(numerator) if not is_wide(a)))
        fraction = self._el("mfrac", self._factors(numerator), self._factors(denominator))
        after = [element for a in wide for element in (self._mo(TIMES), self.parenthesize(a, PRECEDENCE["Mul"]))]
        return self._row(fraction, *after)

    def _factors(self, expr: sp.Expr) -> Element:
        factors = expr.as_ordered_factors() if expr.is_Mul else [expr]
        if len(factors) == 1:
            return self.show(factors[0])
        parts: list[Element] = []
        for i, f in enumerate(factors):
            if i:
                parts.append(self._mo(DOT if _starts_with_number(f) else TIMES))
            if i and isinstance(f, (sp.Function, Prox, VectorProx)) and not isinstance(f, sp.exp):
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
            return self._el("mrow", head, self._mo(APPLY), self._fenced(*map(self.show, base.args)))
        if base.is_Symbol and power.is_Integer and not self.name_of(base).star:
            return self._name(self.name_of(base), self.show(power))
        if isinstance(base, _IN_BRACKETS) or (base.is_Symbol and self.name_of(base).star):
            return self._el("msup", self._fenced(self.show(base)), self.show(power))
        element: Element = super()._print_Pow(e)
        return element

    # ---- functions

    def _print_Function(self, e: sp.Function) -> Element:
        return self._apply(self._upright(function_head(e)[1]), e.args)

    def _print_log(self, e: sp.Function) -> Element:
        (x,) = e.args
        if not (x.is_Symbol or (x.is_Integer and x.is_positive)):
            return self._print_Function(e)
        head = self._upright(function_head(e)[1])
        return self._el("mrow", head, self._mo(APPLY), self._thin_space(), self.show(x))

    _print_LogCosh = _print_log

    def _print_SechSpectrum(self, e: SechSpectrum) -> Element:
        return self.show(e.elementary())

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
        own, *others = e.args
        head = self._el("msub", self._upright("softmax"), self._el("mn", "1"))
        return self._apply(head, [own, *shortened(by_index(others))])

    def _print_LargestEigenvalue(self, e: LargestEigenvalue) -> Element:
        head = self._el("msub", self._el("mi", "λ"), self._upright("max"))
        return self._el("mrow", head, self._mo(APPLY), self._table(matrix_rows(e)))

    def _print_Heaviside(self, e: sp.Heaviside) -> Element:
        condition = self._row(self.show(e.args[0]), self._mo(">"), self._el("mn", "0"))
        return self._el("mrow", self._el("mn", _ONE), self._fenced(condition, fence="[]"))

    def _print_DiracDelta(self, e: sp.DiracDelta) -> Element:
        order = int(e.args[1]) if len(e.args) > 1 else 0
        delta = self._el("mi", "δ")
        return self._apply(self._el("msup", delta, self._mo("′" * order)) if order else delta, e.args[:1])


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
