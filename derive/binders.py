"""Calls of equation texts that bind names: expectations, laws, proximal operators, minima, sums of independent terms.

Expectation(integrand, [x1, x2], [means], [[covariances]])
Expectation(integrand, [x1, x2], Pushforward(g, law of g1 .., q, [what q1 .. are, in order], [outputs]))
    the law is normal(n), n independent N(0, 1), or normal([means], [[covariances]]); a vector among the q, as
    softmax([..]) is one, defines one of them an entry
prox(u, loss, V, w), moreau(..), moreau_slope(..), moreau_curvature(..): u is the variable of the loss
Minimum(expression, [x1, x2], [[start], [start]], index);  PositiveSum([x1], [summands], [counts])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import sympy as sp

from derive.arithmetic import Arithmetic, Scalar
from derive.arrays import Array
from derive.expectation import Expectation
from derive.measures import Gaussian, Pushforward, standard_normal
from derive.minimum import Minimum
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.sums import PositiveSum
from derive.syntax import Call, Fault, Listing, Name, Node

__all__ = ["BINDERS", "PROXIMAL", "Scope"]

_VARIABLE = re.compile(r"x+\d+(_\d+)?")
_LOSS_VARIABLE = re.compile(r"u+")
_INPUT, _DEFINED = re.compile(r"g+"), re.compile(r"q+")
_MOST_INPUTS = 256

PROXIMAL: Mapping[str, type[Prox | Moreau | MoreauSlope | MoreauCurvature]] = {
    "prox": Prox,
    "moreau": Moreau,
    "moreau_slope": MoreauSlope,
    "moreau_curvature": MoreauCurvature,
}


class Scope(Protocol):
    """What gives a node its meaning where it stands."""

    @property
    def arithmetic(self) -> Arithmetic:
        """The operations, with their limits."""

    def build(self, node: Node) -> Array:
        """The meaning of a node; raises `Fault`."""

    def inside(self, names: Mapping[str, sp.Expr]) -> Scope:
        """The scope in which these names are bound as well."""


Binder: TypeAlias = Callable[[Scope, Call], Scalar]


def _expectation(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 4 and not (len(node.arguments) == 3 and isinstance(node.arguments[2], Call)):
        raise Fault("needs an integrand, [variables], [means] and [[covariances]], or a Pushforward for the last two")
    integrand, variables, *law = node.arguments
    symbols = _variables(variables)
    measure, parts = _pushforward(scope, law[0]) if len(law) == 1 else _gaussian(scope, law, len(symbols))
    body = scope.inside(symbols).build(integrand).scalar("integrand")
    if measure.dim != len(symbols):
        raise Fault(f"has {len(symbols)} variables and a law on R^{measure.dim}")
    return scope.arithmetic.binding(Expectation(body.expr, tuple(symbols.values()), measure), (body, *parts))


def _variables(node: Node) -> dict[str, sp.Symbol]:
    names = [v.text for v in node.items if isinstance(v, Name)] if isinstance(node, Listing) else []
    if not isinstance(node, Listing) or len(names) < len(node.items):
        raise Fault("needs its variables as a list of names, [x1, x2]", node.start, node.end)
    if len(set(names)) < len(names) or not all(map(_VARIABLE.fullmatch, names)):
        raise Fault("needs different variables named x1, x2, ... or x1_1, ...", node.start, node.end)
    return {n: _bound(n) for n in names}


def _bound(name: str) -> sp.Symbol:
    return sp.Symbol(name, real=True, bound=True)


def _gaussian(scope: Scope, law: Sequence[Node], n: int | None = None) -> tuple[Gaussian, tuple[Scalar, ...]]:
    mean, cov = (scope.build(part) for part in law)
    n = len(mean.entries) if n is None else n
    if mean.shape != (n,) or cov.shape != (n, n):
        raise Fault(f"has {n} variables, a mean of shape {mean.shape} and a covariance of {cov.shape}")
    try:
        return Gaussian([m.expr for m in mean.entries], cov.export()), (*mean.entries, *cov.entries)
    except ValueError:
        raise Fault("has no such law: a covariance is symmetric, its diagonal not negative") from None


def _pushforward(scope: Scope, node: Node) -> tuple[Pushforward, tuple[Scalar, ...]]:
    if not isinstance(node, Call) or node.name != "Pushforward" or len(node.arguments) != 5:
        raise Fault("needs a law, Pushforward(g, normal(n), q, [definitions], [outputs])", node.start, node.end)
    first, law, second, formulas, shown = node.arguments
    base, parts = _base(scope, law)
    inputs = [_bound(f"{_head(first, _INPUT)}{i + 1}") for i in range(base.dim)]
    head, known = _head(second, _DEFINED), {s.name: s for s in inputs}
    pairs: list[tuple[sp.Symbol, Scalar]] = []
    for item in _items(formulas, "definitions"):
        inside = scope.inside(known)
        new = [(_bound(f"{head}{len(pairs) + i + 1}"), e) for i, e in enumerate(inside.build(item).entries)]
        pairs += new
        known |= {s.name: s for s, _ in new}
    outputs = [known.get(o.text) if isinstance(o, Name) else None for o in _items(shown, "outputs")]
    if None in outputs:
        raise Fault("needs outputs among its inputs and definitions", shown.start, shown.end)
    measure = Pushforward(base, inputs, [(s, e.expr) for s, e in pairs], [o for o in outputs if o is not None])
    return measure, (*parts, *(e for _, e in pairs))


def _base(scope: Scope, node: Node) -> tuple[Gaussian, tuple[Scalar, ...]]:
    if not isinstance(node, Call) or node.name != "normal" or len(node.arguments) > 2:
        raise Fault("needs the law of its inputs, normal(n) or normal([means], [[covariances]])", node.start, node.end)
    if len(node.arguments) == 2:
        return _gaussian(scope, node.arguments)
    n = scope.build(node.arguments[0]).scalar("a number").expr
    if not (n.is_Integer and 1 <= n <= _MOST_INPUTS):
        raise Fault(f"needs a whole number from 1 to {_MOST_INPUTS}", node.start, node.end)
    scope.arithmetic.spend(int(n) ** 2)
    return standard_normal(int(n)), ()


def _head(node: Node, allowed: re.Pattern[str]) -> str:
    if not isinstance(node, Name) or not allowed.fullmatch(node.text):
        raise Fault("needs g and q, with which the names of inputs and definitions begin", node.start, node.end)
    return node.text


def _items(node: Node, role: str) -> tuple[Node, ...]:
    if not isinstance(node, Listing):
        raise Fault(f"needs its {role} as a list", node.start, node.end)
    return node.items


def _proximal(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 4:
        raise Fault("needs a name u, a loss of u, V and w")
    variable, loss, V, w = node.arguments
    if not isinstance(variable, Name) or not _LOSS_VARIABLE.fullmatch(variable.text):
        raise Fault("needs u as the name of the loss's variable", variable.start, variable.end)
    u = _bound(variable.text)
    body = scope.inside({variable.text: u}).build(loss).scalar("a loss")
    step, point = scope.build(V).scalar("V"), scope.build(w).scalar("w")
    expr = PROXIMAL[node.name](sp.Lambda(u, body.expr), step.expr, point.expr)
    return scope.arithmetic.binding(expr, (body, step, point))


def _minimum(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 4:
        raise Fault("needs an expression, [variables], [[starts]] and an index")
    expression, variables, starts, index = node.arguments
    symbols = _variables(variables)
    body = scope.inside(symbols).build(expression).scalar("expression")
    rows, place = scope.build(starts), scope.build(index).scalar("index")
    if rows.shape[1:] != (len(symbols),) or not (place.expr.is_Integer and 0 <= place.expr <= len(symbols)):
        raise Fault(f"has starts of shape {rows.shape} and the index {place.expr} for {len(symbols)} variables")
    points = [[value.expr for value in row] for row in rows.rows()]
    expr = Minimum(body.expr, tuple(symbols.values()), points, int(place.expr))
    return scope.arithmetic.binding(expr, (body, *rows.entries))


def _positive_sum(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 3:
        raise Fault("needs [variable], [summands] and [counts]")
    symbols = _variables(node.arguments[0])
    summands = scope.inside(symbols).build(node.arguments[1]).vector("summands")
    counts = scope.build(node.arguments[2]).vector("counts")
    if len(symbols) != 1 or len(counts) != len(summands) or any(n.expr.is_negative for n in counts):
        raise Fault("needs one variable, and for each summand a count that is not negative")
    (variable,) = symbols.values()
    expr = PositiveSum(variable, [h.expr for h in summands], [n.expr for n in counts])
    return scope.arithmetic.binding(expr, (*summands, *counts))


BINDERS: Mapping[str, Binder] = {
    "Expectation": _expectation,
    "Minimum": _minimum,
    "PositiveSum": _positive_sum,
    **dict.fromkeys(PROXIMAL, _proximal),
}
