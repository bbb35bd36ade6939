from __future__ import annotations

import mpmath
import numpy as np
import pytest

from solve.flow import Box, Disc, DormandPrince, Stability, escape_time, flow_fixed_points, rests
from solve.result import Array, Status


def pitchfork(m: Array) -> Array:
    return m * (1 - m**2)


def positional(x: Array) -> Array:
    """Two overlaps of which e escapes first and then lets m grow."""
    m, e = x
    return np.array([m * (e**2 - 0.5) * (1 - m**2), e * (1 - e**2 - m**2)])


def exact_pitchfork(m0: Array, t: Array, rate: float = 1.0) -> Array:
    """dm/dt = rate m (1 - m^2)."""
    m0 = np.asarray(m0)
    return np.sign(m0) / np.sqrt(1 + (m0**-2.0 - 1) * np.exp(-2 * rate * t))


# ------------------------------------------------------------------------------------------ integration


@pytest.mark.parametrize("start", [1e-12, 1e-6, 1e-3, 0.3, -0.2])
def test_a_flow_against_its_exact_solution(start):
    times = np.linspace(0, 40, 21)
    found = DormandPrince().integrate(pitchfork, [start], times)
    truth = exact_pitchfork(start, times)
    assert found.status is Status.converged
    assert np.max(np.abs(found.x[:, 0] / truth - 1)) < 1e-9  # the promised relative accuracy, small starts included
    assert np.all(np.abs(found.x[:, 0] - truth) <= found.error[:, 0])


def test_many_starts_advance_as_one_system_without_losing_digits():
    m0 = np.geomspace(1e-6, 0.9, 500)
    times = np.array([0.0, 1.0, 5.0, 20.0])
    found = DormandPrince().integrate(pitchfork, m0[None], times)
    truth = exact_pitchfork(m0, times[:, None])
    assert found.x.shape == (4, 1, 500)
    assert np.max(np.abs(found.x[:, 0] / truth - 1)) < 1e-9  # as one alone
    assert found.evaluations < 5000  # 500 single runs need 400000


def test_two_components_against_taylor_series_at_thirty_digits():
    with mpmath.workdps(30):
        solution = mpmath.odefun(
            lambda t, y: [y[0] * (y[1] ** 2 - 0.5) * (1 - y[0] ** 2), y[1] * (1 - y[1] ** 2 - y[0] ** 2)],
            0,
            [mpmath.mpf("0.01"), mpmath.mpf("0.1")],
        )
        truth = np.array([float(c) for c in solution(4)])
    found = DormandPrince().integrate(positional, [0.01, 0.1], [4.0])
    assert found.x[0] == pytest.approx(truth, rel=1e-9)  # the promised accuracy
    assert np.all(np.abs(found.x[0] - truth) <= found.error[0])


def test_a_perturbed_rate_shows_in_the_error():
    quiet = DormandPrince().integrate(pitchfork, [0.1], [2.0])
    noisy = DormandPrince().integrate(pitchfork, [0.1], [2.0], perturbed=lambda m: pitchfork(m) + 1e-7)
    assert quiet.error[0, 0] < 1e-9
    # d/d epsilon of the flow of rate + epsilon from 0.1: int_0^2 (slope of the flow from s to 2) ds, about 2.2
    assert 1e-7 < noisy.error[0, 0] < 1e-6


def test_a_flow_that_ends_says_so():
    found = DormandPrince().integrate(lambda m: m**2, [1.0], [0.5, 2.0])  # 1/(1 - t)
    assert found.status is Status.diverges
    assert found.x[0, 0] == pytest.approx(2, rel=1e-9)
    assert np.isnan(found.x[1, 0])
    assert DormandPrince().integrate(lambda m: np.sqrt(m - 1), [0.5], [1.0]).status is Status.nonfinite
    assert DormandPrince(max_steps=3).integrate(pitchfork, [1e-6], [50.0]).status is Status.max_steps


@pytest.mark.parametrize("times", [[1.0, 1.0], [-1.0, 0.0], [0.0, np.inf], []])
def test_times_must_increase_from_zero(times):
    with pytest.raises(ValueError, match="increasing"):
        DormandPrince().integrate(pitchfork, [0.1], times)


# ------------------------------------------------------------------------------------------ escape


@pytest.mark.parametrize(
    ("rate", "start", "truth"),
    [
        (pitchfork, 1e-6, 13.2662044136297),
        (lambda m: m**3, 1e-3, 499998.0),
        (lambda m: m**2, 1e-3, 998.0),
        (lambda m: 0.5 + 0 * m, 0.0, 1.0),
        (lambda m: m**4, 1e-3, (1e9 - 8) / 3),
    ],
)
def test_escape_times_to_nine_digits(rate, start, truth):
    found = escape_time(rate, [start], 0.5)
    assert found.status is Status.converged
    assert found.time == pytest.approx(truth, rel=1e-9)  # the promised accuracy
    assert abs(found.time - truth) <= found.error + 1e-14 * truth  # 1e-14: the digits of the reference
    assert found.error < 1e-8 * truth
    assert found.at[0] == pytest.approx(0.5, rel=1e-9)


def test_default_tolerances_would_be_wrong():
    """The negative control: with scipy's default rtol and atol the escape time is off by half a per cent."""
    from scipy.integrate import solve_ivp

    event = lambda t, m: m[0] - 0.5
    event.terminal = True  # type: ignore[attr-defined]
    loose = solve_ivp(lambda t, m: pitchfork(m), (0, 50), [1e-6], events=event)
    assert abs(loose.t_events[0][0] / 13.2662044136297 - 1) > 1e-3


def test_exponent_of_the_escape_time_against_the_start():
    """SIE 3: the time from m_0 goes like 1/m_0, as measured over two decades."""
    m0 = np.geomspace(1e-5, 1e-3, 3)
    times = [escape_time(lambda m: m**2 * (1 - m**2), [m], 0.5).time for m in m0]
    slope = np.polyfit(np.log(m0), np.log(times), 1)[0]
    assert slope == pytest.approx(-1, abs=5e-3)  # the correction log(1/m_0) m_0 at m_0 = 1e-3


def test_first_passage_counts_even_when_it_returns_at_once():
    """A circle that touches the threshold for a short time within one step of the method."""
    spin = lambda x: np.array([x[1], -x[0]])
    found = escape_time(spin, [0.0, 1.0], 0.9999, measure=lambda x: float(x[0]))
    assert found.time == pytest.approx(np.arcsin(0.9999), rel=1e-9)


def test_e_escapes_first_and_then_m():
    found = escape_time(positional, [1e-3, 1e-6], 0.5, measure=lambda x: float(abs(x[0])))
    assert np.isfinite(found.time)
    assert found.time > escape_time(positional, [1e-3, 1e-6], 0.5, measure=lambda x: float(abs(x[1]))).time


@pytest.mark.parametrize("start", [[0.0], [1.0], [-1.0]])
def test_a_start_on_a_fixed_point_is_stated(start):
    found = escape_time(pitchfork, start, 2.0)
    assert found.time == np.inf
    assert "fixed point" in found.reason
    assert "nothing escapes" in found.reason


@pytest.mark.parametrize(
    ("rate", "start", "threshold", "words"),
    [
        (lambda m: -m, [1e-3], 0.5, "stable fixed point"),
        (lambda m: -m * (1 - m**2), [1e-2], 0.5, "stable fixed point"),
        (lambda m: -(m**3), [1e-3], 0.5, "decays"),
        (lambda m: m * (0.3 - m), [1e-5], 0.5, "stable fixed point [0.3]"),
        (lambda m: (m - 0.3) ** 2, [0.1], 0.5, "fixed point [0.3]"),
        (positional, [0.0, 1e-6], 1.5, "fixed point [0. 1.]"),
    ],
)
def test_a_flow_that_never_escapes_is_stated(rate, start, threshold, words):
    found = escape_time(rate, start, threshold)
    assert found.time == np.inf
    assert found.status is Status.converged
    assert words in found.reason


def test_a_slow_start_near_a_saddle_is_no_rest():
    """|rate| = 1e-18 at the start of m^3 from 1e-6, and 1e-12 of a weak trap: neither is a fixed point."""
    assert not rests(lambda m: m**3, np.array([1e-6]))
    found = escape_time(lambda m: -1e-9 * m + m**3, [1e-3], 0.5)
    truth = 5e8 * np.log((1 - 4e-9) / (1 - 1e-3))
    assert found.time == pytest.approx(truth, rel=1e-9)


def test_noise_is_rest_only_where_symmetry_explains_it():
    noise = np.array([1e-12])
    assert rests(lambda m: m**3 + 1e-17, np.array([0.0]), noise)
    assert not rests(lambda m: m**3 + 1e-17, np.array([1e-5]), noise)
    assert not rests(lambda m: 0.5 + 0 * m, np.array([0.0]), noise)
    drowned = escape_time(lambda m: m**3, [1e-5], 0.5, perturbed=lambda m: m**3 - 1e-14)
    assert drowned.error > 0.1 * drowned.time  # the rate at the start, 1e-15, is less than its error


def test_an_end_without_escape_is_undecided():
    found = escape_time(lambda m: m**2, [1e-3], np.inf)
    assert np.isnan(found.time)
    assert found.status is Status.diverges
    spin = escape_time(lambda x: np.array([x[1], -x[0]]), [0.1, 0.0], 0.5, integrator=DormandPrince(max_steps=200))
    assert np.isnan(spin.time)
    assert spin.status is Status.max_steps
    assert np.isnan(escape_time(lambda m: np.sqrt(m - 1), [0.1], 0.5).time)


def test_an_escape_that_the_error_of_the_rate_decides_is_not_claimed():
    found = escape_time(lambda m: m * (0.5 + 1e-9 - m), [1e-3], 0.5, perturbed=lambda m: m * (0.5 - 1e-9 - m))
    assert found.status is Status.max_steps
    assert found.error == np.inf


# ------------------------------------------------------------------------------------------ fixed points


def test_fixed_points_of_a_flow_with_their_stability():
    found = flow_fixed_points(lambda m: 8 * m * (1 - m**2), Box.closed(-1, 1))
    assert [float(p.at[0]) for p in found] == pytest.approx([-1, 0, 1], abs=1e-15)
    assert [p.stability for p in found] == [Stability.stable, Stability.unstable, Stability.stable]
    assert [p.eigenvalues[0].real for p in found] == pytest.approx([-16, 8, -16], rel=1e-8)  # differences


@pytest.mark.parametrize("region", [Disc(), Box.closed([-1, -1], [1, 1])], ids=repr)
def test_fixed_points_in_a_disc_rim_included(region):
    found = flow_fixed_points(positional, region)
    half = np.sqrt(0.5)
    kinds = {(0.0, 0.0): "saddle", (0.0, 1.0): "saddle", (0.0, -1.0): "saddle"}
    kinds |= {(a * half, b * half): "stable" for a in (-1, 1) for b in (-1, 1)}
    kinds |= {(1.0, 0.0): "marginal", (-1.0, 0.0): "marginal"}  # e'' = 0 there: 1 - m^2 = 0
    assert len(found) == len(kinds)
    for p in found:
        at = min(kinds, key=lambda k: np.max(np.abs(p.at - k)))
        assert np.max(np.abs(p.at - at)) < 1e-7  # at the marginal points Newton is linear, error sqrt of rounding
        assert p.stability.name == kinds[at]


def test_a_rim_beyond_which_the_rate_is_undefined():
    """dx/dt = x (r - 1/2) sqrt(1 - r^2): only the origin, the circle r = 1/2 and the rim rest."""

    def rate(x: Array) -> Array:
        r = np.hypot(*x)
        turn = np.array([-x[1], x[0]])
        return x * (0.5 - r) * np.sqrt(1 - r**2) + turn * (1 - r)

    found = flow_fixed_points(rate, Disc())
    inner = [p for p in found if np.hypot(*p.at) < 0.99]
    assert len(inner) == 1
    assert inner[0].at == pytest.approx([0, 0], abs=1e-12)
    assert inner[0].stability is Stability.unstable
    assert sorted(inner[0].eigenvalues.imag) == pytest.approx([-1, 1], abs=1e-5)  # differences of |x|


def test_a_degenerate_origin_is_found_once_and_marginal():
    (origin,) = flow_fixed_points(lambda x: np.array([x[0] ** 3 - x[1] ** 3, x[1] ** 3]), Disc(2, 0.5))
    assert origin.at == pytest.approx([0, 0], abs=0)
    assert origin.stability is Stability.marginal
