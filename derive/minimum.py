"""The least value of an expression over some of its variables, and where it is, as a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import sympy as sp

from derive.binding import Binder, canonical

__all__ = ["Minimum"]


class Minimum(Binder):
    """min over the variables of expr; with `index` i >= 1 the i-th coordinate of the place where it is reached.

    starts: points (one value for each variable, of the parameters) from which the minimum is sought; several, since
    there may be local ones. The least of what is found from them is meant.

    >>> b, s = sp.symbols("b s", real=True)
    >>> least = Minimum((b - s) ** 2 + 1, [b], [[0]])
    >>> least.place(1).free_symbols == {s}
    True
    """

    def __new__(
        cls, expr: sp.Expr, variables: Sequence[sp.Symbol], starts: Sequence[Sequence[Any]], index: int = 0
    ) -> Self:
        rows = [sp.Tuple(*map(sp.S, row)) for row in starts]
        if not rows or any(len(row) != len(variables) for row in rows) or not 0 <= index <= len(variables):
            raise ValueError(
                f"Minimum over {len(variables)} variables needs starts with as many values, and an index from 0 to "
                f"{len(variables)}; got {len(rows)} starts and {index}."
            )
        if any(row.has_free(*variables) for row in rows):
            raise ValueError("Minimum: a start reads the variables themselves; give it in the parameters.")
        names, (body,) = canonical(variables, [sp.S(expr)])
        new: Self = super().__new__(cls, body, names, sp.Tuple(*rows), sp.Integer(index))
        return new

    @property
    def expr(self) -> sp.Expr:
        return self.args[0]

    @property
    def variables(self) -> sp.Tuple:
        return self.args[1]

    @property
    def starts(self) -> tuple[sp.Tuple, ...]:
        return tuple(self.args[2])

    @property
    def index(self) -> int:
        return int(self.args[3])

    @property
    def inside(self) -> tuple[sp.Expr, ...]:
        return (self.expr,)

    @property
    def outside(self) -> tuple[sp.Expr, ...]:
        return tuple(value for row in self.starts for value in row)

    def place(self, index: int) -> Self:
        """The coordinate number `index` (from 1) of the minimum; 0: its value."""
        return type(self)(self.expr, list(self.variables), self.starts, index)

    def _sympystr(self, printer: Any) -> str:
        parts = (self.expr, list(self.variables), [list(row) for row in self.starts], sp.Integer(self.index))
        return f"Minimum({', '.join(map(printer._print, parts))})"
