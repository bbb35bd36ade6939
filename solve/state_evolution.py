"""State evolution of message passing: the derived equations as an iteration from S = 0, in two half steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import sympy as sp

from derive.equations import EquationSystem
from derive.mechanisms.potential import m, q, sigma
from derive.mechanisms.spectral_erm import target_size
from derive.mechanisms.spectral_systems import half_steps
from derive.tasks.attention_indexed import AttentionIndexed
from solve.compiled import CompiledSystem, compile_system
from solve.result import Array
from solve.static import accuracy_of

__all__ = ["evolution"]


def evolution(
    task: AttentionIndexed, parameters: Mapping[sp.Symbol, float], steps: int, *, first: float = 1.0
) -> dict[sp.Symbol, Array]:
    """q, m, mse and Sigma after 1 .. steps iterations, (steps,): the limit of message passing on data.

    first: Sigma at the start. Raises `SolveError` where an iterate leaves the domain of an equation, `ValueError` for
    parameters without a value.
    """
    begin, forth, back = (_compiled(task, system) for system in half_steps(task.problem))
    known = {**{s: float(v) for s, v in task.values.items()}, **parameters, sigma: first}
    rows: list[dict[sp.Symbol, float]] = []
    for step in range(steps):
        known |= _solved(forth if step else begin, known)
        known |= _solved(back, known)
        rows.append(dict(known))
    found = {s.name: np.array([row[s] for row in rows]) for s in (q, m, sigma)}
    found["mse"] = np.array([row[target_size] for row in rows]) - 2 * found["m"] + found["q"]
    return {sp.Symbol(name, real=True): x for name, x in found.items()}


def _compiled(task: AttentionIndexed, system: EquationSystem) -> CompiledSystem:
    declared = {p.symbol: p for p in task.parameters}
    parameters = tuple(declared.get(p.symbol, p) for p in system.parameters)
    return compile_system(EquationSystem(system.equations, parameters, {}), accuracy_of(task))


def _solved(system: CompiledSystem, known: Mapping[sp.Symbol, float]) -> dict[sp.Symbol, float]:
    read = {p.symbol for p in system.system.parameters}
    found = system.solve({s: v for s, v in known.items() if s in read})
    return {s: float(v) for s, v in found.values.items()}
