"""SymPy expressions as torch programs in float64: stable at the tails, differentiable by autograd.

A program is a list of elementwise torch operations, one for each different subexpression. No source text is
generated, so the names of symbols are never code; every operation is elementwise, so a batch has any shape.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
import torch
from torch import Tensor

from derive.functions import He, Phi, SoftmaxEntry, sigmoid
from verify.operations import ELEMENTWISE, Operation, gate, nary, next_orthonormal, power, stable_softplus

__all__ = ["Lowered", "Step", "lower"]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation and the slots that it reads; its result takes the next free slot."""

    operation: Operation
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Lowered:
    """f(values) = expressions at arguments = values, as one tensor (n_expressions, *batch).

    values: one tensor for each argument, broadcastable to a common batch shape; they are taken to float64. At
    a kink the gradient is a subgradient, at a jump it is 0. Raises `ValueError` for another number of values.
    """

    expressions: tuple[sp.Expr, ...]
    arguments: tuple[sp.Symbol, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        """The expressions at `values`, stacked along the first axis."""
        if len(values) != len(self.arguments):
            raise ValueError(f"The program needs a value for each of {self.arguments}, got {len(values)} values.")
        slots = [v.to(torch.float64) for v in values]
        for step in self.steps:
            slots.append(step.operation(*[slots[i] for i in step.inputs]))
        batch = np.broadcast_shapes(*{v.shape for v in values})
        device = values[0].device if values else torch.device("cpu")
        return torch.stack([slots[i].to(device).expand(batch) for i in self.outputs])


def lower(expressions: Sequence[sp.Expr], arguments: Sequence[sp.Symbol]) -> Lowered:
    """Compile expressions of the symbols `arguments` to a torch function of as many tensors.

    Raises `ValueError` for a symbol that is no argument, an argument given twice, or a constant that is not
    finite and real; `NotImplementedError` for a node without a rule here (an expectation, a derivative, ..).
    """
    symbols = tuple(arguments)
    if len(set(symbols)) < len(symbols):
        raise ValueError(f"lower: an argument is given twice in {symbols}. Name each argument once.")
    expressions = tuple(e if isinstance(e, sp.Expr) else sp.Float(e) for e in expressions)
    free = set().union(*(e.free_symbols for e in expressions)) - set(symbols)
    if free:
        names = ", ".join(sorted(s.name for s in free))
        raise ValueError(f"lower: {names} stand in the expressions but not among the arguments {symbols}.")
    scope = _Scope(_Tape(len(symbols)), {s: i for i, s in enumerate(symbols)})
    outputs = tuple(scope.slot(e) for e in expressions)
    return Lowered(expressions, symbols, tuple(scope.tape.steps), outputs)


class _Tape:
    """The steps so far; what depends on constants alone is evaluated at once and kept as a constant."""

    def __init__(self, arguments: int) -> None:
        self.arguments = arguments
        self.steps: list[Step] = []
        self.constants: dict[int, Tensor] = {}

    def constant(self, value: Tensor) -> int:
        slot = self._append(Step(lambda: value, ()))
        self.constants[slot] = value
        return slot

    def add(self, operation: Operation, *inputs: int) -> int:
        if all(i in self.constants for i in inputs):
            return self.constant(operation(*(self.constants[i] for i in inputs)))
        return self._append(Step(operation, inputs))

    def _append(self, step: Step) -> int:
        self.steps.append(step)
        return self.arguments + len(self.steps) - 1


@dataclass(frozen=True)
class _Scope:
    """Where expressions find their slots; a branch of a Piecewise has a scope of its own on the same tape."""

    tape: _Tape
    known: dict[object, int]

    def slot(self, expr: sp.Basic) -> int:
        if expr not in self.known:
            self.known[expr] = self._build(expr)
        return self.known[expr]

    def once(self, key: object, operation: Operation, *inputs: int) -> int:
        """The slot of an operation that has no SymPy node of its own, shared through `key`."""
        if key not in self.known:
            self.known[key] = self.tape.add(operation, *inputs)
        return self.known[key]

    def _build(self, expr: sp.Basic) -> int:
        if not expr.free_symbols and isinstance(expr, sp.Expr):
            value = _constant(expr)
            if value is not None:
                return self.tape.constant(torch.tensor(value, dtype=torch.float64))
        for kind in type(expr).__mro__:
            if kind in ELEMENTWISE:
                return self.tape.add(ELEMENTWISE[kind], *(self.slot(a) for a in expr.args))
            if kind in _RULES:
                return _RULES[kind](self, expr)
        raise NotImplementedError(
            f"No torch rule for {type(expr).__name__} in {expr}. Evaluate it first, or write it by "
            f"{', '.join(sorted(k.__name__ for k in (*ELEMENTWISE, *_RULES)))}."
        )


def _constant(expr: sp.Expr) -> float | None:
    """The float64 value of an expression without symbols, None when SymPy has no evaluation for its nodes."""
    value = expr.evalf(30)
    if value.is_Float or value.is_Integer:
        number = float(value)
        if math.isfinite(number):
            return number
    elif value.is_number and not value.has(sp.S.NaN, sp.S.Infinity, sp.S.ComplexInfinity, sp.I):
        return None
    raise ValueError(f"lower: the constant {expr} is not a finite real number in double precision.")


# ---------------------------------------------------------------- rules


def _add(scope: _Scope, expr: sp.Add) -> int:
    plus = [t for t in expr.args if not t.could_extract_minus_sign()]
    minus = [-t for t in expr.args if t.could_extract_minus_sign()]
    start, rest = (plus[0], plus[1:]) if plus else (sp.S.Zero, [])
    total = scope.slot(start)
    for t in rest:
        total = scope.tape.add(torch.add, total, scope.slot(t))
    for t in minus:
        total = scope.tape.add(torch.sub, total, scope.slot(t))
    return total


def _mul(scope: _Scope, expr: sp.Mul) -> int:
    """Numbers first, so that they fold; one division by the product of the negative powers."""
    above = [f for f in expr.args if not _is_divisor(f)]
    below = [1 / f for f in expr.args if _is_divisor(f)]
    numerator = _product(scope, above or [sp.S.One])
    return scope.tape.add(torch.div, numerator, _product(scope, below)) if below else numerator


def _is_divisor(factor: sp.Expr) -> bool:
    return isinstance(factor, sp.Pow) and bool(factor.exp.is_negative)


def _product(scope: _Scope, factors: Sequence[sp.Expr]) -> int:
    slots = [scope.slot(f) for f in sorted(factors, key=lambda f: bool(f.free_symbols))]
    return functools.reduce(lambda a, b: scope.tape.add(torch.mul, a, b), slots)


def _pow(scope: _Scope, expr: sp.Pow) -> int:
    base, exponent = scope.slot(expr.base), expr.exp
    if exponent == 2:
        return scope.tape.add(torch.square, base)
    if exponent == sp.S.Half:
        return scope.tape.add(torch.sqrt, base)
    if exponent == -1:
        return scope.tape.add(torch.reciprocal, base)
    if exponent == -sp.S.Half:
        return scope.tape.add(torch.reciprocal, scope.slot(sp.sqrt(expr.base)))
    if exponent.is_Rational:
        return scope.tape.add(functools.partial(power, float(exponent)), base)
    return scope.tape.add(torch.pow, base, scope.slot(exponent))


def _log(scope: _Scope, expr: sp.log) -> int:
    """log x; where x itself would under- or overflow, the logarithm is written directly."""
    (x,) = expr.args
    match x:
        case Phi(args=(t,)):
            return scope.tape.add(torch.special.log_ndtr, scope.slot(t))
        case sigmoid(args=(t,)):
            return scope.tape.add(lambda v: -stable_softplus(-v), scope.slot(t))
        case SoftmaxEntry():
            return scope.tape.add(torch.sub, scope.slot(x.args[0]), _log_sum_exp(scope, x.args))
    exponents = _exponents(x) if isinstance(x, sp.Add) else None
    return _log_sum_exp(scope, exponents) if exponents else scope.tape.add(torch.log, scope.slot(x))


def _exponents(total: sp.Add) -> tuple[sp.Expr, ...] | None:
    """The u_j with total = sum_j exp(u_j) and every u_j real, None when a term is not of that kind."""
    found = []
    for term in total.args:
        coefficient, rest = term.as_coeff_Mul()
        exponent = rest.exp if isinstance(rest, sp.exp) else sp.S.Zero if rest is sp.S.One else None
        if exponent is None or not coefficient.is_positive:
            return None
        found.append(sp.log(coefficient) + exponent)
    return tuple(found)


def _log_sum_exp(scope: _Scope, exponents: Sequence[sp.Expr]) -> int:
    ordered = tuple(sorted(exponents, key=sp.default_sort_key))
    slots = [scope.slot(u) for u in ordered]
    return scope.once((_log_sum_exp, ordered), nary(torch.logaddexp), *slots)


def _softmax_entry(scope: _Scope, expr: SoftmaxEntry) -> int:
    """exp(own - log sum exp): no overflow forwards, no 0 * inf backwards; the sum is shared within a row."""
    shifted = scope.tape.add(torch.sub, scope.slot(expr.args[0]), _log_sum_exp(scope, expr.args))
    return scope.tape.add(torch.exp, shifted)


def _hermite(scope: _Scope, expr: He) -> int:
    """He_n = sqrt(n!) h_n by the recurrence of the orthonormal h_k, which stay of moderate size."""
    n, x = int(expr.args[0]), expr.args[1]
    scale = math.prod(math.sqrt(k) for k in range(1, n + 1))
    if not math.isfinite(scale):
        raise ValueError(f"lower: He({n}, x) has coefficients beyond double precision; keep n below 300.")
    before, h = scope.slot(sp.S.One), scope.slot(x)
    for k in range(1, n):
        following = functools.partial(next_orthonormal, k)
        before, h = h, scope.once((He, k + 1, x), following, h, before, scope.slot(x))
    return scope.tape.add(lambda h: h * scale, h)


def _piecewise(scope: _Scope, expr: sp.Piecewise) -> int:
    """The first branch whose condition holds, nan where none does; the gradient is of that one alone."""
    tape = scope.tape
    free = tape.constant(torch.tensor(True))
    branches = []
    for branch, condition in expr.args:
        holds = scope.slot(condition)
        mask = tape.add(torch.logical_and, free, holds)
        gated = {s: tape.add(gate, mask, scope.slot(s)) for s in branch.free_symbols}
        branches.append((mask, _Scope(tape, dict(gated)).slot(branch)))
        free = tape.add(lambda a, b: a & ~b, free, holds)
    result = tape.constant(torch.tensor(math.nan, dtype=torch.float64))
    for mask, value in reversed(branches):
        result = tape.add(torch.where, mask, value, result)
    return result


_RULES: Mapping[type, Callable[[_Scope, sp.Basic], int]] = {
    sp.Add: _add,
    sp.Mul: _mul,
    sp.Pow: _pow,
    sp.log: _log,
    He: _hermite,
    SoftmaxEntry: _softmax_entry,
    sp.Piecewise: _piecewise,
    sp.logic.boolalg.BooleanTrue: lambda scope, _: scope.tape.constant(torch.tensor(True)),
    sp.logic.boolalg.BooleanFalse: lambda scope, _: scope.tape.constant(torch.tensor(False)),
}
