"""The expectation of a formula over standard normal variables: closed form where the rules reach, value, error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from derive.expectation import Expectation
from derive.latex import latex_expression
from derive.measures import Gaussian, standard_normal
from derive.parse import FormulaError, check_parameter_name, parse_constant, parse_expression
from derive.rules import reduced
from derive.text import text
from solve.exponents import number
from solve.lower import lower
from solve.result import SolveError, Status

__all__ = ["expect", "expectation_text", "without_value"]

_MOST_VARIABLES = 9
_WORST_RELATIVE_ERROR = 1e-2


def expect(formula: str, correlation: str | None = None, values: Mapping[str, str] | None = None) -> dict[str, Any]:
    """E[formula] over z (or z1 .. z9), independent N(0, 1), and u, v ~ N(0, 1) with the given correlation.

    values: declared parameters and their exact values. Raises `FormulaError` for a formula that is not accepted,
    `SolveError` where no value with a small error is found (an expectation that does not exist, say).
    """
    given = {
        sp.Symbol(check_parameter_name(name, ("u", "v")), real=True): parse_constant(value, name)
        for name, value in (values or {}).items()
    }
    variables = sp.symbols(f"z z1:{_MOST_VARIABLES + 1}", real=True)
    pair = sp.symbols("u v", real=True)
    names = {s.name: s for s in (*variables, *pair, *given)}
    integrand = parse_expression(formula, names)
    if isinstance(integrand, sp.MatrixBase):
        raise FormulaError("formula: the result is a matrix; an expectation is taken of one number.")
    law = _law(correlation, len(variables))
    _check_used(integrand, pair, correlation, given)
    expectation = Expectation(integrand.xreplace(given), (*variables, *pair), law)
    closed = reduced(expectation)
    (value,), (error,) = lower([closed], [])()
    if not np.isfinite(value) or not error <= _WORST_RELATIVE_ERROR * max(1.0, abs(value)):
        raise SolveError(
            f"E[{formula}]: no value was found to within 1 per cent (last value {value:.6g}, error {error:.1e}). "
            "The expectation may not exist.",
            Status.diverges,
            float(error),
        )
    is_closed = not closed.has(Expectation)
    return {
        "closed_form": text(closed) if is_closed else None,
        "text": text(closed),
        "latex": latex_expression(closed),
        "value": number(float(value)),
        "error": number(float(error)),
        "status": Status.converged.name,
    }


def expectation_text(record: Mapping[str, Any]) -> str:
    """The record for a person to read."""
    closed = record["closed_form"]
    first = f"closed form  {closed}" if closed is not None else f"integrated   {record['text']}"
    return f"{first}\nvalue        {record['value']:.15g}\nerror        {record['error']:.1e}"


def _check_used(
    integrand: sp.Expr, pair: tuple[sp.Symbol, ...], correlation: str | None, given: Mapping[sp.Symbol, sp.Expr]
) -> None:
    """Raises `FormulaError` for a correlation or a value that the integrand does not read."""
    if correlation is not None and not all(integrand.has_free(s) for s in pair):
        raise FormulaError("--correlation is of u and v, which the formula does not both hold; leave it out.")
    idle = [s.name for s in given if not integrand.has_free(s)]
    if idle:
        raise FormulaError(f"--set {idle[0]}: the formula does not hold {idle[0]}; leave it out.")


def without_value(error: SolveError) -> dict[str, Any]:
    """The record of an expectation for which no value was found, with the reason."""
    nothing = dict.fromkeys(("closed_form", "text", "latex", "value", "error"))
    return {**nothing, "status": error.status.name, "reason": str(error)}


def _law(correlation: str | None, independent: int) -> Gaussian:
    rho = sp.S.Zero if correlation is None else parse_constant(correlation, "--correlation")
    if not (rho.is_real and -1 <= rho <= 1):
        raise FormulaError(f"--correlation is {rho}; a correlation lies between -1 and 1.")
    pair = Gaussian([0, 0], [[1, rho], [rho, 1]])
    return Gaussian([0] * (independent + 2), sp.diag(standard_normal(independent).cov, pair.cov))
