"""Scalars, vectors and matrices of a formula, and the functions that a formula may call on them.

Operators and elementary functions act entry by entry, scalars are repeated, other shapes must be equal: what
NumPy does, without its silent repetition of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sympy as sp

from derive.arithmetic import Arithmetic, Scalar
from derive.constants import ELEMENTARY
from derive.syntax import Fault

__all__ = ["EQUATION_FUNCTIONS", "FORMULA_FUNCTIONS", "Array", "Function", "elementwise", "stack"]

_MOST_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class Array:
    """Entries row by row; the shape () is a scalar, (n,) a vector, (m, n) a matrix."""

    shape: tuple[int, ...]
    entries: tuple[Scalar, ...]

    def rows(self) -> list[tuple[Scalar, ...]]:
        """The rows of a matrix; a vector is one row."""
        width = self.shape[-1]
        return [self.entries[i : i + width] for i in range(0, len(self.entries), width)]

    def scalar(self, role: str) -> Scalar:
        """The one entry. Raises `Fault` unless this is a scalar."""
        if self.shape:
            raise Fault(f"has {role} of shape {self.shape} where a scalar is needed")
        return self.entries[0]

    def vector(self, role: str) -> tuple[Scalar, ...]:
        """The entries. Raises `Fault` unless this is a vector."""
        if len(self.shape) != 1:
            raise Fault(f"has {role} of shape {self.shape} where a vector is needed")
        return self.entries

    def export(self) -> sp.Expr | sp.ImmutableDenseMatrix:
        """In SymPy's terms: a vector is a column."""
        if not self.shape:
            return self.entries[0].expr
        rows, columns = (*self.shape, 1)[:2]
        return sp.ImmutableDenseMatrix(rows, columns, [s.expr for s in self.entries])


Function: TypeAlias = Callable[[Arithmetic, Sequence[Array]], Array]


def elementwise(function: Callable[[Sequence[Scalar]], Scalar], arrays: Sequence[Array]) -> Array:
    """`function` of the corresponding entries of the arrays. Raises `Fault` if their shapes differ."""
    shapes = {a.shape for a in arrays if a.shape}
    if len(shapes) > 1:
        listed = " and ".join(map(str, sorted(shapes)))
        raise Fault(f"combines the shapes {listed}; they must be equal, or one of them a scalar")
    count = max(len(a.entries) for a in arrays)
    aligned = [a.entries if a.shape else a.entries * count for a in arrays]
    entries = tuple(function(x) for x in zip(*aligned, strict=True))
    return Array(shapes.pop() if shapes else (), entries)


def stack(items: Sequence[Array]) -> Array:
    """[items]: a vector of scalars, or a matrix whose rows are vectors of one length."""
    shapes = {i.shape for i in items}
    shape = shapes.pop()
    if shapes or len(shape) > 1:
        raise Fault("is no vector [a, b] and no matrix [[a, b], [c, d]] of rows of one length")
    return Array((len(items), *shape), tuple(s for i in items for s in i.entries))


def _elementary(name: str) -> Function:
    def function(do: Arithmetic, arguments: Sequence[Array]) -> Array:
        return elementwise(lambda x: do.apply(name, x[0]), _counted(arguments, 1))

    return function


def _hermite(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    order, x = _counted(arguments, 2)
    n = order.scalar("an order").expr
    if not n.is_Integer:
        raise Fault("needs a whole number as its order")
    return elementwise(lambda s: do.hermite(int(n), s[0]), [x])


def _orthonormal(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    polynomial = _hermite(do, arguments)
    n = int(arguments[0].entries[0].expr)
    norm = do.given(1 / sp.sqrt(math.factorial(n)))
    return elementwise(lambda s: do.multiply([s[0], norm]), [polynomial])


def _of_order(function: Function, n: int) -> Function:
    def fixed(do: Arithmetic, arguments: Sequence[Array]) -> Array:
        return function(do, [Array((), (do.given(sp.Integer(n)),)), *_counted(arguments, 1)])

    return fixed


def _extremum(kind: type) -> Function:
    def function(do: Arithmetic, arguments: Sequence[Array]) -> Array:
        if len(arguments) > 1:
            return elementwise(lambda x: do.extremum(kind, x), arguments)
        if not arguments[0].shape:
            raise Fault("needs at least two arguments, or one vector or matrix")
        return Array((), (do.extremum(kind, arguments[0].entries),))

    return function


def _sum(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    (x,) = _counted(arguments, 1)
    return Array((), (do.add(x.entries),))


def _prod(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    (x,) = _counted(arguments, 1)
    return Array((), (do.multiply(x.entries),))


def _trace(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    (x,) = _counted(arguments, 1)
    if len(x.shape) != 2 or x.shape[0] != x.shape[1]:
        raise Fault(f"has an argument of shape {x.shape} where a square matrix is needed")
    return Array((), (do.add([row[i] for i, row in enumerate(x.rows())]),))


def _outer(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    left, right = (a.vector("an argument") for a in _counted(arguments, 2))
    if len(left) * len(right) > _MOST_ENTRIES:
        raise Fault(f"makes a matrix of more than {_MOST_ENTRIES} entries")
    return Array((len(left), len(right)), tuple(do.multiply([a, b]) for a in left for b in right))


def _softmax(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    (x,) = _counted(arguments, 1)
    if not x.shape:
        raise Fault("needs a vector, or a matrix for its rows")
    do.spend(3 * len(x.entries) * x.shape[-1])
    entries = (do.softmax_entry((row[i], *row[:i], *row[i + 1 :])) for row in x.rows() for i in range(len(row)))
    return Array(x.shape, tuple(entries))


def _attention(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    (z,) = _counted(arguments, 1)
    do.spend(len(z.vector("an argument")) ** 3)  # before the many products, whether its softmax is affordable
    return _softmax(do, [_outer(do, [z, z])])


def _softmax_entry(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    return Array((), (do.softmax_entry([a.scalar("an argument") for a in arguments]),))


def _largest_eigenvalue(do: Arithmetic, arguments: Sequence[Array]) -> Array:
    order, *entries = (a.scalar("an argument") for a in arguments)
    if not (order.expr.is_Integer and 1 <= order.expr <= 64 and order.expr**2 == len(entries)):
        raise Fault("needs a number n from 1 to 64, then the n**2 entries of a matrix by rows")
    return Array((), (do.largest_eigenvalue(int(order.expr), entries),))


def _counted(arguments: Sequence[Array], n: int) -> Sequence[Array]:
    if len(arguments) != n:
        raise Fault(f"has {len(arguments)} argument{'s' * (len(arguments) != 1)} where {n} must stand")
    return arguments


_ONLY_IN_EQUATIONS = ("logcosh", "delta", "asin", "acos", "atan", "sinh", "cosh", "erfc", "sech_spectrum")

FORMULA_FUNCTIONS: Mapping[str, Function] = {
    **{name: _elementary(name) for name in ELEMENTARY if name not in _ONLY_IN_EQUATIONS},
    **{f"He{n}": _of_order(_hermite, n) for n in range(2, 13)},
    **{f"h{n}": _of_order(_orthonormal, n) for n in range(2, 13)},
    "He": _hermite,
    "h": _orthonormal,
    "max": _extremum(sp.Max),
    "min": _extremum(sp.Min),
    "sum": _sum,
    "prod": _prod,
    "outer": _outer,
    "softmax": _softmax,
    "trace": _trace,
    "attention": _attention,
}
EQUATION_FUNCTIONS: Mapping[str, Function] = {
    **FORMULA_FUNCTIONS,
    **{name: _elementary(name) for name in _ONLY_IN_EQUATIONS},
    "softmax_entry": _softmax_entry,
    "largest_eigenvalue": _largest_eigenvalue,
}
