from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, settings

from derive.equations import Define, EquationSystem, Flow, Quantity, Root, Source
from derive.expectation import Expectation
from derive.functions import LargestEigenvalue, LogCosh, Phi, SoftmaxEntry
from derive.measures import Gaussian, Measure
from derive.record import quantity_symbol, read_system, record
from derive.text import domain_text, read_domain, read_text, text
from tests.derive.formulas import FREE, a, b, expressions, m, numbers, p, pi, u, x1

POSITIVE = sp.Interval.open(0, sp.oo)
words = st.sampled_from(["", "overlap <w, w*>/d", '"quoted" \\ λ\n', "\x00\U0001f600"])
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
    assert text(expr) == "Expectation(tanh(x1 + x1_1), [x1_1], [x1], [[1]])"
    assert read_text(text(expr), {"x1": x1}) == expr


def test_every_function_is_read_by_the_name_it_is_written() -> None:
    others = [LargestEigenvalue(2, a, b, b, m), SoftmaxEntry(a, b, m), sp.Max(a, b, 0), sp.DiracDelta(a - b)]
    others += [f(a) for f in (sp.acos, sp.asin, sp.atan, sp.cosh, sp.sinh, sp.erf, sp.erfc, LogCosh, Phi, sp.sign)]
    assert text(others[0]) == "largest_eigenvalue(2, a, b, b, m)"
    for expr in others:
        assert read_text(text(expr), FREE) == expr


@pytest.mark.parametrize(
    "factored", [2 * sp.factor(2 * m + 2), sp.factor(2 * m + 2), a / (2 * (m + 1)), -2 * (m + 1) * (a - 1)]
)
def test_a_product_stays_as_it_was_written(factored: sp.Expr) -> None:
    assert read_text(text(factored), FREE) == factored


class Arcsine(Measure):
    dim = 1


@pytest.mark.parametrize(
    "expr",
    [sp.Float("0.1") * m, sp.oo, sp.I * m, sp.besselk(0, m), sp.DiracDelta(m, 1),
     sp.Piecewise((m, m > 0), (0, True)), sp.Function("f")(m),
     Expectation(sp.tanh(u), [u], Arcsine())],
    ids=["float", "infinity", "imaginary", "bessel", "slope of delta", "piecewise", "undefined", "law"],
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
