"""Whether an integrand surely has a Gaussian expectation, and whether a function surely has no second moment.

An argument by symmetry needs that an expectation exists; a target without a second moment has no exponents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import sympy as sp
from sympy.core.function import AppliedUndef

from derive.functions import He, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.polynomial import affine, quadratic
from derive.rules.glance import glance

__all__ = ["integrable", "undefined", "unsquarable"]

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


# ---- surely not -------------------------------------------------------------------------------------------
_POINTS = 60
_CLEARLY = 1e-6  # far above the rounding errors of a glance at values of order one


def undefined(f: sp.Expr, x: Sequence[sp.Symbol]) -> str | None:
    """Why f is surely not real on a set of positive probability, None where that is not shown.

    A logarithm, or a power that is no integer, of what is negative at some point, and so around it.
    """
    for node in sp.preorder_traversal(f):
        inside = _real_where_positive(node)
        if inside is None or not inside.has_free(*x):
            continue
        below = next((p for p, v in _values(inside, x) if v < -_CLEARLY), None)
        if below is not None:
            there = ", ".join(f"{s} = {below[s]:.3g}" for s in sorted(inside.free_symbols, key=str))
            return f"{node} is not real where {inside} is negative, e.g. at {there}"
    return None


def _real_where_positive(node: sp.Basic) -> sp.Expr | None:
    if isinstance(node, sp.log):
        return node.args[0]
    if isinstance(node, sp.Pow) and node.exp.is_integer is not True and not isinstance(node, sp.exp):
        return node.base
    return None


def unsquarable(f: sp.Expr, x: tuple[sp.Symbol, ...]) -> str | None:
    """Why E f^2 is surely infinite for x ~ N(0, I), None where that is not shown.

    A pole 1/b^p, p >= 1/2, of a smooth b that changes its sign where the other factors do not vanish; or
    exp(x^T A x + ..) with an eigenvalue of A of at least 1/4, or a polynomial of degree 3 or more without a bound.
    """
    if isinstance(f, sp.Add):
        whole = sp.together(f) if _poles(f, x) else f
        if not isinstance(whole, sp.Add):
            return unsquarable(whole, x)
        bad = [a for a in f.args if not integrable(a, x)]
        return unsquarable(bad[0], x) if len(bad) == 1 else None
    if isinstance(f, sp.Abs):
        return unsquarable(f.args[0], x)
    for factor in sp.Mul.make_args(f):
        rest = f / factor
        if isinstance(factor, sp.exp) and _explodes(factor.exp, x) and rest.is_polynomial(*x):
            return f"the mean square of {f} is infinite: {factor} outgrows the Gaussian weight"
        if isinstance(factor, sp.Pow) and factor.exp.is_number and factor.exp <= -sp.S.Half:
            at = _crossing(factor.base, x)
            value = None if at is None else glance(rest, at)
            if value is not None and abs(value) > _CLEARLY:
                return f"the mean square of {f} is infinite: {factor.base} passes through zero"
    return None


def _poles(f: sp.Expr, x: tuple[sp.Symbol, ...]) -> bool:
    return any(p.exp.could_extract_minus_sign() and p.base.has_free(*x) for p in f.atoms(sp.Pow))


def _explodes(exponent: sp.Expr, x: tuple[sp.Symbol, ...]) -> bool:
    parts = quadratic(exponent, x)
    if parts is not None:
        matrix = sp.Matrix(parts[0]) - sp.eye(len(x)) / 4
        return not matrix.free_symbols and matrix.is_negative_definite is False
    used = tuple(s for s in x if exponent.has_free(s))
    polynomial = exponent.as_poly(*used) if len(used) == 1 else None
    if polynomial is None or polynomial.degree() < 3:
        return False
    return bool(polynomial.degree() % 2 or polynomial.LC().is_positive)


def _crossing(base: sp.Expr, x: tuple[sp.Symbol, ...]) -> dict[sp.Symbol, float] | None:
    """A point where the base, if surely smooth, changes its sign."""
    inner = base.args[0] if isinstance(base, sp.Abs) else base
    rough = any(p.exp.is_Integer is not True or p.exp.is_negative for p in inner.atoms(sp.Pow) if p.has_free(*x))
    if rough or inner.has(sp.sign, sp.Heaviside, sp.log):
        return None
    seen = list(_values(inner, x))
    up = next((p for p, v in seen if v > _CLEARLY), None)
    down = next((p for p, v in seen if v < -_CLEARLY), None)
    if up is None or down is None:
        return None
    for _ in range(80):
        middle = {s: (up[s] + down[s]) / 2 for s in up}
        value = glance(inner, middle)
        if value is None:
            return None
        up, down = (middle, down) if value > 0 else (up, middle)
    return dict(up)


def _values(f: sp.Expr, x: Sequence[sp.Symbol]) -> Iterator[tuple[Mapping[sp.Symbol, float], float]]:
    """Values of f at points of R^x, the same at every call."""
    draw = random.Random(1)
    for _ in range(_POINTS):
        point = {s: draw.gauss(0.0, 1.5) for s in x}
        value = glance(f, point)
        if value is not None:
            yield point, value
