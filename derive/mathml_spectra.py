"""Laws of eigenvalues in MathML, stated beside the formula; their densities and Hilbert transforms."""

from __future__ import annotations

from xml.dom.minidom import Element

import sympy as sp

from derive.mathml_elements import APPLY, TIMES, Elements
from derive.notation import split_name
from derive.spectra import (
    Atoms,
    FreeConvolution,
    HilbertTransform,
    Listed,
    PowerLaw,
    SpectralDensity,
    Spectrum,
    Wishart,
)
from derive.spectrum_names import MOST_ATOMS, decimal, is_semicircle

__all__ = ["SpectraElements"]

_BOXPLUS, _DISTRIBUTED, _DOTS, _INTEGRAL, _UNIFORM = "\u229e", "\u223c", "\u2026", "\u222b", "\U0001d4b0"
_PLACE = sp.Symbol("x")


class SpectraElements(Elements):
    """Prints laws of eigenvalues, their densities and Hilbert transforms."""

    def _called(self, law: Spectrum) -> Element:
        if isinstance(law, FreeConvolution) and is_semicircle(law):
            return self._semicircle(law.variance)
        return self._name(split_name(self.spectrum(law)))

    def _spectrum(self, law: Spectrum) -> Element:
        """Its name; what it is, is stated beside the formula."""
        if not is_semicircle(law) and self.is_new(law, self.spectrum(law)):
            self._define(law)
        return self._called(law)

    def _semicircle(self, variance: sp.Expr) -> Element:
        return self._subscript(self._el("mi", "\u03bc"), *self._separated([self._upright("sc"), self.show(variance)]))

    def _define(self, law: Spectrum) -> None:
        match law:
            case FreeConvolution():
                both = self._called(law.base), self._mo(_BOXPLUS), self._semicircle(law.variance)
                self._state(self._called(law), "=", self._row(*both))
                self._spectrum(law.base)
            case Wishart():
                self._state(self._called(law), "=", self._apply(self._upright("Marchenko\u2013Pastur"), [law.kappa0]))
            case PowerLaw():
                power = self._el("msup", self._el("mi", "i"), self.show(-law.gamma))
                values = self._row(self.show(sp.sqrt(law.count)), self._mo(TIMES), power)
                self._state(self._called(law), "=", self._law_of(values, self.show(law.count)))
            case Atoms():
                self._masses(law)
            case Listed():
                self._list(law)

    def _list(self, law: Listed) -> None:
        values, each = law.values, self._el("msub", self._el("mi", "s"), self._el("mi", "i"))
        self._state(self._called(law), "=", self._law_of(each, self._el("mn", str(len(values)))))
        for i, value in {1: values[0], len(values): values[-1]}.items():
            mantissa, exponent, exact = decimal(value)
            left = self._el("msub", self._el("mi", "s"), self._el("mn", str(i)))
            self._state(left, "=" if exact else "\u2248", self._scientific(mantissa, exponent))

    def _masses(self, law: Atoms) -> None:
        pairs = list(zip(*law.args, strict=True))
        for x, weight in pairs if len(pairs) <= MOST_ATOMS else [pairs[0], pairs[-1]]:
            place = self._fenced(self._fenced(self.show(x), fence="{}"))
            self._state(self._el("mrow", self._called(law), self._mo(APPLY), place), "=", self.show(weight))

    def _law_of(self, values: Element, count: Element) -> Element:
        """The law of numbers with an index that is uniform."""
        head = self._el("mrow", self._upright("law"), self._mo(APPLY), self._fenced(values))
        places = self._fenced(self._el("mn", "1"), self._mo(_DOTS), count, fence="{}")
        uniform = self._row(self._el("mi", "i"), self._mo(_DISTRIBUTED), self._el("mi", _UNIFORM), places)
        return self._row(*self._separated([head, uniform]))

    def _scientific(self, mantissa: str, exponent: int) -> Element:
        digits = self._el("mn", mantissa.replace("-", "\u2212"))
        if not exponent:
            return digits
        ten = self._el("msup", self._el("mn", "10"), self._el("mn", str(exponent).replace("-", "\u2212")))
        return self._row(digits, self._mo("\u22c5"), ten)

    def _print_HilbertTransform(self, e: HilbertTransform) -> Element:
        names = self.notation.spectra
        self._spectrum(e.law)
        if self.is_new(e.law, names.hilbert):
            s = sp.Symbol(names.integrated)
            below = self._row(self.show(_PLACE), self._mo("\u2212"), self.show(s))
            fraction = self._el("mfrac", self._measure(e.law, s), below)
            whole = self._row(self._upright("p.v."), self._thin_space(), self._mo(_INTEGRAL), fraction)
            self._state(self._function(names.hilbert, e.law, _PLACE), "=", whole)
        return self._function(names.hilbert, e.law, e.x)

    def _print_SpectralDensity(self, e: SpectralDensity) -> Element:
        name = self.notation.spectra.density
        self._spectrum(e.law)
        if self.is_new(e.law, name):
            fraction = self._el("mfrac", self._measure(e.law, _PLACE), self._differential(_PLACE))
            self._state(self._function(name, e.law, _PLACE), "=", fraction)
        return self._function(name, e.law, e.x)

    def _function(self, name: str, law: Spectrum, x: sp.Expr) -> Element:
        return self._apply(self._subscript(self._name(split_name(name)), self._called(law)), [x])

    def _measure(self, law: Spectrum, x: sp.Symbol) -> Element:
        return self._el("mrow", self._called(law), self._mo(APPLY), self._fenced(self._differential(x)))

    def _differential(self, x: sp.Symbol) -> Element:
        return self._row(self._upright("d"), self.show(x))
