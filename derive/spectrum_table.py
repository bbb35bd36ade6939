"""The spectrum of a target, as a task file states it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sympy as sp

from derive.parse import FormulaError, parse_expression
from derive.spectra import Atoms, Listed, PowerLaw, Spectrum, Wishart
from derive.table import Table, TaskError, exact

__all__ = ["read_spectrum"]

_FORMS = (
    '{ wishart = { kappa0 = "1/2" } }, { atoms = [..], weights = [..] }, { power = { gamma = "3/2", d = 100000 } } or '
    '{ file = "s.csv" }, one eigenvalue a line'
)
_MOST_LISTED = 10**6
_LARGEST_FILE = 2**25  # bytes


def read_spectrum(table: Table, key: str, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr]) -> Spectrum:
    """The law under that key; raises `TaskError` for what is none."""
    entry = table.mapping(key)
    place = f"{table.name}.{key}"
    try:
        return _read(entry, place, names, values)
    except ValueError as error:
        raise error if isinstance(error, TaskError) else TaskError(f"{place}: {error}") from None


def _read(
    entry: Mapping[str, Any], place: str, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr]
) -> Spectrum:
    keys = set(entry)
    if keys == {"wishart"} and _is_table(entry["wishart"], {"kappa0"}):
        kappa0 = _formula(entry["wishart"]["kappa0"], f"{place}.wishart.kappa0", names)
        Wishart(kappa0.xreplace(dict(values)))
        return Wishart(kappa0)
    if keys == {"power"} and _is_table(entry["power"], {"gamma", "d"}):
        gamma, d = (_formula(entry["power"][k], f"{place}.power.{k}", names) for k in ("gamma", "d"))
        PowerLaw(gamma.xreplace(dict(values)), d.xreplace(dict(values)))
        return PowerLaw(gamma, d)
    if keys == {"atoms", "weights"}:
        points, weights = (_list(entry[k], f"{place}.{k}", names) for k in ("atoms", "weights"))
        Atoms([p.xreplace(dict(values)) for p in points], [w.xreplace(dict(values)) for w in weights])
        return Atoms(points, weights)
    if keys == {"file"} and isinstance(entry["file"], str):
        return Listed(_numbers(Path(entry["file"]), place))
    raise TaskError(f"{place}: state {_FORMS}; got {', '.join(sorted(keys)) or 'nothing'}.")


def _is_table(value: Any, keys: set[str]) -> bool:
    return isinstance(value, dict) and set(value) == keys


def _formula(value: Any, place: str, names: Mapping[str, Any]) -> sp.Expr:
    if not isinstance(value, str):
        return exact(value, place)
    try:
        found = parse_expression(value, names, what=place)
    except FormulaError as error:
        raise TaskError(str(error)) from None
    if isinstance(found, sp.MatrixBase):
        raise TaskError(f"{place} is a matrix; it must be one number or formula.")
    return found


def _list(value: Any, place: str, names: Mapping[str, Any]) -> list[sp.Expr]:
    if not isinstance(value, list):
        raise TaskError(f"{place}: a list of numbers is needed.")
    return [_formula(v, place, names) for v in value]


def _numbers(path: Path, place: str) -> list[float]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise TaskError(f"{place}: the file {path} has more than {_LARGEST_FILE} bytes.")
        lines = path.read_text(encoding="utf-8-sig").split()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{place}: the file {str(path)!r} cannot be read: {type(error).__name__}.") from None
    if not 0 < len(lines) <= _MOST_LISTED:
        raise TaskError(f"{place}: {path} has {len(lines)} numbers; 1 to {_MOST_LISTED} are needed, one a line.")
    found = []
    for i, line in enumerate(lines):
        try:
            found.append(float(line.rstrip(",;")))
        except ValueError:
            raise TaskError(f"{place}: {line[:40]!r}, number {i + 1} of {path}, is no number.") from None
    return found
