"""Which letters bound variables, laws and losses have on paper, and what must be said of them beside a formula."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import sympy as sp

from derive.binding import Binder
from derive.equations import Equation, EquationSystem
from derive.expectation import Expectation
from derive.free_letters import LETTERS, Names, numbered
from derive.measures import Gaussian, Measure, Pushforward
from derive.minimum import Minimum
from derive.notation import split_name
from derive.patterns import nodes_of
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.spectrum_names import SpectrumNames, named_spectra
from derive.sums import PositiveSum
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope

__all__ = ["BindingNode", "Law", "Notation", "is_standard", "named_laws", "notation_for", "system_notation"]

_INPUTS = ("g", "h", "z")
_DEFINED = ("q", "p", "k", "l")
_LOSSES = ("ell", "phi", "psi", "varphi")
_LOSS_VARIABLES = ("u", "v", "t")
_POINTS = ("omega", "w", "z")

PROXIMAL_NODES = (Prox, Moreau, MoreauSlope, MoreauCurvature)
VECTOR_NODES = (VectorProx, VectorMoreau, VectorSlope, VectorCurvature)

BindingNode: TypeAlias = Expectation | Binder


@dataclass(frozen=True)
class Law:
    """How the law of computed quantities is stated.

    whole: the law that is stated, of which the law itself may be a marginal. shown: the letter of its outputs.
    inputs, defined: the letters of its Gaussian variables and of what is computed from them.
    """

    whole: Pushforward
    shown: str
    inputs: str
    defined: str

    def names(self, law: Pushforward, letter: str) -> tuple[str, ...]:
        """The names of the variables under `law`, a marginal of the whole: this letter, or that of an input."""
        outputs, scope = self.whole.outputs, self.scope
        # Inside another one with this law, whose letter is `shown`, the inputs need other letters, too.
        known = {s: scope[s] for s in outputs if s in self.whole.inputs and letter == self.shown}
        others = [s for s in outputs if s not in known]
        known |= dict(zip(others, numbered(letter, len(others)), strict=True))
        return tuple(known[s] for s in law.outputs)

    @property
    def scope(self) -> dict[sp.Symbol, str]:
        """The names of the inputs and of what is defined."""
        symbols = [s for s, _ in self.whole.definitions]
        given = zip(self.whole.inputs, numbered(self.inputs, len(self.whole.inputs)), strict=True)
        return dict([*given, *zip(symbols, numbered(self.defined, len(symbols)), strict=True)])


@dataclass(frozen=True)
class Notation:
    """What depends on the formulas that stand together.

    letters: of the variables of expectations and of other nodes that have some. power_of_e: whether exp(x) may be
    written e^x, which it may not beside a quantity e. losses: the names of the losses of proximal operators, and
    `variable`, the letter of their variable. laws: those of computed quantities. spectra: laws of eigenvalues.
    points: where proximal operators of several variables are taken.
    """

    letters: Mapping[BindingNode, str]
    power_of_e: bool
    losses: Mapping[sp.Lambda, str] = field(default_factory=dict)
    variable: str = "u"
    laws: Mapping[Pushforward, Law] = field(default_factory=dict)
    spectra: SpectrumNames = field(default_factory=SpectrumNames)
    points: Mapping[sp.Tuple, str] = field(default_factory=dict)


def notation_for(
    exprs: Iterable[sp.Expr], quantities: Iterable[sp.Symbol] = (), beside: Iterable[sp.Expr] = ()
) -> Notation:
    """The notation for some expressions: one letter a law, none that a free symbol or one of `quantities` uses.

    Standard normal variables share a letter, whatever their number, except inside one another. Losses and laws of
    computed quantities have the names that they have in the expressions `beside`, if they are there.
    """
    exprs = tuple(exprs)
    everything = (*beside, *exprs)
    used = {split_name(s.name).base for symbols in (quantities, *(e.free_symbols for e in exprs)) for s in symbols}
    names = Names(used)
    losses, variable = _named_losses(everything, names)
    points = _named_points(everything, names)
    laws = named_laws(everything, names)
    spectra = named_spectra(everything, names)
    by_law: dict[object, list[str]] = {law.whole: [law.shown] for law in laws.values()}
    letters: dict[BindingNode, str] = {}
    for e in (e for expr in exprs for e in _innermost_first(expr)):
        if e in letters:
            continue
        inside = {letters[i] for f in _bodies(e) for i in nodes_of(f, Expectation, Binder)}
        known = by_law.setdefault(_kind(e, laws), [])
        free = [c for c in known if c not in inside]
        if not free:
            known.append(names.take(LETTERS))
            free = known[-1:]
        letters[e] = free[0]
        if isinstance(e, Minimum):
            letters[e.place(0)] = free[0]
    return Notation(letters, "e" not in used, losses, variable, laws, spectra, points)


def system_notation(system: EquationSystem, equations: Iterable[Equation]) -> Notation:
    """The notation for some equations of a system, beside all its quantities."""
    quantities = [*system.unknowns, *(p.symbol for p in system.parameters)]
    return notation_for([e.rhs for e in equations], quantities, [e.rhs for e in system.equations])


def _named_losses(exprs: Sequence[sp.Expr], names: Names) -> tuple[dict[sp.Lambda, str], str]:
    nodes = (nodes_of(e, *PROXIMAL_NODES, *VECTOR_NODES) for e in exprs)
    met = ({n.loss for n in found} for found in nodes)
    losses = list(dict.fromkeys(loss for found in met for loss in sorted(found, key=sp.default_sort_key)))
    if not losses:
        return {}, "u"
    variable, name = names.take(_LOSS_VARIABLES), names.take(_LOSSES)
    return dict(zip(losses, numbered(name, len(losses)), strict=True)), variable


def _named_points(exprs: Sequence[sp.Expr], names: Names) -> dict[sp.Tuple, str]:
    """Points whose coordinates are more than symbols and numbers, which are shown where they stand."""
    met = dict.fromkeys(n.w for e in exprs for n in sorted(nodes_of(e, *VECTOR_NODES), key=sp.default_sort_key))
    return {w: names.take(_POINTS) for w in met if not all(a.is_Atom for a in w)}


def named_laws(exprs: Sequence[sp.Expr], names: Names) -> dict[Pushforward, Law]:
    """How laws of computed quantities are stated, marginals with the law that they belong to."""
    met = dict.fromkeys(law for e in exprs for law in sorted(nodes_of(e, Pushforward), key=sp.default_sort_key))
    around = (e for expr in exprs for e in nodes_of(expr, Expectation) if isinstance(e.measure, Pushforward))
    nested = any(nodes_of(e.integrand, Pushforward) for e in around)
    found: dict[Pushforward, Law] = {}
    bases: dict[Gaussian, str] = {}
    for law in sorted(met, key=lambda law: -law.dim):  # a law before its marginals
        known = next((w for w in found.values() if _is_marginal(law, w.whole)), None)
        if known is None:
            inputs = (not nested and bases.get(law.base)) or names.take(_INPUTS)
            bases[law.base] = inputs
            known = Law(law, names.take(LETTERS), inputs, names.take(_DEFINED))
        found[law] = known
    return found


def _is_marginal(law: Pushforward, whole: Pushforward) -> bool:
    """Whether it is a marginal whose definitions and inputs have the same internal names; others are stated anew."""
    if law.definitions != whole.definitions or not set(law.outputs) <= set(whole.outputs):
        return False
    if not set(law.inputs) <= set(whole.inputs):
        return False
    return law.base == whole.base.marginal([whole.inputs.index(s) for s in law.inputs])


def _kind(e: BindingNode, laws: Mapping[Pushforward, Law]) -> object:
    """What nodes have in common whose variables share a letter."""
    if isinstance(e, Minimum):
        return e.expr, e.starts
    if not isinstance(e, Expectation):
        return "normal" if isinstance(e, PositiveSum) else e
    if isinstance(e.measure, Pushforward):
        return laws[e.measure].whole
    return "normal" if is_standard(e.measure) else e.measure


def _bodies(e: BindingNode) -> tuple[sp.Expr, ...]:
    return (e.integrand,) if isinstance(e, Expectation) else e.inside


def _innermost_first(expr: sp.Basic) -> Iterator[BindingNode]:
    depth = {e: -sum(len(nodes_of(f, Expectation, Binder)) for f in _bodies(e)) for e in _outermost(expr)}
    for e in sorted(depth, key=lambda e: (depth[e], sp.default_sort_key(e))):
        for f in _bodies(e):
            yield from _innermost_first(f)
        yield e


def _outermost(expr: sp.Basic) -> set[BindingNode]:
    if isinstance(expr, (Expectation, Binder)):
        return {expr}
    return set().union(*map(_outermost, expr.args)) if expr.args else set()


def is_standard(law: Measure) -> bool:
    """Whether the law is N(0, I)."""
    return isinstance(law, Gaussian) and not any(law.mean) and law.cov == sp.eye(law.dim)
