"""Derivations for people: LaTeX, a TeX document and Markdown here; text, MathML and drawings from their modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import sympy as sp

from derive.drawing import dot as dot
from derive.drawing import svg as svg
from derive.equations import Block, Equation, EquationSystem, Quantity
from derive.latex import Latex, left_hand_side
from derive.latex import latex_equation as latex_equation
from derive.latex import latex_expression as latex_expression
from derive.letters import notation_for, system_notation
from derive.lines import broken, given_lines, width
from derive.mathml import mathml as mathml
from derive.notation import GREEK_SIGNS, latex_name
from derive.proximal import Confined, Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.record import read_system as read_system
from derive.record import record as record
from derive.spectra import FreeConvolution, HilbertTransform, SpectralDensity, Wishart
from derive.text import text as text
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope

__all__ = [
    "document",
    "dot",
    "latex",
    "latex_equation",
    "latex_expression",
    "markdown",
    "mathml",
    "read_system",
    "record",
    "svg",
    "text",
]

Escape: TypeAlias = Callable[[str], str]

_LINE, _SHORT, _WITH = 84, 6, 8
"""Letters on a line, of a left-hand side that leaves as many, and of what stands before a law."""
_STEP = r"At $x = 0$ the step $\mathbf{1}[x > 0]$ is one half."
_PROXIMAL = (
    r"$\mathcal{M}_{V \ell}(w) = \min_{u} \ell(u) + (u - w)^{2} / (2 V)$, reached at $u = \mathrm{prox}_{V \ell}(w)$; "
    r"$\mathcal{M}'$ and $\mathcal{M}''$ are its derivatives in $w$."
)
_VECTOR = (
    r"Of several variables, $\mathcal{M}_{V \ell}(\vec{w}) = \min_{\vec{u}} \ell(\vec{u}) + "
    r"|\vec{u} - \vec{w}|^{2} / (2 V)$, the least of all minima, reached at "
    r"$\vec{u} = \mathrm{prox}_{V \ell}(\vec{w})$; $\partial_{i}$ is the derivative in $w_{i}$."
)
_CONFINED = r"$\iota_{C}(u)$ is $0$ for $u$ in $C$ and infinite elsewhere."
_SPECTRA: Mapping[type[sp.Basic], str] = {
    FreeConvolution: (
        r"$\boxplus$ is the free additive convolution, $\mu_{\mathrm{sc}, t}$ Wigner's semicircle of variance $t$."
    ),
    Wishart: (
        r"$\operatorname{Marchenko-Pastur}(\kappa)$ is the law of the eigenvalues of $W W^{\top} / \sqrt{p d}$ "
        r"for $W$ of $d$ rows and $p = \kappa d$ columns of independent $\mathcal{N}(0, 1)$, $d \to \infty$."
    ),
    HilbertTransform: r"$\mathrm{p.v.}$: the principal value, where $x$ lies in the support.",
    SpectralDensity: r"$\rho$ is the density of a law's continuous part.",
}
_TEX_SIGNS = {
    **{c: rf"\{c}" for c in "&%$#_{}"},
    **{sign: f"${tex}$" for sign, tex in GREEK_SIGNS.items()},
    **{sign: f"${sign}$" for sign in "<>|*"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "π": r"$\pi$"},
    **{"−": "$-$", "≤": r"$\le$", "≥": r"$\ge$", "∞": r"$\infty$", "√": r"$\surd$", "·": r"$\cdot$", "⋆": r"$\star$"},
}
_PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[margin=25mm]{geometry}
\usepackage{amsmath,amssymb}
\allowdisplaybreaks
\emergencystretch=3em
\title{%s}
\date{}
\begin{document}
\maketitle
"""


def latex(system: EquationSystem) -> str:
    r"""All equations as one align* of amsmath, block by block; each law is stated once a block.

    A law of computed quantities and a loss are stated once, where they are met first.
    """
    stated: set[object] = set()
    rows = [row for block in system.blocks() for row in _rows(system, block.equations, None, stated)]
    return _align(rows)


def document(system: EquationSystem, title: str) -> str:
    """A complete amsmath document: quantities with meaning and domain, equations with sources, long lines broken."""
    parts = [_PREAMBLE % _tex(title)]
    for heading, quantities in _quantities(system):
        parts += [rf"\section*{{{heading}}}", r"\begin{itemize}"]
        parts += [rf"\item ${latex_name(q.symbol.name)}$: {_described(q, _tex)}" for q in quantities]
        parts.append(r"\end{itemize}")
    parts.append(r"\section*{Equations}")
    stated: set[object] = set()
    for block in system.blocks():
        parts.append(rf"\paragraph{{{_block_title(block)}}} {_sources(block, _tex)}")
        parts.append(_align(_rows(system, block.equations, _LINE, stated)))
    parts.append("\n\n".join(_notes(system)))
    return "\n".join([*parts, r"\end{document}"]) + "\n"


def markdown(system: EquationSystem, title: str = "Equations") -> str:
    """Markdown with formulas between dollars: blocks in solving order, each equation with meaning and source."""
    parts = [f"# {_md(title)}"]
    stated: set[object] = set()
    for block in system.blocks():
        printer = Latex(system_notation(system, block.equations), stated=stated)
        parts.append(f"## {_block_title(block)}")
        for e in block.equations:
            parts.append(f"${latex_name(e.unknown.symbol.name)}$: {_described(e.unknown, _md)} ({_source(e, _md)})")
            parts.append(f"$$\n{left_hand_side(e)} = {printer.doprint(e.rhs)}\n$$")
        if printer.laws():
            # Displayed: between single dollars, Markdown takes the line ends of a matrix for escapes.
            parts += ["with", *("$$\n" + ",\n\\qquad ".join(laws) + "\n$$" for laws in _packed(printer.laws()))]
    if system.parameters:
        parts.append("## Parameters")
        parts.append("\n".join(f"- ${latex_name(p.symbol.name)}$: {_described(p, _md)}" for p in system.parameters))
    return "\n\n".join([*parts, *_notes(system)]) + "\n"


def _packed(laws: Iterable[str]) -> list[list[str]]:
    """Laws that fit on one line together."""
    lines: list[list[str]] = []
    for law in laws:
        if lines and sum(map(width, lines[-1])) + width(law) <= _LINE:
            lines[-1].append(law)
        else:
            lines.append([law])
    return lines


def _rows(
    system: EquationSystem, equations: Sequence[Equation], room: int | None, stated: set[object]
) -> Iterator[str]:
    printer = Latex(system_notation(system, equations), stated=stated)
    if room is not None:  # all lines begin behind the widest left-hand side
        room -= max(0, max(width(left_hand_side(e)) for e in equations) - _SHORT)
    for e in equations:
        left = left_hand_side(e)
        first, *rest = broken(printer, e.rhs, room, min(width(left), _SHORT)) if room else [printer.doprint(e.rhs)]
        yield f"{left} &= {first}"
        yield from (rf"&\quad {line}" for line in rest)
    for i, given in enumerate(printer.given()):
        first, *rest = given_lines(printer, given, room and room - _WITH)
        yield rf"&\quad {first}" if i else rf"&\text{{with }} {first}"
        yield from (rf"&\qquad {line}" for line in rest)


def _align(rows: Iterable[str]) -> str:
    body = " \\\\\n".join(f"  {row}" for row in rows)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def _quantities(system: EquationSystem) -> Iterator[tuple[str, list[Quantity]]]:
    yield "Unknowns", [e.unknown for e in system.equations]
    if system.parameters:
        yield "Parameters", list(system.parameters)


def _described(quantity: Quantity, escape: Escape) -> str:
    printer = Latex(notation_for(()))
    facts = [escape(quantity.meaning)] if quantity.meaning else []
    if quantity.domain != sp.S.Reals:
        facts.append(f"in ${_domain(printer, quantity.domain)}$")
    if quantity.scale != 1:
        facts.append(f"at finite size ${printer.doprint(quantity.scale)}$")
    if quantity.default is not None:
        facts.append(f"default ${printer.doprint(quantity.default)}$")
    return ", ".join(facts) or "real"


def _domain(printer: Latex, domain: sp.Set) -> str:
    if not isinstance(domain, sp.Interval):
        return printer.doprint(domain)
    left, right = "(" if domain.left_open else "[", ")" if domain.right_open else "]"
    return f"{left}{printer.doprint(domain.start)}, {printer.doprint(domain.end)}{right}"


def _block_title(block: Block) -> str:
    names = ", ".join(f"${latex_name(u.name)}$" for u in block.unknowns)
    if block.is_flow:
        return f"Flow of {names}"
    if not block.state:
        return f"Explicit: {names}"
    if len(block.state) == len(block.unknowns):
        return f"Solved together: {names}" if len(block.unknowns) > 1 else f"Implicit: {names}"
    return f"Solved together: {names}; state {', '.join(f'${latex_name(s.name)}$' for s in block.state)}"


def _sources(block: Block, escape: Escape) -> str:
    return "; ".join(dict.fromkeys(_source(e, escape) for e in block.equations)) + "."


def _source(equation: Equation, escape: Escape) -> str:
    return escape(", ".join(s for s in (equation.source.reference, equation.source.where) if s))


def _notes(system: EquationSystem) -> Iterator[str]:
    """What signs mean that the equations do not define."""
    if any(e.rhs.has(sp.Heaviside) for e in system.equations):
        yield _STEP
    if any(e.rhs.has(Prox, Moreau, MoreauSlope, MoreauCurvature) for e in system.equations):
        yield _PROXIMAL
    if any(e.rhs.has(VectorProx, VectorMoreau, VectorSlope, VectorCurvature) for e in system.equations):
        yield _VECTOR
    if any(e.rhs.has(Confined) for e in system.equations):
        yield _CONFINED
    yield from (note for kind, note in _SPECTRA.items() if any(e.rhs.has(kind) for e in system.equations))


def _tex(words: str) -> str:
    """Words for TeX: special signs escaped, Greek set as mathematics, signs TeX lacks named by code point."""
    return "".join(_TEX_SIGNS.get(c, c if ord(c) < 0x180 or c in "–—‘’“”" else f"[U+{ord(c):04X}]") for c in words)


def _md(words: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>$|#])", r"\\\1", " ".join(words.split()))
