"""An expectation as rules see it: its Gaussian law, its terms, coordinates along linear forms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import sympy as sp

from derive.expectation import Expectation
from derive.gaussian import Term, inverse, terms
from derive.measures import Gaussian
from derive.polynomial import is_zero

__all__ = ["expectation_of", "law_of", "normal_form", "only_term", "section", "terms_of", "unit_forms"]


def law_of(e: Expectation) -> Gaussian:
    """The Gaussian law of an expectation; `TypeError` for another law."""
    law = e.measure
    if not isinstance(law, Gaussian):
        raise TypeError(f"These rules are about Gaussian laws, got {type(law).__name__}.")
    return law


def terms_of(e: Expectation) -> tuple[Term, ...]:
    """The summands of the integrand."""
    return terms(e.integrand, tuple(e.variables))


def only_term(e: Expectation) -> Term | None:
    """The integrand if it is one term, which is what most rules are about; None for a sum."""
    parts = terms_of(e)
    return parts[0] if len(parts) == 1 else None


def expectation_of(term: Term, e: Expectation) -> sp.Expr:
    """E of one term under the law of `e`."""
    return Expectation(term.expr, tuple(e.variables), e.measure)


def normal_form(e: Expectation) -> sp.Expr:
    """The integrand multiplied out, steps in normal form."""
    return sp.Add(*(t.expr for t in terms_of(e)))


def unit_forms(n: int) -> list[tuple[sp.Expr, ...]]:
    """The coordinates of R^n as linear forms."""
    return [tuple(sp.S(int(i == j)) for j in range(n)) for i in range(n)]


def section(
    forms: list[tuple[sp.Expr, ...]], y: Sequence[sp.Symbol], x: tuple[sp.Symbol, ...]
) -> dict[sp.Symbol, sp.Expr]:
    """Values of x with A x = y: an atom that depends on A x alone takes its value there."""
    rows = sp.ImmutableDenseMatrix(forms)
    pivots = _pivot_columns(rows)
    square = rows.extract(list(range(rows.rows)), pivots)
    solved = inverse(square) * sp.ImmutableDenseMatrix(list(y))
    point: dict[sp.Symbol, sp.Expr] = dict.fromkeys(x, sp.S.Zero)
    return point | {x[p]: sp.expand(v) for p, v in zip(pivots, solved, strict=True)}


def _pivot_columns(rows: sp.ImmutableDenseMatrix) -> list[int]:
    for columns in combinations(range(rows.cols), rows.rows):
        if not is_zero(rows.extract(list(range(rows.rows)), list(columns)).det()):
            return list(columns)
    raise AssertionError("independent rows have a regular minor")
