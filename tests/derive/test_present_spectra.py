"""How laws of eigenvalues, their functions and proximal operators of several variables are shown and read back."""

from __future__ import annotations

import functools
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import hypothesis.strategies as st
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, settings
from matplotlib.mathtext import MathTextParser

import limitlaw
from derive.display import few
from derive.equations import Define, EquationSystem, Quantity, Source
from derive.expectation import Expectation
from derive.lines import width
from derive.mathml import mathml_expression
from derive.measures import Measure, Pushforward, standard_normal
from derive.notation import latex_name
from derive.parse import FormulaError
from derive.present import document, latex_equation, latex_expression, markdown, mathml
from derive.proximal import Confined, Prox
from derive.record import key, read_system, record
from derive.spectra import (
    Atoms,
    FreeConvolution,
    HilbertTransform,
    Listed,
    PowerLaw,
    SpectralDensity,
    Spectrum,
    Wishart,
    semicircle,
)
from derive.text import listed_spectra, read_text, text
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope

MATHML = "{http://www.w3.org/1998/Math/MathML}"
DERIVED = Source("derived", "")
SYSTEMS = ["aim-linear", "aim-softmax", "aim-direct", "aim-power-law", "aim-thresholds"]
LONG_ONES = ("aim-direct", "aim-thresholds")  # seconds each
SHOWN = [pytest.param(name, marks=[pytest.mark.slow] if name in LONG_ONES else []) for name in SYSTEMS]
IN_MATHTEXT = [pytest.param(name, marks=[pytest.mark.slow] if name != "aim-linear" else []) for name in SYSTEMS]


@functools.cache
def system(name: str) -> EquationSystem:
    found: EquationSystem = limitlaw.derive(limitlaw.load(name)).system
    return found


@functools.cache
def written(name: str) -> str:
    return document(system(name), name)


def real(name: str) -> sp.Symbol:
    return sp.Symbol(name, real=True)


V, kappa0 = (sp.Symbol(name, positive=True) for name in ("V", "kappa0"))
a, b, m, u, w, x, y, delta, eps = (real(n) for n in ("a", "b", "m", "u", "w", "x", "y", "delta", "eps"))
u1, u2, w1, w2 = (real(n) for n in ("u1", "u2", "w1", "w2"))
FREE = {s.name: s for s in (a, b, m, u, w, x, V, kappa0, delta, eps, u1, u2, w1, w2, real("x1"), real("uu1"))}
MP = Wishart(kappa0)
MU = FreeConvolution(MP, delta**2)
LONG = Listed([5e-324, 1.7976931348623157e308, -1e-300, 0.1, 1 / 3, *map(float, range(20))])
LAWS = [MP, MU, PowerLaw(a, 100), semicircle(delta**2), Atoms([0, b], [sp.Rational(1, 3), sp.Rational(2, 3)]),
        Listed([0.1, -2, 1e-300]), FreeConvolution(LONG, 1)]  # fmt: skip
LOSS = sp.Lambda((a, b), (a - b) ** 2 + sp.tanh(a) * m)
STARTS = ((0, 0), (w1, 2 * w2))
NODES = [VectorMoreau(LOSS, V, (w1, w2), STARTS), VectorProx(LOSS, V, (w1, w2), STARTS, 1),
         VectorSlope(LOSS, 2 * V / m, (w1 + m, w2), STARTS, 0),
         VectorCurvature(LOSS, V, (w1, w2), STARTS, 0, 1)]  # fmt: skip


def average(integrand: sp.Expr, law: Measure) -> sp.Expr:
    """E integrand(x) under the law."""
    return Expectation(integrand, [x], law)


def defined(rhs: sp.Expr) -> EquationSystem:
    """A system of one equation."""
    free = sorted(rhs.free_symbols, key=str)
    return EquationSystem((Define(Quantity(real("result"), ""), rhs, DERIVED),), tuple(Quantity(s, "") for s in free))


def equation(rhs: sp.Expr) -> Define:
    return Define(Quantity(real("result"), ""), rhs, DERIVED)


def stated(rhs: sp.Expr) -> list[str]:
    r"""What \mathrm{with} says beside the formula."""
    return latex_equation(equation(rhs)).partition(r"\quad\mathrm{with}\ ")[2].split(r",\quad ")


# ---- systems ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SHOWN)
def test_a_system_survives_json(name: str) -> None:
    entry = json.loads(json.dumps(record(system(name)), allow_nan=False))
    assert read_system(entry) == system(name)
    assert len(key(system(name))) == 64


@pytest.mark.parametrize("name", IN_MATHTEXT)
def test_every_equation_compiles_in_mathtext_and_is_xml(name: str) -> None:
    parser = MathTextParser("path")
    for e in system(name).equations:
        shown = latex_equation(e)
        parser.parse(f"${shown}$")
        element = mathml(e)
        assert element.isascii()
        assert ElementTree.fromstring(element).tag == f"{MATHML}math"
        for internal in ("HilbertTransform", "FreeConvolution", "Wishart", "Vector", "Confined", "mapsto"):
            assert internal not in shown + element


@pytest.mark.parametrize("name", SHOWN)
def test_documents_have_short_lines_and_closed_brackets(name: str) -> None:
    bodies = re.findall(r"(?s)begin.align\*.(.*?)\\end.align", written(name))
    rows = re.findall(r"^  (.*?)(?: \\\\)?$", "\n".join(bodies), re.M)
    for row in rows:
        assert row.count("{") == row.count("}")
        assert row.count(r"\left") == row.count(r"\right")
    assert max(map(width, rows)) < 130  # a fraction is not broken
    together = "".join(rows)
    assert together.count(r"\Bigl") == together.count(r"\Bigr")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", SHOWN)
def test_documents_compile_in_tex(name: str, tmp_path: Path) -> None:
    (tmp_path / "d.tex").write_text(written(name), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "d.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_softmax_of_three_tokens_fits_on_the_page(tmp_path: Path) -> None:
    whole = limitlaw.derive(limitlaw.load("aim-softmax", {"T": "3"})).system
    assert read_system(json.loads(json.dumps(record(whole)))) == whole
    (tmp_path / "d.tex").write_text(document(whole, "T = 3"), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "d.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_laws_losses_and_points_are_stated_once_and_signs_explained() -> None:
    shown = markdown(system("aim-softmax"))
    for once in (
        r"\mu = \mu_{0} \boxplus \mu_{\mathrm{sc}, \delta^{2}}",
        r"\mu_{0} = \operatorname{Marchenko-Pastur}(\kappa_{0})",
        r"H_{\mu}(x) = \mathrm{p.v.} \int \frac{\mu(\mathrm{d} s)}{x - s}",
        r"\ell_{2}(u) = \sqrt{\kappa} \lambda u + \iota_{[0, \infty)}(u)",
        r"\ell_{1}(\vec{u}, x_{1}, x_{2}) =",
        r"\omega_{1} =",
        r"\omega_{2} =",
        r"$\boxplus$ is the free additive convolution",
        r"$\iota_{C}(u)$ is $0$",
        r"$\operatorname{Marchenko-Pastur}(\kappa)$ is the law",
        r"$\partial_{i}$ is the derivative in $w_{i}$",
    ):
        assert shown.count(once) == 1, once
    assert r"\partial_{1} \mathcal{M}_{\Sigma \ell_{1}}(\vec{\omega})" in shown
    assert r"\boxplus" not in markdown(system("aim-direct"))  # its averages close


def test_quantities_have_the_letters_of_the_field() -> None:
    names = {"q_hat": r"\hat{q}", "m_hat": r"\hat{m}", "Sigma_hat": r"\hat{\Sigma}", "Q0": "Q_{0}", "eps": r"\epsilon",
             "delta": r"\delta", "eta": r"\eta", "A": "A", "v0_1": "v_{0, 1}", "h_11": "h_{11}",
             "kappa0": r"\kappa_{0}", "lam_F": r"\lambda_{F}", "w_vec": r"\vec{w}",
             "alpha_recovery": r"\alpha_{\mathrm{recovery}}", "e_over": r"e_{\mathrm{over}}"}  # fmt: skip
    assert {name: latex_name(name) for name in names} == names


# ---- text -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_averages_under_laws_of_eigenvalues_are_read_back(law: Spectrum) -> None:
    inner = average(HilbertTransform(law, x) + SpectralDensity(law, x**2 + b), law)
    outer = Expectation((inner + y) ** 2 * HilbertTransform(law, y), [y], law) * real("x1")
    for e in (inner, outer):
        words = text(e)
        assert read_text(words, FREE, listed_spectra([e])) == e, words


def test_texts_of_laws() -> None:
    assert text(average(HilbertTransform(MU, x), MU)) == (
        "Expectation(HilbertTransform(FreeConvolution(Wishart(kappa0), delta**2), x1), [x1], "
        "FreeConvolution(Wishart(kappa0), delta**2))"
    )
    assert text(SpectralDensity(PowerLaw(sp.Rational(3, 2), 100), eps)) == "SpectralDensity(PowerLaw(3/2, 100), eps)"
    assert text(average(x**2, Atoms([0, b], [1 - m, m]))) == "Expectation(x1**2, [x1], Atoms([0, b], [1 - m, m]))"
    assert text(average(x, Listed([0.1, -2]))) == "Expectation(x1, [x1], Listed([-2.0, 0.1]))"


@pytest.mark.parametrize("node", NODES, ids=lambda node: type(node).__name__)
def test_proximal_nodes_of_several_variables_are_read_back(node: sp.Expr) -> None:
    under = Expectation(sp.tanh(x) * node.xreplace({m: x, w2: x}), [x], standard_normal())
    for e in (node, under, node * u1, under * u1 * real("uu1") * real("x1")):
        assert read_text(text(e), FREE) == e, text(e)


def test_texts_of_proximal_nodes() -> None:
    shared = "[u1, u2], m*tanh(u1) + (u1 - u2)**2, V, [w1, w2], [[0, 0], [w1, 2*w2]]"
    assert text(NODES[0]) == f"vector_moreau({shared})"
    assert text(NODES[3]) == f"vector_curvature({shared}, 0, 1)"
    assert text(NODES[1] * u2).startswith("u2*vector_prox([uu1, uu2], m*tanh(uu1) + (uu1 - uu2)**2, ")
    one = VectorMoreau(sp.Lambda((u,), u), 1, (a,), ((0,),))  # u -> u is a function of its own in SymPy
    assert read_text(text(one), FREE) == one


@pytest.mark.parametrize("ends", [(0, sp.oo), (-sp.oo, a), (-sp.oo, sp.oo), (a, a + 1), (b, b)])
def test_intervals_are_read_back(ends: tuple[sp.Expr, sp.Expr]) -> None:
    loss = sp.Lambda(u, m * u + Confined(u, *ends))
    for e in (Confined(a + x, *ends), sp.exp(Prox(loss, V, w)) * average(Prox(loss, V, x), MU)):
        assert read_text(text(e), FREE) == e, text(e)
    assert text(Confined(u, 0, sp.oo)) == "confined(u, 0, inf)"


# ---- lists of eigenvalues ---------------------------------------------------------------------------------
def test_a_long_list_is_short_in_texts_and_exact_in_the_record() -> None:
    draw = random.Random(1)
    values = [draw.choice((-1, 1)) * draw.random() * 10.0 ** draw.randint(-307, 307) for _ in range(100_000)]
    extreme = [-0.0, 0.0, 5e-324, -5e-324, sys.float_info.max, sys.float_info.min, 0.1, 1 / 3]
    law = FreeConvolution(Listed([*values, *extreme]), delta**2)
    whole = defined(average(x**2 * HilbertTransform(law, x), law))
    entry = json.loads(json.dumps(record(whole), allow_nan=False))
    read = read_system(entry)
    assert read == whole
    (found,) = read.equations[0].rhs.measure.base.atoms(Listed)
    expected = sorted(v + 0.0 for v in (*values, *extreme))  # -0.0 is 0.0 as an eigenvalue
    assert list(map(float.hex, found.values)) == list(map(float.hex, expected))
    for shown in (entry["equations"][0]["text"], latex_equation(whole.equations[0]), mathml(whole.equations[0]),
                  str(whole.equations[0].rhs), markdown(whole)):  # fmt: skip
        assert len(shown) < 4000
        assert "100008" in shown


def test_a_list_has_the_same_name_wherever_it_stands() -> None:
    again = Listed(list(LONG.values)[::-1])
    assert listed_spectra([average(x, LONG)]) == listed_spectra([average(x**2, FreeConvolution(again, 1)), a])
    (name,) = listed_spectra([average(x, LONG)])
    assert text(average(x, LONG)) == f"Expectation(x1, [x1], Listed({name}))"
    with pytest.raises(FormulaError, match="names no eigenvalues that are given"):
        read_text(text(average(x, LONG)), FREE)


# ---- what is refused --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "message"),
    [("Expectation(x1, [x1], Wishart(-1))", "must be positive"),
     ("Expectation(x1, [x1], Wishart(1, 2))", "needs kappa0"),
     ("Expectation(x1, [x1], Marchenko(1))", "needs a law"),
     ("Expectation(x1 + x2, [x1, x2], Wishart(1))", "2 variables and a law on R.1"),
     ("Expectation(x1, [x1], Atoms([1, 2], [1/2, 1/3]))", "sum to 1"),
     ("Expectation(x1, [x1], Atoms([1, 2], [1]))", "2 points and 1 weights"),
     ("Expectation(x1, [x1], Atoms(1, 1))", "where a vector is needed"),
     ("Expectation(x1, [x1], PowerLaw(1/2, 10))", "gamma > 1/2"),
     ("Expectation(x1, [x1], PowerLaw(1, 3/2))", "natural number"),
     ("Expectation(x1, [x1], Listed([1, m]))", "is no number"),
     ("Expectation(x1, [x1], Listed([1, 1e999]))", "finite number"),
     ("Expectation(x1, [x1], Listed([[1], [2]]))", "is no number"),
     ("Expectation(x1, [x1], Listed(m))", "names no eigenvalues"),
     ("Expectation(x1, [x1], FreeConvolution(Wishart(1), -1))", "must not be negative"),
     ("HilbertTransform(m, 1)", "no law of eigenvalues"),
     ("HilbertTransform(Wishart(1))", "needs a law of eigenvalues and a place"),
     ("Wishart(1)", "no function here"),
     ("m + inf", "no finite number"),
     ("confined(m, 0, 1/0)", "no finite value|is zero|divi"),
     ("confined(1, 0, inf)", "confines a constant"),
     ("confined(m, 0)", "two ends"),
     ("vector_moreau([u1, u1], u1, 1, [m, m], [[0, 0]])", "different variables"),
     ("vector_moreau([x1], x1, 1, [m], [[0]])", "named u1, u2"),
     ("vector_moreau([u1, u2], u1, 1, [m], [[0, 0]])", "w of 1"),
     ("vector_moreau([u1, u2], u1, 1, [m, m], [0, 0])", "starts of shape"),
     ("vector_prox([u1, u2], u1, 1, [m, m], [[0, 0]], 2)", "indices"),
     ("vector_slope([u1, u2], u1, 1, [m, m], [[0, 0]])", "1 indices"),
     ("Expectation(x1, [x1], " + "FreeConvolution(" * 50 + "Wishart(1)" + ", 1)" * 50 + ")", "brackets")],
)  # fmt: skip
def test_texts_that_mean_nothing_are_refused(words: str, message: str) -> None:
    with pytest.raises(FormulaError, match=message):
        read_text(words, FREE)


SEEDS = [*(text(average(HilbertTransform(law, x) * m, law)) for law in LAWS[:-1]), *map(text, NODES),
         text(Prox(sp.Lambda(u, u**2 + Confined(u, 0, sp.oo)), V, w))]  # fmt: skip
TOKENS = ["inf", "-inf", "0", "-1", "1e999", "[", "]", "(", ")", ",", "Listed", "Wishart(1)", "FreeConvolution",
          "x1", "u1", "oo", "[1, 2]", "Atoms([0],[1])", "**", "10**50", "sqrt(-1)", "confined",
          "vector_slope", "m"]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["", *TOKENS])), max_size=3))
def test_broken_texts_are_read_or_refused(words: str, changes: list[tuple[int, str]]) -> None:
    tokens = re.findall(r"\w+|\*\*|.", words)
    for place, token in changes:
        tokens[place % len(tokens)] = token
    try:
        found = read_text("".join(tokens), FREE)
    except ValueError:  # of which FormulaError is one
        return
    assert read_text(text(found), FREE) == found


# ---- LaTeX and MathML -------------------------------------------------------------------------------------
def test_formulas_with_every_node_compile_in_mathtext() -> None:
    parser = MathTextParser("path")
    for rhs in (*NODES, *(average(HilbertTransform(law, x) + SpectralDensity(law, x), law) for law in LAWS)):
        parser.parse(f"${latex_equation(equation(rhs * Prox(sp.Lambda(u, Confined(u, 0, sp.oo)), V, w)))}$")


def test_laws_in_latex() -> None:
    assert latex_expression(average(HilbertTransform(MU, x) * x, MU)) == r"\mathbb{E}_{x}\left[x H_{\mu}(x)\right]"
    assert stated(average(HilbertTransform(MU, x) * x, MU)) == [
        r"x \sim \mu",
        r"\mu = \mu_{0} \boxplus \mu_{\mathrm{sc}, \delta^{2}}",
        r"\mu_{0} = \operatorname{Marchenko-Pastur}(\kappa_{0})",
        r"H_{\mu}(x) = \mathrm{p.v.} \int \frac{\mu(\mathrm{d} s)}{x - s}",
    ]
    assert stated(average(x, MP)) == [r"x \sim \mu_{0}", r"\mu_{0} = \operatorname{Marchenko-Pastur}(\kappa_{0})"]
    assert stated(average(x, semicircle(eps))) == [r"x \sim \mu_{\mathrm{sc}, \epsilon}"]
    assert stated(average(x, PowerLaw(a, 100)))[1] == (
        r"\mu_{0} = \operatorname{law}(10 \, i^{- a}),\ i \sim \mathcal{U}\{1, \ldots, 100\}"
    )
    assert stated(average(x, Atoms([0, b], [sp.Rational(1, 3), sp.Rational(2, 3)])))[1] == (
        r"\mu_{0}(\{0\}) = \frac{1}{3},\ \mu_{0}(\{b\}) = \frac{2}{3}"
    )
    assert stated(average(x, Listed([0.25, 2, 1e-9 / 3])))[1] == (
        r"\mu_{0} = \operatorname{law}(s_{i}),\ i \sim \mathcal{U}\{1, \ldots, 3\},\ "
        r"s_{1} \approx 3.33333 \cdot 10^{-10}, \ldots, s_{3} = 2"
    )
    density = SpectralDensity(MU, eps)
    assert latex_expression(density**2) == r"\rho_{\mu}(\epsilon)^{2}"
    assert r"\rho_{\mu}(x) = \frac{\mu(\mathrm{d} x)}{\mathrm{d} x}" in stated(density)


def test_letters_of_laws_avoid_quantities_and_number_convolutions() -> None:
    taken = real("mu") * real("H") * real("rho") * real("s")
    assert latex_expression(HilbertTransform(MU, eps) * taken).count(r"G_{\nu}(\epsilon)") == 1
    assert r"\frac{\nu(\mathrm{d} t)}{x - t}" in latex_equation(equation(HilbertTransform(MU, eps) * taken))
    other = FreeConvolution(MP, 4)
    both = stated(HilbertTransform(MU, a) + HilbertTransform(other, a) + average(x, PowerLaw(2, 9)))
    assert sum(r"\mu_{0} \boxplus" in s for s in both) == 2
    assert {s.partition(" = ")[0] for s in both} >= {r"\mu_{0}", r"\mu_{1}", r"\mu_{2}", r"\nu_{0}"}
    assert sum(s.startswith(r"\mu_{0} = ") for s in both) == 1


def test_nested_averages_under_one_law_have_different_letters() -> None:
    double = Expectation(y * average(sp.tanh(x * y), MU), [y], MU)
    assert latex_expression(double) == (r"\mathbb{E}_{y}\left[y \mathbb{E}_{x}\left[\tanh(x y)\right]\right]")
    assert stated(double)[0] == r"y \sim \mu"
    assert r"x \sim \mu" in stated(double)


def test_derivatives_of_an_envelope_are_shown_as_such() -> None:
    envelope = VectorMoreau(sp.Lambda((a, b), a**4 + b**2 * a), V, (w1, w2), ((0, 0),))
    assert latex_expression(envelope) == r"\mathcal{M}_{V \ell}(w_{1}, w_{2})"
    slope = envelope.diff(w1)
    assert latex_expression(slope) == r"\partial_{1} \mathcal{M}_{V \ell}(w_{1}, w_{2})"
    assert latex_expression(slope**2) == r"(\partial_{1} \mathcal{M}_{V \ell}(w_{1}, w_{2}))^{2}"
    assert latex_expression(slope.diff(w2)) == r"\partial_{1} \partial_{2} \mathcal{M}_{V \ell}(w_{1}, w_{2})"
    place = VectorProx(*envelope.args, 1)
    assert latex_expression(place) == r"\mathrm{prox}_{V \ell}(w_{1}, w_{2})_{2}"
    assert stated(place) == [r"\ell(\vec{u}) = u_{1}^{4} + u_{1} u_{2}^{2}"]
    assert "ℳ" in mathml_text(slope**2)
    assert mathml_text(slope**2) == "(∂1ℳVℓ(w1,w2))2"


def test_points_and_variables_around_a_loss_are_stated() -> None:
    law = Pushforward(standard_normal(2), (u1, u2), [(y, sp.exp(u1))], (y, u1, u2))
    loss = sp.Lambda((a, b), (a - x) ** 2 + b**4)
    node = VectorSlope(loss, V, (m * w1 + w2, w1), ((0, 0),), 0)
    shown = latex_equation(equation(Expectation(node * w2, (x, w1, w2), law)))
    assert r"\mathbb{E}_{x, g_{1}, g_{2}}\left[g_{2} \partial_{1} \mathcal{M}_{V \ell}(\vec{\omega})\right]" in shown
    statements = [r"g \sim \mathcal{N}(0, I_{2})", "x = e^{g_{1}}", r"\omega_{1} = m g_{1} + g_{2}",
                  r"\omega_{2} = g_{1}", r"\ell(\vec{u}, x) = u_{2}^{4} + (u_{1} - x)^{2}"]  # fmt: skip
    assert sorted(stated(Expectation(node * w2, (x, w1, w2), law))) == sorted(statements)


def test_many_variables_of_different_letters() -> None:
    assert few(["x1", "x2", "g1"]) == ["x1", "x2", "g1"]
    names = [*(f"x{i}" for i in range(1, 6)), "g1", "g2"]
    assert few(names) == ["x1", None, "x5", "g1", "g2"]


def test_intervals_in_latex() -> None:
    assert latex_expression(Confined(u, 0, sp.oo)) == r"\iota_{[0, \infty)}(u)"
    assert latex_expression(Confined(u, -sp.oo, m)) == r"\iota_{(-\infty, m]}(u)"
    assert latex_expression(Confined(u, m, m)) == r"\iota_{\{m\}}(u)"
    assert mathml_text(Confined(u, -sp.oo, m)) == "ι(−∞,m](u)"


def mathml_text(expr: sp.Expr) -> str:
    return (
        "".join(ElementTree.fromstring(mathml_expression(expr)).itertext()).replace("\u2061", "").replace("\u2062", "")
    )


def test_mathml_states_laws_below_the_equation() -> None:
    root = ElementTree.fromstring(mathml(equation(average(HilbertTransform(MU, x) * SpectralDensity(MU, x), MU))))
    invisible = str.maketrans("", "", "\u2061\u2062\u00a0\u2003")
    rows = ["".join(row.itertext()).translate(invisible) for row in root.iter(f"{MATHML}mtr")]
    assert rows[0] == "result=𝔼x[Hμ(x)ρμ(x)]"
    assert sorted(rows[1:]) == sorted(
        ["withμ=μ0⊞μsc,δ2", "μ0=Marchenko–Pastur(κ0)", "Hμ(x)=p.v.∫μ(ds)x−s", "ρμ(x)=μ(dx)dx", "x∼μ"]
    )
    listed = mathml(equation(average(x, Listed([0.25, 1 / 3]))))
    assert "&#8776;" in listed  # s_2 is about 0.333333
