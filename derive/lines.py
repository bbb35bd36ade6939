r"""Long formulas over several lines: sums broken at their terms, also inside brackets and expectations."""

from __future__ import annotations

import re

import sympy as sp

from derive.expectation import Expectation
from derive.functions import LogCosh, SoftmaxEntry, sigmoid
from derive.latex import Latex
from derive.latex_statements import Given, brackets
from derive.minimum import Minimum
from derive.notation import function_head, ordered_terms
from derive.patterns import DOTS, by_index, shortened
from derive.sums import PositiveSum

__all__ = ["broken", "given_lines", "width"]

_TOKEN = re.compile(
    r"\\(?:left|right|mathrm|mathbb|mathbf|mathcal|operatorname|hat|bar|tilde|text)(?![A-Za-z])|[{}^_ ]"
    r"|\\(?P<spelt>log|exp|sinh?|cosh?|tanh?|arc[a-z]+|max|min)(?![A-Za-z])"
    r"|(?P<sign>\\[A-Za-z]+|\\.)"
)
_FRACTION = re.compile(r"\\frac\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")


def width(tex: str) -> int:
    r"""About how many letters wide a formula is set; a fraction counts as its wider part.

    >>> width(r"\frac{\gamma m}{2} \tanh(x)")
    10
    """
    spaces = 2 * len(re.findall(r" [-+=] ", tex)) + tex.count(r"\frac") + tex.count(r"\sqrt")
    tex = _FRACTION.sub(lambda m: max(m.groups(), key=width), tex)
    return len(_TOKEN.sub(lambda m: m["spelt"] or ("x" if m["sign"] else ""), tex)) + spaces


def broken(printer: Latex, expr: sp.Expr, room: int, used: int = 0) -> list[str]:
    """The formula in lines of about `room` letters, of which the first has `used` taken before it.

    It stays whole where it fits or where nothing can be broken.
    """
    whole = printer.doprint(expr)
    if width(whole) <= room - used:
        return [whole]
    if expr.is_Add:
        return _sum(printer, expr, room, used)
    if isinstance(expr, Expectation) or (isinstance(expr, Minimum) and not expr.index):
        head = printer.head(expr)
        inside = broken(printer, expr.args[0], room, used + width(head) + 1)
        return _enclose(head + r"\Bigl[", inside, r"\Bigr]")
    if isinstance(expr, PositiveSum):
        head, terms = printer.sums(expr)
        return _enclose(head + r"\Bigl[", _packed(terms, room, used), r" > 0\Bigr]")
    if isinstance(expr, sigmoid) and expr.args[0].is_Add:
        head = function_head(expr)[0]
        inside = broken(printer, expr.args[0], room, used + width(head) + 1)
        return _enclose(head + r"\Bigl(", inside, r"\Bigr)")
    if isinstance(expr, SoftmaxEntry):
        return _softmax(printer, expr, room, used)
    if expr.is_Pow and expr.base.is_Add and expr.exp.is_Rational:
        return _enclose(r"\Bigl(", broken(printer, expr.base, room, used + 1), rf"\Bigr)^{{{expr.exp}}}")
    return _product(printer, expr, room, used) if expr.is_Mul else [whole]


def _sum(printer: Latex, expr: sp.Expr, room: int, used: int) -> list[str]:
    lines: list[str] = []
    for i, term in enumerate(ordered_terms(expr)):
        minus = term.could_extract_minus_sign()
        sign = ("- " if minus else "+ ") if i or minus else ""
        first, *rest = _term(printer, -term if minus else term, room, 2 if lines else used)
        if lines and width(f"{lines[-1]} {sign}{first}") + 2 <= room - (used if len(lines) == 1 else 0):
            lines[-1] += f" {sign}{first}"
        else:
            lines.append(sign + first)
        lines += rest
    return lines


def _softmax(printer: Latex, expr: SoftmaxEntry, room: int, used: int) -> list[str]:
    """Broken at its arguments, and in them where they are long."""
    own, *others = expr.args
    lines: list[str] = []
    for a in (own, *shortened(by_index(others))):
        part = [r"\ldots"] if a == DOTS else broken(printer, a, room, 2)
        if lines:
            lines[-1] += ","
            if width(f"{lines[-1]} {part[0]}") < room - (used if len(lines) == 1 else 0):
                lines[-1] += f" {part.pop(0)}"
        lines += part
    return _enclose(rf"{function_head(expr)[0]}_{{1}}\Bigl(", lines, r"\Bigr)")


def _packed(terms: list[str], room: int, used: int) -> list[str]:
    """Terms that stay whole, as many on a line as there is room for."""
    lines = terms[:1]
    for term in terms[1:]:
        if width(f"{lines[-1]} {term}") + 2 <= room - (used if len(lines) == 1 else 0):
            lines[-1] += f" {term}"
        else:
            lines.append(term)
    return lines


def given_lines(printer: Latex, given: Given, room: int | None) -> list[str]:
    """What is said beside a formula, broken where it is longer than `room`."""
    if room is None or given.right is None or width(given.text) <= room:
        return [given.text]
    printer.scope |= given.scope
    first, *rest = broken(printer, given.right, room, width(given.left) + 1)
    return [f"{given.left} {first}", *rest]


def _term(printer: Latex, term: sp.Expr, room: int, used: int) -> list[str]:
    lines = broken(printer, term, room, used)
    return _enclose(r"\Bigl(", lines, r"\Bigr)") if term.is_Add else lines


def _product(printer: Latex, expr: sp.Expr, room: int, used: int) -> list[str]:
    """The widest factor that is a sum, a power of one or an expectation is broken, the others stand before it."""
    factors = [
        f
        for f in expr.args
        if f.is_Add or isinstance(f, (Expectation, Minimum, PositiveSum)) or (f.is_Pow and f.exp.is_positive)
    ]
    if not factors:
        return [printer.doprint(expr)]
    widest = max(factors, key=lambda f: width(printer.doprint(f)))
    others = [f for f in expr.args if f is not widest]
    minus = others[0] == -1
    before = ("- " if minus else "") + _before(printer, others[1:] if minus else others)
    if used + width(before) > room:
        return [*broken(printer, sp.Mul(*others, evaluate=False), room, used), *_term(printer, widest, room, 2)]
    lines = _term(printer, widest, room, used + width(before) + 1)
    return [f"{before} {lines[0]}".strip(), *lines[1:]]


def _before(printer: Latex, factors: list[sp.Expr]) -> str:
    if len(factors) == 1 and factors[0].is_Add:
        return brackets(printer.doprint(factors[0]))
    text = printer.doprint(sp.Mul(*factors, evaluate=False)) if factors else ""
    return text + r" \cdot" if any(isinstance(f, (sp.log, LogCosh)) for f in factors) else text


def _enclose(left: str, lines: list[str], right: str) -> list[str]:
    return [left + lines[0] + right] if len(lines) == 1 else [left + lines[0], *lines[1:-1], lines[-1] + right]
