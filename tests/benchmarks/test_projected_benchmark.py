"""The projected simulation against a loop of torch's autograd, one sample at a time: per step at d = 1000."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import sympy as sp
import torch

from derive.students import StudentKind
from derive.tasks.sequence_single_index import SequenceSingleIndex
from tests.verify.trainings import OPPOSITE, attention_task, e, m, network_task, squared
from verify.simulation import replicate
from verify.simulations.projected_sgd import ProjectedSGD

pytestmark = pytest.mark.benchmark

SIZE, LOOP_STEPS, REPLICAS = 1000, 400, 4
HALF = sp.Rational(1, 2)
TIED = network_task(StudentKind.TIED, 2, sp.Rational(1, 4), {m: HALF})
ATTENTION = attention_task(2, HALF, {m: HALF, e: HALF}, squared, OPPOSITE)


def tied_loss(x: torch.Tensor, w: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    z = x @ teacher
    target = ((z**2 - 1) / math.sqrt(2)).sum() + z[0]
    return (torch.relu((x @ w).sum() / math.sqrt(2)) - target) ** 2 / 2


def attention_loss(x: torch.Tensor, w: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    z, opposite = x @ teacher, torch.tensor([1.0, -1.0])
    target = 0.4 * torch.softmax(torch.outer(z, z), 1) + 0.6 * torch.softmax(torch.outer(opposite, opposite), 1)
    s = x @ w + opposite * w[1] / math.sqrt(SIZE)
    return ((torch.softmax(torch.outer(s, s), 1) - target) ** 2).sum() / 2


def seconds_of_a_loop_step(loss, rate: float) -> float:
    """One sample a step as a user would write it, in torch's own float32."""
    generator = torch.Generator().manual_seed(0)
    root = math.sqrt(SIZE)
    teacher = torch.zeros(SIZE)
    teacher[0] = root
    w = torch.randn(SIZE, generator=generator).requires_grad_()

    def steps(count: int) -> None:
        for _ in range(count):
            x = torch.randn((2, SIZE), generator=generator) / root
            (gradient,) = torch.autograd.grad(loss(x, w, teacher), w)
            with torch.no_grad():
                w.sub_(rate * gradient)
                w.mul_(root / w.norm())

    steps(LOOP_STEPS // 10)
    begun = time.process_time()
    steps(LOOP_STEPS)
    return (time.process_time() - begun) / LOOP_STEPS


def run(task: SequenceSingleIndex, steps: int) -> np.ndarray:
    simulation = ProjectedSGD(task, times=(steps * float(task.learning_rate) / SIZE,))
    return replicate(simulation, {}, size=SIZE, seeds=range(REPLICAS))[m]


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize(
    ("task", "loss"), [(TIED, tied_loss), (ATTENTION, attention_loss)], ids=["tied", "attention with positions"]
)
def test_five_hundred_times_a_loop(benchmark, task, loss):
    steps = 500_000
    run(task, 1)  # compiles
    found = benchmark.pedantic(run, args=(task, steps), rounds=3)
    assert np.isfinite(found).all()
    loop = seconds_of_a_loop_step(loss, float(task.learning_rate))
    chain = benchmark.stats.stats.min / (steps * REPLICAS)
    benchmark.extra_info.update(ratio=loop / chain, nanoseconds_per_step=1e9 * chain, loop_microseconds=1e6 * loop)
    assert loop > 500 * chain  # per replica and step, in processor time
