"""Scores to probabilities: signs of normalised sums, best biases by derivatives, laws of positions, nodes."""

import itertools
import math

import numpy as np
import pytest
import sympy as sp
from scipy.special import ndtr
from scipy.stats import norm

from derive.functions import Phi
from derive.mechanisms import oracle
from derive.mechanisms.oracle import Tokens, oracle_system
from derive.mechanisms.scores import TokenSum, stationary_point, summand, token_field
from derive.minimum import Minimum
from derive.sums import PositiveSum, probability_positive

theta, prior = sp.symbols("theta pi", positive=True)
b, gamma, x, y = sp.symbols("b gamma x y", real=True)
HALF = sp.Rational(1, 2)


def tokens(length=10, signals=1, positions=()):
    return Tokens(theta, prior, sp.Integer(length), sp.Integer(signals), positions)


def value(expr, **values):
    return float(expr.xreplace({s: sp.Float(values[s.name], 30) for s in expr.free_symbols}).evalf(20))


# ---- nodes ------------------------------------------------------------------------------------------------


def test_sums_and_minima_are_equal_up_to_names_and_rebuild_from_their_arguments():
    s = PositiveSum(x, [sp.exp(gamma * x) - b], [3])
    assert s == PositiveSum(y, [sp.exp(gamma * y) - b], [3])
    assert s.free_symbols == {gamma, b}
    m = Minimum(s + b**2, [b, gamma], [[0, theta]], 2)
    assert m.free_symbols == {theta}
    for node in (s, m, m.place(0)):
        assert node.func(*node.args) == node
    assert m == Minimum(s.xreplace({b: x, gamma: y}) + x**2, [x, y], [[0, theta]], 2)
    assert s.xreplace({b: sp.Integer(2)}) == PositiveSum(x, [sp.exp(gamma * x) - 2], [3])
    assert m.subs(theta, 3).starts == (sp.Tuple(0, 3),)
    assert m.diff(prior) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: PositiveSum(x, [x], [-1]),
        lambda: PositiveSum(x, [x], [x]),
        lambda: PositiveSum(x, [x], []),
        lambda: Minimum(x, [x], []),
        lambda: Minimum(x, [x], [[0, 1]]),
        lambda: Minimum(x, [x], [[0]], 2),
        lambda: Minimum(x * y, [x], [[x]]),
    ],
)
def test_nodes_refuse_what_has_no_meaning(make):
    with pytest.raises(ValueError, match=r"PositiveSum needs|Minimum"):
        make()


def test_sum_of_affine_terms_is_normal():
    found = probability_positive(x, [(b + 2 * x, sp.Integer(4)), (1 - x, sp.Integer(9))])
    assert sp.expand(found.args[0] - (4 * b + 9) / 5) == 0  # mean 4 b + 9, variance 16 + 9
    assert isinstance(found, Phi)


# ---- rules ------------------------------------------------------------------------------------------------


def test_sign_of_a_normalised_score_is_that_of_its_sum():
    weight = sp.exp(gamma * token_field)
    score = TokenSum(weight * token_field) / TokenSum(weight) + b
    h = sp.lambdify((token_field, b, gamma), summand(score, sp.Integer(6)))
    draws = np.random.default_rng(1).normal(size=(500, 8))
    for g, bias, rate in zip(draws[:, :6], draws[:, 6], draws[:, 7], strict=True):
        p = np.exp(rate * g) / np.exp(rate * g).sum()
        assert np.sign(p @ g + bias) == np.sign(h(g, bias, rate).sum())


@pytest.mark.parametrize("score", [TokenSum(token_field) ** 2 - b, 1 / TokenSum(token_field) + b, 1 / b])
def test_other_scores_are_refused(score):
    with pytest.raises(NotImplementedError, match="oracle"):
        summand(score, sp.Integer(3))


@pytest.mark.parametrize(("signals", "p"), [(1, 0.5), (1, 0.2), (3, 0.9)])
def test_pooled_bias_is_where_the_derivative_vanishes(signals, p):
    data = tokens(signals=signals)
    best = value(stationary_point(oracle.linear_error(data, b), b), theta=5, pi=p)
    s = 5 * signals / math.sqrt(10)
    slope = (1 - p) * norm.pdf(best) - p * norm.pdf(-s - best)
    assert abs(slope) < 1e-15  # rounding of densities of order 0.1
    error = value(oracle.linear_error(data, b), theta=5, pi=p, b=best)
    assert error == pytest.approx((1 - p) * ndtr(best) + p * ndtr(-s - best), rel=1e-14)  # rounding


def test_derivatives_of_other_forms_are_refused():
    with pytest.raises(NotImplementedError, match="closed form"):
        stationary_point(oracle.hard_error(tokens(), b), b)


def test_hard_attention_is_a_product_over_tokens():
    found = value(oracle.hard_error(tokens(signals=3), b), theta=2, pi=0.3, b=1.5)
    assert found == pytest.approx(0.7 * (1 - ndtr(1.5) ** 10) + 0.3 * ndtr(-0.5) ** 3 * ndtr(1.5) ** 7, rel=1e-14)


def test_bayes_with_all_tokens_signals_is_pooled_and_in_between_is_no_sum():
    data = tokens(4, 4)
    best = stationary_point(oracle.linear_error(data, b), b)
    found = value(oracle.bayes_error(data), theta=1.3, pi=0.2)
    assert found == pytest.approx(value(oracle.linear_error(data, best), theta=1.3, pi=0.2), rel=1e-14)  # rounding
    assert oracle.bayes_error(tokens(4, 2)) is None


def test_subsets_are_drawn_by_the_product_of_their_weights():
    weights = tuple(map(sp.Integer, (1, 2, 3, 4)))
    found = oracle.subsets(tokens(4, 2, weights))
    pairs = list(itertools.combinations(range(4), 2))
    total = sum(weights[i] * weights[j] for i, j in pairs)
    assert found == {(i, j): weights[i] * weights[j] / total for i, j in pairs}


def test_grouped_weights_are_a_case_of_the_vectorised_model():
    angle = sp.Symbol("angle", real=True)
    grouped = oracle.grouped_error(tokens(5), sp.Integer(2), angle, b)
    weights = [sp.cos(angle) / sp.sqrt(2)] * 2 + [sp.sin(angle) / sp.sqrt(3)] * 3
    every = oracle.vectorised_error(tokens(5), weights, b)
    at = {"theta": 4, "pi": 0.3, "b": -1.1, "angle": 0.4}
    assert value(grouped, **at) == pytest.approx(value(every, **at), rel=1e-14)  # rounding
    even = value(sp.atan(sp.sqrt(sp.Rational(3, 2))))
    at["angle"] = even
    assert value(grouped, **at) == pytest.approx(
        value(oracle.linear_error(tokens(5), b), theta=4, pi=0.3, b=-1.1), rel=1e-14
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"signals": sp.Integer(11)}, "R <= L"),
        ({"signals": sp.Integer(0)}, "R >= 1"),
        ({"prior": sp.S.Zero}, "0 < pi < 1"),
        ({"prior": sp.S.One}, "0 < pi < 1"),
        ({"theta": sp.S.Zero}, "theta > 0"),
        ({"positions": (sp.S.One,) * 9}, "one weight for each token"),
        ({"positions": (sp.S.One,) * 9 + (sp.S.Zero,)}, "positive weights"),
    ],
)
def test_data_outside_their_domains_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        Tokens(**{"theta": theta, "prior": HALF, "length": sp.Integer(10), **change})


def test_what_a_system_holds():
    names = lambda data, *given: {s.name for s in oracle_system(data, (), *given).unknowns}
    number = lambda length, signals=1: Tokens(sp.Integer(2), HALF, sp.Integer(length), sp.Integer(signals))
    every = set(oracle.ORACLE_NAMES)
    assert names(number(10)) == every
    assert names(number(10, 3)) == every - {"error_bayes"}
    assert names(number(100)) == every - {"error_vectorised", "bias_vectorised"}
    soft = {"error_soft", "temperature_attention"}
    assert names(number(10), sp.Integer(3)) == every - soft
    assert names(number(10), sp.Integer(3), sp.Integer(-2)) == every - soft - {"bias_attention"}
