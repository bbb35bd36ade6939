from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, settings

from derive.equations import Define, EquationSystem, Flow, Quantity, Root, Source
from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.measures import Gaussian, Measure, standard_normal
from derive.record import quantity_symbol, read_system, record
from derive.text import domain_text, read_domain, read_text, text

POSITIVE = sp.Interval.open(0, sp.oo)
a, b, m, x1 = (sp.Symbol(n, real=True) for n in ("a", "b", "m", "x1"))
p = sp.Symbol("p", real=True, positive=True)
pi = sp.Symbol("pi", real=True)
FREE = {s.name: s for s in (a, b, m, p, x1, pi)}
u, v = sp.symbols("u v", real=True)

numbers = st.one_of(
    st.integers(-9, 9).map(sp.Integer),
    st.fractions(max_denominator=12)
    .filter(lambda f: abs(f) < 10)
    .map(lambda f: sp.Rational(f.numerator, f.denominator)),
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


def compound(inner: st.SearchStrategy[sp.Expr]) -> st.SearchStrategy[sp.Expr]:
    return st.one_of(
        st.builds(lambda f, e: f(e), st.sampled_from(ONE_ARGUMENT), inner),
        st.builds(lambda f, e, g: f(e, g), st.sampled_from(TWO_ARGUMENTS), inner, inner),
        st.builds(lambda e, n: e**n, inner, st.integers(2, 3)),
    )


def has_text(expr: sp.Expr) -> bool:
    return not expr.has(sp.nan, sp.zoo, sp.oo, -sp.oo, sp.I) and expr.count_ops() < 60


words = st.sampled_from(["", "overlap <w, w*>/d", '"quoted" \\ λ\n', "\x00\U0001f600"])
leaves = st.one_of(st.sampled_from(list(FREE.values())), numbers)
expressions = st.recursive(leaves, compound, max_leaves=6).filter(has_text)
quick = settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@quick
@given(expressions)
def test_reading_what_was_written_gives_the_same_expression(expr: sp.Expr) -> None:
    written = text(expr, FREE)
    assert read_text(written, FREE) == expr, written


@st.composite
def systems(draw: st.DrawFn) -> EquationSystem:
    names = [n for n in ("a", "b", "m") if draw(st.booleans())] or ["m"]
    kinds = [draw(st.sampled_from([Define, Root, Flow])) for _ in names]
    intervals = [sp.S.Reals, sp.Interval(0, 1), sp.Interval.Lopen(-1, sp.sqrt(2)), sp.Interval(0, sp.oo)]
    scale = sp.Symbol("n", real=True, positive=True) / sp.Symbol("d", real=True, positive=True) ** 2

    def quantity(name: str) -> Quantity:
        domain = POSITIVE if name == "p" else draw(st.sampled_from(intervals))
        default = draw(st.none() | numbers)
        return Quantity(FREE[name], draw(words), domain, draw(st.sampled_from([sp.S.One, scale])), default)

    equations = tuple(
        kind(quantity(n), draw(expressions), Source("derived", draw(words)))
        for kind, n in zip(kinds, names, strict=True)
    )
    start = {FREE[n]: draw(numbers) for n in names if draw(st.booleans())}
    return EquationSystem(equations, tuple(quantity(n) for n in FREE if n not in names), start)


@settings(quick, max_examples=30)
@given(systems())
def test_a_system_survives_json(system: EquationSystem) -> None:
    entry = json.loads(json.dumps(record(system), allow_nan=False))
    assert read_system(entry) == system


def test_the_record_has_the_documented_shape() -> None:
    alpha = Quantity(p, "samples", POSITIVE, sp.Symbol("n", real=True, positive=True), sp.Rational(9, 10))
    system = EquationSystem(
        (Flow(Quantity(m, "overlap", sp.Interval(-1, 1)), p * m / 2 - a, Source("arXiv:1", "Eq. (2)")),
         Define(Quantity(a, "twice"), 2 * m, Source("derived", ""))),
        (alpha,),
        {m: 1 / sp.sqrt(p)},
    )  # fmt: skip
    assert record(system) == {
        "unknowns": [
            {"name": "m", "latex": "m", "meaning": "overlap", "domain": "[-1,1]", "scale": "1", "default": None,
             "start": "1/sqrt(p)"},
            {"name": "a", "latex": "a", "meaning": "twice", "domain": "(-inf,inf)", "scale": "1", "default": None,
             "start": None},
        ],
        "parameters": [
            {"name": "p", "latex": "p", "meaning": "samples", "domain": "(0,inf)", "scale": "n", "default": "9/10"}
        ],
        "equations": [
            {"unknown": "m", "kind": "flow", "text": "-a + m*p/2",
             "latex": r"\frac{\mathrm{d} m}{\mathrm{d}\tau} = \frac{m p}{2} - a",
             "source": {"reference": "arXiv:1", "where": "Eq. (2)"}},
            {"unknown": "a", "kind": "define", "text": "2*m", "latex": "a = 2 m",
             "source": {"reference": "derived", "where": ""}},
        ],
        "blocks": [{"unknowns": ["m", "a"], "state": ["m"]}],
        "edges": [["p", "m"], ["m", "m"], ["m", "a"], ["a", "m"]],
    }  # fmt: skip


@pytest.mark.parametrize("assumptions", [{}, {"integer": True}, {"negative": True}, {"nonnegative": True}])
def test_assumptions_that_the_domain_does_not_give_are_kept(assumptions: dict[str, bool]) -> None:
    n = sp.Symbol("n", **assumptions)
    size = sp.Symbol("d", **assumptions)
    system = EquationSystem(
        (Define(Quantity(m, ""), sp.Abs(n) + sp.sqrt(n**2), Source("derived", "")),), (Quantity(n, "", scale=size),)
    )
    entry = record(system)
    assert read_system(json.loads(json.dumps(entry))) == system
    assert set(entry["assumptions"]) == {"n", "d"}


def test_a_parameter_named_pi_is_not_the_constant() -> None:
    expr = pi / sp.sqrt(2 * sp.pi)
    assert read_text(text(expr), {"pi": pi}) == expr
    assert read_text(text(sp.pi * m), {"m": m}) == sp.pi * m
    system = EquationSystem(
        (Define(Quantity(m, ""), sp.pi * a, Source("derived", "")),), (Quantity(a, ""), Quantity(pi, ""))
    )
    assert read_system(record(system)) == system


def test_bound_variables_give_way_to_free_names() -> None:
    expr = Expectation(sp.tanh(u + x1), [u], Gaussian([x1], [[1]]))
    assert text(expr) == "Expectation(tanh(x1 + xx1), [xx1], [x1], [[1]])"
    assert read_text(text(expr), {"x1": x1}) == expr
    assert text(LargestEigenvalue(2, a, b, b, m)) == "largest_eigenvalue(2, a, b, b, m)"


@pytest.mark.parametrize(
    "factored", [2 * sp.factor(2 * m + 2), sp.factor(2 * m + 2), a / (2 * (m + 1)), -2 * (m + 1) * (a - 1)]
)
def test_a_product_stays_as_it_was_written(factored: sp.Expr) -> None:
    assert read_text(text(factored), FREE) == factored


class Arcsine(Measure):
    dim = 1


@pytest.mark.parametrize(
    "expr",
    [sp.Float("0.1") * m, sp.oo, sp.I * m, sp.besselk(0, m), sp.Piecewise((m, m > 0), (0, True)), sp.Function("f")(m),
     Expectation(sp.tanh(u), [u], Arcsine())],
    ids=["float", "infinity", "imaginary", "bessel", "piecewise", "undefined", "law"],
)  # fmt: skip
def test_what_has_no_exact_text_is_refused(expr: sp.Expr) -> None:
    with pytest.raises(ValueError, match="has no text form"):
        text(expr)


@pytest.mark.parametrize("domain", ["[0,1]", "(0,inf)", "[0,inf)", "(-inf,inf)", "(-1,1]", "[1/2,sqrt(2)]", "(-inf,0]"])
def test_domains_survive(domain: str) -> None:
    assert domain_text(read_domain(domain)) == domain


def test_domains_that_are_no_intervals() -> None:
    assert domain_text(sp.S.Reals) == "(-inf,inf)"
    assert read_domain("(-inf,inf)") == sp.S.Reals
    with pytest.raises(ValueError, match="no interval"):
        domain_text(sp.FiniteSet(1, 2))
    for words in ("0,1", "[0,1", "[0;1]", "", "{1,2}"):
        with pytest.raises(ValueError, match="no interval"):
            read_domain(words)


def test_symbols_are_positive_where_the_domain_is() -> None:
    assert quantity_symbol("p", sp.Interval.open(0, 1)).is_positive
    assert quantity_symbol("p", sp.Interval(0, 1)).is_positive is None
    assert quantity_symbol("p", sp.S.Reals).is_real


def test_an_unknown_kind_is_refused() -> None:
    entry = record(EquationSystem((Define(Quantity(m, ""), m / 2, Source("derived", "")),)))
    entry["equations"][0]["kind"] = "ode"
    with pytest.raises(ValueError, match="allowed are define, root, flow"):
        read_system(entry)
