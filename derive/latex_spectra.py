r"""Laws of eigenvalues in LaTeX: \mu = \mu_{0} \boxplus \mu_{\mathrm{sc}, \delta^{2}} is stated beside the formula."""

from __future__ import annotations

import sympy as sp

from derive.latex_statements import Statements, brackets, power_text
from derive.notation import latex_name
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

__all__ = ["LatexSpectra"]

_INDEX = "i"


class LatexSpectra(Statements):
    """Prints laws of eigenvalues, their densities and Hilbert transforms."""

    def _called(self, law: Spectrum) -> str:
        r"""\mu, or \mu_{\mathrm{sc}, t} for a semicircle."""
        if isinstance(law, FreeConvolution) and is_semicircle(law):
            return self._semicircle(law.variance)
        return latex_name(self.spectrum(law))

    def _spectrum(self, law: Spectrum) -> str:
        r"""Its name; what it is, is stated beside the formula."""
        name = self._called(law)
        if not is_semicircle(law) and self.is_new(law, name):
            self._define(law, name)
        return name

    def _semicircle(self, variance: sp.Expr) -> str:
        return rf"\mu_{{\mathrm{{sc}}, {self._print(variance)}}}"

    def _define(self, law: Spectrum, name: str) -> None:
        match law:
            case FreeConvolution():
                self._state(name, "=", rf"{self._called(law.base)} \boxplus {self._semicircle(law.variance)}")
                self._spectrum(law.base)
            case Wishart():
                self._state(name, "=", r"\operatorname{Marchenko-Pastur}" + brackets(self._print(law.kappa0)))
            case PowerLaw():
                values = self._print(sp.sqrt(law.count)) + rf" \, {_INDEX}^{{{self._print(-law.gamma)}}}"
                self._state(name, "=", rf"\operatorname{{law}}({values}),\ {self._uniform(self._print(law.count))}")
            case Atoms():
                masses = [rf"{name}(\{{{self._print(x)}\}}) = {self._print(w)}" for x, w in zip(*law.args, strict=True)]
                shown = masses if len(masses) <= MOST_ATOMS else [masses[0], r"\ldots", masses[-1]]
                first, _, others = r",\ ".join(shown).partition(" = ")
                self._state(first, "=", others)
            case Listed():
                values, count = law.values, str(len(law.values))
                ends = [rf"s_{{{i}}} {_equal(x)}" for i, x in {"1": values[0], count: values[-1]}.items()]
                parts = [rf"\operatorname{{law}}(s_{{{_INDEX}}})", self._uniform(count), r", \ldots, ".join(ends)]
                self._state(name, "=", r",\ ".join(parts))

    def _uniform(self, count: str) -> str:
        return rf"{_INDEX} \sim \mathcal{{U}}\{{1, \ldots, {count}\}}"

    def _print_HilbertTransform(self, e: HilbertTransform, exp: str | None = None) -> str:
        r"""H_{\mu}(x); beside the formula, that it is a principal value."""
        names, law = self.notation.spectra, self._spectrum(e.law)
        head, s = rf"{latex_name(names.hilbert)}_{{{law}}}", latex_name(names.integrated)
        integral = rf"\mathrm{{p.v.}} \int \frac{{{law}(\mathrm{{d}} {s})}}{{x - {s}}}"
        if self.is_new(e.law, head):
            self._state(f"{head}(x)", "=", integral)
        return head + self._arguments([e.x]) + power_text(exp)

    def _print_SpectralDensity(self, e: SpectralDensity, exp: str | None = None) -> str:
        r"""\rho_{\mu}(x), the density of the continuous part."""
        law = self._spectrum(e.law)
        head = rf"{latex_name(self.notation.spectra.density)}_{{{law}}}"
        if self.is_new(e.law, head):
            self._state(f"{head}(x)", "=", rf"\frac{{{law}(\mathrm{{d}} x)}}{{\mathrm{{d}} x}}")
        return head + self._arguments([e.x]) + power_text(exp)


def _equal(value: float) -> str:
    """= 0.25, or \\approx 0.333333."""
    mantissa, exponent, exact = decimal(value)
    return ("= " if exact else r"\approx ") + mantissa + (rf" \cdot 10^{{{exponent}}}" if exponent else "")
