"""Expectations over the eigenvalues of a spectrum, by the nodes of its free convolution or its atoms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from derive.expectation import Expectation
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
from derive.table import Unsupported
from solve.base_spectra import AbstractBase, AtomicBase, WishartBase
from solve.free_convolution import Convolved, Nodes, convolve
from solve.kinks import smoothness
from solve.nodes import Array
from solve.quadrature import Estimate

__all__ = ["SpectralGroup", "base_spectrum", "convolved", "spectral_groups", "spectrum_parameters"]

_KEPT = 64
_ROUNDING = 1e-15
Function = Callable[[list[Any]], Sequence[tuple[Any, "Array | None"]]]
Compile = Callable[[Sequence[sp.Expr], tuple[sp.Symbol, ...]], Function]


# ---- laws in numbers --------------------------------------------------------------------------------------
def spectrum_parameters(law: Spectrum) -> tuple[sp.Expr, ...]:
    """The formulas that make a law without a convolution, in the order in which `base_spectrum` takes their values."""
    if isinstance(law, Wishart):
        return (law.kappa0,)
    if isinstance(law, Atoms):
        return (*law.points, *law.weights)
    if isinstance(law, PowerLaw):
        return (law.gamma, law.count)
    if isinstance(law, Listed):
        return ()
    raise Unsupported(f"No numeric form for the spectrum {type(law).__name__}.")


@functools.lru_cache(maxsize=_KEPT)
def base_spectrum(law: Spectrum, values: tuple[float, ...]) -> AbstractBase:
    """The law at these values of its parameters; raises `ValueError` where there is none."""
    if isinstance(law, Wishart):
        return WishartBase(*values)
    if isinstance(law, Atoms):
        n = len(law.points)
        return AtomicBase(np.array(values[:n]), np.array(values[n:]))
    if isinstance(law, PowerLaw):
        gamma, d = values
        count = round(d)
        if count != d or count < 1 or gamma <= 0.5:
            raise ValueError(
                f"A power law needs a natural number of eigenvalues and gamma > 1/2, got {d:g}, {gamma:g}."
            )
        points = np.sqrt(count) * np.arange(1, count + 1, dtype=float) ** -gamma
        return AtomicBase(points, np.full(count, 1 / count))
    assert isinstance(law, Listed)
    points = np.array(law.values)
    return AtomicBase(points, np.full(len(points), 1 / len(points)))


@functools.lru_cache(maxsize=_KEPT)
def convolved(law: Spectrum, values: tuple[float, ...], variance: float) -> Convolved:
    """The law at these values with a semicircle of that variance."""
    return convolve(base_spectrum(law, values), variance)


@functools.lru_cache(maxsize=_KEPT)
def _nodes(law: Spectrum, values: tuple[float, ...], variance: float, breaks: tuple[float, ...]) -> Nodes:
    return convolved(law, values, variance).nodes(breaks)


# ---- expectations -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SpectralGroup:
    """Expectations under one law that read the same arguments.

    `reads`: positions of these. `law`: of them the law's parameters, the variance, then slope and constant of each
    kink. `integrands`: of them, the eigenvalue, the Hilbert transform and the density there.
    """

    base: Spectrum
    is_convolved: bool
    reads: tuple[int, ...]
    law: Function
    integrands: Function
    count: int

    def __call__(self, arguments: list[Any]) -> Estimate:
        """value and error (count, *shape), of the shape to which the arguments it reads broadcast."""
        own = [np.asarray(arguments[i], dtype=float) for i in self.reads]
        shape = np.broadcast_shapes(*(a.shape for a in own))
        rows = np.stack([np.broadcast_to(a, shape).ravel() for a in own]).T if own else np.empty((1, 0))
        found = np.array([self._at(tuple(row.tolist())) for row in rows]).reshape(len(rows), 2, self.count)
        value, error = (found[:, i].T.reshape(self.count, *shape) for i in range(2))
        return Estimate(value, error)

    @functools.cached_property
    def _at(self) -> Callable[[tuple[float, ...]], tuple[Array, Array]]:
        return functools.lru_cache(maxsize=_KEPT)(self._averaged)

    def _averaged(self, own: tuple[float, ...]) -> tuple[Array, Array]:
        found = [float(v) for v, _ in self.law(list(own))]
        own_count = len(spectrum_parameters(self.base))
        values, (variance, *forms) = tuple(found[:own_count]), found[own_count:]
        unknown = np.full(self.count, np.nan), np.full(self.count, np.inf)
        if not np.isfinite(found).all() or (self.is_convolved and not variance > 0):
            return unknown
        breaks = [-b / a for a, b in zip(forms[::2], forms[1::2], strict=True) if a != 0]
        if not self.is_convolved:
            points, weights = base_spectrum(self.base, values).atoms
            return self._summed(own, (points, np.zeros_like(points), np.zeros_like(points)), weights, _ROUNDING)
        try:
            nodes = _nodes(self.base, values, variance, tuple(sorted(set(breaks))))
        except ArithmeticError:
            return unknown
        return self._summed(own, (nodes.x, nodes.hilbert, nodes.density), nodes.weight, nodes.error)

    def _summed(
        self, own: tuple[float, ...], at: tuple[Array, ...], weight: Array, error: float
    ) -> tuple[Array, Array]:
        values = [np.broadcast_to(v, weight.shape) for v, _ in self.integrands([*own, *at])]
        means = np.array([weight @ v for v in values])
        sizes = np.array([weight @ np.abs(v) for v in values])
        return means, error * sizes


def spectral_groups(
    members: Sequence[Expectation], arguments: tuple[sp.Symbol, ...], program: Compile
) -> list[tuple[SpectralGroup, list[Expectation]]]:
    """Groups of expectations under spectra; `program` compiles formulas."""
    gathered: dict[Any, list[Expectation]] = {}
    for e in members:
        gathered.setdefault((e.measure, frozenset(e.free_symbols)), []).append(e)
    return [(_group(same, arguments, program), same) for same in gathered.values()]


def _group(members: list[Expectation], arguments: tuple[sp.Symbol, ...], program: Compile) -> SpectralGroup:
    law = members[0].measure
    base, variance = (law.base, law.variance) if isinstance(law, FreeConvolution) else (law, sp.S.Zero)
    if isinstance(base, Wishart) and not isinstance(law, FreeConvolution):
        raise Unsupported("Of a Wishart law without noise, mean and second moment are known alone.")
    free = members[0].free_symbols
    own = tuple(s for s in arguments if s in free)
    x, hilbert, density = sp.symbols("x hilbert density", real=True, cls=sp.Dummy)
    integrands = []
    for e in members:
        (v,) = e.variables
        at = {HilbertTransform(law, v): hilbert, SpectralDensity(law, v): density}
        integrands.append(e.integrand.xreplace(at).xreplace({v: x}))
    kinks = dict.fromkeys(k for f in integrands for k in smoothness(f, (x,)).kinks)
    forms = [c for k in kinks for c in (*k.coefficients, k.constant)]
    return SpectralGroup(
        base,
        isinstance(law, FreeConvolution),
        tuple(arguments.index(s) for s in own),
        program([*spectrum_parameters(base), variance, *forms], own),
        program(integrands, (*own, x, hilbert, density)),
        len(members),
    )
