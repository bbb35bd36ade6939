"""The equations of a block and their derivatives by rule, all on the same points: residual, slopes, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy as sp

from derive.equations import Block, Define, Equation
from solve.lower import Lowered, lower
from solve.nodes import SCRAMBLINGS
from solve.quadrature import Accuracy
from solve.result import Array

__all__ = ["LinearisedBlock", "Row", "linearised"]

Values = Mapping[sp.Symbol, Array]


@dataclass(frozen=True, eq=False)
class Row:
    """One quantity: its value (*B) and derivatives (moving, *B), its quadrature error and scatter (*B, scramblings)."""

    value: Array
    slope: Array
    error: Array
    scatter: Array


@dataclass(frozen=True, eq=False)
class _Part:
    """Equations evaluated together, with those of their derivatives that are not zero.

    `places`: (equation, symbol) of the derivatives, which follow the values.
    """

    names: tuple[sp.Symbol, ...]
    lowered: Lowered
    places: tuple[tuple[int, sp.Symbol], ...]


@dataclass(frozen=True, eq=False)
class LinearisedBlock:
    """`moving`: the symbols in which derivatives are taken, the state first, then outside ones.

    `parts`: the stages, then the equations of the state; a stage is followed through by the chain rule.
    """

    state: tuple[sp.Symbol, ...]
    moving: tuple[sp.Symbol, ...]
    parts: tuple[_Part, ...]
    defines: tuple[bool, ...]

    def with_samples(self, samples: int) -> LinearisedBlock:
        """The same with that many sampled points."""
        parts = tuple(replace(p, lowered=p.lowered.with_samples(samples)) for p in self.parts)
        return replace(self, parts=parts)

    def rows(self, values: Values, state: Array) -> dict[sp.Symbol, Row]:
        """The stages, and the right-hand sides of the state under the last part's names, at the state (k, *B)."""
        known = {**values, **dict(zip(self.state, state, strict=True))}
        units = dict(zip(self.moving, np.eye(len(self.moving)), strict=True))
        found: dict[sp.Symbol, Row] = {}
        for part in self.parts:
            measured = part.lowered.measured(*(known[s] for s in part.lowered.arguments))
            own = np.zeros(SCRAMBLINGS) if measured.scatter is None else measured.scatter
            count = len(part.names)
            for i, name in enumerate(part.names):
                value = measured.value[i]
                row = Row(
                    value,
                    np.zeros((len(self.moving), *value.shape)),
                    measured.error[i],
                    np.broadcast_to(own if own.ndim == 1 else own[i], (*value.shape, SCRAMBLINGS)),
                )
                for (k, read), slope in zip(part.places, measured.value[count:], strict=True):
                    if k == i:
                        row = _followed(row, slope, units.get(read), found.get(read))
                found[name] = row
                known[name] = value
        return found

    def residual(self, values: Values, state: Array) -> Row:
        """rhs - x for an unknown that is defined, rhs for a root, at the state (k,): stacked, slope (k, moving)."""
        found = self.rows(values, state)
        rows = [found[s] for s in self.parts[-1].names]
        defined = np.array(self.defines, dtype=float)
        slope = np.array([r.slope for r in rows])
        slope[:, : len(defined)] -= np.diag(defined)
        return Row(
            np.array([r.value for r in rows]) - defined * state,
            slope,
            np.array([r.error for r in rows]),
            np.array([r.scatter for r in rows]),
        )


def _followed(row: Row, slope: Array, unit: Array | None, read: Row | None) -> Row:
    """The row with what it reads, of that slope, followed through."""
    if unit is not None:
        return Row(row.value, row.slope + unit.reshape(-1, *(1,) * slope.ndim) * slope, row.error, row.scatter)
    assert read is not None
    return Row(
        row.value,
        row.slope + slope * read.slope,
        row.error + np.abs(slope) * read.error,
        row.scatter + slope[..., None] * read.scatter,
    )


def linearised(block: Block, outside: Sequence[sp.Symbol], accuracy: Accuracy) -> LinearisedBlock | None:
    """With derivatives in the state and in symbols that the block reads; None where a rule for one is missing."""
    by_symbol = {e.unknown.symbol: e for e in block.equations}
    closing = [by_symbol[s] for s in block.state]
    inside = {*block.state, *outside, *(e.unknown.symbol for e in block.stages)}
    parts = [([e], [e.unknown.symbol]) for e in block.stages]
    if closing:
        # an unknown's symbol stands for its value, so its residual needs another name
        parts.append((closing, [sp.Dummy(f"residual_{s}") for s in block.state]))
    try:
        compiled = tuple(_part(equations, names, inside, accuracy) for equations, names in parts)
    except NotImplementedError:
        return None
    defines = tuple(isinstance(e, Define) for e in closing)
    return LinearisedBlock(block.state, (*block.state, *outside), compiled, defines)


def _part(
    equations: Sequence[Equation], names: Sequence[sp.Symbol], inside: set[sp.Symbol], accuracy: Accuracy
) -> _Part:
    values = [e.rhs for e in equations]
    places: list[tuple[int, sp.Symbol]] = []
    slopes: list[sp.Expr] = []
    for i, rhs in enumerate(values):
        for s in sorted(rhs.free_symbols & inside, key=str):
            slope = rhs.diff(s)
            if slope != 0:
                places.append((i, s))
                slopes.append(slope)
    everything = [*values, *slopes]
    reads = sorted(set().union(*(e.free_symbols for e in everything)), key=str)
    return _Part(tuple(names), lower(everything, reads, accuracy), tuple(places))
