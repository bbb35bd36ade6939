from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sympy as sp
from hypothesis import HealthCheck, assume, given, settings
from matplotlib.mathtext import MathTextParser

from derive.equations import Define, EquationSystem, Flow, Quantity, Root, Source
from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.latex import Latex
from derive.letters import notation_for
from derive.lines import broken, width
from derive.mathml import mathml_expression
from derive.measures import Gaussian, standard_normal
from derive.notation import latex_name
from derive.present import document, dot, latex, latex_equation, latex_expression, markdown, mathml, svg
from tests.derive.formulas import FREE, elementary
from tests.derive.printed import formula_value, latex_value, mathml_value

SVG = "{http://www.w3.org/2000/svg}"
MATHML = "{http://www.w3.org/1998/Math/MathML}"
DERIVED = Source("derived", 'by "hand" & <pen>')


def real(name: str) -> sp.Symbol:
    return sp.Symbol(name, real=True)


m, e, q, x, y, z1 = (real(n) for n in ("m", "e", "q", "x", "y", "z_1"))
gamma, omega, theta = (real(n) for n in ("gamma", "omega", "theta"))
PAIR = Gaussian([0, e], [[1, m], [m, 1]])
INNER = Expectation(sp.tanh(x + y) * sp.Heaviside(y), [y], Gaussian([x], [[q**2 + 1]]))

SHAPES = [
    *(
        real(n)
        for n in ("qhat", "m_star", "mu1", "test_error", "omega_trans", "lam", "ell", "pi", "q_tilde", "z1_star")
    ),
    real("m_star") ** 2 / real("q_bar") ** 3,
    He(3, z1) ** 2,
    sp.log(x) ** 2 * y,
    sp.log(1 + sp.exp(-x)),
    LogCosh(x) * y - LogCosh(x + y) ** 2,
    Phi(-x / sp.sqrt(2)),
    relu(x) * sigmoid(x * (x - y)) - softplus(x / 2),
    SoftmaxEntry(x, y, q),
    sp.Max(x, y, 0) + sp.Min(x, y) + sp.Abs(x) ** 3 + sp.sign(x) + sp.erf(x),
    sp.Heaviside(x) + sp.DiracDelta(x - sp.Rational(1, 3)) + sp.DiracDelta(y, 1),
    sp.asin(m) / sp.pi + sp.acos(m / 2),
    sp.exp(-(q**2) / 2) / sp.sqrt(2 * sp.pi),
    sp.exp(-(e**2) / 2 + sp.sqrt(q**2 + 1) / (1 + m**2)),
    sp.Rational(-2, 3) * m + sp.sqrt(1 - m**2) * (1 + q**2) ** sp.Rational(-3, 2),
    (1 + m**2) ** sp.Rational(1, 3) * 2 ** sp.Rational(1, 3) * 5,
    -gamma * m / 2 + (1 - m**2) * (4 * m + 3 * m**2),
    LargestEigenvalue(2, m, q, q, e),
    sp.cos(x) ** 2 + sp.sinh(x) + sp.cosh(x) + sp.besselk(0, x),
    Expectation(relu(x) * He(2, y), [x, y], PAIR) * gamma / 2,
    Expectation(x * INNER, [x], standard_normal()) ** 2 - Expectation(relu(x) * y, [x, y], PAIR),
]


def flow_system() -> EquationSystem:
    overlap, position = Quantity(m, "overlap <w, w*>/d", sp.Interval(-1, 1)), Quantity(e, "of the position")
    loss, root = Quantity(real("risk"), "population loss"), Quantity(real("q_hat"), 'a "root" in λ & |q|')
    rate = Quantity(gamma, "learning rate", sp.Interval.open(0, sp.oo), real("n") / real("d") ** 2, sp.Rational(1, 2))
    share = Quantity(omega, "", sp.Interval.Ropen(0, 1))
    inner = Expectation(relu(x) * He(2, y), [x, y], PAIR)
    return EquationSystem(
        (
            Flow(overlap, (1 - m**2) * inner - gamma * m / 2, Source("arXiv:2506.02651", "section 5")),
            Flow(position, omega * Expectation(sp.tanh(x) * y, [x, y], PAIR) - e * sp.Heaviside(m), DERIVED),
            Define(loss, m**2 + omega, DERIVED),
            Root(root, root.symbol**3 - loss.symbol, DERIVED),
        ),
        (rate, share, Quantity(real("unused"), "")),
    )


def long_system() -> EquationSystem:
    waves = sp.Add(*(sp.cos(k * x + y) * real("a") ** k for k in range(1, 20)))
    squares = sp.Add(*(He(k, x) * real("a") - SoftmaxEntry(x, y, k * y) for k in range(2, 9))) ** 2
    rhs = (1 - m**2) * sp.Add(*(real("a") ** k * sp.exp(-k * m**2) / (k + 2) for k in range(1, 15)))
    rhs += -gamma / 2 * m * Expectation(squares, [x, y], PAIR.xreplace({e: real("a")}))
    nested = -sp.log(real("a")) * Expectation(Expectation(waves, [x], Gaussian([y], [[1]])), [y], standard_normal())
    unknowns = [Flow(Quantity(m, ""), rhs, DERIVED), Define(Quantity(q, ""), nested * gamma - m, DERIVED)]
    return EquationSystem(tuple(unknowns), (Quantity(gamma, ""), Quantity(real("a"), "")))


SYSTEMS = [flow_system, long_system]


def test_the_names_of_the_field() -> None:  # case A32
    assert latex_expression(real("qhat")) == latex_expression(real("q_hat")) == r"\hat{q}"
    assert latex_expression(real("m_star")) == r"m^{\star}"
    assert latex_expression(He(3, z1)) == r"\mathrm{He}_{3}(z_{1})"
    assert latex_expression(sp.log(x) ** 2) == r"(\log x)^{2}"
    step = latex_expression(sp.Heaviside(x) * theta)
    assert step == r"\theta \mathbf{1}[x > 0]"
    assert step.count("theta") == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("m_hat", r"\hat{m}"),
        ("Vhat", r"\hat{V}"),
        ("lam", r"\lambda"),
        ("lambda", r"\lambda"),
        ("Delta", r"\Delta"),
        ("mu12", r"\mu_{12}"),
        ("z1", "z_{1}"),
        ("z1_star", r"z_{1}^{\star}"),
        ("omega_trans", r"\omega_{\mathrm{trans}}"),
        ("R_mm", "R_{mm}"),
        ("lam_F", r"\lambda_{F}"),
        ("test_error", r"\mathrm{test\ error}"),
        ("that", r"\hat{t}"),
        ("somewhat", r"\mathrm{somewhat}"),
        ("pi", r"\varpi"),  # the constant is \pi
    ],
)
def test_names_in_latex(name: str, expected: str) -> None:
    assert latex_name(name) == expected


@pytest.mark.parametrize("expr", SHAPES, ids=str)
def test_every_shape_compiles_in_mathtext_and_is_xml(expr: sp.Expr) -> None:
    equation = Flow(Quantity(real("mu1"), ""), expr, DERIVED)
    parser = MathTextParser("path")
    parser.parse(f"${latex_expression(expr)}$")
    parser.parse(f"${latex_equation(equation)}$")
    for text in (mathml(equation), mathml_expression(expr)):
        assert ElementTree.fromstring(text).tag == f"{MATHML}math"
        assert text.isascii()


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_equation_of_a_system_compiles_in_mathtext(system: Callable[[], EquationSystem]) -> None:
    for equation in system().equations:
        MathTextParser("path").parse(f"${latex_equation(equation)}$")


def test_an_equation_says_what_it_determines_and_under_which_law() -> None:
    rhs = Expectation(relu(x) * He(2, y), [x, y], PAIR)
    where = r"\operatorname{Cov}_{11} = \operatorname{Cov}_{22} = 1,\ \operatorname{Cov}_{12} = m"
    assert latex_equation(Flow(Quantity(m, ""), rhs, DERIVED)) == (
        r"\frac{\mathrm{d} m}{\mathrm{d}\tau} = \mathbb{E}_{x_{1}, x_{2}}"
        r"\left[\mathrm{He}_{2}(x_{2}) \operatorname{relu}(x_{1})\right]"
        rf"\quad\mathrm{{with}}\ (x_{{1}}, x_{{2}}) \sim \mathcal{{N}}((0, e), \operatorname{{Cov}}),\ {where}"
    )
    normal = Expectation(sp.tanh(x) ** 2, [x], standard_normal())
    assert latex_equation(Define(Quantity(q, ""), normal, DERIVED)) == r"q = \mathbb{E}_{x}\left[\tanh^{2}(x)\right]"
    assert latex_equation(Root(Quantity(q, ""), 1 - q, DERIVED)) == "0 = 1 - q"


def test_bound_letters_avoid_quantities_and_one_another() -> None:
    inside = Expectation(sp.cos(x + y + real("y1")), [y], standard_normal())
    assert latex_expression(Expectation(x * inside, [x], standard_normal())) == (
        r"\mathbb{E}_{u}\left[u \mathbb{E}_{x}\left[\cos(x + u + y_{1})\right]\right]"
    )
    beside = Expectation(sp.cos(x), [x], Gaussian([0], [[2]])) - Expectation(sp.sin(x) + x**2, [x], standard_normal())
    assert set(re.findall(r"mathbb\{E\}_\{(\w)\}", latex_expression(beside))) == {"x", "y"}


def test_words_stand_apart() -> None:
    assert latex_expression(gamma * real("growth") - real("growth")) == r"\gamma \, \mathrm{growth} - \mathrm{growth}"


def test_exp_is_a_power_of_e_only_where_nothing_else_is_called_e() -> None:
    assert latex_expression(sp.exp(-m)) == "e^{- m}"
    assert latex_expression(sp.exp(-m) * e) == r"e \exp(- m)"
    assert latex_expression(sp.E * e) == r"\exp(1) e"
    assert ">exp<" in mathml_expression(sp.exp(-m) * e)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_law_is_stated_once_a_block(system: Callable[[], EquationSystem]) -> None:
    for text in (latex(system()), document(system(), "T"), markdown(system())):
        assert len(re.findall(r"\\sim \\mathcal\{N\}\\left\(", text)) == 1


VALUES = {"a": 0.3, "b": -0.71, "m": 1.13, "p": 0.87, "x1": -0.23, "varpi": 0.59, "pi": math.pi, "e": math.e}


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(elementary)
def test_what_is_printed_means_the_formula(expr: sp.Expr) -> None:
    exact = formula_value(expr, {s: VALUES["varpi" if s.name == "pi" else s.name] for s in FREE.values()})
    assume(abs(exact) < 1e6)
    printer = Latex(notation_for([expr]), matrices=False)
    for room in (1000, 12):
        lines = " ".join(broken(printer, expr, room))
        assert latex_value(lines, VALUES) == pytest.approx(exact, rel=1e-6, abs=1e-6), lines  # sums of 1e6 cancel
    assert mathml_value(mathml_expression(expr), VALUES) == pytest.approx(exact, rel=1e-6, abs=1e-6)


def test_mathml_reads_as_the_formula() -> None:
    element = ElementTree.fromstring(
        mathml(Flow(Quantity(m, ""), -gamma * m / 2 + sp.log(real("q_hat")) ** 2, DERIVED))
    )
    invisible = "\u2061\u2062"
    read = "".join(element.itertext()).translate(dict.fromkeys(map(ord, invisible)))
    assert read == "dmdτ=(logq^)2−γm2"
    assert element.find(f".//{MATHML}mfrac") is not None


@pytest.mark.parametrize("system", SYSTEMS)
def test_document_breaks_long_lines_and_leaves_braces_balanced(system: Callable[[], EquationSystem]) -> None:
    text = document(system(), r"50 % of a_b & \c{d}")
    rows = [
        row
        for body in re.findall(r"\\begin\{align\*\}(.*?)\\end\{align\*\}", text, re.S)
        for row in body.split("\\\\\n")
    ]
    assert max(map(width, rows)) < 100  # 84 letters and the left-hand side
    for row in rows:
        assert row.count("{") == row.count("}")
        assert row.count(r"\left") == row.count(r"\right")
    assert text.count(r"\Bigl") == text.count(r"\Bigr")
    assert r"50 \% of a\_b \& \textbackslash{}c\{d\}" in text


def test_breaking_a_formula_loses_no_term() -> None:
    text = document(long_system(), "T")
    for k in range(2, 20):
        assert rf"\cos({k} x + y)" in text
    assert text.count(r"\operatorname{softmax}") == 7


if shutil.which("pdflatex"):

    @pytest.mark.parametrize("system", SYSTEMS)
    def test_document_compiles_in_tex(system: Callable[[], EquationSystem], tmp_path: Path) -> None:
        (tmp_path / "d.tex").write_text(document(system(), "α_1 & 50 % < |q|^2"), encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "d.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout

    def test_every_shape_compiles_in_tex(tmp_path: Path) -> None:
        shapes = tuple(Define(Quantity(real(f"v{i}"), ""), s, DERIVED) for i, s in enumerate(SHAPES))
        free = set().union(*(s.free_symbols for s in SHAPES))
        system = EquationSystem(shapes, tuple(Quantity(s, "") for s in sorted(free, key=str)))
        (tmp_path / "d.tex").write_text(document(system, "Shapes"), encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "d.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]


def test_markdown_gives_every_equation_with_meaning_and_source() -> None:
    text = markdown(flow_system(), "A_b")
    assert text.startswith("# A\\_b\n")
    assert "## Flow of $m$, $e$" in text
    assert "$m$: overlap \\<w, w\\*\\>/d, in $[-1, 1]$ (arXiv:2506.02651, section 5)" in text
    assert text.count("$$\n") == 2 * len(flow_system().equations) + 2  # and the law
    assert r"$\gamma$: learning rate, in $(0, \infty)$, at finite size $\frac{n}{d^{2}}$, default $\frac{1}{2}$" in text
    assert "the step" in text


@pytest.mark.parametrize("system", SYSTEMS)
def test_dot_has_the_edges_of_the_graph(system: Callable[[], EquationSystem]) -> None:
    text = dot(system())
    edges = re.findall(r'^  "(.+)" -> "(.+)";$', text, re.M)
    assert sorted(edges) == sorted((a.name, b.name) for a, b in system().graph().edges)
    assert text.count("shape=box") == len(system().parameters)
    assert text.count("subgraph") == sum(len(b.equations) > 1 for b in system().blocks())


def ring(n: int) -> EquationSystem:
    """A cycle of n unknowns that all read an earlier unknown, followed by a later one."""
    late, end = real("late"), real("end")
    names = [real(f"c{i}") for i in range(n)]
    cycle = [Define(Quantity(s, "<&>"), names[i - 1] + gamma + late, DERIVED) for i, s in enumerate(names)]
    others = [Define(Quantity(late, ""), gamma, DERIVED), Define(Quantity(end, ""), names[0] + gamma, DERIVED)]
    return EquationSystem((*cycle, *others), (Quantity(gamma, "]]>"),))


@pytest.mark.parametrize("system", [*SYSTEMS, *(lambda n=n: ring(n) for n in (1, 2, 3, 9))])
def test_svg_is_xml_with_one_arrow_an_edge_and_nodes_apart(system: Callable[[], EquationSystem]) -> None:
    root = ElementTree.fromstring(svg(system()))
    graph = system().graph()
    assert len(root.findall(f".//{SVG}path[@class='arrow']")) == graph.number_of_edges()
    ellipses = [
        (float(n.get("cx", 0)), float(n.get("cy", 0)), float(n.get("rx", 0))) for n in root.iter(f"{SVG}ellipse")
    ]
    assert len(ellipses) == len(system().unknowns)
    for i, (x1, y1, r1) in enumerate(ellipses):
        for x2, y2, r2 in ellipses[:i]:
            assert abs(x1 - x2) >= r1 + r2 or abs(y1 - y2) >= 30  # 34 is the height of a node
    assert all(path.get("d", "").count("nan") == 0 for path in root.iter(f"{SVG}path"))


def test_a_reader_stands_below_what_it_reads() -> None:
    root = ElementTree.fromstring(svg(flow_system()))
    height = {}
    for group in root.iter(f"{SVG}g"):
        shape = group[1]
        height[(group[0].text or "").split(":")[0]] = float(shape.get("cy") or shape.get("y") or "nan")
    for a, b in (("gamma", "m"), ("omega", "e"), ("m", "risk"), ("risk", "q_hat")):
        assert height[a] < height[b]
