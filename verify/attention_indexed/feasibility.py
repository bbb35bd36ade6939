"""When samples of linear indices determine S >= 0: whether some S fits them, and whether the least trace finds S0.

Both are asked of given indices y = F S in orthonormal coordinates, as an affine set {S: F S = y} of symmetric matrices,
onto which F^T (F F^T)^-1 projects; for some tens of dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from derive.spectra import Spectrum
from verify.attention_indexed.risk import TrainingError
from verify.attention_indexed.target import draw_target
from verify.attention_indexed.tokens import Tokens, draw_tokens, index_noise
from verify.attention_indexed.vector_prox import scales_of

__all__ = ["AffineSet", "Draw", "interpolates", "interpolation_probability", "least_trace", "recovery_probability"]

_MOST_STEPS = 50_000
_FIT = 1e-6  # distance to the affine set, in units of the least norm on it, at which an S counts as fitting
_LARGE = 100.0  # a trace, in units of sqrt(d) times that norm, beyond which no fit is sought
_RECOVERED = 1e-2  # |S - S0| in units of |S0|; where it fails it is of order 1
_REST = 1e-6
_STRIDE = 0.05  # of the largest eigenvalue: the threshold of a step, short ones settle sooner


@dataclass(frozen=True, eq=False)
class AffineSet:
    """{S: F S = y}: rows (m, d^2), each a symmetric matrix F_i of unit order, and y (m,), m <= d (d + 1)/2."""

    rows: Tensor
    y: Tensor

    @classmethod
    def of(cls, tokens: Tokens, indices: Tensor, basis: Tensor | None = None) -> AffineSet:
        """The S with those indices (pairs, n); basis (k, pairs): only these orthonormal coordinates are known."""
        d = tokens.d
        unit = torch.eye(d, dtype=tokens.x.dtype, device=tokens.x.device)
        parts = []
        for a, b in tokens.pairs:
            product = tokens.x[a][:, :, None] * tokens.x[b][:, None, :]
            parts.append((product + product.mT) / 2 - (unit if a == b else 0))
        scales = scales_of(tokens.pairs, indices)
        known = torch.eye(len(scales), dtype=unit.dtype, device=unit.device) if basis is None else basis
        rows = torch.einsum("jp,pnik->jnik", known / scales, torch.stack(parts) / math.sqrt(d))
        return cls(rows.reshape(-1, d * d), ((known / scales) @ indices).reshape(-1))

    @property
    def d(self) -> int:
        """The dimension."""
        return math.isqrt(self.rows.shape[1])

    @cached_property
    def _factor(self) -> Tensor:
        factor: Tensor
        factor, info = torch.linalg.cholesky_ex(self.rows @ self.rows.T)
        if int(info):
            raise ValueError(f"AffineSet: {len(self.rows)} conditions in d = {self.d} are not independent.")
        return factor

    def offset(self, s: Tensor) -> Tensor:
        """S minus its projection onto the set: (d, d)."""
        wrong = self.rows @ s.reshape(-1) - self.y
        weights = torch.cholesky_solve(wrong[:, None], self._factor)[:, 0]
        found: Tensor = (weights @ self.rows).reshape(self.d, self.d)
        return found


def _positive(s: Tensor, threshold: float = 0.0) -> Tensor:
    """(S - threshold)_+."""
    eigenvalues, basis = torch.linalg.eigh(s)
    found: Tensor = (basis * (eigenvalues - threshold).clamp_min(0)) @ basis.T
    return found


def interpolates(affine: AffineSet) -> bool:
    """Whether some S >= 0 lies in the set, decided by the distance between the two.

    For the D = S - projection(S) of any S, a fit S' >= 0 has Tr D S' = <D, projection(S)>: where that is negative, its
    trace is at least -<D, projection(S)>/lambda for the largest -eigenvalue lambda of D. The answer is no once that
    exceeds 100 sqrt(d) |S_min|, S_min the solution of least norm; yes once |D| < 1e-6 |S_min|. Raises `TrainingError`
    where neither is reached: then the two sets touch to that accuracy.
    """
    zero = affine.rows.new_zeros((affine.d, affine.d))
    unit = float(affine.offset(zero).norm())
    s, y, momentum = zero, zero, 1.0
    for count in range(_MOST_STEPS):
        away = affine.offset(y)
        new = _positive(y - away)
        if count % 10 == 0:
            d = affine.offset(new)
            if float(d.norm()) < _FIT * unit:
                return True
            on_set = -float((d * (new - d)).sum())
            lowest = max(0.0, -float(torch.linalg.eigvalsh(d)[0]))
            if on_set > _LARGE * math.sqrt(affine.d) * unit * lowest:
                return False
        if float(((y - new) * (new - s)).sum()) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        y = new + (momentum - 1) / following * (new - s)
        s, momentum = new, following
    raise TrainingError(f"Whether {len(affine.y)} indices in d = {affine.d} are fitted by S >= 0 stayed open.")


def least_trace(affine: AffineSet, scale: float) -> Tensor:
    """The S >= 0 of least trace in the set, by Douglas and Rachford's splitting; `scale`: the size of its eigenvalues.

    Raises `TrainingError` where it does not come to rest, as where no S >= 0 lies in the set.
    """
    unit = float(affine.offset(affine.rows.new_zeros((affine.d, affine.d))).norm())
    z = affine.rows.new_zeros((affine.d, affine.d))
    for _ in range(_MOST_STEPS):
        s = _positive(z, _STRIDE * scale)
        reflected = 2 * s - z
        moved = reflected - affine.offset(reflected) - s
        z = z + moved
        if float(moved.norm()) <= _REST * unit:
            return s
    raise TrainingError(f"The least trace in d = {affine.d} was not found in {_MOST_STEPS} steps.")


# ---------------------------------------------------------------- probabilities


@dataclass(frozen=True)
class Draw:
    """Data sets of one kind: a target of that law, tokens of dimension d, `tokens` in a sample.

    basis (k, pairs): the orthonormal coordinates of the indices that are seen, all of them if None; a softmax of T
    tokens shows all but one.
    """

    law: Spectrum
    d: int
    tokens: int = 1
    basis: Tensor | None = None

    def target_and_tokens(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tokens]:
        """A target and n samples."""
        target = draw_target(self.law, {}, self.d, generator)
        return target, draw_tokens(self.tokens, n, self.d, generator)

    def affine(self, tokens: Tokens, indices: Tensor, n: int) -> AffineSet:
        """What the first n samples say."""
        return AffineSet.of(Tokens(tokens.x[:, :n]), indices[:, :n], self.basis)


def recovery_probability(draw: Draw, counts: Sequence[int], seeds: Sequence[int]) -> list[float]:
    """The part of the targets that the least trace recovers from n samples without noise, for each n of `counts`.

    The samples of one target are nested: the n first of its tokens.
    """

    def recovered(seed: int) -> list[bool]:
        target, tokens = draw.target_and_tokens(max(counts), torch.Generator().manual_seed(seed))
        scale, indices = float(torch.linalg.matrix_norm(target, 2)), tokens.indices(target)
        found = [least_trace(draw.affine(tokens, indices, n), scale) for n in counts]
        return [float((s - target).norm()) < _RECOVERED * float(target.norm()) for s in found]

    return _shares(recovered, seeds)


def interpolation_probability(draw: Draw, noise: float, counts: Sequence[int], seeds: Sequence[int]) -> list[float]:
    """The part of the data sets of n samples with noise that some S >= 0 fits, for each n of `counts`; nested."""

    def fitted(seed: int) -> list[bool]:
        generator = torch.Generator().manual_seed(seed)
        target, tokens = draw.target_and_tokens(max(counts), generator)
        indices = tokens.indices(target) + index_noise(tokens.pairs, tokens.n, noise, generator)
        return [interpolates(draw.affine(tokens, indices, n)) for n in counts]

    return _shares(fitted, seeds)


def _shares(happened: Callable[[int], list[bool]], seeds: Sequence[int]) -> list[float]:
    found: list[float] = torch.tensor([happened(seed) for seed in seeds], dtype=torch.float64).mean(0).tolist()
    return found
