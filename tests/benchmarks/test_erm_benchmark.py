"""Speed of trained attention classifiers of ten tokens; run with `-m benchmark -n 0`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import sympy as sp

from derive.functions import softplus
from derive.task import derive, load
from solve.compiled import CompiledSystem
from solve.proximal import proximal_solver
from solve.result import Status
from solve.solution import evaluated_system, given_values

pytestmark = pytest.mark.benchmark
BUDGET = 3.0  # times the target: a busy machine


def warm(**changes: str) -> tuple[CompiledSystem, dict[sp.Symbol, Any]]:
    """A compiled system, solved once, and its parameters."""
    derivation = derive(load("sparse-token-attention", changes))
    compiled = evaluated_system(derivation)
    given = given_values(derivation, {})
    values = {q.symbol: given[q.symbol] for q in compiled.system.parameters}
    compiled.solve(values)
    return compiled, values


def test_a_logistic_point():
    compiled, values = warm(loss="logistic", lam="1/1000")
    start = time.perf_counter()
    found = compiled.solve({**values, compiled.system.symbol("alpha1"): 8.0})
    assert time.perf_counter() - start < 2 * BUDGET
    assert found.errors[compiled.system.symbol("test_error")] < 3e-4


def test_a_logistic_curve_of_fifty_points():
    compiled, values = warm(loss="logistic", lam="1/1000")
    start = time.perf_counter()
    found = compiled.solve({**values, compiled.system.symbol("alpha1"): np.linspace(1, 20, 50)})
    assert time.perf_counter() - start < 60
    assert found.status is Status.converged


def test_a_square_loss_curve_of_two_hundred_points():
    compiled, values = warm(loss="square", lam="1/1000")
    start = time.perf_counter()
    found = compiled.solve({**values, compiled.system.symbol("alpha1"): np.linspace(1, 20, 200)})
    assert time.perf_counter() - start < 5 * BUDGET
    assert found.status is Status.converged


@pytest.mark.parametrize("step", [1.0, 1e4])
def test_the_logistic_prox_of_thirty_thousand_points(benchmark, step: float):
    solver = proximal_solver(sp.Lambda(sp.Symbol("u", real=True), softplus(-sp.Symbol("u", real=True))))
    points = 3 * np.random.default_rng(0).standard_normal(2**15)
    with np.errstate(all="ignore"):
        benchmark(solver, step, points)
    assert benchmark.stats.stats.min < 0.008 * BUDGET
