"""Rules that turn a Gaussian expectation into an equal expression: closed, or over fewer variables.

Each rule is a theorem about Gaussian vectors, not about a model. `closed_form` keeps an expectation as it is
written unless the rules remove it; `reduced` also accepts a result whose expectations are over fewer variables or
have lost parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import sympy as sp

from derive.expectation import Expectation, expectations
from derive.functions import He, Phi, relu
from derive.measures import Gaussian
from derive.polynomial import expand
from derive.rules.exponentials import oscillation, reflection, tilting
from derive.rules.free import free_moments
from derive.rules.parameters import directions_out, parameters_out
from derive.rules.reading import terms_of
from derive.rules.spectral import is_spectral, spectral
from derive.rules.steps import half_line, point_mass, probit, quadrant
from derive.rules.structure import (
    conditioning,
    degenerate,
    independence,
    keeps_all_variables,
    linearity,
    symmetry,
)
from derive.spectra import FreeConvolution, Spectrum

__all__ = ["RULES", "Rule", "closed_form", "compact", "may_close", "reduced"]

_MOST_PARTS = 16

Rule: TypeAlias = Callable[[Expectation], sp.Expr | None]

RULES: tuple[Rule, ...] = (
    symmetry,
    linearity,
    point_mass,
    degenerate,
    oscillation,
    conditioning,
    tilting,
    reflection,
    spectral,
    probit,
    half_line,
    quadrant,
    independence,
)


def closed_form(expr: sp.Expr, rules: Sequence[Rule] = RULES) -> sp.Expr:
    """`expr` with each expectation replaced by its closed form, where the rules remove it completely."""
    return _replace(expr, lambda e: _accept_closed(e, tuple(rules)))


def reduced(expr: sp.Expr, rules: Sequence[Rule] = RULES) -> sp.Expr:
    """`expr` with each expectation replaced where that leaves fewer variables or parameters inside E."""
    return _replace(expr, lambda e: _accept_smaller(e, tuple(rules)))


def compact(expr: sp.Expr) -> sp.Expr:
    """`expr` with polynomial directions integrated and parameters taken out, nothing else multiplied out."""
    return _replace(expr, _compacted)


def may_close(e: sp.Expr) -> bool:
    """Whether an expectation holds nothing but polynomials, steps, exponentials and waves, which the rules close."""
    if not isinstance(e, Expectation):
        return True
    closing = (
        sp.Heaviside,
        sp.DiracDelta,
        sp.exp,
        sp.cos,
        sp.sin,
        Phi,
        sp.erf,
        relu,
        sp.Abs,
        sp.sign,
        sp.Max,
        sp.Min,
        He,
    )
    return all(isinstance(f, closing) for f in e.integrand.atoms(sp.Function) | e.integrand.atoms(sp.exp))


def _accept_closed(e: Expectation, rules: tuple[Rule, ...]) -> sp.Expr:
    result = _reduce(e, rules)
    return e if any(not _is_moment(a) for a in result.atoms(Expectation)) else result


def _is_moment(e: Expectation) -> bool:
    """Whether it is a number of the target's own spectrum, which no rule reduces."""
    return isinstance(e.measure, Spectrum) and not isinstance(e.measure, FreeConvolution)


def _accept_smaller(e: Expectation, rules: tuple[Rule, ...]) -> sp.Expr:
    has_mass = e.integrand.has(sp.DiracDelta)
    if not has_mass and _stays_large(e):
        return _compacted(e)
    result = _reduce(e, rules)
    if has_mass and not result.has(sp.DiracDelta):
        return expand(result)
    size = _size(result)
    return expand(result) if size <= _size(e) and size[2] <= _MOST_PARTS else _compacted(e)


def _compacted(e: Expectation) -> sp.Expr:
    fewer = (directions_out(e) if isinstance(e.measure, Gaussian) else None) or e
    if not isinstance(fewer, Expectation):
        return fewer
    apart = parameters_out(fewer)
    return fewer if apart is None else apart


def _stays_large(e: Expectation) -> bool:
    """Whether many terms surely keep all variables, so that nothing is gained by taking them one by one."""
    if not isinstance(e.measure, Gaussian) or e.measure.dim < 3:
        return False
    return sum(keeps_all_variables(e, t) for t in terms_of(e)) > _MOST_PARTS


def _size(expr: sp.Expr) -> tuple[int, int, int]:
    """(most variables of an expectation, whether those integrands hold parameters, how many of them there are)."""
    found = expr.atoms(Expectation)
    most = max((len(e.variables) for e in found), default=0)
    largest = [e for e in found if len(e.variables) == most]
    parameters = any(e.integrand.free_symbols - set(e.variables) for e in largest)
    return most, int(parameters), len(largest) if parameters or most > 1 else 1


def _replace(expr: sp.Expr, accept: Callable[[Expectation], sp.Expr]) -> sp.Expr:
    return expr.xreplace({e: accept(e) for e in expectations(expr)})


@lru_cache(maxsize=16384)
def _reduce(expr: sp.Expr, rules: tuple[Rule, ...] | None = None) -> sp.Expr:
    """Apply the first rule that fits, again and again, to every expectation."""
    used = RULES if rules is None else rules
    if not isinstance(expr, Expectation):
        return expr.xreplace({e: _reduce(e, rules) for e in expectations(expr)})
    if isinstance(expr.measure, Spectrum):
        found = free_moments(expr)
        return expr if found is None else found
    if not isinstance(expr.measure, Gaussian) or is_spectral(expr):
        return expr
    for rule in used:
        result = rule(expr)
        if result is not None:
            return _reduce(result, rules)
    return expr
