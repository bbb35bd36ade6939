"""Nodes that bind variables: the canonical names of these, which make nodes equal that differ in names alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

import sympy as sp

__all__ = ["Scope", "bound_symbol", "fresh_names"]

_NAME = re.compile(r"x(?:(\d+)_)?\d+")


class Scope(sp.Expr):
    """A node with `variables` of its own. Abstract: subclasses say which of their arguments those are."""

    @property
    def variables(self) -> sp.Tuple:
        raise NotImplementedError


def bound_symbol(level: int, i: int) -> sp.Symbol:
    """The canonical name of the i-th variable of a node that encloses `level` others."""
    return sp.Symbol(f"x{i + 1}" if level == 0 else f"x{level}_{i + 1}", real=True, bound=True)


def fresh_names(inside: Iterable[sp.Expr], free: Iterable[sp.Basic], count: int) -> tuple[sp.Symbol, ...]:
    """The names of `count` variables of a node around `inside`, beside the symbols `free`: those of the lowest level
    above all that are bound inside, and not in use.
    """
    nested = set().union(*(e.atoms(Scope) for e in inside))
    level = 1 + max((_level(v) for e in nested for v in e.variables), default=-1)
    taken = {_level(s) for s in free}
    while level in taken:
        level += 1
    return tuple(bound_symbol(level, i) for i in range(count))


def _level(s: sp.Basic) -> int:
    """The level of a canonical bound name, -1 for any other symbol."""
    name = _NAME.fullmatch(s.name) if isinstance(s, sp.Symbol) and s.assumptions0.get("bound") else None
    return -1 if name is None else int(name[1] or 0)
