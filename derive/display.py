"""What printers of formulas share: bound variables in scope, what is to be stated beside a formula, order of terms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import sympy as sp

from derive.expectation import Expectation
from derive.free_letters import Names, numbered
from derive.letters import BindingNode, Law, Notation, named_laws, notation_for
from derive.measures import Pushforward
from derive.minimum import Minimum
from derive.notation import Name, ordered_terms, split_name
from derive.patterns import Part, in_parts
from derive.spectra import Spectrum
from derive.spectrum_names import named_spectra

__all__ = ["Display", "few"]

_MOST_NAMES = 6


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
        names = numbered(letter, len(node.variables))
        if isinstance(node, Expectation) and isinstance(node.measure, Pushforward):
            names = self.law(node.measure).names(node.measure, letter)
        self.scope |= dict(zip(node.variables, names, strict=True))
        return names

    def letter(self, node: BindingNode) -> str:
        """The letter of a node's variables."""
        return self.notation.letters.get(node) or notation_for([node]).letters[node]

    def places(self, node: Minimum) -> tuple[str, ...]:
        """The names of the coordinates of the place of a minimum."""
        return numbered(f"{self.letter(node)}hat", len(node.variables))

    def law(self, law: Pushforward) -> Law:
        """How a law is stated here."""
        return self.notation.laws.get(law) or named_laws((law,), Names(()))[law]

    def spectrum(self, law: Spectrum) -> str:
        """The name of a law of eigenvalues that is no semicircle, which has a sign of its own."""
        return self.notation.spectra.names.get(law) or named_spectra((law,), Names(())).names[law]

    def loss(self, loss: sp.Lambda) -> tuple[str, list[sp.Symbol]]:
        """The name of a loss, and the variables of expectations around it that it reads."""
        name = self.notation.losses.get(loss, "ell")
        outer = [s for s in loss.free_symbols if s.assumptions0.get("bound")]
        return name, sorted(outer, key=lambda s: self.scope.get(s, s.name))

    def is_new(self, what: sp.Basic, name: str) -> bool:
        """Whether something has not been stated yet under this name; from here on it has."""
        outer = tuple(sorted(self.scope.get(s, s.name) for s in what.free_symbols if s.assumptions0.get("bound")))
        key = (what, name, () if isinstance(what, sp.Lambda) and len(what.variables) == 1 else outer)
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
        shown = list(zip(whole.outputs, said.names(whole, letter), strict=True))
        direct = {s: name for s, name in reversed(shown) if s not in inner}
        for part in parts:
            yield tuple(direct.get(s, self.scope[s]) for s in part.symbols), part
        for s, name in shown:
            if name not in (direct.get(s), said.scope.get(s)):
                self.scope |= {s: direct.get(s, self.scope[s])}
                yield (name,), Part((s,), (s,))

    def name_of(self, symbol: sp.Symbol) -> Name:
        """The name under which a symbol is shown here."""
        return split_name(self.scope.get(symbol, symbol.name))

    def _as_ordered_terms(self, expr: sp.Expr, order: Any = None) -> list[sp.Expr]:
        return ordered_terms(expr)


def few(names: Sequence[str]) -> list[str | None]:
    """The names; of many, only the first and the last of each letter around None."""
    if len(names) <= _MOST_NAMES:
        return list(names)
    runs = (list(run) for _, run in itertools.groupby(names, lambda n: n.rstrip("0123456789")))
    return [n for run in runs for n in (run if len(run) < 3 else [run[0], None, run[-1]])]
