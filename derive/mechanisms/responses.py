"""Responses of trained vectors: derivatives of the loss in the fields (X w)_1 .. (X w)_L, where some fields vanish."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy as sp
from sympy.utilities.iterables import multiset_permutations

from derive.functions import SoftmaxEntry
from derive.losses import without_jumps

__all__ = ["Model", "Vector", "arrangements"]

_MOST_ARRANGEMENTS = 64


@dataclass(frozen=True)
class Vector:
    """A trained vector w of weight space and the symbols of its fields (X w)_1 .. (X w)_L in the output."""

    symbol: sp.Symbol
    fields: tuple[sp.Symbol, ...]


@dataclass(frozen=True)
class Model:
    """Output in the fields of the vectors and in scalars (biases); loss a Lambda of (label, output).

    `responses`: for a vector, its responses (L,) in the fields and the label, loss.variables[0], where they are not
    the derivative of the loss.
    """

    vectors: tuple[Vector, ...]
    output: sp.Expr
    loss: sp.Lambda
    responses: Mapping[sp.Symbol, tuple[sp.Expr, ...]]

    @property
    def length(self) -> int:
        return len(self.vectors[0].fields)

    def vector(self, symbol: sp.Symbol) -> Vector:
        return next(v for v in self.vectors if v.symbol == symbol)

    @cached_property
    def exchangeable(self) -> bool:
        """Whether permutations of the tokens are seen to leave the output as it is, and permute given responses."""
        swap = (1, 0, *range(2, self.length))
        cycle = (*range(1, self.length), 0)
        return self.length == 1 or all(self._keeps(order) for order in (swap, cycle))

    def _keeps(self, order: Sequence[int]) -> bool:
        moved = {v.fields[i]: v.fields[j] for v in self.vectors for i, j in enumerate(order)}
        if self.output.xreplace(moved) != self.output:
            return False
        return all(r[i].xreplace(moved) == r[j] for r in self.responses.values() for i, j in enumerate(order))

    def response(self, symbol: sp.Symbol, token: int, label: sp.Expr, zero: frozenset[sp.Symbol]) -> sp.Expr:
        """d loss / d (X w)_token, w = `symbol`, where the vectors in `zero` vanish."""
        own = self.vector(symbol).fields[token]
        at_zero = self._silent(zero)
        given = self.responses.get(symbol)
        if given is not None:
            return _collapsed(given[token].xreplace({self.loss.variables[0]: label, **at_zero}))
        others = {f: v for f, v in at_zero.items() if f != own}
        output = _collapsed(self.output.xreplace(others))
        (slope,) = without_jumps([output.diff(own)], "output")
        slope = _collapsed(slope.xreplace(at_zero))
        return slope if slope == 0 else slope * self._loss_slope(label, _collapsed(output.xreplace(at_zero)))

    def scalar_response(self, symbol: sp.Symbol, label: sp.Expr, zero: frozenset[sp.Symbol]) -> sp.Expr:
        """d loss / d symbol for a scalar of the output."""
        output = _collapsed(self.output.xreplace(self._silent(zero)))
        (slope,) = without_jumps([output.diff(symbol)], "output")
        return slope if slope == 0 else slope * self._loss_slope(label, output)

    def _silent(self, zero: frozenset[sp.Symbol]) -> dict[sp.Symbol, sp.Expr]:
        return dict.fromkeys((f for v in self.vectors if v.symbol in zero for f in v.fields), sp.S.Zero)

    def _loss_slope(self, label: sp.Expr, output: sp.Expr) -> sp.Expr:
        y, u = self.loss.variables
        (slope,) = without_jumps([self.loss.expr.xreplace({y: label}).diff(u)], "loss")
        return slope.xreplace({u: output})


def arrangements(signal: tuple[sp.Expr, ...]) -> Iterator[tuple[sp.Expr, ...]]:
    """The different orders of a signal's entries; raises `ValueError` where they are too many to go through."""
    counts = [signal.count(s) for s in set(signal)]
    total = math.factorial(len(signal)) // math.prod(map(math.factorial, counts))
    if total > _MOST_ARRANGEMENTS:
        raise ValueError(
            f"The output depends on the order of its tokens, and a signal can stand in {total} places; at most "
            f"{_MOST_ARRANGEMENTS} are gone through. Write the output as a function that permutations of the tokens "
            "leave as it is, or give the cases of the signal one by one with exchangeable=False."
        )
    ordered = sorted(signal, key=sp.default_sort_key)
    yield from (tuple(order) for order in multiset_permutations(ordered))


def _collapsed(e: sp.Expr) -> sp.Expr:
    """A softmax of n equal scores is 1/n."""
    return e.replace(
        lambda a: isinstance(a, SoftmaxEntry) and len(set(a.args)) == 1, lambda a: sp.Rational(1, len(a.args))
    )
