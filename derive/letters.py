"""Which letters bound variables, laws and losses have on paper, and what must be said of them beside a formula."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sympy as sp

from derive.binding import Binder
from derive.equations import Equation, EquationSystem
from derive.expectation import Expectation
from derive.measures import Gaussian, Measure, Pushforward
from derive.minimum import Minimum
from derive.notation import Name, ordered_terms, split_name
from derive.patterns import Part, in_parts, nodes_of
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.sums import PositiveSum

__all__ = ["BindingNode", "Display", "Law", "Notation", "few", "is_standard", "notation_for", "system_notation"]

_LETTERS = ("x", "y", "u", "v", "r", "s", "t", "g", "h", "a", "b", "xi", "eta", "zeta")
_INPUTS = ("g", "h", "z")
_DEFINED = ("q", "p", "k", "l")
_LOSSES = ("ell", "phi", "psi", "varphi")
_LOSS_VARIABLES = ("u", "v", "t")
_MOST_NAMES = 6

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
        """The names of the variables under `law`, a marginal of the whole, with this letter."""
        places = [self.whole.outputs.index(s) for s in law.outputs]
        return tuple(_numbered(letter, self.whole.dim)[i] for i in places)

    @property
    def scope(self) -> dict[sp.Symbol, str]:
        """The names of the inputs and of what is defined."""
        symbols = [s for s, _ in self.whole.definitions]
        given = zip(self.whole.inputs, _numbered(self.inputs, len(self.whole.inputs)), strict=True)
        return dict([*given, *zip(symbols, _numbered(self.defined, len(symbols)), strict=True)])


@dataclass(frozen=True)
class Notation:
    """What depends on the formulas that stand together.

    letters: of the variables of expectations and of other nodes that have some. power_of_e: whether exp(x) may be
    written e^x, which it may not beside a quantity e. losses: the names of the losses of proximal operators, and
    `variable`, the letter of their variable. laws: those of computed quantities.
    """

    letters: Mapping[BindingNode, str]
    power_of_e: bool
    losses: Mapping[sp.Lambda, str] = field(default_factory=dict)
    variable: str = "u"
    laws: Mapping[Pushforward, Law] = field(default_factory=dict)


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
    names = _Names(used)
    losses, variable = _named_losses(everything, names)
    laws = _named_laws(everything, names)
    by_law: dict[object, list[str]] = {law.whole: [law.shown] for law in laws.values()}
    letters: dict[BindingNode, str] = {}
    for e in (e for expr in exprs for e in _innermost_first(expr)):
        if e in letters:
            continue
        inside = {letters[i] for f in _bodies(e) for i in nodes_of(f, Expectation, Binder)}
        known = by_law.setdefault(_kind(e, laws), [])
        free = [c for c in known if c not in inside]
        if not free:
            known.append(names.take(_LETTERS))
            free = known[-1:]
        letters[e] = free[0]
        if isinstance(e, Minimum):
            letters[e.place(0)] = free[0]
    return Notation(letters, "e" not in used, losses, variable, laws)


def system_notation(system: EquationSystem, equations: Iterable[Equation]) -> Notation:
    """The notation for some equations of a system, beside all its quantities."""
    quantities = [*system.unknowns, *(p.symbol for p in system.parameters)]
    return notation_for([e.rhs for e in equations], quantities, [e.rhs for e in system.equations])


class _Names:
    """Letters that are still free."""

    def __init__(self, used: Iterable[str]) -> None:
        self.used = set(used)

    def take(self, liked: Sequence[str]) -> str:
        """The first free one, those that are liked first."""
        doubled = (liked[0] * k for k in itertools.count(2))
        name = next(c for c in itertools.chain(liked, _LETTERS, doubled) if c not in self.used)
        self.used.add(name)
        return name


def _named_losses(exprs: Sequence[sp.Expr], names: _Names) -> tuple[dict[sp.Lambda, str], str]:
    nodes = (nodes_of(e, Prox, Moreau, MoreauSlope, MoreauCurvature) for e in exprs)
    met = ({n.loss for n in found} for found in nodes)
    losses = list(dict.fromkeys(loss for found in met for loss in sorted(found, key=sp.default_sort_key)))
    if not losses:
        return {}, "u"
    variable, name = names.take(_LOSS_VARIABLES), names.take(_LOSSES)
    return dict(zip(losses, _numbered(name, len(losses)), strict=True)), variable


def _named_laws(exprs: Sequence[sp.Expr], names: _Names) -> dict[Pushforward, Law]:
    met = dict.fromkeys(law for e in exprs for law in sorted(nodes_of(e, Pushforward), key=sp.default_sort_key))
    found: dict[Pushforward, Law] = {}
    bases: dict[Gaussian, str] = {}
    for law in sorted(met, key=lambda law: -law.dim):  # a law before its marginals
        known = next((w for w in found.values() if _is_marginal(law, w.whole)), None)
        if known is None:
            inputs = bases.get(law.base) or names.take(_INPUTS)
            bases[law.base] = inputs
            known = Law(law, names.take(_LETTERS), inputs, names.take(_DEFINED))
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


def _numbered(letter: str, count: int) -> tuple[str, ...]:
    return (letter,) if count == 1 else tuple(f"{letter}{i + 1}" for i in range(count))


class Display:
    """What the LaTeX and the MathML printer share: bound variables in scope, what is to be stated, order of terms.

    Mixed into SymPy's printers. Bound names differ from level to level, so leaving a scope needs no action.
    `stated`: the losses and laws of computed quantities that have been stated, here or in formulas before.
    """

    notation: Notation
    scope: dict[sp.Symbol, str]
    stated: set[object]

    def enter(self, node: BindingNode) -> tuple[str, ...]:
        """Bring the variables of a node into scope; their names on paper."""
        letter = self.letter(node)
        names = _numbered(letter, len(node.variables))
        if isinstance(node, Expectation) and isinstance(node.measure, Pushforward):
            names = self.law(node.measure).names(node.measure, letter)
        self.scope |= dict(zip(node.variables, names, strict=True))
        return names

    def letter(self, node: BindingNode) -> str:
        """The letter of a node's variables."""
        return self.notation.letters.get(node) or notation_for([node]).letters[node]

    def places(self, node: Minimum) -> tuple[str, ...]:
        """The names of the coordinates of the place of a minimum."""
        return _numbered(f"{self.letter(node)}hat", len(node.variables))

    def law(self, law: Pushforward) -> Law:
        """How a law is stated here."""
        return self.notation.laws.get(law) or _named_laws((law,), _Names(()))[law]

    def loss(self, loss: sp.Lambda) -> tuple[str, list[sp.Symbol]]:
        """The name of a loss, and the variables of expectations around it that it reads."""
        name = self.notation.losses.get(loss, "ell")
        outer = [s for s in loss.free_symbols if s.assumptions0.get("bound")]
        return name, sorted(outer, key=lambda s: self.scope.get(s, s.name))

    def is_new(self, what: sp.Basic, name: str) -> bool:
        """Whether something has not been stated yet under this name; from here on it has."""
        outer = tuple(sorted(self.scope.get(s, s.name) for s in what.free_symbols if s.assumptions0.get("bound")))
        key = (what, name, () if isinstance(what, sp.Lambda) else outer)
        new = key not in self.stated
        self.stated.add(key)
        return new

    def statements(self, law: Pushforward, letter: str) -> Iterator[tuple[tuple[str, ...], Part]]:
        """The parts of a law with the names of what they give; outputs that no part reads have their own letter."""
        said = self.law(law)
        whole, self.scope = said.whole, {**self.scope, **said.scope}
        parts = list(in_parts(whole.definitions))
        read = set().union(*(f.free_symbols for p in parts for f in p.formulas))
        inner = read.union(whole.inputs, *(p.symbols for p in parts if p.is_softmax))
        shown = list(zip(whole.outputs, _numbered(letter, whole.dim), strict=True))
        direct = {s: name for s, name in reversed(shown) if s not in inner}
        for part in parts:
            yield tuple(direct.get(s, self.scope[s]) for s in part.symbols), part
        for s, name in shown:
            if direct.get(s) != name:
                self.scope |= {s: direct.get(s, self.scope[s])}
                yield (name,), Part((s,), (s,))

    def name_of(self, symbol: sp.Symbol) -> Name:
        """The name under which a symbol is shown here."""
        return split_name(self.scope.get(symbol, symbol.name))

    def _as_ordered_terms(self, expr: sp.Expr, order: Any = None) -> list[sp.Expr]:
        return ordered_terms(expr)


def few(names: Sequence[str]) -> list[str | None]:
    """The names, of many only the first and the last around None."""
    return list(names) if len(names) <= _MOST_NAMES else [names[0], None, names[-1]]
