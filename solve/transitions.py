"""Critical values, region and basins of a task with one overlap of the target and one of the positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import sympy as sp

from derive.equations import EquationSystem
from derive.rules import compact
from derive.task import Derivation
from derive.tasks.sequence_single_index import SequenceSingleIndex, Start
from solve.basin import Basins, basins
from solve.compiled import CompiledSystem, compile_system
from solve.critical import Critical, CriticalSystem
from solve.lower import lower
from solve.phases import regions
from solve.quadrature import Accuracy
from solve.result import Array

__all__ = [
    "AT_TRANSITION",
    "SEMANTIC",
    "Transitions",
    "critical_columns",
    "end_basins",
    "region_column",
    "start_noise",
    "start_spread",
    "transitions",
]

SEMANTIC = "p_semantic"
AT_TRANSITION = "p_semantic_at_trans"
_MOST_CRITICAL = 2000
_NOISE_ACCURACY = Accuracy(rtol=1e-4, atol=1e-6)  # moves a probability by less than 1e-5

_NOT_FOLLOWED = "basins are followed for losses that are polynomials of output and label"

Values = Mapping[sp.Symbol, Any]


@dataclass(frozen=True)
class Transitions:
    """critical: by name. probabilities: of ending semantic, by name, nan with a reason. region: a word or None."""

    critical: Mapping[str, Critical] = field(default_factory=dict)
    probabilities: Mapping[str, float] = field(default_factory=dict)
    region: str | None = None
    has_region: bool = False
    basins: Basins | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    proved: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def transitions(
    derivation: Derivation[Any], values: Mapping[sp.Symbol, float], *, certify: bool = False
) -> Transitions:
    """What can be said at these parameters; what needs others that have no value has a reason instead.

    certify: with proved intervals of the critical values, at the exact values of the parameters.
    """
    task = derivation.task
    if not isinstance(task, SequenceSingleIndex) or task.landscape is None:
        return Transitions()
    reasons: dict[str, str] = {}
    critical: dict[str, Critical] = {}
    probabilities: dict[str, float] = {}
    proved: dict[str, tuple[str, str]] = {}
    if derivation.thresholds is not None:
        system = CriticalSystem(derivation.thresholds)
        found = system.values(values)
        critical = {u.name: c for u, c in found.items()}
        reasons |= {name: c.reason for name, c in critical.items() if c.reason}
        if certify:
            read = [q.symbol for q in derivation.thresholds.parameters]
            stated = {s: v for s, v in task.values.items() if float(v) == values.get(s)}
            exact = {s: stated.get(s, sp.Rational(values[s])) for s in read if s in values}
            proved = system.certified(exact, critical, reasons)
        probabilities[AT_TRANSITION] = _at_transition(task, values, critical, reasons)
    probabilities[SEMANTIC], seen = _semantic(derivation, task, values, reasons)
    region = region_column(task, values, reasons)
    word = None if region is None else cast("str | None", region.item())
    return Transitions(critical, probabilities, word, True, seen, reasons, proved)


def critical_columns(
    thresholds: EquationSystem, values: Values, count: int, reasons: dict[str, str]
) -> dict[str, Array]:
    """Critical values (count,) at so many points of the parameters, {} where they are too many.

    Each combination of the parameters that they depend on is solved once. `reasons` says why some are nan.
    """
    system = CriticalSystem(thresholds)
    own = {q.symbol: values[q.symbol] for q in thresholds.parameters if q.symbol in values}
    columns = np.stack([np.broadcast_to(v, count) for v in own.values()], axis=1) if own else np.zeros((count, 0))
    rows, which = np.unique(columns, axis=0, return_inverse=True) if own else (columns[:1], np.zeros(count, dtype=int))
    if len(rows) > _MOST_CRITICAL:
        reason = f"critical values are found for up to {_MOST_CRITICAL} values of {', '.join(s.name for s in own)}"
        reasons |= dict.fromkeys((u.name for u in system.unknowns), reason)
        return {}
    found = [system.values(dict(zip(own, map(float, row), strict=True))) for row in rows]
    for u in system.unknowns:
        lacking = [f[u].reason for f in found if f[u].reason]
        reasons |= {u.name: f"{lacking[0]} (at {len(lacking)} of {len(rows)} values)"} if lacking else {}
    return {u.name: np.array([f[u].value for f in found])[which.ravel()] for u in system.unknowns}


def region_column(task: SequenceSingleIndex, values: Values, reasons: dict[str, str]) -> Array | None:
    """The words of the regions at each point of the parameters, None where a parameter is missing."""
    landscape = task.landscape
    assert landscape is not None
    read = landscape.risk.free_symbols - set(landscape.overlaps)
    lacking = sorted(s.name for s in read if s not in values)
    if lacking:
        reasons["region"] = f"needs a value for {', '.join(lacking)}"
        return None
    found = regions(landscape, {s: values[s] for s in sorted(read, key=str)})
    if any(r is None for r in found.ravel()):
        reasons["region"] = (
            "minima lie inside the disc, m and e mix at the start, or the loss is no polynomial of output and label"
        )
    words: Array = np.array([None if r is None else r.value for r in found.ravel()], dtype=object)
    return words.reshape(found.shape)


def _at_transition(
    task: SequenceSingleIndex,
    values: Mapping[sp.Symbol, float],
    critical: Mapping[str, Critical],
    reasons: dict[str, str],
) -> float:
    """P(semantic) where the steepest direction at the start turns, in the limit of a small learning rate."""
    control = task.control
    turn = None if control is None else critical.get(f"{control.symbol.name}_trans")
    if control is None or turn is None or not math.isfinite(turn.value):
        reasons[AT_TRANSITION] = "there is no such transition" if turn is None else turn.reason
        return math.nan
    if task.problem.cross is None:
        reasons[AT_TRANSITION] = _NOT_FOLLOWED
        return math.nan
    flow = compile_system(task.gradient_flow)
    own = {s: v for s, v in values.items() if s in flow.needs()} | {control.symbol: turn.value}
    found = basins(_rate(flow, own))
    if found.reason:
        reasons[AT_TRANSITION] = found.reason
    return found.semantic()


def end_basins(system: EquationSystem, task: SequenceSingleIndex, values: Mapping[sp.Symbol, float]) -> Basins:
    """The basins of the flow of (m, e) as this system states it, at the task's learning rate."""
    flow = compile_system(system).restricted(task.overlap_symbols)
    return basins(_rate(flow, {s: values[s] for s in flow.needs()}))


def start_spread(
    task: SequenceSingleIndex,
    growth: tuple[float, float],
    values: Mapping[sp.Symbol, float],
    noise: tuple[float, float],
) -> tuple[float, float]:
    """Standard deviations of (m, e) from which a random start escapes, the noise of the first steps included.

    sqrt((1 + gamma S / (2 growth)) / D), as for a single overlap.
    """
    at = {s: values[s] for s in task.learning_rate.free_symbols | task.weights.free_symbols}
    rate, size = (float(x.xreplace(at)) for x in (task.learning_rate, task.weights))
    first, second = (math.sqrt((1 + rate * s / (2 * g)) / size) for s, g in zip(noise, growth, strict=True))
    return first, second


def start_noise(task: SequenceSingleIndex, values: Mapping[sp.Symbol, float]) -> tuple[float, float]:
    """(S_mm, S_ee) at zero overlap."""
    assert task.landscape is not None
    first = task.overlap_symbols.index(task.landscape.overlaps[0])
    return _noise_at_start(task, first, values), _noise_at_start(task, 1 - first, values)


def _semantic(
    derivation: Derivation[Any], task: SequenceSingleIndex, values: Mapping[sp.Symbol, float], reasons: dict[str, str]
) -> tuple[float, Basins | None]:
    """P(semantic) of random starts at the task's learning rate and dimension, to leading order in 1/d."""
    needed = compile_system(derivation.system).needs(*task.overlap_symbols)
    needed |= task.learning_rate.free_symbols | task.weights.free_symbols
    lacking = sorted(s.name for s in needed if s not in values)
    if lacking or task.start is not Start.RANDOM:
        reasons[SEMANTIC] = f"needs a value for {', '.join(lacking)}" if lacking else "the start is not random"
        return math.nan, None
    if task.problem.cross is None:
        reasons[SEMANTIC] = _NOT_FOLLOWED
        return math.nan, None
    found = end_basins(derivation.system, task, values)
    if found.reason:
        reasons[SEMANTIC] = found.reason
    if not math.isfinite(found.kappa):
        return found.semantic(), found
    return found.semantic(start_spread(task, found.growth, values, start_noise(task, values))), found


def _noise_at_start(task: SequenceSingleIndex, k: int, values: Mapping[sp.Symbol, float]) -> float:
    """S_kk at zero overlap."""
    origin = dict.fromkeys(task.overlap_symbols, sp.S.Zero)
    noise = compact(task.problem.noise(k, k).xreplace(origin))
    symbols = sorted(noise.free_symbols, key=str)
    return float(lower([noise], symbols, _NOISE_ACCURACY)(*(values[s] for s in symbols))[0][0])


def _rate(flow: CompiledSystem, values: Mapping[sp.Symbol, float]) -> Any:
    return flow.rate(values, start=dict.fromkeys(flow.flow_unknowns, 0.1))[0]
