"""Attention-indexed models in numbers: values of the theory note, limits, thresholds, and where the theory ends.

Values in brackets of the note carry their own error; the others agree to the digits given. Source of all that is typed
here: the note on arXiv:2509.24914, section 7 and the replicon of section 2, each checked there by simulation.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import scipy.optimize
import sympy as sp

import limitlaw
from derive.task import Derivation
from solve.base_spectra import AtomicBase
from solve.condensed_spectra import condensed
from solve.free_convolution import convolve
from solve.result import Status
from solve.solution import Solution, solve_derivation


@pytest.fixture(scope="module")
def linear() -> Derivation:
    return limitlaw.derive(limitlaw.load("aim-linear"))


@pytest.fixture(scope="module")
def softmax() -> Derivation:
    return limitlaw.derive(limitlaw.load("aim-softmax"))


def solved(derivation: Derivation, **parameters: float) -> Solution:
    return solve_derivation(derivation, parameters)


def numbers(solution: Solution) -> dict[str, float]:
    assert solution.prediction is not None
    return {s.name: float(v) for s, v in solution.prediction.values.items()}


LINEAR: list[tuple[Mapping[str, float], Mapping[str, float]]] = [
    (
        {"alpha": 0.2, "lam": 0.1},
        {
            **{"delta": 1.6217497687, "eps": 1.2651495654, "mse": 0.8020289249, "objective": 0.0599007059},
            **{"rank": 0.38593143, "training_loss": 0.0041079387},
        },
    ),
    (
        {"alpha": 0.5, "lam": 1},
        {"mse": 0.3511535071, "objective": 0.6805128780, "rank": 0.39434409, "training_loss": 0.2174261703},
    ),
]


@pytest.mark.parametrize(("given", "expected"), LINEAR)
def test_the_linear_channel(linear: Derivation, given: Mapping[str, float], expected: Mapping[str, float]) -> None:
    found = numbers(solved(linear, kappa0=0.5, Delta=0.5, **given))
    # 5e-9: half a unit of the last digit that the note gives for the rank
    assert {k: found[k] for k in expected} == pytest.approx(dict(expected), abs=5e-9)


def test_weight_decay_counts_with_the_width(linear: Derivation) -> None:
    """lam |W|^2 is sqrt(kappa) lam d Tr S: four times the width and half the decay is the same problem."""
    one, other = (numbers(solved(linear, alpha=0.5, kappa=k, lam=d)) for k, d in ((1.0, 0.4), (4.0, 0.2)))
    assert one == pytest.approx(other, rel=1e-8)


# ---- a vanishing penalty ------------------------------------------------------------------------------------
@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.45, 1.0])
def test_no_penalty_is_the_limit_of_a_small_one(linear: Derivation, alpha: float) -> None:
    """To 1e-3: the corrections are of first order in lam = 1e-6, over the square root of the distance to the peak."""
    zero, small = (numbers(solved(linear, alpha=alpha, lam=v)) for v in (0.0, 1e-6))
    names = ("mse", "rank", "delta", "replicon", "training_loss")
    assert {k: zero[k] for k in names} == pytest.approx({k: small[k] for k in names}, rel=1e-3, abs=1e-5)


def test_at_the_interpolation_threshold(linear: Derivation) -> None:
    """The peak of the ridgeless error, 2.97743799 in the note, with a word that this is a threshold."""
    found = solved(linear, alpha=0.30696420571812827, lam=0.0)
    assert numbers(found)["mse"] == pytest.approx(2.97743799, abs=5e-9)
    assert any("threshold" in note for note in found.notes)


def test_above_collapse_nothing_is_learnt(linear: Derivation) -> None:
    """lambda_c = 4.6307252: below it S has a few eigenvalues, above it none."""
    below, above = (numbers(solved(linear, alpha=0.2, lam=v)) for v in (4.55, 4.7))
    assert 0 < below["rank"] < 2e-3
    assert above["rank"] == 0
    assert above["mse"] == pytest.approx(1.5, rel=1e-12)


# ---- factorised against direct ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("alpha", "factorised", "direct"), [(0.2, 0.7725, 1.0183), (0.4, 0.3634, 0.6379), (1.0, 0.1158, 0.1930)]
)
def test_weights_beat_the_matrix_at_the_best_penalty(
    linear: Derivation, alpha: float, factorised: float, direct: float
) -> None:
    """mse at each one's best penalty, section 7: to half a unit of the digits given, a minimum being flat."""
    other = limitlaw.derive(limitlaw.load("aim-direct", {"output": "linear", "T": "1"}))
    best = []
    for derivation, name in ((linear, "lam"), (other, "lam_F")):
        found = scipy.optimize.minimize_scalar(
            lambda v, d=derivation, n=name: numbers(solved(d, alpha=alpha, **{n: float(np.exp(v))}))["mse"],
            bounds=(np.log(1e-3), np.log(10.0)),
            method="bounded",
            options={"xatol": 1e-3},
        )
        best.append(found.fun)
    assert best == pytest.approx([factorised, direct], abs=5.1e-5)


# ---- thresholds ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kappa0", "k_alpha"), [("1/10", 0.157571815116295), ("1/2", 0.422174982185506), ("3/4", 0.482760766821117)]
)
@pytest.mark.parametrize(("output", "tokens", "k"), [("linear", "1", 1), ("linear", "2", 3), ("softmax", "3", 5)])
def test_recovery(kappa0: str, k_alpha: float, output: str, tokens: str, k: int) -> None:
    task = limitlaw.load(
        "aim-thresholds", {"kappa0": kappa0, "output": output, "T": tokens, "student.parametrisation": "direct"}
    )
    found = solved(limitlaw.derive(task))
    assert k * numbers(found)["alpha_recovery"] == pytest.approx(k_alpha, abs=1e-12)  # what is asked of thresholds
    assert "lambda_collapse" in found.reasons


def test_thresholds_of_a_wishart_target() -> None:
    found = numbers(solved(limitlaw.derive(limitlaw.load("aim-thresholds", {"output": "linear", "T": "1"}))))
    assert found["alpha_interpolation"] == pytest.approx(0.306964205718, abs=1e-12)
    assert found["mse_interpolation"] == pytest.approx(2.97743799, abs=5e-9)
    assert found["lambda_collapse"] == pytest.approx(4.6307252, abs=5e-8)
    split = sp.sqrt((1 - sp.Rational(1, 2) ** sp.Rational(1, 3)) ** 3 * 2)  # section 3, exact
    assert found["delta_split"] == pytest.approx(float(split), rel=1e-10)


def test_thresholds_that_do_not_exist_have_a_reason() -> None:
    found = solved(limitlaw.derive(limitlaw.load("aim-thresholds", {"kappa0": "2"})))
    assert {"alpha_recovery", "delta_split"} <= found.reasons.keys()
    assert "alpha_interpolation" in numbers(found)


# ---- softmax ------------------------------------------------------------------------------------------------
SOFTMAX = {
    0.05: {"test_error": 0.38809, "mse": 1.15518, "objective": 0.0028910, "rank": 0.23080, "test_error_clean": 0.3471},
    0.25: {"test_error": 0.18835, "mse": 0.3818, "objective": 0.009598, "rank": 0.5584, "test_error_clean": 0.1237},
    1.0: {"test_error": 0.10198, "mse": 0.09341, "objective": 0.05793, "rank": 0.68269, "test_error_clean": 0.0300},
}
ERRORS = {"test_error": 4e-5, "mse": 1e-4, "objective": 4e-5, "rank": 1e-4, "test_error_clean": 5e-5}  # of the note
REPLICON = {0.05: 0.546, 0.25: 0.64, 1.0: 0.283}


@pytest.mark.parametrize(
    "alpha", [pytest.param(0.05, marks=pytest.mark.slow), 0.25, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_the_softmax_channel(softmax: Derivation, alpha: float) -> None:
    """Within four standard errors of both, the note's and the sampled points' own."""
    solution = solved(softmax, alpha=alpha, lam=0.01)
    found, prediction = numbers(solution), solution.prediction
    assert prediction is not None
    own = {s.name: float(e) for s, e in prediction.errors.items()}
    for name, value in SOFTMAX[alpha].items():
        assert abs(found[name] - value) < 4 * np.hypot(ERRORS[name], own[name]), name
        assert own[name] < 2e-3 * max(found[name], 0.1), name  # so 1 per cent off would be seen
    assert found["replicon"] == pytest.approx(REPLICON[alpha], abs=0.02 if alpha == 0.25 else 2e-3)


def test_a_wrong_channel_moves_the_solution(softmax: Derivation) -> None:
    """The power of the test above: 5 per cent more noise moves the test error by more than ten of its errors."""
    right, wrong = (solved(softmax, alpha=0.25, lam=0.01, Delta=v) for v in (0.5, 0.525))
    assert right.prediction is not None
    error = max(float(e) for s, e in right.prediction.errors.items() if s.name == "test_error")
    assert abs(numbers(right)["test_error"] - numbers(wrong)["test_error"]) > 10 * error


# ---- where the theory ends ----------------------------------------------------------------------------------
def test_too_few_columns_are_said(linear: Derivation) -> None:
    """rank 0.386 at kappa = 1; with kappa = 0.3 the minimum cannot be reached by W."""
    assert not solved(linear, alpha=0.2, lam=0.1).notes
    assert any("kappa" in note for note in solved(linear, alpha=0.2, lam=0.1, kappa=0.3).notes)


def test_large_eigenvalues_in_a_softmax_are_said() -> None:
    changes = {"target.spectrum": '{ power = { gamma = "3/2", d = 400 } }'}
    task = limitlaw.load("aim-softmax", changes)
    assert any("O(1)" in c.text for c in task.cautions)


# ---- power laws ---------------------------------------------------------------------------------------------
def test_the_decomposition_sums_to_the_error() -> None:
    """Noise, modes not recovered, recovered modes: to 2 per cent, of which modes near delta take 0.5 at this d."""
    spectrum = '{ power = { gamma = "3/2", d = 30000 } }'
    found = numbers(
        solved(limitlaw.derive(limitlaw.load("aim-power-law", {"target.spectrum": spectrum})), alpha=1e-3, lam=1e-3)
    )
    parts = [found[k] for k in ("e_over", "e_under", "e_approx", "e_mismatch")]
    assert min(parts[:3]) > 0.05 * found["mse"]  # so each matters
    assert sum(parts) == pytest.approx(found["mse"], rel=0.02)


@pytest.mark.parametrize(("gamma", "delta"), [(1.5, 1.0), (0.75, 10.0), (1.0, 2.0)])
def test_condensed_spectra_are_the_same(gamma: float, delta: float) -> None:
    """Averages of the convolution of 2000 atoms and of the few in their place, to rounding."""
    points = np.sqrt(2000.0) * np.arange(1, 2001) ** -gamma
    base = AtomicBase(points, np.full(2000, 1 / 2000))
    few = condensed(base, delta**2)
    assert len(few.atoms[0]) < 150
    one, other = (convolve(b, delta**2).nodes((delta,)) for b in (base, few))
    for n in range(4):
        above = [(w.weight * np.maximum(w.x - delta, 0.0) ** n) for w in (one, other)]
        assert above[0].sum() == pytest.approx(above[1].sum(), rel=1e-12)
        transformed = [(a * w.hilbert).sum() for a, w in zip(above, (one, other), strict=True)]
        assert transformed[0] == pytest.approx(transformed[1], rel=1e-11)


def test_a_solution_says_that_it_converged(linear: Derivation) -> None:
    prediction = solved(linear, alpha=0.5, lam=0.1).prediction
    assert prediction is not None
    assert prediction.status is Status.converged
    assert prediction.residual < 1e-9
