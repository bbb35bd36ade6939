"""Where a training run ends: on the side of the target's direction, or on that of the positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
import torch

from verify.simulation import AbstractSimulation, Observation, Values
from verify.simulations.training_run import AbstractTraining

__all__ = ["SEMANTIC_END", "Ends"]

SEMANTIC_END = sp.Symbol("p_semantic", nonnegative=True)
"""1 for a run that ends with |m| > |e|, 0 for another; its mean is a probability."""


@dataclass(frozen=True)
class Ends(AbstractSimulation):
    """The last overlaps of `training`, whose first is m and whose second is e, as `SEMANTIC_END`."""

    training: AbstractTraining

    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """`SEMANTIC_END` (n_replicas,)."""
        found = self.training.run(parameters, size, generators)
        m, e = (np.abs(found.observed[s][:, -1]) for s in self.training.task.overlap_symbols)
        return Observation(None, {SEMANTIC_END: (m > e).astype(float)})

    def device(self) -> torch.device:
        """That of the training."""
        return self.training.device()

    def work(self, size: int) -> float:
        """That of the training."""
        return self.training.work(size)
