"""Compiled functions of expressions that may hold proximal operators, each solved for once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.measures import Measure
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox, Region, regions
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope
from solve.elementary import compile_expressions
from solve.proximal import POINT, STEP, parameters_of, proximal_solver
from solve.vector_proximal import vector_solver

__all__ = ["compile_functions", "without_affine"]

_SCALAR = (Prox, Moreau, MoreauSlope, MoreauCurvature)
_VECTOR = (VectorProx, VectorMoreau, VectorSlope, VectorCurvature)
_PROXIMAL = (*_SCALAR, *_VECTOR)


def compile_functions(expressions: Sequence[sp.Expr], arguments: Sequence[sp.Symbol]) -> Callable[..., Sequence[Any]]:
    """`compile_expressions` for expressions that may hold nodes of proximal operators.

    Nodes of the same loss, V and w share one solution.
    """
    nodes = sorted(set().union(*(_outermost(e) for e in expressions)), key=sp.default_sort_key)
    if not nodes:
        return compile_expressions(expressions, arguments)
    calls = tuple(_call(n) for n in {_key(n): n for n in nodes}.values())
    names = {c.key: tuple(sp.Dummy(f"p{i}", real=True) for i in range(c.count)) for c in calls}
    values = {n: _value(n, names[_key(n)]) for n in nodes}
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
    """One solution: of which nodes, by what, from which inputs, and of how many numbers."""

    key: tuple[Any, ...]
    solver: Callable[..., Sequence[Any]]
    inputs: tuple[sp.Expr, ...]
    count: int


def _key(node: sp.Expr) -> tuple[Any, ...]:
    return tuple(node.args[:4] if isinstance(node, _VECTOR) else node.args)


def _call(node: sp.Expr) -> _Call:
    """The solution that a node needs; its inputs are V, w, starts and the parameters of the loss."""
    loss, V, w, *starts = _key(node)
    parameters = parameters_of(loss)
    if not isinstance(node, _VECTOR):
        return _Call(_key(node), proximal_solver(loss), (V, w, *parameters), 4)
    rows = tuple(starts[0])
    solver = vector_solver(loss, len(rows))
    k = len(w)
    return _Call(_key(node), solver, (V, *w, *(s for row in rows for s in row), *parameters), 2 * k + 1 + k * k)


def _value(node: sp.Expr, found: Sequence[sp.Symbol]) -> sp.Expr:
    """What the node is, of the numbers that its solver gives."""
    if not isinstance(node, _VECTOR):
        prox, loss, slope, curvature = found
        if isinstance(node, Moreau):
            return loss + node.V * slope**2 / 2
        return {Prox: prox, MoreauSlope: slope, MoreauCurvature: curvature}[type(node)]
    k = len(node.w)
    slopes = found[k + 1 : 2 * k + 1]
    if isinstance(node, VectorMoreau):
        return found[k] + node.V * sp.Add(*(r**2 for r in slopes)) / 2
    if isinstance(node, VectorCurvature):
        i, j = node.indices
        return found[2 * k + 1 + i * k + j]
    (i,) = node.indices
    return found[i] if isinstance(node, VectorProx) else slopes[i]


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
    nodes = {n for n in _outermost(expr) if not isinstance(n, _VECTOR)}
    found = {n.args[0]: regions(n.args[0], STEP, POINT) for n in nodes}
    if any(r is not None and len(r) == 1 for r in found.values()):
        return expr.replace(lambda e: isinstance(e, _SCALAR), lambda e: _affine(e, found.get(e.args[0])))
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
