"""Expectations, laws, minima and sums of independent terms in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp
from sympy.printing.precedence import PRECEDENCE

from derive.expectation import Expectation
from derive.latex_proximal import LatexProximal
from derive.latex_spectra import LatexSpectra
from derive.latex_statements import brackets, flat
from derive.letters import BindingNode, is_standard
from derive.measures import Gaussian, Measure, Pushforward
from derive.minimum import Minimum
from derive.notation import latex_name, ordered_terms
from derive.patterns import Part, shortened
from derive.spectra import Spectrum
from derive.sums import PositiveSum

__all__ = ["LatexLaws"]


class LatexLaws(LatexProximal, LatexSpectra):
    """Prints nodes with variables of their own."""

    def head(self, e: Expectation | Minimum) -> str:
        r"""\mathbb{E}_{x} or \min_{x}; from here on the variables have their letters, a law is among `laws()`."""
        names = self._variables(e)
        subscript = ", ".join(names)
        if isinstance(e, Minimum):
            return rf"\min_{{{subscript}}}"
        if isinstance(e.measure, Pushforward):
            self._state_law(e.measure, self.letter(e))
        elif isinstance(e.measure, Spectrum):
            self._state(names[0], r"\sim", self._called(e.measure))
            self._spectrum(e.measure)
        elif not is_standard(e.measure):
            self._state(names[0] if len(names) == 1 else f"({subscript})", r"\sim", self._law(e.measure))
        return rf"\mathbb{{E}}_{{{subscript}}}"

    def _variables(self, e: BindingNode) -> list[str]:
        return self._names(self.enter(e))

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

    def _softmax(self, part: Part) -> str:
        return r"\operatorname{softmax}" + self._arguments(shortened(part.formulas))

    # ---- laws

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
