"""Expectations, laws, minima, sums of independent terms and proximal operators in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE

from derive.expectation import Expectation
from derive.letters import BindingNode, Display, few, is_standard
from derive.measures import Gaussian, Measure, Pushforward
from derive.minimum import Minimum
from derive.notation import latex_name, ordered_terms
from derive.patterns import DOTS, Part, shortened
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.sums import PositiveSum

__all__ = ["Given", "LatexLaws", "brackets", "flat", "is_tall", "power_text"]

_TALL = re.compile(r"\\(frac|left|sqrt|begin|mathbb)")
_FLAT_BRACKETS = re.compile(r"\\left\(((?:(?!\\(?:left|right|frac|sqrt|begin|mathbb)).)*)\\right\)")
_WORD_AFTER_FACTOR = re.compile(r"(?<=[\w})]) \\mathrm(?=\{[a-z]{2})")
_PROXIMAL_HEADS: Mapping[type[sp.Expr], str] = {
    Prox: r"\mathrm{prox}",
    Moreau: r"\mathcal{M}",
    MoreauSlope: r"\mathcal{M}'",
    MoreauCurvature: r"\mathcal{M}''",
}


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


class LatexLaws(Display, LatexPrinter):
    """Prints nodes with variables of their own and keeps what is to be said of them beside the formula."""

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

    # ---- expectations

    def head(self, e: Expectation | Minimum) -> str:
        r"""\mathbb{E}_{x} or \min_{x}; from here on the variables have their letters, a law is among `laws()`."""
        names = self._variables(e)
        subscript = ", ".join(names)
        if isinstance(e, Minimum):
            return rf"\min_{{{subscript}}}"
        if isinstance(e.measure, Pushforward):
            self._state_law(e.measure, self.letter(e))
        elif not is_standard(e.measure):
            self._state(names[0] if len(names) == 1 else f"({subscript})", r"\sim", self._law(e.measure))
        return rf"\mathbb{{E}}_{{{subscript}}}"

    def _variables(self, e: BindingNode) -> list[str]:
        return [latex_name(n) if n else r"\ldots" for n in few(self.enter(e))]

    def _print_Expectation(self, e: Expectation) -> str:
        head = self.head(e)
        return rf"{head}\left[{self._print(e.integrand)}\right]"

    def _print_Minimum(self, e: Minimum) -> str:
        r"""\min_{x}\left[..\right], or \hat{x} where \hat{x} = \mathrm{arg}\,\min_{x}\left[..\right] is stated."""
        if not e.index:
            return rf"{self.head(e)}\left[{self._print(e.expr)}\right]"
        names = self.places(e)
        self._state(self._left(names), r"= \mathrm{arg}\,", e.place(0))
        return latex_name(names[e.index - 1])

    def sums(self, e: PositiveSum) -> tuple[str, list[str]]:
        r"""\mathbb{P}_{x}, and the terms, as \sum_{i=1}^{n} h(x_{i}), with a sign before all but the first."""
        (letter,) = self.enter(e)
        (variable,) = e.variables
        found: list[str] = []
        for j, (h, n) in enumerate(zip(e.inside, e.outside, strict=True)):
            first = letter if len(e.inside) == 1 else f"{letter}{j + 1}"
            self.scope |= {variable: first if n == 1 else f"{first}_i"}
            if n != 1:
                text = self.parenthesize(h, PRECEDENCE["Mul"], strict=True)
                found.append(rf"+ \sum_{{i=1}}^{{{self._print(n)}}} {text}")
                continue
            for t in ordered_terms(h) if h.is_Add else [h]:
                text = self._print(t)
                found.append(text if text.startswith("-") else f"+ {text}")
        return rf"\mathbb{{P}}_{{{latex_name(letter)}}}", [flat(found[0].removeprefix("+ ")), *map(flat, found[1:])]

    def _print_PositiveSum(self, e: PositiveSum) -> str:
        head, terms = self.sums(e)
        return rf"{head}\left[{' '.join(terms)} > 0\right]"

    def _state_law(self, law: Pushforward, letter: str) -> None:
        r"""g \sim \mathcal{N}(0, I_{n}), then what is computed from it."""
        said = self.law(law)
        if not self.is_new(said.whole, letter):
            return
        base = said.whole.base
        standard = is_standard(base) and base.dim > 1
        self._state(
            latex_name(said.inputs), r"\sim", rf"\mathcal{{N}}(0, I_{{{base.dim}}})" if standard else self._law(base)
        )
        for names, part in self.statements(law, letter):
            self._state(self._left(names), "=", self._softmax(part) if part.is_softmax else part.formulas[0])

    def _left(self, names: Sequence[str]) -> str:
        shown = ", ".join(latex_name(n) if n else r"\ldots" for n in few(names))
        return shown if len(names) == 1 else f"({shown})"

    def _softmax(self, part: Part) -> str:
        return r"\operatorname{softmax}" + self._arguments(shortened(part.formulas))

    # ---- proximal operators

    def _print_Prox(self, e: Prox | Moreau | MoreauSlope | MoreauCurvature, exp: str | None = None) -> str:
        name, outer = self.loss(e.loss)
        loss, others = latex_name(name), [self._print(s) for s in outer]
        if self.is_new(e.loss, name):
            (u,) = e.loss.variables
            self.scope |= {u: self.notation.variable}
            self._state(f"{loss}({', '.join([self._print(u), *others])})", "=", e.loss.expr)
        numerator, denominator = sp.fraction(e.V)
        above = self.parenthesize(numerator, PRECEDENCE["Mul"], strict=True)
        below = self.parenthesize(denominator, PRECEDENCE["Mul"])
        step = ("" if above == "1" else f"{above} ") + loss + (rf"(\cdot, {', '.join(others)})" if others else "")
        subscript = step + ("" if below == "1" else f" / {below}")
        return rf"{_PROXIMAL_HEADS[type(e)]}_{{{subscript}}}{self._arguments([e.w])}{power_text(exp)}"

    _print_Moreau = _print_MoreauSlope = _print_MoreauCurvature = _print_Prox

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
