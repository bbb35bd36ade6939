"""TOML text -> values with exact numbers, and the line on which each key stands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Decimal", "Path", "SourceError", "key_lines", "read_toml", "read_value"]

Path = tuple[str, ...]

_MOST_CHARACTERS = 1_000_000
# tomllib takes quadratic time in the number of parts of one key.
_LONG_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){16}""")
_TOKEN = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r'|(?P<string>"""(?:\\.|[^\\])*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:\'{0,2})|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<newline>\n)"
    r"|(?P<sign>[\[\]{},.=])"
    r"|(?P<bare>[^\s\[\]{},.=\"'#]+)",
    re.DOTALL,
)


class SourceError(ValueError):
    """Text that is no TOML, or too much of it; `line` where known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class Decimal(str):
    """A TOML float as its text, so that 0.1 stays 1/10."""

    __slots__ = ()


def read_toml(text: str) -> dict[str, Any]:
    """The values of a TOML text; floats are `Decimal`. Raises `SourceError`."""
    if len(text) > _MOST_CHARACTERS:
        raise SourceError(f"has {len(text)} characters; a task file has at most {_MOST_CHARACTERS}")
    long_key = _LONG_KEY.search(text)
    if long_key is not None:
        raise SourceError("a key has more than 16 parts", text.count("\n", 0, long_key.start()) + 1)
    try:
        return tomllib.loads(text, parse_float=_decimal)
    except tomllib.TOMLDecodeError as error:
        raise _located(str(error), text) from None
    except (RecursionError, ValueError):
        raise SourceError("holds brackets nested too deep, or a number of thousands of digits") from None


def read_value(text: str) -> Any | None:
    """The value that `text` is in TOML, None if it is not one value."""
    try:
        table = read_toml(f"value = {text}")
    except SourceError:
        return None
    return table["value"] if set(table) == {"value"} else None


def _decimal(text: str) -> Decimal:
    return Decimal(text.replace("_", ""))


def _located(message: str, text: str) -> SourceError:
    match = re.fullmatch(r"(.*?)\s*\(at (?:line (\d+), column \d+|end of document)\)", message, re.DOTALL)
    if match is None:
        return SourceError(message)
    line = int(match[2]) if match[2] else text.count("\n") + 1
    given_twice = match[1].startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate"))
    return SourceError("a key or table is given twice" if given_twice else f"this is no TOML: {match[1]}", line)


def key_lines(text: str) -> dict[Path, int]:
    """The line of each key and table of a valid TOML text, by path; tables in arrays share their path."""
    return dict(reversed(list(_Walk().run(text))))  # of several places the first


@dataclass
class _Walk:
    """One pass over the tokens. `frames`: the open brackets, each with the path of what it belongs to."""

    line: int = 1
    frames: list[tuple[str, Path]] = field(default_factory=lambda: [("statement", ())])
    parts: list[str] = field(default_factory=list)
    reading_key: bool = True
    in_header: bool = False
    here: Path = ()

    def run(self, text: str) -> Iterator[tuple[Path, int]]:
        for match in _TOKEN.finditer(text):
            token = match.group()
            if match.lastgroup == "newline":
                self._newline()
            elif match.lastgroup in ("bare", "string") and self.reading_key:
                self.parts.append(token if match.lastgroup == "bare" else str(read_value(token)))
            elif match.lastgroup == "sign":
                yield from self._sign(token)
            self.line += token.count("\n")

    def _newline(self) -> None:
        if len(self.frames) == 1:
            self._begin_key()

    def _begin_key(self) -> None:
        self.reading_key, self.parts = True, []

    def _sign(self, token: str) -> Iterator[tuple[Path, int]]:
        kind, path = self.frames[-1]
        statement = len(self.frames) == 1
        if token == "=" and self.reading_key:
            yield from self._name(path)
            self.reading_key = False
        elif token == "[" and statement and self.reading_key:
            self.in_header = True
        elif token == "]" and self.in_header:
            yield from self._name(())
            self.frames = [("statement", self.here)]
            self.in_header = self.reading_key = False
        elif token in "[{":
            self.frames.append((token, self.here))
            if token == "{":
                self._begin_key()
        elif token in "]}" and not statement:
            self.frames.pop()
            self.here, self.reading_key = self.frames[-1][1], False
        elif token == "," and kind == "{":
            self._begin_key()

    def _name(self, path: Path) -> Iterator[tuple[Path, int]]:
        for part in self.parts:
            path = (*path, part)
            yield path, self.line
        self.here = path
