"""How systems of risk minimisation are shown and read back: proximal nodes, laws of computed quantities, minima."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import hypothesis.strategies as st
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, settings
from matplotlib.mathtext import MathTextParser

import limitlaw
from derive.document import Document
from derive.equations import Define, EquationSystem, Quantity, Source
from derive.expectation import Expectation
from derive.functions import LogCosh, Phi, SoftmaxEntry, softplus
from derive.lines import width
from derive.measures import Gaussian, Pushforward, standard_normal
from derive.minimum import Minimum
from derive.patterns import DOTS, shortened, shortened_sum
from derive.present import document, dot, latex, latex_equation, latex_expression, markdown, mathml
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox
from derive.record import key, read_system, record
from derive.sums import PositiveSum
from derive.text import read_text, text
from tests.derive import formulas
from tests.derive.formulas import expressions

MATHML = "{http://www.w3.org/1998/Math/MathML}"
DERIVED = Source("derived", "")

HUBER = """
limitlaw = 1
family = "convex-erm"
[parameters]
alpha = { domain = "(0,inf)", default = 2 }
lam = { default = "1/10", domain = "[0,inf)" }
[latent]
out = { values = [0, 1], probabilities = ["9/10", "1/10"] }
eps = { normal = [0, 1] }
[features]
mean  = [0]
[label]
formula = "x1 + (1+9*out)*eps/2"
[erm]
loss = "huber"
ridge = "lam"
"""
MIXTURE = """
limitlaw = 1
family = "convex-erm"
[parameters]
alpha = { domain = "(0,inf)", default = 2 }
lam = { default = "1/10", domain = "[0,inf)" }
[latent]
s   = { values = [1, -1], probabilities = ["1/2", "1/2"] }
[features]
mean  = ["3/2*s"]
[label]
formula = "s"
[erm]
loss = "log(1+exp(-y*u))"
ridge = "lam"
"""
SYSTEMS = ["sparse-token-attention", "sparse-token-pooled", "sparse-token-capacity", "sparse-token-oracle",
           "huber", "mixture"]  # fmt: skip
LONG = ("sparse-token-capacity", "huber")  # seconds each
SHOWN = [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in SYSTEMS]


@functools.cache
def system(name: str) -> EquationSystem:
    texts = {"huber": HUBER, "mixture": MIXTURE}
    task = limitlaw.load(Document.read(texts[name], name) if name in texts else name)
    found: EquationSystem = limitlaw.derive(task).system
    return found


@functools.cache
def written(name: str) -> str:
    return document(system(name), name)


def real(name: str) -> sp.Symbol:
    return sp.Symbol(name, real=True)


V = sp.Symbol("V", positive=True)
a, b, m, u, w, y, x1, x, z, k = (real(n) for n in ("a", "b", "m", "u", "w", "y", "x1", "x", "z", "k"))
LOGISTIC = sp.Lambda(u, softplus(-u))


def attended(length: int) -> Pushforward:
    """The law of (softmax(k z).z, |softmax(k z)|, another normal variable)."""
    tokens, p = sp.symbols(f"z1:{length + 1}", real=True), sp.symbols(f"p1:{length + 1}", real=True)
    scaled = [k * (tokens[0] + a), *(k * t for t in tokens[1:])]
    weights = [(s, SoftmaxEntry(e, *(o for o in scaled if o != e))) for s, e in zip(p, scaled, strict=True)]
    mean, norm, extra = real("mean"), real("norm"), real("extra")
    definitions = [*weights, (mean, sp.Add(*(s * t for s, t in zip(p, tokens, strict=True))))]
    definitions.append((norm, sp.sqrt(sp.Add(*(s**2 for s in p)))))
    inputs = (*tokens, extra)
    return Pushforward(standard_normal(length + 1), inputs, definitions, (mean, norm, extra))


def average(integrand: sp.Expr, law: Pushforward) -> sp.Expr:
    """E integrand(x, y, w) under the law."""
    return Expectation(integrand, (x, y, w), law)


# ---- systems ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_survives_json(name: str) -> None:
    entry = json.loads(json.dumps(record(system(name)), allow_nan=False))
    assert read_system(entry) == system(name)
    assert len(key(system(name))) == 64


@pytest.mark.parametrize("name", SHOWN)
def test_every_equation_compiles_in_mathtext_and_is_xml(name: str) -> None:
    parser = MathTextParser("path")
    for equation in system(name).equations:
        parser.parse(f"${latex_equation(equation)}$")
        element = mathml(equation)
        assert element.isascii()
        assert ElementTree.fromstring(element).tag == f"{MATHML}math"


@pytest.mark.parametrize("name", SHOWN)
def test_documents_have_short_lines_and_closed_brackets(name: str) -> None:
    bodies = re.findall(r"(?s)begin.align\*.(.*?)\\end.align", written(name))
    rows = re.findall(r"^  (.*?)(?: \\\\)?$", "\n".join(bodies), re.M)
    for row in rows:
        assert row.count("{") == row.count("}")
        assert row.count(r"\left") == row.count(r"\right")
    assert max(map(width, rows)) < 170  # a product of fractions and powers is not broken
    together = "".join(rows)
    assert together.count(r"\Bigl") == together.count(r"\Bigr")
    assert all(together.count(left) == together.count(right) for left, right in ("()", "[]"))
    assert dot(system(name)).startswith("digraph")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", SHOWN)
def test_documents_compile_in_tex(name: str, tmp_path: Path) -> None:
    (tmp_path / "d.tex").write_text(written(name), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "d.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_laws_and_losses_are_stated_once_in_a_document() -> None:
    attention = system("sparse-token-attention")
    for shown in (latex(attention), written("sparse-token-attention"), markdown(attention)):
        assert shown.count(r"\operatorname{softmax}(") == 2  # with the signal, and without
        assert len(re.findall(r"\\ell_\{\d\}\(u\) =", shown)) == 2
        assert shown.count(r"g \sim \mathcal{N}(0, I_{11})") == 1
        assert r"x_{1} = q_{1} (g_{1} + s_{q} \theta) + g_{2} q_{2} + \cdots + g_{10} q_{10}" in shown
        assert r"(q_{1}, \ldots, q_{10}) = \operatorname{softmax}(\kappa (g_{1} + s_{q} \theta), g_{2} \kappa," in shown
    assert r"\mathrm{prox}_{V \ell}(w)" in markdown(attention)
    assert "prox" not in markdown(system("sparse-token-capacity"))


def test_lines_stay_short_where_there_are_many_tokens() -> None:
    law = attended(64)
    mean = Quantity(m, "")
    many = EquationSystem(
        (Define(mean, average(sp.tanh(x) * w / y, law), DERIVED),), (Quantity(a, ""), Quantity(k, ""))
    )
    assert read_system(record(many)) == many
    assert max(len(e["text"]) for e in record(many)["equations"]) < 3000
    assert max(map(len, document(many, "T").splitlines())) < 300


# ---- text -------------------------------------------------------------------------------------------------
FREE = {s.name: s for s in (a, b, m, u, w, y, x1, k, V, real("g1"), real("q"), real("gg"))}


@pytest.mark.parametrize("node", [Prox, Moreau, MoreauSlope, MoreauCurvature])
def test_a_proximal_node_is_read_back(node: type[Prox]) -> None:
    name = {Prox: "prox", Moreau: "moreau", MoreauSlope: "moreau_slope", MoreauCurvature: "moreau_curvature"}[node]
    expr = node(LOGISTIC, V, w)
    assert text(expr) == f"{name}(u, softplus(-u), V, w)"
    assert read_text(text(expr), FREE) == expr
    beside = u * node(sp.Lambda(y, LogCosh(y - u) + a * y), V * m**2, w + u) ** 2
    assert text(beside).count("uu") == 3
    assert read_text(text(beside), FREE) == beside


def test_a_loss_may_hold_the_variables_of_an_expectation() -> None:
    loss = sp.Lambda(u, LogCosh(u - x))
    expr = Expectation(x * MoreauSlope(loss, V, m * x + b), [x], standard_normal())
    assert text(expr) == "Expectation(x1*moreau_slope(u, logcosh(u - x1), V, b + m*x1), [x1], [0], [[1]])"
    nested = Expectation(expr.xreplace({b: y}) * x1, [y], Gaussian([x1], [[2]]))
    for e in (expr, nested, expr * u * x1):
        assert read_text(text(e), FREE) == e


def test_a_law_of_computed_quantities_is_read_back() -> None:
    law = Pushforward(Gaussian([a, 0], [[1, b], [b, 2]]), (x, y), [(z, x * y + m), (u, sp.exp(z) * x)], (u, y, u))
    expr = average(sp.tanh(x * y) + w, law)
    assert text(expr) == (
        "Expectation(x3 + tanh(x1*x2), [x1, x2, x3], "
        "Pushforward(g, normal([a, 0], [[1, b], [b, 2]]), q, [g1*g2 + m, g1*exp(q1)], [q2, g2, q2]))"
    )
    assert read_text(text(expr), FREE) == expr
    beside = expr * real("g1") * real("q")
    assert "Pushforward(gg, normal(" in text(beside)
    assert "[gg1*gg2 + m, gg1*exp(qq1)], [qq2, gg2, qq2]" in text(beside)
    assert read_text(text(beside), FREE) == beside


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(expressions, expressions, st.booleans())
def test_any_loss_and_any_definition_is_read_back(f: sp.Expr, g: sp.Expr, collide: bool) -> None:
    node = MoreauSlope(sp.Lambda(y, f.xreplace({formulas.a: y})), 1 + g**2, f)
    law = Pushforward(standard_normal(2), (x, z), [(w, f.xreplace({formulas.a: x})), (k, w * z)], (k, x))
    under = Expectation(sp.tanh(x * k) * node.xreplace({formulas.b: k}), (k, x), law)
    beside = u * real("g2") * real("q1") if collide else sp.S.One
    for e in (node * beside, under * beside):
        words = text(e, formulas.FREE)
        assert read_text(words, {**FREE, **formulas.FREE, "g2": real("g2"), "q1": real("q1")}) == e, words


@pytest.mark.parametrize("length", [2, 3, 12])
def test_a_softmax_is_written_as_one(length: int) -> None:
    expr = average(sp.cos(x) * y + w**2, attended(length))
    words = text(expr)
    assert words.count("softmax(") == (length > 2)  # the softmax of two is a sigmoid
    assert f"normal({length + 1})" in words
    assert read_text(words, FREE) == expr


def test_a_part_of_a_softmax_stays_an_entry() -> None:
    one = SoftmaxEntry(x, y, z)
    law = Pushforward(standard_normal(3), (x, y, z), [(u, one), (w, SoftmaxEntry(y, x, z) * u)], (u, w))
    expr = Expectation(sp.tanh(a * b), (a, b), law)
    assert "[softmax_entry(g1, g2, g3), q1*softmax_entry(g2, g1, g3)]" in text(expr)
    assert read_text(text(expr), {}) == expr


def test_minima_and_sums_of_independent_terms_are_read_back() -> None:
    probability = PositiveSum(z, [sp.exp(a * z) * (z + x), z - b], [3, k])
    assert text(probability) == "PositiveSum([x1], [(x + x1)*exp(a*x1), -b + x1], [3, k])"
    least = Minimum(probability + m * x**2, [x], [[0], [sp.sqrt(2) * b]], 1)
    inner = "PositiveSum([x1], [(x1 + x1_1)*exp(a*x1), -b + x1], [3, k])"
    assert text(least) == f"Minimum(m*x1_1**2 + {inner}, [x1_1], [[0], [sqrt(2)*b]], 1)"
    for expr in (probability, least, least.place(0) * x1 + real("x1_1")):
        assert read_text(text(expr), {**FREE, "x": x, "x1_1": real("x1_1")}) == expr


# ---- LaTeX and MathML -------------------------------------------------------------------------------------
def test_proximal_nodes_in_latex() -> None:
    assert latex_expression(Prox(LOGISTIC, V, w)) == r"\mathrm{prox}_{V \ell}(w)"
    assert latex_expression(Moreau(LOGISTIC, 1, w)) == r"\mathcal{M}_{\ell}(w)"
    assert latex_expression(MoreauSlope(LOGISTIC, V * m**2 / 10, w) ** 2) == r"\mathcal{M}'_{V m^{2} \ell / 10}(w)^{2}"
    assert latex_expression(MoreauCurvature(LOGISTIC, V + 1, w)) == r"\mathcal{M}''_{(V + 1) \ell}(w)"
    both = Moreau(LOGISTIC, V, w) - Moreau(sp.Lambda(y, y**2), V, m)
    assert latex_equation(Define(Quantity(a, ""), both, DERIVED)) == (
        r"a = \mathcal{M}_{V \ell_{2}}(w) - \mathcal{M}_{V \ell_{1}}(m)"
        r"\quad\mathrm{with}\ \ell_{2}(u) = \operatorname{softplus}(- u),\quad \ell_{1}(u) = u^{2}"
    )


def test_letters_of_losses_avoid_quantities() -> None:
    expr = u * real("ell") * Prox(LOGISTIC, V, w)
    assert r"\mathrm{prox}_{V \phi}(w)" in latex_expression(expr)
    assert r"\phi(v) = \operatorname{softplus}(- v)" in latex_equation(Define(Quantity(a, ""), expr, DERIVED))


def test_a_loss_shows_the_variables_around_it() -> None:
    expr = Expectation(MoreauSlope(sp.Lambda(u, LogCosh(u - x)), V, m), [x], standard_normal())
    expected = r"\mathbb{E}_{x}\left[\mathcal{M}'_{V \ell(\cdot, x)}(m)\right]"
    assert latex_expression(expr) == expected
    assert latex_equation(Define(Quantity(a, ""), expr, DERIVED)) == (
        rf"a = {expected}\quad\mathrm{{with}}\ \ell(u, x) = \log 2\cosh(u - x)"
    )


def test_a_law_of_computed_quantities_in_latex() -> None:
    law = Pushforward(Gaussian([a], [[2]]), (x,), [(z, sp.exp(x)), (u, z + x)], (u, z))
    equation = Define(Quantity(m, ""), Expectation(sp.tanh(x * y), (x, y), law), DERIVED)
    assert latex_equation(equation) == (
        r"m = \mathbb{E}_{x_{1}, x_{2}}\left[\tanh(x_{1} x_{2})\right]\quad\mathrm{with}\ g \sim \mathcal{N}(a, 2),"
        r"\quad q_{1} = e^{g},\quad x_{1} = g + q_{1},\quad x_{2} = q_{1}"
    )


def test_marginals_share_the_letters_of_their_law() -> None:
    law = attended(6)
    short = EquationSystem(
        (
            Define(Quantity(m, ""), average(sp.tanh(x) * w / y, law), DERIVED),
            Define(Quantity(b, ""), Expectation(sp.tanh(x) / y, (x, y), law.marginal([0, 1])), DERIVED),
        ),
        (Quantity(a, ""), Quantity(k, "")),
    )
    shown = latex(short)
    assert re.findall(r"mathbb\{E\}_\{(.*?)\}\\left", shown) == ["x_{1}, x_{2}, g_{7}", "x_{1}, x_{2}"]
    assert shown.count(r"\operatorname{softmax}") == shown.count(r"\sim") == 1


def test_mathml_states_laws_and_losses_below_the_equation() -> None:
    expr = average(MoreauSlope(LOGISTIC, V * y**2, a + x), attended(9))
    root = ElementTree.fromstring(mathml(Define(Quantity(m, ""), expr, DERIVED)))
    invisible = str.maketrans("", "", "\u2061\u2062\u00a0\u2003")
    rows = ["".join(row.itertext()).translate(invisible) for row in root.iter(f"{MATHML}mtr")]
    assert rows == [
        "m=𝔼x1,x2[ℳVx22ℓ′(a+x1)]",
        "withℓ(u)=softplus(−u)",
        "g∼𝒩(0,I9)",
        "(q1,…,q9)=softmax(k(a+g1),g2k,…,g9k)",
        "x1=g1q1+⋯+g9q9",
        "x2=q12+⋯+q92",
    ]


def test_minima_in_latex() -> None:
    free = sp.symbols("y1:8", real=True)
    distance = sp.Add(*((s - a) ** 2 for s in free))
    least = Minimum(distance, free, [[0] * 7])
    assert latex_expression(least) == (
        r"\min_{x_{1}, \ldots, x_{7}}\left[(x_{1} - a)^{2} + \cdots + (x_{7} - a)^{2}\right]"
    )
    place = Define(Quantity(m, ""), 2 * Minimum((x - a) ** 2, [x], [[0]], 1), DERIVED)
    assert (
        latex_equation(place)
        == r"m = 2 \hat{x}\quad\mathrm{with}\ \hat{x} = \mathrm{arg}\, \min_{x}\left[(x - a)^{2}\right]"
    )
    assert ElementTree.fromstring(mathml(place)).tag == f"{MATHML}math"


def test_sums_of_independent_terms_in_latex() -> None:
    assert latex_expression(PositiveSum(z, [sp.exp(z) - 1], [k])) == (
        r"\mathbb{P}_{x}\left[\sum_{i=1}^{k} (e^{x_{i}} - 1) > 0\right]"
    )
    assert latex_expression(PositiveSum(z, [a - z, sp.tanh(z)], [1, 3])) == (
        r"\mathbb{P}_{x}\left[a - x_{1} + \sum_{i=1}^{3} \tanh(x_{2, i}) > 0\right]"
    )


# ---- what repeats -----------------------------------------------------------------------------------------
def bound(letter: str, count: int) -> list[sp.Symbol]:
    return [sp.Symbol(f"{letter}{i + 1}", real=True, bound=True) for i in range(count)]


def test_runs_are_shortened_from_five_on() -> None:
    g = bound("g", 11)
    assert shortened(g[:4]) == g[:4]
    assert shortened(g[:5]) == [g[0], DOTS, g[4]]
    assert shortened([k * (g[0] + a), *(k * s for s in g[1:])]) == [k * (g[0] + a), k * g[1], DOTS, k * g[10]]
    assert shortened([g[0], g[2], g[4], g[6], g[8]]) == [g[0], g[2], g[4], g[6], g[8]]


def test_only_terms_that_differ_in_an_index_alone_are_left_out() -> None:
    g, q = bound("g", 12), bound("q", 12)
    terms = [s * t for s, t in zip(g, q, strict=True)]
    odd = [*terms[:5], 2 * terms[5], *terms[6:]]
    assert shortened_sum(terms) == [terms[0], DOTS, terms[-1]]
    assert shortened_sum([-t for t in terms]) == [-terms[0], -DOTS, -terms[-1]]
    assert 2 * terms[5] in shortened_sum(odd)
    norm = sp.sqrt(sp.Add(*(s**2 for s in g[:11])))
    scores = [Phi(a * s / norm - g[11]) for s in g[:11]]
    assert shortened_sum(scores[::-1]) == [scores[0], DOTS, scores[-1]]
    free = sp.symbols("z1:12", real=True)
    assert shortened_sum(free) == list(free)


def test_sums_over_subsets_show_the_first_and_the_last() -> None:
    g = bound("g", 8)
    pairs = [sp.tanh(g[i] + g[j]) for i in range(8) for j in range(i)]
    assert shortened_sum(pairs) == [sp.tanh(g[0] + g[1]), DOTS, sp.tanh(g[6] + g[7])]
    assert len(shortened_sum(pairs[:-1])) > 6  # a pair is missing
    assert len(shortened_sum([*pairs[:-1], sp.tanh(g[6] + 2 * g[7])])) > 6


def test_dots_stand_among_terms_that_are_added_or_subtracted() -> None:
    free = sp.symbols("y1:8", real=True)
    sums = [sp.Add(*free) - 1, -sp.Add(*free) + 1]
    shown = [latex_expression(Minimum(e, free, [[0] * 7])) for e in sums]
    assert [s.partition(r"\left[")[2] for s in shown] == [
        r"x_{1} + \cdots + x_{7} - 1\right]",
        r"1 - x_{1} - \cdots - x_{7}\right]",
    ]
