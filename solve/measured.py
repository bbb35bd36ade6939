"""Values with the parts of their errors: of quadrature, and of the points that are sampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solve.nodes import Array

__all__ = ["Measured", "standard_error"]


def standard_error(scatter: Array) -> Array:
    """Of a mean over scramblings, from what each of them is off: (.., scramblings) -> (..)."""
    count = scatter.shape[-1]
    error: Array = np.sqrt(np.var(scatter, axis=-1, ddof=1) / count)
    return error


@dataclass(frozen=True, eq=False)
class Measured:
    """Values with a bound on their quadrature error, both (n, *B), and the scatter of what is sampled.

    scatter: (n, *B, scramblings), the value on each scrambling of the sample points less that on all, to first order;
    None where nothing is sampled.
    """

    value: Array
    error: Array
    scatter: Array | None

    @property
    def total(self) -> Array:
        """The error with the standard error of the scatter."""
        return self.error if self.scatter is None else self.error + standard_error(self.scatter)
