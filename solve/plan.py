"""Which blocks of a system each verb needs, read off the dependency graph."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import networkx as nx
import sympy as sp

from derive.equations import EquationSystem
from solve.blocks import LoweredBlock
from solve.motion import Motion

__all__ = ["Plan", "subsystem"]

Blocks = tuple[LoweredBlock, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """The blocks of a system in an order of solution, and their parts: static, moving, before and after."""

    system: EquationSystem
    blocks: Blocks

    @functools.cached_property
    def static(self) -> Blocks:
        """The blocks that depend on no flow."""
        return tuple(b for b in self.blocks if not self._in(b, self._moving))

    @functools.cached_property
    def motion(self) -> Motion:
        """The flows and the explicit blocks between them."""
        above = self._flows | self._above(self._flows)
        return Motion(tuple(b for b in self.blocks if self._in(b, self._moving) and self._in(b, above)))

    @functools.cached_property
    def after(self) -> Blocks:
        """What reads a flow and is read by none."""
        above = self._flows | self._above(self._flows)
        return tuple(b for b in self.blocks if self._in(b, self._moving) and not self._in(b, above))

    @functools.cached_property
    def before(self) -> Blocks:
        """The static blocks that the flows, their starts or what reads them need."""
        return self._static_above(self._moving | self.start_symbols(self._flows))

    def only_map(self) -> tuple[LoweredBlock, Blocks]:
        """The one block of definitions that read each other, and the blocks that it needs."""
        maps = [b for b in self.blocks if b.state]
        if len(maps) != 1 or maps[0].has_roots:
            found = "; ".join(", ".join(map(str, b.state)) for b in maps) or "none"
            raise ValueError(
                f"All fixed points are found for flows or for one block of definitions that read each other; here: "
                f"{found}. Restrict the system to the unknowns of one block."
            )
        above = self._static_above(frozenset(maps[0].state))
        return maps[0], tuple(b for b in above if b is not maps[0])

    def parameters(self, unknowns: Iterable[sp.Symbol]) -> frozenset[sp.Symbol]:
        """The parameters that these unknowns depend on, also through starts."""
        wanted = frozenset(unknowns)
        above = wanted | self._above(wanted)
        started = self.start_symbols({s for b in self.blocks for s in b.state} & above)
        above |= started | self._above(started)
        return above & {p.symbol for p in self.system.parameters}

    def start_symbols(self, unknowns: Iterable[sp.Symbol]) -> frozenset[sp.Symbol]:
        """The symbols in the system's starts of these unknowns."""
        starts = (self.system.start.get(u) for u in unknowns)
        return frozenset().union(*(s.free_symbols for s in starts if isinstance(s, sp.Basic)))

    @functools.cached_property
    def _graph(self) -> nx.DiGraph[sp.Symbol]:
        return self.system.graph()

    @functools.cached_property
    def _flows(self) -> frozenset[sp.Symbol]:
        return frozenset(u for b in self.blocks if b.is_flow for u in b.block.unknowns)

    @functools.cached_property
    def _moving(self) -> frozenset[sp.Symbol]:
        return self._flows.union(*(nx.descendants(self._graph, u) for u in self._flows))

    def _above(self, symbols: frozenset[sp.Symbol]) -> frozenset[sp.Symbol]:
        return frozenset().union(*(nx.ancestors(self._graph, u) for u in symbols))

    def _static_above(self, symbols: frozenset[sp.Symbol]) -> Blocks:
        needed = symbols | self._above(symbols)
        return tuple(b for b in self.static if self._in(b, needed))

    @staticmethod
    def _in(block: LoweredBlock, symbols: frozenset[sp.Symbol]) -> bool:
        return bool(symbols & set(block.block.unknowns))


def subsystem(system: EquationSystem, unknowns: Iterable[sp.Symbol]) -> EquationSystem:
    """The equations that determine these unknowns; all parameters stay known."""
    wanted = set(unknowns)
    absent = sorted(str(u) for u in wanted - set(system.unknowns))
    if absent:
        raise ValueError(f"{', '.join(absent)} is no unknown; the unknowns are {', '.join(map(str, system.unknowns))}.")
    graph = system.graph()
    kept = wanted.union(*(nx.ancestors(graph, u) for u in wanted))
    for u in kept & system.start.keys():
        kept = kept.union(*({s, *nx.ancestors(graph, s)} for s in system.start[u].free_symbols))
    equations = tuple(e for e in system.equations if e.unknown.symbol in kept)
    return EquationSystem(equations, system.parameters, {s: v for s, v in system.start.items() if s in kept})
