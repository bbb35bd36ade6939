"""A system of equations as JSON values, and back from their texts alone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NotRequired, TypedDict

import sympy as sp
from sympy.core.parameters import distribute

from derive.equations import Define, Equation, EquationSystem, Flow, Quantity, Root, Source
from derive.latex import latex_equation
from derive.notation import latex_name
from derive.spectra import Listed
from derive.text import domain_text, listed_spectra, read_domain, read_text, text

__all__ = [
    "BlockRecord",
    "EquationRecord",
    "QuantityRecord",
    "SystemRecord",
    "key",
    "quantity_symbol",
    "read_system",
    "record",
]

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
    """`EquationSystem` in JSON; `assumptions` only for symbols whose assumptions the domain does not give.

    `spectra`: long lists of eigenvalues, which texts name; JSON numbers that are read as doubles are exact.
    """

    unknowns: list[QuantityRecord]
    parameters: list[QuantityRecord]
    equations: list[EquationRecord]
    blocks: list[BlockRecord]
    edges: list[list[str]]
    assumptions: NotRequired[dict[str, dict[str, bool]]]
    spectra: NotRequired[dict[str, list[float]]]


def quantity_symbol(name: str, domain: sp.Set) -> sp.Symbol:
    """The symbol of a quantity: real, and positive where the domain lies in (0, inf)."""
    inside = domain.is_subset(sp.Interval.open(0, sp.oo))
    return sp.Symbol(name, real=True, positive=True) if inside else sp.Symbol(name, real=True)


def record(system: EquationSystem) -> SystemRecord:
    """The system as JSON values; `read_system` gives it back. Raises `ValueError` for what has no text."""
    kinds = {kind: name for name, kind in _KINDS.items()}
    names = _names((*system.unknowns, *(p.symbol for p in system.parameters)))
    unknowns = [_quantity_record(e.unknown, names) for e in system.equations]
    for e, entry in zip(system.equations, unknowns, strict=True):
        first = system.start.get(e.unknown.symbol)
        entry["start"] = None if first is None else text(first, names)
    result: SystemRecord = {
        "unknowns": unknowns,
        "parameters": [_quantity_record(p, names) for p in system.parameters],
        "equations": [
            {
                "unknown": e.unknown.symbol.name,
                "kind": kinds[type(e)],
                "text": text(e.rhs, names),
                "latex": latex_equation(e),
                "source": {"reference": e.source.reference, "where": e.source.where},
            }
            for e in system.equations
        ],
        "blocks": [{"unknowns": _names(b.unknowns), "state": _names(b.state)} for b in system.blocks()],
        "edges": [_names(edge) for edge in system.graph().edges],
    }
    unusual = {s.name: _assumptions(s) for s, usual in _expected_symbols(system).items() if s != usual}
    if unusual:
        result["assumptions"] = unusual
    if spectra := listed_spectra(e.rhs for e in system.equations):
        result["spectra"] = {name: law.values.tolist() for name, law in spectra.items()}
    return result


def key(system: EquationSystem) -> str:
    """The SHA-256 of the record: equal for equal systems, in every process, whatever bound variables are called."""
    return hashlib.sha256(json.dumps(record(system), sort_keys=True).encode()).hexdigest()


def _names(symbols: Iterable[sp.Symbol]) -> list[str]:
    return [s.name for s in symbols]


def _quantity_record(q: Quantity, names: Sequence[str]) -> QuantityRecord:
    return {
        "name": q.symbol.name,
        "latex": latex_name(q.symbol.name),
        "meaning": q.meaning,
        "domain": domain_text(q.domain),
        "scale": text(q.scale, names),
        "default": None if q.default is None else text(q.default, names),
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
    # Once for all texts: SymPy empties its cache whenever this is switched.
    with distribute(False):
        return _read_system(entry)


def _read_system(entry: SystemRecord) -> EquationSystem:
    given = entry.get("assumptions", {})
    quantities = [*entry["unknowns"], *entry["parameters"]]
    symbols = {q["name"]: _symbol(q["name"], read_domain(q["domain"]), given) for q in quantities}
    by_name = {q["name"]: _read_quantity(q, symbols, given) for q in quantities}
    spectra = {name: Listed(values) for name, values in entry.get("spectra", {}).items()}
    equations = tuple(_read_equation(e, by_name, symbols, spectra) for e in entry["equations"])
    start = {symbols[q["name"]]: read_text(first, symbols) for q in entry["unknowns"] if (first := q.get("start"))}
    return EquationSystem(equations, tuple(by_name[p["name"]] for p in entry["parameters"]), start)


def _symbol(name: str, domain: sp.Set, given: Mapping[str, Mapping[str, bool]]) -> sp.Symbol:
    return sp.Symbol(name, **given[name]) if name in given else quantity_symbol(name, domain)


def _read_quantity(
    q: QuantityRecord, symbols: Mapping[str, sp.Symbol], given: Mapping[str, Mapping[str, bool]]
) -> Quantity:
    words = set(re.findall(r"[A-Za-z_]\w*", q["scale"])) - set(symbols)
    sizes = {w: sp.Symbol(w, **given[w]) if w in given else _size(w) for w in words}
    scale = read_text(q["scale"], {**sizes, **symbols})
    default = None if q["default"] is None else read_text(q["default"], symbols)
    return Quantity(symbols[q["name"]], q["meaning"], read_domain(q["domain"]), scale, default)


def _read_equation(
    e: EquationRecord,
    quantities: Mapping[str, Quantity],
    symbols: Mapping[str, sp.Symbol],
    spectra: Mapping[str, Listed],
) -> Equation:
    if e["kind"] not in _KINDS:
        raise ValueError(f"read_system: kind {e['kind']!r} of {e['unknown']}; allowed are {', '.join(_KINDS)}.")
    rhs = read_text(e["text"], symbols, spectra)
    return _KINDS[e["kind"]](quantities[e["unknown"]], rhs, Source(**e["source"]))
