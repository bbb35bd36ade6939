"""State evolution of message passing: the derived equations as an iteration from S = 0, in two half steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import sympy as sp
import torch
from numpy.typing import NDArray

from derive.equations import EquationSystem
from derive.mechanisms.potential import m, m_hat, q, q_hat, sigma, sigma_hat
from derive.mechanisms.spectral_erm import delta, quantity, target_size
from derive.mechanisms.spectral_systems import state_evolution
from derive.tasks.attention_indexed import AttentionIndexed
from solve.compiled import CompiledSystem, compile_system
from solve.static import accuracy_of
from verify.attention_indexed.index_loss import IndexLoss
from verify.attention_indexed.vector_prox import respond, scales_of
from verify.simulation import Values, checked_values, value_of

__all__ = ["evolution"]

_SAMPLES = 2**16  # of labels, behind the first half step: its means are good to half a per cent
_HATS = (m_hat, q_hat, sigma_hat)
_OWN = (m, q, sigma)
Path = Mapping[sp.Symbol, NDArray[np.float64]]


def evolution(task: AttentionIndexed, parameters: Values, steps: int, *, first: float = 1.0) -> Path:
    """q, m, mse and Sigma after 1 .. steps iterations, (steps,): the limit of what `MessagePassing` observes.

    first: Sigma at the start. Where S = 0 the equations of the data are 0/0; that half step is a mean over drawn
    labels. Raises `SolveError` where an iterate leaves the domain of an equation.
    """
    values = checked_values(task.parameters, parameters)
    data, student = _half(task, _HATS, _OWN), _half(task, (delta, *_OWN), _HATS)
    size = task.problem.size.xreplace({s: sp.Float(v, 17) for s, v in values.items()})
    hats = _first_hats(task, values, float(size), first)
    rows: list[dict[sp.Symbol, float]] = []
    for step in range(steps):
        if step:
            hats = _at(data, {**values, **rows[-1]}, _HATS)
        rows.append(_at(student, {**values, **hats}, _OWN))
    columns = {s: np.array([row[s] for row in rows]) for s in _OWN}
    found = {
        "q": columns[q],
        "m": columns[m],
        "mse": float(size) - 2 * columns[m] + columns[q],
        "Sigma": columns[sigma],
    }
    return {sp.Symbol(name, real=True): x for name, x in found.items()}


def _half(task: AttentionIndexed, unknowns: tuple[sp.Symbol, ...], given: tuple[sp.Symbol, ...]) -> CompiledSystem:
    """The equations of these unknowns, with the others as parameters."""
    equations = [e for e in state_evolution(task.problem).equations if e.unknown.symbol in (target_size, *unknowns)]
    known = (*task.parameters, *map(quantity, given))
    return compile_system(EquationSystem(tuple(equations), known, {}), accuracy_of(task))


def _at(system: CompiledSystem, values: Values, unknowns: tuple[sp.Symbol, ...]) -> dict[sp.Symbol, float]:
    read = {p.symbol for p in system.system.parameters}
    found = system.solve({s: v for s, v in values.items() if s in read})
    return {s: float(found[s]) for s in unknowns}


def _first_hats(task: AttentionIndexed, values: Values, size: float, first: float) -> dict[sp.Symbol, float]:
    """Means of the forces f on a student of size 0; m_hat = 2 alpha E f v0/Q by Stein's lemma in the labels v0."""
    loss = IndexLoss.of(task.loss, task.target.entries, task.student.entries, values)
    alpha, variance = value_of(task.alpha, values), size + value_of(task.noise, values) / 2
    pairs = task.student.pairs
    v0 = variance**0.5 * torch.randn(
        (len(pairs), _SAMPLES), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    scales = scales_of(pairs, v0)
    steps = first * torch.eye(len(pairs), dtype=torch.float64).expand(_SAMPLES, -1, -1)
    found = respond(loss, loss.labels(scales[:, None] * v0), torch.zeros_like(v0), steps, scales)
    return {
        sigma_hat: -2 * alpha * float(found.divergence.mean()),
        q_hat: 2 * alpha * float(found.forces.square().sum(0).mean()),
        m_hat: 2 * alpha * float((found.forces * v0).sum(0).mean()) / variance,
    }
