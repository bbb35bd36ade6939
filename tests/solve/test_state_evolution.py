"""State evolution by the derived equations against that of linear indices, written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from derive.mechanisms.potential import m, m_hat, q, q_hat, sigma, sigma_hat
from derive.mechanisms.spectral_systems import half_steps
from derive.task import load
from solve.compiled import compile_system
from solve.state_evolution import evolution

STEPS = 5


def path(steps=STEPS):
    task = load("aim-direct", {"output": "linear", "T": "1", "alpha": "3/5"})
    values = {p.symbol: float(task.values.get(p.symbol, p.default)) for p in task.parameters}
    return {s.name: x for s, x in evolution(task, values, steps).items()}


def by_hand(first):
    """The prox of 2 |v0 - v|^2 has the force 4 (v0 - omega)/(1 + 4 Sigma); Frobenius penalty 1/10, k = 1, Q0 = 3/2."""
    response, size, overlap, rows = first, 0.0, 0.0, []
    for _ in range(STEPS):
        strength = 8 * 0.6 / (1 + 4 * response)
        noise = (1.5 + 0.25 - 2 * overlap + size) / (2 * 0.6)
        response = 1 / (strength + 4 * 0.1)
        size, overlap = (strength * response) ** 2 * (1.5 + noise), strength * response * 1.5
        rows.append((size, overlap, 1.5 - 2 * overlap + size, response))
    return dict(zip(("q", "m", "mse", "Sigma"), np.array(rows).T, strict=True))


def test_the_derived_iteration_is_that_of_linear_indices():
    found, expected = path(), by_hand(1.0)
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-11, err_msg=name)  # closed forms on both sides
    late = by_hand(expected["Sigma"][0])  # one iteration ahead in Sigma is another path
    assert abs(late["q"][0] / found["q"][0] - 1) > 0.05


def test_it_ends_at_the_fixed_point():
    """mse 0.4142857142857 at alpha = 0.6, lam_F = 0.1, Delta = 0.5 [spectral-erm, section 7]."""
    assert path(40)["mse"][-1] == pytest.approx(0.4142857142857, rel=1e-9)  # 40 iterations of a contraction by 0.55


def test_the_first_step_of_a_softmax_is_the_limit_of_small_students():
    """Conjugates at S = 0 against those at q = 1/100: to 2 per cent: terms of order q, samples over sqrt q."""
    task = load("aim-softmax", {"alpha": "1/2"})
    begin, forth, _ = half_steps(task.problem)
    values = {s: float(v) for s, v in task.values.items()}
    found = [
        compile_system(system).solve({p.symbol: {**values, **more}[p.symbol] for p in system.parameters})
        for system, more in ((begin, {sigma: 1.0}), (forth, {sigma: 1.0, q: 1e-2, m: 1e-2}))
    ]
    for s in (m_hat, q_hat, sigma_hat):
        assert float(found[0][s]) == pytest.approx(float(found[1][s]), rel=0.02)
