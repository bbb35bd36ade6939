"""Compiled functions of expressions that may hold proximal operators, each solved for once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.measures import Measure
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox, Region, regions
from solve.elementary import compile_expressions
from solve.proximal import POINT, STEP, Solver, parameters_of, proximal_solver

__all__ = ["compile_functions", "without_affine"]

_PROXIMAL = (Prox, Moreau, MoreauSlope, MoreauCurvature)


def compile_functions(expressions: Sequence[sp.Expr], arguments: Sequence[sp.Symbol]) -> Callable[..., Sequence[Any]]:
    """`compile_expressions` for expressions that may hold nodes of proximal operators.

    Nodes of the same loss, V and w share one solution.
    """
    nodes = sorted(set().union(*(_outermost(e) for e in expressions)), key=sp.default_sort_key)
    if not nodes:
        return compile_expressions(expressions, arguments)
    calls = tuple(_Call.of(*key) for key in dict.fromkeys(n.args for n in nodes))
    names = {key: sp.symbols("prox loss slope curvature", cls=sp.Dummy, real=True) for key in _keys(calls)}
    values = {n: _value(n, *names[n.args]) for n in nodes}
    inputs = compile_functions([i for c in calls for i in c.inputs], arguments)
    lifted = [e.xreplace(values) for e in expressions]
    function = compile_functions(lifted, (*arguments, *itertools.chain(*names.values())))
    return _Staged(inputs, calls, function)


def _outermost(expr: sp.Basic) -> set[sp.Expr]:
    if isinstance(expr, _PROXIMAL):
        return {expr}
    if isinstance(expr, Measure):  # holds none
        return set()
    return set().union(*(_outermost(a) for a in expr.args)) if expr.args else set()


@dataclass(frozen=True)
class _Call:
    """One solution: of which node, by what, and from which inputs: V, w and the parameters of the loss."""

    key: tuple[Any, ...]
    solver: Solver
    inputs: tuple[sp.Expr, ...]

    @staticmethod
    def of(loss: sp.Lambda, V: sp.Expr, w: sp.Expr) -> _Call:
        return _Call((loss, V, w), proximal_solver(loss), (V, w, *parameters_of(loss)))


def _keys(calls: Sequence[_Call]) -> list[tuple[Any, ...]]:
    return [c.key for c in calls]


def _value(node: sp.Expr, prox: sp.Symbol, loss: sp.Symbol, slope: sp.Symbol, curvature: sp.Symbol) -> sp.Expr:
    if isinstance(node, Moreau):
        return loss + node.V * slope**2 / 2
    return {Prox: prox, MoreauSlope: slope, MoreauCurvature: curvature}[type(node)]


@dataclass(frozen=True)
class _Staged:
    inputs: Callable[..., Sequence[Any]]
    calls: tuple[_Call, ...]
    function: Callable[..., Sequence[Any]]

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        found = iter(self.inputs(*arguments))
        solved = [v for c in self.calls for v in c.solver(*(next(found) for _ in c.inputs))]
        return self.function(*arguments, *solved)


def without_affine(expr: sp.Expr) -> sp.Expr:
    """An equal expression without the nodes whose prox is one affine function, as that of a square is."""
    nodes = _outermost(expr)
    found = {n.args[0]: regions(n.args[0], STEP, POINT) for n in nodes}
    if any(r is not None and len(r) == 1 for r in found.values()):
        return expr.replace(lambda e: isinstance(e, _PROXIMAL), lambda e: _affine(e, found.get(e.args[0])))
    return expr


def _affine(node: sp.Expr, found: Sequence[Region] | None) -> sp.Expr:
    if found is None or len(found) > 1:
        return node
    r = found[0]
    value = {
        Prox: r.prox,
        Moreau: r.loss + STEP * r.slope**2 / 2,
        MoreauSlope: r.slope,
        MoreauCurvature: r.curvature,
    }[type(node)]
    return value.xreplace({STEP: node.V, POINT: node.w})
