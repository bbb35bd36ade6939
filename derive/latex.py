"""LaTeX as the field writes it; each formula compiles in TeX with amsmath and in matplotlib's mathtext."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE

from derive.equations import Define, Equation, Flow
from derive.functions import He, LargestEigenvalue, LogCosh, SoftmaxEntry
from derive.latex_laws import LatexLaws
from derive.latex_statements import brackets, is_tall, power_text
from derive.letters import Notation, notation_for
from derive.notation import function_head, is_wide, latex_name, matrix_rows
from derive.patterns import by_index, shortened
from derive.spectrum import SechSpectrum

__all__ = ["Latex", "latex_equation", "latex_expression", "left_hand_side"]

_POWER_ON_HEAD = (sp.sin, sp.cos, sp.tan, sp.sinh, sp.cosh, sp.tanh)
_WITHOUT_BRACKETS = (sp.log, LogCosh)


class Latex(LatexLaws):
    r"""SymPy's LaTeX printer with the field's notation; `matrices=False` avoids \begin{pmatrix} for mathtext.

    `notation` comes from `derive.letters.notation_for`; `stated` holds what formulas before have stated.
    """

    def __init__(self, notation: Notation, *, matrices: bool = True, stated: set[object] | None = None) -> None:
        LatexPrinter.__init__(self)
        self.notation = notation
        self.matrices = matrices
        self.scope = {}
        self.stated = set() if stated is None else stated
        self._given = {}

    def _print(self, expr: sp.Basic, **kwargs: Any) -> str:
        if expr is sp.E and not self.notation.power_of_e:  # the number has LaTeX of its own, which has precedence
            return r"\exp(1)"
        return str(super()._print(expr, **kwargs))

    def _add_parens(self, s: str) -> str:
        return brackets(s)

    _add_parens_lspace = _add_parens

    def _needs_mul_brackets(self, expr: sp.Expr, first: bool = False, last: bool = False) -> bool:
        open_ended = isinstance(expr, _WITHOUT_BRACKETS) and not last
        return open_ended or bool(super()._needs_mul_brackets(expr, first=first, last=last))

    def _print_Mul(self, expr: sp.Mul) -> str:
        """Expectations and long sums stand after the fraction, not in it."""
        if any(isinstance(a, SechSpectrum) for a in expr.args):
            return self._print(SechSpectrum.written_out(expr))
        wide = [a for a in expr.args if is_wide(a)]
        rest = [a for a in expr.args if not is_wide(a)]
        if not wide or sp.fraction(sp.Mul(*rest))[1] == 1:
            return str(super()._print_Mul(expr))
        after = " ".join(self.parenthesize(a, PRECEDENCE["Mul"]) for a in wide)
        return f"{self._print(sp.Mul(*rest))} {after}"

    # ---- functions

    def _print_Function(self, expr: sp.Function, exp: str | None = None) -> str:
        head = function_head(expr)[0]
        if exp and exp.isdigit() and isinstance(expr, _POWER_ON_HEAD):
            return rf"{head}^{{{exp}}}{self._arguments(expr.args)}"
        return head + self._arguments(expr.args) + power_text(exp)

    def _print_log(self, expr: sp.Function, exp: str | None = None) -> str:
        (x,) = expr.args
        simple = x.is_Symbol or (x.is_Integer and x.is_positive)
        text = function_head(expr)[0] + (f" {self._print(x)}" if simple else self._arguments(expr.args))
        return text if exp is None else brackets(text) + power_text(exp)

    _print_LogCosh = _print_log

    def _print_SechSpectrum(self, expr: SechSpectrum, exp: str | None = None) -> str:
        text = self._print(expr.elementary())
        return text if exp is None else brackets(text) + power_text(exp)

    def _print_exp(self, expr: sp.Function, exp: str | None = None) -> str:
        (x,) = expr.args
        self._settings["fold_short_frac"] = True
        power = self._print(x)
        self._settings["fold_short_frac"] = None
        if not self.notation.power_of_e or exp is not None or is_tall(power) or len(power) > 40:
            return self._print_Function(expr, exp)
        return f"e^{{{power}}}"

    def _print_He(self, expr: He, exp: str | None = None) -> str:
        n, x = expr.args
        return rf"{function_head(expr)[0]}_{{{n}}}{self._arguments([x])}{power_text(exp)}"

    def _print_SoftmaxEntry(self, expr: SoftmaxEntry, exp: str | None = None) -> str:
        own, *others = expr.args
        return rf"{function_head(expr)[0]}_{{1}}{self._arguments([own, *shortened(by_index(others))])}{power_text(exp)}"

    def _print_LargestEigenvalue(self, expr: LargestEigenvalue, exp: str | None = None) -> str:
        rows = matrix_rows(expr)
        lists = ", ".join(f"[{', '.join(map(self._print, row))}]" for row in rows)
        argument = self._matrix(rows) if self.matrices else brackets(lists)
        return rf"{function_head(expr)[0]}{argument}{power_text(exp)}"

    def _print_Max(self, expr: sp.Function, exp: str | None = None) -> str:
        return self._print_Function(expr, exp)

    _print_Min = _print_Max

    def _print_Heaviside(self, expr: sp.Heaviside, exp: str | None = None) -> str:
        return rf"\mathbf{{1}}[{self._print(expr.args[0])} > 0]{power_text(exp)}"

    def _print_DiracDelta(self, expr: sp.DiracDelta, exp: str | None = None) -> str:
        order = int(expr.args[1]) if len(expr.args) > 1 else 0
        mark = "'" * order if order < 4 else rf"^{{({order})}}"
        return rf"\delta{mark}{self._arguments(expr.args[:1])}{power_text(exp)}"


def latex_expression(expr: sp.Expr) -> str:
    r"""An expression alone: log(x)**2 -> (\log x)^{2}; the laws of its expectations are not stated.

    >>> x = sp.Symbol("x")
    >>> print(latex_expression(sp.log(x) ** 2), latex_expression(He(3, x)))
    (\log x)^{2} \mathrm{He}_{3}(x)
    """
    return Latex(notation_for([expr]), matrices=False).doprint(expr)


def left_hand_side(equation: Equation) -> str:
    r"""What stands before the equals sign: the unknown, \frac{\mathrm{d} m}{\mathrm{d}\tau}, or 0."""
    name = latex_name(equation.unknown.symbol.name)
    if isinstance(equation, Define):
        return name
    return rf"\frac{{\mathrm{{d}} {name}}}{{\mathrm{{d}}\tau}}" if isinstance(equation, Flow) else "0"


def latex_equation(equation: Equation) -> str:
    r"""One equation on one line, for mathtext too: m = \mathbb{E}_{x}\left[..\right]\quad\mathrm{with}\ x \sim .."""
    printer = Latex(notation_for([equation.rhs], [equation.unknown.symbol]), matrices=False)
    formula = f"{left_hand_side(equation)} = {printer.doprint(equation.rhs)}"
    laws = r",\quad ".join(printer.laws())
    return formula + (rf"\quad\mathrm{{with}}\ {laws}" if laws else "")
