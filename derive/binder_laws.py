"""Laws in equation texts, and what gives their parts a meaning.

[means], [[covariances]]
Pushforward(g, law of g1 .., q, [what q1 .. are, in order], [outputs])
    the law is normal(n), n independent N(0, 1), or normal([means], [[covariances]]); a vector among the q, as
    softmax([..]) is one, defines one of them an entry
Wishart(kappa0), Atoms([points], [weights]), PowerLaw(gamma, d), FreeConvolution(law, variance)
Listed([0.5, 1.25]), doubles, or Listed(name) of a spectrum that is given under that name
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import sympy as sp

from derive.arithmetic import Arithmetic, Scalar
from derive.arrays import Array
from derive.measures import Gaussian, Measure, Pushforward, standard_normal
from derive.spectra import Atoms, FreeConvolution, Listed, PowerLaw, Spectrum, Wishart
from derive.syntax import Call, Fault, Listing, Name, Negative, Node, Number

__all__ = ["Parts", "Scope", "bound", "law", "spectrum"]

Parts = tuple[Scalar, ...]

_INPUT, _DEFINED = re.compile(r"g+"), re.compile(r"q+")
_MOST_INPUTS = 256


class Scope(Protocol):
    """What gives a node its meaning where it stands."""

    @property
    def arithmetic(self) -> Arithmetic:
        """The operations, with their limits."""

    def build(self, node: Node) -> Array:
        """The meaning of a node; raises `Fault`."""

    @property
    def spectra(self) -> Mapping[str, Listed]:
        """Long lists of eigenvalues, by name."""

    def inside(self, names: Mapping[str, sp.Expr]) -> Scope:
        """The scope in which these names are bound as well."""


def bound(name: str) -> sp.Symbol:
    """The symbol of a variable that a node binds."""
    return sp.Symbol(name, real=True, bound=True)


def law(scope: Scope, parts: Sequence[Node], n: int) -> tuple[Measure, Parts]:
    """The law of n variables that one or two arguments state, with what it is made of."""
    if len(parts) == 2:
        return _gaussian(scope, parts, n)
    if isinstance(parts[0], Call) and parts[0].name in _SPECTRA:
        return spectrum(scope, parts[0])
    return _pushforward(scope, parts[0])


def _gaussian(scope: Scope, law: Sequence[Node], n: int | None = None) -> tuple[Gaussian, Parts]:
    mean, cov = (scope.build(part) for part in law)
    n = len(mean.entries) if n is None else n
    if mean.shape != (n,) or cov.shape != (n, n):
        raise Fault(f"has {n} variables, a mean of shape {mean.shape} and a covariance of {cov.shape}")
    try:
        return Gaussian([m.expr for m in mean.entries], cov.export()), (*mean.entries, *cov.entries)
    except ValueError:
        raise Fault("has no such law: a covariance is symmetric, its diagonal not negative") from None


def _pushforward(scope: Scope, node: Node) -> tuple[Pushforward, Parts]:
    if not isinstance(node, Call) or node.name != "Pushforward" or len(node.arguments) != 5:
        raise Fault("needs a law, Pushforward(g, normal(n), q, [definitions], [outputs])", node.start, node.end)
    first, law, second, formulas, shown = node.arguments
    base, parts = _base(scope, law)
    inputs = [bound(f"{_head(first, _INPUT)}{i + 1}") for i in range(base.dim)]
    head, known = _head(second, _DEFINED), {s.name: s for s in inputs}
    pairs: list[tuple[sp.Symbol, Scalar]] = []
    for item in _items(formulas, "definitions"):
        inside = scope.inside(known)
        new = [(bound(f"{head}{len(pairs) + i + 1}"), e) for i, e in enumerate(inside.build(item).entries)]
        pairs += new
        known |= {s.name: s for s, _ in new}
    outputs = [known.get(o.text) if isinstance(o, Name) else None for o in _items(shown, "outputs")]
    if None in outputs:
        raise Fault("needs outputs among its inputs and definitions", shown.start, shown.end)
    measure = Pushforward(base, inputs, [(s, e.expr) for s, e in pairs], [o for o in outputs if o is not None])
    return measure, (*parts, *(e for _, e in pairs))


def _base(scope: Scope, node: Node) -> tuple[Gaussian, Parts]:
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


# ---- laws of eigenvalues


def spectrum(scope: Scope, node: Node) -> tuple[Spectrum, Parts]:
    """The law of an eigenvalue, with what it is made of."""
    if not isinstance(node, Call) or node.name not in _SPECTRA:
        raise Fault(f"is no law of eigenvalues; those are {', '.join(_SPECTRA)}", node.start, node.end)
    try:
        return _SPECTRA[node.name](scope, node)
    except ValueError as error:  # what a law does not allow; long numbers are left out
        raise Fault("is no such law: " + " ".join(str(error).split())[:120].rstrip("."), node.start, node.end) from None


def _arguments(node: Call, count: int, role: str) -> tuple[Node, ...]:
    if len(node.arguments) != count:
        raise Fault(f"needs {role}", node.start, node.end)
    return node.arguments


def _wishart(scope: Scope, node: Call) -> tuple[Spectrum, Parts]:
    (ratio,) = _arguments(node, 1, "kappa0")
    kappa0 = scope.build(ratio).scalar("kappa0")
    return Wishart(kappa0.expr), (kappa0,)


def _power_law(scope: Scope, node: Call) -> tuple[Spectrum, Parts]:
    gamma, count = (scope.build(a).scalar("gamma, d") for a in _arguments(node, 2, "gamma and d"))
    return PowerLaw(gamma.expr, count.expr), (gamma, count)


def _atoms(scope: Scope, node: Call) -> tuple[Spectrum, Parts]:
    points, weights = (scope.build(a).vector("points, weights") for a in _arguments(node, 2, "[points] and [weights]"))
    return Atoms([x.expr for x in points], [w.expr for w in weights]), (*points, *weights)


def _free_convolution(scope: Scope, node: Call) -> tuple[Spectrum, Parts]:
    first, second = _arguments(node, 2, "a law of eigenvalues and a variance")
    base, parts = spectrum(scope, first)
    variance = scope.build(second).scalar("variance")
    return FreeConvolution(base, variance.expr), (*parts, variance)


def _listed(scope: Scope, node: Call) -> tuple[Spectrum, Parts]:
    (what,) = _arguments(node, 1, "its eigenvalues or their name")
    if isinstance(what, Name):
        if what.text not in scope.spectra:
            raise Fault("names no eigenvalues that are given with the text", what.start, what.end)
        return scope.spectra[what.text], ()
    items = _items(what, "eigenvalues")
    scope.arithmetic.spend(len(items))
    return Listed([_double(item) for item in items]), ()


def _double(node: Node) -> float:
    """The nearest double, as all of these are: not the fraction that a number stands for elsewhere."""
    sign, number = (-1.0, node.operand) if isinstance(node, Negative) else (1.0, node)
    if not isinstance(number, Number):
        raise Fault("is no number; eigenvalues are listed as 0.5 or -1e-3", node.start, node.end)
    return sign * float(number.text)


_SPECTRA: Mapping[str, Callable[[Scope, Call], tuple[Spectrum, Parts]]] = {
    "Wishart": _wishart,
    "Atoms": _atoms,
    "PowerLaw": _power_law,
    "Listed": _listed,
    "FreeConvolution": _free_convolution,
}
