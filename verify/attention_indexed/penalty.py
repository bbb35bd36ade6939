"""The penalty d Tr penalty(S) of a symmetric matrix: value, gradient, and its proximal operator, the denoiser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import sympy as sp
import torch
from torch import Tensor

from derive.proximal import Confined, confinement, kinks
from solve.proximal import Solver, parameters_of, proximal_solver
from verify.attention_indexed.index_loss import at_values
from verify.lower import Lowered, lower

__all__ = ["Denoised", "Penalty"]


class Denoised(NamedTuple):
    """matrix: argmin_S |S - R|_F^2/2 + step d Tr penalty(S). value: d Tr penalty(matrix).

    basis: eigenvectors of R, in columns; response: (d, d), d matrix_ij/d R_ij in that basis, divided differences of the
    scalar operator [Daleckii and Krein 1965]. All else of the derivative is zero.
    """

    matrix: Tensor
    value: float
    basis: Tensor
    response: Tensor

    @property
    def divergence(self) -> float:
        """Of R -> matrix, in the d (d + 1)/2 dimensions of symmetric matrices."""
        return float(self.response.sum() + self.response.diagonal().sum()) / 2


@dataclass(frozen=True)
class Penalty:
    """`quadratic`: (a, b) where the penalty is a s + b s^2; `program`: value and slope of any other, None otherwise.

    solver: its scalar proximal operator. places: kinks (None if they are not known); positive: confined to s >= 0.
    """

    solver: Solver
    arguments: tuple[float, ...]
    quadratic: tuple[float, float] | None
    program: Lowered
    places: tuple[float, ...] | None
    positive: bool

    @classmethod
    def of(cls, penalty: sp.Lambda, values: Mapping[sp.Symbol, float]) -> Self:
        """The convex penalty of an eigenvalue, its parameters at `values`.

        Raises `NotImplementedError` where it is confined to another interval than s >= 0.
        """
        (s,) = penalty.variables
        low, high, rest = confinement(penalty)
        if (low, high) not in ((-sp.oo, sp.oo), (sp.S.Zero, sp.oo)):
            raise NotImplementedError(f"A penalty confined to {low} <= s <= {high}; s >= 0 alone is simulated.")
        rest = at_values(rest, values)
        known = kinks(sp.Lambda(s, rest))
        polynomial = sp.Poly(rest, s) if rest.is_polynomial(s) else None
        quadratic = None
        if polynomial is not None and polynomial.degree() <= 2:
            quadratic = (float(polynomial.coeff_monomial(s)), float(polynomial.coeff_monomial(s**2)))
        return cls(
            proximal_solver(penalty),
            tuple(float(values[p]) for p in parameters_of(penalty)),
            quadratic,
            lower([rest, rest.diff(s).replace(sp.DiracDelta, lambda *_: sp.S.Zero)], (s,)),
            None if known is None else tuple(float(k) for k in known),
            penalty.expr.has(Confined),
        )

    @property
    def vanishes(self) -> bool:
        """Whether nothing is penalised, but for negative eigenvalues."""
        return self.quadratic == (0.0, 0.0)

    def value(self, s: Tensor) -> float:
        """d Tr penalty(S); negative eigenvalues are not looked for."""
        d = len(s)
        if self.quadratic is not None:
            a, b = self.quadratic
            return d * float(a * s.diagonal().sum() + b * s.square().sum())
        return d * float(self.program((torch.linalg.eigvalsh(s),))[0].sum())

    def gradient(self, s: Tensor) -> Tensor:
        """d penalty'(S): (d, d)."""
        d = len(s)
        if self.quadratic is not None:
            a, b = self.quadratic
            return 2 * b * d * s + a * d * torch.eye(d, dtype=s.dtype, device=s.device)
        eigenvalues, basis = torch.linalg.eigh(s)
        slopes: Tensor = d * (basis * self.program((eigenvalues,))[1]) @ basis.T
        return slopes

    def denoise(self, r: Tensor, step: float) -> Denoised:
        """The proximal operator at a symmetric R (d, d), eigenvalue by eigenvalue."""
        d = len(r)
        eigenvalues, basis = torch.linalg.eigh(r)
        w = eigenvalues.cpu().numpy()
        prox, loss, _, curvature = self.solver(np.full(d, step * d), w, *(np.full(d, a) for a in self.arguments))
        if not np.isfinite(prox).all():
            raise FloatingPointError("The penalty's proximal operator found no point.")
        own = 1 - step * d * curvature
        gaps = w[:, None] - w[None, :]
        close = np.abs(gaps) <= 1e-12 * (1 + np.abs(w).max())
        ratios = (prox[:, None] - prox[None, :]) / np.where(close, 1.0, gaps)
        ratios = np.where(close, (own[:, None] + own[None, :]) / 2, ratios)
        matrix = (basis * torch.from_numpy(prox.copy()).to(basis)) @ basis.T
        return Denoised((matrix + matrix.T) / 2, d * float(np.sum(loss)), basis, torch.from_numpy(ratios).to(basis))
