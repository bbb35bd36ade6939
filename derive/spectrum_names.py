"""How laws of eigenvalues are called on paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import sympy as sp

from derive.expectation import Expectation
from derive.free_letters import Names, numbered
from derive.patterns import nodes_of
from derive.spectra import Atoms, FreeConvolution, HilbertTransform, SpectralDensity, Spectrum

__all__ = ["MOST_ATOMS", "SpectrumNames", "decimal", "is_semicircle", "named_spectra"]

MOST_ATOMS = 4
"""How many are shown."""
_LAWS = ("mu", "nu", "tau", "chi")
_TRANSFORMS = ("H", "G", "K")
_DENSITIES = ("rho", "f", "p")
_INTEGRATED = ("s", "t", "r")


@dataclass(frozen=True)
class SpectrumNames:
    """names: of laws but semicircles. hilbert, density: letters of these functions; integrated: of what they sum."""

    names: Mapping[Spectrum, str] = field(default_factory=dict)
    hilbert: str = "H"
    density: str = "rho"
    integrated: str = "s"


def is_semicircle(law: Spectrum) -> bool:
    """Whether it is Wigner's law."""
    return isinstance(law, FreeConvolution) and law.base == Atoms([0], [1])


def named_spectra(exprs: Iterable[sp.Basic], names: Names) -> SpectrumNames:
    """One letter for each law that is no free convolution, with the index 0; its convolutions have the letter alone.

    They are numbered where there are several: mu0, mu1, mu2. A law and its convolutions stand together.
    """
    exprs = tuple(exprs)
    functions = [f for e in exprs for f in nodes_of(e, HilbertTransform, SpectralDensity)]
    laws = sorted({law for law in _used(exprs, functions) if not is_semicircle(law)}, key=sp.default_sort_key)
    found: dict[Spectrum, str] = {}
    for base in dict.fromkeys(_base(law) for law in laws):
        letter = names.take(_LAWS)
        sums = [law for law in laws if isinstance(law, FreeConvolution) and law.base == base]
        found[base] = f"{letter}0"
        found |= dict(zip(sums, numbered(letter, len(sums)), strict=True))
    kinds = set(map(type, functions))
    return SpectrumNames(
        found,
        names.take(_TRANSFORMS) if HilbertTransform in kinds else _TRANSFORMS[0],
        names.take(_DENSITIES) if SpectralDensity in kinds else _DENSITIES[0],
        names.take(_INTEGRATED) if HilbertTransform in kinds else _INTEGRATED[0],
    )


def _used(exprs: Iterable[sp.Basic], functions: Iterable[HilbertTransform | SpectralDensity]) -> Iterator[Spectrum]:
    yield from (f.law for f in functions)
    for e in exprs:
        yield from (x.measure for x in nodes_of(e, Expectation) if isinstance(x.measure, Spectrum))
        if isinstance(e, Spectrum):
            yield e


def _base(law: Spectrum) -> Spectrum:
    return law.base if isinstance(law, FreeConvolution) else law


def decimal(value: float) -> tuple[str, int, bool]:
    """Six digits of a number, the power of ten beside them where there is one, and whether this is all of it.

    >>> decimal(0.25), decimal(-1.5e-9), decimal(1 / 3)
    (('0.25', 0, True), ('-1.5', -9, True), ('0.333333', 0, False))
    """
    shown = f"{value:.6g}"
    mantissa, _, exponent = shown.partition("e")
    return mantissa, int(exponent or 0), float(shown) == value
