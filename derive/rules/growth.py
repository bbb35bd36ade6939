"""Whether an integrand surely has a Gaussian expectation: an argument by symmetry needs that it exists."""

from __future__ import annotations

import sympy as sp
from sympy.core.function import AppliedUndef

from derive.functions import He, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.polynomial import affine, quadratic

__all__ = ["integrable"]

_BOUNDED = (sp.tanh, sp.sin, sp.cos, sp.atan, sp.sign, sp.Heaviside, sp.erf, Phi, sigmoid, SoftmaxEntry)
_NO_FASTER = (sp.Abs, sp.Max, sp.Min, relu, softplus, LogCosh, He)


def integrable(f: sp.Expr, x: tuple[sp.Symbol, ...]) -> bool:
    """Whether f is shown to be locally bounded and at most exp(linear) or polynomial in x; False: not shown.

    Activations of which nothing is known count as such.
    """
    if not f.has_free(*x):
        return True
    if isinstance(f, sp.Symbol | AppliedUndef) or f.func.__module__ == "derive.students":
        return True
    if isinstance(f, sp.Add | sp.Mul):
        return all(integrable(a, x) for a in f.args)
    if isinstance(f, _BOUNDED):
        return all(_finite(a, x) for a in f.args)
    if isinstance(f, _NO_FASTER):
        return all(integrable(a, x) and _polynomial_growth(a, x) for a in f.args)
    if isinstance(f, sp.exp):
        parts = quadratic(f.exp, x)
        return parts is not None and bool(parts[0].is_zero_matrix or parts[0].is_negative_semidefinite)
    if isinstance(f, sp.sinh | sp.cosh):
        return affine(f.args[0], x) is not None
    if isinstance(f, sp.Pow) and f.exp.is_number:
        whole = f.exp.is_Integer and f.exp.is_positive
        return integrable(f.base, x) and bool(whole or _away_from_zero(f, x))
    return False


def _finite(argument: sp.Expr, x: tuple[sp.Symbol, ...]) -> bool:
    """Whether the argument of a bounded function is real wherever x is."""
    return bool(argument.is_real) or integrable(argument, x)


def _polynomial_growth(f: sp.Expr, x: tuple[sp.Symbol, ...]) -> bool:
    return not f.has(sp.exp, sp.sinh, sp.cosh)


def _away_from_zero(f: sp.Expr, x: tuple[sp.Symbol, ...]) -> bool:
    """Whether the base is a polynomial that is positive everywhere, such as 1 + x^2, or only its root is taken."""
    parts = quadratic(f.base, x)
    if parts is not None:
        return bool(f.base.is_positive or (f.exp.is_positive and f.base.is_nonnegative))
    return bool(f.exp.is_positive and f.base.is_nonnegative)
