r"""What is said beside a formula in LaTeX, and brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp
from sympy.printing.latex import LatexPrinter

from derive.display import Display, few
from derive.notation import latex_name
from derive.patterns import DOTS

__all__ = ["Given", "Statements", "brackets", "flat", "is_tall", "power_text"]

_TALL = re.compile(r"\\(frac|left|sqrt|begin|mathbb)")
_FLAT_BRACKETS = re.compile(r"\\left\(((?:(?!\\(?:left|right|frac|sqrt|begin|mathbb)).)*)\\right\)")
_WORD_AFTER_FACTOR = re.compile(r"(?<=[\w})]) \\mathrm(?=\{[a-z]{2})")


def brackets(text: str) -> str:
    """Round brackets, growing ones around what is tall."""
    return rf"\left({text}\right)" if _TALL.search(text) else f"({text})"


def flat(text: str) -> str:
    """The formula with brackets that grow only where they must, and words apart from what stands before."""
    count = 1
    while count:
        text, count = _FLAT_BRACKETS.subn(r"(\1)", text)
    return _WORD_AFTER_FACTOR.sub(r" \, \\mathrm", text)


@dataclass(frozen=True)
class Given:
    """What is said beside a formula: text, or an equation whose right-hand side is this expression in this scope."""

    text: str
    left: str
    right: sp.Expr | None
    scope: Mapping[sp.Symbol, str]


def is_tall(text: str) -> bool:
    """Whether a formula needs brackets that grow."""
    return bool(_TALL.search(text))


def power_text(exp: str | None) -> str:
    """The exponent that stands behind a function."""
    return "" if exp is None else f"^{{{exp}}}"


class Statements(Display, LatexPrinter):
    """A LaTeX printer that keeps what is to be said beside a formula."""

    matrices: bool
    _given: dict[str, Given]

    def given(self) -> tuple[Given, ...]:
        r"""What is to be said of the formulas so far: laws that are not standard normal, losses."""
        return tuple(self._given.values())

    def laws(self) -> tuple[str, ...]:
        r"""The texts of these: "x \sim \mathcal{N}(0, q)", "\ell(u) = .."."""
        return tuple(self._given)

    def _state(self, left: str, sign: str, right: str | sp.Expr) -> None:
        scope = dict(self.scope)
        shown = flat(right) if isinstance(right, str) else self.doprint(right)
        text = f"{left} {sign} {shown}"
        self._given.setdefault(text, Given(text, f"{left} {sign}", None if isinstance(right, str) else right, scope))

    def doprint(self, expr: sp.Basic) -> str:
        """The formula, with brackets that grow only where they must."""
        return flat(str(super().doprint(expr)))

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> str:
        if expr == DOTS:
            return r"\cdots"
        return latex_name(self.scope.get(expr, expr.name))

    def _arguments(self, args: Sequence[sp.Expr]) -> str:
        return brackets(", ".join(r"\ldots" if a == DOTS else self._print(a) for a in args))

    def _left(self, names: Sequence[str]) -> str:
        shown = ", ".join(self._names(names))
        return shown if len(names) == 1 else f"({shown})"

    def _names(self, names: Sequence[str]) -> list[str]:
        return [latex_name(n) if n else r"\ldots" for n in few(names)]
