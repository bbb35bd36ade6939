"""Factors taken out of expectations without multiplying out the rest: parameters, and polynomial directions."""

from __future__ import annotations

import sympy as sp

from derive.expectation import Expectation
from derive.gaussian import conditional, wick
from derive.polynomial import generators, is_zero
from derive.rules.reading import law_of, unit_forms

__all__ = ["directions_out", "parameters_out"]

_MOST_PARTS = 64

Parts = dict[sp.Expr, sp.Expr]
"""{p: f}: the sum of p f, p without variables and f without parameters."""


def parameters_out(e: Expectation, kept: frozenset[sp.Symbol] = frozenset()) -> sp.Expr | None:
    """E[sum_j p_j f_j(x)] = sum_j p_j E f_j(x), so that E is needed once for all values of the parameters.

    kept: parameters that may stay inside. None where the integrand is no polynomial in the others, or one of too many
    terms.
    """
    inside = frozenset(e.variables) | kept
    if e.integrand.free_symbols <= inside:
        return None
    parts = _parts(e.integrand, inside)
    if parts is None:
        return None
    return sp.Add(*(p * Expectation(f, e.variables, e.measure) for p, f in parts.items()))


def directions_out(e: Expectation) -> sp.Expr | None:
    """E[sum_j p_j(y) f_j(x)] = E[sum_j E[p_j(y) | x] f_j(x)], polynomials p_j: an expectation over x alone."""
    law, variables = law_of(e), tuple(e.variables)
    found = generators(e.integrand)
    outer = [i for i, v in enumerate(variables) if any(g != v and g.has_free(v) for g in found)]
    inner = [i for i in range(law.dim) if i not in outer]
    if not inner or not outer or is_zero(law.marginal(outer).cov.det()):
        return None
    x, y = [variables[i] for i in outer], [variables[i] for i in inner]
    parts = _parts(e.integrand, frozenset(e.free_symbols) | frozenset(x))
    if parts is None:
        return None
    rows = sp.ImmutableDenseMatrix([unit_forms(law.dim)[i] for i in outer])
    given = conditional(law, rows, x).marginal(inner)
    return Expectation(sp.Add(*(wick(p, y, given) * f for p, f in parts.items())), x, law.marginal(outer))


def _parts(e: sp.Expr, inside: frozenset[sp.Symbol]) -> Parts | None:
    """e as a sum of parameters times functions of the symbols `inside`; None if that is not its form."""
    if not e.has_free(*inside):
        return {e: sp.S.One} if e.free_symbols else {sp.S.One: e}
    if e.free_symbols <= inside:
        return {sp.S.One: e}
    if isinstance(e, sp.Add):
        return _sum([_parts(a, inside) for a in e.args])
    if isinstance(e, sp.Mul):
        return _product([_parts(a, inside) for a in e.args])
    if isinstance(e, sp.Pow) and e.exp.is_Integer and e.exp.is_positive:
        return _product([_parts(e.base, inside)] * int(e.exp))
    return None


def _sum(terms: list[Parts | None]) -> Parts | None:
    total: dict[sp.Expr, list[sp.Expr]] = {}
    for parts in terms:
        if parts is None:
            return None
        for p, f in parts.items():
            total.setdefault(p, []).append(f)
    return {p: sp.Add(*f) for p, f in total.items()} if len(total) <= _MOST_PARTS else None


def _product(factors: list[Parts | None]) -> Parts | None:
    total: Parts | None = {sp.S.One: sp.S.One}
    for parts in factors:
        if parts is None or total is None:
            return None
        total = _sum([{p * q: f * g} for p, f in total.items() for q, g in parts.items()])
    return total
