"""Speed of the loss of two tokens by its Mehler series; run with `-m benchmark -n 0`."""

from __future__ import annotations

import time

import numpy as np
import pytest
import sympy as sp

from derive.expectation import Expectation
from derive.functions import sigmoid
from derive.measures import Gaussian
from solve.lower import Lowered, lower

pytestmark = pytest.mark.benchmark
BUDGET = 4.0  # times the target: a busy machine

Z = z1, z2, z3, z4 = sp.symbols("z1:5", real=True)
m, e = sp.symbols("m e", real=True)
LAW = Gaussian([e, -e, 0, 0], [[1, 0, m, 0], [0, 1, 0, m], [m, 0, 1, 0], [0, m, 0, 1]])
LOSS = Expectation(sigmoid(z1 * (z1 - z2)) * sigmoid(z3 * (z3 - z4)), Z, LAW)


@pytest.fixture(scope="module")
def built() -> Lowered:
    found = lower([LOSS], [m, e])
    found(0.3, 0.2)
    return found


def test_building_the_tables(benchmark):
    benchmark.pedantic(lambda: lower([LOSS], [m, e])(0.3, 0.2), rounds=3)
    assert benchmark.stats.stats.min < 0.25 * BUDGET


def test_a_grid_of_forty_thousand_points(benchmark, built: Lowered):
    grid = np.meshgrid(*[np.linspace(-0.999, 0.999, 200)] * 2, indexing="ij")
    (value,), (error,) = benchmark(built, *grid)
    assert (error < 1e-11 * np.maximum(value, 0.1)).all()
    assert benchmark.stats.stats.min < 0.010 * BUDGET


def test_one_point(benchmark, built: Lowered):
    benchmark(built, 0.3, 0.2)
    assert benchmark.stats.stats.min < 100e-6 * BUDGET


def test_the_slopes_of_a_flow_at_one_point():
    slopes = lower([LOSS.diff(m), LOSS.diff(e)], [m, e])
    slopes(0.3, 0.2)
    start = time.perf_counter()
    for _ in range(200):
        slopes(0.3, 0.2)
    assert (time.perf_counter() - start) / 200 < 300e-6 * BUDGET
