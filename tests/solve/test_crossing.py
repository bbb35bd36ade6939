"""Critical parameters and laws of many samples: against closed forms and the values of the theory's checked notes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from derive.task import Derivation, derive, load
from derive.tasks.sparse_token import SparseToken
from solve.crossing import Branch, Criterion, Measured, crossing, many_samples, measured
from solve.result import SolveError

S = 5 / math.sqrt(10)  # theta R/sqrt L
LINEAR = ndtr(-S / 2)  # the least error of a linear model


def derived(name: str, **changes: str) -> Derivation[SparseToken]:
    given = {k.replace("__", "."): v for k, v in changes.items()}
    return derive(load(f"sparse-token-{name}", {"loss": "square", "lam": "0", **given}))


def limit(branch: Branch) -> Measured:
    return many_samples(branch, "test_error", "alpha1")[0]


def constant(branch: Branch) -> Measured:
    return many_samples(branch, "test_error", "alpha1")[1]


def loses(branch: Branch, s_q: float) -> Measured:
    """Attention's error with many samples over that of the linear models."""
    level, _ = many_samples(branch, "test_error", "alpha1", s_q=s_q)
    return replace(level, value=level.value - LINEAR)


@pytest.mark.parametrize(("model", "tokens"), [("pooled", 1), ("vectorised", 10)])
def test_many_samples_in_closed_form(model: str, tokens: int) -> None:
    """E_inf = Phi(-s/2), K = phi(s/2)(4 + s^2)/(4 s) for pooling, L times that for all tokens side by side."""
    found = derived(model)
    level, slope = measured(found, limit), measured(found, constant)
    expected = tokens * math.exp(-S * S / 8) / math.sqrt(2 * math.pi) * (4 + S * S) / (4 * S)
    assert level.error < 1e-6
    assert abs(level.value - LINEAR) <= level.error + 1e-11  # Newton's rounding
    assert slope.error < 1e-3
    assert abs(slope.value - expected) <= slope.error + 1e-8


def test_a_crossing_by_hand() -> None:
    """Without a ridge the training loss of pooling is pi (1 - pi)/(1 + pi (1 - pi) s^2) 2 (1 - 1/alpha1)."""
    found = derived("pooled")
    criterion: Criterion = lambda branch, x: replace(
        here := branch.at("training_loss", alpha1=x), value=here.value - 0.2
    )
    least = 0.25 / (1 + 0.25 * S * S) * 2  # half the mean square that the best linear prediction leaves
    root = crossing(found, criterion, 1.5, 6)
    assert abs(root.value - 1 / (1 - 0.2 / least)) <= root.error + 1e-8  # Newton's rounding over the slope
    assert root.error < 1e-6
    moved = crossing(found, lambda b, x: replace(criterion(b, x), value=criterion(b, x).value + 0.01), 1.5, 6)
    assert abs(moved.value - root.value) > 0.05 * root.value


def test_what_is_no_crossing_is_refused() -> None:
    found = derived("pooled")
    with pytest.raises(SolveError, match="does not change sign"):
        crossing(found, lambda branch, x: branch.at("test_error", alpha1=x), 2, 3)
    with pytest.raises(SolveError, match="changes sign 2 times"):
        crossing(found, lambda _, x: Measured((x - 2.3) * (x - 2.7), 0.0), 2, 3)
    with pytest.raises(ValueError, match="low < high"):
        crossing(found, lambda _, x: Measured(x, 0.0), 3, 2)
    with pytest.raises(ValueError, match="no parameter"):
        measured(found, lambda branch: branch.at("test_error", alpha=1))
    with pytest.raises(ValueError, match="2 runs"):
        measured(found, limit, runs=1)


@pytest.mark.slow
def test_runs_scatter_as_each_of_them_says() -> None:
    found = derived("attention", solve__samples="1024")
    single: list[Measured] = []
    mean = measured(found, lambda b: single.append(b.at("training_loss")) or single[-1], runs=6)
    x = np.array([m.value for m in single])
    assert len(set(x.tolist())) == 6
    assert mean.value == pytest.approx(x.mean(), rel=1e-12)  # rounding
    assert mean.error == pytest.approx(x.std(ddof=1) / math.sqrt(6), rel=1e-12)
    ratio = x.std(ddof=1) / np.mean([m.error for m in single])
    assert 0.2 < ratio < 2.3  # chi^2 with 5 degrees of freedom, 1e-3 on either side


@pytest.mark.slow
def test_attention_with_many_samples() -> None:
    """0.031180(2) and 0.04874(1) in the theory's notes."""
    found = derived("attention", solve__samples="65536")
    level, slope = measured(found, limit, runs=4), measured(found, constant, runs=4)
    assert level.error < 5e-5
    assert abs(level.value - 0.031180) < 6 * (level.error + 2e-6)  # t with 3 degrees of freedom: 1 % false alarms
    assert slope.error < 3e-4
    assert abs(slope.value - 0.04874) < 6 * (slope.error + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("kappa", "expected"), [(0.5, 0.111), (2, 0.278), (5, 0.329)])
def test_the_alignment_below_which_attention_loses(kappa: float, expected: float) -> None:
    found = derived("attention", solve__samples="16384")
    root = crossing(found, loses, expected - 0.08, expected + 0.08, {"kappa": kappa}, runs=4)
    assert root.error < 5e-3
    assert abs(root.value - expected) < 6 * root.error + 1e-3  # t with 3 degrees of freedom; three digits given
