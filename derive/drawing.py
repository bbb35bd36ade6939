"""The graph of quantities as DOT and as SVG: blocks as clusters, parameters as boxes, an arrow where one is read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

import sympy as sp

from derive.equations import Block, EquationSystem, Quantity
from derive.layout import RADIUS, Layout, Point, half_width, layered
from derive.notation import split_name, unicode_parts

__all__ = ["dot", "svg"]

_FONT = 15.0
_LEGEND = "box: parameter, ellipse: unknown, thick: state of its block, frame: solved together"
_STYLE = (
    "text{font:15px 'STIX Two Text','DejaVu Serif',serif;text-anchor:middle;fill:#111}"
    ".roman{font-style:normal}.letter{font-style:italic}.small{font-size:70%}"
    ".legend{font-size:11px;text-anchor:start;fill:#666}"
    ".node{fill:#fff;stroke:#345;stroke-width:1.2}.state{stroke-width:2.6}.parameter{fill:#f3f1ea}"
    ".cluster{fill:#eef3f8;stroke:#9ab;stroke-dasharray:4 3}"
    ".arrow{fill:none;stroke:#789;stroke-width:1.1;marker-end:url(#limitlaw-arrow)}"
)
_ARROWHEAD = (
    '<marker id="limitlaw-arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0,0.8 L8,4 L0,7.2 z" fill="#789"/></marker>'
)


def dot(system: EquationSystem) -> str:
    """The graph in the DOT language; a block of two or more unknowns is a cluster, a state unknown is bold."""
    lines = ["digraph system {", "  node [shape=ellipse];"]
    lines += [f"  {_quoted(p.symbol.name)} [shape=box, tooltip={_quoted(p.meaning)}];" for p in system.parameters]
    for i, block in enumerate(system.blocks()):
        nodes = [_dot_node(e.unknown, block) for e in block.equations]
        if len(nodes) > 1:
            lines += [f"  subgraph cluster_{i} {{", "    style=rounded;", *(f"  {n}" for n in nodes), "  }"]
        else:
            lines += nodes
    lines += [f"  {_quoted(x.name)} -> {_quoted(y.name)};" for x, y in system.graph().edges]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_node(quantity: Quantity, block: Block) -> str:
    style = ", style=bold" if quantity.symbol in block.state else ""
    return f"  {_quoted(quantity.symbol.name)} [tooltip={_quoted(quantity.meaning)}{style}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def svg(system: EquationSystem) -> str:
    """The graph as a self-contained SVG picture: no script, no font or file from outside; meanings as tooltips."""
    layout = layered(system)
    left, top, right, bottom = layout.bounds()
    right, bottom = max(right, left + 6 * len(_LEGEND)), bottom + 24
    size = f'width="{right - left:.0f}" height="{bottom - top:.0f}"'
    box = f"{left:.1f} {top:.1f} {right - left:.1f} {bottom - top:.1f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{box}" role="img">',
        f"<title>Which quantity reads which</title><style>{_STYLE}</style><defs>{_ARROWHEAD}</defs>",
        f'<rect x="{left:.1f}" y="{top:.1f}" width="100%" height="100%" fill="#fff"/>',
        *_clusters(layout),
        *(_arrow(layout, x, y) for x, y in system.graph().edges),
        *_nodes(system, layout.places),
        f'<text class="legend" x="{left + 10:.1f}" y="{bottom - 10:.1f}">{escape(_LEGEND)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _clusters(layout: Layout) -> Iterator[str]:
    for x, y, width, height in layout.frames:
        corner = f'x="{x - width / 2:.1f}" y="{y - height / 2:.1f}"'
        yield f'<rect class="cluster" {corner} width="{width:.1f}" height="{height:.1f}" rx="12"/>'


def _nodes(system: EquationSystem, places: Mapping[sp.Symbol, Point]) -> Iterator[str]:
    for p in system.parameters:
        (x, y), w = places[p.symbol], half_width(p.symbol)
        corner = f'x="{x - w:.1f}" y="{y - RADIUS:.1f}" width="{2 * w:.1f}" height="{2 * RADIUS:.1f}"'
        yield _node(p, f'<rect class="node parameter" {corner} rx="2"/>', (x, y))
    for block in system.blocks():
        for e in block.equations:
            symbol = e.unknown.symbol
            x, y = places[symbol]
            kind = "node state" if symbol in block.state else "node"
            radii = f'rx="{half_width(symbol):.1f}" ry="{RADIUS:.1f}"'
            yield _node(e.unknown, f'<ellipse class="{kind}" cx="{x:.1f}" cy="{y:.1f}" {radii}/>', (x, y))


def _node(quantity: Quantity, shape: str, place: Point) -> str:
    name = quantity.symbol.name
    tooltip = escape(f"{name}: {quantity.meaning}" if quantity.meaning else name)
    x, y = place
    label = f'<text x="{x:.1f}" y="{y + _FONT / 3:.1f}">{_label(name)}</text>'
    return f"<g><title>{tooltip}</title>{shape}{label}</g>"


def _label(name: str) -> str:
    parts = split_name(name)
    base, below = unicode_parts(parts)
    kind = "roman" if len(base) > 2 else "letter"
    text = f'<tspan class="{kind}">{escape(base)}</tspan>'
    shift = 0
    for sign, size, offset in ((below, "small", 4), ("⋆" * parts.star, "sign", -3)):
        if sign:
            text += f'<tspan class="{size}" dy="{offset - shift}">{escape(sign)}</tspan>'
            shift = offset
    return text


def _arrow(layout: Layout, source: sp.Symbol, target: sp.Symbol) -> str:
    if source == target:
        path = _loop(*layout.places[source], half_width(source), layout.outward(source))
    elif layout.frame_of[source] == layout.frame_of[target]:
        path = _chord(layout, source, target)
    else:
        path = _descent(layout.route(source, target))
    return f'<path class="arrow" d="{path}"/>'


def _loop(x: float, y: float, w: float, outward: Point) -> str:
    """A loop on the side of the node that looks away from the other nodes of its block."""
    angle = math.atan2(outward[1], outward[0])
    before, after = (
        ((math.cos(a), math.sin(a)), (x + w * math.cos(a), y + RADIUS * math.sin(a)))
        for a in (angle - 0.45, angle + 0.45)
    )
    pulls = [(px + 30 * dx, py + 30 * dy) for (dx, dy), (px, py) in (before, after)]
    return f"M{_at(before[1])} C{_at(pulls[0])} {_at(pulls[1])} {_at(after[1])}"


def _chord(layout: Layout, source: sp.Symbol, target: sp.Symbol) -> str:
    """A slightly bent line between two nodes of a block; the way back bends to the other side."""
    (x1, y1), (x2, y2) = layout.places[source], layout.places[target]
    length = math.hypot(x2 - x1, y2 - y1)
    bend = (0.5 * (x1 + x2) - 0.12 * (y2 - y1), 0.5 * (y1 + y2) + 0.12 * (x2 - x1)) if length else (x1, y1)
    start = _border((x1, y1), half_width(source), bend)
    end = _border((x2, y2), half_width(target), bend)
    return f"M{_at(start)} Q{_at(bend)} {_at(end)}"


def _border(centre: Point, w: float, towards: Point) -> Point:
    """Where the ellipse around `centre` meets the line to `towards`."""
    dx, dy = towards[0] - centre[0], towards[1] - centre[1]
    scale = 1 / math.hypot(dx / w, dy / RADIUS)
    return centre[0] + scale * dx, centre[1] + scale * dy


def _descent(points: list[Point]) -> str:
    """A smooth line downwards through the points, vertical at each of them."""
    (x0, y0), *between, (xn, yn) = points
    stops = [(x0, y0 + RADIUS), *between, (xn, yn - RADIUS)]
    path = f"M{_at(stops[0])}"
    for (x1, y1), (x2, y2) in itertools.pairwise(stops):
        middle = 0.5 * (y1 + y2)
        path += f" C{_at((x1, middle))} {_at((x2, middle))} {_at((x2, y2))}"
    return path


def _at(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
