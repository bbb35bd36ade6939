"""Text of a formula -> tree. The grammar is closed: numbers, names, + - * / **, calls, [lists]; nothing runs.

    sum     := product (("+" | "-") product)*          power := atom ("**" factor)?
    product := factor (("*" | "/") factor)*            atom  := number | name | name "(" sum ("," sum)* ")"
    factor  := ("+" | "-")* power                             | "(" sum ")" | "[" sum ("," sum)* "]"

Names are only names here, so Python's keywords and SymPy's constants mean nothing; numbers stay text, so they
are exact. `derive.parse` gives the tree its meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Call", "Fault", "Listing", "Name", "Negative", "Node", "Number", "Power", "Product", "Sum", "parse"]

_DEEPEST = 40  # brackets, and powers of powers; five frames of Python each
_TOKEN = re.compile(
    r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>\*\*(?!\*)|[-+*/()\[\],])"
)
_SPACE = re.compile(r"\s*")
_STRANGE = re.compile(r"\S\w{0,30}")


class Fault(Exception):
    """What is wrong (a predicate: "is not closed") with which part: `start:end` of the text, once known."""

    def __init__(self, reason: str, start: int = -1, end: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.start = start
        self.end = end


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a formula, `text[start:end]`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A literal, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A name used as a value."""

    text: str


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """-operand."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Sum(Node):
    """The sum of the terms; the flag says that a term is subtracted."""

    terms: tuple[tuple[bool, Node], ...]


@dataclass(frozen=True, slots=True)
class Product(Node):
    """The product of the factors; the flag says that it is divided by a factor."""

    factors: tuple[tuple[bool, Node], ...]


@dataclass(frozen=True, slots=True)
class Power(Node):
    """base ** exponent."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """name(arguments)."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Listing(Node):
    """[items]."""

    items: tuple[Node, ...]


def parse(text: str) -> Node:
    """The tree of a formula. Raises `Fault`."""
    reader = _Reader(_tokens(text))
    tree = reader.sum()
    if reader.kind != "end":
        raise reader.fault("needs an operator before it; a product is written with *")
    return tree


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "number", "name", the sign itself, or "end"
    text: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    open_brackets: list[_Token] = []
    position = _skip_space(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unknown_character(text, position)
        kind = match.lastgroup if match.lastgroup != "sign" else match.group()
        if kind == "name" and "__" in match.group():
            raise Fault("is no name that a formula may use", position, match.end())
        token = _Token(str(kind), match.group(), position, match.end())
        _check_beside(tokens[-1:], token)
        _check_brackets(open_brackets, token)
        tokens.append(token)
        position = _skip_space(text, match.end())
    if open_brackets:
        raise Fault("is not closed", open_brackets[-1].start, open_brackets[-1].end)
    tokens.append(_Token("end", "", len(text), len(text)))
    return tokens


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _unknown_character(text: str, position: int) -> Fault:
    hints = {"^": "; powers are written **", "=": "; a formula is one expression", "@": "; products are elementwise"}
    match = _STRANGE.match(text, position)
    end = position + 1 if match is None or text[position] in hints else match.end()
    return Fault(f"is no part of a formula{hints.get(text[position], '')}", position, end)


def _check_beside(previous: list[_Token], token: _Token) -> None:
    ends_value = bool(previous) and previous[0].kind in ("number", "name", ")", "]")
    if ends_value and token.kind in ("number", "name"):
        raise Fault("lacks an operator between its two values", previous[0].start, token.end)


def _check_brackets(opened: list[_Token], token: _Token) -> None:
    if token.kind in ("(", "["):
        opened.append(token)
        if len(opened) > _DEEPEST:
            raise Fault(f"opens more than {_DEEPEST} brackets inside one another", token.start, token.end)
    elif token.kind in (")", "]"):
        if not opened or opened[-1].kind + token.kind not in ("()", "[]"):
            raise Fault("closes no bracket that is open", token.start, token.end)
        opened.pop()


class _Reader:
    """Recursive descent over the tokens; one method per rule of the grammar."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    @property
    def kind(self) -> str:
        return self._tokens[self._position].kind

    def fault(self, reason: str) -> Fault:
        token = self._tokens[self._position]
        if token.kind == "end":
            return Fault("ends where a value is needed", 0, token.end)
        return Fault(reason, token.start, token.end)

    def sum(self) -> Node:
        start = self._tokens[self._position].start
        terms = [(False, self._product())]
        while self.kind in ("+", "-"):
            sign = self._take()
            terms.append((sign.kind == "-", self._product()))
        return terms[0][1] if len(terms) == 1 else Sum(start, self._last(), tuple(terms))

    def _product(self) -> Node:
        start = self._tokens[self._position].start
        factors = [(False, self._factor())]
        while self.kind in ("*", "/"):
            sign = self._take()
            factors.append((sign.kind == "/", self._factor()))
        return factors[0][1] if len(factors) == 1 else Product(start, self._last(), tuple(factors))

    def _factor(self) -> Node:
        start = self._tokens[self._position].start
        negative = False
        while self.kind in ("+", "-"):
            negative ^= self._take().kind == "-"
        operand = self._power()
        return Negative(start, self._last(), operand) if negative else operand

    def _power(self) -> Node:
        start = self._tokens[self._position].start
        base = self._atom()
        if self.kind != "**":
            return base
        self._take()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.fault(f"stands on more than {_DEEPEST} powers of powers")
        exponent = self._factor()
        self._depth -= 1
        return Power(start, self._last(), base, exponent)

    def _atom(self) -> Node:
        if self.kind not in ("number", "name", "(", "["):
            raise self.fault("stands where a value is needed")
        token = self._take()
        if token.kind == "number":
            return Number(token.start, token.end, token.text)
        if token.kind == "name" and self.kind == "(":
            self._take()
            arguments = self._items(")")
            return Call(token.start, self._last(), token.text, arguments)
        if token.kind == "name":
            return Name(token.start, token.end, token.text)
        if token.kind == "[":
            items = self._items("]")
            return Listing(token.start, self._last(), items)
        inner = self.sum()
        self._close(")")
        return inner

    def _items(self, closing: str) -> tuple[Node, ...]:
        if self.kind == closing:
            raise self.fault("closes an empty list")
        items = [self.sum()]
        while self.kind == ",":
            self._take()
            items.append(self.sum())
        self._close(closing)
        return tuple(items)

    def _close(self, closing: str) -> None:
        if self.kind != closing:
            raise self.fault(f"stands where an operator or {closing!r} is needed")
        self._take()

    def _take(self) -> _Token:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _last(self) -> int:
        return self._tokens[self._position - 1].end
