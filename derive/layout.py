"""Places for the nodes of a system's graph: blocks and parameters in layers, readers below what they read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import sympy as sp

from derive.equations import EquationSystem
from derive.notation import split_name, unicode_parts

__all__ = ["RADIUS", "Layout", "Point", "half_width", "layered"]

Point = tuple[float, float]
_Key = tuple[object, ...]

RADIUS = 17.0
_CHARACTER, _GAP, _LAYER, _MARGIN, _PADDING = 8.7, 26.0, 64.0, 24.0, 16.0
_SWEEPS = 12


@dataclass(frozen=True)
class Layout:
    """Where things stand. `frames` are (x, y, width, height) of blocks of two or more unknowns.

    `frame_of`: the cell (block or parameter) of a quantity. `bends`: for (quantity, layer), where its long arrows
    enter that layer and where they leave it.
    """

    places: Mapping[sp.Symbol, Point]
    frame_of: Mapping[sp.Symbol, _Key]
    frames: tuple[tuple[float, float, float, float], ...]
    bends: Mapping[_Key, tuple[Point, Point]]
    layers: Mapping[_Key, int]

    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the drawing, with a margin."""
        boxes = [(x, y, 2 * half_width(s) + 2 * _GAP, 2 * RADIUS + _GAP) for s, (x, y) in self.places.items()]
        boxes += [(x, y, 0.0, 0.0) for ends in self.bends.values() for x, y in ends] + list(self.frames)
        left, right = min(x - w / 2 for x, _, w, _ in boxes), max(x + w / 2 for x, _, w, _ in boxes)
        top, bottom = min(y - h / 2 for _, y, _, h in boxes), max(y + h / 2 for _, y, _, h in boxes)
        return left - _MARGIN, top - _MARGIN, right + _MARGIN, bottom + _MARGIN

    def route(self, source: sp.Symbol, target: sp.Symbol) -> list[Point]:
        """The points through which the arrow between two cells goes, from centre to centre."""
        first, last = self.layers[self.frame_of[source]], self.layers[self.frame_of[target]]
        between = [point for i in range(first + 1, last) for point in self.bends[source, i]]
        return [self.places[source], *between, self.places[target]]

    def outward(self, symbol: sp.Symbol) -> Point:
        """The direction from the middle of the symbol's block to it; to the right for a block of one."""
        members = [p for s, p in self.places.items() if self.frame_of[s] == self.frame_of[symbol]]
        x, y = self.places[symbol]
        dx, dy = x - sum(p[0] for p in members) / len(members), y - sum(p[1] for p in members) / len(members)
        return (dx, dy) if math.hypot(dx, dy) > 1 else (1.0, 0.0)


def half_width(symbol: sp.Symbol) -> float:
    """Half the width of a node that holds the symbol's label."""
    name = split_name(symbol.name)
    base, below = unicode_parts(name)
    return max(RADIUS, _CHARACTER * (len(base) + 0.7 * (len(below) + name.star)) / 2 + 8)


@dataclass(frozen=True)
class _Cell:
    """What takes a place in a layer: its quantities (none for a bend), placed relative to its centre."""

    offsets: Mapping[sp.Symbol, Point]
    width: float
    height: float


_BEND = _Cell({}, 8.0, 0.0)


def _cell(quantities: Sequence[sp.Symbol]) -> _Cell:
    n = len(quantities)
    if n == 1:
        return _Cell({quantities[0]: (0.0, 0.0)}, 2 * half_width(quantities[0]), 2 * RADIUS)
    ring = (2 * max(map(half_width, quantities)) + 1.5 * _GAP) / (2 * math.sin(math.pi / n))
    # Two stand side by side; three or more on a ring, so that the arrows among them are chords.
    angles = [math.pi * (2 * i / n - (1 if n == 2 else 0.5)) for i in range(n)]
    offsets = {q: (ring * math.cos(a), ring * math.sin(a)) for q, a in zip(quantities, angles, strict=True)}
    width = 2 * max(abs(x) + half_width(q) for q, (x, _) in offsets.items()) + 2 * _PADDING + _GAP
    height = 2 * max(abs(y) + RADIUS for _, y in offsets.values()) + 2 * _PADDING + _GAP
    return _Cell(offsets, width, height)


def layered(system: EquationSystem) -> Layout:
    """The layout: cells from the condensation, layers by longest path, order by barycentres."""
    members: dict[_Key, Sequence[sp.Symbol]] = {("block", i): b.unknowns for i, b in enumerate(system.blocks())}
    members |= {("parameter", p.symbol): [p.symbol] for p in system.parameters}
    cells = {key: _cell(quantities) for key, quantities in members.items()}
    frame_of = {q: key for key, quantities in members.items() for q in quantities}
    crossing = [(x, y) for x, y in system.graph().edges if frame_of[x] != frame_of[y]]
    layers = _layers(cells, [(frame_of[x], frame_of[y]) for x, y in crossing])
    links = nx.Graph()
    links.add_nodes_from(cells)
    for x, y in crossing:
        passed: list[_Key] = [(x, i) for i in range(layers[frame_of[x]] + 1, layers[frame_of[y]])]
        cells |= dict.fromkeys(passed, _BEND)
        layers |= {key: int(str(key[1])) for key in passed}
        nx.add_path(links, [frame_of[x], *passed, frame_of[y]])
    centres = _centres(cells, layers, links)
    heights = {i: max(c.height for key, c in cells.items() if layers[key] == i) for i in set(layers.values())}
    return Layout(
        places={q: _moved(centres[f], *d) for f, c in cells.items() for q, d in c.offsets.items()},
        frame_of=frame_of,
        frames=tuple((*centres[f], c.width, c.height) for f, c in cells.items() if len(c.offsets) > 1),
        bends={
            key: (_moved(centres[key], 0, -heights[layers[key]] / 2), _moved(centres[key], 0, heights[layers[key]] / 2))
            for key, c in cells.items()
            if not c.offsets
        },
        layers=layers,
    )


def _moved(point: Point, dx: float, dy: float) -> Point:
    return point[0] + dx, point[1] + dy


def _layers(cells: Iterable[_Key], edges: Iterable[tuple[_Key, _Key]]) -> dict[_Key, int]:
    """Blocks as high as they can be, parameters just above the first block that reads them."""
    graph = nx.DiGraph()
    graph.add_nodes_from(cells)
    graph.add_edges_from(edges)
    layers: dict[_Key, int] = {}
    for i, generation in enumerate(nx.topological_generations(graph)):
        layers |= dict.fromkeys(generation, i)
    for key in layers:
        if key[0] == "parameter":
            layers[key] = min((layers[reader] for reader in graph.successors(key)), default=1) - 1
    return layers


def _centres(cells: Mapping[_Key, _Cell], layers: Mapping[_Key, int], links: nx.Graph) -> dict[_Key, Point]:
    rows = [[key for key in cells if layers[key] == i] for i in range(max(layers.values()) + 1)]
    x = dict.fromkeys(cells, 0.0)
    for row in rows:
        x |= _spread(row, {key: float(i) for i, key in enumerate(row)}, cells)
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wish = {key: _mean([x[other] for other in links[key]], x[key]) for key in row}
            x |= _spread(row, wish, cells)
    y, centres = 0.0, dict[_Key, Point]()
    for row in rows:
        height = max(cells[key].height for key in row)
        centres |= {key: (x[key], y + height / 2) for key in row}
        y += height + _LAYER
    return centres


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _spread(row: Sequence[_Key], wish: Mapping[_Key, float], cells: Mapping[_Key, _Cell]) -> dict[_Key, float]:
    """Places in a layer in the order of the wishes, as near to them as the widths allow."""
    placed: dict[_Key, float] = {}
    edge = -math.inf
    for key in sorted(row, key=wish.__getitem__):
        half = cells[key].width / 2
        placed[key] = max(wish[key], edge + half + _GAP)
        edge = placed[key] + half
    shift = _mean([wish[key] - placed[key] for key in row], 0.0)
    return {key: place + shift for key, place in placed.items()}
