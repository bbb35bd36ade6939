"""Sparse tokens at finite size: against known values of the limit, against the derived theory, and wrong theories.

The values are those of arXiv:2509.25153's model at theta = 5, L = 10, R = 1, pi = 1/2, computed anew by an independent
program. Every comparison has a false-alarm rate of 1e-6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import sympy as sp

from derive.mechanisms.convex_erm import rho_symbol, step_symbol
from derive.task import derive, load
from solve.result import SolveError
from solve.solution import solve_derivation
from verify.check import check
from verify.experiment import experiment
from verify.simulation import replicate
from verify.simulations.sparse_token import Separability, SparseTokenSimulation
from verify.statistics import Verdict, compare, extrapolate

pytestmark = pytest.mark.slow

SIZES = (100, 200, 400)
POOLED, ATTENTION, VECTORISED = "sparse-token-pooled", "sparse-token-attention", "sparse-token-vectorised"
ALIGNMENT, CAPACITY = "sparse-token-alignment", "sparse-token-capacity"
RIDGELESS = {"loss": "square", "lam": "0"}
RARE = {"loss": "logistic", "R": "3", "pi": "1/5", "theta": "6", "eta_w": "1/2", "eta_b": "1/2", "eta_q": "1/2"}


def ensembles(name: str, changes: Mapping[str, str], sizes=SIZES, seeds=48):
    task = load(name, changes)
    values = {q.symbol: float(task.values.get(q.symbol, q.default)) for q in task.parameters}
    return [replicate(SparseTokenSimulation(task), values, size=d, seeds=range(seeds)) for d in sizes]


def against(found, expected: Mapping[str, float]):
    columns = {sp.Symbol(name, real=True): np.asarray(v) for name, v in expected.items()}
    return compare([columns] * len(found), found)


# ---------------------------------------------------------------- known values

VALUES = {
    "pooled, square, 1/2": (POOLED, {**RIDGELESS, "alpha1": "1/2"}, {"test_error": 0.3925141027}),
    "pooled, square, 2": (
        POOLED,
        {**RIDGELESS, "alpha1": "2"},
        {"test_error": 0.3384611195, "training_loss": 0.1538461538},
    ),
    "pooled, square, 8": (
        POOLED,
        {**RIDGELESS, "alpha1": "8"},
        {"test_error": 0.2498133732, "training_loss": 0.2692307692},
    ),
    "pooled, logistic, 2": (
        POOLED,
        {"alpha1": "2", "lam": "1e-5"},
        {"test_error": 0.3405051680, "training_loss": 0.0077423410},
    ),
    "pooled, logistic, 5": (
        POOLED,
        {"alpha1": "5", "lam": "1e-2"},
        {"test_error": 0.2543306635, "training_loss": 0.4085695457},
    ),
    "pooled, hinge, 2": (
        POOLED,
        {"loss": "hinge", "alpha1": "2", "lam": "1e-2"},
        {"test_error": 0.315526, "training_loss": 0.186787},
    ),
    "attention, square, 1/2": (ATTENTION, {**RIDGELESS, "alpha1": "1/2"}, {"test_error": 0.110524}),
    "attention, square, 2": (ATTENTION, {**RIDGELESS, "alpha1": "2"}, {"test_error": 0.089611}),
    "attention, square, 8": (ATTENTION, {**RIDGELESS, "alpha1": "8"}, {"test_error": 0.038809}),
}


@pytest.mark.parametrize("case", VALUES)
def test_classifiers_reach_the_known_values(case):
    name, changes, expected = VALUES[case]
    seeds = {"attention, square, 1/2": 320, "attention, square, 2": 128}.get(case, 48)
    comparison = against(ensembles(name, changes, seeds=seeds), expected)
    assert comparison.agrees, comparison.tested
    assert comparison.resolution < 0.08  # a theory that is off by more would be found


def test_vectorised_without_ridge_needs_ten_times_the_samples_of_pooled():
    found = ensembles(VECTORISED, {**RIDGELESS, "alpha1": "20"}, sizes=(20, 40, 80), seeds=32)
    comparison = against(found, {"test_error": 0.3384611195, "training_loss": 0.1538461538})
    assert comparison.agrees, comparison.tested
    assert comparison.resolution < 0.08


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"loss": "square"}, {"overlap_q": 0.21796875, "norm_q": 0.23273416258, "s_q": 0.93655674607}),
        ({**RARE, "alpha0": "2"}, {"s_q": 0.9075}),
        ({**RARE, "alpha0": "8"}, {"s_q": 0.9755}),
    ],
)
def test_queries_after_two_steps_reach_the_known_values(changes, expected):
    comparison = against(ensembles(ALIGNMENT, changes, sizes=(125, 250, 500), seeds=64), expected)
    assert comparison.agrees, comparison.tested
    assert comparison.resolution < 0.05


@pytest.mark.parametrize(("alpha1", "error"), [("1/2", 0.0999), ("2", 0.0815), ("4", 0.0434)])
def test_the_four_stages_reach_the_known_values(alpha1, error, tmp_path):
    path = tmp_path / "protocol.toml"
    path.write_text(PROTOCOL, encoding="utf-8")
    comparison = against(ensembles(path, {"alpha1": alpha1}, seeds=32), {"test_error": error})
    assert comparison.agrees, comparison.tested


PROTOCOL = """
limitlaw = 1
family = "sparse-token"
[parameters]
alpha1 = { domain = "(0,inf)", default = 2 }
lam = { domain = "[0,inf)", default = "1e-5" }
[data]
L = 10
R = 1
theta = 5
[student]
kind = "attention"
beta = 3
[steps]
alpha0 = 2
[erm]
loss = "square"
ridge = "lam"
"""


@pytest.mark.parametrize(("model", "capacity", "sizes"), [("pooled", 2.950075, (25, 50, 100))])
def test_separability_ends_at_the_capacity(model, capacity, sizes):
    task = load(CAPACITY, {"model": model})
    values = {q.symbol: float(task.values.get(q.symbol, q.default)) for q in task.parameters}
    found = [replicate(Separability(task), values, size=d, seeds=range(100)) for d in sizes]
    comparison = against(found, {"capacity": capacity})
    assert comparison.agrees, comparison.tested
    (alphas,) = zip(*(e.observed.values() for e in found), strict=True)
    fit = extrapolate(sizes, [a.mean() for a in alphas], [a.std(ddof=1) / 10 for a in alphas])
    assert fit.b > -3 * fit.b_err  # small systems are separated beyond it


# ---------------------------------------------------------------- the derived theory, right and wrong


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (POOLED, {"loss": "hinge", "lam": "1e-2", "alpha1": "3"}),
        (ATTENTION, {"lam": "1e-2", "alpha1": "4"}),
        (VECTORISED, {"lam": "1e-2", "alpha1": "12", "positions": "[3, 1, 1, 1, 1, 1, 1, 1, 1, 1]"}),
        (ALIGNMENT, {"loss": "hinge", "alpha0": "1", "reuse": "false"}),
    ],
)
def test_theory_and_simulation_agree(name, changes):
    sizes = "[20, 40, 80]" if name == VECTORISED else "[100, 200, 400]"
    checked = check(derive(load(name, {**changes, "verify.dimensions": sizes, "verify.seeds": "64"})))
    assert checked.comparison.agrees, checked.comparison.tested
    assert checked.control is not None


def divided_by_r(derivation):
    """The equation of V with E[sigma G loss'] over r instead of rho."""
    system, problem = derivation.system, derivation.task.problem
    equation, r = system.equation(step_symbol), system.equation(system.symbol("r")).rhs
    rest = problem.alpha * step_symbol * problem.ridge - 1
    wrong = replace(equation, rhs=sp.expand(equation.rhs - rest) * rho_symbol / r + rest)
    return replace(system, equations=tuple(wrong if e is equation else e for e in system.equations))


def other_task(changes):
    """The system of a changed task."""
    return lambda derivation: derive(load(*changes)).system


REUSED = {"loss": "logistic", "alpha0": "1/4", "eta_w": "4", "eta_b": "1", "reuse": "true"}
TRAINED = {"lam": "1e-2", "alpha1": "4", "s_q": "2/5"}
MARGINS = {"loss": "hinge", "lam": "1e-2", "alpha1": "3"}

MUTANTS = {
    "no self-term of reused data": (ALIGNMENT, REUSED, other_task((ALIGNMENT, {**REUSED, "reuse": "false"}))),
    "V divided by r": (ATTENTION, TRAINED, divided_by_r),
    "margin 1/2 instead of 1": (POOLED, MARGINS, other_task((POOLED, {**MARGINS, "loss": "max(0, 1/2 - y*u)"}))),
    "ridge times alpha1": (ATTENTION, TRAINED, other_task((ATTENTION, {**TRAINED, "ridge": "alpha1*lam"}))),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_theories_are_caught(mutant):
    name, changes, mutated = MUTANTS[mutant]
    derivation = derive(load(name, changes))
    plan = experiment(derivation, solve_derivation(derivation))
    found = ensembles(name, changes, seeds=32)
    right, wrong = ([plan.predict(s, e) for e in found] for s in (derivation.system, mutated(derivation)))
    shift = {s: abs(float(wrong[-1][s] / v) - 1) for s, v in right[-1].items() if v}
    assert max(shift.values()) >= 0.05
    assert compare(right, found).agrees
    assert compare(wrong, found).verdict is Verdict.disagrees, shift


def test_a_hinge_at_zero_has_no_solution_to_compare():
    with pytest.raises(SolveError):  # max(0, -y u) is least at w = 0, where nothing is determined
        solve_derivation(derive(load(POOLED, {**MARGINS, "loss": "max(0, -y*u)"})))
