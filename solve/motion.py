"""The flow blocks of a system as one rate, with the explicit blocks between them evaluated on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp

from derive.equations import Quantity
from solve.blocks import LoweredBlock
from solve.given import evaluated, within
from solve.ledger import Ledger
from solve.result import Array

__all__ = ["Motion", "start_of"]


@dataclass(frozen=True, eq=False)
class Motion:
    """Flow blocks, and the explicit blocks through which one reads another, in order of evaluation."""

    blocks: tuple[LoweredBlock, ...]

    def __post_init__(self) -> None:
        for b in self.blocks:
            if not b.is_pure_flow:
                raise NotImplementedError(
                    f"Block ({', '.join(map(str, b.block.unknowns))}) mixes flows with equations that have to be "
                    "solved at every time; only flows and explicit definitions can be integrated together."
                )

    @property
    def unknowns(self) -> tuple[sp.Symbol, ...]:
        return tuple(s for b in self.blocks for s in b.state)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        return tuple(q for b in self.blocks for q in b.quantities)

    def rate(self, values: Mapping[sp.Symbol, Array], x: Array, shift: float = 0.0) -> Array:
        """dx/dt: (n, *B) at x: (n, *B), with the outside `values`; `shift` as in `LoweredBlock`."""
        known = {**values, **dict(zip(self.unknowns, x, strict=True))}
        rows = []
        for b in self.blocks:
            state = np.stack([known[s] for s in b.state]) if b.state else np.empty((0,))
            here = b(known, state, shift)
            known |= here.stages
            rows += list(here.rhs)
        return np.stack(np.broadcast_arrays(*rows))


def start_of(
    quantities: Sequence[Quantity], given: Mapping[sp.Symbol, object], ledger: Ledger, *, needed: bool
) -> dict[sp.Symbol, Array]:
    """The start of each quantity that has one in `given`, as numbers inside its domain.

    Raises `ValueError` for one that lies outside, and, if `needed`, for one that is missing.
    """
    missing = [q.symbol.name for q in quantities if q.symbol not in given]
    if missing and needed:
        raise ValueError(f"No start for {', '.join(missing)}: give start={{{missing[0]}: value}}.")
    found = {}
    for q in quantities:
        if q.symbol in given:
            value = evaluated(given[q.symbol], ledger.values, f"start of {q.symbol.name}")
            if not within(q, value):
                raise ValueError(
                    f"The start of {q.symbol.name} ({q.meaning}) = {value} lies outside its domain {q.domain}."
                )
            found[q.symbol] = value
    return found
