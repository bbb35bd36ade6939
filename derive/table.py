"""One table of a task document, read key by key; errors name the key, its line, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import sympy as sp

from derive.parse import FormulaError, nearest_name, parse_constant, parse_expression
from derive.toml_source import Path, read_value

__all__ = ["Setting", "Table", "TaskError", "Unsupported", "exact"]

_LARGEST_INTEGER = 10**30
_MOST_ENTRIES = 4096
D = TypeVar("D")
T = TypeVar("T")
Names: TypeAlias = Mapping[str, sp.Expr | sp.MatrixBase]


class TaskError(ValueError):
    """A task that is not accepted: one line that names the key, its place, and what is allowed."""


class Unsupported(TaskError, NotImplementedError):
    """A task that is sound, but beyond what this program can do: one line that says which part, and what to do."""


class Setting(str):
    """A value from the command line: it may be read as plain text or as TOML, whichever its reader needs."""

    __slots__ = ()


class _Required:
    """The default of a key that has none."""


_REQUIRED: Any = _Required()


class Place(Protocol):
    """The document of a table."""

    @property
    def asked(self) -> set[Path]:
        """The tables and keys that were asked for, which readers add to."""

    def where(self, path: Path) -> str:
        """A key with the place where it stands."""


def exact(value: Any, place: str) -> sp.Expr:
    """The exact number that a value is: an integer, a decimal, or a constant formula. Raises `TaskError`."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TaskError(f'{place}: {_shown(value)} is no number and no constant formula such as "1/2".')
    if isinstance(value, int):
        if abs(value) >= _LARGEST_INTEGER:
            raise TaskError(f"{place}: the integer must be below 1e30.")
        return sp.Integer(value)
    try:
        return parse_constant(value, place)
    except FormulaError as error:
        raise TaskError(str(error)) from None


@dataclass(frozen=True)
class Table:
    """A table; every reader marks its key as asked for and raises `TaskError` for a value that is not allowed.

    Without a default a key is required.
    """

    document: Place
    name: str
    entries: Mapping[str, Any]

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        self._ask(key)
        return key in self.entries

    def keys(self) -> tuple[str, ...]:
        """The keys that are there, for tables whose keys the user names."""
        return tuple(self.entries)

    def integer(self, key: str, low: int, high: int, default: D = _REQUIRED) -> int | D:
        """An integer from low to high."""
        allowed = f"an integer from {low} to {high}"
        return self._read(key, allowed, default, lambda value: _integer(value, self._where(key), low, high))

    def integers(self, key: str, low: int, high: int, default: D = _REQUIRED) -> tuple[int, ...] | D:
        """A list of integers from low to high."""
        allowed = f"a list of integers from {low} to {high}"
        where = self._where(key)

        def read(value: Any) -> tuple[int, ...] | None:
            numbers = [_integer(v, where, low, high) for v in _items(value)]
            return tuple(n for n in numbers if n is not None) if numbers and None not in numbers else None

        return self._read(key, allowed, default, read)

    def constant(self, key: str, default: D = _REQUIRED) -> sp.Expr | D:
        """An exact constant."""
        return self._read(key, "a constant such as 9/10", default, lambda value: exact(value, self._where(key)))

    def constants(self, key: str, default: D = _REQUIRED) -> tuple[sp.Expr, ...] | D:
        """A list of exact constants."""
        where = self._where(key)

        def read(value: Any) -> tuple[sp.Expr, ...] | None:
            return tuple(exact(v, where) for v in _items(value)) or None

        return self._read(key, "a list of constants", default, read)

    def text(self, key: str, default: D = _REQUIRED) -> str | D:
        """A text."""
        return self._read(key, "a text in quotes", default, _text)

    def strings(self, key: str, default: D = _REQUIRED) -> tuple[str, ...] | D:
        """A list of texts; numbers stand for their text."""

        def read(value: Any) -> tuple[str, ...] | None:
            items = _items(value)
            plain = all(isinstance(i, int | str) and not isinstance(i, bool) for i in items)
            return tuple(map(str, items)) if items and plain else None

        return self._read(key, "a list of texts in quotes", default, read)

    def boolean(self, key: str, default: D = _REQUIRED) -> bool | D:
        """true or false."""

        def read(value: Any) -> bool | None:
            known = read_value(value) if isinstance(value, Setting) else value
            return known if isinstance(known, bool) else None

        return self._read(key, "true or false", default, read)

    def choice(self, key: str, options: Iterable[str], default: D = _REQUIRED) -> str | D:
        """One of the options."""
        allowed = list(options)

        def read(value: Any) -> str | None:
            word = _text(value)
            return word if word in allowed else None

        return self._read(key, "one of " + ", ".join(allowed), default, read, allowed)

    @overload
    def formula(self, key: str, names: Names, default: str = _REQUIRED) -> sp.Expr | sp.ImmutableDenseMatrix: ...
    @overload
    def formula(self, key: str, names: Names, default: D) -> sp.Expr | sp.ImmutableDenseMatrix | D: ...
    def formula(self, key: str, names: Names, default: Any = _REQUIRED) -> Any:
        """A formula in `names`; a default given as text is a formula, too."""
        if isinstance(default, str) and key not in self.entries:
            self._ask(key)
            return parse_expression(default, names, what=self._where(key))
        return self._read(key, "a formula in quotes", default, lambda v: _formula(v, names, self._where(key)))

    def scalar(self, key: str, names: Names, *default: str) -> sp.Expr:
        """A formula that is one number; a default is the text of one."""
        expr = self.formula(key, names, *default)
        if isinstance(expr, sp.MatrixBase):
            raise TaskError(f"{self._where(key)}: is a matrix; it must be one number or formula.")
        return expr

    def matrix(
        self,
        key: str,
        names: Names | None = None,
        default: D = _REQUIRED,
    ) -> sp.ImmutableDenseMatrix | D:
        """A matrix (rows, columns) from a list of rows, a column (n, 1) from a plain list; entries are formulas."""
        return self._read(
            key, "a list of rows of one length", default, lambda v: _matrix(v, names or {}, self._where(key))
        )

    def mapping(self, key: str, default: D = _REQUIRED) -> dict[str, Any] | D:
        """An inline table, as it is: integers, texts (also of decimals), booleans, lists and tables."""

        def read(value: Any) -> dict[str, Any] | None:
            known = read_value(value) if isinstance(value, Setting) else value
            return known if isinstance(known, dict) else None

        return self._read(key, "an inline table {name = value, ...}", default, read)

    def assignments(self, key: str, default: D = _REQUIRED) -> dict[str, Any] | D:
        """An inline table; from the command line also {name=formula, ...} without quotes."""

        def read(value: Any) -> dict[str, Any] | None:
            known = read_value(value) if isinstance(value, Setting) else value
            if known is None:
                return _bare_assignments(str(value))
            return known if isinstance(known, dict) else None

        return self._read(key, "a table {name = formula, ...}", default, read)

    def raw(self, key: str, default: D = _REQUIRED) -> Any | D:
        """Whatever is there."""

        def read(value: Any) -> Any:
            known = read_value(value) if isinstance(value, Setting) else value
            return str(value) if known is None else known

        return self._read(key, "a value", default, read)

    # ---- what the readers share ---------------------------------------------------------------------------
    def _read(
        self,
        key: str,
        allowed: str,
        default: D,
        read: Callable[[Any], T | None],
        options: Iterable[str] = (),
    ) -> T | D:
        """What `read` makes of the value; None from it means that the value is not allowed."""
        self._ask(key)
        if key not in self.entries:
            if isinstance(default, _Required):
                raise TaskError(f"{self._where(key)}: is missing{self._misspelt(key)}; it is {allowed}.")
            return default
        value = self.entries[key]
        result = read(value)
        if result is None:
            near = nearest_name(value, options) if isinstance(value, str) else None
            hint = f"; the nearest is {near}" if near else ""
            raise TaskError(f"{self._where(key)}: got {_shown(value)}; allowed is {allowed}{hint}.")
        return result

    def _ask(self, key: str) -> None:
        self.document.asked.add((self.name, key))

    def _where(self, key: str) -> str:
        return self.document.where((self.name, key))

    def _misspelt(self, key: str) -> str:
        near = nearest_name(key, [k for k in self.entries if (self.name, k) not in self.document.asked])
        return f" (did you mean this by {self._where(near)}?)" if near else ""


def _integer(value: Any, place: str, low: int, high: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    number = exact(value, place)
    return int(number) if number.is_Integer and low <= number <= high else None


def _text(value: Any) -> str | None:
    if isinstance(value, Setting):
        quoted = read_value(value)
        return quoted if type(quoted) is str else str(value)
    return value if type(value) is str else None


def _items(value: Any) -> list[Any]:
    known = read_value(value) if isinstance(value, Setting) else value
    return known if isinstance(known, list) else []


def _bare_assignments(text: str) -> dict[str, str] | None:
    """{name: formula} of "{name = formula, ..}", split at the commas outside brackets."""
    inside = re.fullmatch(r"\s*\{(.*)\}\s*", text, flags=re.DOTALL)
    if inside is None:
        return None
    parts, depth = [""], 0
    for letter in inside[1]:
        depth += (letter in "([") - (letter in ")]")
        parts = [*parts, ""] if letter == "," and depth == 0 else [*parts[:-1], parts[-1] + letter]
    pairs = [p.partition("=") for p in parts]
    if not all(name.strip() and found and formula.strip() for name, found, formula in pairs):
        return None
    names = [name.strip() for name, _, _ in pairs]
    return (
        {n: p[2].strip().strip("\"'") for n, p in zip(names, pairs, strict=True)}
        if len({*names}) == len(names)
        else None
    )


def _formula(value: Any, names: Names, place: str) -> sp.Expr | sp.ImmutableDenseMatrix | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(exact(value, place)) if isinstance(value, int) else _text(value) or str(value)
    try:
        return parse_expression(text, names, what=place)
    except FormulaError as error:
        raise TaskError(str(error)) from None


def _matrix(value: Any, names: Names, place: str) -> sp.ImmutableDenseMatrix | None:
    rows = [row if isinstance(row, list) else [row] for row in _items(value)]
    if not rows or not rows[0] or {len(row) for row in rows} != {len(rows[0])}:
        return None
    if len(rows) * len(rows[0]) > _MOST_ENTRIES:
        raise TaskError(f"{place}: a matrix has at most {_MOST_ENTRIES} entries.")
    entries = [_formula(entry, names, place) for row in rows for entry in row]
    if any(e is None or isinstance(e, sp.MatrixBase) for e in entries):
        return None
    return sp.ImmutableDenseMatrix(len(rows), len(rows[0]), entries)


def _shown(value: Any) -> str:
    words = " ".join(repr(value)[:200].split())
    return words if len(words) <= 60 else words[:57] + "..."
