"""Scores of token fields, and the rules that turn "score > 0" into a probability.

Token fields are g_k = theta v_k + z_k: positives (probability prior) have v = 1 on R of L tokens, negatives v = 0. A
score is written with `TokenSum`; its sign becomes that of a sum of independent terms, or normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy as sp

from derive.sums import probability_positive

__all__ = [
    "TokenSum",
    "Tokens",
    "error_of",
    "linear_combination",
    "stationary_point",
    "summand",
    "token_field",
]

token_field = sp.Symbol("g", real=True)
"""The field of a token, in which summands of `TokenSum` are written."""


class TokenSum(sp.Function):
    """sum over the L tokens of f(g_k), f an expression in `token_field`."""

    nargs = 1


@dataclass(frozen=True)
class Tokens:
    """The data: theta > 0, 0 < prior < 1, and 1 <= signals <= length, numbers or symbols.

    positions: for signals = 1 the probability of each place, () for uniform places; for more, weights of the places
    of which `signals` different ones are drawn (a subset's probability is the product of its weights, normalised).
    Raises `ValueError` for numbers outside these domains.
    """

    theta: sp.Expr
    prior: sp.Expr
    length: sp.Expr
    signals: sp.Expr = sp.S.One
    positions: tuple[sp.Expr, ...] = field(default=())

    def __post_init__(self) -> None:
        rules = {
            "theta > 0": sp.S(self.theta).is_positive,
            "0 < pi < 1": _both(sp.S(self.prior).is_positive, (1 - sp.S(self.prior)).is_positive),
            "R >= 1": (sp.S(self.signals) - 1).is_nonnegative,
            "R <= L": (sp.S(self.length) - sp.S(self.signals)).is_nonnegative,
            "one weight for each token": not self.positions or len(self.positions) == self.length,
            "positive weights": all(sp.S(p).is_positive is not False for p in self.positions),
        }
        broken = [rule for rule, holds in rules.items() if holds is False]
        if broken:
            raise ValueError(
                f"Oracle errors need {' and '.join(broken)}; got theta = {self.theta}, pi = {self.prior}, "
                f"L = {self.length}, R = {self.signals}, {len(self.positions)} weights of positions."
            )

    @property
    def log_odds(self) -> sp.Expr:
        """log((1 - prior) / prior)."""
        return sp.log((1 - self.prior) / self.prior)

    @property
    def negatives(self) -> tuple[tuple[sp.Expr, sp.Expr], ...]:
        """(shift of the field, number of tokens) in a negative."""
        return ((sp.S.Zero, sp.S(self.length)),)

    @property
    def positives(self) -> tuple[tuple[sp.Expr, sp.Expr], ...]:
        """The same in a positive."""
        return ((self.theta, sp.S(self.signals)), (sp.S.Zero, sp.S(self.length) - self.signals))


def _both(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None


# ---- rules ------------------------------------------------------------------------------------------------


def summand(score: sp.Expr, length: sp.Expr) -> sp.Expr:
    """h with sign(score) = sign(sum_k h(g_k)): the positive normaliser is multiplied out, a constant is shared out.

    Raises `NotImplementedError` where the sign is not that of such a sum.
    """
    above, below = sp.fraction(sp.together(score))
    if not all(_is_positive(f) for f in sp.Mul.make_args(below)):
        raise NotImplementedError(f"oracle: the denominator {below} of a score is not known to be positive.")
    sums = sorted(above.atoms(TokenSum), key=sp.default_sort_key)
    names = {s: sp.Dummy() for s in sums}
    polynomial = sp.Poly(sp.expand(above.xreplace(names)), *names.values())
    if polynomial.total_degree() > 1:
        raise NotImplementedError(f"oracle: the sign of {score} is not that of a sum of independent terms.")
    slopes = [polynomial.coeff_monomial(n) for n in names.values()]
    return sp.Add(*(c * s.args[0] for c, s in zip(slopes, sums, strict=True)), polynomial.coeff_monomial(1) / length)


def _is_positive(factor: sp.Expr) -> bool:
    return bool(factor.args[0].is_positive if isinstance(factor, TokenSum) else factor.is_positive)


def linear_combination(h: sp.Expr, tokens: Sequence[tuple[sp.Expr, sp.Expr]]) -> list[tuple[sp.Expr, sp.Expr]]:
    """The terms (h(shift + z), count) of tokens (shift, count), none of them empty."""
    return [(h.xreplace({token_field: token_field + shift}), n) for shift, n in tokens if n != 0]


def error_of(h: sp.Expr, data: Tokens) -> sp.Expr:
    """(1 - prior) P(sum h > 0 | negative) + prior P(sum h < 0 | positive)."""
    wrong_negative = probability_positive(token_field, linear_combination(h, data.negatives))
    wrong_positive = probability_positive(token_field, linear_combination(-h, data.positives))
    return (1 - data.prior) * wrong_negative + data.prior * wrong_positive


def stationary_point(error: sp.Expr, variable: sp.Symbol) -> sp.Expr:
    """The variable at which d error = 0, for a derivative of two exponentials of quadratics: their logarithms agree.

    Raises `NotImplementedError` for other derivatives.
    """
    terms = sp.Add.make_args(sp.expand(sp.diff(error, variable), deep=False))
    if len(terms) == 2:
        logs = [sp.expand(sp.expand_log(sp.log(t), force=True)) for t in (terms[0], -terms[1])]
        balance = sp.expand(logs[0] - logs[1])
        if balance.is_polynomial(variable) and sp.degree(balance, variable) == 1:
            constant, slope = balance.coeff(variable, 0), balance.coeff(variable, 1)
            return sp.expand(-constant / slope)
    raise NotImplementedError(f"oracle: no closed form of the place where the derivative of {error} vanishes.")
