"""Task documents: TOML tables with typed readers that know the line of each key and which keys were asked for."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, Self

import sympy as sp

from derive.constants import constant_value
from derive.equations import Quantity
from derive.parse import FormulaError, check_parameter_name, nearest_name, parse_constant
from derive.syntax import Fault
from derive.table import Setting, Table, TaskError, exact
from derive.text import domain_text, read_domain
from derive.toml_source import Path, SourceError, key_lines, read_toml

__all__ = ["Document", "Table", "TaskError"]

_VERSION = 1
_MOST_BYTES = 1_000_000
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Document:
    """A task file. Its readers mark the keys they are asked for; `finish` refuses the others.

    `settings`: what `override` changed, as given. `values`: the exact values of parameters by symbol.
    `places`: what errors call a key that was not written in a file.
    """

    name: str
    data: Mapping[str, Any]
    lines: Mapping[Path, int]
    settings: Mapping[str, str] = field(default_factory=dict)
    overridden: Mapping[str, sp.Expr] = field(default_factory=dict)
    places: Mapping[Path, str] = field(default_factory=dict)
    asked: set[Path] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def read(cls, text: str, name: str) -> Self:
        """The document that `text` is, called `name` in errors. Raises `TaskError`."""
        try:
            document = cls(name, read_toml(text), key_lines(text))
        except SourceError as error:
            place = f"line {error.line} of {name}" if error.line else name
            raise TaskError(f"{place}: {error.reason}.") from None
        document._check_head()
        return document

    @classmethod
    def from_file(cls, path: str | FilePath) -> Self:
        """The document in a file. Raises `TaskError`, also where it cannot be read."""
        try:
            with open(path, "rb") as file:
                content = file.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise TaskError(f"{path}: a task file has at most {_MOST_BYTES} bytes.")
            return cls.read(content.decode("utf-8-sig"), str(path))
        except OSError as error:
            raise TaskError(f"{path}: cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise TaskError(f"{path}: is no text in UTF-8.") from None

    @classmethod
    def stated(cls, family: str, tables: Mapping[str, Mapping[str, Any]], places: Mapping[Path, str]) -> Self:
        """The document of these tables, which no file holds; errors call its keys by `places`."""
        data = {"limitlaw": _VERSION, "family": family, **{name: dict(table) for name, table in tables.items()}}
        return cls("the statement", data, {}, places=places)

    @property
    def version(self) -> int:
        """The version of the format."""
        return int(self.data["limitlaw"])

    @property
    def family(self) -> str:
        """The name of the task's family."""
        return str(self.data["family"])

    def where(self, path: Path) -> str:
        """A key with the place where it stands, for errors."""
        dotted = ".".join(path)
        for known in (path[:k] for k in range(len(path), 0, -1)):
            if ".".join(known) in self.settings:
                return f"{dotted} (--set)"
            if known in self.places:
                return self.places[known]
            if known in self.lines:
                return f"{dotted} (line {self.lines[known]} of {self.name})"
        set_inside = any(s.startswith(f"{dotted}.") for s in self.settings)
        return f"{dotted} (--set)" if set_inside else f"{dotted} (in {self.name})"

    def table(self, name: str, required: bool = True) -> Table:
        """The table [name], an empty one if it may be missing and is."""
        self.asked.add((name,))
        if name not in self.data and required:
            near = nearest_name(name, [k for k in self.data if (k,) not in self.asked])
            hint = f" (did you mean this by [{near}]?)" if near else ""
            raise TaskError(f"{self.name}: the table [{name}] is missing{hint}.")
        entries = self.data.get(name, {})
        if not isinstance(entries, dict):
            raise TaskError(f"{self.where((name,))}: must be a table, [{name}].")
        return Table(self, name, entries)

    # ---- parameters ---------------------------------------------------------------------------------------
    def parameters(self, reserved: Collection[str]) -> tuple[Quantity, ...]:
        """The declared parameters; `reserved` are the names of the theory's own quantities.

        Symbols are real, and positive or nonnegative where the domain is. Raises `TaskError`.
        """
        declared = self._declared
        for key in self.table("parameters", required=False).entries:
            self._parameter_name(key, reserved)
        return tuple(declared.values())

    @cached_property
    def values(self) -> Mapping[sp.Symbol, sp.Expr]:
        """Exact values of the parameters that have one: as set, else the default."""
        found = {q.symbol: self.overridden.get(name, q.default) for name, q in self._declared.items()}
        return {symbol: value for symbol, value in found.items() if value is not None}

    @cached_property
    def _declared(self) -> Mapping[str, Quantity]:
        declared: dict[str, Quantity] = {}
        for key, entry in self.table("parameters", required=False).entries.items():
            name = self._parameter_name(key, ())
            if name in declared:
                raise TaskError(f"{self.where(('parameters', key))}: {name} is declared twice.")
            declared[name] = self._quantity(name, key, entry if isinstance(entry, dict) else {"default": entry})
        return declared

    def _parameter_name(self, key: str, reserved: Collection[str]) -> str:
        try:
            return check_parameter_name(key, reserved)
        except FormulaError as error:
            raise TaskError(f"{self.where(('parameters', key))}: {error}") from None

    def _quantity(self, name: str, key: str, entry: Mapping[str, Any]) -> Quantity:
        place = self.where(("parameters", key))
        unknown = sorted(set(entry) - {"domain", "default", "meaning"})
        if unknown:
            near = nearest_name(unknown[0], ["domain", "default", "meaning"])
            hint = f"; the nearest is {near}" if near else ""
            raise TaskError(f"{place}: unknown key {unknown[0]!r}{hint}; allowed are domain, default, meaning.")
        domain = _domain(entry.get("domain", "R"), place)
        default = exact(entry["default"], place) if "default" in entry else None
        if default is not None:
            _check_inside(default, domain, place)
        return Quantity(_symbol(name, domain), str(entry.get("meaning", "parameter")), domain, default=default)

    # ---- changes ------------------------------------------------------------------------------------------
    def override(self, changes: Mapping[str, str], short_forms: Mapping[str, str] = _NOTHING) -> Self:
        """The document with other values: of parameters by name, of keys by "table.key" or a short form of it.

        A value is text: a constant formula for a parameter, TOML or plain text for a key. Raises `TaskError`.
        """
        data: dict[str, Any] = copy.deepcopy(dict(self.data))
        settings, values = dict(self.settings), dict(self.overridden)
        given: dict[str, str] = {}
        for name, value in changes.items():
            parameter = self._parameter_of(name)
            goal = parameter or ".".join(self._path_of(name, short_forms))
            if goal in given:
                raise TaskError(f"--set {name} and --set {given[goal]} are both {goal}; give one of them.")
            given[goal] = name
            if parameter is not None:
                values[parameter] = self._parameter_value(parameter, value)
                continue
            path = self._path_of(name, short_forms)
            settings[".".join(path)] = value
            _put(data, path, Setting(value))
        changed = replace(self, data=data, settings=settings, overridden=values, asked=set())
        changed._check_head()
        return changed

    def _parameter_of(self, name: str) -> str | None:
        bare = name.removeprefix("parameters.")
        canonical = "lam" if bare == "lambda" else bare
        return canonical if canonical in self._declared else None

    def _parameter_value(self, name: str, text: str) -> sp.Expr:
        try:
            value = parse_constant(text, f"--set {name}")
        except FormulaError as error:
            raise TaskError(str(error)) from None
        _check_inside(value, self._declared[name].domain, f"--set {name}")
        return value

    def _path_of(self, name: str, short_forms: Mapping[str, str]) -> Path:
        path = tuple(short_forms.get(name, name).split("."))
        if len(path) > 1 and all(path) and path[0] != "parameters":
            return path
        near = nearest_name(name.removeprefix("parameters."), [*self._declared, *short_forms])
        hint = f"; the nearest is {near}" if near else ""
        known = ", ".join(sorted({*self._declared, *short_forms})) or "none"
        raise TaskError(
            f"--set {name[:60]}: no parameter and no short form of that name{hint}. "
            f"There are {known}; any key can be given as table.key."
        )

    # ---- the end ------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """Raises `TaskError` for the first table or key that nothing asked for."""
        unknown = [p for p in self._paths() if p not in self.asked]
        if unknown:
            first = min(unknown, key=lambda p: self.lines.get(p, 0))
            raise TaskError(self._unknown_key(first) if len(first) > 1 else self._unknown_table(first[0]))

    def _paths(self) -> list[Path]:
        tables = [name for name in self.data if name not in ("limitlaw", "family", "parameters")]
        inside = [(t, key) for t in tables if (t,) in self.asked for key in self.data[t]]
        return [*((t,) for t in tables), *inside]

    def _unknown_table(self, name: str) -> str:
        tables = sorted({p[0] for p in self.asked} | {"parameters"})
        near = nearest_name(name, tables)
        hint = f"; the nearest is [{near}]" if near else ""
        kind = "table" if isinstance(self.data[name], dict) else "key"
        return f"{self.where((name,))}: unknown {kind}{hint}. The tables of {self.family} are {', '.join(tables)}."

    def _unknown_key(self, path: Path) -> str:
        table, key = path
        keys = sorted({p[1] for p in self.asked if len(p) == 2 and p[0] == table})
        near = nearest_name(key, keys)
        others = sorted(p[0] for p in self.asked if len(p) == 2 and p[1] == key)
        hint = f"; the nearest is {near}" if near else ""
        hint += f"; it belongs to [{others[0]}]" if others else ""
        listed = ", ".join(keys) or "no keys"
        return f"{self.where(path)}: unknown key, or one without use here{hint}. [{table}] takes {listed}."

    def _check_head(self) -> None:
        if "limitlaw" not in self.data:
            raise TaskError(f"{self.name}: limitlaw = {_VERSION} is missing; it says which format the file has.")
        if self.data["limitlaw"] != _VERSION or isinstance(self.data["limitlaw"], bool):
            raise TaskError(
                f"{self.where(('limitlaw',))}: the format is {str(self.data['limitlaw'])[:40]!r}; "
                f"this program reads limitlaw = {_VERSION}."
            )
        if not isinstance(self.data.get("family"), str):
            raise TaskError(f'{self.name}: family = "..." is missing; it says what kind of task this is.')


def _put(data: dict[str, Any], path: Path, value: Setting) -> None:
    for part in path[:-1]:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            raise TaskError(f"--set {'.'.join(path)}: {part} is no table.")
        data = inner
    data[path[-1]] = value


def _domain(words: Any, place: str) -> sp.Interval:
    if words == "R":
        return sp.S.Reals
    try:
        domain = read_domain(words)
    except (ValueError, AttributeError, IndexError):
        domain = sp.S.EmptySet
    if not isinstance(domain, sp.Interval) or domain.measure == 0:
        raise TaskError(f'{place}: the domain {words!r} is no interval; write "[0,1]", "(0,inf)", or "R".')
    return domain


def _symbol(name: str, domain: sp.Interval) -> sp.Symbol:
    sign = _compare(domain.inf, sp.S.Zero)
    if sign > 0 or (sign == 0 and domain.left_open):
        return sp.Symbol(name, real=True, positive=True)
    return sp.Symbol(name, real=True, nonnegative=True) if sign == 0 else sp.Symbol(name, real=True)


def _check_inside(value: sp.Expr, domain: sp.Interval, place: str) -> None:
    low, high = _compare(value, domain.inf), _compare(domain.sup, value)
    if low < 0 or high < 0 or (low == 0 and domain.left_open) or (high == 0 and domain.right_open):
        raise TaskError(f"{place}: the value {value} is outside the domain {domain_text(domain)}.")


def _compare(a: sp.Expr, b: sp.Expr) -> int:
    """The sign of a - b, 0 also where the floats do not tell."""
    if a in (sp.oo, -sp.oo) or b in (sp.oo, -sp.oo):
        return 1 if a is sp.oo or b is -sp.oo else -1
    try:
        difference = constant_value(a - b)
    except Fault:
        return 0
    return (difference > 0) - (difference < 0)
