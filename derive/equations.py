"""The product of a derivation: equations, each for one unknown, and the graph of what needs what."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import networkx as nx
import sympy as sp

__all__ = ["Block", "Define", "Equation", "EquationSystem", "Flow", "Quantity", "Root", "Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where an equation comes from: `reference` is "arXiv:<id>" or "derived", `where` the place in it."""

    reference: str
    where: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A symbol with its meaning. `scale` says how it is made at finite size d (alpha -> n/d**2)."""

    symbol: sp.Symbol
    meaning: str
    domain: sp.Set = sp.S.Reals
    scale: sp.Expr = sp.S.One
    default: sp.Expr | None = None


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation that determines one unknown. Abstract: `Define`, `Root` and `Flow` are the three kinds."""

    unknown: Quantity
    rhs: sp.Expr
    source: Source

    def reads(self) -> frozenset[sp.Symbol]:
        """The symbols on the right-hand side."""
        return frozenset(self.rhs.free_symbols)


@dataclass(frozen=True, slots=True)
class Define(Equation):
    """unknown = rhs; an iteration when the unknown reads itself, directly or through others."""


@dataclass(frozen=True, slots=True)
class Root(Equation):
    """0 = rhs, solved for the unknown."""


@dataclass(frozen=True, slots=True)
class Flow(Equation):
    """d unknown / dt = rhs."""


@dataclass(frozen=True, slots=True)
class Block:
    """A strongly connected component of the graph.

    `state`: the smallest set of unknowns that makes the rest explicit, () for an explicit block.
    `stages`: the equations of the other unknowns, in an order in which they can be evaluated given the state.
    """

    equations: tuple[Equation, ...]
    state: tuple[sp.Symbol, ...]
    stages: tuple[Equation, ...]

    @property
    def unknowns(self) -> tuple[sp.Symbol, ...]:
        return tuple(e.unknown.symbol for e in self.equations)

    @property
    def is_flow(self) -> bool:
        return any(isinstance(e, Flow) for e in self.equations)


@dataclass(frozen=True)
class EquationSystem:
    """Equations and parameters that together are closed: every symbol read is an unknown or a parameter.

    `start`: initial value of a flow, first iterate of a fixed point, by unknown.
    Raises `ValueError` when it is not closed, an unknown has two equations, or two symbols share a name.
    """

    equations: tuple[Equation, ...]
    parameters: tuple[Quantity, ...] = ()
    start: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_names()
        strange = sorted(str(s) for s in self.start if s not in self.unknowns)
        if strange:
            raise ValueError(
                f"EquationSystem: a start is given for {', '.join(strange)}, but the unknowns are "
                f"{', '.join(map(str, self.unknowns))}. Give starts for unknowns only."
            )
        missing = self.missing()
        if missing:
            raise ValueError(self._unclosed(missing))

    @property
    def unknowns(self) -> tuple[sp.Symbol, ...]:
        return tuple(e.unknown.symbol for e in self.equations)

    def symbol(self, name: str) -> sp.Symbol:
        """The unknown or parameter of that name."""
        for s in self._symbols():
            if s.name == name:
                return s
        raise KeyError(f"No quantity {name!r} here; there are {', '.join(s.name for s in self._symbols())}.")

    def equation(self, unknown: sp.Symbol) -> Equation:
        """The equation that determines `unknown`."""
        for e in self.equations:
            if e.unknown.symbol == unknown:
                return e
        raise KeyError(f"{unknown} is not an unknown; the unknowns are {', '.join(map(str, self.unknowns))}.")

    def missing(self) -> frozenset[sp.Symbol]:
        """Symbols that are read but neither unknowns nor parameters."""
        known = set(self._symbols())
        read = set().union(*(e.reads() for e in self.equations), *(v.free_symbols for v in self.start.values()))
        return frozenset(read - known)

    def graph(self) -> nx.DiGraph[sp.Symbol]:
        """Edge x -> y: the equation of y reads x."""
        graph: nx.DiGraph[sp.Symbol] = nx.DiGraph()
        graph.add_nodes_from(p.symbol for p in self.parameters)
        graph.add_nodes_from(self.unknowns)
        for e in self.equations:
            graph.add_edges_from((x, e.unknown.symbol) for x in sorted(e.reads(), key=str))
        return graph

    def blocks(self) -> tuple[Block, ...]:
        """The strongly connected components, in an order in which they can be solved."""
        position = {u: i for i, u in enumerate(self.unknowns)}
        graph = self.graph().subgraph(self.unknowns)
        condensed = nx.condensation(graph)
        first = {c: min(position[u] for u in condensed.nodes[c]["members"]) for c in condensed}
        order = nx.lexicographical_topological_sort(condensed, key=first.__getitem__)
        return tuple(
            _block([self.equations[i] for i in sorted(position[u] for u in condensed.nodes[c]["members"])])
            for c in order
        )

    def _symbols(self) -> tuple[sp.Symbol, ...]:
        return (*self.unknowns, *(p.symbol for p in self.parameters))

    def _check_names(self) -> None:
        names = [s.name for s in self._symbols()]
        repeated = sorted({n for n in names if names.count(n) > 1})
        if repeated:
            raise ValueError(
                f"EquationSystem: {', '.join(repeated)} is given more than once as unknown or parameter. "
                "Give each unknown one equation and each quantity its own name."
            )

    def _unclosed(self, missing: frozenset[sp.Symbol]) -> str:
        names = {s.name for s in self._symbols()}
        twins = sorted(s.name for s in missing if s.name in names)
        text = (
            f"EquationSystem is not closed: {', '.join(sorted(map(str, missing)))} appear on a right-hand "
            "side but are neither unknowns nor parameters. Add an equation or a parameter for each."
        )
        return text + (f" (A symbol named {', '.join(twins)} with other assumptions exists.)" if twins else "")


def _block(equations: list[Equation]) -> Block:
    symbols = [e.unknown.symbol for e in equations]
    reads = {e.unknown.symbol: e.reads() & set(symbols) for e in equations}
    forced = [e.unknown.symbol for e in equations if not isinstance(e, Define)]
    free = [s for s in symbols if s not in forced]
    state = _smallest_feedback_set(forced, free, reads)
    rest = nx.DiGraph()
    rest.add_nodes_from(s for s in symbols if s not in state)
    rest.add_edges_from((x, y) for y in rest.nodes for x in reads[y] if x not in state)
    by_symbol = {e.unknown.symbol: e for e in equations}
    order = nx.lexicographical_topological_sort(rest, key=symbols.index)
    return Block(tuple(equations), state, tuple(by_symbol[s] for s in order))


def _smallest_feedback_set(
    forced: list[sp.Symbol], free: list[sp.Symbol], reads: Mapping[sp.Symbol, frozenset[sp.Symbol]]
) -> tuple[sp.Symbol, ...]:
    """The fewest of `free` that, with `forced`, break every cycle: exhaustive, blocks are small."""
    for k in range(len(free) + 1):
        for extra in itertools.combinations(free, k):
            state = {*forced, *extra}
            if _acyclic([s for s in free if s not in state], reads):
                return tuple(s for s in (*forced, *free) if s in state)
    raise AssertionError("all unknowns together always break every cycle")


def _acyclic(symbols: Iterable[sp.Symbol], reads: Mapping[sp.Symbol, frozenset[sp.Symbol]]) -> bool:
    graph = nx.DiGraph()
    for s in symbols:
        graph.add_node(s)
    graph.add_edges_from((x, y) for y in list(graph) for x in reads[y] if x in graph)
    return bool(nx.is_directed_acyclic_graph(graph))
