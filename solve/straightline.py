"""An expression as a straight-line program that runs in any arithmetic: balls, complex boxes, growth bounds."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

import sympy as sp
from flint import arb

from derive.functions import Phi, expand_hermite, without_kinks_hidden

__all__ = ["Arithmetic", "NotAffordable", "NotEnclosed", "Program", "compile_program", "plain"]

V = TypeVar("V")


class NotEnclosed(ArithmeticError):
    """No rigorous enclosure was found; the message says why."""


class NotAffordable(NotEnclosed):
    """The enclosure takes more work than is allowed: more precision will not help."""


class Arithmetic(abc.ABC, Generic[V]):
    """What a program needs: constants, sums, products, powers and functions of values of one kind."""

    @abc.abstractmethod
    def constant(self, value: arb) -> V: ...

    @abc.abstractmethod
    def add(self, a: V, b: V) -> V: ...

    @abc.abstractmethod
    def multiply(self, a: V, b: V) -> V: ...

    @abc.abstractmethod
    def power(self, a: V, exponent: sp.Rational) -> V: ...

    @abc.abstractmethod
    def apply(self, function: type, arguments: Sequence[V]) -> V:
        """The value of a function node; raises `NotEnclosed` for a node that the arithmetic does not know."""


@dataclass(frozen=True, slots=True)
class _Step:
    function: type
    operands: tuple[int, ...]
    exponent: sp.Rational | None = None


@dataclass(frozen=True)
class Program:
    """Registers: the variables, the constants, then one for each step; the last one is the value."""

    variables: tuple[sp.Symbol, ...]
    constants: tuple[sp.Expr, ...]
    steps: tuple[_Step, ...]
    value: int

    def run(self, arithmetic: Arithmetic[V], variables: Sequence[V], constants: Sequence[V]) -> V:
        """The value at `variables`; `constants`, in the same arithmetic, are those of `self.constants`."""
        registers = [*variables, *constants]
        for step in self.steps:
            registers.append(_run_step(step, [registers[i] for i in step.operands], arithmetic))
        return registers[self.value]


def _run_step(step: _Step, operands: list[V], arithmetic: Arithmetic[V]) -> V:
    if step.function is sp.Add or step.function is sp.Mul:
        pair = arithmetic.add if step.function is sp.Add else arithmetic.multiply
        result = operands[0]
        for operand in operands[1:]:
            result = pair(result, operand)
        return result
    if step.exponent is not None:
        return arithmetic.power(operands[0], step.exponent)
    return arithmetic.apply(step.function, operands)


@lru_cache(maxsize=4096)
def plain(expr: sp.Expr) -> sp.Expr:
    """`expr` in +, *, powers, exp, log, sin, cos, tanh, Phi, LogCosh, SoftmaxEntry and Heaviside alone."""
    expr = expand_hermite(expr).replace(sp.erfc, lambda x: 2 * Phi(-sp.sqrt(2) * x))
    return without_kinks_hidden(expr)


@dataclass
class _Compiler:
    variables: tuple[sp.Symbol, ...]
    constants: dict[sp.Expr, int] = field(default_factory=dict)
    steps: dict[_Step, int] = field(default_factory=dict)
    known: dict[sp.Expr, tuple[str, int]] = field(default_factory=dict)

    def read(self, e: sp.Expr) -> tuple[str, int]:
        """(kind of register, number within the kind)."""
        if e not in self.known:
            self.known[e] = self._read_new(e)
        return self.known[e]

    def _read_new(self, e: sp.Expr) -> tuple[str, int]:
        if e in self.variables:
            return "variable", self.variables.index(e)
        if not e.has_free(*self.variables):
            return "constant", self.constants.setdefault(e, len(self.constants))
        if isinstance(e, sp.Pow):
            return self._power(e)
        if isinstance(e, sp.Add | sp.Mul):
            return self._step(e.func, self._sorted(e))
        return self._step(e.func, list(e.args))

    def _sorted(self, e: sp.Expr) -> list[sp.Expr]:
        """Constants first and as one; then by the number of variables, which keeps arrays small for long."""
        fixed, moving = e.as_independent(*self.variables, as_Add=isinstance(e, sp.Add))
        parts = sorted(e.func.make_args(moving), key=lambda a: len(a.free_symbols & set(self.variables)))
        return parts if fixed == e.func.identity else [fixed, *parts]

    def _power(self, e: sp.Expr) -> tuple[str, int]:
        base, exponent = e.as_base_exp()
        if exponent.is_Rational:
            return self._step(sp.Pow, [base], exponent)
        return self.read(sp.exp(exponent * sp.log(base), evaluate=False))

    def _step(self, function: type, args: list[sp.Expr], exponent: sp.Rational | None = None) -> tuple[str, int]:
        step = _Step(function, tuple(self._pack(self.read(a)) for a in args), exponent)
        return "step", self.steps.setdefault(step, len(self.steps))

    def _pack(self, register: tuple[str, int]) -> int:
        # three counters in one integer until the number of constants is known
        kind, n = register
        return 3 * n + ("variable", "constant", "step").index(kind)

    def place(self, packed: int) -> int:
        n, kind = divmod(packed, 3)
        return n + (0, len(self.variables), len(self.variables) + len(self.constants))[kind]


@lru_cache(maxsize=1024)
def compile_program(expr: sp.Expr, variables: tuple[sp.Symbol, ...]) -> Program:
    """The program of `expr`, equal subexpressions once; what is free of `variables` becomes a constant."""
    compiler = _Compiler(variables)
    last = compiler._pack(compiler.read(expr))
    steps = tuple(_Step(s.function, tuple(compiler.place(o) for o in s.operands), s.exponent) for s in compiler.steps)
    return Program(variables, tuple(compiler.constants), steps, compiler.place(last))
