"""Sparse tokens in numbers, against values of the theory's checked notes and of closed forms.

The numbers typed here were computed for arXiv:2509.25153 by another program (quadrature, Newton, simulation), to the
digits given; a bracket there is an error bound, which is repeated here.
"""

from __future__ import annotations

import math

import pytest

import limitlaw
from derive.task import load
from solve.result import Status
from solve.solution import Solution


def solved(name: str, **changes: str) -> Solution:
    return limitlaw.solve(limitlaw.derive(load(name, {k.replace("__", "."): v for k, v in changes.items()})))


def values(name: str, **changes: str) -> dict[str, float]:
    found = solved(name, **changes).prediction
    assert found is not None
    assert found.status is Status.converged
    return {s.name: float(v) for s, v in found.values.items()}


@pytest.mark.parametrize(
    ("alpha1", "test_error", "training_loss"),
    [("1/2", 0.3925141027, 0.0), ("2", 0.3384611195, 0.1538461538), ("4", 0.2814168770, 0.2307692308)],
)
def test_pooled_square_ridgeless(alpha1: str, test_error: float, training_loss: float) -> None:
    found = values("sparse-token-pooled", loss="square", lam="0", alpha1=alpha1)
    assert found["test_error"] == pytest.approx(test_error, abs=1e-10)  # the digits given
    assert found["training_loss"] == pytest.approx(training_loss, abs=1e-10)


def test_ridgeless_vectorised_is_pooled_with_fewer_samples() -> None:
    """E_pool(alpha) = E_vec(L alpha), exactly."""
    pooled = values("sparse-token-pooled", loss="square", lam="0", alpha1="3")
    vectorised = values("sparse-token-vectorised", loss="square", lam="0", alpha1="30")
    assert vectorised["test_error"] == pytest.approx(pooled["test_error"], abs=1e-9)  # Newton to 1e-10


@pytest.mark.parametrize(
    ("changes", "test_error", "training_loss"),
    [
        ({"alpha1": "2", "lam": "1e-5"}, 0.3405051680, 0.0077423410),
        ({"alpha1": "5", "lam": "1/100"}, 0.2543306635, 0.4085695457),
    ],
)
def test_pooled_logistic(changes: dict[str, str], test_error: float, training_loss: float) -> None:
    found = values("sparse-token-pooled", **changes)
    assert found["test_error"] == pytest.approx(test_error, abs=1e-9)  # ten digits, with quadrature at 1e-10
    assert found["training_loss"] == pytest.approx(training_loss, abs=1e-9)


def test_pooled_hinge() -> None:
    found = values("sparse-token-pooled", loss="hinge", alpha1="2", lam="1/100")
    assert found["test_error"] == pytest.approx(0.315526, abs=1e-5)  # the bound given
    assert found["training_loss"] == pytest.approx(0.186787, abs=1e-5)


def test_a_vanishing_ridge_meets_its_limit() -> None:
    """Below capacity the hinge's minimum of vanishing ridge is the classifier of largest margin."""
    small, limit = (values("sparse-token-pooled", loss="hinge", alpha1="2", lam=lam) for lam in ("1e-5", "0"))
    assert small["test_error"] == pytest.approx(limit["test_error"], abs=1e-8)


def test_the_singularity_says_so() -> None:
    found = solved("sparse-token-pooled", loss="square", lam="0", alpha1="1").prediction
    assert found is not None
    assert found.status is Status.diverges
    known = {s.name: float(v) for s, v in found.values.items()}
    assert known["test_error"] == pytest.approx(0.5, abs=1e-6)  # the limit
    assert known["V"] == math.inf


def test_capacities() -> None:
    assert values("sparse-token-capacity", model="pooled")["capacity"] == pytest.approx(2.950075, abs=1e-6)
    assert values("sparse-token-capacity", model="vectorised")["capacity"] == pytest.approx(29.50075, abs=1e-5)


@pytest.mark.slow
def test_capacity_of_attention() -> None:
    found = solved("sparse-token-capacity").prediction
    assert found is not None
    symbol = next(s for s in found.values if s.name == "capacity")
    error = float(found.errors[symbol])
    assert error < 0.1
    assert float(found[symbol]) == pytest.approx(16.61, abs=0.005 + 3 * error)  # four digits given


def test_alignment_in_closed_form() -> None:
    found = values("sparse-token-alignment")
    expected = {"overlap_q": 0.21796875, "norm_q": 0.23273416258, "s_q": 0.93655674607, "C": 0.09978573615}
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=2e-11)  # the digits given


@pytest.mark.parametrize(("alpha0", "s_q"), [("1/2", 0.7016), ("1", 0.8283), ("4", 0.9520), ("8", 0.9755)])
def test_alignment_with_the_logistic_loss(alpha0: str, s_q: float) -> None:
    rates = {"eta_w": "1/2", "eta_b": "1/2", "eta_q": "1/2"}
    found = values("sparse-token-alignment", loss="logistic", R="3", pi="1/5", theta="6", alpha0=alpha0, **rates)
    assert found["s_q"] == pytest.approx(s_q, abs=6e-5)  # four digits given


def test_the_sign_of_the_alignment_at_a_large_step() -> None:
    assert values("sparse-token-alignment", eta_w="20", loss="hinge")["s_q"] < 0


def test_the_constant_by_expansion_is_the_slope_of_the_curve() -> None:
    found = values("sparse-token-alignment", alpha0="1000000")
    assert 1e6 * (1 - found["s_q"]) == pytest.approx(found["C"], rel=1e-4)  # the next order is 1/alpha0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha1", "value", "bound"),
    [("1/2", 0.110524, 2.1e-5), ("2", 0.089611, 7e-6), ("8", 0.038809, 6e-6)],
)
def test_attention_square_ridgeless(alpha1: str, value: float, bound: float) -> None:
    solution = solved("sparse-token-attention", loss="square", lam="0", alpha1=alpha1, solve__samples="131072")
    found = solution.prediction
    assert found is not None
    symbol = next(s for s in found.values if s.name == "test_error")
    error = float(found.errors[symbol])
    assert error < 2e-4
    assert abs(float(found[symbol]) - value) < 3 * (error + bound)  # three standard errors of both


@pytest.mark.slow
def test_sharpness_zero_is_pooling() -> None:
    """At kappa = 0 attention is the mean of the tokens, up to the direction of q, which is noise to it then."""
    attention = values("sparse-token-attention", kappa="0", loss="square", lam="1/100", alpha1="4")
    pooled = values("sparse-token-pooled", loss="square", lam="1/100", alpha1="4")
    assert attention["test_error"] == pytest.approx(pooled["test_error"], abs=2e-4)  # Sobol points


def test_corollary_two_constants() -> None:
    """E(alpha) = E_inf + K/alpha: K_pool = phi(s/2)(4 + s^2)/(4 s), E_inf = Phi(-s/2)."""
    s = 5 / math.sqrt(10)
    limit = 0.5 * math.erfc(s / 2 / math.sqrt(2))
    constant = math.exp(-s * s / 8) / math.sqrt(2 * math.pi) * (4 + s * s) / (4 * s)
    alpha = 1e5
    found = values("sparse-token-pooled", loss="square", lam="0", alpha1="100000")
    assert alpha * (found["test_error"] - limit) == pytest.approx(constant, rel=1e-4)  # the next order is 1/alpha


@pytest.mark.slow
def test_the_whole_protocol() -> None:
    steps = {"alpha0": "2", "reuse": "true", "beta": "3", "lam": "1e-5", "loss": "square"}
    text = load_protocol()
    for alpha1, value in (("4", 0.0434), ("3/2", 0.1234)):
        derivation = limitlaw.derive(load(text, {"alpha1": alpha1, **steps}))
        found = limitlaw.solve(derivation).prediction
        assert found is not None
        symbol = derivation.system.symbol("test_error")
        assert float(found[symbol]) == pytest.approx(value, abs=6e-4)  # four digits, and Sobol points


def load_protocol() -> object:
    from derive.document import Document
    from derive.task import example_text

    words = example_text("sparse-token-attention").replace("[query]\n", "[steps]\n")
    words = words.replace('s_q = "s_q"\nkappa = "kappa"\n', "alpha0 = 2\n")
    kept = [line for line in words.splitlines() if not line.startswith(("s_q", "kappa"))]
    return Document.read("\n".join(kept), "protocol")


def test_sweeps_follow_the_curve() -> None:
    from solve.solution_sweep import sweep_record

    derivation = limitlaw.derive(load("sparse-token-pooled", {"loss": "square", "lam": "0"}))
    record = sweep_record(derivation, [("alpha1", "1/2:4:8")], None)
    found = dict(zip([p["alpha1"] for p in record["points"]], record["values"]["test_error"], strict=True))
    assert found[0.5] == pytest.approx(0.3925141027, abs=1e-9)
    assert found[1.0] == pytest.approx(0.5, abs=1e-6)
    assert found[4.0] == pytest.approx(0.2814168770, abs=1e-9)
    assert found[2.0] == pytest.approx(0.3384611195, abs=1e-9)
