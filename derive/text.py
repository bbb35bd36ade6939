"""Equations as plain text and JSON, and back: exact numbers, nothing is evaluated but by `derive.parse`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

import sympy as sp
from sympy.core.parameters import distribute
from sympy.printing.str import StrPrinter

from derive.equations import Define, Equation, EquationSystem, Flow, Quantity, Root, Source
from derive.expectation import Expectation
from derive.functions import He, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.latex import latex_equation, latex_name
from derive.measures import Gaussian
from derive.parse import parse_expression

__all__ = ["SystemRecord", "domain_text", "quantity_symbol", "read_domain", "read_system", "record", "text"]

_NAMES: Mapping[type[sp.Function], str] = {
    He: "He",
    LogCosh: "logcosh",
    Phi: "Phi",
    SoftmaxEntry: "softmax_entry",
    relu: "relu",
    sigmoid: "sigmoid",
    softplus: "softplus",
    sp.Abs: "abs",
    sp.DiracDelta: "delta",
    sp.Heaviside: "step",
    sp.Max: "max",
    sp.Min: "min",
    sp.cos: "cos",
    sp.erf: "erf",
    sp.exp: "exp",
    sp.log: "log",
    sp.sign: "sign",
    sp.sin: "sin",
    sp.tanh: "tanh",
}
_KINDS: Mapping[str, type[Equation]] = {"define": Define, "root": Root, "flow": Flow}


class SourceRecord(TypedDict):
    """`Source` in JSON."""

    reference: str
    where: str


class QuantityRecord(TypedDict):
    """`Quantity` in JSON; `start` is the unknown's initial value or first iterate."""

    name: str
    latex: str
    meaning: str
    domain: str
    scale: str
    default: str | None
    start: NotRequired[str | None]


class EquationRecord(TypedDict):
    """`Equation` in JSON; `kind` is define, root or flow."""

    unknown: str
    kind: str
    text: str
    latex: str
    source: SourceRecord


class BlockRecord(TypedDict):
    """`Block` in JSON, by names."""

    unknowns: list[str]
    state: list[str]


class SystemRecord(TypedDict):
    """`EquationSystem` in JSON; `assumptions` only for symbols whose assumptions the domain does not give."""

    unknowns: list[QuantityRecord]
    parameters: list[QuantityRecord]
    equations: list[EquationRecord]
    blocks: list[BlockRecord]
    edges: list[list[str]]
    assumptions: NotRequired[dict[str, dict[str, bool]]]


class _Text(StrPrinter):
    """SymPy's plain printer with the names of `derive.parse`; what these cannot say is an error."""

    printmethod = "_limitlaw_text"

    def __init__(self, bound_prefix: str) -> None:
        super().__init__()
        self._prefix = bound_prefix

    def emptyPrinter(self, expr: Any) -> str:
        raise ValueError(
            f"text: {expr!r} ({type(expr).__name__}) has no text form. Use numbers, symbols, + - * / **, "
            f"Expectation and the functions {', '.join(sorted(_NAMES.values()))}."
        )

    def _print_Function(self, expr: sp.Function) -> str:
        name = _NAMES.get(type(expr))
        if name is None:
            return self.emptyPrinter(expr)
        args = expr.args[:1] if isinstance(expr, sp.Heaviside) else expr.args
        return f"{name}({self.stringify(args, ', ')})"

    _print_Heaviside = _print_Function
    _print_Max = _print_Min = _print_Function
    _print_Float = _print_Basic = emptyPrinter
    _print_Infinity = _print_NegativeInfinity = _print_ComplexInfinity = _print_NaN = emptyPrinter
    _print_ImaginaryUnit = emptyPrinter

    def _print_Exp1(self, expr: sp.Expr) -> str:
        return "exp(1)"

    def _print_Symbol(self, expr: sp.Symbol) -> str:
        return self._prefix + expr.name if expr.assumptions0.get("bound") else str(expr.name)

    def _print_Expectation(self, expr: Expectation) -> str:
        law = expr.measure
        if not isinstance(law, Gaussian):
            return self.emptyPrinter(law)
        variables, mean = (self.stringify(a, ", ") for a in (expr.variables, law.mean))
        rows = ", ".join(f"[{self.stringify(row, ', ')}]" for row in law.cov.tolist())
        return f"Expectation({self._print(expr.integrand)}, [{variables}], [{mean}], [{rows}])"


def text(expr: sp.Expr) -> str:
    """The text of an expression in the names of `derive.parse`; variables of expectations avoid free names.

    Raises `ValueError` where there is none: floating point numbers, other functions or laws.

    >>> x = sp.Symbol("x", real=True)
    >>> text(sp.Heaviside(x) * sp.Abs(x) / sp.sqrt(2))
    'sqrt(2)*step(x)*abs(x)/2'
    """
    bound = {v.name for e in expr.atoms(Expectation) for v in e.variables}
    free = {s.name for s in expr.free_symbols}
    prefix = next(p for p in ("x" * k for k in range(len(free) + 1)) if not free & {p + b for b in bound})
    return str(_Text(prefix).doprint(expr))


def domain_text(domain: sp.Set) -> str:
    """An interval as "[0,1]" or "(0,inf)". Raises `ValueError` for other sets."""
    if not isinstance(domain, sp.Interval) and domain != sp.S.Reals:
        raise ValueError(f"domain_text: {domain} is no interval; give the quantity an interval as domain.")
    left, right = "(" if domain.left_open else "[", ")" if domain.right_open else "]"
    return f"{left}{_bound(domain.inf)},{_bound(domain.sup)}{right}"


def _bound(value: sp.Expr) -> str:
    return {sp.oo: "inf", -sp.oo: "-inf"}.get(value) or text(value)


def read_domain(words: str) -> sp.Set:
    """The interval of a text such as "[0,1]" or "(0,inf)". Raises `ValueError` for other texts."""
    inside = words.strip()
    ends = inside[1:-1].split(",")
    if len(ends) != 2 or inside[0] not in "[(" or inside[-1] not in "])":
        raise ValueError(f'read_domain: {words!r} is no interval. Write it as "[0,1]" or "(0,inf)".')
    low, high = (_read_bound(e.strip()) for e in ends)
    return sp.S.Reals & sp.Interval(low, high, inside[0] == "(", inside[-1] == ")")


def _read_bound(words: str) -> sp.Expr:
    return {"inf": sp.oo, "+inf": sp.oo, "-inf": -sp.oo}.get(words) or _parsed(words, {})


def quantity_symbol(name: str, domain: sp.Set) -> sp.Symbol:
    """The symbol of a quantity: real, and positive where the domain lies in (0, inf)."""
    inside = domain.is_subset(sp.Interval.open(0, sp.oo))
    return sp.Symbol(name, real=True, positive=True) if inside else sp.Symbol(name, real=True)


def record(system: EquationSystem) -> SystemRecord:
    """The system as JSON values; `read_system` gives it back. Raises `ValueError` for what has no text."""
    kinds = {kind: name for name, kind in _KINDS.items()}
    unknowns = [_quantity_record(e.unknown) for e in system.equations]
    for e, entry in zip(system.equations, unknowns, strict=True):
        first = system.start.get(e.unknown.symbol)
        entry["start"] = None if first is None else text(first)
    result: SystemRecord = {
        "unknowns": unknowns,
        "parameters": [_quantity_record(p) for p in system.parameters],
        "equations": [
            {
                "unknown": e.unknown.symbol.name,
                "kind": kinds[type(e)],
                "text": text(e.rhs),
                "latex": latex_equation(e),
                "source": {"reference": e.source.reference, "where": e.source.where},
            }
            for e in system.equations
        ],
        "blocks": [{"unknowns": _names(b.unknowns), "state": _names(b.state)} for b in system.blocks()],
        "edges": [_names(edge) for edge in system.graph().edges],
    }
    unusual = {s.name: _assumptions(s) for s, usual in _expected_symbols(system).items() if s != usual}
    return {**result, "assumptions": unusual} if unusual else result


def _names(symbols: Iterable[sp.Symbol]) -> list[str]:
    return [s.name for s in symbols]


def _quantity_record(q: Quantity) -> QuantityRecord:
    return {
        "name": q.symbol.name,
        "latex": latex_name(q.symbol.name),
        "meaning": q.meaning,
        "domain": domain_text(q.domain),
        "scale": text(q.scale),
        "default": None if q.default is None else text(q.default),
    }


def _size(name: str) -> sp.Symbol:
    return sp.Symbol(name, real=True, positive=True)


def _expected_symbols(system: EquationSystem) -> dict[sp.Symbol, sp.Symbol]:
    """Every symbol of the system with the one that `read_system` would make from its name and domain alone."""
    quantities = [*(e.unknown for e in system.equations), *system.parameters]
    expected = {q.symbol: quantity_symbol(q.symbol.name, q.domain) for q in quantities}
    sizes = set().union(*(q.scale.free_symbols for q in quantities)) - set(expected)
    return {**{s: _size(s.name) for s in sorted(sizes, key=str)}, **expected}


def _assumptions(symbol: sp.Symbol) -> dict[str, bool]:
    """The fewest assumptions that give the symbol again."""
    facts = {k: v for k, v in symbol.assumptions0.items() if isinstance(v, bool)}
    for fact in sorted(facts, key=lambda f: (facts[f], f)):
        fewer = {k: v for k, v in facts.items() if k != fact}
        if sp.Symbol(symbol.name, **fewer) == symbol:
            facts = fewer
    return facts


def read_system(entry: SystemRecord) -> EquationSystem:
    """The system of a record, from its texts alone; equal to the recorded one.

    Raises `ValueError` for a text that `derive.parse` refuses, an unknown kind, or a system that is not closed.
    """
    given = entry.get("assumptions", {})
    quantities = [*entry["unknowns"], *entry["parameters"]]
    symbols = {q["name"]: _symbol(q["name"], read_domain(q["domain"]), given) for q in quantities}
    by_name = {q["name"]: _read_quantity(q, symbols, given) for q in quantities}
    equations = tuple(_read_equation(e, by_name, symbols) for e in entry["equations"])
    start = {symbols[q["name"]]: _parsed(first, symbols) for q in entry["unknowns"] if (first := q.get("start"))}
    return EquationSystem(equations, tuple(by_name[p["name"]] for p in entry["parameters"]), start)


def _symbol(name: str, domain: sp.Set, given: Mapping[str, Mapping[str, bool]]) -> sp.Symbol:
    return sp.Symbol(name, **given[name]) if name in given else quantity_symbol(name, domain)


def _read_quantity(
    q: QuantityRecord, symbols: Mapping[str, sp.Symbol], given: Mapping[str, Mapping[str, bool]]
) -> Quantity:
    words = set(re.findall(r"[A-Za-z_]\w*", q["scale"])) - set(symbols)
    sizes = {w: sp.Symbol(w, **given[w]) if w in given else _size(w) for w in words}
    scale = _parsed(q["scale"], {**sizes, **symbols})
    default = None if q["default"] is None else _parsed(q["default"], symbols)
    return Quantity(symbols[q["name"]], q["meaning"], read_domain(q["domain"]), scale, default)


def _read_equation(
    e: EquationRecord, quantities: Mapping[str, Quantity], symbols: Mapping[str, sp.Symbol]
) -> Equation:
    if e["kind"] not in _KINDS:
        raise ValueError(f"read_system: kind {e['kind']!r} of {e['unknown']}; allowed are {', '.join(_KINDS)}.")
    rhs = _parsed(e["text"], symbols)
    return _KINDS[e["kind"]](quantities[e["unknown"]], rhs, Source(**e["source"]))


def _parsed(words: str, symbols: Mapping[str, sp.Symbol]) -> sp.Expr:
    # Without automatic distribution 2*(x + 1) stays the product that was written.
    with distribute(False):
        return parse_expression(words, symbols, equations=True)
