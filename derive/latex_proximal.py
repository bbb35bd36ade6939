r"""Proximal operators and Moreau envelopes in LaTeX, with their losses stated beside the formula."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp
from sympy.printing.precedence import PRECEDENCE

from derive.free_letters import numbered
from derive.latex_statements import Statements, brackets, power_text
from derive.notation import latex_name
from derive.patterns import shortened
from derive.proximal import Confined, Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope

__all__ = ["LatexProximal"]

_HEADS: Mapping[type[sp.Expr], str] = {
    Prox: r"\mathrm{prox}",
    Moreau: r"\mathcal{M}",
    MoreauSlope: r"\mathcal{M}'",
    MoreauCurvature: r"\mathcal{M}''",
    VectorProx: r"\mathrm{prox}",
}


class LatexProximal(Statements):
    """Prints the nodes of losses."""

    def _print_Prox(self, e: Prox | Moreau | MoreauSlope | MoreauCurvature, exp: str | None = None) -> str:
        return rf"{_HEADS[type(e)]}_{{{self._step(e.loss, e.V)}}}{self._arguments([e.w])}{power_text(exp)}"

    _print_Moreau = _print_MoreauSlope = _print_MoreauCurvature = _print_Prox

    def _print_VectorProx(self, e: VectorProx | VectorMoreau | VectorSlope | VectorCurvature) -> str:
        r"""\mathcal{M}_{V \ell}(\vec{\omega}), \partial_{1} \mathcal{M} and \partial_{1} \partial_{2} \mathcal{M}."""
        numbers = [f"{i + 1}" for i in e.indices]
        node = rf"{_HEADS.get(type(e), _HEADS[Moreau])}_{{{self._step(e.loss, e.V)}}}{self._point(e.w)}"
        if isinstance(e, VectorProx):
            return f"{node}_{{{numbers[0]}}}"
        return "".join(rf"\partial_{{{i}}} " for i in numbers) + node

    _print_VectorMoreau = _print_VectorSlope = _print_VectorCurvature = _print_VectorProx

    def _print_Pow(self, expr: sp.Pow) -> str:
        if isinstance(expr.base, VectorSlope | VectorCurvature) and expr.exp.is_Integer and expr.exp.is_positive:
            return f"{brackets(self._print(expr.base))}^{{{expr.exp}}}"
        return str(super()._print_Pow(expr))

    def _point(self, w: sp.Tuple) -> str:
        r"""(\vec{\omega}), whose coordinates are stated beside the formula unless they are symbols or numbers."""
        letter = self.notation.points.get(w)
        if letter is None:
            return self._arguments(shortened(w))
        if self.is_new(w, letter):
            for name, coordinate in zip(numbered(letter, len(w)), w, strict=True):
                self._state(latex_name(name), "=", coordinate)
        return f"({latex_name(f'{letter}_vec')})"

    def _step(self, loss: sp.Lambda, V: sp.Expr) -> str:
        r"""V \ell(\cdot, y): the loss with its step, and what it reads of the variables around it.

        Of losses of several variables the latter is said where the loss is stated, not where it is used.
        """
        name, outer = self.loss(loss)
        shown, others = latex_name(name), self._names([self.scope.get(s, s.name) for s in outer])
        if self.is_new(loss, name):
            left = ", ".join([self._loss_variables(loss), *others])
            self._state(f"{shown}({left})", "=", loss.expr)
        numerator, denominator = sp.fraction(V)
        above = self.parenthesize(numerator, PRECEDENCE["Mul"], strict=True)
        below = self.parenthesize(denominator, PRECEDENCE["Mul"])
        if others and len(loss.variables) == 1:
            shown += rf"(\cdot, {', '.join(others)})"
        step = shown if above == "1" else f"{above} {shown}"
        return step + ("" if below == "1" else f" / {below}")

    def _loss_variables(self, loss: sp.Lambda) -> str:
        letter = self.notation.variable
        self.scope |= dict(zip(loss.variables, numbered(letter, len(loss.variables)), strict=True))
        return latex_name(letter if len(loss.variables) == 1 else f"{letter}_vec")

    def _print_Confined(self, e: Confined, exp: str | None = None) -> str:
        r"""\iota_{[0, \infty)}(u)."""
        inside, low, high = e.args
        ends = ", ".join(self._print(end) for end in dict.fromkeys((low, high)))
        left, right = "(" if low == -sp.oo else "[", ")" if high == sp.oo else "]"
        shown = rf"\{{{ends}\}}" if low == high else f"{left}{ends}{right}"
        return rf"\iota_{{{shown}}}{self._arguments([inside])}{power_text(exp)}"
