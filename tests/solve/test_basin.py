"""Basins of flows on the disc against flows integrated forwards, and flows whose separatrix is known."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from solve.basin import basins, probability


def competition(a, b, c=2.0):
    """dm/dt = a m (1 - m^2 - c e^2), de/dt = b e (1 - e^2 - c m^2): either corner wins where c > 1."""

    def rate(x):
        m, e = x
        return np.array([a * m * (1 - m * m - c * e * e), b * e * (1 - e * e - c * m * m)])

    return rate


def wins(rate, m, e):
    """Whether the start ends on the side of m."""
    end = solve_ivp(lambda _, x: rate(x), (0, 400), [m, e], "DOP853", rtol=1e-11, atol=1e-14).y[:, -1]
    return abs(end[0]) > abs(end[1])


@pytest.mark.parametrize("exponent", [1.0, 0.7, 1.6])
def test_probability_is_that_of_sampled_starts(exponent):
    rng = np.random.default_rng(0)
    x, y = np.abs(rng.standard_normal((2, 400_000)))
    for kappa in (0.4, 2.0):
        p = np.mean(y < kappa * x**exponent)
        assert probability(kappa, exponent) == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / x.size))


def test_probability_is_continuous_at_equal_rates():
    assert probability(1.3, 1.0) == pytest.approx(2 / math.pi * math.atan(1.3), abs=1e-12)
    assert probability(1.3, 1 + 1e-7) == pytest.approx(probability(1.3, 1.0), abs=1e-6)


def test_a_symmetric_flow_is_decided_evenly():
    found = basins(competition(1.0, 1.0))
    assert found.kappa == pytest.approx(1, abs=1e-6)  # corrections ~ |x|^2 = 1e-6
    assert found.semantic() == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.7), (0.7, 1.0), (1.0, 0.95)])
def test_the_separatrix_parts_starts_that_end_apart(a, b):
    rate = competition(a, b)
    found = basins(rate)
    r = found.exponent
    assert r == pytest.approx(b / a, rel=1e-9)
    m = 0.02
    e = found.kappa * m**r
    assert wins(rate, m, 0.99 * e)  # corrections of order m^2 + e^2 < 0.5 per cent
    assert not wins(rate, m, 1.01 * e)


def test_one_attractor_takes_all():
    found = basins(competition(1.0, 0.5, c=0.5))
    assert found.ends is not None
    # both overlaps survive at m^2 = e^2 = 2/3: one attractor inside the disc, whichever start
    assert np.allclose(found.ends[0], found.ends[1], atol=1e-6)


def test_what_is_not_decided_says_why():
    assert "minimum" in basins(competition(-1.0, -0.5)).reason
    assert math.isnan(basins(competition(-1.0, -0.5)).semantic())
    tilted = competition(1.0, 0.7)
    assert "even" in basins(lambda x: tilted(x) + 0.1 * np.array([x[1], x[0]])).reason
