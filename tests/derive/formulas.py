"""Formulas at random, for what must hold of every formula."""

from __future__ import annotations

import hypothesis.strategies as st
import sympy as sp

from derive.expectation import Expectation
from derive.functions import He, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.measures import Gaussian, standard_normal

a, b, m, x1 = (sp.Symbol(n, real=True) for n in ("a", "b", "m", "x1"))
p = sp.Symbol("p", real=True, positive=True)
pi = sp.Symbol("pi", real=True)
FREE = {s.name: s for s in (a, b, m, p, x1, pi)}
u, v = sp.symbols("u v", real=True)

numbers = st.one_of(
    st.integers(-9, 9).map(sp.Integer),
    st.fractions(-9, 9, max_denominator=12).map(lambda f: sp.Rational(f.numerator, f.denominator)),
    st.sampled_from([sp.sqrt(2), sp.sqrt(6) / 3, sp.pi, sp.sqrt(2 * sp.pi), sp.E, sp.Rational(2) ** sp.Rational(1, 3)]),
)
ONE_ARGUMENT = [
    relu, sigmoid, softplus, Phi, LogCosh, sp.tanh, sp.sin, sp.cos, sp.exp, sp.erf, sp.Abs, sp.sign, sp.Heaviside,
    lambda f: He(3, f), lambda f: sp.log(1 + f**2), lambda f: sp.sqrt(2 + f**2), lambda f: 1 / (1 + f**2),
    lambda f: 1 / (3 + 3 * f**2), lambda f: sp.DiracDelta(f - a), lambda f: sp.asin(f / (1 + f**2)),
]  # fmt: skip
TWO_ARGUMENTS = [
    lambda f, g: f + g, lambda f, g: f - g, lambda f, g: f * g, sp.Max, sp.Min,
    lambda f, g: 2 * (1 + f) * (g - 3), lambda f, g: f / (2 * (1 + g**2)), lambda f, g: SoftmaxEntry(f, g, 2 * f),
    lambda f, g: sp.factor(3 * a + 3) * f - g, lambda f, g: Expectation(f * sp.tanh(u) + g, [u], standard_normal()),
    lambda f, g: Expectation(sp.cos(u * v) * f.xreplace({a: u, m: v}), [u, v], Gaussian([g, 0], [[1, m], [m, 2]])),
    lambda f, g: Expectation(relu(u) * f.xreplace({b: u}), [u], Gaussian([0], [[1 + g**2]])),
]  # fmt: skip


def varies(expr: sp.Expr) -> bool:
    return bool(expr.free_symbols)  # constants of constants are limited in what may be read


def compound(inner: st.SearchStrategy[sp.Expr]) -> st.SearchStrategy[sp.Expr]:
    return st.one_of(
        st.builds(lambda f, e: f(e), st.sampled_from(ONE_ARGUMENT), inner.filter(varies)),
        st.builds(lambda f, e, g: f(e, g), st.sampled_from(TWO_ARGUMENTS), inner.filter(varies), inner),
        st.builds(lambda e, n: e**n, inner, st.integers(2, 3)),
    )


def has_text(expr: sp.Expr) -> bool:
    no_value = (sp.nan, sp.zoo, sp.oo, -sp.oo, sp.I, sp.DiracDelta(0))
    return not expr.has(*no_value) and expr.count_ops() < 60


leaves = st.one_of(st.sampled_from(list(FREE.values())), numbers)
expressions = st.recursive(leaves, compound, max_leaves=6).filter(has_text)
elementary = expressions.filter(lambda e: not e.has(Expectation, sp.DiracDelta))
