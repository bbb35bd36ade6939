"""Signals needed by classes of models at several lengths."""

from __future__ import annotations

import numpy as np
import pytest

from solve.long_sequences import exponents, needs
from solve.oracle import fits
from solve.result import SolveError

LENGTHS = (10, 100, 1000, 10_000)


def test_linear_models_follow_the_root_and_hard_attention_the_largest_noise() -> None:
    found = needs(("pooled", "vectorised", "hard"), LENGTHS, 0.01)
    for name in ("pooled", "vectorised"):  # at even odds pooling is the best linear model
        theta = [n.value for n in found[name]]
        # Phi(-theta/(2 sqrt L)) = 1 %; theta is solved for to 1e-5
        np.testing.assert_allclose(theta, 2 * 2.3263478740408408 * np.sqrt(LENGTHS), rtol=3e-5)
        np.testing.assert_allclose(exponents(LENGTHS, found[name]), 0.5, atol=1e-4)
    slopes = exponents(LENGTHS, found["hard"])
    assert np.all(np.diff(slopes) < 0)  # no power of L
    assert slopes[-1] < 0.05
    assert fits(LENGTHS, [n.value for n in found["hard"]])[0].law == "sqrt(2 log L)"


@pytest.mark.slow
def test_attention_at_its_best_needs_what_hard_attention_needs() -> None:
    found = needs(("attention", "hard"), (10, 100), 0.01)
    for soft, hard in zip(found["attention"], found["hard"], strict=True):
        assert soft.value == pytest.approx(hard.value, rel=1e-4)  # the optimum is flat towards temperature 0


def test_other_names_and_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="no model class softmax"):
        needs(("softmax",), (10,), 0.01)
    with pytest.raises(SolveError, match="stays above"):
        needs(("pooled",), (10,), -1.0)
