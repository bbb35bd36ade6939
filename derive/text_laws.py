"""Laws and nodes with variables of their own as plain text; `derive.binders` and `derive.binder_laws` read it."""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
from collections.abc import Iterable, Sequence
from collections.abc import Set as Collection
from functools import lru_cache

import sympy as sp
from sympy.core.parameters import distribute
from sympy.printing.str import StrPrinter

from derive.binders import OF_SPECTRA, PROXIMAL, VECTOR_PROXIMAL
from derive.expectation import Expectation
from derive.measures import Gaussian, Measure, Pushforward
from derive.minimum import Minimum
from derive.patterns import in_parts
from derive.proximal import Confined, Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.spectra import (
    Atoms,
    FreeConvolution,
    HilbertTransform,
    Listed,
    PowerLaw,
    SpectralDensity,
    Spectrum,
    Wishart,
)
from derive.sums import PositiveSum
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope

__all__ = ["TextLaws", "listed_name"]

_LONGEST_LIST = 16
_NAMES: dict[type[sp.Expr], str] = {
    node: name for names in (PROXIMAL, VECTOR_PROXIMAL, OF_SPECTRA) for name, node in names.items()
}


@lru_cache(maxsize=16)
def listed_name(law: Listed) -> str | None:
    """The name under which a long list of eigenvalues is written, the same for the same list; None for a short one.

    >>> listed_name(Listed([1, 2])), listed_name(Listed(range(100)))[:16]
    (None, 'eigenvalues_100_')
    """
    if len(law.values) <= _LONGEST_LIST:
        return None
    digest = hashlib.sha256(struct.pack(f"<{len(law.values)}d", *law.values)).hexdigest()
    return f"eigenvalues_{len(law.values)}_{digest[:16]}"


class TextLaws(StrPrinter):
    """What a printer knows of laws and of nodes with variables of their own.

    free: names that bound variables must not have; bound: the names that they have in the expression.
    """

    def __init__(self, free: Collection[str], bound: Collection[str]) -> None:
        super().__init__()
        self._shift = next(k for k in itertools.count() if free.isdisjoint(_shifted(b, k) for b in bound))
        self._u, self._g, self._q = (_head(letter, free) for letter in "ugq")

    def _print_Expectation(self, expr: Expectation) -> str:
        variables, (integrand,) = self._renamed(expr.variables, [expr.integrand])
        return f"Expectation({self._print(integrand)}, {self._list(variables)}, {self._law(expr.measure)})"

    def _renamed(
        self, variables: Sequence[sp.Symbol], inside: Sequence[sp.Expr]
    ) -> tuple[Sequence[sp.Symbol], Sequence[sp.Expr]]:
        """Renamed before printing: SymPy's order of terms is not reproducible where two symbols share a name."""
        if not self._shift:
            return variables, inside
        fresh = {v: sp.Symbol(_shifted(v.name, self._shift), real=True) for v in variables}
        with distribute(False):
            return list(fresh.values()), [e.xreplace(fresh) for e in inside]

    def _list(self, items: Iterable[sp.Expr]) -> str:
        return f"[{self.stringify(items, ', ')}]"

    def _law(self, law: Measure) -> str:
        if isinstance(law, Pushforward):
            return self._pushforward(law)
        if isinstance(law, Spectrum):
            return str(self._print(law))
        if not isinstance(law, Gaussian):
            return str(self.emptyPrinter(law))
        return f"{self._list(law.mean)}, [{', '.join(map(self._list, law.cov.tolist()))}]"

    def _print_Wishart(self, law: Wishart | PowerLaw) -> str:
        return f"{type(law).__name__}({self.stringify(law.args, ', ')})"

    _print_PowerLaw = _print_Wishart

    def _print_Atoms(self, law: Atoms) -> str:
        return f"Atoms({self._list(law.points)}, {self._list(law.weights)})"

    def _print_Listed(self, law: Listed) -> str:
        return f"Listed({listed_name(law) or law.values.tolist()})"

    def _print_FreeConvolution(self, law: FreeConvolution) -> str:
        return f"FreeConvolution({self._print(law.base)}, {self._print(law.variance)})"

    def _of_spectrum(self, expr: HilbertTransform | SpectralDensity) -> str:
        return f"{_NAMES[type(expr)]}({self._print(expr.law)}, {self._print(expr.x)})"

    _print_HilbertTransform = _print_SpectralDensity = _of_spectrum

    def _pushforward(self, law: Pushforward) -> str:
        base = self._base(law.base)
        own, heads = [*law.inputs, *(s for s, _ in law.definitions)], {"g": self._g, "q": self._q}
        fresh = {s: sp.Symbol(heads[s.name[0]] + s.name[1:], real=True) for s in own}
        definitions = law.definitions
        if self._g + self._q != "gq":
            with distribute(False):
                definitions = tuple((s, e.xreplace(fresh)) for s, e in definitions)
        parts = [p.formulas for p in in_parts(definitions)]
        words = (f"softmax({self._list(f)})" if len(f) > 1 else self._print(f[0]) for f in parts)
        outputs = self._list(fresh[s] for s in law.outputs)
        return f"Pushforward({self._g}, {base}, {self._q}, [{', '.join(words)}], {outputs})"

    def _base(self, law: Gaussian) -> str:
        standard = not any(law.mean) and law.cov == sp.eye(law.dim)
        return f"normal({law.dim if standard else self._law(law)})"

    def _proximal(self, expr: Prox | Moreau | MoreauSlope | MoreauCurvature) -> str:
        (u,) = expr.loss.variables
        loss = expr.loss.expr
        if self._u != u.name:
            with distribute(False):
                loss = loss.xreplace({u: sp.Symbol(self._u, real=True)})
        return f"{_NAMES[type(expr)]}({self._u}, {self.stringify((loss, expr.V, expr.w), ', ')})"

    _print_Prox = _print_Moreau = _print_MoreauSlope = _print_MoreauCurvature = _proximal

    def _vector_proximal(self, expr: VectorProx | VectorMoreau | VectorSlope | VectorCurvature) -> str:
        fresh = {v: sp.Symbol(f"{self._u}{i + 1}", real=True) for i, v in enumerate(expr.loss.variables)}
        with distribute(False):
            loss = expr.loss.expr.xreplace(fresh)
        starts = ", ".join(map(self._list, expr.starts))
        parts = [self._list(fresh.values()), self._print(loss), self._print(expr.V), self._list(expr.w), f"[{starts}]"]
        return f"{_NAMES[type(expr)]}({', '.join([*parts, *map(str, expr.indices)])})"

    _print_VectorProx = _print_VectorMoreau = _print_VectorSlope = _print_VectorCurvature = _vector_proximal

    def _print_Confined(self, expr: Confined) -> str:
        what, *ends = expr.args
        shown = ({sp.oo: "inf", -sp.oo: "-inf"}.get(e) or self._print(e) for e in ends)
        return f"confined({', '.join([self._print(what), *shown])})"

    def _print_Minimum(self, expr: Minimum) -> str:
        variables, (body,) = self._renamed(expr.variables, [expr.expr])
        starts = ", ".join(map(self._list, expr.starts))
        return f"Minimum({self._print(body)}, {self._list(variables)}, [{starts}], {expr.index})"

    def _print_PositiveSum(self, expr: PositiveSum) -> str:
        variables, summands = self._renamed(expr.variables, expr.inside)
        return f"PositiveSum({', '.join(map(self._list, (variables, summands, expr.outside)))})"


def _head(letter: str, free: Collection[str]) -> str:
    """The letter, repeated until no free name is it or it with a number: g -> gg."""
    heads = (letter * k for k in itertools.count(1))
    return next(h for h in heads if not any(re.fullmatch(rf"{h}\d*", name) for name in free))


def _shifted(name: str, shift: int) -> str:
    """A canonical bound name, `shift` levels further out: x2 -> x1_2 -> x2_2."""
    level, _, i = name[1:].rpartition("_")
    return f"x{int(level or 0) + shift}_{i}" if shift else name
