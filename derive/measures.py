"""Probability laws with symbolic parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

__all__ = ["Gaussian", "Measure", "standard_normal"]


class Measure(sp.Basic):
    """A law on R^dim. Abstract: final subclasses store their parameters as SymPy arguments."""

    @property
    def dim(self) -> int:
        raise NotImplementedError

    def marginal(self, keep: Sequence[int]) -> Measure:
        """The law of the coordinates `keep`, in that order."""
        raise NotImplementedError


class Gaussian(Measure):
    """N(mean, cov): mean a tuple of length dim, cov a symmetric (dim, dim) matrix; both may hold symbols.

    >>> m = sp.Symbol("m", real=True)
    >>> Gaussian([0, 0], [[1, m], [m, 1]]).marginal([1])
    Gaussian((0,), Matrix([[1]]))
    """

    def __new__(cls, mean: Sequence[Any], cov: Any) -> Gaussian:
        mean_ = sp.Tuple(*mean)
        cov_ = sp.ImmutableDenseMatrix(cov)
        n = len(mean_)
        if cov_.shape != (n, n):
            raise ValueError(f"Gaussian: a mean of length {n} needs a covariance ({n}, {n}), got {cov_.shape}.")
        if cov_ != cov_.T:
            raise ValueError(f"Gaussian: the covariance must be symmetric, got {cov_.tolist()}.")
        for i in range(n):
            if cov_[i, i].is_negative:
                raise ValueError(f"Gaussian: variance {i + 1} is {cov_[i, i]}; variances must not be negative.")
        new: Gaussian = super().__new__(cls, mean_, cov_)
        return new

    @property
    def mean(self) -> sp.Tuple:
        return self.args[0]

    @property
    def cov(self) -> sp.ImmutableDenseMatrix:
        return self.args[1]

    @property
    def dim(self) -> int:
        return len(self.mean)

    def marginal(self, keep: Sequence[int]) -> Gaussian:
        keep = list(keep)
        return Gaussian([self.mean[i] for i in keep], self.cov.extract(keep, keep))


def standard_normal(dim: int = 1) -> Gaussian:
    """N(0, I_dim)."""
    return Gaussian([0] * dim, sp.eye(dim))
