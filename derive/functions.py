"""Function nodes of the field that SymPy lacks or prints unstably: their values, derivatives and parity.

SymPy's own `exp, log, sin, cos, tanh, erf, Abs, sign, Max, Min, Heaviside` are used as they are
(`Heaviside(0) = 1/2`). Each node here has one meaning on every back end; the stable numerics are written by
the back ends (`solve.lower`, `verify.lower`), which look the node's class up in a table.
"""

from __future__ import annotations

from typing import Any

import mpmath
import sympy as sp
from sympy.core.function import ArgumentIndexError

__all__ = [
    "He",
    "LargestEigenvalue",
    "LogCosh",
    "Phi",
    "SoftmaxEntry",
    "attention",
    "elementary",
    "expand_hermite",
    "hermite_polynomial",
    "orthonormal",
    "relu",
    "sigmoid",
    "softmax",
    "softplus",
    "without_kinks_hidden",
]


def hermite_polynomial(n: int, x: sp.Expr) -> sp.Expr:
    """He_n(x) = sum_k (-1)^k n! / (2^k k! (n-2k)!) x^(n-2k), probabilists', written out."""
    return sp.Add(
        *(
            sp.Rational((-1) ** k * sp.factorial(n), 2**k * sp.factorial(k) * sp.factorial(n - 2 * k))
            * x ** (n - 2 * k)
            for k in range(n // 2 + 1)
        )
    )


class He(sp.Function):
    """He_n(x), the probabilists' Hermite polynomial: E[He_j(z) He_k(z)] = k! delta_jk for z ~ N(0, 1)."""

    nargs = 2

    @classmethod
    def eval(cls, n: sp.Expr, x: sp.Expr) -> sp.Expr | None:
        if not (n.is_Integer and n.is_nonnegative):
            raise ValueError(f"He(n, x) needs a non-negative integer n, got n = {n}.")
        if n <= 1:
            return x if n == 1 else sp.S.One
        if x.is_number:
            return sp.expand(hermite_polynomial(int(n), x))
        if x.could_extract_minus_sign():
            return (-1) ** n * cls(n, -x)
        return None

    def fdiff(self, argindex: int = 2) -> sp.Expr:
        n, x = self.args
        if argindex != 2:
            raise ArgumentIndexError(self, argindex)
        return n * He(n - 1, x)

    def _eval_is_real(self) -> bool | None:
        return bool(self.args[1].is_real) or None

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return hermite_polynomial(int(self.args[0]), self.args[1])._eval_evalf(prec)


def orthonormal(n: int, x: sp.Expr) -> sp.Expr:
    """h_n(x) = He_n(x) / sqrt(n!), so that E[h_j h_k] = delta_jk."""
    return He(n, x) / sp.sqrt(sp.factorial(n))


class _RealFunction(sp.Function):
    """A real function of one real argument. Abstract: `elementary` writes it by SymPy's own functions."""

    nargs = 1

    def elementary(self) -> sp.Expr:
        raise NotImplementedError

    def _eval_is_real(self) -> bool | None:
        return bool(self.args[0].is_real) or None

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.elementary()._eval_evalf(prec)


class relu(_RealFunction):
    """max(x, 0)."""

    @classmethod
    def eval(cls, x: sp.Expr) -> sp.Expr | None:
        if x.is_nonnegative:
            return x
        if x.is_nonpositive:
            return sp.S.Zero
        return None

    def elementary(self) -> sp.Expr:
        return self.args[0] * sp.Heaviside(self.args[0])

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sp.Heaviside(self.args[0])


class sigmoid(_RealFunction):
    """1 / (1 + exp(-x))."""

    @classmethod
    def eval(cls, x: sp.Expr) -> sp.Expr | None:
        return sp.S.Half if x.is_zero else None

    def elementary(self) -> sp.Expr:
        return 1 / (1 + sp.exp(-self.args[0]))

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        (x,) = self.args
        return sigmoid(x) * sigmoid(-x)


class softplus(_RealFunction):
    """log(1 + exp(x))."""

    @classmethod
    def eval(cls, x: sp.Expr) -> sp.Expr | None:
        return sp.log(2) if x.is_zero else None

    def elementary(self) -> sp.Expr:
        return sp.log(1 + sp.exp(-sp.Abs(self.args[0]))) + self.args[0] * sp.Heaviside(self.args[0])

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sigmoid(self.args[0])

    def _eval_evalf(self, prec: int) -> sp.Expr:
        x = self.args[0]._eval_evalf(prec)
        if not x.is_Float:
            return self.func(x)
        with mpmath.workprec(prec):
            t = x._to_mpmath(prec)
            return sp.Float._new((max(t, 0) + mpmath.log1p(mpmath.exp(-abs(t))))._mpf_, prec)


class LogCosh(_RealFunction):
    """log(2 cosh x), even: softplus(x) = x/2 + LogCosh(x/2)."""

    @classmethod
    def eval(cls, x: sp.Expr) -> sp.Expr | None:
        if x.is_zero:
            return sp.log(2)
        return cls(-x) if x.could_extract_minus_sign() else None

    def elementary(self) -> sp.Expr:
        return sp.log(1 + sp.exp(-2 * sp.Abs(self.args[0]))) + sp.Abs(self.args[0])

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sp.tanh(self.args[0])


class Phi(_RealFunction):
    """The distribution function of N(0, 1)."""

    @classmethod
    def eval(cls, x: sp.Expr) -> sp.Expr | None:
        if x.is_zero:
            return sp.S.Half
        if x is sp.oo:
            return sp.S.One
        return sp.S.Zero if x is -sp.oo else None

    def elementary(self) -> sp.Expr:
        return sp.erfc(-self.args[0] / sp.sqrt(2)) / 2

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sp.exp(-(self.args[0] ** 2) / 2) / sp.sqrt(2 * sp.pi)

    def _eval_evalf(self, prec: int) -> sp.Expr:
        # erfc of SymPy is cut to zero in the tail
        x = self.args[0]._eval_evalf(prec)
        if not x.is_Float:
            return self.func(x)
        with mpmath.workprec(prec):
            return sp.Float._new(mpmath.ncdf(x._to_mpmath(prec))._mpf_, prec)


class SoftmaxEntry(sp.Function):
    """exp(a) / (exp(a) + sum_j exp(b_j)), written SoftmaxEntry(a, b_1, .., b_n) with the b_j sorted."""

    @classmethod
    def eval(cls, *x: sp.Expr) -> sp.Expr | None:
        own, others = x[0], x[1:]
        if not others:
            return sp.S.One
        if len(others) == 1:
            return sigmoid(own - others[0])
        ordered = tuple(sorted(others, key=sp.default_sort_key))
        return cls(own, *ordered) if ordered != others else None

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        if argindex == 1:
            return self * (1 - self)
        own = self.args[argindex - 1]
        rest = self.args[: argindex - 1] + self.args[argindex:]
        return -self * SoftmaxEntry(own, *rest)

    def elementary(self) -> sp.Expr:
        return 1 / (1 + sp.Add(*(sp.exp(b - self.args[0]) for b in self.args[1:])))

    def _eval_is_real(self) -> bool | None:
        return all(a.is_real for a in self.args) or None

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.elementary()._eval_evalf(prec)


def softmax(rows: sp.MatrixBase) -> sp.ImmutableDenseMatrix:
    """Row-wise softmax of a matrix (m, n), entry by entry."""
    m, n = rows.shape

    def entry(i: int, j: int) -> sp.Expr:
        return SoftmaxEntry(rows[i, j], *(rows[i, k] for k in range(n) if k != j))

    return sp.ImmutableDenseMatrix(m, n, lambda i, j: entry(int(i), int(j)))


def attention(z: sp.MatrixBase) -> sp.ImmutableDenseMatrix:
    """softmax(z z^T), rows normalised, of a column (L, 1)."""
    return softmax(z * z.T)


def expand_hermite(expr: sp.Expr) -> sp.Expr:
    """Write every He(n, x) out as a polynomial of x (which stays unexpanded)."""
    return _rewrite(expr, He, lambda node: hermite_polynomial(int(node.args[0]), node.args[1]))


def elementary(expr: sp.Expr) -> sp.Expr:
    """Write relu, sigmoid, softplus, LogCosh, Phi and softmax by SymPy's own functions."""
    return _rewrite(_rewrite(expr, _RealFunction, _elementary), SoftmaxEntry, _elementary)


def _elementary(node: Any) -> sp.Expr:
    written: sp.Expr = node.elementary()
    return written


def without_kinks_hidden(expr: sp.Expr) -> sp.Expr:
    """Write relu, |.|, sign, max, min by Heaviside steps, sigmoid by tanh, softplus by log cosh, erf by Phi.

    The functions that remain have their kinks and jumps in `Heaviside` alone and a parity that SymPy sees.
    """
    step = sp.Heaviside
    expr = _rewrite(expr, sp.Max, lambda e: _chain(e.args, lambda a, b: b + (a - b) * step(a - b)))
    expr = _rewrite(expr, sp.Min, lambda e: _chain(e.args, lambda a, b: a - (a - b) * step(a - b)))
    expr = _rewrite(expr, relu, lambda e: e.args[0] * step(e.args[0]))
    expr = _rewrite(expr, sp.Abs, lambda e: e.args[0] * (2 * step(e.args[0]) - 1))
    expr = _rewrite(expr, sp.sign, lambda e: 2 * step(e.args[0]) - 1)
    expr = _rewrite(expr, sigmoid, lambda e: (1 + sp.tanh(e.args[0] / 2)) / 2)
    expr = _rewrite(expr, softplus, lambda e: e.args[0] / 2 + LogCosh(e.args[0] / 2))
    return _rewrite(expr, sp.erf, lambda e: 2 * Phi(sp.sqrt(2) * e.args[0]) - 1)


def _chain(args: tuple[sp.Expr, ...], pair: Any) -> sp.Expr:
    result = args[0]
    for a in args[1:]:
        result = pair(result, a)
    return result


def _rewrite(expr: sp.Expr, kind: type, rule: Any) -> sp.Expr:
    return expr.replace(lambda e: isinstance(e, kind), rule)


class LargestEigenvalue(sp.Function):
    """The largest eigenvalue of a symmetric (n, n) matrix, given as n and its entries by rows."""

    @classmethod
    def of(cls, matrix: sp.MatrixBase) -> sp.Expr:
        """The node for `matrix`; a diagonal matrix of equal entries gives the entry."""
        n = matrix.rows
        diagonal = {matrix[i, i] for i in range(n)}
        if matrix.is_diagonal() and len(diagonal) == 1:
            return diagonal.pop()
        return cls(sp.Integer(n), *matrix)

    def _eval_is_real(self) -> bool:
        return True

    def _eval_evalf(self, prec: int) -> sp.Expr:
        n = int(self.args[0])
        entries = [a._eval_evalf(prec) for a in self.args[1:]]
        if not all(a.is_Float or a.is_Rational for a in entries):
            return self
        with mpmath.workprec(prec + 10):
            matrix = mpmath.matrix(n, n)
            for k, a in enumerate(entries):
                matrix[k // n, k % n] = a._to_mpmath(prec + 10)
            largest = max(mpmath.eigsy(matrix, eigvals_only=True))
        return sp.Float._new(largest._mpf_, prec)
