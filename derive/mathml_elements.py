"""The elements that presentation MathML is made of."""

from __future__ import annotations

from collections.abc import Sequence
from xml.dom.minidom import Element
from xml.sax.saxutils import escape

import sympy as sp
from sympy.printing.mathml import MathMLPresentationPrinter
from sympy.printing.precedence import precedence_traditional

from derive.display import Display, few
from derive.notation import ACCENT_MARKS, Name, plain, split_name
from derive.patterns import DOTS

__all__ = ["APPLY", "DOT", "TIMES", "Elements"]

TIMES, DOT, APPLY, _STAR = "\u2062", "\u22c5", "\u2061", "\u22c6"
_TALL = ("mfrac", "msqrt", "mroot", "mtable")


class Elements(Display, MathMLPresentationPrinter):
    """SymPy's presentation printer with what our own printers build their elements from.

    `laws` holds what is to be said beside the formula.
    """

    laws: dict[str, Element]

    def math(self, parts: Sequence[Element]) -> Element:
        """A displayed `math` element."""
        element = self._el("math", self._row(*parts))
        element.setAttribute("xmlns", "http://www.w3.org/1998/Math/MathML")
        element.setAttribute("display", "block")
        return element

    def show(self, expr: sp.Basic) -> Element:
        """The element of an expression."""
        element: Element = self._print(expr)
        return element

    def _el(self, tag: str, *children: Element | str) -> Element:
        element: Element = self.dom.createElement(tag)
        for c in children:
            element.appendChild(self.dom.createTextNode(escape(c)) if isinstance(c, str) else c)
        return element

    def _row(self, *children: Element) -> Element:
        first, *rest = children
        return self._el("mrow", first, *rest) if rest else first

    def _state(self, left: Element, sign: str, right: Element) -> None:
        law = self._row(left, self._mo(sign), right)
        self.laws[law.toxml()] = law

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

    def _variables(self, names: Sequence[str]) -> list[Element]:
        return [self._name(split_name(n)) if n else self._mo("\u2026") for n in few(names)]

    def _apply(self, head: Element, args: Sequence[sp.Expr]) -> Element:
        return self._el("mrow", head, self._mo(APPLY), self._fenced(*self._arguments(args)))

    def _arguments(self, args: Sequence[sp.Expr]) -> list[Element]:
        return [self._mo("\u2026") if a == DOTS else self.show(a) for a in args]

    def _subscript(self, base: Element, *below: Element) -> Element:
        return self._el("msub", base, self._row(*below))

    def _table(self, rows: Sequence[Sequence[sp.Expr]]) -> Element:
        lines = [self._el("mtr", *(self._el("mtd", self.show(e)) for e in row)) for row in rows]
        return self._fenced(self._el("mtable", *lines))
