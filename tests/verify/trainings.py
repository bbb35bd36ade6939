"""Small tasks of every kind of student and loss, and what the tests of the projected simulation do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import sympy as sp
import torch

from derive.functions import orthonormal, relu, softmax
from derive.settings import Method, VerifySettings
from derive.students import Reduction, StudentKind, attention_student, network
from derive.task import Derivation, derive
from derive.tasks.sequence_single_index import SequenceSingleIndex
from solve.certify import decide
from verify.projected import Projection
from verify.simulation import Ensemble, replicate
from verify.simulations.direct_sgd import SphericalSGD
from verify.simulations.projected_sgd import ProjectedSGD

CPU = torch.device("cpu")
OPPOSITE = sp.ImmutableDenseMatrix([[1], [-1]])
m, e = sp.symbols("m e", real=True)


def squared(n: int) -> sp.Lambda:
    f, y = sp.symbols(f"f1:{n + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    return sp.Lambda((*f, *y), sum((a - b) ** 2 for a, b in zip(f, y, strict=True)) / 2)


def unsquared(n: int) -> sp.Lambda:
    """The Frobenius norm itself."""
    f, y = sp.symbols(f"f1:{n + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    return sp.Lambda((*f, *y), sp.sqrt(sum((a - b) ** 2 for a, b in zip(f, y, strict=True))))


def network_task(kind: StudentKind, length: int, rate, start, loss=squared, activation=relu) -> SequenceSingleIndex:
    z, u = sp.symbols(f"z1:{length + 1}", real=True), sp.Symbol("u", real=True)
    target = (sum(orthonormal(2, t) for t in z) + z[0],)
    student = network(kind, length, sp.Lambda(u, activation(u)))
    return SequenceSingleIndex(length, (), z, target, student, loss(1), sp.sympify(rate), start)


def attention_task(
    length: int, rate, start, loss=squared, positions=None, reduction: Reduction | None = None
) -> SequenceSingleIndex:
    z = sp.symbols(f"z1:{length + 1}", real=True)
    student = attention_student(length, reduction)
    matrix = softmax(sp.Matrix(z) * sp.Matrix(z).T)
    if positions is not None:
        matrix = sp.Rational(2, 5) * matrix + sp.Rational(3, 5) * softmax(positions * positions.T)
    target = tuple(matrix) if len(student.output) > 1 else (matrix.trace() + z[0] / 2,)
    count = len(student.output)
    return SequenceSingleIndex(length, (), z, target, student, loss(count), sp.sympify(rate), start, positions)


def untied_start(*values) -> dict[sp.Symbol, sp.Expr]:
    return {sp.Symbol(f"mu{i + 1}", real=True): sp.sympify(v) for i, v in enumerate(values)}


def chain_of(task: SequenceSingleIndex, size: int) -> tuple[Projection, np.ndarray]:
    """The projection of the task, and its prepared state."""
    simulation = ProjectedSGD(task, times=(0.0,))
    clock = simulation.clock({}, size)
    chain = simulation.projection(clock)
    return chain, chain.prepared(clock.prepared(task.start, task.overlap_symbols))


def times_of(task: SequenceSingleIndex, size: int, steps: Sequence[int]) -> tuple[float, ...]:
    """The times of those steps."""
    rate = SphericalSGD(task, times=(0.0,)).clock({}, size).rate
    return tuple(n * rate for n in steps)


def direct_ensemble(task: SequenceSingleIndex, size: int, steps: Sequence[int], count: int) -> Ensemble:
    """The overlaps after the steps, in d dimensions."""
    simulation = SphericalSGD(task, times_of(task, size, steps))
    return replicate(simulation, {}, size=size, seeds=range(count), device=CPU, batch=1024)


def projected_ensemble(task: SequenceSingleIndex, size: int, steps: Sequence[int], count: int) -> Ensemble:
    """The same by the overlaps alone."""
    return replicate(ProjectedSGD(task, times_of(task, size, steps)), {}, size=size, seeds=range(count), batch=1024)


def chain_ensemble(
    task: SequenceSingleIndex, like: Ensemble, chain: Projection, state: np.ndarray, steps: Sequence[int], count: int
) -> Ensemble:
    """The same by a chain that may be wrong on purpose, all replicas from one stream."""
    rng = np.random.default_rng(5)
    paths = np.stack([chain.run(rng, state, np.array(steps)).overlaps for _ in range(count)])
    observed = {s: paths[:, :, k] for k, s in enumerate(task.overlap_symbols)}
    return Ensemble(like.size, tuple(range(count)), like.axis, observed)


def wrong_chains(task: SequenceSingleIndex, chain: Projection, size: int) -> dict[str, Projection]:
    """chi^2 of d for D - K - 1, and the positions left out where there are some."""
    vectors = task.length if task.student.kind is StudentKind.UNTIED else 1
    found = {"degrees of freedom": replace(chain, freedom=float(vectors * size))}
    if task.positions is not None:
        found["positions"] = replace(chain, shift=0 * chain.shift)
    return found


def of_another_loss(task: SequenceSingleIndex, chain: Projection, size: int) -> Projection:
    """The chain with the D of the squared loss for that of the unsquared one, or the reverse."""
    count = len(task.target)
    other = squared if task.loss == unsquared(count) else unsquared
    return replace(chain, slopes=chain_of(replace(task, loss=other(count)), size)[0].slopes)


def derived(method: Method, dimensions: Sequence[int], seeds: int = 48) -> Derivation[SequenceSingleIndex]:
    """A task of one token, to be verified by that method."""
    task = network_task(StudentKind.TIED, 1, sp.Rational(1, 4), {m: sp.Rational(1, 2)})
    return derive(replace(task, verify=VerifySettings(tuple(dimensions), seeds, method)), order=2, decide=decide)
