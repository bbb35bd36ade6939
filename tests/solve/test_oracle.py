"""Oracle errors by independent routes: closed laws, quadrature in mpmath, plain Monte Carlo, SciPy's minimisers."""

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
import scipy.optimize
import sympy as sp
from scipy.special import ndtr
from scipy.stats import chi2

from derive.equations import Quantity
from derive.mechanisms.oracle import Tokens, model_classes, oracle_system
from derive.minimum import Minimum
from solve.compiled import compile_system
from solve.lower import lower
from solve.minimum import minimise
from solve.oracle import fits, needed
from solve.result import SolveError
from solve.sums import Term, positive_probability

theta, prior, length, favoured = sp.symbols("theta pi L k", real=True, positive=True)
QUANTITIES = (Quantity(theta, "signal"), Quantity(prior, "probability of a positive"))
DRAWS, SIGMAS = 1_000_000, 5.5  # 4e-8 is the chance that a right value is off by more


def attention(gamma, b):
    return lambda z: (z + b) * np.exp(gamma * z)


@functools.cache
def compiled(signals=1, gamma=None, bias=None, positions=()):
    given = [None if v is None else sp.Rational(str(v)) for v in (gamma, bias)]
    data = Tokens(theta, prior, sp.Integer(10), sp.Integer(signals), tuple(map(sp.Rational, positions)))
    return compile_system(oracle_system(data, QUANTITIES, *given))


def solved(strength, probability, **form):
    system = compiled(**form)
    found = system.solve({theta: strength, prior: probability})
    return {s.name: (float(found.values[s]), float(found.errors[s])) for s in system.system.unknowns}


# ---- sums -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "truth"),
    [
        ([Term(lambda z: z**2 - 1, 2)], chi2.sf(2, 2)),
        ([Term(lambda z: 1 - z**2, 7)], chi2.cdf(7, 7)),
        ([Term(lambda z: z**2 - 1.2, 10_000)], chi2.sf(12_000, 10_000)),
        ([Term(lambda z: z**2, 3), Term(lambda z: z**2 - 3, 4)], chi2.sf(12, 7)),
        ([Term(lambda z: z + 0.3, 50), Term(lambda z: -2 * z, 3)], ndtr(15 / math.sqrt(62))),
        ([Term(lambda z: z**2 + 1, 3)], 1.0),
        ([Term(lambda z: -(z**2) - 1, 3)], 0.0),
        ([Term(lambda z: z, 0)], 0.0),
    ],
)
def test_sums_with_a_known_law(terms, truth):
    value, error = positive_probability(terms)
    assert abs(value - truth) <= 2 * error + 1e-12  # its own estimate, and rounding of 1e4 convolutions
    assert error < 1e-9


@pytest.mark.parametrize(
    ("gamma", "b", "shift"), [(3.0, -2.9, 0.0), (3.0, -2.9, 5.0), (1.0, 0.3, 0.0), (8.0, -1.0, 1.0)]
)
def test_two_tokens_of_attention_against_mpmath(gamma, b, shift):
    """h(z) > -y by Lambert's function: u e^(gamma u) > -y e^(gamma b), u = z + b, then one integral."""

    def exceeds(y):
        t = -y * mpmath.e ** (gamma * b) * gamma
        if t >= 0:
            return mpmath.ncdf(b - mpmath.lambertw(t).real / gamma)
        if t <= -mpmath.exp(-1):
            return mpmath.mpf(1)
        upper, lower = (mpmath.lambertw(t, k).real / gamma - b for k in (0, -1))
        return mpmath.ncdf(-upper) + mpmath.ncdf(lower)

    h = lambda z: (z + b) * mpmath.e ** (gamma * z)
    cut = scipy.optimize.brentq(lambda z: float(h(z) - mpmath.exp(-1 - gamma * b) / gamma), -b, 20)
    ends = sorted({-9.5, -b - 1 / gamma - shift, -b - shift, cut - shift, 9.5, *np.linspace(-9, 9, 13)})
    with mpmath.workdps(20):
        truth = mpmath.quad(lambda z: mpmath.npdf(z) * exceeds(h(z + shift)), ends)
    moved = Term(lambda z: attention(gamma, b)(z + shift), 1)
    value, error = positive_probability([moved, Term(attention(gamma, b), 1)])
    assert abs(value - float(truth)) <= 2 * error + 1e-12
    assert error < 1e-8


def test_stated_error_covers_the_error_when_little_accuracy_is_asked_for():
    for gamma in (0.5, 2.0, 5.0, 15.0):
        terms = [Term(attention(gamma, -2.8), 10)]
        fine, rough = positive_probability(terms), positive_probability(terms, 1e-5)
        assert abs(fine[0] - rough[0]) <= fine[1] + rough[1] + 1e-12


def test_cold_attention_is_hard_attention():
    """The gap closes as 1/gamma^2: from gamma = 50 to 100 it falls by four, up to the sums' errors of 1e-8."""
    c, strength = 2.956784, 5.0

    def error(gamma):
        wrong = positive_probability([Term(attention(gamma, -c), 10)], 1e-9)[0]
        hit = Term(lambda z: attention(gamma, -c)(z + strength), 1)
        return (wrong + 1 - positive_probability([hit, Term(attention(gamma, -c), 9)], 1e-9)[0]) / 2

    hard = (1 - ndtr(c) ** 10 + ndtr(c - strength) * ndtr(c) ** 9) / 2
    near, nearer = error(20.0) - hard, error(40.0) - hard
    assert 0 < nearer < near < 1e-5
    assert near / nearer == pytest.approx(4, rel=0.15)  # next order in 1/gamma


# ---- minima -----------------------------------------------------------------------------------------------


def plain(function):
    return lambda points: (np.array([function(x) for x in points]), np.zeros(len(points)))


def test_least_of_several_minima_with_its_place():
    double = plain(lambda x: (x[0] ** 2 - 1) ** 2 + 0.1 * x[0] + (x[1] - x[0]) ** 2)
    found = minimise(double, np.array([[1.0, 0.0], [-0.5, 0.3], [2.0, 2.0]]))
    truth = scipy.optimize.brentq(lambda t: 4 * t * (t * t - 1) + 0.1, -1.5, -0.8)
    assert found is not None
    assert found.definite
    assert found.place == pytest.approx([truth, truth], abs=1e-6)
    assert np.all(np.abs(found.place - truth) <= found.place_error + 1e-7)
    assert len(found.others) == 2


def test_direction_in_which_nothing_changes_is_told():
    found = minimise(plain(lambda x: 1 + (x[0] / math.hypot(*x) - 0.6) ** 2), np.array([[1.0, 1.0]]))
    assert found is not None
    assert found.value == pytest.approx(1, abs=1e-10)
    assert found.place_error.max() >= 1e3
    assert minimise(plain(lambda x: math.nan), np.array([[0.0]])) is None


def test_minimum_nodes_inside_expressions_and_on_arrays():
    x, a = sp.symbols("x a", real=True)
    node = Minimum((x - a) ** 4 + (x - a) ** 2 + a, [x], [[0]])
    value, error = lower([2 * node + node.place(1)], [a])(np.array([0.5, 2.0]))
    assert value[0] == pytest.approx([1.5, 6.0], abs=1e-6)
    assert np.all(np.abs(value[0] - [1.5, 6.0]) <= error[0])
    lost, doubt = lower([Minimum(sp.log(x), [x], [[-1]]) + a], [a])(1.0)
    assert math.isnan(lost[0])
    assert doubt[0] == math.inf


# ---- oracle errors ----------------------------------------------------------------------------------------


def test_reference_values():
    """The note on the theory gives these digits."""
    half, fifth = (solved(5, p, gamma=3, bias="-2.9") for p in (0.5, 0.2))
    assert half["error_pooled"][0] == pytest.approx(0.21459765022, abs=1e-11)
    assert fifth["error_pooled"][0] == pytest.approx(0.14504807679, abs=1e-11)
    assert half["error_attention"][0] == pytest.approx(0.01793573, abs=2e-8)
    assert half["error_hard"][0] == pytest.approx(0.01783266976, abs=1e-11)
    assert half["threshold_hard"][0] == pytest.approx(2.956784, abs=1e-6)
    rare = solved(5, 0.1, gamma=3, bias="-2.9")
    assert rare["error_vectorised"][0] == pytest.approx(0.0850892, abs=5e-8)
    assert rare["error_pooled"][0] == pytest.approx(0.0857026, abs=5e-8)


@pytest.mark.parametrize(("strength", "p"), [(5.0, 0.1), (5.0, 0.5), (7.0, 0.05)])
def test_vectorised_against_scipy_from_random_starts(strength, p):
    def error(point):
        w, b = point[:10] / np.linalg.norm(point[:10]), point[10]
        return (1 - p) * ndtr(b) + p * ndtr(-strength * w - b).mean()

    rng = np.random.default_rng(3)
    large = [np.where(np.arange(10) < rng.integers(1, 11), 1, 0.2) + rng.uniform(0, 0.1, 10) for _ in range(40)]
    starts = [np.append(w, -rng.uniform(1, 3)) for w in large]
    ends = [scipy.optimize.minimize(error, s, method="BFGS", options={"gtol": 1e-8}) for s in starts]
    best = min(ends, key=lambda r: r.fun)
    found, doubt = solved(strength, p, gamma=3, bias="-2.9")["error_vectorised"]
    assert found == pytest.approx(best.fun, abs=1e-10)  # squares of slopes left by either
    assert doubt < 1e-7
    if (strength, p) == (5.0, 0.1):
        node = compiled(gamma=3, bias="-2.9").system.equation(sp.Symbol("error_vectorised", real=True)).rhs
        w = lower([node.place(i) for i in range(1, 11)], [theta, prior])(strength, p)[0]
        assert np.sort(w)[::-1] == pytest.approx([0.498] * 4 + [0.039] * 6, abs=6e-4)


def test_positions_that_differ_help_the_vectorised_model_and_bayes():
    weights = (5, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    found = solved(3, 0.4, gamma=1, bias="-1", positions=weights)
    p, w = 0.4, np.array(weights) / 14

    def error(point):
        u, b = point[:10] / np.linalg.norm(point[:10]), point[10]
        return (1 - p) * ndtr(b) + p * w @ ndtr(-3 * u - b)

    rng = np.random.default_rng(4)
    starts = [np.append(rng.exponential(size=10) ** 2, -1.0) for _ in range(40)]
    best = min(scipy.optimize.minimize(error, s, method="BFGS").fun for s in starts)
    assert found["error_vectorised"][0] == pytest.approx(best, abs=1e-9)
    z = rng.normal(size=(DRAWS, 10))
    ratio = np.exp(3 * z - 4.5) @ w
    least = np.minimum(1 - p, p * ratio)
    value, error_of = found["error_bayes"]
    assert abs(value - least.mean()) < SIGMAS * least.std() / math.sqrt(len(least)) + error_of
    assert value < solved(3, 0.4, gamma=1, bias="-1")["error_bayes"][0]


@pytest.mark.parametrize(("strength", "p"), [(5.0, 0.5), (3.0, 0.2)])
def test_bayes_against_the_mean_of_the_lesser_likelihood(strength, p):
    z = np.random.default_rng(5).normal(size=(DRAWS, 10))
    least = np.minimum(1 - p, p * np.exp(strength * z - strength**2 / 2).mean(axis=1))
    value, error = solved(strength, p, gamma=3, bias="-2.9")["error_bayes"]
    assert abs(value - least.mean()) < SIGMAS * least.std() / math.sqrt(DRAWS) + error
    assert error < 1e-8


@pytest.mark.parametrize("signals", [1, 3])
def test_attention_at_its_best_bias_against_trials(signals):
    found = solved(2.5, 0.3, signals=signals, gamma="3/2")
    (value, error), (bias, _) = found["error_attention"], found["bias_attention"]
    rng, draws = np.random.default_rng(6), DRAWS // 2
    wrong = []
    for shift, sign, weight in ((0.0, 1, 0.7), (2.5, -1, 0.3)):
        g = rng.normal(size=(draws, 10))
        g[:, :signals] += shift
        attended = np.exp(1.5 * (g - g.max(axis=1, keepdims=True)))
        score = (attended * g).sum(axis=1) / attended.sum(axis=1)
        wrong.append((weight, sign * score))

    def rate(b):
        return sum(w * np.mean(s + (b if i == 0 else -b) > 0) for i, (w, s) in enumerate(wrong))

    noise = sum(w * math.sqrt(0.25 / draws) for w, _ in wrong)
    assert abs(value - rate(bias)) < SIGMAS * noise + error
    assert min(rate(bias - 0.2), rate(bias + 0.2)) > value + SIGMAS * noise


def test_hard_attention_against_scipy():
    value, _ = solved(2.5, 0.3, signals=3, gamma="3/2")["error_hard"]
    error = lambda c: 0.7 * (1 - ndtr(c) ** 10) + 0.3 * ndtr(c - 2.5) ** 3 * ndtr(c) ** 7
    best = scipy.optimize.minimize_scalar(error, bounds=(0, 5), method="bounded", options={"xatol": 1e-9})
    assert value == pytest.approx(best.fun, abs=1e-12)


@pytest.mark.slow
def test_best_temperature_is_finite_for_a_weak_signal_and_zero_for_a_strong_one():
    weak, strong = solved(3, 0.5), solved(5, 0.5)
    assert weak["error_attention"][0] < weak["error_hard"][0] - 5e-4
    gamma = 1 / weak["temperature_attention"][0]
    given = {f: solved(3, 0.5, gamma=round(gamma * f, 6))["error_attention"][0] for f in (0.8, 1.0, 1.25)}
    assert weak["error_attention"][0] == pytest.approx(given[1.0], abs=1e-9)  # errors of the sums
    assert min(given[0.8], given[1.25]) > given[1.0] + 1e-6
    assert strong["temperature_attention"][0] == 0
    assert strong["error_attention"] == strong["error_hard"]
    for found in (weak, strong):
        order = ["error_bayes", "error_attention", "error_hard", "error_vectorised"]
        assert all(found[i][0] <= found[j][0] + 1e-9 for i, j in itertools.pairwise(order))


# ---- long sequences ---------------------------------------------------------------------------------------


def classes(gamma=1):
    models = model_classes(Tokens(theta, prior, length), sp.Integer(gamma), favoured)
    return {m.name: m for m in models}


@functools.cache
def lowered(model):
    return lower([model.error], sorted(model.error.free_symbols, key=str))


def at(model, **values):
    value, error = lowered(model)(*(values[s.name] for s in lowered(model).arguments))
    return value[0], error[0]


def test_fixed_temperature_needs_gamma_c_above_one_half():
    """theta = c log L at gamma = 1, each at the best of several biases: falls for c = 0.8, rises for c = 0.3."""
    model = classes()["fixed"]

    def least(c, n):
        return at(model, L=n, theta=c * math.log(n), pi=0.5, b=-np.linspace(0.9, 2.5, 9))[0].min()

    assert least(0.3, 30) < least(0.3, 1000) < least(0.3, 30_000)
    assert least(0.8, 30) > 2.5 * least(0.8, 1000) > 5 * least(0.8, 30_000)


def test_boundary_of_bayes_and_hard_attention_is_that_of_the_largest_noise():
    """At theta = sqrt(2 log L) + x both errors come down to pi Phi(-x), slowly."""
    hard, x = classes()["hard"], 1.0

    def gap(n):
        grid = np.linspace(0.6, 1.6, 2000) * math.sqrt(2 * math.log(n))
        best = at(hard, L=n, theta=math.sqrt(2 * math.log(n)) + x, pi=0.5, c=grid)[0].min()
        return (best - 0.5 * ndtr(-x)) / (0.5 * ndtr(-x)), best

    gaps = [gap(10.0**k)[0] for k in (2, 4, 8, 14)]
    assert gaps == sorted(gaps, reverse=True)
    assert 0 < gaps[-1] < 0.6 * gaps[0]
    for n in (100, 10_000):
        value, error = at(classes()["bayes"], L=n, theta=math.sqrt(2 * math.log(n)) + x, pi=0.5)
        assert error < 1e-7
        assert 0.97 * gap(n)[1] < value < gap(n)[1]


def test_needed_signal_by_hand():
    """Pooled at even odds: Phi(-theta/(2 sqrt L)) = 1 %. Hard: the minimum over c by SciPy, then a root."""
    found = needed(classes()["pooled"], theta, {prior: 0.5, length: 400.0}, 0.01, 3.0)
    assert found.value == pytest.approx(2 * 20 * 2.3263478740408408, rel=3e-5)  # its stated accuracy
    assert abs(found.value - 2 * 20 * 2.3263478740408408) <= found.error

    def excess(strength):
        error = lambda c: (1 - ndtr(c) ** 400 + ndtr(c - strength) * ndtr(c) ** 399) / 2
        return scipy.optimize.minimize_scalar(error, bounds=(2, 6), method="bounded").fun - 0.01

    hard = needed(classes()["hard"], theta, {prior: 0.5, length: 400.0}, 0.01, 3.0)
    assert hard.value == pytest.approx(scipy.optimize.brentq(excess, 4, 9), rel=3e-5)
    with pytest.raises(SolveError, match="stays above"):
        needed(classes()["hard"], theta, {prior: 0.5, length: 400.0}, -1.0, 3.0)


def test_laws_of_long_sequences_in_closed_form():
    """sqrt L exactly for pooling; sqrt(2 log L), with slope towards 1, for hard attention, seen up to L = 1e12."""
    lengths = [10.0**k for k in (1, 2, 3, 4)]
    models, far = classes(), [10.0**k for k in (3, 5, 7, 9, 11)]
    pooled = [needed(models["pooled"], theta, {prior: 0.5, length: n}, 0.01, 3.0).value for n in lengths]
    best = fits(lengths, pooled)[0]
    assert (best.law, best.slope) == ("sqrt L", pytest.approx(2 * 2.3263478740408408, rel=1e-4))
    hard = [needed(models["hard"], theta, {prior: 0.5, length: n}, 0.01, 3.0).value for n in far]
    first, second, _ = fits(far, hard)
    assert first.law == "sqrt(2 log L)"
    assert 0.8 < first.slope < 1
    assert second.residual > 3 * first.residual
    with pytest.raises(ValueError, match="at least 4"):
        fits([1, 2], [1, 2])


@pytest.mark.slow
def test_separation_of_the_models_from_10_to_10000_tokens():
    """For 1 % error: linear models follow sqrt L, attention at gamma = 1 a logarithm, the others sqrt(2 log L)."""
    models, lengths = classes(), [10.0, 100.0, 1000.0, 10_000.0]
    found, places = {name: [] for name in models}, {}
    for n in lengths:
        known = {prior: 0.5, length: n}
        for name in ("pooled", "hard", "bayes"):
            found[name].append(needed(models[name], theta, known, 0.01, 3.0).value)
        part = {**known, favoured: n / 2}
        found["vectorised"].append(needed(models["vectorised"], theta, part, 0.01, 3.0).value)
        for name in ("fixed", "attention"):
            need = needed(models[name], theta, known, 0.01, 1.1 * found["hard"][-1], places.get(name))
            found[name].append(need.value)
            places[name] = need.place
    assert found["vectorised"] == pytest.approx(found["pooled"], rel=1e-4)  # even odds: pooling is best
    slope = np.polyfit(np.log(lengths), np.log(found["pooled"]), 1)[0]
    assert slope == pytest.approx(0.5, abs=1e-4)
    local = {name: np.diff(values) / np.diff(np.log(lengths)) for name, values in found.items()}
    assert np.all(np.diff(local["fixed"]) > 0)  # rises towards 1/(2 gamma) = 1/2
    assert 0.15 < local["fixed"][0] < local["fixed"][-1] < 0.5
    for name in ("attention", "hard", "bayes"):
        assert fits(lengths, found[name])[0].law == "sqrt(2 log L)"
        assert np.all(np.diff(local[name]) < 0)  # slower than any log L
    for i in range(4):
        assert found["bayes"][i] < found["hard"][i] < found["fixed"][i] < found["pooled"][i]
        assert found["attention"][i] == pytest.approx(found["hard"][i], rel=3e-3)
