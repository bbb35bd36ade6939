"""Capacity: the number of samples per dimension up to which a linear classifier of the features separates them.

Separable with high probability iff alpha < 1/min_w E[dist(A, {u : y u >= 0})^2/sigma^2] at r = 1: the potential of the
minimisation of the indicator of that set, which is linear in 1/V  [arXiv:2509.25153, Conjecture 1; Gardner 1988].
"""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from derive.equations import Define, Equation, EquationSystem, Quantity, Root, Source
from derive.mechanisms.convex_erm import ConvexErm, bias_symbol, rho_symbol, step_symbol
from derive.proximal import Confined

__all__ = ["capacity_system"]

capacity_symbol = sp.Symbol("capacity", nonnegative=True)
misfit_symbol = sp.Symbol("misfit", nonnegative=True)
_u = sp.Symbol("u", real=True)


def capacity_system(problem: ConvexErm, per_sample: sp.Expr = sp.S.One) -> EquationSystem:
    """Roots for the minimising weights at r = 1, `misfit` = min E dist^2/sigma^2, and capacity = per_sample/misfit.

    problem: its law of features and its bias are used. Raises `ValueError` for labels other than +-1.
    """
    if not problem.law.is_binary:
        raise ValueError("A capacity is of labels +1 and -1.")
    half_lines = {sp.S.One: (sp.S.Zero, sp.oo), sp.S.NegativeOne: (-sp.oo, sp.S.Zero)}
    sets = tuple(sp.Lambda(_u, Confined(_u, *half_lines[c.label])) for c in problem.law.cases)
    confined = replace(problem, losses=sets, ridge=sp.S.Zero)
    rho = sp.sqrt(1 + sp.Add(*(m**2 for m in confined.mu)))
    theorem = Source("arXiv:2509.25153", "Conjecture 1; derived: minimum of the potential of an indicator")
    rho_slope = 2 * step_symbol * confined.average(confined.envelope.diff(rho_symbol))

    def slope(s: sp.Symbol) -> sp.Expr:
        direct = 2 * step_symbol * confined.average(confined.envelope.diff(s))
        return (direct + rho_slope * rho.diff(s)).subs(rho_symbol, rho)

    weights = [*confined.law.exact_weights, *confined.law.mean_weights]
    weights += [Quantity(bias_symbol, "bias, in units of the norm of the rest")] if confined.bias else []
    misfit = (2 * step_symbol * confined.average(confined.envelope)).subs(rho_symbol, rho)
    found: list[Equation] = [Root(q, _free_of_step(slope(q.symbol)), theorem) for q in weights]
    found.append(Define(Quantity(misfit_symbol, "least misfit, squared and averaged"), _free_of_step(misfit), theorem))
    capacity = Quantity(capacity_symbol, "samples per dimension that can be separated", sp.Interval(0, sp.oo))
    found.append(Define(capacity, per_sample / misfit_symbol, theorem))
    read = set().union(*(e.reads() for e in found)) - {e.unknown.symbol for e in found}
    parameters = tuple(Quantity(s, "parameter") for s in sorted(read, key=str))
    return EquationSystem(tuple(found), parameters, {q.symbol: sp.S.Zero for q in weights})


def _free_of_step(expr: sp.Expr) -> sp.Expr:
    """The step cancels: what is left at V = 1."""
    return expr.subs(step_symbol, 1)
