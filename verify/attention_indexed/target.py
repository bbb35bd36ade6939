"""Target matrices S0 of a given law of eigenvalues, (d, d) symmetric."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np
import sympy as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from derive.document import TaskError
from derive.spectra import Atoms, Listed, PowerLaw, Spectrum, Wishart
from verify.simulation import value_of

__all__ = ["draw_target", "eigenvalues"]

Values = Mapping[sp.Symbol, float]


def draw_target(law: Spectrum, values: Values, d: int, generator: torch.Generator) -> Tensor:
    """S0: W W^T/sqrt(p d) with p = round(kappa0 d) for Wishart's law, else the law's quantiles in a random basis."""
    if isinstance(law, Wishart):
        p = max(1, round(value_of(law.kappa0, values) * d))
        w = _normal((d, p), generator)
        return w @ w.T / math.sqrt(p * d)
    s = torch.from_numpy(eigenvalues(law, values, d)).to(generator.device)
    basis, r = torch.linalg.qr(_normal((d, d), generator))
    basis *= r.diagonal().sign()  # Haar's measure needs R with a positive diagonal  [Mezzadri 2007]
    found: Tensor = (basis * s) @ basis.T
    return found


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    drawn: Tensor = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
    return drawn


@functools.singledispatch
def eigenvalues(law: Spectrum, values: Values, d: int) -> NDArray[np.float64]:
    """d eigenvalues (d,) that represent the law, ascending: its quantiles at (i - 1/2)/d, i = 1 .. d."""
    raise TaskError(
        f"verify draws no target with the eigenvalues {law}. Give target.spectrum as wishart, atoms, power or file."
    )


@eigenvalues.register
def _atoms(law: Atoms, values: Values, d: int) -> NDArray[np.float64]:
    points, weights = (np.array([value_of(a, values) for a in part]) for part in (law.points, law.weights))
    order = np.argsort(points)
    cumulated = np.cumsum(weights[order]) / np.sum(weights)
    found: NDArray[np.float64] = points[order][np.searchsorted(cumulated, _levels(d)).clip(max=len(points) - 1)]
    return found


@eigenvalues.register
def _power_law(law: PowerLaw, values: Values, d: int) -> NDArray[np.float64]:
    """sqrt(d) i^-gamma at the simulated d, whatever the number of eigenvalues of the law."""
    ranks = np.arange(d, 0, -1, dtype=np.float64)
    return math.sqrt(d) * ranks ** -value_of(law.gamma, values)


@eigenvalues.register
def _listed(law: Listed, values: Values, d: int) -> NDArray[np.float64]:
    data = np.array(law.values)
    found: NDArray[np.float64] = data[np.floor(_levels(d) * data.size).astype(int)]
    return found


def _levels(d: int) -> NDArray[np.float64]:
    return (np.arange(d) + 0.5) / d
