"""A report of one check: task, equations, theory against simulation, verdicts, versions and command."""

from __future__ import annotations

import html
import io
import math
import shlex
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

from derive.drawing import svg
from derive.equations import EquationSystem
from derive.mathml import mathml
from derive.present import markdown
from derive.task import dimension
from solve.compiled import compile_system
from verify.check import Check
from verify.verdict import Row

__all__ = ["figure_svg", "html_report", "markdown_report", "verdict_text", "write_report"]

_PACKAGES = ("limitlaw", "sympy", "numpy", "scipy", "torch")
_CURVE_POINTS = 200
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right}"
    "th:first-child,td:first-child{text-align:left}pre{background:#f6f6f6;padding:1rem;overflow-x:auto}"
    ".agrees{color:#176b2c}.disagrees{color:#a11}.inconclusive{color:#8a6100}math{font-size:1.05em}"
    ".equation{overflow-x:auto;margin:.6rem 0}"
)
_HEAD = ("quantity", "at", "d", "predicted", "mean", "std. error", "z", "effect", "allowed", "verdict")


def verdict_text(checked: Check) -> str:
    """The verdict and its rows for a terminal."""
    rows = [_HEAD, *(_cells(r) for r in checked.comparison.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    table = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*table, "", *_conclusion(checked)])


def markdown_report(checked: Check, task_text: str, command: Sequence[str]) -> str:
    """The report as Markdown; the figure lies beside it as figure.svg."""
    rows = [_HEAD, ("---",) * len(_HEAD), *(_cells(r) for r in checked.comparison.rows)]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    parts = [
        "# Theory against simulation",
        *_conclusion(checked),
        "![theory as lines, simulation as points with two standard errors](figure.svg)",
        "\n".join(table),
        markdown(checked.derivation.system, "Equations"),
        "## Task\n\n```toml\n" + task_text.strip() + "\n```",
        "## How it was made\n\n" + "\n".join(f"- {line}" for line in _provenance(checked, command)),
    ]
    return "\n\n".join(parts) + "\n"


def html_report(checked: Check, task_text: str, command: Sequence[str]) -> str:
    """The report as one self-contained HTML file without scripts."""
    system = checked.derivation.system
    head = "".join(f"<th>{html.escape(c)}</th>" for c in _HEAD)
    body = "".join(
        f"<tr class='{r.verdict.name if r.verdict else ''}'>"
        + "".join(f"<td>{html.escape(c)}</td>" for c in _cells(r))
        + "</tr>"
        for r in checked.comparison.rows
    )
    conclusion = "".join(f"<p class='{checked.verdict.name}'>{html.escape(line)}</p>" for line in _conclusion(checked))
    provenance = "".join(f"<li>{html.escape(line)}</li>" for line in _provenance(checked, command))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>limitlaw: theory against simulation</title><style>{_STYLE}</style></head><body>"
        f"<h1>Theory against simulation</h1>{conclusion}<figure>{_inline(figure_svg(checked))}</figure>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<h2>Equations</h2>{_equations(system)}<h2>Which quantity needs which</h2>{_inline(svg(system))}"
        f"<h2>Task</h2><pre>{html.escape(task_text.strip())}</pre>"
        f"<h2>How it was made</h2><ul>{provenance}</ul></body></html>"
    )


def write_report(checked: Check, folder: Path, task_text: str, command: Sequence[str]) -> None:
    """Write report.html, report.md and figure.svg into `folder`, which is made if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(html_report(checked, task_text, command), encoding="utf-8")
    (folder / "report.md").write_text(markdown_report(checked, task_text, command), encoding="utf-8")
    (folder / "figure.svg").write_text(figure_svg(checked), encoding="utf-8")


def figure_svg(checked: Check) -> str:
    """Theory as lines, simulation as points with error bars of two standard errors."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    if checked.ensembles[0].axis is not None and checked.ensembles[0].axis.size:
        _draw_series(axes, checked)
    else:
        _draw_sizes(axes, checked)
    axes.legend(frameon=False)
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "limitlaw", "svg.fonttype": "none"}):
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _draw_series(axes: object, checked: Check) -> None:
    system, quantities = checked.derivation.system, tuple(checked.predictions[0])
    last = float(max(e.axis[-1] for e in checked.ensembles if e.axis is not None))
    known = {**checked.solution.parameters, dimension: float(checked.ensembles[-1].size)}
    own = {q.symbol: known[q.symbol] for q in system.parameters if q.symbol in known}
    times = np.linspace(0.0, last, _CURVE_POINTS)
    curve = compile_system(system).integrate(own, times)
    for quantity in quantities:
        axes.plot(times, curve[quantity], label=f"{quantity.name}, theory")  # type: ignore[attr-defined]
    for i, e in enumerate(checked.ensembles):
        for quantity in quantities:
            x = e[quantity]
            spread = 2 * x.std(axis=0, ddof=1) / math.sqrt(len(x))
            label = f"{quantity.name}, d = {e.size}" if quantity is quantities[0] else None
            style = {"fmt": "osD^v"[i % 5], "ms": 4, "capsize": 2}
            axes.errorbar(e.axis, x.mean(axis=0), spread, label=label, **style)  # type: ignore[attr-defined]
    axes.set_xlabel(checked.plan.axis)  # type: ignore[attr-defined]
    axes.set_ylabel(checked.plan.label)  # type: ignore[attr-defined]


def _draw_sizes(axes: object, checked: Check) -> None:
    sizes = [e.size for e in checked.ensembles]
    for k, quantity in enumerate(checked.predictions[0]):
        predicted = [float(p[quantity]) for p in checked.predictions]
        mean = [float(np.mean(e[quantity])) for e in checked.ensembles]
        spread = [2 * float(np.std(e[quantity], ddof=1)) / math.sqrt(len(e[quantity])) for e in checked.ensembles]
        color = f"C{k % 10}"
        axes.plot(sizes, predicted, color=color, label=f"{quantity.name}, theory")  # type: ignore[attr-defined]
        axes.errorbar(sizes, mean, spread, fmt="o", capsize=2, color=color)  # type: ignore[attr-defined]
    axes.set_xscale("log")  # type: ignore[attr-defined]
    if len(checked.predictions[0]) == 1:
        axes.set_yscale("log")  # type: ignore[attr-defined]
    axes.set_xlabel("dimension d")  # type: ignore[attr-defined]
    axes.set_ylabel(checked.plan.label)  # type: ignore[attr-defined]


def _cells(row: Row) -> tuple[str, ...]:
    size = "limit" if math.isinf(row.size) else f"{row.size:g}"
    verdict = "informs" if row.verdict is None else row.verdict.name
    numbers = (row.predicted, row.mean, row.stderr, row.z, row.effect, row.allowed)
    shown = ("" if math.isnan(v) else f"{v:.4g}" for v in numbers)
    return (row.quantity.name, "" if row.at is None else f"{row.at:.4g}", size, *shown, verdict)


def _conclusion(checked: Check) -> list[str]:
    comparison, control = checked.comparison, checked.control
    found = (
        f"The negative control, {control.mutation}, is rejected, as it must be."
        if control
        else "No wrong theory of the negative control was rejected: these simulations have no power. Take more seeds."
    )
    return [
        f"Verdict: {checked.verdict.name}. {checked.verdict.value}",
        f"{comparison.comparisons} numbers tested together at a false-alarm rate of "
        f"{comparison.tolerance.false_alarm:g}; the smallest relative deviation that would be found is "
        f"{comparison.resolution:.2g}.",
        found,
        *sorted({r.note for r in comparison.rows if r.note}),
    ]


def _provenance(checked: Check, command: Sequence[str]) -> Iterable[str]:
    seeds = checked.ensembles[0].seeds
    yield f"command: {shlex.join(command)}"
    yield f"seeds: {min(seeds)} to {max(seeds)} at each dimension, on {checked.ensembles[0].device}"
    yield f"{checked.seconds:.1f} seconds"
    yield from (f"{name} {metadata.version(name)}" for name in _PACKAGES)


def _equations(system: EquationSystem) -> str:
    return "".join(
        f"<div class='equation'>{mathml(e)}<div>{html.escape(e.unknown.meaning)}"
        f" <small>({html.escape(e.source.reference)}: {html.escape(e.source.where)})</small></div></div>"
        for e in system.equations
    )


def _inline(document: str) -> str:
    """An SVG document without its XML prologue, which HTML does not allow inside."""
    return document[document.index("<svg") :]
