"""Arithmetic on untrusted formulas: the float value of a constant is known and bounded before SymPy sees it.

SymPy evaluates constants eagerly and without limits: `exp(exp(exp(100)))`, `9**9**9`, products of large radicals,
`exp(1e20*log(3))` or the sign of a sum that is zero in disguise run for hours. Every operation here first
checks sizes on floats; results that are complex, infinite or undefined are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import sympy as sp

from derive import constants as floats
from derive.functions import He, LargestEigenvalue, SoftmaxEntry, hermite_polynomial
from derive.syntax import Fault

__all__ = ["EQUATIONS", "FORMULAS", "Arithmetic", "Limits", "Scalar"]

_LONGEST_RATIONAL = 8192  # bits
_LONGEST_RADICAND = 64  # bits: SymPy looks for factors and powers in what stands under a root,
_LONGEST_ROOT = 600  # and raises it to the order of the root
_LARGEST_CONSTANT = 60  # nodes, of an irrational one
_MOST_NESTED_IN_CONSTANT = 3  # functions: SymPy's evalf and assumptions take exponential time in that
_MOST_SIGNS = 40  # of differences that assumptions are asked for, in max and min; a few milliseconds each


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one formula may ask for."""

    characters: int
    digits: int  # of an integer
    exponent: int  # constant exponents, and orders of Hermite polynomials
    comparisons: int  # of pairs of arguments of max and min
    irrationals: int  # different constants; roots other than square roots of integers count fivefold
    nested: int  # functions inside one another: SymPy's assumptions take exponential time in that
    nodes: int  # in all results together


FORMULAS = Limits(characters=3000, digits=30, exponent=64, comparisons=2000, irrationals=40, nested=6, nodes=60_000)
EQUATIONS = Limits(
    characters=250_000, digits=60, exponent=256, comparisons=8000, irrationals=200, nested=8, nodes=1_000_000
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """An expression; `value`: its float if it is a constant; `size`: nodes of its tree; `nested`: functions."""

    expr: sp.Expr
    value: float | None
    size: int
    nested: int

    @property
    def constant(self) -> bool:
        return self.value is not None


@dataclass
class Arithmetic:
    """The operations of one formula, within `limits` for all of them together. Every method may raise `Fault`."""

    limits: Limits
    comparisons: int = 0
    nodes: int = 0
    irrationals: dict[object, int] = field(default_factory=dict)

    def number(self, text: str) -> Scalar:
        """The literal `text`, exactly: 0.1 is 1/10."""
        mantissa, _, exponent = text.lower().partition("e")
        digits = len(mantissa.replace(".", "").lstrip("0"))
        if digits > self.limits.digits or len(exponent) > 3 or abs(int(exponent or 0)) > 60:
            raise Fault(f"has more than {self.limits.digits} digits or an exponent beyond 60")
        exact = Fraction(text)
        return self._scalar(sp.Rational(exact.numerator, exact.denominator), float(exact), ())

    def given(self, expr: sp.Expr) -> Scalar:
        """The value that the program gives to a name."""
        expr = sp.S(expr)
        size = 1 if not expr.args else sum(1 for _ in sp.preorder_traversal(expr))
        return Scalar(expr, floats.constant_value(expr) if expr.is_number else None, size, 0)

    def add(self, terms: Sequence[Scalar]) -> Scalar:
        """The sum of the terms."""
        constants = [t for t in terms if t.constant]
        constant = sp.Add(*(t.expr for t in constants))
        value = _value_of_sum(constant, constants)
        total = sp.Add(constant, *(t.expr for t in terms if not t.constant))
        return self._scalar(total, value if len(constants) == len(terms) else None, terms)

    def negative(self, x: Scalar) -> Scalar:
        """-x."""
        return self._scalar(-x.expr, None if x.value is None else -x.value, (x,))

    def multiply(self, factors: Sequence[Scalar]) -> Scalar:
        """The product of the factors."""
        value = floats.bounded(math.prod(f.value for f in factors if f.value is not None))
        known = all(f.constant for f in factors)
        return self._scalar(sp.Mul(*(f.expr for f in factors)), value if known else None, factors)

    def power(self, base: Scalar, exponent: Scalar) -> Scalar:
        """base ** exponent."""
        if exponent.value is not None and abs(exponent.value) > self.limits.exponent:
            raise Fault(f"has an exponent beyond {self.limits.exponent}")
        nests = int(not exponent.expr.is_Integer)
        self._before((base, exponent), nests)
        self._check_logarithms(exponent.expr)
        self._check_base(base, exponent)
        value = None
        if base.value is not None and exponent.value is not None:
            value = floats.bounded(floats.power(base.value, exponent.value))
        elif base.value is not None and base.value <= 0:
            raise Fault("raises a constant that is not positive to a variable power")
        result = base.expr**exponent.expr
        self._check_exponents(result)
        return self._scalar(result, value, (base, exponent), nests=nests)

    def inverse(self, x: Scalar) -> Scalar:
        """1/x."""
        return self.power(x, Scalar(sp.S.NegativeOne, -1.0, 1, 0))

    def apply(self, name: str, x: Scalar) -> Scalar:
        """The elementary function `name` of x."""
        function = floats.ELEMENTARY[name]
        self._before((x,), 1)
        value = None if x.value is None else floats.bounded(floats.real(function.value, x.value, function.domain))
        if name == "exp":
            self._check_logarithms(x.expr)
        if name == "log" and x.expr.is_negative:
            raise Fault("has no real value: the argument is negative")
        if name == "sqrt":
            self._check_base(x, Scalar(sp.S.Half, 0.5, 1, 0))
        return self._scalar(function.build(x.expr), value, (x,), nests=1)

    def hermite(self, n: int, x: Scalar) -> Scalar:
        """He_n(x)."""
        if not 0 <= n <= self.limits.exponent:
            raise Fault(f"needs an order from 0 to {self.limits.exponent}, and has {n}")
        self._before((x,), 1)
        if x.value is None:
            return self._scalar(He(n, x.expr), None, (x,), nests=1)
        if not x.expr.is_Rational and (n // 2 + 1) * x.size > _LARGEST_CONSTANT:
            raise Fault("is too involved a constant")
        before, value = 0.0, 1.0
        for k in range(n):  # He_{k+1} = x He_k - k He_{k-1}
            before, value = value, x.value * value - k * before
        floats.bounded(value)
        self.spend(n * x.size)
        return self._scalar(hermite_polynomial(n, x.expr), value, (x,) * (n // 2 + 1))

    def extremum(self, kind: type, arguments: Sequence[Scalar]) -> Scalar:
        """Max or Min of the arguments, without those that another one beats for a reason easily seen."""
        kept: list[Scalar] = []
        for new in arguments:
            self.comparisons += len(kept)
            if self.comparisons > self.limits.comparisons:
                raise Fault("compares too much; use fewer arguments of max and min")
            beats = [self._order(kind, new, old) for old in kept]
            if -1 not in beats:
                kept = [old for old, order in zip(kept, beats, strict=True) if order != 1] + [new]
        if len(kept) == 1:
            return kept[0]
        # SymPy compares every pair by costly means; where it is sure, so is _order, nearly always.
        return self._scalar(kind(*(k.expr for k in kept), evaluate=False), None, kept, nests=1)

    def _order(self, kind: type, new: Scalar, old: Scalar) -> int:
        """1 if `new` makes `old` superfluous, -1 the other way round, 0 if nothing is known."""
        difference = new.expr - old.expr if kind is sp.Max else old.expr - new.expr
        if difference.is_number:
            return 1 if floats.constant_value(difference) > 0 else -1
        if self.comparisons <= _MOST_SIGNS and difference.is_nonnegative:
            return 1
        return -1 if self.comparisons <= _MOST_SIGNS and difference.is_nonpositive else 0

    def softmax_entry(self, arguments: Sequence[Scalar]) -> Scalar:
        """exp(a) / (exp(a) + exp(b) + ...) of the arguments a, b, ..."""
        self._before(arguments, 1)
        values = [a.value for a in arguments if a.value is not None]
        value = floats.softmax_entry(values) if len(values) == len(arguments) else None
        return self._scalar(SoftmaxEntry(*(a.expr for a in arguments)), value, arguments, nests=1)

    def largest_eigenvalue(self, n: int, entries: Sequence[Scalar]) -> Scalar:
        """The largest eigenvalue of the symmetric (n, n) matrix with these entries by rows."""
        self._before(entries, 1)
        values = [e.value for e in entries if e.value is not None]
        value = floats.largest_eigenvalue(n, values) if len(values) == len(entries) else None
        return self._scalar(LargestEigenvalue(n, *(e.expr for e in entries)), value, entries, nests=1)

    def binding(self, expr: sp.Expr, parts: Sequence[Scalar]) -> Scalar:
        """A node with variables of its own, made of `parts`."""
        self._before(parts, 1)
        return self._scalar(expr, None, parts, nests=1)

    def check(self, expr: sp.Expr) -> None:
        """The bounds that hold for the operations, on the tree that SymPy made of them."""
        pending, seen = [expr], set[sp.Basic]()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, sp.Expr) and node.is_number and not isinstance(node, sp.Lambda):  # u -> u says it is
                floats.constant_value(node)
                continue
            self._check_exponents(node)
            pending.extend(floats.finite_parts(node))

    def _before(self, parts: Sequence[Scalar], nests: int) -> None:
        """What would take SymPy long is refused before it begins."""
        nested = max(p.nested for p in parts) + nests
        if nested > self.limits.nested:
            raise Fault(f"nests functions more than {self.limits.nested} deep")
        if nested > _MOST_NESTED_IN_CONSTANT and nests and all(p.constant for p in parts):
            raise Fault(f"nests functions of constants more than {_MOST_NESTED_IN_CONSTANT} deep")

    def _scalar(self, expr: sp.Expr, value: float | None, parts: Sequence[Scalar], *, nests: int = 0) -> Scalar:
        size = 1 + sum(p.size for p in parts)
        nested = max((p.nested for p in parts), default=0) + nests
        self.spend(1 + len(parts))
        if size > self.limits.nodes:
            raise Fault("is too large an expression")
        if expr in (sp.nan, sp.zoo, sp.oo, -sp.oo):
            raise Fault("has no finite value")
        if nests and not floats.is_finite(expr):
            raise Fault("has no real value")
        if not expr.is_number:
            return Scalar(expr, None, size, nested)
        if expr.is_Rational:
            return self._rational(expr, size)
        if nests:
            self._count_irrational(expr, 1)
        return self._irrational(expr, floats.constant_value(expr) if value is None else value, size, nested)

    def _rational(self, expr: sp.Rational, size: int) -> Scalar:
        if max(expr.p.bit_length(), expr.q.bit_length()) > _LONGEST_RATIONAL:
            raise Fault("is a fraction of thousands of digits")
        return Scalar(expr, floats.bounded(expr.p / expr.q), size, 0)

    def _irrational(self, expr: sp.Expr, value: float, size: int, nested: int) -> Scalar:
        if size > _LARGEST_CONSTANT:
            raise Fault(f"is a constant of more than {_LARGEST_CONSTANT} parts")
        return Scalar(expr, floats.bounded(value), size, nested)

    def _count_irrational(self, constant: object, weight: int) -> None:
        self.irrationals[constant] = weight
        if sum(self.irrationals.values()) > self.limits.irrationals:
            raise Fault("is one irrational constant too many")

    def spend(self, nodes: int) -> None:
        """Take `nodes` from the budget of the formula."""
        self.nodes += nodes
        if self.nodes > self.limits.nodes:
            raise Fault("makes the formula too large")

    def _check_exponents(self, result: sp.Basic) -> None:
        """Powers of powers multiply their exponents."""
        for factor in sp.Mul.make_args(result):
            if factor.is_Pow and factor.exp.is_Rational and abs(factor.exp) > self.limits.exponent:
                raise Fault(f"has an exponent beyond {self.limits.exponent}")

    def _check_logarithms(self, exponent: sp.Expr) -> None:
        """SymPy writes exp(c log r) as r**c, whatever c is."""
        for term in sp.Add.make_args(exponent):
            coefficient, rest = term.as_coeff_Mul()
            if abs(coefficient) > self.limits.exponent and rest.has(sp.log):
                raise Fault(f"has a power beyond {self.limits.exponent} in its exponent")

    def _check_base(self, base: Scalar, exponent: Scalar) -> None:
        """The rational that SymPy takes out of the power must stay short, and be free of long radicands."""
        number = base.expr if base.expr.is_Rational else base.expr.as_coeff_Mul()[0]
        shift = abs(float(exponent.expr.as_coeff_Add()[0]) if exponent.value is None else exponent.value)
        bits = max(number.p.bit_length(), number.q.bit_length())
        if bits * shift > _LONGEST_RATIONAL:
            raise Fault("has an exact value of thousands of digits")
        if exponent.constant and not exponent.expr.is_Integer and abs(number) != 1:
            order = exponent.expr.q if exponent.expr.is_Rational else 1
            if bits > _LONGEST_RADICAND or bits * order > _LONGEST_ROOT:
                raise Fault("takes a root of too long a number, or of too high an order")
            self._count_irrational((number, exponent.expr), 1 if number.is_Integer and order == 2 else 5)
        if number != 0 and shift * abs(math.log10(abs(number.p / number.q))) > 60:
            raise Fault("holds a number of 1e60 or more, or of 1e-60 or less")


def _value_of_sum(total: sp.Expr, constants: Sequence[Scalar]) -> float:
    if total.is_Rational:
        return floats.bounded(total.p / total.q)
    return floats.bounded(floats.total([c.value for c in constants if c.value is not None]))
