"""Gaussian quadrature: against mpmath at 30 digits and closed forms; the error estimate must cover the error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from solve.law import factorise
from solve.nodes import gauss_hermite, legendre, normal_density, tanh_sinh, trapezoid
from solve.quadrature import Accuracy, Estimate, Structure, integrate

ROUNDING = 3e-15  # of float64 parameters, which the reference takes as exact: 1 - r^2 near r = 1 is the worst
finite = st.floats(-3, 3)
scale = st.floats(0.05, 4)


def average(
    f: Callable[..., np.ndarray], cov: object, structure: Structure | None = None, accuracy: Accuracy | None = None
) -> tuple[float, float]:
    """E f(x) and its error, x ~ N(0, cov)."""
    cov = np.atleast_3d(np.asarray(cov, dtype=float)).reshape(1, *(2 * [math.isqrt(np.size(cov))]))
    with np.errstate(all="ignore"):
        found = integrate(lambda x, _: [(f(*x), None)], 1, np.zeros(cov.shape[:2]), cov, structure, accuracy)
    return float(found.value[0, 0]), float(found.error[0, 0])


def kinks(*forms: tuple[float, ...], singular: bool = False) -> Structure:
    return Structure(kinks=np.array([forms], dtype=float), singular=singular)


def true_average(f: Callable[[mp.mpf], mp.mpf], *splits: float) -> mp.mpf:
    with mp.workdps(20):
        ends = {mp.mpf(s) for s in (*splits, -13, -4, 0, 4, 13) if abs(s) <= 13}
        return mp.quad(lambda t: f(t) * mp.npdf(t), sorted(ends))


def covers(found: tuple[float, float], exact: object) -> None:
    """The default accuracy is met, and the error estimate says so truthfully."""
    value, error = found
    size = abs(float(exact))  # type: ignore[arg-type]
    assert abs(float(value - exact)) <= error + ROUNDING * (1 + size)  # type: ignore[operator]
    assert error <= 4e-10 * size + 1e-12  # tolerance 1e-10 and 1e-13, with room for the slow _slow factor


# ------------------------------------------------------------------------------- nodes


@pytest.mark.parametrize("n", [3, 33, 200, 256, 257, 400])
def test_case_a03_gauss_hermite_of_any_order(n: int):
    t, w = gauss_hermite(n)
    assert np.sum(w * t**4) == pytest.approx(3, rel=2e-14)  # rounding of several hundred terms
    assert np.sum(w * t**3) == pytest.approx(0, abs=1e-13)  # rounding


@pytest.mark.parametrize("n", [24, 64, 65, 300])
def test_rules_on_the_unit_interval(n: int):
    for u, rest, w in (legendre(n), tanh_sinh(n + 24)):
        np.testing.assert_allclose(u + rest, 1, rtol=1e-15)  # rounding
        assert np.sum(w * u**5) == pytest.approx(1 / 6, rel=1e-12)  # converged; tanh-sinh leaves out 2e-14
    u, _, w = tanh_sinh(n + 24)
    assert np.sum(w * np.log(u)) == pytest.approx(-1, rel=4e-12)  # 2e-14 |log 2e-14| is left out at each end


def test_the_trapezoid_rule_converges_exponentially():
    exact = 0.394294490397841
    errors = [abs(np.sum(w * np.tanh(t) ** 2) - exact) for t, w in (trapezoid(n, 9.0) for n in (12, 16, 20, 24))]
    # a pole at i pi/2 and spacing 18/n: the error falls by exp(-pi^2 4/18) = 1/9 for 4 nodes more
    ratios = [b / a for a, b in itertools.pairwise(errors)]
    assert all(0.06 < r < 0.2 for r in ratios), ratios


# ------------------------------------------------------------------------------- factors


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_a_covariance_of_any_rank_is_reproduced(n: int, rank: int, seed: int):
    rows = np.random.default_rng(seed).normal(size=(2, n, rank))
    cov = rows @ np.swapaxes(rows, 1, 2)
    factor, valid = factorise(cov)
    assert valid.all()
    np.testing.assert_allclose(factor @ np.swapaxes(factor, 1, 2), cov, atol=1e-14 * np.abs(cov).max())  # rounding


def test_equal_variables_stay_equal():
    factor, _ = factorise(np.array([[[0.3, 0.3], [0.3, 0.3]], [[0.7, -0.7], [-0.7, 0.7]], [[0.0, 0.0], [0.0, 2.0]]]))
    assert (factor[0, 0] == factor[0, 1]).all()
    assert (factor[1, 0] == -factor[1, 1]).all()
    assert (factor[2, 0] == 0).all()


def test_what_is_no_covariance_is_marked():
    cov = np.array([[[1.0, 2.0], [2.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, -1e-17]]])
    assert factorise(cov)[1].tolist() == [False, False, True]
    found = integrate(lambda x, _: [(x[0] + x[1], None)], 1, np.zeros((3, 2)), cov, Structure(degree=1))
    assert np.isnan(found.value[0, :2]).all()
    assert np.isinf(found.error[0, :2]).all()
    assert found.value[0, 2] == pytest.approx(0, abs=1e-15)  # rounding


# ------------------------------------------------------------------------------- one dimension


def test_cases_a05_and_a15():
    third = kinks((1, -1 / 3))
    covers(average(lambda z: np.abs(z - 1 / 3), 1, third), mp.mpf("0.841805561931477"))
    covers(average(lambda z: np.heaviside(z - 1 / 3, 0.5), 1, third), mp.mpf("0.369441340181764"))
    covers(average(lambda z: np.tanh(z) ** 2, 1), mp.mpf("0.394294490397841"))
    covers(average(lambda z: z**4, 1, Structure(degree=4)), mp.mpf(3))


@settings(max_examples=12)
@given(scale, finite)
def test_smooth(a: float, b: float):
    exact = true_average(lambda t: mp.tanh(a * t + b) ** 2 * mp.exp(t / 3), -b / a)
    covers(average(lambda z: np.tanh(a * z + b) ** 2 * np.exp(z / 3), 1), exact)


@settings(max_examples=15)
@given(finite, finite, st.floats(-2, 2))
def test_kinks(a: float, b: float, c: float):
    def f(t: mp.mpf) -> mp.mpf:
        return abs(t - a) * (1 if t > b else 0) * mp.cos(c * t)

    found = average(lambda z: np.abs(z - a) * np.heaviside(z - b, 0.5) * np.cos(c * z), 1, kinks((1, -a), (1, -b)))
    covers(found, true_average(f, a, b))


@settings(max_examples=6)
@given(finite)
def test_endpoint_singularities(a: float):
    at = kinks((1, -a), singular=True)
    value, error = average(lambda z: np.log(np.abs(z - a)), 1, at)
    exact = true_average(lambda t: mp.log(abs(t - mp.mpf(a))), a)
    # the panels end 2e-14 before the singularity
    assert abs(value - float(exact)) <= error + ROUNDING
    assert error <= 1e-9
    covers(average(lambda z: np.sqrt(np.abs(z - a)), 1, at), true_average(lambda t: mp.sqrt(abs(t - mp.mpf(a))), a))


@pytest.mark.parametrize("steepness", [10.0, 1e3, 1e5, 1e8])
def test_a_steep_step_is_not_missed(steepness: float):
    steps = Structure(steps=np.array([[[steepness, -0.3 * steepness]]]))
    found = average(lambda z: 1 - np.tanh(steepness * (z - 0.3)) ** 2, 1, steps)
    width = 20 / steepness
    exact = true_average(lambda t: mp.sech(steepness * (t - mp.mpf(0.3))) ** 2, 0.3 - width, 0.3, 0.3 + width)
    # 1 - tanh^2 keeps rounding of 1e-16 over the whole line
    assert abs(found[0] - float(exact)) <= found[1] + ROUNDING
    assert abs(found[0] - float(exact)) <= 1e-9 * float(exact) + ROUNDING


@pytest.mark.parametrize("a", [3.0, 8.0, 15.0])
def test_mass_far_from_the_centre(a: float):
    value, error = average(lambda z: np.exp(a * z), 1)
    exact = math.exp(a**2 / 2)
    assert abs(value - exact) <= error + 1e-14 * exact  # rounding of exp of numbers near 200
    assert error <= 1e-9 * exact


@pytest.mark.parametrize(
    ("f", "structure"),
    [
        (lambda z: np.exp(z * z), None),
        (lambda z: np.exp(np.exp(z)), None),
        (lambda z: 1 / np.abs(z), kinks((1, 0), singular=True)),
        (lambda z: 1 / z**2, kinks((1, 0), singular=True)),
        (np.log, kinks((1, 0), singular=True)),
    ],
)
def test_what_does_not_exist_has_no_small_error(f: Callable[..., np.ndarray], structure: Structure | None):
    value, error = average(f, 1, structure)
    assert not error < 0.1 * abs(value)  # nan and inf have error inf


@settings(max_examples=60)
@given(finite, st.floats(5, 100))
def test_the_error_of_an_unsplit_jump_is_honest(a: float, k: float):
    """Given no structure, a jump or a steep step converges slowly or not at all: the estimate must say so."""
    for f, exact in (
        (lambda z: np.heaviside(z - a, 0.5), ndtr(-a)),
        (lambda z: ndtr(k * (z - a)), ndtr(-k * a / math.sqrt(1 + k * k))),
    ):
        value, error = average(f, 1, accuracy=Accuracy(max_points=1000))
        assert abs(value - exact) <= 5 * error + ROUNDING  # two orders may agree by chance to a factor


# ------------------------------------------------------------------------------- two and more


def arc_cosine(r: float) -> float:
    return (math.sqrt(1 - r * r) + r * (math.pi - math.acos(r))) / (2 * math.pi)


def orthant(r: float) -> float:
    return 0.25 + math.asin(r) / (2 * math.pi)


NEARLY_SINGULAR = [1.0, -1.0, 1 - 1e-3, 1e-6 - 1, 1 - 1e-9, 1e-13 - 1, 1 - 1e-16]


@pytest.mark.parametrize("r", [0.5, 0.0, -0.3, 0.9, *NEARLY_SINGULAR])
def test_correlated_pairs(r: float):
    axes = kinks((1, 0, 0), (0, 1, 0))
    covers(average(lambda u, v: np.maximum(u, 0) * np.maximum(v, 0), [[1, r], [r, 1]], axes), arc_cosine(r))
    found = average(lambda u, v: np.heaviside(u, 0.5) * np.heaviside(v, 0.5), [[1, r], [r, 1]], axes)
    # asin turns the rounding 1e-16 of r into 1e-8 near one
    assert found[0] == pytest.approx(orthant(r), abs=3e-8 if abs(r) > 1 - 1e-12 else 1e-10)


@settings(max_examples=12)
@given(finite, finite, finite, st.floats(-1, 1) | st.sampled_from(NEARLY_SINGULAR))
def test_a_kink_across_both_variables(p: float, q: float, c: float, r: float):
    """E tanh(u) relu(p u + q v + c) against its average over v, done exactly."""
    side = abs(q) * mp.sqrt(1 - mp.mpf(r) ** 2)

    def inner(u: mp.mpf) -> mp.mpf:
        centre = (p + mp.mpf(q) * r) * u + c
        if side < 1e-20:
            return mp.tanh(u) * max(centre, mp.mpf(0))
        return mp.tanh(u) * (centre * mp.ncdf(centre / side) + side * mp.npdf(centre / side))

    slope = abs(p + q * r)
    root = -c / (p + q * r) if slope > 1e-9 else 0.0
    layer = float(side) / slope if slope > 1e-9 else 0.0
    exact = true_average(inner, root, *(root + k * layer for k in (-10, -4, -1, 1, 4, 10)))
    forms = kinks((p, q, c))
    covers(average(lambda u, v: np.tanh(u) * np.maximum(p * u + q * v + c, 0), [[1, r], [r, 1]], forms), exact)


@settings(max_examples=12)
@given(
    st.tuples(*[st.floats(-0.49, 0.49)] * 3) | st.sampled_from([(1.0, 0.5, 0.5), (-1.0, 0.4, -0.4), (0.999, 0.3, 0.3)])
)
def test_three_kinks_in_three_dimensions(r: tuple[float, float, float]):
    a, b, c = r
    planes = kinks((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0))
    found = average(
        lambda *x: np.prod([np.heaviside(t, 0.5) + 0 * x[0] for t in np.broadcast_arrays(*x)], axis=0),
        [[1, a, b], [a, 1, c], [b, c, 1]],
        planes,
    )
    covers(found, 0.125 + (math.asin(a) + math.asin(b) + math.asin(c)) / (4 * math.pi))


def test_only_steep_steps_cost_panels():
    """E |x| sigmoid(y) tanh(100 (z - 1)), a kink, a gentle and a steep step: a product, but not for the rule."""
    steps = np.array([[[0, 0.5, 0, 0], [0, 0, 100, -100]]], dtype=float)
    structure = Structure(kinks=np.array([[[1.0, 0, 0, 0]]]), steps=steps)
    found = average(lambda x, y, z: np.abs(x) * np.tanh(100 * (z - 1)) / (1 + np.exp(-y)), np.eye(3), structure)
    step = true_average(lambda t: mp.tanh(100 * (t - 1)), 0.8, 1, 1.2)
    covers(found, step * mp.sqrt(2 / mp.pi) / 2)


def equicorrelated(n: int) -> tuple[Callable[..., np.ndarray], np.ndarray, Structure]:
    """P(all x_i > 0) = 1/(n + 1) at correlation 1/2."""
    planes = kinks(*(tuple(float(i == j) for j in range(n + 1)) for i in range(n)))
    return (
        lambda *x: np.prod([np.heaviside(t, 0.5) for t in np.broadcast_arrays(*x)], axis=0),
        (np.eye(n) + 1) / 2,
        planes,
    )


def test_four_kinks_in_four_dimensions():
    value, error = average(*equicorrelated(4))
    assert abs(value - 0.2) <= error <= 1e-6


def test_sobol_points_where_nothing_else_reaches():
    f, cov, planes = equicorrelated(7)
    loose = Accuracy(rtol=1e-2)
    value, error = average(f, cov, planes, loose)
    assert abs(value - 0.125) <= error <= 1e-2 * value
    assert average(f, cov, planes, loose) == (value, error)  # fixed seeds
    value, error = average(
        lambda *x: np.heaviside(x[0] * x[1], 0.5), np.eye(2), Structure(curved=lambda x, _: x), loose
    )
    assert abs(value - 0.5) <= error <= 1e-2 * value


def test_sobol_errors_are_calibrated():
    """The estimate is three standard errors of 16 replicas: it should fail in less than one run of a hundred."""
    missed = 0
    for k in range(40):
        direction = np.random.default_rng(k).normal(size=6)
        direction /= np.linalg.norm(direction)
        value, error = average(
            lambda *x, a=direction: np.heaviside(sum(p * t for p, t in zip(a, x, strict=True)) - 0.5, 0.5),
            np.eye(6),
            accuracy=Accuracy(rtol=1e-9, max_points=2**13),
        )
        missed += abs(value - ndtr(-0.5)) > error
    assert missed <= 4  # of 40 with chance 1/100 each: five or more has chance 7e-5


def test_a_batch_refines_each_point_as_far_as_it_needs():
    rates = np.array([0.1, 1.0, 3.0, 40.0])
    calls: list[np.ndarray] = []

    def f(x: list[np.ndarray], owner: np.ndarray) -> list[tuple[np.ndarray, None]]:
        calls.append(np.unique(owner))
        return [(np.tanh(rates[owner, None] * x[0]) ** 2, None)]

    found = integrate(f, 1, np.zeros((4, 1)), np.ones((4, 1, 1)))
    for b, a in enumerate(rates):
        covers((found.value[0, b], found.error[0, b]), true_average(lambda t, a=a: mp.tanh(a * t) ** 2, -1 / a, 1 / a))
    assert calls[-1].tolist() == [3]


def test_errors_of_the_integrand_are_inherited():
    found = integrate(lambda x, _: [(x[0] ** 2, np.full_like(x[0], 1e-3))], 1, np.zeros((1, 1)), np.ones((1, 1, 1)))
    assert found.value[0, 0] == pytest.approx(1, abs=1e-12)  # default accuracy
    assert found.error[0, 0] == pytest.approx(1e-3, rel=1e-6)  # a constant error averages to itself


def test_nothing_to_do():
    found = integrate(lambda x, _: [(x[0], None)], 1, np.zeros((0, 1)), np.zeros((0, 1, 1)))
    assert isinstance(found, Estimate)
    assert found.value.shape == (1, 0)


@pytest.mark.parametrize("wrong", [{"rtol": -1.0}, {"rtol": 0.0, "atol": 0.0}, {"max_points": 0}])
def test_an_impossible_accuracy_is_refused(wrong: dict[str, float]):
    with pytest.raises(ValueError, match="Accuracy needs"):
        Accuracy(**wrong)  # type: ignore[arg-type]


def test_the_density_is_normal():
    assert normal_density(np.array([0.0]))[0] == pytest.approx(1 / math.sqrt(2 * math.pi), rel=1e-15)  # rounding
