"""Nodes with variables of their own: what `PositiveSum` and `Minimum` share."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from derive.expectation import Expectation
from derive.scope import Scope, fresh_names

__all__ = ["Binder", "binders", "canonical"]


class Binder(Scope):
    """A real number that depends on expressions of bound variables. Abstract: subclasses say which args those are.

    `variables`: the bound symbols. `inside`: the expressions that read them; `outside`: those that do not.
    """

    is_commutative = True

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
    free = set().union(*(e.free_symbols for e in inside)) - set(variables)
    names = fresh_names(inside, free, len(variables))
    renamed = dict(zip(variables, names, strict=True))
    return sp.Tuple(*names), tuple(e.xreplace(renamed) for e in inside)


def binders(expr: sp.Basic) -> set[Binder]:
    """The nodes with variables of their own that stand in `expr`, outermost only, none under an expectation."""
    if isinstance(expr, Binder):
        return {expr}
    return set() if isinstance(expr, Expectation) else set().union(*map(binders, expr.args))
