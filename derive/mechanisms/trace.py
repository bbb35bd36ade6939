"""The course of training in coordinates: equations for the coordinates of vectors, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import sympy as sp

from derive.equations import Define, Quantity, Source
from derive.expectation import Expectation
from derive.mechanisms.responses import Model, arrangements
from derive.mechanisms.sample_law import SIGNAL, Case, Direction, SampleLaw, State
from derive.mechanisms.sample_response import SampleResponse
from derive.mechanisms.training import Data, Start, Step, Update
from derive.polynomial import expand

__all__ = ["Trace", "trace"]

Coordinates: TypeAlias = Mapping[Direction, sp.Expr]

T = TypeVar("T")

_SOURCE = Source("derived", "general gradient step")


@dataclass(frozen=True)
class Trace:
    """Equations in the order of their evaluation; coordinates and biases before the first and after each step."""

    equations: tuple[Define, ...]
    states: tuple[Mapping[sp.Symbol, State], ...]
    biases: tuple[Mapping[sp.Symbol, sp.Expr], ...]


def trace(
    model: Model,
    cases: tuple[Case, ...],
    steps: tuple[Step, ...],
    biases: Mapping[sp.Symbol, sp.Expr],
    start: Start,
    exchangeable: bool,
) -> Trace:
    """All steps, derived one after the other."""
    if exchangeable and not model.exchangeable:
        cases = tuple(_in_all_orders(cases))
    run = _Run(
        model,
        cases,
        {v.symbol: State.of({}) for v in model.vectors} | start.states(),
        {b: sp.S(v) for b, v in biases.items()},
    )
    run.directions += dict.fromkeys(e for s in run.states.values() for e, _ in s.coordinates if e != SIGNAL)
    states, values = [dict(run.states)], [dict(run.biases)]
    for step in steps:
        run.take(step)
        states.append(dict(run.states))
        values.append(dict(run.biases))
    return Trace(tuple(run.equations), tuple(states), tuple(values))


def _in_all_orders(cases: Iterable[Case]) -> Iterable[Case]:
    for case in cases:
        orders = list(arrangements(case.signal))
        yield from (Case(case.probability / len(orders), case.label, order) for order in orders)


@dataclass
class _Run:
    """A derivation under way."""

    model: Model
    cases: tuple[Case, ...]
    states: dict[sp.Symbol, State]
    biases: dict[sp.Symbol, sp.Expr]
    directions: list[Direction] = field(default_factory=lambda: [SIGNAL])
    equations: list[Define] = field(default_factory=list)
    laws: dict[Data, tuple[SampleLaw, ...]] = field(default_factory=dict)
    counts: dict[tuple[str, sp.Symbol], int] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        """One step: all gradients first, then all updates."""
        asked = dict.fromkeys(s for u in step.updates.values() for s, c in u.gradients.items() if c != 0)
        gradients = {s: self._gradient(s, step.data) for s in asked if s in self.states}
        slopes = {s: self._slope(s, step.data) for s in asked if s in self.biases}
        states, biases = dict(self.states), dict(self.biases)
        for symbol, update in step.updates.items():
            if symbol in self.states:
                states[symbol] = self._moved(symbol, update, gradients)
            else:
                kept = (c * self.biases[s] for s, c in update.keep.items())
                value = sp.Add(*kept, *(c * slopes[s] for s, c in update.gradients.items() if s in slopes))
                biases[symbol] = self._define(f"{symbol}{self._count('update', symbol)}", value, f"the bias {symbol}")
        self.states, self.biases = states, biases

    def _count(self, what: str, symbol: sp.Symbol) -> int:
        key = (what, symbol)
        self.counts[key] = self.counts.get(key, 0) + 1
        return self.counts[key]

    def _define(self, name: str, value: sp.Expr, meaning: str, positive: bool = False) -> sp.Symbol:
        symbol = sp.Symbol(name, positive=True) if positive else sp.Symbol(name, real=True)
        domain = sp.Interval.open(0, sp.oo) if positive else sp.S.Reals
        self.equations.append(Define(Quantity(symbol, meaning, domain), value, _SOURCE))
        return symbol

    # ---- the samples --------------------------------------------------------------------------------------
    def _laws(self, data: Data) -> tuple[SampleLaw, ...]:
        if data not in self.laws:
            self.laws[data] = tuple(SampleLaw(case, data.ratio) for case in self.cases if case.probability != 0)
        return self.laws[data]

    def _responses(self, symbol: sp.Symbol, data: Data) -> list[SampleResponse]:
        zero = frozenset(s for s, state in self.states.items() if not state.coordinates)
        return [SampleResponse(self.model, symbol, law, self.states, self.biases, zero) for law in self._laws(data)]

    def _slope(self, symbol: sp.Symbol, data: Data) -> sp.Expr:
        """The derivative of the mean loss in a bias."""
        responses = self._responses(symbol, data)
        return expand(sp.Add(*(r.law.case.probability * r.scalar_mean() for r in responses)))

    # ---- one gradient -------------------------------------------------------------------------------------
    def _gradient(self, symbol: sp.Symbol, data: Data) -> Coordinates:
        """Coordinates of the gradient: along the directions that exist, and along its own noise."""
        responses = self._responses(symbol, data)
        if all(r.is_zero for r in responses):
            return {}
        name = f"{symbol}{self._count('gradient', symbol)}"
        noises = {e: self._correlation(name, responses, e, data) for e in self.directions if e in self._noises(data)}
        along = {e: _divided(_mean(responses, SampleResponse.along, e), e.square) for e in self.directions}
        coordinates = {e: a + noises.get(e, 0) for e, a in along.items()}
        own = self._own_noise(name, responses, {e: c for e, c in noises.items() if c != 0}, data)
        return {**{e: a for e, a in coordinates.items() if a != 0}, **own}

    def _own_noise(
        self, name: str, responses: list[SampleResponse], correlated: Coordinates, data: Data
    ) -> Coordinates:
        """The new direction of a gradient: what its noise does not share with earlier ones of the same data."""
        square = _mean(responses, SampleResponse.square_without, correlated)
        if square == 0:
            return {}
        meaning = f"square of the noise of gradient {name}"
        noise = Direction(name, self._define(f"v_{name}", _divided(square, data.ratio), meaning, positive=True))
        self.directions.append(noise)
        for r in responses:
            r.law.shares[noise] = r.share_without(correlated)
        return {noise: sp.S.One}

    def _noises(self, data: Data) -> set[Direction]:
        return set().union(*(law.shares for law in self._laws(data)))

    def _correlation(self, name: str, responses: list[SampleResponse], e: Direction, data: Data) -> sp.Expr:
        """E[r . rho_e] / E|rho_e|^2: what the noise of this gradient shares with that of an earlier one."""
        inner = _mean(responses, SampleResponse.along_share, e)
        if inner == 0:
            return sp.S.Zero
        meaning = f"component of the noise of gradient {name} along that of {e.name}"
        return self._define(f"k_{name}_{e.name}", _divided(inner, data.ratio * e.square), meaning)

    # ---- one update ---------------------------------------------------------------------------------------
    def _moved(self, symbol: sp.Symbol, update: Update, gradients: Mapping[sp.Symbol, Coordinates]) -> State:
        parts: list[tuple[sp.Expr, Coordinates]] = [
            (c, dict(self.states[s].coordinates)) for s, c in update.keep.items()
        ]
        parts += [(c, gradients[s]) for s, c in update.gradients.items() if s in gradients]
        number = self._count("update", symbol)
        moved: dict[Direction, sp.Expr] = {}
        for e in self.directions:
            value = sp.Add(*(c * s[e] for c, s in parts if e in s))
            if value != 0:
                moved[e] = self._coordinate(symbol, number, e, value)
        state = State.of(moved)
        if not moved:
            return state
        meaning = f"square |{symbol}|^2 after {number} updates"
        return replace(state, square=self._define(f"n_{symbol}{number}", state.square, meaning, positive=True))

    def _coordinate(self, symbol: sp.Symbol, number: int, e: Direction, value: sp.Expr) -> sp.Expr:
        """The coordinate by a name of its own, unless it is a known name or made of rates alone."""
        if e == SIGNAL:
            return self._define(f"m_{symbol}{number}", value, f"overlap <{symbol}, xi> after {number} updates")
        unknowns = {q.unknown.symbol for q in self.equations}
        if value in unknowns or not (value.has(Expectation) or value.free_symbols & unknowns):
            return value
        meaning = f"coordinate of {symbol} along the direction {e.name} after {number} updates"
        return self._define(f"c_{symbol}{number}_{e.name}", value, meaning)


def _mean(responses: list[SampleResponse], of: Callable[[SampleResponse, T], sp.Expr], what: T) -> sp.Expr:
    """The average over cases."""
    return expand(sp.Add(*(r.law.case.probability * of(r, what) for r in responses)))


def _divided(total: sp.Expr, by: sp.Expr) -> sp.Expr:
    """The terms of a sum divided one by one, so that equal factors cancel."""
    return sp.Add(*(term / by for term in sp.Add.make_args(total)))
