"""The verdict calibrated on synthetic normal data: false alarms, power, and what it refuses to decide."""

import dataclasses
import math

import numpy as np
import pytest
import sympy as sp
from scipy import stats

from verify.simulation import Ensemble
from verify.statistics import (
    Comparison,
    Tolerance,
    Verdict,
    compare,
    compare_ensembles,
    extrapolate,
    rate,
)

m = sp.Symbol("m", real=True)
e = sp.Symbol("e", real=True)
SIZES = (100, 200, 400)
STANDARD = Tolerance(1e-6)


def ensembles(
    value: float,
    bias: float = 0.0,
    noise: float = 0.1,
    trials: int = 24,
    columns: int = 1,
    seed: int = 0,
    sizes: tuple[int, ...] = SIZES,
) -> list[Ensemble]:
    """Normal replicas around value + bias/d."""
    rng = np.random.default_rng(seed)
    axis = np.arange(columns, dtype=np.float64)
    return [
        Ensemble(d, tuple(range(trials)), axis, {m: value + bias / d + noise * rng.standard_normal((trials, columns))})
        for d in sizes
    ]


def against(value: float, data: list[Ensemble], tolerance: Tolerance = STANDARD, **how: bool) -> Comparison:
    return compare([{m: np.full(s.axis.size, value)} for s in data], data, tolerance, **how)


def test_extrapolation_of_exact_data_is_exact():
    fit = extrapolate(SIZES, [0.7 + 3 / d for d in SIZES], [0.01, 0.02, 0.005])
    assert (fit.p, fit.b) == (pytest.approx(0.7, rel=1e-13), pytest.approx(3, rel=1e-12))  # rounding
    assert fit.chi2 == pytest.approx(0, abs=1e-20)  # rounding, squared


def test_extrapolation_is_weighted_least_squares():
    y, s = np.array([0.8, 0.69, 0.75, 0.71]), np.array([0.03, 0.01, 0.02, 0.015])
    d = np.array([50, 100, 200, 400])
    design = np.stack([np.ones(4), 1 / d], axis=1)
    information = design.T @ np.diag(s**-2) @ design
    p, b = np.linalg.solve(information, design.T @ (y / s**2))
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    chi2 = np.sum(((y - design @ [p, b]) / s) ** 2)
    assert tuple(extrapolate(d, y, s)) == pytest.approx((p, errors[0], b, errors[1], chi2), rel=1e-10)  # rounding


def test_extrapolation_refuses_what_has_no_line():
    with pytest.raises(ValueError, match="two different sizes"):
        extrapolate([100, 100], [1, 2], [1, 1])
    with pytest.raises(ValueError, match="standard errors positive"):
        extrapolate([100, 200], [1, 2], [1, 0])


def test_rate_of_a_power_law_and_its_error():
    rng = np.random.default_rng(1)
    d = np.array([100.0, 200, 400, 800])
    slopes, errors = zip(
        *(rate(d, y, 0.02 * y) for y in (7 * d**-1.5 * (1 + 0.02 * rng.standard_normal(4)) for _ in range(300))),
        strict=True,
    )
    assert np.mean(slopes) == pytest.approx(-1.5, abs=4 * 0.0129 / math.sqrt(300))  # 4 standard errors
    assert np.min(errors) == pytest.approx(0.02 / math.sqrt(np.sum((np.log(d) - np.log(d).mean()) ** 2)), rel=0.01)
    with pytest.raises(ValueError, match="exceed twice its error"):
        rate([100, 200], [0.1, 0.01], [0.01, 0.01])


@pytest.mark.parametrize("finite_size", [False, True])
@pytest.mark.parametrize("trials", [8, 24])
def test_false_alarms_of_one_number(trials, finite_size):
    columns, alpha = 1500, 0.05
    data = ensembles(0.6, bias=4.0 * (not finite_size), trials=trials, columns=columns)
    rows = against(0.6, data, finite_size=finite_size).tested
    rejected = np.mean([abs(r.z) > Tolerance(alpha).quantile(1, r.freedom) for r in rows])
    assert rejected == pytest.approx(alpha, abs=4 * math.sqrt(alpha * (1 - alpha) / len(rows)))  # 4 sigma, binomial


def test_false_alarms_of_a_whole_report():
    reports, alpha = 300, 0.05
    verdicts = [against(0.6, ensembles(0.6, 4.0, columns=3, seed=s), Tolerance(alpha)).verdict for s in range(reports)]
    alarms = verdicts.count(Verdict.disagrees) / reports
    doubts = verdicts.count(Verdict.inconclusive) / reports
    assert alarms == pytest.approx(alpha, abs=4 * math.sqrt(alpha / reports))  # 4 sigma, binomial
    assert doubts <= alpha + 4 * math.sqrt(alpha / reports)  # the test of the fit itself has that rate too


@pytest.mark.parametrize("finite_size", [False, True])
def test_the_stated_resolution_is_found_with_the_stated_power(finite_size):
    data = ensembles(0.6, noise=0.02, columns=800)
    first = against(0.6, data, finite_size=finite_size).tested
    typical = float(np.median([r.resolution for r in first]))

    def found(shift: float) -> float:
        rows = against(0.6 * (1 + shift), data, finite_size=finite_size).tested
        return float(np.mean([r.verdict is Verdict.disagrees for r in rows]))

    # 4 sigma, binomial; the freedom of an extrapolation is a lower bound, which leaves power to spare
    assert 0.95 - 0.03 < found(typical) < (0.95 + 0.03 if finite_size else 1.0)
    assert found(typical / 2) < 0.25


def test_a_shift_of_five_per_cent_is_found_where_the_standard_error_says_so():
    data = ensembles(0.6, bias=2.0, noise=0.005)
    right, wrong = against(0.6, data), against(0.63, data)
    assert right.agrees
    assert right.resolution < 0.05
    assert wrong.verdict is Verdict.disagrees
    assert wrong.tested[0].relative == pytest.approx(-0.05 / 1.05, abs=0.02)  # four standard errors


def test_a_pass_without_power_shows_in_the_resolution():
    blunt = against(0.63, ensembles(0.6, noise=0.1))
    assert blunt.verdict is not Verdict.disagrees
    assert blunt.resolution > 0.2


def test_the_extrapolation_removes_a_bias_that_one_size_shows():
    data = ensembles(0.6, bias=8.0, noise=0.005)
    assert against(0.6, data).agrees
    assert against(0.6, data, finite_size=True).verdict is Verdict.disagrees


def test_a_bias_above_a_fifth_is_inconclusive():
    for bias, verdict in ((0.15, Verdict.agrees), (0.25, Verdict.inconclusive)):
        data = ensembles(0.6, bias=bias * 0.6 * SIZES[-1], noise=1e-3)
        assert against(0.6, data).verdict is verdict
        assert ("per cent" in against(0.6, data).tested[0].note or "%" in against(0.6, data).tested[0].note) is (
            verdict is Verdict.inconclusive
        )


def test_against_a_prediction_of_zero_only_a_real_bias_is_inconclusive():
    assert against(0.0, ensembles(0.0)).agrees
    assert against(0.0, ensembles(0.0, bias=100.0)).verdict is Verdict.inconclusive
    assert against(0.0, ensembles(0.5, noise=0.01)).verdict is Verdict.disagrees


def test_means_that_are_no_line_in_1_over_d_are_inconclusive():
    data = [dataclasses.replace(s, observed={m: s[m] + 5 / math.sqrt(s.size)}) for s in ensembles(5, noise=1e-4)]
    result = against(5.0, data)
    assert result.verdict is Verdict.inconclusive
    assert "p + b/d" in result.tested[0].note


def test_predictions_follow_the_size():
    data = ensembles(0.6, bias=3.0, noise=1e-3)
    moving = [{m: np.array([0.6 + 3 / s.size])} for s in data]
    assert compare(moving, data).tested[0].mean == pytest.approx(0.6 + 3 / 400, abs=2e-3)  # 4 standard errors
    assert compare(moving, data, finite_size=True).agrees


@pytest.mark.parametrize("sizes", [(100,), (100, 200)])
def test_fewer_than_three_sizes_only_inform(sizes):
    data = ensembles(0.6, sizes=sizes)
    result = against(0.6, data)
    assert result.verdict is Verdict.inconclusive
    assert result.comparisons == 0
    assert [r.agrees for r in result.rows] == [None] * len(sizes)
    assert against(0.6, data, finite_size=True).agrees


def prepared(start: float, later: float, sizes: tuple[int, ...] = SIZES) -> list[Ensemble]:
    """Column 0 the same in all replicas up to rounding, column 1 noisy."""
    rng = np.random.default_rng(5)
    data = []
    for d in sizes:
        x = np.stack([start + 1e-17 * rng.standard_normal(16), later + 0.01 * rng.standard_normal(16)], axis=1)
        data.append(Ensemble(d, tuple(range(16)), np.array([0.0, 1.0]), {m: x}))
    return data


def test_a_prepared_start_is_compared_exactly():
    data = prepared(0.1, 0.3)
    for value, verdict in ((0.1, Verdict.agrees), (0.1 + 1e-9, Verdict.disagrees)):
        result = compare([{m: [value, 0.3]}] * 3, data)
        assert result.verdict is verdict
        assert result.tested[0].stderr == 0
        assert result.comparisons == 2


def test_a_prepared_start_alone_does_not_agree():
    result = compare([{m: [0.1, 0.3]}], prepared(0.1, 0.3, sizes=(100,)))
    assert result.verdict is Verdict.inconclusive
    assert result.resolution == math.inf


@pytest.mark.parametrize("hole", [math.nan, math.inf])
def test_what_was_not_reached_is_inconclusive_with_the_count(hole):
    data = ensembles(0.6)
    data[1][m][[2, 5], 0] = hole
    for finite_size in (False, True):
        result = against(0.6, data, finite_size=finite_size)
        assert result.verdict is Verdict.inconclusive
        assert any("2 of 24 replicas have no finite value" in r.note for r in result.tested)
    assert against(math.nan, ensembles(0.6)).verdict is Verdict.inconclusive


def test_every_compared_number_counts():
    few, many = (against(0.6, ensembles(0.6, columns=c)).tested[0] for c in (1, 100))
    assert many.freedom == few.freedom == 23
    expected = stats.t.isf(1e-6 / 200, 23) / stats.t.isf(1e-6 / 2, 23)
    assert (many.allowed / many.stderr) / (few.allowed / few.stderr) == pytest.approx(expected, rel=1e-9)  # rounding
    assert Tolerance(0.01).share(5) == Tolerance(0.002)


def test_two_simulations_of_one_model():
    rng = np.random.default_rng(7)

    def sample(mean: float, spread: float, trials: int) -> Ensemble:
        x = mean + spread * rng.standard_normal((trials, 2000))
        return Ensemble(50, tuple(range(trials)), np.arange(2000.0), {m: x})

    a, b = sample(1.0, 0.1, 12), sample(1.0, 0.4, 30)
    rows = compare_ensembles([a], [b]).tested
    alarms = np.mean([abs(r.z) > Tolerance(0.05).quantile(1, r.freedom) for r in rows])
    assert alarms == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 2000))  # 4 sigma, binomial
    assert compare_ensembles([a], [b]).agrees
    assert compare_ensembles([a], [sample(1.5, 0.1, 12)]).verdict is Verdict.disagrees
    with pytest.raises(ValueError, match="same sizes and times"):
        compare_ensembles([a], [dataclasses.replace(b, axis=np.arange(2000.0) + 0.01)])


def test_scalars_and_further_predictions():
    data = [Ensemble(d, (0, 1, 2), None, {e: np.array([1.0, 1.1, 0.9])}) for d in SIZES]
    result = compare([{e: 1.0, m: 5.0}] * 3, data)
    assert result.agrees
    assert result.tested[0].at is None
    assert result.tested[0].effect == pytest.approx(0, abs=1e-12)  # rounding


def test_mismatched_arguments_are_refused():
    data = ensembles(0.6)
    with pytest.raises(ValueError, match="give one for each size"):
        compare([{m: [0.6]}], data)
    with pytest.raises(ValueError, match="give one for each size"):
        compare([{m: [0.6]}] * 3, [data[0], data[0], data[1]])
    with pytest.raises(ValueError, match="nothing is predicted"):
        compare([{e: [0.6]}] * 3, data)
    with pytest.raises(ValueError, match="one predicted value for each point"):
        compare([{m: [0.6, 0.7]}] * 3, data)
    with pytest.raises(ValueError, match="two replicas or more"):
        against(0.6, ensembles(0.6, trials=1))
    with pytest.raises(ValueError, match="probability in"):
        Tolerance(0.0)
