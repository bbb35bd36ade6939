"""Expectations, laws, minima and sums of independent terms in MathML."""

from __future__ import annotations

from collections.abc import Sequence
from xml.dom.minidom import Element

from sympy.printing.precedence import PRECEDENCE

from derive.expectation import Expectation
from derive.letters import is_standard
from derive.mathml_elements import APPLY
from derive.mathml_proximal import ProximalElements
from derive.mathml_spectra import SpectraElements
from derive.measures import Gaussian, Measure, Pushforward
from derive.minimum import Minimum
from derive.notation import split_name
from derive.patterns import shortened
from derive.spectra import Spectrum
from derive.sums import PositiveSum

__all__ = ["Laws"]

_EXPECTATION, _NORMAL = "\U0001d53c", "\U0001d4a9"


class Laws(ProximalElements, SpectraElements):
    """Prints nodes with variables of their own."""

    def _print_Expectation(self, e: Expectation) -> Element:
        names = self.enter(e)
        body = self.show(e.integrand)
        self.scope |= dict(zip(e.variables, names, strict=True))
        if isinstance(e.measure, Pushforward):
            self._state_law(e.measure, self.letter(e))
        elif isinstance(e.measure, Spectrum):
            self._state(self._tuple(names), "\u223c", self._called(e.measure))
            self._spectrum(e.measure)
        elif not is_standard(e.measure):
            self._state(self._tuple(names), "\u223c", self._law(e.measure))
        return self._under(self._upright(_EXPECTATION), names, body)

    def _under(self, sign: Element, names: Sequence[str], body: Element) -> Element:
        head = self._el("msub", sign, self._row(*self._separated(self._variables(names))))
        return self._el("mrow", head, self._mo(APPLY), self._fenced(body, fence="[]"))

    def _tuple(self, names: Sequence[str]) -> Element:
        variables = self._variables(names)
        return variables[0] if len(names) == 1 else self._fenced(*variables)

    def _state_law(self, law: Pushforward, letter: str) -> None:
        said = self.law(law)
        if not self.is_new(said.whole, letter):
            return
        base = said.whole.base
        unit = self._el("msub", self._el("mi", "I"), self._el("mn", str(base.dim)))
        standard = self._el("mrow", self._upright(_NORMAL), self._mo(APPLY), self._fenced(self._el("mn", "0"), unit))
        shown = standard if is_standard(base) and base.dim > 1 else self._law(base)
        self._state(self._name(split_name(said.inputs)), "\u223c", shown)
        for names, part in self.statements(law, letter):
            softmax = part.is_softmax and self._apply(self._upright("softmax"), shortened(part.formulas))
            self._state(self._tuple(names), "=", softmax or self.show(part.formulas[0]))

    def _print_Minimum(self, e: Minimum) -> Element:
        if not e.index:
            names = self.enter(e)
            return self._under(self._upright("min"), names, self.show(e.expr))
        names = self.places(e)
        least = self._row(self._upright("arg"), self._thin_space(), self.show(e.place(0)))
        self._state(self._tuple(names), "=", least)
        return self._name(split_name(names[e.index - 1]))

    def _print_PositiveSum(self, e: PositiveSum) -> Element:
        (letter,) = self.enter(e)
        (variable,) = e.variables
        parts: list[Element] = []
        for j, (h, n) in enumerate(zip(e.inside, e.outside, strict=True)):
            first = letter if len(e.inside) == 1 else f"{letter}{j + 1}"
            self.scope |= {variable: first if n == 1 else f"{first}_i"}
            parts += [self._mo("+")] if j else []
            if n != 1:
                start = self._row(self._el("mi", "i"), self._mo("="), self._el("mn", "1"))
                parts.append(self._el("munderover", self._mo("\u2211"), start, self.show(n)))
            bare = n == 1 and j == 0
            parts.append(self.show(h) if bare else self.parenthesize(h, PRECEDENCE["Mul"], strict=True))
        body = self._row(*parts, self._mo(">"), self._el("mn", "0"))
        return self._under(self._upright("\u2119"), (letter,), body)

    def _law(self, law: Measure) -> Element:
        if not isinstance(law, Gaussian):
            return self._apply(self._upright(type(law).__name__), law.args)
        if law.dim == 1:
            arguments = [self.show(law.mean[0]), self.show(law.cov[0, 0])]
        else:
            mean = self._table([[m] for m in law.mean]) if any(law.mean) else self._el("mn", "0")
            arguments = [mean, self._table(law.cov.tolist())]
        return self._el("mrow", self._upright(_NORMAL), self._mo(APPLY), self._fenced(*arguments))
