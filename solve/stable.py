"""Rewrites that keep digits: tails of distribution functions, differences from one, softmax, exact constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from derive.functions import He, LogCosh, Phi, SoftmaxEntry, sigmoid, softplus

__all__ = [
    "expm1",
    "largest",
    "log1p",
    "log_normal_distribution",
    "orthonormal_hermite",
    "stable",
    "tilted_normal_distribution",
]

_DIGITS = 30


class _Real(sp.Function):
    """A real-valued node that only the compiler sees."""

    def _eval_is_real(self) -> bool:
        return True


class expm1(_Real):
    """exp(x) - 1."""


class log1p(_Real):
    """log(1 + x)."""


class log_normal_distribution(_Real):
    """log Phi(x)."""


class tilted_normal_distribution(_Real):
    """exp(a) Phi(b)."""


class orthonormal_hermite(_Real):
    """He_n(x)/sqrt(n!)."""


class largest(_Real):
    """max(x_1, .., x_n), never evaluated: all entries of a softmax share one."""


def stable(expr: sp.Expr) -> sp.Expr:
    """An equal expression that loses no digits in the tails; constants become correctly rounded numbers.

    log Phi, log erfc, log sigmoid, log(1 + exp), phi/Phi, 1 - Phi, 1 - erf, exp - 1, softmax and He are replaced.
    """
    return _rewrite(expr, {})


def _rewrite(expr: sp.Basic, seen: dict[sp.Basic, sp.Basic]) -> Any:
    if expr in seen:
        return seen[expr]
    if isinstance(expr, sp.Expr) and expr.is_number and not expr.is_Rational:
        result: sp.Basic = _constant(expr)
    elif not expr.args:
        result = expr
    else:
        args = [_rewrite(a, seen) for a in expr.args]
        same = all(a is b for a, b in zip(args, expr.args, strict=True))
        result = _apply(expr if same else expr.func(*args))
    seen[expr] = result
    return result


def _constant(expr: sp.Expr) -> sp.Expr:
    """The number to 30 digits, so that it is rounded once, when it is printed."""
    written = expr.replace(Phi, lambda x: sp.erfc(-x / sp.sqrt(2)) / 2)
    written = written.replace(sigmoid, lambda x: 1 / (1 + sp.exp(-x)))
    written = written.replace(softplus, lambda x: sp.log(1 + sp.exp(x)))
    written = written.replace(LogCosh, lambda x: sp.log(2 * sp.cosh(x)))
    value = sp.N(written, _DIGITS)
    return value if value.is_Number else expr


def _apply(expr: sp.Basic) -> sp.Basic:
    rule = _RULES.get(type(expr))
    return rule(expr) if rule else expr


def _hermite(expr: sp.Expr) -> sp.Expr:
    n, x = expr.args
    return sp.N(sp.sqrt(sp.factorial(n)), _DIGITS) * orthonormal_hermite(n, x)


def _softmax(expr: sp.Expr) -> sp.Expr:
    top = largest(*sorted(set(expr.args), key=sp.default_sort_key))
    weights = [sp.exp(sp.Add(a, -top, evaluate=False)) for a in expr.args]
    return weights[0] / sp.Add(*weights)


def _log(expr: sp.Expr) -> sp.Expr:
    """log of a distribution function, a sigmoid, 1 + exp, 1 + x, or a positive multiple of one."""
    (x,) = expr.args
    number, rest = x.as_coeff_Mul()
    known = _log_of(rest) if number.is_positive else None
    if known is None:
        return expr
    return known if number == 1 else sp.N(sp.log(number), _DIGITS) + known


def _log_of(x: sp.Expr) -> sp.Expr | None:
    if isinstance(x, Phi):
        return log_normal_distribution(x.args[0])
    if isinstance(x, sp.erfc):
        return sp.N(sp.log(2), _DIGITS) + log_normal_distribution(_gauss_argument(x))
    if isinstance(x, sigmoid):
        return -softplus(-x.args[0])
    if isinstance(x, sp.cosh):
        return LogCosh(x.args[0]) - sp.N(sp.log(2), _DIGITS)
    if isinstance(x, sp.Add):
        one, rest = x.as_coeff_Add()
        if one == 1:
            return softplus(rest.args[0]) if isinstance(rest, sp.exp) else log1p(rest)
    return None


def _gauss_argument(x: sp.Expr) -> sp.Expr:
    """b in erfc(a) = 2 Phi(b)."""
    return -sp.N(sp.sqrt(2), _DIGITS) * x.args[0]


def _sum(expr: sp.Expr) -> sp.Expr:
    """c - c Phi(x) = c Phi(-x), likewise erf and sigmoid; c exp(x) - c = c expm1(x)."""
    number, rest = expr.as_coeff_Add()
    if number == 0:
        return expr
    for term in sp.Add.make_args(rest):
        factor, node = term.as_coeff_Mul()
        if factor == -number and isinstance(node, (Phi, sigmoid)):
            return rest - term + number * node.func(-node.args[0])
        if factor == -number and isinstance(node, sp.erf):
            return rest - term + number * sp.erfc(node.args[0])
        if factor == -number and isinstance(node, sp.exp):
            return rest - term + factor * expm1(node.args[0])
    return expr


def _product(expr: sp.Expr) -> sp.Expr:
    """exp(a) Phi(b)^p = (exp(a/p) Phi(b))^p, with erfc likewise; irrational numbers are multiplied out."""
    numbers = [a for a in expr.args if a.is_Number]
    exponents, tails, others = [], [], []
    for a in expr.args:
        base, power = a.as_base_exp()
        if isinstance(a, sp.exp):
            exponents.append(a.args[0])
        elif isinstance(base, (Phi, sp.erfc)) and power.is_Integer:
            tails.append((base, power))
        elif not a.is_Number:
            others.append(a)
    divisors = [t for t in tails if t[1].is_negative] or tails
    if len(divisors) != 1 or not exponents:
        return expr
    base, power = divisors[0]
    others += [b**p for b, p in tails if b is not base]
    b = base.args[0] if isinstance(base, Phi) else _gauss_argument(base)
    scale = 1 if isinstance(base, Phi) else 2**power
    tilted = tilted_normal_distribution(sp.Add(*exponents) / power, b) ** power
    return sp.Mul(scale, *numbers, *others, tilted)


_RULES: dict[type, Callable[[Any], sp.Expr]] = {
    sp.Add: _sum,
    sp.Mul: _product,
    He: _hermite,
    SoftmaxEntry: _softmax,
    sp.log: _log,
}
