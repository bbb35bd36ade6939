"""Nodes with variables of their own: what `PositiveSum` and `Minimum` share."""

from __future__ import annotations

import re
from collections.abc import Sequence

import sympy as sp

from derive.expectation import Expectation, bound_symbol

__all__ = ["Binder", "binders", "canonical"]

_NAME = re.compile(r"x(?:(\d+)_)?\d+")


class Binder(sp.Expr):
    """A real number that depends on expressions of bound variables. Abstract: subclasses say which args those are.

    `variables`: the bound symbols. `inside`: the expressions that read them; `outside`: those that do not.
    """

    is_commutative = True

    @property
    def variables(self) -> sp.Tuple:
        raise NotImplementedError

    @property
    def inside(self) -> tuple[sp.Expr, ...]:
        raise NotImplementedError

    @property
    def outside(self) -> tuple[sp.Expr, ...]:
        raise NotImplementedError

    @property
    def bound_symbols(self) -> list[sp.Symbol]:
        return list(self.variables)

    @property
    def free_symbols(self) -> set[sp.Basic]:
        inside: set[sp.Basic] = set().union(*(e.free_symbols for e in self.inside)) - set(self.variables)
        return inside.union(*(e.free_symbols for e in self.outside))

    def has_free(self, *symbols: sp.Basic) -> bool:
        return not self.free_symbols.isdisjoint(symbols)

    def _eval_subs(self, old: sp.Basic, new: sp.Basic) -> sp.Expr | None:
        return self if old in self.variables else None

    def _eval_is_real(self) -> bool:
        return True

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        if not self.has_free(s):
            return sp.S.Zero
        raise NotImplementedError(f"No derivative rule for {type(self).__name__}; it is evaluated by numbers alone.")


def canonical(variables: Sequence[sp.Symbol], inside: Sequence[sp.Expr]) -> tuple[sp.Tuple, tuple[sp.Expr, ...]]:
    """The variables under canonical names, x1 .. or x1_1 .. around nodes with variables of their own.

    Expressions that are equal up to these names become equal.
    """
    nested = set().union(*(e.atoms(Binder, Expectation) for e in inside))
    level = 1 + max((_level(v) for e in nested for v in e.variables), default=-1)
    taken = {_level(s) for s in set().union(*(e.free_symbols for e in inside)) - set(variables)}
    while level in taken:
        level += 1
    names = [bound_symbol(level, i) for i in range(len(variables))]
    renamed = dict(zip(variables, names, strict=True))
    return sp.Tuple(*names), tuple(e.xreplace(renamed) for e in inside)


def _level(s: sp.Symbol) -> int:
    name = _NAME.fullmatch(s.name) if s.assumptions0.get("bound") else None
    return -1 if name is None else int(name[1] or 0)


def binders(expr: sp.Basic) -> set[Binder]:
    """The nodes with variables of their own that stand in `expr`, outermost only, none under an expectation."""
    if isinstance(expr, Binder):
        return {expr}
    return set() if isinstance(expr, Expectation) else set().union(*map(binders, expr.args))
