"""Letters that no quantity and no other variable has."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

__all__ = ["LETTERS", "Names", "numbered"]

LETTERS = ("x", "y", "u", "v", "r", "s", "t", "g", "h", "a", "b", "xi", "eta", "zeta")


class Names:
    """Letters that are still free."""

    def __init__(self, used: Iterable[str]) -> None:
        self.used = set(used)

    def take(self, liked: Sequence[str]) -> str:
        """The first free one, those that are liked first."""
        doubled = (liked[0] * k for k in itertools.count(2))
        name = next(c for c in itertools.chain(liked, LETTERS, doubled) if c not in self.used)
        self.used.add(name)
        return name


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """x, or x1, x2, .."""
    return (letter,) if count == 1 else tuple(f"{letter}{i + 1}" for i in range(count))
