"""Tokens, and the linear map from a symmetric S to their indices h_ab = (x_a^T S x_b - delta_ab Tr S)/sqrt d."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from derive.symmetric_indices import Indices

__all__ = ["Tokens", "draw_tokens", "index_noise"]

_BLOCK = {"cpu": 2**18, "cuda": 2**27}  # numbers in a block of samples: what stays in the cache, or in memory


@dataclass(frozen=True, eq=False)
class Tokens:
    """x: (T, n, d). Indices are tensors (pairs, n), their pairs a <= b in the order of `Indices.pairs`."""

    x: Tensor

    @property
    def n(self) -> int:
        """Samples."""
        return self.x.shape[1]

    @property
    def d(self) -> int:
        """Dimension of a token."""
        return self.x.shape[2]

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return Indices(self.x.shape[0], "h").pairs

    def blocks(self) -> Iterator[tuple[slice, Tokens]]:
        """Parts of the samples, with their places."""
        rows = max(1, _BLOCK.get(self.x.device.type, 2**18) // self.d)
        for start in range(0, self.n, rows):
            here = slice(start, min(start + rows, self.n))
            yield here, Tokens(self.x[:, here])

    def indices(self, s: Tensor) -> Tensor:
        """h(S): (pairs, n)."""
        return torch.cat([block.block_indices(s) for _, block in self.blocks()], dim=1)

    def adjoint(self, weights: Tensor) -> Tensor:
        """sum_mu sum_(a <= b) weights_ab dh_ab/dS, (d, d) symmetric, for weights (pairs, n)."""
        parts = (block.block_adjoint(weights[:, here]) for here, block in self.blocks())
        return torch.stack(list(parts)).sum(0)

    def block_indices(self, s: Tensor) -> Tensor:
        """h(S) of few samples at once."""
        images = [xa @ s for xa in self.x]
        trace = s.diagonal().sum()
        rows = [torch.einsum("nd,nd->n", images[a], self.x[b]) - (trace if a == b else 0.0) for a, b in self.pairs]
        return torch.stack(rows) / math.sqrt(self.d)

    def block_adjoint(self, weights: Tensor) -> Tensor:
        """The adjoint for few samples at once."""
        mixed = [torch.zeros_like(xa) for xa in self.x]
        trace = weights.new_zeros(())
        for (a, b), w in zip(self.pairs, weights, strict=True):
            if a == b:
                mixed[a] += w[:, None] * self.x[a]
                trace = trace + w.sum()
            else:  # x_a x_b^T and its transpose, half of each
                mixed[a] += w[:, None] * self.x[b]
        total = torch.stack([xa.T @ za for xa, za in zip(self.x, mixed, strict=True)]).sum(0)
        total = (total + total.T) / 2
        total.diagonal().sub_(trace)
        return total / math.sqrt(self.d)


def draw_tokens(count: int, n: int, d: int, generator: torch.Generator) -> Tokens:
    """n samples of `count` independent tokens N(0, I_d)."""
    shape = (count, n, d)
    return Tokens(torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device))


def index_noise(pairs: tuple[tuple[int, int], ...], n: int, strength: float, generator: torch.Generator) -> Tensor:
    """xi: (pairs, n), symmetric Gaussian with Var xi_ab = strength/(2 - delta_ab)."""
    xi = torch.randn((len(pairs), n), generator=generator, dtype=torch.float64, device=generator.device)
    spread = [math.sqrt(strength / (1 if a == b else 2)) for a, b in pairs]
    return xi * xi.new_tensor(spread)[:, None]
