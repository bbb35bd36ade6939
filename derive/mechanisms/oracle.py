"""The best test error of a model class: a score of the token fields of `derive.mechanisms.scores`, its sign the label.

The fields are the tokens' components along the signal; weights across it only add noise, so that the best model of
every class here reads the fields alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from derive.equations import Define, Equation, EquationSystem, Quantity, Source
from derive.functions import Phi
from derive.mechanisms.scores import Tokens, TokenSum, error_of, stationary_point, summand, token_field
from derive.minimum import Minimum
from derive.sums import probability_positive

__all__ = [
    "ORACLE_NAMES",
    "ModelClass",
    "Tokens",
    "attention_error",
    "bayes_error",
    "grouped_error",
    "hard_error",
    "linear_error",
    "model_classes",
    "oracle_system",
    "vectorised_error",
]

_MOST_WEIGHTS = 24
_MOST_SUBSETS = 400
_BIAS, _LOG_GAMMA, _CUT = (sp.Symbol(name, real=True) for name in ("b", "log_gamma", "c"))
_UNIT = sp.Interval(0, 1)

bias_pooled = sp.Symbol("bias_pooled", real=True)
error_pooled = sp.Symbol("error_pooled", real=True)
bias_vectorised = sp.Symbol("bias_vectorised", real=True)
error_vectorised = sp.Symbol("error_vectorised", real=True)
threshold_hard = sp.Symbol("threshold_hard", real=True)
error_hard = sp.Symbol("error_hard", real=True)
bias_attention = sp.Symbol("bias_attention", real=True)
error_soft = sp.Symbol("error_soft", real=True)
temperature_attention = sp.Symbol("temperature_attention", real=True)
error_attention = sp.Symbol("error_attention", real=True)
error_bayes = sp.Symbol("error_bayes", real=True)
ORACLE_NAMES = tuple(
    s.name
    for s in (
        *(bias_pooled, error_pooled, bias_vectorised, error_vectorised, threshold_hard, error_hard),
        *(bias_attention, error_soft, temperature_attention, error_attention, error_bayes),
    )
)
"""What the unknowns are called: no parameter of a task can have these names."""


# ---- model classes ----------------------------------------------------------------------------------------


def linear_error(data: Tokens, bias: sp.Expr) -> sp.Expr:
    """Of the pooled linear model, sign(sum_k g_k / sqrt(L) + bias)."""
    score = TokenSum(token_field) / sp.sqrt(data.length) + bias
    return error_of(summand(score, data.length), data)


def attention_error(data: Tokens, bias: sp.Expr, gamma: sp.Expr) -> sp.Expr:
    """Of attention at inverse temperature gamma, sign(sum_k softmax(gamma g)_k g_k + bias)."""
    weight = sp.exp(gamma * token_field)
    score = TokenSum(weight * token_field) / TokenSum(weight) + bias
    return error_of(summand(score, data.length), data)


def hard_error(data: Tokens, threshold: sp.Expr) -> sp.Expr:
    """Of sign(max_k g_k - threshold), gamma = infinity: a maximum is below c where all its independent parts are."""
    negative, positive = (
        sp.Mul(*(Phi(threshold - shift) ** n for shift, n in tokens)) for tokens in (data.negatives, data.positives)
    )
    return (1 - data.prior) * (1 - negative) + data.prior * positive


def bayes_error(data: Tokens) -> sp.Expr | None:
    """Of the likelihood ratio E_v prod_{k in v} r(g_k) against (1 - prior)/prior, r the ratio of a token's densities.

    With one signal token it is a sum over tokens, with L its logarithm is one; in between, None: the ratio is an
    elementary symmetric polynomial of the r(g_k), whose comparison with a constant is no sum of independent terms.
    """
    g, odds = token_field, (1 - data.prior) / data.prior
    log_ratio = sp.expand(-((g - data.theta) ** 2) / 2 + g**2 / 2)
    if data.signals == data.length:
        score = TokenSum(log_ratio) - data.log_odds
        return error_of(summand(score, data.length), data)
    if data.signals != 1:
        return None
    if not data.positions:
        score = TokenSum(sp.exp(log_ratio)) / data.length - odds
        return error_of(summand(score, data.length), data)
    return _weighted_bayes(data, sp.exp(log_ratio), odds)


def _weighted_bayes(data: Tokens, ratio: sp.Expr, odds: sp.Expr) -> sp.Expr:
    """One signal token at place k with probability p_k: sum_k p_k (r(g_k) - odds), tokens of one p_k together."""
    g, total = token_field, sp.Add(*data.positions)
    groups = [(p / total, data.positions.count(p)) for p in dict.fromkeys(data.positions)]
    h = [p * (ratio - odds) for p, _ in groups]
    plain = [(hi, sp.Integer(n)) for hi, (_, n) in zip(h, groups, strict=True)]
    wrong = (1 - data.prior) * probability_positive(g, plain)
    for i, (p, n) in enumerate(groups):
        shifted = [(-h[i].xreplace({g: g + data.theta}), sp.S.One)]
        others = [(-hj, m - (j == i)) for j, (hj, m) in enumerate(plain)]
        wrong += data.prior * n * p * probability_positive(g, shifted + [(hj, m) for hj, m in others if m != 0])
    return wrong


def subsets(data: Tokens) -> Mapping[tuple[int, ...], sp.Expr]:
    """The probability of each set of places of the signal tokens."""
    places = range(int(data.length))
    weights = data.positions or (sp.S.One,) * len(places)
    raw = {v: sp.Mul(*(weights[k] for k in v)) for v in itertools.combinations(places, int(data.signals))}
    total = sp.Add(*raw.values())
    return {v: p / total for v, p in raw.items()}


def vectorised_error(data: Tokens, weights: Sequence[sp.Expr], bias: sp.Expr) -> sp.Expr:
    """Of sign(sum_k w_k g_k / |w| + bias): an average over the places of the signal."""
    norm = sp.sqrt(sp.Add(*(w**2 for w in weights)))
    shift = norm * bias / data.length  # of each summand: sum_k w_k g_k + |w| bias has the sign of the score

    def found(sign: int, places: tuple[int, ...]) -> sp.Expr:
        fields = [token_field + data.theta * int(k in places) for k in range(len(weights))]
        return probability_positive(
            token_field, [(sign * (w * g + shift), sp.S.One) for w, g in zip(weights, fields, strict=True)]
        )

    missed = sp.Add(*(p * found(-1, places) for places, p in subsets(data).items()))
    return (1 - data.prior) * found(1, ()) + data.prior * missed


def grouped_error(data: Tokens, favoured: sp.Expr, angle: sp.Symbol, bias: sp.Symbol) -> sp.Expr:
    """The same with weights cos(angle)/sqrt(k) on k = `favoured` tokens, sin(angle)/sqrt(L - k) on the others.

    For one signal token, uniformly placed; numbers may be symbols.
    """
    g, shift = token_field, bias / data.length
    sizes = (favoured, data.length - favoured)
    slopes = [w / sp.sqrt(n) for w, n in zip((sp.cos(angle), sp.sin(angle)), sizes, strict=True)]
    plain = [(a * g + shift, n) for a, n in zip(slopes, sizes, strict=True)]
    wrong = (1 - data.prior) * probability_positive(g, plain)
    for i, (a, n) in enumerate(zip(slopes, sizes, strict=True)):
        noise = [(-h, m - int(i == j)) for j, (h, m) in enumerate(plain)]
        missed = probability_positive(g, [(-(a * (g + data.theta) + shift), sp.S.One), *noise])
        wrong += data.prior * missed * n / data.length
    return wrong


@dataclass(frozen=True)
class ModelClass:
    """The error of a class as a function of `variables`, over which it is minimised from `starts`."""

    name: str
    error: sp.Expr
    variables: tuple[sp.Symbol, ...]
    starts: tuple[tuple[sp.Expr, ...], ...]


def model_classes(data: Tokens, gamma: sp.Expr, favoured: sp.Expr) -> tuple[ModelClass, ...]:
    """The classes at one signal token in uniform places, where theta, pi and L may be symbols, to compare lengths.

    attention: at the best inverse temperature; fixed: at `gamma`; vectorised: with two values of the weights, one of
    them on `favoured` tokens.
    """
    angle = sp.Symbol("angle", real=True)
    even = sp.atan(sp.sqrt((data.length - favoured) / favoured))
    pooled, likely = stationary_point(linear_error(data, _BIAS), _BIAS), _likely(data)
    best, largest = bayes_error(data), _largest_noise(data)
    if best is None or data.positions:
        raise ValueError("model_classes compares lengths at one signal token in uniform places.")
    start = (-sp.Rational(17, 20) * sp.Min(likely, largest + 2), sp.log(largest * sp.Rational(7, 10)))
    soft = attention_error(data, _BIAS, sp.exp(_LOG_GAMMA))
    return (
        ModelClass("pooled", linear_error(data, pooled), (), ()),
        ModelClass(
            *("vectorised", grouped_error(data, favoured, angle, _BIAS), (angle, _BIAS)),
            ((even, pooled), (even / 2, pooled)),
        ),
        ModelClass("fixed", attention_error(data, _BIAS, gamma), (_BIAS,), ((-likely,), (-gamma,))),
        ModelClass("attention", soft, (_BIAS, _LOG_GAMMA), (start,)),
        ModelClass("hard", hard_error(data, _CUT), (_CUT,), ((likely,), (largest,))),
        ModelClass("bayes", best, (), ()),
    )


# ---- the system -------------------------------------------------------------------------------------------


def oracle_system(
    data: Tokens,
    parameters: Sequence[Quantity] = (),
    gamma: sp.Expr | None = None,
    bias: sp.Expr | None = None,
) -> EquationSystem:
    """The best errors of the classes: pooled, vectorised, hard attention, attention, Bayes.

    gamma, bias: of attention, where they are given; else the best is meant. Vectorised is left out where there are
    more than 24 tokens or 400 sets of places, or numbers that are symbols; Bayes where 1 < R < L.
    parameters: the quantities that `data`, gamma and bias may read.
    """
    equations: list[Equation] = [*_pooled(data), *_vectorised(data), *_hard(data)]
    equations += _attention(data, bias) if gamma is None else _attention_at(data, gamma, bias)
    best = bayes_error(data)
    if best is not None:
        equations.append(_define(error_bayes, "least error of all classifiers", best, _UNIT, "likelihood ratio"))
    read = set().union(*(e.reads() for e in equations))
    return EquationSystem(tuple(equations), tuple(p for p in parameters if p.symbol in read))


def _define(symbol: sp.Symbol, meaning: str, rhs: sp.Expr, domain: sp.Set, where: str) -> Define:
    return Define(Quantity(symbol, meaning, domain), rhs, Source("derived", where))


def _pooled(data: Tokens) -> list[Equation]:
    best = stationary_point(linear_error(data, _BIAS), _BIAS)
    return [
        _define(bias_pooled, "best bias of the pooled model", best, sp.S.Reals, "derivative of the error in the bias"),
        _define(
            *(error_pooled, "least error of the pooled linear model", linear_error(data, bias_pooled), _UNIT),
            "normal distribution of a linear score",
        ),
    ]


def _vectorised(data: Tokens) -> list[Equation]:
    if not (sp.S(data.length).is_Integer and sp.S(data.signals).is_Integer) or data.length > _MOST_WEIGHTS:
        return []
    if sp.binomial(data.length, data.signals) > _MOST_SUBSETS:
        return []
    weights = sp.symbols(f"w1:{int(data.length) + 1}", real=True)
    # the error does not see the length of the weights; the square holds it at 1 and vanishes at the minimum
    length = (sp.Add(*(w**2 for w in weights)) - 1) ** 2
    least = Minimum(vectorised_error(data, weights, _BIAS) + length, [*weights, _BIAS], _first_weights(data))
    return [
        _define(
            *(error_vectorised, "least error of the vectorised linear model", least, _UNIT),
            "minimum over weights and bias",
        ),
        _define(
            *(bias_vectorised, "best bias of the vectorised model", least.place(len(weights) + 1), sp.S.Reals),
            "minimum over weights and bias",
        ),
    ]


def _first_weights(data: Tokens) -> list[list[sp.Expr]]:
    """Weights that favour the k likeliest places, each k; the bias balances the odds of a signal seen there."""
    length = int(data.length)
    order = sorted(range(length), key=lambda k: -data.positions[k] if data.positions else k)
    starts = []
    for k in range(1, length + 1):
        weights = [(10 if order.index(i) < k else 1) / sp.sqrt(99 * k + length) for i in range(length)]
        s = data.theta * sp.Min(data.signals, k) / sp.sqrt(k)
        starts.append([*weights, -s / 2 - sp.log((1 - data.prior) / data.prior * length / k) / s])
    return starts


def _likely(data: Tokens) -> sp.Expr:
    """The field at which a token is as likely the signal of a positive as one of the others of any sample."""
    return data.theta / 2 + (data.log_odds + sp.log(data.length / data.signals)) / data.theta


def _largest_noise(data: Tokens) -> sp.Expr:
    """Near the largest of L noises, and positive for L = 1."""
    return sp.sqrt(2 * sp.log(data.length + 1))


def _hard(data: Tokens) -> list[Equation]:
    starts = [[_likely(data)], *([sp.Integer(c)] for c in range(6))]
    least = Minimum(hard_error(data, _CUT), [_CUT], starts)
    where = "independence of the tokens under a maximum"
    return [
        _define(threshold_hard, "best threshold of the largest field", least.place(1), sp.S.Reals, where),
        _define(error_hard, "least error of hard attention", hard_error(data, threshold_hard), _UNIT, where),
    ]


_SUM = "the positive normaliser multiplied out: a sum of independent terms"


def _attention(data: Tokens, bias: sp.Expr | None) -> list[Equation]:
    """The best at a finite temperature, and whether that is better than temperature 0."""
    gamma = sp.exp(_LOG_GAMMA)
    largest = _largest_noise(data)
    warm = sp.log(largest * sp.Rational(7, 10))
    if bias is None:
        variables, starts = [_BIAS, _LOG_GAMMA], [[-sp.Rational(17, 20) * sp.Min(_likely(data), largest + 2), warm]]
        least = Minimum(attention_error(data, _BIAS, gamma), variables, starts)
        log_gamma, limit = least.place(2), error_hard
    else:
        least = Minimum(attention_error(data, bias, gamma), [_LOG_GAMMA], [[warm], [sp.S.Zero]])
        log_gamma, limit = least.place(1), hard_error(data, -bias)
    reached = sp.Heaviside(limit - error_soft)
    equations: list[Equation] = [
        _define(error_soft, "least error of attention near a finite temperature", least, _UNIT, _SUM),
        _define(error_attention, "least error of attention at any temperature", sp.Min(error_soft, limit), _UNIT, _SUM),
        _define(
            *(temperature_attention, "best temperature of attention, 1/gamma", sp.exp(-log_gamma) * reached),
            *(sp.Interval(0, sp.oo), _SUM),
        ),
    ]
    if bias is None:
        best = least.place(1) * reached - threshold_hard * (1 - reached)
        equations.append(_define(bias_attention, "best bias of attention", best, sp.S.Reals, _SUM))
    return equations


def _attention_at(data: Tokens, gamma: sp.Expr, bias: sp.Expr | None) -> list[Equation]:
    if bias is not None:
        error = attention_error(data, bias, gamma)
        return [_define(error_attention, "error of attention", error, _UNIT, _SUM)]
    starts = [[-_likely(data)], [-_likely(data) / 2], [-gamma]]
    least = Minimum(attention_error(data, _BIAS, gamma), [_BIAS], starts)
    return [
        _define(error_attention, "least error of attention at this temperature", least, _UNIT, _SUM),
        _define(bias_attention, "best bias of attention at this temperature", least.place(1), sp.S.Reals, _SUM),
    ]
