"""Students of sequence models: functions of the local fields s_t = <x_t, w>, t = 1 .. L."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.document import TaskError
from derive.expectation import Expectation
from derive.functions import attention
from derive.gaussian import hermite_basis
from derive.parse import parse_constant
from derive.table import Table

__all__ = [
    "GenericActivation",
    "GenericOddActivation",
    "Reduction",
    "Student",
    "StudentKind",
    "attention_student",
    "name_generic_coefficients",
    "network",
    "read_student",
]


class StudentKind(enum.Enum):
    """How the student reads the tokens."""

    TIED = "tied"
    UNTIED = "untied"
    ATTENTION = "attention"


class GenericActivation(sp.Function):
    """An activation of which only is known that no allowed Hermite coefficient vanishes."""

    nargs = 1


class GenericOddActivation(sp.Function):
    """An odd activation of which only is known that no odd Hermite coefficient vanishes."""

    nargs = 1

    @classmethod
    def eval(cls, x: sp.Expr) -> sp.Expr | None:
        if x.is_zero:
            return sp.S.Zero
        return -cls(-x) if x.could_extract_minus_sign() else None


@dataclass(frozen=True)
class Student:
    """f(phi) with fields phi = mixing @ s, s_t = <x_t, w>; `output` flattened, of shape `shape`."""

    kind: StudentKind
    fields: tuple[sp.Symbol, ...]
    mixing: sp.ImmutableDenseMatrix
    output: tuple[sp.Expr, ...]
    shape: tuple[int, int] = (1, 1)

    @property
    def is_generic(self) -> bool:
        return any(f.has(GenericActivation, GenericOddActivation) for f in self.output)


def network(kind: StudentKind, length: int, activation: sp.Lambda) -> Student:
    """sigma(sum_i s_i / sqrt L) with one weight vector (tied) or one for each token (untied)."""
    u = sp.Symbol("u", real=True)
    tokens = length if kind is StudentKind.TIED else 1
    mixing = sp.ImmutableDenseMatrix(sp.ones(1, tokens) / sp.sqrt(tokens))
    return Student(kind, (u,), mixing, (activation(u),))


@dataclass(frozen=True)
class Reduction:
    """From the attention matrix A to the output: left^T A right, or tr A / sqrt L when `trace`."""

    left: tuple[sp.Expr, ...] = ()
    right: tuple[sp.Expr, ...] = ()
    trace: bool = False

    @property
    def is_constant(self) -> bool:
        """A constant right vector: the rows of A sum to 1, so the output does not depend on the data."""
        return not self.trace and len(set(self.right)) == 1


def attention_student(length: int, reduction: Reduction | None = None) -> Student:
    """A = row-softmax(s s^T), all of it or reduced to a number."""
    s = sp.symbols(f"s1:{length + 1}", real=True)
    matrix = attention(sp.ImmutableDenseMatrix(s))
    mixing = sp.ImmutableDenseMatrix(sp.eye(length))
    if reduction is None:
        return Student(StudentKind.ATTENTION, s, mixing, tuple(matrix), matrix.shape)
    if reduction.trace:
        value = matrix.trace() / sp.sqrt(length)
    else:
        value = (sp.Matrix([list(reduction.left)]) * matrix * sp.Matrix(list(reduction.right)))[0]
    return Student(StudentKind.ATTENTION, s, mixing, (value,))


def name_generic_coefficients(value: sp.Expr) -> sp.Expr:
    """E[sigma(x) h_n(x)] of a generic activation written as the nonzero symbol sigma_n."""
    return value.xreplace({e: _named(e) for e in value.atoms(Expectation)})


def _named(e: Expectation) -> sp.Expr:
    found = list(e.integrand.atoms(GenericActivation, GenericOddActivation))
    if len(e.variables) != 1 or len(found) != 1:
        return e
    (x,) = e.variables
    rest = e.integrand / found[0]
    if found[0].args[0] != x or rest.has(GenericActivation, GenericOddActivation):
        return e
    names = (
        c * sp.sqrt(sp.factorial(n)) * sp.Symbol(f"sigma_{n}", real=True, nonzero=True)
        for n, c in hermite_basis(rest, x).items()
    )
    return sp.Add(*names)


def read_student(table: Table, length: int, names: Mapping[str, Any]) -> Student:
    """The student that the table [student] states; raises `TaskError`."""
    kind = StudentKind(table.choice("kind", tuple(k.value for k in StudentKind)))
    if kind is StudentKind.ATTENTION:
        return attention_student(length, _reduction(table, length))
    x = sp.Symbol("x", real=True)
    text = table.text("activation")
    if text in ("generic", "generic-odd"):
        generic = GenericActivation if text == "generic" else GenericOddActivation
        return network(kind, length, sp.Lambda(x, generic(x)))
    return network(kind, length, sp.Lambda(x, table.formula("activation", {**names, "x": x})))


def _reduction(table: Table, length: int) -> Reduction | None:
    value = table.raw("reduction", default="none")
    if value == "none":
        return None
    if value == "trace":
        return Reduction(trace=True)
    vectors = table.mapping("reduction")
    if set(vectors) != {"left", "right"}:
        raise TaskError("student.reduction is none, trace, or {left = [..], right = [..]}.")
    left, right = (
        tuple(parse_constant(str(v), f"student.reduction.{side}") for v in vectors[side]) for side in ("left", "right")
    )
    for side, vector in (("left", left), ("right", right)):
        if len(vector) != length:
            raise TaskError(
                f"student.reduction.{side} has {len(vector)} entries; it needs {length}, one for each token."
            )
    reduction = Reduction(left, right)
    if reduction.is_constant:
        raise TaskError(
            "student.reduction.right is constant: the rows of the attention matrix sum to 1, so the output is a "
            "constant. Choose a right vector with different entries."
        )
    return reduction
