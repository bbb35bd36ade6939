"""Calls of equation texts that bind names or hold laws: expectations, proximal operators, minima, sums of terms.

Expectation(integrand, [x1, x2], law); HilbertTransform(law, x), SpectralDensity(law, x) of a law of eigenvalues
prox(u, loss, V, w), moreau(..), moreau_slope(..), moreau_curvature(..): u is the variable of the loss
vector_prox([u1, u2], loss, V, [w1, w2], [[start], [start]], index), vector_moreau(.., no index), vector_slope(..),
    vector_curvature(.., two indices)
confined(u, low, high): 0 from low to high, infinite elsewhere; -inf and inf are allowed ends
Minimum(expression, [x1, x2], [[start], [start]], index);  PositiveSum([x1], [summands], [counts])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import sympy as sp

from derive.arithmetic import Scalar
from derive.binder_laws import Scope, bound, law, spectrum
from derive.expectation import Expectation
from derive.minimum import Minimum
from derive.proximal import Confined, Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.spectra import HilbertTransform, SpectralDensity
from derive.sums import PositiveSum
from derive.syntax import Call, Fault, Listing, Name, Negative, Node
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope

__all__ = ["BINDERS", "OF_SPECTRA", "PROXIMAL", "VECTOR_PROXIMAL"]

_VARIABLE = re.compile(r"x+\d+(_\d+)?")
_LOSS_VARIABLE = re.compile(r"u+")
_LOSS_VARIABLES = re.compile(r"u+\d+")

PROXIMAL: Mapping[str, type[Prox | Moreau | MoreauSlope | MoreauCurvature]] = {
    "prox": Prox,
    "moreau": Moreau,
    "moreau_slope": MoreauSlope,
    "moreau_curvature": MoreauCurvature,
}
VECTOR_PROXIMAL: Mapping[str, type[VectorProx | VectorMoreau | VectorSlope | VectorCurvature]] = {
    "vector_prox": VectorProx,
    "vector_moreau": VectorMoreau,
    "vector_slope": VectorSlope,
    "vector_curvature": VectorCurvature,
}
OF_SPECTRA: Mapping[str, type[HilbertTransform | SpectralDensity]] = {
    "HilbertTransform": HilbertTransform,
    "SpectralDensity": SpectralDensity,
}

Binder: TypeAlias = Callable[[Scope, Call], Scalar]


def _expectation(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 4 and not (len(node.arguments) == 3 and isinstance(node.arguments[2], Call)):
        raise Fault(
            "needs an integrand, [variables] and a law: [means] and [[covariances]], Pushforward(..), Wishart(..)"
        )
    integrand, variables, *stated = node.arguments
    symbols = _variables(variables, _VARIABLE, "x1, x2, ... or x1_1, ...")
    measure, parts = law(scope, stated, len(symbols))
    body = scope.inside(symbols).build(integrand).scalar("integrand")
    if measure.dim != len(symbols):
        raise Fault(f"has {len(symbols)} variables and a law on R^{measure.dim}")
    return scope.arithmetic.binding(Expectation(body.expr, tuple(symbols.values()), measure), (body, *parts))


def _variables(node: Node, allowed: re.Pattern[str], words: str) -> dict[str, sp.Symbol]:
    names = [v.text for v in node.items if isinstance(v, Name)] if isinstance(node, Listing) else []
    if not isinstance(node, Listing) or len(names) < len(node.items):
        raise Fault(f"needs its variables as a list of names, {words}", node.start, node.end)
    if len(set(names)) < len(names) or not all(map(allowed.fullmatch, names)):
        raise Fault(f"needs different variables named {words}", node.start, node.end)
    return {n: bound(n) for n in names}


def _of_spectrum(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 2:
        raise Fault("needs a law of eigenvalues and a place x")
    measure, parts = spectrum(scope, node.arguments[0])
    x = scope.build(node.arguments[1]).scalar("x")
    return scope.arithmetic.binding(OF_SPECTRA[node.name](measure, x.expr), (x, *parts))


def _proximal(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 4:
        raise Fault("needs a name u, a loss of u, V and w")
    variable, loss, V, w = node.arguments
    if not isinstance(variable, Name) or not _LOSS_VARIABLE.fullmatch(variable.text):
        raise Fault("needs u as the name of the loss's variable", variable.start, variable.end)
    u = bound(variable.text)
    body = scope.inside({variable.text: u}).build(loss).scalar("a loss")
    step, point = scope.build(V).scalar("V"), scope.build(w).scalar("w")
    expr = PROXIMAL[node.name](sp.Lambda(u, body.expr), step.expr, point.expr)
    return scope.arithmetic.binding(expr, (body, step, point))


def _vector_proximal(scope: Scope, node: Call) -> Scalar:
    kind = VECTOR_PROXIMAL[node.name]
    if len(node.arguments) != 5 + kind.COUNT:
        raise Fault(f"needs [u1, u2], a loss of them, V, [w1, w2], [[starts]] and {kind.COUNT} indices")
    variables, loss, *rest = node.arguments
    symbols = _variables(variables, _LOSS_VARIABLES, "u1, u2, ...")
    body = scope.inside(symbols).build(loss).scalar("a loss")
    V, point, starts, *indices = map(scope.build, rest)
    step, w = V.scalar("V"), point.vector("w")
    places = [i.scalar("index").expr for i in indices]
    k = len(symbols)
    if len(w) != k or starts.shape[1:] != (k,) or not all(i.is_Integer and 0 <= i < k for i in places):
        raise Fault(f"has a w of {len(w)}, starts of shape {starts.shape} and the indices {places} for {k} variables")
    rows = [[value.expr for value in row] for row in starts.rows()]
    whole = sp.Lambda(tuple(symbols.values()), body.expr)
    expr = kind(whole, step.expr, [a.expr for a in w], rows, *map(int, places))
    return scope.arithmetic.binding(expr, (body, step, *w, *starts.entries))


def _confined(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 3:
        raise Fault("needs an expression and two ends")
    what, *ends = node.arguments
    inside = scope.build(what).scalar("expression")
    if inside.constant:
        raise Fault("confines a constant", what.start, what.end)
    known = [_infinite(e) or scope.build(e).scalar("an end") for e in ends]
    low, high = (e.expr if isinstance(e, Scalar) else e for e in known)
    return scope.arithmetic.binding(
        Confined(inside.expr, low, high), (inside, *(e for e in known if isinstance(e, Scalar)))
    )


def _infinite(node: Node) -> sp.Expr | None:
    """The end at infinity that inf or -inf is."""
    if isinstance(node, Negative):
        return -sp.oo if node.operand == Name(node.operand.start, node.operand.end, "inf") else None
    return sp.oo if isinstance(node, Name) and node.text == "inf" else None


def _minimum(scope: Scope, node: Call) -> Scalar:
    if len(node.arguments) != 4:
        raise Fault("needs an expression, [variables], [[starts]] and an index")
    expression, variables, starts, index = node.arguments
    symbols = _variables(variables, _VARIABLE, "x1, x2, ... or x1_1, ...")
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
    symbols = _variables(node.arguments[0], _VARIABLE, "x1, x2, ... or x1_1, ...")
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
    "confined": _confined,
    **dict.fromkeys(OF_SPECTRA, _of_spectrum),
    **dict.fromkeys(PROXIMAL, _proximal),
    **dict.fromkeys(VECTOR_PROXIMAL, _vector_proximal),
}
