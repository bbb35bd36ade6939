"""LaTeX as the field writes it; each formula compiles in TeX with amsmath and in matplotlib's mathtext."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE

from derive.equations import Define, Equation, Flow
from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, SoftmaxEntry
from derive.measures import Gaussian, Measure
from derive.notation import (
    Display,
    Notation,
    function_head,
    is_standard,
    is_wide,
    latex_name,
    matrix_rows,
    notation_for,
)

__all__ = ["Latex", "brackets", "latex_equation", "latex_expression", "left_hand_side"]

_TALL = re.compile(r"\\(frac|left|sqrt|begin|mathbb)")
_FLAT_BRACKETS = re.compile(r"\\left\(((?:(?!\\(?:left|right|frac|sqrt|begin|mathbb)).)*)\\right\)")
_WORD_AFTER_FACTOR = re.compile(r"(?<=[\w})]) \\mathrm(?=\{[a-z]{2})")
_POWER_ON_HEAD = (sp.sin, sp.cos, sp.tan, sp.sinh, sp.cosh, sp.tanh)
_WITHOUT_BRACKETS = (sp.log, LogCosh)


def brackets(text: str) -> str:
    """Round brackets, growing ones around what is tall."""
    return rf"\left({text}\right)" if _TALL.search(text) else f"({text})"


class Latex(Display, LatexPrinter):
    r"""SymPy's LaTeX printer with the field's notation; `matrices=False` avoids \begin{pmatrix} for mathtext.

    `notation` comes from `derive.notation.notation_for`.
    """

    def __init__(self, notation: Notation, *, matrices: bool = True) -> None:
        LatexPrinter.__init__(self)
        self.notation = notation
        self.matrices = matrices
        self.scope = {}
        self._laws: dict[str, None] = {}

    def laws(self) -> tuple[str, ...]:
        r"""The laws met so far that are not standard normal: "x \sim \mathcal{N}(0, q)"."""
        return tuple(self._laws)

    def doprint(self, expr: sp.Basic) -> str:
        """The formula, with brackets that grow only where they must."""
        text, count = str(super().doprint(expr)), 1
        while count:
            text, count = _FLAT_BRACKETS.subn(r"(\1)", text)
        return _WORD_AFTER_FACTOR.sub(r" \, \\mathrm", text)

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
        wide = [a for a in expr.args if is_wide(a)]
        rest = [a for a in expr.args if not is_wide(a)]
        if not wide or sp.fraction(sp.Mul(*rest))[1] == 1:
            return str(super()._print_Mul(expr))
        after = " ".join(self.parenthesize(a, PRECEDENCE["Mul"]) for a in wide)
        return f"{self._print(sp.Mul(*rest))} {after}"

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> str:
        return latex_name(self.scope.get(expr, expr.name))

    # ---- expectations

    def expectation_head(self, e: Expectation) -> str:
        r"""\mathbb{E}_{x}; from here on the variables have their letters, and the law is among `laws()`."""
        names = [latex_name(n) for n in self.enter(e)]
        if not is_standard(e.measure):
            left = names[0] if len(names) == 1 else f"({', '.join(names)})"
            self._laws[rf"{left} \sim {self._law(e.measure)}"] = None
        return rf"\mathbb{{E}}_{{{', '.join(names)}}}"

    def _print_Expectation(self, e: Expectation) -> str:
        head = self.expectation_head(e)
        return rf"{head}\left[{self._print(e.integrand)}\right]"

    def _law(self, law: Measure) -> str:
        if not isinstance(law, Gaussian):
            name = rf"\operatorname{{{type(law).__name__}}}"
            return name + brackets(", ".join(self._print(a) for a in law.args))
        if law.dim == 1:
            return rf"\mathcal{{N}}{brackets(f'{self._print(law.mean[0])}, {self._print(law.cov[0, 0])}')}"
        if self.matrices:
            mean = self._matrix([[m] for m in law.mean]) if any(law.mean) else "0"
            return rf"\mathcal{{N}}\left({mean}, {self._matrix(law.cov.tolist())}\right)"
        mean = brackets(", ".join(map(self._print, law.mean))) if any(law.mean) else "0"
        arguments = brackets(mean + r", \operatorname{Cov}")
        return rf"\mathcal{{N}}{arguments},\ {self._covariances(law)}"

    def _matrix(self, rows: Sequence[Sequence[sp.Expr]]) -> str:
        body = r" \\ ".join(" & ".join(map(self._print, row)) for row in rows)
        return rf"\begin{{pmatrix}}{body}\end{{pmatrix}}"

    def _covariances(self, law: Gaussian) -> str:
        r"""\operatorname{Cov}_{11} = \operatorname{Cov}_{22} = 1, ...: equal entries together, zeros left out."""
        equal: dict[sp.Expr, list[str]] = {}
        for i in range(law.dim):
            for j in range(i, law.dim):
                comma = "," if law.dim > 9 else ""
                equal.setdefault(law.cov[i, j], []).append(rf"\operatorname{{Cov}}_{{{i + 1}{comma}{j + 1}}}")
        stated = [" = ".join([*who, self._print(value)]) for value, who in equal.items() if value != 0]
        return r",\ ".join(stated)

    # ---- functions

    def _print_Function(self, expr: sp.Function, exp: str | None = None) -> str:
        head = function_head(expr)[0]
        if exp and exp.isdigit() and isinstance(expr, _POWER_ON_HEAD):
            return rf"{head}^{{{exp}}}{self._arguments(expr.args)}"
        return head + self._arguments(expr.args) + _power(exp)

    def _arguments(self, args: Sequence[sp.Expr]) -> str:
        return brackets(", ".join(map(self._print, args)))

    def _print_log(self, expr: sp.Function, exp: str | None = None) -> str:
        (x,) = expr.args
        simple = x.is_Symbol or (x.is_Integer and x.is_positive)
        text = function_head(expr)[0] + (f" {self._print(x)}" if simple else self._arguments(expr.args))
        return text if exp is None else brackets(text) + _power(exp)

    _print_LogCosh = _print_log

    def _print_exp(self, expr: sp.Function, exp: str | None = None) -> str:
        (x,) = expr.args
        self._settings["fold_short_frac"] = True
        power = self._print(x)
        self._settings["fold_short_frac"] = None
        if not self.notation.power_of_e or exp is not None or _TALL.search(power) or len(power) > 40:
            return self._print_Function(expr, exp)
        return f"e^{{{power}}}"

    def _print_He(self, expr: He, exp: str | None = None) -> str:
        n, x = expr.args
        return rf"{function_head(expr)[0]}_{{{n}}}{self._arguments([x])}{_power(exp)}"

    def _print_SoftmaxEntry(self, expr: SoftmaxEntry, exp: str | None = None) -> str:
        return rf"{function_head(expr)[0]}_{{1}}{self._arguments(expr.args)}{_power(exp)}"

    def _print_LargestEigenvalue(self, expr: LargestEigenvalue, exp: str | None = None) -> str:
        rows = matrix_rows(expr)
        lists = ", ".join(f"[{', '.join(map(self._print, row))}]" for row in rows)
        argument = self._matrix(rows) if self.matrices else brackets(lists)
        return rf"{function_head(expr)[0]}{argument}{_power(exp)}"

    def _print_Max(self, expr: sp.Function, exp: str | None = None) -> str:
        return self._print_Function(expr, exp)

    _print_Min = _print_Max

    def _print_Heaviside(self, expr: sp.Heaviside, exp: str | None = None) -> str:
        return rf"\mathbf{{1}}[{self._print(expr.args[0])} > 0]{_power(exp)}"

    def _print_DiracDelta(self, expr: sp.DiracDelta, exp: str | None = None) -> str:
        order = int(expr.args[1]) if len(expr.args) > 1 else 0
        mark = "'" * order if order < 4 else rf"^{{({order})}}"
        return rf"\delta{mark}{self._arguments(expr.args[:1])}{_power(exp)}"


def _power(exp: str | None) -> str:
    return "" if exp is None else f"^{{{exp}}}"


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
