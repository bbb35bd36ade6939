"""A block of equations as numbers: the right-hand sides given its state, and what the rest of it then is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.equations import Block, Define, Equation, Flow, Quantity, Root
from derive.expectation import expectations
from derive.measures import Pushforward
from solve.linearised import LinearisedBlock, linearised
from solve.lower import Lowered, lower
from solve.quadrature import Accuracy
from solve.result import Array

__all__ = ["Evaluation", "LoweredBlock"]

Values = Mapping[sp.Symbol, Array]
_COARSE = 2**13


@dataclass(frozen=True, eq=False)
class Evaluation:
    """rhs of the state's equations: (k, *B) with its error, and the other unknowns with theirs.

    Errors hold one standard error of what is sampled, except those of the stages of a block without a state: there
    `scatter` has what their values are off on each scrambling, (*B, scramblings).
    """

    rhs: Array
    error: Array
    stages: dict[sp.Symbol, Array]
    stage_errors: dict[sp.Symbol, Array]
    scatter: dict[sp.Symbol, Array]


@dataclass(frozen=True, eq=False)
class LoweredBlock:
    """A block whose equations are compiled when first needed; stages that do not read each other together."""

    block: Block
    accuracy: Accuracy

    @property
    def state(self) -> tuple[sp.Symbol, ...]:
        return self.block.state

    @functools.cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """The quantities of the state, in its order."""
        by_symbol = {e.unknown.symbol: e.unknown for e in self.block.equations}
        return tuple(by_symbol[s] for s in self.state)

    @functools.cached_property
    def reads(self) -> frozenset[sp.Symbol]:
        """The symbols that the block reads from outside."""
        return frozenset().union(*(e.reads() for e in self.block.equations)) - set(self.block.unknowns)

    @functools.cached_property
    def closing(self) -> tuple[Equation, ...]:
        """The equations of the state, in its order."""
        by_symbol = {e.unknown.symbol: e for e in self.block.equations}
        return tuple(by_symbol[s] for s in self.state)

    @functools.cached_property
    def defines(self) -> NDArray[np.bool_]:
        """(k,): whether the equation of a state unknown is x = rhs; else it is 0 = rhs or dx/dt = rhs."""
        return np.array([isinstance(e, Define) for e in self.closing], dtype=bool)

    @property
    def has_roots(self) -> bool:
        return any(isinstance(e, Root) for e in self.closing)

    @property
    def is_flow(self) -> bool:
        return self.block.is_flow

    @property
    def is_pure_flow(self) -> bool:
        """Whether the state is made of flows alone."""
        return all(isinstance(e, Flow) for e in self.closing)

    def __call__(self, values: Values, state: Array, shift: float = 0.0) -> Evaluation:
        """Evaluate with the outside `values` and the state: (k, *B).

        shift: every number is moved by that many times its quadrature error, before it is read further on.
        """
        known = {**values, **dict(zip(self.state, state, strict=True))}
        stages: dict[sp.Symbol, Array] = {}
        errors: dict[sp.Symbol, Array] = {}
        scatter: dict[sp.Symbol, Array] = {}
        for symbols, lowered in self._levels:
            measured = lowered.measured(*(known[s] for s in lowered.arguments))
            found, uncertain = measured.value, measured.total if self.state else measured.error
            if measured.scatter is not None and not self.state:
                scatter |= zip(symbols, measured.scatter, strict=True)
            for s, v, e in zip(symbols, found + shift * uncertain if shift else found, uncertain, strict=True):
                known[s] = stages[s] = v
                errors[s] = e
        if self._closing is None:
            return Evaluation(np.empty((0,)), np.empty((0,)), stages, errors, scatter)
        rhs, error = _at(self._closing, known)
        shape = np.broadcast_shapes(rhs.shape, state.shape)
        rhs, error = (np.broadcast_to(a.reshape(len(a), *_padded(a, shape)), shape) for a in (rhs, error))
        return Evaluation(rhs + shift * error if shift else rhs, error, stages, errors, scatter)

    @functools.cached_property
    def is_sampled(self) -> bool:
        """Whether an equation holds an expectation over sampled points."""
        return any(e.rhs.has(Pushforward) for e in self.block.equations)

    @functools.cached_property
    def linearised(self) -> Callable[[tuple[sp.Symbol, ...]], LinearisedBlock | None]:
        """The block with derivatives in its state and the outside symbols given; None where a rule is missing."""
        return functools.cache(lambda outside: linearised(self.block, outside, self.accuracy))

    @functools.cached_property
    def coarse(self) -> Callable[[LinearisedBlock], LinearisedBlock | None]:
        """`linearised` on fewer points, where that is cheaper: where the state moves what is averaged over them."""
        averages = set().union(*(expectations(e.rhs) for e in self.block.equations))
        moved = any(a.has(Pushforward) and a.has_free(*self.state) for a in averages)
        cheaper = moved and self.accuracy.samples > _COARSE
        return functools.cache(lambda linear: linear.with_samples(_COARSE) if cheaper else None)

    def residual(self, values: Values, state: Array, shift: float = 0.0) -> Array:
        """rhs - x for an unknown that is defined, rhs for a root: (k, *B)."""
        rhs = self(values, state, shift).rhs
        columns = (-1,) + (1,) * (state.ndim - 1)
        return rhs - np.where(self.defines.reshape(columns), state, 0.0)

    @functools.cached_property
    def _levels(self) -> tuple[tuple[tuple[sp.Symbol, ...], Lowered], ...]:
        levels: list[list[Equation]] = []
        depth: dict[sp.Symbol, int] = {}
        for e in self.block.stages:
            level = 1 + max((depth[s] for s in e.reads() if s in depth), default=-1)
            depth[e.unknown.symbol] = level
            levels += [[]] * (level == len(levels))
            levels[level] = [*levels[level], e]
        return tuple((tuple(e.unknown.symbol for e in level), self._lower(level)) for level in levels)

    @functools.cached_property
    def _closing(self) -> Lowered | None:
        return self._lower(self.closing) if self.state else None

    def _lower(self, equations: Sequence[Equation]) -> Lowered:
        reads = sorted(set().union(*(e.reads() for e in equations)), key=str)
        return lower([e.rhs for e in equations], reads, self.accuracy)


def _padded(a: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (len(shape) - a.ndim) + a.shape[1:]


def _at(lowered: Lowered, known: Values) -> tuple[Array, Array]:
    return lowered(*(known[s] for s in lowered.arguments))
