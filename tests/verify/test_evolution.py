"""State evolution by the derived equations against that of linear indices, written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from derive.task import load
from verify.attention_indexed.evolution import evolution

STEPS = 5


def path(steps=STEPS):
    task = load("aim-direct", {"output": "linear", "T": "1", "alpha": "3/5"})
    values = {p.symbol: float(task.values.get(p.symbol, p.default)) for p in task.parameters}
    return {s.name: x for s, x in evolution(task, values, steps).items()}


def by_hand(first):
    """The prox of 2 |v0 - v|^2 has the force 4 (v0 - omega)/(1 + 4 Sigma); Frobenius penalty 1/10, k = 1, Q0 = 3/2."""
    sigma, q, m, rows = first, 0.0, 0.0, []
    for _ in range(STEPS):
        strength = 8 * 0.6 / (1 + 4 * sigma)
        noise = (1.5 + 0.25 - 2 * m + q) / (2 * 0.6)
        sigma = 1 / (strength + 4 * 0.1)
        q, m = (strength * sigma) ** 2 * (1.5 + noise), strength * sigma * 1.5
        rows.append((q, m, 1.5 - 2 * m + q, sigma))
    return dict(zip(("q", "m", "mse", "Sigma"), np.array(rows).T, strict=True))


def test_the_derived_iteration_is_that_of_linear_indices():
    found, expected = path(), by_hand(1.0)
    for name, x in expected.items():
        # the first half step is a mean over 2^16 labels: sqrt(2/2^16) = 0.55 per cent of q_hat, four of them
        np.testing.assert_allclose(found[name], x, rtol=0.022, err_msg=name)
    np.testing.assert_allclose(found["Sigma"], expected["Sigma"], rtol=1e-12)  # needs no mean of labels
    late = by_hand(expected["Sigma"][0])  # one iteration ahead in Sigma is another path
    assert abs(late["q"][0] / found["q"][0] - 1) > 0.05


def test_it_ends_at_the_fixed_point():
    """mse 0.4142857142857 at alpha = 0.6, lam_F = 0.1, Delta = 0.5 [spectral-erm, section 7]."""
    assert path(40)["mse"][-1] == pytest.approx(0.4142857142857, rel=1e-9)  # 40 iterations of a contraction by 0.55
