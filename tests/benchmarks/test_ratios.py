"""What the design buys, as ratios to a plain way in the same run; `-m benchmark -n 0`.

A ratio hardly depends on the machine. Each test asks for a third of the lower of two ratios measured on a busy machine,
which stand beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp
import torch
from scipy import integrate as scipy_integrate

import limitlaw
from derive.expectation import Expectation
from derive.hermite import HermiteExpansion, multi_indices
from derive.measures import standard_normal
from solve.compiled import compile_system
from solve.lower import lower
from tests.twins import stated
from verify.simulation import replicate
from verify.simulations.sequence_single_index import SphericalSGD

pytestmark = pytest.mark.benchmark

m, x, y = sp.symbols("m x y", real=True)


def seconds(baseline: Callable[[], object]) -> float:
    start = time.perf_counter()
    baseline()
    return time.perf_counter() - start


def times_faster(benchmark, subject: Callable[[], object], baseline: Callable[[], object], rounds: int = 3) -> float:
    """The baseline's seconds, once, over the subject's least; kept with the record of the benchmark."""
    subject()  # imports and caches of the packages
    benchmark.pedantic(subject, rounds=rounds)
    ratio = seconds(baseline) / benchmark.stats.stats.min
    benchmark.extra_info["ratio"] = ratio
    return ratio


def test_an_expansion_in_hermite_polynomials(benchmark):
    """L = 6, degree 12 by one pass over the terms, against a moment for each coefficient at L = 3, degree 8."""
    z = sp.symbols("z1:7", real=True)

    def moment(powers: tuple[int, ...]) -> int:
        return math.prod(0 if n % 2 else math.prod(range(1, n, 2)) for n in powers)

    def by_expressions() -> None:
        for degree in range(9):
            for alpha in multi_indices(3, degree):
                weight = sp.prod(sp.hermite_prob(n, v) for n, v in zip(alpha, z[:3], strict=True))
                terms = sp.expand(sum(z[:3]) ** 8 * weight).as_poly(*z[:3])
                sum(c * moment(powers) for powers, c in terms.terms()) if terms else 0

    # guards the sparse polynomial ring: an expansion of expressions takes minutes for the larger problem
    assert times_faster(benchmark, lambda: HermiteExpansion(sum(z) ** 12, z).degree, by_expressions) > 15  # 46, 100


def test_expectations_on_shared_nodes(benchmark):
    """Two expectations at 50 arguments in one compiled call, against lambdify of each and quad at each argument."""
    integrands = (sp.tanh(m * x + 1) ** 2, x * sp.tanh(m * x + 1))
    compiled = lower([Expectation(e, (x,), standard_normal(1)) for e in integrands], [m])
    at = np.linspace(0.1, 2, 50)

    def one_by_one() -> None:
        for e in integrands:
            f = sp.lambdify((x, m), e * sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi))
            for value in at:
                scipy_integrate.quad(f, -12, 12, args=(value,), epsabs=1e-12, epsrel=1e-10)

    # guards the batch axis and the grouping of expectations by their law
    assert times_faster(benchmark, lambda: compiled(at), one_by_one) > 17  # 53, 94


def test_a_sweep_of_flows(benchmark):
    """20 learning rates at once, against one after the other."""
    rates = np.linspace(0.05, 0.5, 20)
    task = limitlaw.load("h2sum-tied-relu")
    compiled = compile_system(limitlaw.derive(task).system)
    (gamma,) = (q.symbol for q in compiled.system.parameters if q.symbol.name != "d")
    times = np.linspace(0, 12, 50)

    def one_by_one() -> None:
        for rate in rates:
            compiled.integrate({gamma: rate}, times)

    # guards the leading batch axis of the integrator
    assert times_faster(benchmark, lambda: compiled.integrate({gamma: rates}, times), one_by_one) > 4  # 12, 18


def test_replicas_in_a_batch(benchmark):
    """64 replicas of 100 steps at d = 50 together, against a loop of autograd over one replica after the other."""
    length, size, replicas, steps, rate = 2, 50, 64, 100, 1 / 4
    task = stated("sum(h(2, z))", "relu(x)", length, start="3/10")
    simulation = SphericalSGD(task, times=(rate * steps / size,))

    def one_by_one() -> None:
        for seed in range(replicas):
            generator = torch.Generator().manual_seed(seed)
            draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: B023
            teacher, w = draw(size), draw(size)
            w *= math.sqrt(size) / w.norm()
            for _ in range(steps):
                tokens = draw(length, size) / math.sqrt(size)
                w.requires_grad_()
                target = (((tokens @ teacher) ** 2 - 1) / math.sqrt(2)).sum()
                loss = (torch.relu((tokens @ w).sum() / math.sqrt(length)) - target) ** 2 / 2
                (slope,) = torch.autograd.grad(loss, w)
                w = (w - rate * slope).detach()
                w *= math.sqrt(size) / w.norm()

    # guards the batch over replicas: a step must not cost a Python call for each
    subject = lambda: replicate(simulation, {}, size=size, seeds=range(replicas))
    assert times_faster(benchmark, subject, one_by_one) > 8  # 24, 25


def test_derivation_of_an_example(benchmark):
    """The shipped example from its file to equations and laws, against one expectation of it by sympy.integrate."""
    density = sp.exp(-(x**2 + y**2) / 2) / (2 * sp.pi)
    overlap = sp.Symbol("overlap", positive=True)
    output = sp.Heaviside(x) * x * ((overlap * x + y) ** 2 - 1)

    def by_integration() -> None:
        sp.integrate(sp.expand(output) * density, (y, -sp.oo, sp.oo), (x, 0, sp.oo))

    # guards the rules: nothing is integrated symbolically, nothing simplified
    subject = lambda: limitlaw.derive(limitlaw.load("h2sum-tied-relu"))
    assert times_faster(benchmark, subject, by_integration) > 1.3  # 4.0, 4.6
