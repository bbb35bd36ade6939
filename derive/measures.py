"""Probability laws with symbolic parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sympy as sp

__all__ = ["Gaussian", "Measure", "Pushforward", "standard_normal"]


class Measure(sp.Basic):
    """A law on R^dim. Abstract: final subclasses store their parameters as SymPy arguments."""

    @property
    def dim(self) -> int:
        raise NotImplementedError

    def marginal(self, keep: Sequence[int]) -> Measure:
        """The law of the coordinates `keep`, in that order."""
        raise NotImplementedError

    def derivative(self, f: sp.Expr, variables: Sequence[sp.Symbol], s: sp.Symbol) -> list[sp.Expr]:
        """Integrands whose expectations sum to the derivative of E f(variables) in s."""
        return [f.diff(s), *(self.rates(f, variables, s) if self.has_free(s) else ())]

    def rates(self, f: sp.Expr, variables: Sequence[sp.Symbol], s: sp.Symbol) -> list[sp.Expr]:
        """The part of this by s as a parameter of the law."""
        raise NotImplementedError(f"No derivative rule for the parameters of {type(self).__name__}.")


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

    def rates(self, f: sp.Expr, variables: Sequence[sp.Symbol], s: sp.Symbol) -> list[sp.Expr]:
        """sum_i mean_i' E d_i f + (1/2) sum_ij cov_ij' E d_i d_j f  [Bonnet; Price]."""
        first = [f.diff(v) for v in variables]
        parts = [self.mean[i].diff(s) * first[i] for i in range(self.dim)]
        for i in range(self.dim):
            for j in range(i, self.dim):
                rate = self.cov[i, j].diff(s) * (sp.S.Half if i == j else 1)
                if rate != 0:
                    parts.append(rate * first[i].diff(variables[j]))
        return parts


class Pushforward(Measure):
    """The law of quantities computed from Gaussian variables, one after the other.

    inputs: the coordinates of `base`. definitions: (symbol, expression in the inputs, earlier symbols, parameters).
    outputs: the symbols, inputs or defined ones, whose joint law this is. Internal names are canonical, what no output
    needs is dropped: equal laws are equal. Raises `ValueError` for symbols that are unknown or defined twice.

    >>> z, a, b, s = sp.symbols("z a b s", real=True)
    >>> Pushforward(Gaussian([0], [[1]]), [z], [(s, z**2 + 1)], [s]) == Pushforward(
    ...     Gaussian([0, 3], [[1, 0], [0, 1]]), [a, b], [(s, a**2 + 1), (z, a * b)], [s]
    ... )
    True
    """

    def __new__(
        cls,
        base: Gaussian,
        inputs: Sequence[sp.Symbol],
        definitions: Sequence[Any],
        outputs: Sequence[sp.Symbol],
    ) -> Pushforward:
        inputs, outputs = tuple(inputs), tuple(outputs)
        pairs = [(s, sp.S(e)) for s, e in definitions]
        _check_pushforward(base, inputs, pairs, outputs)
        needed = set(outputs)
        for s, e in reversed(pairs):
            needed |= e.free_symbols if s in needed else set()
        kept = [i for i, s in enumerate(inputs) if s in needed]
        pairs = [(s, e) for s, e in pairs if s in needed]
        names = {inputs[i]: sp.Symbol(f"g{k + 1}", real=True, bound=True) for k, i in enumerate(kept)}
        names |= {s: sp.Symbol(f"q{k + 1}", real=True, bound=True) for k, (s, _) in enumerate(pairs)}
        renamed = sp.Tuple(*(sp.Tuple(names[s], e.xreplace(names)) for s, e in pairs))
        own, shown = sp.Tuple(*(names[inputs[i]] for i in kept)), sp.Tuple(*(names[s] for s in outputs))
        new: Pushforward = super().__new__(cls, base.marginal(kept), own, renamed, shown)
        return new

    @property
    def base(self) -> Gaussian:
        law: Gaussian = self.args[0]
        return law

    @property
    def inputs(self) -> tuple[sp.Symbol, ...]:
        return tuple(self.args[1])

    @property
    def definitions(self) -> tuple[tuple[sp.Symbol, sp.Expr], ...]:
        return tuple((s, e) for s, e in self.args[2])

    @property
    def outputs(self) -> tuple[sp.Symbol, ...]:
        return tuple(self.args[3])

    @property
    def dim(self) -> int:
        return len(self.outputs)

    @property
    def free_symbols(self) -> set[sp.Basic]:
        """The parameters of the law."""
        return set(_parameters(self))

    def has_free(self, *symbols: sp.Basic) -> bool:
        return not self.free_symbols.isdisjoint(symbols)

    def marginal(self, keep: Sequence[int]) -> Pushforward:
        return Pushforward(self.base, self.inputs, self.definitions, [self.outputs[i] for i in keep])


@lru_cache(maxsize=1024)
def _parameters(law: Pushforward) -> frozenset[sp.Basic]:
    inside: set[sp.Basic] = set().union(*(e.free_symbols for _, e in law.definitions))
    outside: set[sp.Basic] = law.base.free_symbols
    return frozenset((inside | outside) - {*law.inputs, *(s for s, _ in law.definitions)})


def _check_pushforward(
    base: Gaussian,
    inputs: tuple[sp.Symbol, ...],
    pairs: Sequence[tuple[sp.Symbol, sp.Expr]],
    outputs: tuple[sp.Symbol, ...],
) -> None:
    known = [*inputs, *(s for s, _ in pairs)]
    if len(inputs) != base.dim:
        raise ValueError(f"Pushforward: {len(inputs)} inputs for a Gaussian law on R^{base.dim}.")
    if len(set(known)) < len(known) or not set(outputs) <= set(known) or not outputs:
        raise ValueError(
            f"Pushforward: outputs {outputs} must be among {known}, each of them an input or defined once."
        )
    for i, (s, e) in enumerate(pairs):
        later = {t for t, _ in pairs[i:]} & e.free_symbols
        if later:
            raise ValueError(f"Pushforward: the definition of {s} reads {later}, which are not defined before it.")


def standard_normal(dim: int = 1) -> Gaussian:
    """N(0, I_dim)."""
    return Gaussian([0] * dim, sp.eye(dim))
