"""The training problem of one instance: sum_mu loss_mu(h(S)) + d Tr penalty(S) for a symmetric S."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from solve.result import SolveError
from verify.attention_indexed.index_loss import IndexLoss
from verify.attention_indexed.penalty import Penalty
from verify.attention_indexed.tokens import Tokens

__all__ = ["Minimum", "Risk", "TrainingError", "checked"]


class TrainingError(SolveError):
    """A training did not reach the accuracy that was asked of it."""


@dataclass(frozen=True, eq=False)
class Risk:
    """known: what `loss` has to know of the labels, (k, n)."""

    tokens: Tokens
    loss: IndexLoss
    known: Tensor
    penalty: Penalty

    @property
    def d(self) -> int:
        """The dimension."""
        return self.tokens.d

    def data(self, s: Tensor) -> tuple[float, Tensor]:
        """sum_mu loss_mu and its gradient in the symmetric S (d, d), in one pass over the samples."""
        total, gradient = s.new_zeros(()), torch.zeros_like(s)
        for here, block in self.tokens.blocks():
            value, slopes = self.loss.value_and_slopes(self.known[:, here], block.block_indices(s))
            total += value.sum()
            gradient += block.block_adjoint(slopes)
        return float(total), gradient

    def data_value(self, s: Tensor) -> float:
        """sum_mu loss_mu alone."""
        parts = [
            self.loss.value(self.known[:, here], block.block_indices(s)).sum() for here, block in self.tokens.blocks()
        ]
        return float(torch.stack(parts).sum())

    def objective(self, s: Tensor) -> float:
        """What is minimised, for an S on which the penalty is finite."""
        return self.data_value(s) + self.penalty.value(s)


@dataclass(frozen=True, eq=False)
class Minimum:
    """The trained S (d, d) with its certificate.

    residual: the norm of the gradient (or of the smallest subgradient known), over the sum of the norms of its two
    parts, data and penalty; over the norm at the start where there is no penalty. steps: iterations.
    """

    s: Tensor
    residual: float
    steps: int


def checked(found: Minimum, tolerance: float, method: str) -> Minimum:
    """The minimum itself; raises `TrainingError` where its residual exceeds the tolerance."""
    if not found.residual <= tolerance:
        raise TrainingError(
            f"{method} stopped after {found.steps} steps at a relative gradient of {found.residual:.1e}, and "
            f"{tolerance:.1e} was asked for. Raise the penalty, or choose another verify.optimiser."
        )
    return found
