"""The probability that a sum of independent terms is positive, as a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import sympy as sp

from derive.binding import Binder, canonical
from derive.functions import Phi

__all__ = ["PositiveSum", "probability_positive"]


class PositiveSum(Binder):
    """P(sum_j sum_{i <= n_j} h_j(z_ji) > 0) with all z_ji independent N(0, 1); never evaluates itself.

    summands: the h_j, in `variable`; counts: the n_j, numbers of tokens, which do not read it.

    >>> z, y = sp.symbols("z y", real=True)
    >>> PositiveSum(z, [sp.exp(z) - 1], [3]) == PositiveSum(y, [sp.exp(y) - 1], [3])
    True
    """

    def __new__(cls, variable: sp.Symbol, summands: Sequence[Any], counts: Sequence[Any]) -> Self:
        numbers = [sp.S(n) for n in counts]
        if not numbers or len(numbers) != len(summands):
            raise ValueError(f"PositiveSum needs a count for each summand, got {len(summands)} and {len(numbers)}.")
        if any(n.is_negative or n.has_free(variable) for n in numbers):
            raise ValueError(f"PositiveSum needs counts >= 0 that do not read {variable}, got {numbers}.")
        (name,), values = canonical([variable], [sp.S(h) for h in summands])
        new: Self = super().__new__(cls, name, sp.Tuple(*values), sp.Tuple(*numbers))
        return new

    @property
    def variables(self) -> sp.Tuple:
        return sp.Tuple(self.args[0])

    @property
    def inside(self) -> tuple[sp.Expr, ...]:
        """The h_j."""
        return tuple(self.args[1])

    @property
    def outside(self) -> tuple[sp.Expr, ...]:
        """The n_j."""
        return tuple(self.args[2])

    def _sympystr(self, printer: Any) -> str:
        parts = ", ".join(printer._print(list(a)) for a in (self.variables, self.inside, self.outside))
        return f"PositiveSum({parts})"


def probability_positive(variable: sp.Symbol, terms: Sequence[tuple[sp.Expr, sp.Expr]]) -> sp.Expr:
    """P(sum_j sum_{i <= n_j} h_j(z_ji) > 0): Phi(mean / deviation) where every h_j is affine, else the node."""
    slopes = [sp.S(h).diff(variable) for h, _ in terms]
    if any(a.has_free(variable) for a in slopes):
        return PositiveSum(variable, *zip(*terms, strict=True))
    mean = sp.Add(*(n * h.xreplace({variable: sp.S.Zero}) for h, n in terms))
    variance = sp.Add(*(n * a**2 for a, (_, n) in zip(slopes, terms, strict=True)))
    return Phi(sp.expand(mean / sp.sqrt(sp.factor(variance))))
