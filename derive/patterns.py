"""What repeats with a running index: softmax vectors among definitions, lists and sums of one form in z1, z2, .."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy as sp

from derive.binding import Binder
from derive.expectation import Expectation
from derive.functions import SoftmaxEntry

__all__ = ["DOTS", "Part", "by_index", "in_parts", "nodes_of", "shortened", "shortened_sum"]

DOTS = sp.Symbol("dots", bound=True, ellipsis=True)
"""Stands for the terms left out between the first and the last of a run."""

_SHORTEST_RUN = 5
_LONGEST_LIST = 20
_INDEXED = re.compile(r"([A-Za-z]+(?:\d+_)?)(\d+)")


@dataclass(frozen=True)
class Part:
    """One symbol, given by the one formula; or several symbols, together the softmax of as many formulas."""

    symbols: tuple[sp.Symbol, ...]
    formulas: tuple[sp.Expr, ...]

    @property
    def is_softmax(self) -> bool:
        return len(self.symbols) > 1


def in_parts(definitions: Sequence[tuple[sp.Symbol, sp.Expr]]) -> Iterator[Part]:
    """The definitions in order, the entries of a softmax together where all of them follow one another.

    >>> a, b, c, x, y, z = sp.symbols("a b c x y z")
    >>> entries = [SoftmaxEntry(x, y, z), SoftmaxEntry(y, x, z), SoftmaxEntry(z, x, y)]
    >>> [p.formulas for p in in_parts(list(zip((a, b, c), entries)))]
    [(x, y, z)]
    """
    at = 0
    while at < len(definitions):
        count = _softmax_entries(definitions[at:])
        symbols, formulas = zip(*definitions[at : at + count], strict=True)
        yield Part(symbols, tuple(f.args[0] for f in formulas) if count > 1 else formulas)
        at += count


def _softmax_entries(definitions: Sequence[tuple[sp.Symbol, sp.Expr]]) -> int:
    """How many definitions at the beginning are the entries of one softmax; 1 if there is none."""
    first = definitions[0][1]
    if not isinstance(first, SoftmaxEntry) or len(definitions) < len(first.args):
        return 1
    n = len(first.args)
    symbols, entries = zip(*definitions[:n], strict=True)
    whole: Counter[sp.Expr] = Counter(first.args)
    alike = all(isinstance(e, SoftmaxEntry) and Counter(e.args) == whole for e in entries)
    if not alike or Counter(e.args[0] for e in entries) != whole:
        return 1
    return 1 if set(symbols) & first.free_symbols else n


def shortened(items: Sequence[sp.Expr]) -> list[sp.Expr]:
    """The items, of five or more in a row with a running index only the first and the last, with `DOTS` between.

    >>> z = [sp.Symbol(f"z{i}", bound=True) for i in range(1, 9)]
    >>> shortened([2 * s for s in z])
    [2*z1, dots, 2*z8]
    """
    found: list[sp.Expr] = []
    at = 0
    while at < len(items):
        stop = at + 1
        while stop < len(items) and _follows(items[stop - 1], items[stop]):
            stop += 1
        run = items[at:stop]
        found += [run[0], DOTS, run[-1]] if len(run) >= _SHORTEST_RUN else run
        at = stop
    return found


def shortened_sum(terms: Sequence[sp.Expr]) -> list[sp.Expr]:
    """The terms of a sum, shortened where they can be, in the order of their indices if so; -`DOTS` among negative.

    Of more than 20 terms of one form, one for each subset of the indices, two are left, too.
    """
    if len(terms) < _SHORTEST_RUN or sum(bool(_indices(t)) for t in terms) < _SHORTEST_RUN:
        return list(terms)
    return list(_shortened_sum(tuple(terms)))


@lru_cache(maxsize=256)
def _shortened_sum(terms: tuple[sp.Expr, ...]) -> Sequence[sp.Expr]:
    found = [t for group in _forms(terms) for t in _shortened_form(group)]
    if DOTS not in found:
        return terms
    minus = [t.could_extract_minus_sign() for t in found]
    return [-DOTS if t == DOTS and minus[i + 1] else t for i, t in enumerate(found)]


def by_index(items: Sequence[sp.Expr]) -> list[sp.Expr]:
    """Those of one form together, in the order of the indices that they hold most often."""
    return [item for group in _forms(items) for item in group]


def _forms(items: Sequence[sp.Expr]) -> list[list[sp.Expr]]:
    forms: dict[tuple[str, int], list[tuple[tuple[int, ...], int]]] = {}
    for i, item in enumerate(items):
        size = sum(1 for _ in sp.preorder_traversal(item))
        forms.setdefault((type(item).__name__, size), []).append((_place(item), i))
    return [[items[i] for _, i in places] for places in sorted(map(sorted, forms.values()))]


def _shortened_form(group: list[sp.Expr]) -> list[sp.Expr]:
    first, *others = group
    if len(group) > _LONGEST_LIST and _is_complete(group) and all(_is_renamed(first, t) for t in others):
        return [first, DOTS, others[-1]]
    return shortened(group)


def _is_complete(group: list[sp.Expr]) -> bool:
    """Whether there are as many terms as subsets, of one size, of the indices that they hold most often."""
    places = [_place(t) for t in group]
    return len(group) == math.comb(len(set().union(*places)), len(places[0]))


def _is_renamed(a: sp.Expr, b: sp.Expr) -> bool:
    """Whether b is a with other indices; those that stand as often in it are taken in their order."""
    before, after = _most_often_first(a), _most_often_first(b)
    if [_name(s)[0] for s in before] != [_name(s)[0] for s in after]:
        return False
    return bool(a.xreplace(dict(zip(before, after, strict=True))) == b)


def _follows(a: sp.Expr, b: sp.Expr) -> bool:
    """Whether b is a with the index raised by one of what it holds more often than b."""
    before, after = _indices(a), _indices(b)
    named = {_name(s): s for s in after}
    moved = {s: named.get((_name(s)[0], _name(s)[1] + 1)) for s, n in before.items() if n > after[s]}
    if not moved or {s for s, n in after.items() if n > before[s]} != set(moved.values()):
        return False
    return bool(a.xreplace({**moved, **{new: old for old, new in moved.items()}}) == b)


def _indices(expr: sp.Expr) -> Counter[sp.Symbol]:
    """How often each bound symbol with an index stands in the expression, outside of what binds variables itself."""
    found, pending = Counter[sp.Symbol](), [expr]
    while pending:
        node = pending.pop()
        if _is_indexed(node):
            found[node] += 1
        elif not isinstance(node, (Expectation, Binder)):
            pending.extend(node.args)
    return found


def _is_indexed(s: sp.Basic) -> bool:
    return isinstance(s, sp.Symbol) and bool(s.assumptions0.get("bound")) and bool(_INDEXED.fullmatch(s.name))


def _place(expr: sp.Expr) -> tuple[int, ...]:
    indices = _indices(expr)
    most = max(indices.values(), default=0)
    return tuple(sorted(_name(s)[1] for s, n in indices.items() if n == most))


def _most_often_first(expr: sp.Expr) -> list[sp.Symbol]:
    indices = _indices(expr)
    return sorted(indices, key=lambda s: (-indices[s], _name(s)))


def _name(s: sp.Symbol) -> tuple[str, int]:
    """The letter and the index."""
    parts = _INDEXED.fullmatch(s.name)
    return (parts[1], int(parts[2])) if parts else (s.name, 0)


def nodes_of(expr: sp.Basic, *kinds: type[sp.Basic]) -> set[Any]:
    """The nodes of these kinds in an expression; each part of it is looked at once, wherever it stands."""
    seen, pending = set[sp.Basic](), [expr]
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(node.args)
    return {node for node in seen if isinstance(node, kinds)}
