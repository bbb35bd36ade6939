"""What is observed of a trained S, by the names of the theory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.attention_indexed.index_loss import IndexLoss
from verify.attention_indexed.risk import Risk
from verify.attention_indexed.spectra import rank_fraction
from verify.attention_indexed.tokens import draw_tokens, index_noise

__all__ = ["NAMES", "Overlaps", "overlaps", "student_errors", "training"]

NAMES = ("test_error", "test_error_clean", "mse", "q", "m", "training_loss", "objective", "rank")
FRESH = 20_000
"""Fresh samples of true tokens behind the test errors of one instance."""

_AT_ONCE = 2_000_000  # numbers of tokens


@dataclass(frozen=True)
class Overlaps:
    """q = tr S^2, m = tr S S0, mse = tr (S - S0)^2, with tr = Tr/d."""

    q: float
    m: float
    mse: float


def overlaps(s: Tensor, target: Tensor) -> Overlaps:
    """Of two symmetric matrices (d, d)."""
    d = len(s)
    return Overlaps(*(float(v) / d for v in (s.square().sum(), (s * target).sum(), (s - target).square().sum())))


def training(risk: Risk, s: Tensor) -> dict[str, float]:
    """training_loss: the sum over samples / d^2; objective: with the penalty; rank: eigenvalues not zero, over d."""
    data, penalty = risk.data_value(s), risk.penalty.value(s)
    return {
        "training_loss": data / risk.d**2,
        "objective": (data + penalty) / risk.d**2,
        "rank": rank_fraction(torch.linalg.eigvalsh(s).cpu().numpy()),
    }


def student_errors(
    s: Tensor, target: Tensor, loss: IndexLoss, tokens: int, noise: float, generator: torch.Generator, n: int = FRESH
) -> Mapping[str, float]:
    """Mean losses over n fresh samples of true tokens: with noisy labels, and with labels without noise."""
    d = len(s)
    most = max(1, _AT_ONCE // (tokens * d))
    totals, left = torch.zeros(2, dtype=torch.float64), n
    while left:
        now = min(left, most)
        fresh = draw_tokens(tokens, now, d, generator)
        own, clean = fresh.indices(s), fresh.indices(target)
        noisy = clean + index_noise(fresh.pairs, now, noise, generator)
        totals += torch.stack([loss.value(loss.labels(h), own).sum() for h in (noisy, clean)]).cpu()
        left -= now
    noisy_error, clean_error = (totals / n).tolist()
    return {"test_error": noisy_error, "test_error_clean": clean_error}
