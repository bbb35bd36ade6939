"""Proximal operators and Moreau envelopes in MathML, with their losses stated beside the formula."""

from __future__ import annotations

from collections.abc import Mapping
from xml.dom.minidom import Element

import sympy as sp
from sympy.printing.precedence import PRECEDENCE

from derive.free_letters import numbered
from derive.mathml_elements import APPLY, DOT, TIMES, Elements
from derive.notation import split_name
from derive.patterns import shortened
from derive.proximal import Confined, Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope

__all__ = ["ProximalElements"]

_MOREAU, _PARTIAL, _IOTA, _INFINITY = "\u2133", "\u2202", "\u03b9", "\u221e"
_PRIMES: Mapping[type[sp.Expr], str] = {MoreauSlope: "\u2032", MoreauCurvature: "\u2033"}


class ProximalElements(Elements):
    """Prints the nodes of losses."""

    def _print_Prox(self, e: Prox | Moreau | MoreauSlope | MoreauCurvature) -> Element:
        step = self._step(e.loss, e.V)
        above = [self._mo(_PRIMES[type(e)])] if type(e) in _PRIMES else []
        return self._apply(self._el("msubsup" if above else "msub", self._operator(e), step, *above), [e.w])

    _print_Moreau = _print_MoreauSlope = _print_MoreauCurvature = _print_Prox

    def _print_VectorProx(self, e: VectorProx | VectorMoreau | VectorSlope | VectorCurvature) -> Element:
        numbers = [self._el("mn", f"{i + 1}") for i in e.indices]
        head = self._el("msub", self._operator(e), self._step(e.loss, e.V))
        node = self._el("mrow", head, self._mo(APPLY), self._point(e.w))
        if isinstance(e, VectorProx):
            return self._el("msub", node, numbers[0])
        return self._row(*(self._el("msub", self._mo(_PARTIAL), i) for i in numbers), node)

    _print_VectorMoreau = _print_VectorSlope = _print_VectorCurvature = _print_VectorProx

    def _operator(self, e: sp.Expr) -> Element:
        return self._upright("prox") if isinstance(e, Prox | VectorProx) else self._el("mi", _MOREAU)

    def _point(self, w: sp.Tuple) -> Element:
        """The point's letter, whose coordinates are stated beside the formula unless they are symbols or numbers."""
        letter = self.notation.points.get(w)
        if letter is None:
            return self._fenced(*self._arguments(shortened(w)))
        if self.is_new(w, letter):
            for name, coordinate in zip(numbered(letter, len(w)), w, strict=True):
                self._state(self._name(split_name(name)), "=", self.show(coordinate))
        return self._fenced(self._name(split_name(f"{letter}_vec")))

    def _step(self, loss: sp.Lambda, V: sp.Expr) -> Element:
        """V loss(., y): the loss with its step, and what it reads of the variables around it.

        Of losses of several variables the latter is said where the loss is stated, not where it is used.
        """
        name, outer = self.loss(loss)
        around = [self.scope.get(s, s.name) for s in outer]
        if self.is_new(loss, name):
            variables = [self._loss_variables(loss), *self._variables(around)]
            left = self._el("mrow", self._name(split_name(name)), self._mo(APPLY), self._fenced(*variables))
            self._state(left, "=", self.show(loss.expr))
        shown = self._name(split_name(name))
        if outer and len(loss.variables) == 1:
            shown = self._row(shown, self._mo(APPLY), self._fenced(self._mo(DOT), *self._variables(around)))
        numerator, denominator = sp.fraction(V)
        step = [self.parenthesize(numerator, PRECEDENCE["Mul"], strict=True), self._mo(TIMES)] if numerator != 1 else []
        step.append(shown)
        if denominator != 1:
            step += [self._mo("/"), self.parenthesize(denominator, PRECEDENCE["Mul"])]
        return self._row(*step)

    def _loss_variables(self, loss: sp.Lambda) -> Element:
        letter = self.notation.variable
        self.scope |= dict(zip(loss.variables, numbered(letter, len(loss.variables)), strict=True))
        return self._name(split_name(letter if len(loss.variables) == 1 else f"{letter}_vec"))

    def _print_Confined(self, e: Confined) -> Element:
        """The indicator of an interval, an iota."""
        inside, low, high = e.args
        ends = [self._end(end) for end in dict.fromkeys((low, high))]
        fence = ("(" if low == -sp.oo else "[") + (")" if high == sp.oo else "]")
        shown = self._fenced(*ends, fence="{}" if low == high else fence)
        return self._apply(self._el("msub", self._el("mi", _IOTA), shown), [inside])

    def _end(self, end: sp.Expr) -> Element:
        if end not in (sp.oo, -sp.oo):
            return self.show(end)
        infinity = self._mo(_INFINITY)
        return infinity if end == sp.oo else self._row(self._mo("\u2212"), infinity)
