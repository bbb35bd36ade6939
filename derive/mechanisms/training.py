"""How vectors are trained: data sets, linear updates by gradients, steps, initial vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import sympy as sp

from derive.mechanisms.sample_law import SIGNAL, Case, Direction, State

__all__ = ["Data", "Start", "Step", "Update", "descend", "rare_signal"]


def rare_signal(probability: sp.Expr, strength: sp.Expr, length: int, signals: int) -> tuple[Case, Case]:
    """y = 1 with `probability`: R = `signals` of L = `length` tokens have the mean strength xi; y = -1: none has."""
    if not 1 <= signals <= length:
        raise ValueError(f"{signals} of {length} tokens cannot carry the signal; give 1 <= R <= L.")
    present = (sp.S(strength),) * signals + (sp.S.Zero,) * (length - signals)
    p = sp.S(probability)
    return Case(p, sp.S.One, present), Case(1 - p, -sp.S.One, (sp.S.Zero,) * length)


@dataclass(frozen=True)
class Data:
    """A data set of n = ratio d samples. Steps on the same one use it again."""

    name: str
    ratio: sp.Expr


@dataclass(frozen=True)
class Update:
    """new = sum_v keep[v] v + sum_v gradients[v] (gradient of v), values and gradients of before the step."""

    keep: Mapping[sp.Symbol, sp.Expr]
    gradients: Mapping[sp.Symbol, sp.Expr]


def descend(symbol: sp.Symbol, rate: sp.Expr, decay: sp.Expr = sp.S.Zero) -> Update:
    """w - rate (gradient + decay w)."""
    return Update({symbol: 1 - sp.S(rate) * decay}, {symbol: -sp.S(rate)})


@dataclass(frozen=True)
class Step:
    """One step on `data`: what is trained and how; everything else stays."""

    data: Data
    updates: Mapping[sp.Symbol, Update]


@dataclass(frozen=True)
class Start:
    """Initial vectors that are not zero: their Gram matrix, and their overlaps with xi."""

    vectors: tuple[sp.Symbol, ...] = ()
    gram: sp.ImmutableDenseMatrix = field(default_factory=lambda: sp.ImmutableDenseMatrix(0, 0, []))
    overlaps: tuple[sp.Expr, ...] = ()

    def states(self) -> dict[sp.Symbol, State]:
        """The coordinates along xi and orthogonal directions. Raises `ValueError` for what is no Gram matrix."""
        n = len(self.vectors)
        if self.gram.shape != (n, n) or self.gram != self.gram.T or len(self.overlaps) != n:
            raise ValueError(f"Start: {n} vectors need a symmetric Gram matrix ({n}, {n}) and {n} overlaps with xi.")
        found: dict[sp.Symbol, State] = {}
        directions: list[tuple[Direction, int]] = []
        for i, v in enumerate(self.vectors):
            coordinates: dict[Direction, sp.Expr] = {SIGNAL: sp.S(self.overlaps[i])}
            for e, j in directions:
                inner = self.gram[i, j] - State.of(coordinates).inner(found[self.vectors[j]])
                coordinates[e] = sp.cancel(inner / e.square)
            rest = sp.cancel(self.gram[i, i] - State.of(coordinates).square)
            if rest.is_negative:
                raise ValueError(f"Start: the Gram matrix and the overlaps leave |{v}|^2 the negative part {rest}.")
            if rest != 0:
                new = Direction(f"{v}0", rest)
                directions.append((new, i))
                coordinates[new] = sp.S.One
            found[v] = replace(State.of(coordinates), square=self.gram[i, i])
        return found
