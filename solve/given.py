"""What a caller gives for parameters and starts, checked: names, numbers, domains."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike

from derive.equations import Quantity
from solve.domain import Box
from solve.lower import lower
from solve.result import Array

__all__ = ["Given", "by_symbol", "evaluated", "parameter_values", "within"]

Given: TypeAlias = Mapping[sp.Symbol | str, Any]  # a number, an array, or for a start an expression


def parameter_values(
    given: Given, quantities: Sequence[Quantity], needed: Iterable[sp.Symbol], verb: str
) -> dict[sp.Symbol, Array]:
    """A value, scalar or array, for each needed parameter: the given one, else its default.

    Raises `ValueError` for names that are missing or unknown, all at once, and for values that are no numbers or
    lie outside their domains.
    """
    known = {q.symbol.name: q for q in quantities}
    names = {_name(k): v for k, v in given.items()}
    unknown = sorted(n for n in names if n not in known)
    values = {known[n].symbol: _number(n, v) for n, v in names.items() if n in known}
    values |= _defaults(quantities, values)
    wanted = sorted({s.name for s in needed})
    missing = [n for n in wanted if known[n].symbol not in values]
    if missing or unknown:
        raise ValueError(_names_text(verb, wanted, missing, unknown, list(known)))
    for symbol, value in values.items():
        _check_domain(known[symbol.name], value)
    return values


def by_symbol(given: Given | None, symbols: Iterable[sp.Symbol], what: str) -> dict[sp.Symbol, Any]:
    """The mapping with its names replaced by the symbols of that name; `ValueError` for names that are none."""
    known = {s.name: s for s in symbols}
    unknown = sorted(_name(k) for k in given or {} if _name(k) not in known)
    if unknown:
        raise ValueError(
            f"{what} names {_with_nearest(unknown, list(known))}; there are {', '.join(sorted(known)) or 'none'}."
        )
    return {known[_name(k)]: v for k, v in (given or {}).items()}


def evaluated(value: Any, values: Mapping[sp.Symbol, Array], what: str) -> Array:
    """A number, an array, or a SymPy expression of the symbols in `values`, as an array."""
    if not isinstance(value, sp.Expr):
        return _number(what, value)
    symbols = sorted(value.free_symbols, key=str)
    absent = [s.name for s in symbols if s not in values]
    if absent:
        raise ValueError(f"{what} = {value} needs a value for {', '.join(absent)}.")
    result: Array = lower([value], symbols)(*(values[s] for s in symbols))[0][0]
    return _number(what, result)


def within(quantity: Quantity, value: Array) -> bool:
    """Whether all of `value` lies in the domain of the quantity."""
    domain = quantity.domain
    if isinstance(domain, sp.Interval):
        return bool(np.all(Box.of([domain]).contains(np.asarray(value)[None])))
    return all(domain.contains(_exact(float(v))) == sp.true for v in np.ravel(value))


def _exact(value: float) -> sp.Expr:
    return sp.Integer(int(value)) if value.is_integer() else sp.Float(value)


def _name(key: sp.Symbol | str) -> str:
    return str(key.name) if isinstance(key, sp.Symbol) else key


def _number(name: str, value: ArrayLike) -> Array:
    if isinstance(value, sp.Basic):
        if value.free_symbols:
            raise ValueError(f"{name} = {value} is not a number: it holds {sorted(map(str, value.free_symbols))}.")
        value = float(value)
    try:
        number = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} = {value!r} is not a number.") from None
    if not np.isfinite(number).all():
        raise ValueError(f"{name} = {value} is not finite.")
    return number


def _defaults(quantities: Sequence[Quantity], values: Mapping[sp.Symbol, Array]) -> dict[sp.Symbol, Array]:
    """Defaults of the parameters not given; one that reads others counts only when all of those have values."""
    found: dict[sp.Symbol, Array] = {}
    pending = {q.symbol: q.default for q in quantities if q.default is not None and q.symbol not in values}
    while ready := [s for s, default in pending.items() if default.free_symbols <= {*values, *found}]:
        found |= {s: evaluated(pending.pop(s), {**values, **found}, s.name) for s in ready}
    return found


def _check_domain(quantity: Quantity, value: Array) -> None:
    if not within(quantity, value):
        raise ValueError(
            f"{quantity.symbol.name} ({quantity.meaning}) = {value} lies outside its domain {quantity.domain}."
        )


def _names_text(verb: str, wanted: list[str], missing: list[str], unknown: list[str], known: list[str]) -> str:
    text = f"{verb}() needs a value for {', '.join(wanted) or 'no parameter'}"
    if missing:
        text += f"; missing: {', '.join(missing)}"
    if unknown:
        text += f"; unknown: {_with_nearest(unknown, known)}"
    return text + "."


def _with_nearest(unknown: list[str], known: list[str]) -> str:
    parts = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        parts.append(f"{name} (nearest: {near[0]})" if near else name)
    return ", ".join(parts)
