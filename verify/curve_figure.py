"""Curves as a figure: theory as lines, simulation at the largest dimension as points with two standard errors."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp

from verify.along import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curve_figure", "figure_text"]

_PANEL = (4.2, 3.0)


def curve_figure(columns: Mapping[str, Sequence[Curve]], quantities: Sequence[str]) -> Figure:
    """One column for each title, one row for each quantity."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL[0] * len(columns), _PANEL[1] * len(quantities)), layout="constrained")
    axes = figure.subplots(len(quantities), len(columns), sharex=True, squeeze=False)
    for j, (title, curves) in enumerate(columns.items()):
        axes[0, j].set_title(title)
        for i, quantity in enumerate(quantities):
            for k, curve in enumerate(curves):
                _draw(axes[i, j], curve, quantity, f"C{k % 10}")
            axes[i, j].set_ylabel(quantity.replace("_", " "))
            axes[i, j].set_ylim(bottom=0)
        axes[-1, j].set_xlabel(f"${sp.latex(curves[0].parameter)}$")
    lines, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def _draw(axes: Axes, curve: Curve, quantity: str, color: str) -> None:
    symbol = next(s for s in curve.theory if s.name == quantity)
    axes.plot(curve.grid, curve.theory[symbol], color=color, label=curve.name)
    largest = curve.ensembles[-1]
    x = largest[symbol]
    spread = 2 * x.std(axis=0, ddof=1) / math.sqrt(len(x))
    assert largest.axis is not None
    axes.errorbar(largest.axis, np.mean(x, axis=0), spread, fmt="o", ms=3, capsize=2, color=color)


def figure_text(figure: Figure) -> str:
    """The SVG, the same whenever it is made."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "limitlaw", "svg.fonttype": "none"}):
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
