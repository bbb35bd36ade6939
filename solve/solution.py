"""A derivation in numbers: its series or its solution, its explicit laws, escape, fixed points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp

from derive.equations import EquationSystem, Quantity
from derive.task import Derivation
from solve.basin import Basins
from solve.compiled import CompiledSystem, compile_system
from solve.domain import Box, Disc
from solve.exponents import number
from solve.flow import Escape
from solve.lower import lower
from solve.result import Array, Prediction, worst
from solve.static import StaticSolver, accuracy_of
from solve.stationary import FixedPoint, Stability
from solve.transitions import SEMANTIC, Transitions, transitions

__all__ = [
    "Solution",
    "evaluated_laws",
    "evaluated_system",
    "given_values",
    "missing_parameters",
    "solution_record",
    "solve_derivation",
    "with_constants",
]

_MOST_FIXED_POINTS = 24
_MOST_OVERLAPS = 3

_LEFT_OUT = "integrals in many variables at each point: ask for it with [solve] noise = true"

Values = Mapping[sp.Symbol, float]


@dataclass(frozen=True, eq=False)
class Solution:
    """What was solved, at which parameters.

    prediction: the system, None while a parameter is `missing`. laws: the explicit laws that could be evaluated.
    reasons: why a law or a number is not there. fixed_points: of a flow, with the objective at each.
    """

    derivation: Derivation[Any]
    parameters: Values
    prediction: Prediction | None
    laws: Prediction | None
    escape: Escape | None
    escape_steps: float | str | None
    fixed_points: tuple[tuple[FixedPoint, float], ...]
    reasons: Mapping[str, str]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    transitions: Transitions = field(default_factory=Transitions)


def given_values(derivation: Derivation[Any], parameters: Mapping[str, float]) -> dict[sp.Symbol, float]:
    """A number for each parameter that has one: those given by name, else the task's, else the defaults.

    Raises `ValueError` for a name that is no parameter of the derivation.
    """
    systems = [s for s in (derivation.system, derivation.laws, derivation.thresholds) if s is not None]
    quantities = {q.symbol.name: q for s in systems for q in s.parameters}
    unknown = sorted(set(parameters) - set(quantities))
    if unknown:
        raise ValueError(f"Unknown parameters {', '.join(unknown)}; there are {', '.join(sorted(quantities))}.")
    values = {q.symbol: float(q.default) for q in quantities.values() if q.default is not None}
    values |= {s: float(v) for s, v in derivation.task.values.items()}
    return values | {quantities[name].symbol: float(v) for name, v in parameters.items()}


def solve_derivation(
    derivation: Derivation[Any], parameters: Mapping[str, float] | None = None, *, certify: bool = False
) -> Solution:
    """Solve the system and the laws at `parameters` (by name; the task's own values where not given).

    What needs a parameter without a value is left out and named in `missing` and `reasons`.
    Raises `SolveError` where a solver does not converge, `ValueError` for unknown or forbidden values.
    """
    values = given_values(derivation, parameters or {})
    compiled = evaluated_system(derivation)
    missing = missing_parameters(compiled, values)
    reasons = dict.fromkeys((s.name for s in derivation.task.left_out), _LEFT_OUT) | dict(derivation.task.absent)
    laws = evaluated_laws(derivation.laws, values, reasons)
    turns = transitions(derivation, values, certify=certify)
    reasons |= turns.reasons
    if missing:
        waiting = f"needs a value for {', '.join(missing)}"
        reasons |= dict.fromkeys(("escape_time", "escape_steps"), waiting)
        ready = bool(compiled.flow_unknowns) and all(s in values for s in compiled.needs())
        points, remark = (
            _fixed_points(compiled, _known(compiled.system, values), derivation, turns.basins) if ready else ((), ())
        )
        return Solution(derivation, values, None, laws, None, None, points, reasons, missing, remark, turns)
    own = _known(compiled.system, values)
    if not compiled.flow_unknowns:
        found = StaticSolver(derivation, compiled).solve(own)
        return Solution(derivation, values, found, laws, None, None, (), reasons, (), found.notes, turns)
    settings = derivation.task.solve
    prediction = with_constants(compiled, compiled.integrate(own, settings.times.points()), own)
    escape = compiled.escape_time(own, float(settings.escape))
    points, remark = _fixed_points(compiled, own, derivation, turns.basins)
    if np.isnan(escape.time):
        reasons["escape_time"] = reasons["escape_steps"] = escape.reason
    notes = (*prediction.notes, *([] if np.isfinite(escape.time) else [escape.reason]), *remark)
    steps = _steps(derivation, values, escape, reasons)
    return Solution(derivation, values, prediction, laws, escape, steps, points, reasons, (), notes, turns)


def solution_record(solution: Solution) -> dict[str, Any]:
    """The JSON record `solve/1` without its head."""
    prediction = solution.prediction
    values: dict[str, Any] = {} if solution.laws is None else _numbers(solution.laws.values)
    names = [] if solution.derivation.laws is None else [s.name for s in solution.derivation.laws.unknowns]
    values |= {name: None for name in names if name not in values}
    if solution.escape is not None:
        values |= {"escape_time": number(solution.escape.time), "escape_steps": solution.escape_steps}
    if prediction is not None and prediction.axis is None:
        values |= _numbers(prediction.values)
    values |= {name: None for name in solution.derivation.task.absent if name not in values}
    turns = solution.transitions
    critical = {name: number(c.value) for name, c in turns.critical.items()}
    values |= critical | {name: number(p) for name, p in turns.probabilities.items()}
    values |= {"region": turns.region} if turns.has_region else {}
    return {
        "status": None if prediction is None else prediction.status.name,
        "residual": None if prediction is None else number(prediction.residual),
        "error": None if prediction is None else number(prediction.error),
        "values": values,
        "reasons": dict(solution.reasons),
        "axis": _axis(prediction),
        "series": _series(prediction),
        "fixed_points": [_point_record(solution, p, loss) for p, loss in solution.fixed_points],
        "thresholds": {name: v for name, v in values.items() if name.endswith("_max") or name in critical},
        "threshold_errors": {name: number(c.error) for name, c in turns.critical.items()},
        "certified": bool(turns.proved),
        "enclosures": {name: list(interval) for name, interval in turns.proved.items()},
        "missing": list(solution.missing),
        "notes": list(solution.notes),
    }


def _known(system: EquationSystem, values: Mapping[sp.Symbol, Any]) -> dict[sp.Symbol, Any]:
    return {q.symbol: values[q.symbol] for q in system.parameters if q.symbol in values}


def evaluated_system(derivation: Derivation[Any]) -> CompiledSystem:
    """The system without the unknowns that the task leaves out."""
    compiled = compile_system(derivation.system, accuracy_of(derivation.task))
    kept = [s for s in derivation.system.unknowns if s not in derivation.task.left_out]
    return compiled if len(kept) == len(derivation.system.unknowns) else compiled.restricted(kept)


def missing_parameters(compiled: CompiledSystem, values: Mapping[sp.Symbol, Any]) -> tuple[str, ...]:
    """The names of the parameters that the equations or their start need, and that have no value."""
    starts = set().union(*(v.free_symbols for v in compiled.system.start.values()))
    needed = {q.symbol for q in compiled.system.parameters} & (compiled.needs() | starts)
    return tuple(sorted(s.name for s in needed if s not in values))


def with_constants(compiled: CompiledSystem, prediction: Prediction, values: Mapping[sp.Symbol, Any]) -> Prediction:
    """An integrated system with the unknowns, too, that depend on no flow and that no flow needs."""
    left_out = [s for s in compiled.system.unknowns if s not in prediction.values]
    if not left_out:
        return prediction
    rest = compiled.restricted(left_out)
    found = rest.solve(_known(rest.system, values), throw=False)
    return replace(
        prediction,
        values={s: {**found.values, **prediction.values}[s] for s in compiled.system.unknowns},
        status=worst(prediction.status, found.status),
        error=max(prediction.error, found.error),
        residual=max(prediction.residual, found.residual),
    )


def evaluated_laws(
    laws: EquationSystem | None, values: Mapping[sp.Symbol, Any], reasons: dict[str, str]
) -> Prediction | None:
    """The laws whose parameters have values; `reasons` is told what is lacking for the others.

    A value outside the domain of its quantity is nan: the law does not hold there.
    """
    if laws is None:
        return None
    compiled = compile_system(laws)
    possible = []
    for unknown in laws.unknowns:
        lacking = sorted(s.name for s in compiled.needs(unknown) if s not in values)
        if lacking:
            reasons[unknown.name] = f"needs a value for {', '.join(lacking)}"
        else:
            possible.append(unknown)
    if not possible:
        return None
    part = compiled.restricted(possible)
    found = part.solve(_known(part.system, values), throw=False)
    valid = {s: _in_domain(part.system.equation(s).unknown, v) for s, v in found.values.items()}
    for s, v in valid.items():
        if not np.isfinite(v).all():
            reasons[s.name] = "the law has no finite value in its domain at these parameters"
    return replace(found, values=valid)


def _in_domain(quantity: Quantity, values: Array) -> Array:
    box = Box.of([quantity.domain])
    return np.where((values < box.low[0]) | (values > box.high[0]), np.nan, values)


def _fixed_points(
    compiled: CompiledSystem, values: Values, derivation: Derivation[Any], known: Basins | None
) -> tuple[tuple[tuple[FixedPoint, float], ...], tuple[str, ...]]:
    count = len(compiled.flow_unknowns)
    if count > _MOST_OVERLAPS:
        return (), (f"fixed points are searched for up to {_MOST_OVERLAPS} overlaps; here are {count}.",)
    if known is None:
        found = compiled.fixed_points(values, Box.closed([-1.0], [1.0]) if count == 1 else Disc(count))
    else:
        found = known.points
    if len(found) > _MOST_FIXED_POINTS:
        return (), ("the flow rests on more points than can be listed: a continuum, by a symmetry of the target.",)
    return tuple((p, _objective(compiled, values, derivation, p)) for p in found), ()


def _objective(compiled: CompiledSystem, values: Values, derivation: Derivation[Any], point: FixedPoint) -> float:
    objective = derivation.task.objective
    if objective is None:
        return float("nan")
    at = dict(zip(compiled.flow_unknowns, point.at, strict=True)) | dict(values)
    rhs = derivation.system.equation(objective).rhs
    symbols = sorted(rhs.free_symbols, key=str)
    if any(s not in at for s in symbols):
        return float("nan")
    (value,), _ = lower([rhs], symbols)(*(at[s] for s in symbols))
    return float(value)


def _steps(derivation: Derivation[Any], values: Values, escape: Escape, reasons: dict[str, str]) -> float | str | None:
    clock = derivation.task.clock
    if clock is None:
        return None
    lacking = sorted(s.name for s in clock.free_symbols if s not in values)
    if lacking:
        reasons["escape_steps"] = f"needs a value for {', '.join(lacking)}"
        return None
    return number(escape.time * float(clock.xreplace({s: sp.Float(values[s]) for s in clock.free_symbols})))


def _numbers(values: Mapping[sp.Symbol, Array]) -> dict[str, float | str | None]:
    return {s.name: number(float(v)) for s, v in values.items()}


def _axis(prediction: Prediction | None) -> dict[str, Any] | None:
    if prediction is None or prediction.axis is None:
        return None
    return {"name": "tau", "values": [float(t) for t in prediction.axis]}


def _series(prediction: Prediction | None) -> dict[str, Sequence[Any]]:
    if prediction is None or prediction.axis is None:
        return {}
    length = len(prediction.axis)
    return {s.name: [number(float(v)) for v in np.broadcast_to(x, length)] for s, x in prediction.values.items()}


def _point_record(solution: Solution, point: FixedPoint, loss: float) -> dict[str, Any]:
    flows = [u.name for u in solution.derivation.system.unknowns][: len(point.at)]
    return {
        "at": {name: number(float(v)) for name, v in zip(flows, point.at, strict=True)},
        "stability": point.stability.name,
        "eigenvalues": [[float(w.real), float(w.imag)] for w in point.eigenvalues],
        "loss": number(loss),
        "basin": number(_basin(solution, point)),
    }


def _basin(solution: Solution, point: FixedPoint) -> float:
    """The probability that a random start ends at a stable point, shared by the mirror images of an end."""
    p = solution.transitions.probabilities.get(SEMANTIC, float("nan"))
    if point.stability is not Stability.stable or np.isnan(p):
        return float("nan")
    semantic = abs(point.at[0]) > abs(point.at[1])
    alike = [
        q
        for q, _ in solution.fixed_points
        if q.stability is Stability.stable and (abs(q.at[0]) > abs(q.at[1])) == semantic
    ]
    return (p if semantic else 1 - p) / len(alike)
