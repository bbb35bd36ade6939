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
from solve.condensed_spectra import condensed
from solve.free_convolution import Convolved, Nodes, convolve
from solve.kinks import kink_forms
from solve.nodes import Array
from solve.quadrature import Estimate

__all__ = ["SpectralGroup", "base_spectrum", "convolved", "spectral_groups", "spectrum_parameters"]

_KEPT = 64
_CHUNK = 2**16
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
    base = base_spectrum(law, values)
    return convolve(condensed(base, variance) if isinstance(base, AtomicBase) else base, variance)


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
        value, error = self._at(tuple(rows[0].tolist())) if len(rows) == 1 else self._averaged(rows)
        return Estimate(value.reshape(self.count, *shape), error.reshape(self.count, *shape))

    @functools.cached_property
    def _at(self) -> Callable[[tuple[float, ...]], tuple[Array, Array]]:
        """One row, the last few kept."""
        return functools.lru_cache(maxsize=_KEPT)(lambda row: self._averaged(np.array([row]).reshape(1, -1)))

    def _averaged(self, rows: Array) -> tuple[Array, Array]:
        """Means and errors (count, rows): rows with the same law and kinks on the same nodes."""
        found = np.array([np.broadcast_to(v, len(rows)) for v, _ in self.law(list(rows.T))], dtype=float).T
        means, errors = np.full((self.count, len(rows)), np.nan), np.full((self.count, len(rows)), np.inf)
        known = np.isfinite(found).all(axis=1)
        laws, owner = np.unique(found[known], axis=0, return_inverse=True)
        for i, law in enumerate(laws):
            nodes = self._on(law)
            if nodes is not None:
                here = np.flatnonzero(known)[owner.ravel() == i]
                means[:, here], errors[:, here] = self._summed(rows[here], *nodes)
        return means, errors

    def _on(self, law: Array) -> tuple[tuple[Array, ...], Array, float] | None:
        """Eigenvalues with Hilbert transform and density there, their weights and the error; None where none are."""
        own = len(spectrum_parameters(self.base))
        values, variance, forms = tuple(law[:own].tolist()), float(law[own]), law[own + 1 :]
        if not self.is_convolved:
            points, weights = base_spectrum(self.base, values).atoms
            return (points, np.zeros_like(points), np.zeros_like(points)), weights, _ROUNDING
        if not variance > 0:
            return None
        slopes, constants = forms[::2], forms[1::2]
        breaks = tuple(np.unique(-constants[slopes != 0] / slopes[slopes != 0]).tolist())
        try:
            nodes = _nodes(self.base, values, variance, breaks)
        except ArithmeticError:
            return None
        return (nodes.x, nodes.hilbert, nodes.density), nodes.weight, nodes.error

    def _summed(self, rows: Array, at: tuple[Array, ...], weight: Array, error: float) -> tuple[Array, Array]:
        """(count, rows) each."""
        means = np.empty((self.count, len(rows)))
        sizes = np.empty_like(means)
        step = max(1, _CHUNK // len(weight))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            shape = (len(part), len(weight))
            values = self.integrands([*(c[:, None] for c in part.T), *at])
            for k, (v, _) in enumerate(values):
                whole = np.broadcast_to(v, shape)
                means[k, start : start + step] = whole @ weight
                sizes[k, start : start + step] = np.abs(whole) @ weight
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
    kinks = dict.fromkeys(k for f in integrands for k in kink_forms(f, x))
    forms = [c for k in kinks for c in (*k.coefficients, k.constant)]
    return SpectralGroup(
        base,
        isinstance(law, FreeConvolution),
        tuple(arguments.index(s) for s in own),
        program([*spectrum_parameters(base), variance, *forms], own),
        program(integrands, (*own, x, hilbert, density)),
        len(members),
    )
