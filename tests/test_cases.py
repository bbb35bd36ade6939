"""Inputs that have broken other tools, at the level where a user meets them; ids as in the list they come from.

Cases whose test at that level stands elsewhere (file::test):

A34  tests/solve/test_compiled.py::test_a_compiled_system_in_a_process_pool
A43  tests/verify/test_simulation.py::test_replicas_do_not_depend_on_the_batching, .._the_process
A58  tests/solve/test_lower.py::test_case_a58_a_loss_at_a_degenerate_point (its equations belong to positions)
A60  tests/test_sie.py::test_tying_can_destroy_the_information
A63  tests/solve/test_fixed_point.py::test_damping_is_the_weight_of_the_new_value

Below the user's level, with more points: A03 test_quadrature, A04 A17 A18 A19 A20 A22 test_elementary,
A04 A17 A18 A19 A21 A22 test_torch_lower, A16 test_reduction, A24 A25 test_flow, A26 A27 A28 A66 test_fixed_point,
A30 A31 test_parse, A32 test_present, A49 A53 test_document, A50 test_record.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import limitlaw
import solve.lower
import verify.lower
from derive.equations import Define, EquationSystem, Flow, Quantity, Source
from derive.expectation import Expectation
from derive.functions import He, Phi, orthonormal, relu
from derive.measures import Gaussian, standard_normal
from derive.present import latex
from derive.record import key
from derive.task import example_text
from solve.compiled import CompiledSystem, compile_system
from solve.fixed_point import Newton, Picard
from solve.result import SolveError, Status

ROOT = Path(__file__).parents[1]
DIGITS = 3e-15  # the cases give fifteen digits
x, z, u = sp.symbols("x z u", real=True)
m, q, n = sp.symbols("m q n", real=True)
lam = sp.Symbol("lam", positive=True)
HERE = Source("derived", "in this test")


def call(*words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
        limitlaw.main(words)
    return int(stop.value.code or 0), out.getvalue(), err.getvalue()


def expect(formula: str, *options: str) -> dict[str, Any]:
    code, out, err = call("expect", formula, *options, "--json")
    assert (code, err) == (0, ""), err
    record: dict[str, Any] = json.loads(out)
    return record


def refused(*words: str) -> str:
    """The one line with which a command refuses its input, in under a second."""
    begun = time.process_time()
    code, out, err = call(*words)
    assert time.process_time() - begun < 5  # about 0.1 s of CPU; what this guards against is minutes
    assert (code, out, err.count("\n")) == (2, "", 1), err
    return err


def task_file(folder: Path, *changes: tuple[str, str]) -> str:
    text = example_text("h2sum-tied-relu")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "task.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# ---- expectations: hermite, kink, expectation, tail ------------------------------------------------------------------

CLOSED, INTEGRATED = True, False


@pytest.mark.parametrize(
    ("formula", "right", "closed"),
    [
        pytest.param("relu(z)*h(0, z)", 0.398942280401433, CLOSED, id="A01-0"),
        pytest.param("relu(z)*h(1, z)", 0.5, CLOSED, id="A01-1"),
        pytest.param("relu(z)*h(2, z)", 0.282094791773878, CLOSED, id="A01-2"),
        pytest.param("relu(z)*h(3, z)", 0, CLOSED, id="A01-3"),
        pytest.param("relu(z)*h(4, z)", -0.0814337519838200, CLOSED, id="A01-4"),
        pytest.param("relu(z)*h(5, z)", 0, CLOSED, id="A01-5"),
        pytest.param("relu(z)*h(6, z)", 0.0446031029038193, CLOSED, id="A01-6"),
        pytest.param("relu(z)*He2(z)", 0.398942280401433, CLOSED, id="A01-He"),
        pytest.param("z**4", 3, CLOSED, id="A03"),
        pytest.param("h(64, 3)", 1.15037268310601, CLOSED, id="A04"),
        pytest.param("abs(z - 1/3)", 0.841805561931477, CLOSED, id="A05-abs"),
        pytest.param("step(z - 1/3)", 0.369441340181764, CLOSED, id="A05-step"),
        pytest.param("relu(z - 1/5)*h(3, z)", 0.0319285022627727, CLOSED, id="A06"),
        pytest.param("Phi(z - 1)", 0.239750061093477, CLOSED, id="A11"),
        pytest.param("step(Phi(z1) - Phi(z2))", 0.5, INTEGRATED, id="A13-1"),  # Phi(z): uniform
        pytest.param("step(Phi(z1) - Phi(z2))**2", 0.5, INTEGRATED, id="A13-2"),
        pytest.param("step(Phi(z1) - Phi(z2))**3", 0.5, INTEGRATED, id="A13-3"),
        pytest.param("tanh(z)**2", 0.394294490397841, INTEGRATED, id="A15-tanh"),
        pytest.param("softplus(800)", 800, CLOSED, id="A19-softplus"),
        pytest.param("sum(softmax([800, -800])*[1, 0])", 1, CLOSED, id="A19-softmax-1"),
        pytest.param("sum(softmax([800, -800])*[0, 1])", 0, CLOSED, id="A19-softmax-2"),
        pytest.param("Phi(-10)", 7.61985302416053e-24, CLOSED, id="A21-10"),
        pytest.param("Phi(-9)", 1.12858840595384e-19, CLOSED, id="A21-9"),
        pytest.param("log(Phi(6))", -9.86587645524376e-10, CLOSED, id="A22"),
        pytest.param("sigmoid(z1*(z1 - z2))", 0.646446609406726, CLOSED, id="A59"),
    ],
)
def test_expect(formula: str, right: float, closed: bool) -> None:
    record = expect(formula)
    assert (record["closed_form"] is not None) == closed
    assert record["value"] == pytest.approx(right, rel=DIGITS, abs=record["error"])
    assert record["error"] < 1e-13 * max(1, abs(right))  # of tanh and of the kink of two uniforms; closed forms: 0
    if right == 0 and "h(" in formula:
        assert record["closed_form"] == "0"


def test_a15_two_relus() -> None:
    record = expect("relu(u)*relu(v)", "--correlation", "1/2")
    assert record["closed_form"] is not None
    assert record["value"] == pytest.approx(0.304498890522115, rel=DIGITS)


def test_a59_its_closed_form_is_the_known_one() -> None:
    assert expect("sigmoid(z1*(z1 - z2))")["closed_form"] == "1 - sqrt(2)/4"


def value(expr: sp.Expr, **at: float) -> float:
    return float(solve.lower.lower([expr], [sp.Symbol(s, real=True) for s in at])(*at.values())[0][0])


def test_a16_a_derivative_that_is_a_point_mass() -> None:
    bend = Expectation(relu(z).diff(z, 2), [z], standard_normal())
    assert value(bend) == pytest.approx(0.398942280401433, rel=DIGITS)


@pytest.mark.parametrize(
    ("expr", "at", "right"),
    [
        pytest.param(orthonormal(64, x), 3.0, 1.15037268310601, id="A04"),
        pytest.param(sp.Heaviside(x), 0.0, 0.5, id="A17"),
        pytest.param(relu(x).diff(x), 0.0, 0.5, id="A17-relu"),
        pytest.param(sp.Piecewise(((sp.exp(x) - 1) / x, sp.Ne(x, 0)), (1, True)), 0.0, 1.0, id="A18"),
        pytest.param(sp.log(Phi(-x)), 40 * 2**0.5, -1604.95470383383, id="A20-log"),  # erfc(40)/2 = Phi(-40 sqrt 2)
        pytest.param(Phi(x), -10.0, 7.61985302416053e-24, id="A21-10"),
        pytest.param(Phi(x), -9.0, 1.12858840595384e-19, id="A21-9"),
        pytest.param(sp.log(Phi(x)), 6.0, -9.86587645524376e-10, id="A22"),
    ],
)
def test_one_expression_in_every_back_end(expr: sp.Expr, at: float, right: float) -> None:
    """Symbolically, by NumPy and by torch (the project compiles nothing with Numba's own Heaviside)."""
    found = [float(expr.subs(x, sp.Rational(at)).evalf(30)), value(expr, x=at)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        column = torch.tensor([at, 1.0], dtype=torch.float64)
        found.append(float(verify.lower.lower([expr], [x])([column])[0][0]))
    assert found == pytest.approx([right] * 3, rel=2e-13)  # the digits, and 1400 ulp from rounding x in a tail


def test_a20_the_inverse_mills_ratio() -> None:
    """phi(40)/Phi(-40): as written, symbolically and by NumPy; torch meets it as the slope of log Phi at -40."""
    ratio = sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi) / Phi(-x)
    found = [float(ratio.subs(x, 40).evalf(30)), value(ratio, x=40.0)]
    point = torch.tensor([-40.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(verify.lower.lower([sp.log(Phi(x))], [x])([point]).sum(), point)
    assert found == pytest.approx([40.0249688472073] * 2, rel=DIGITS)
    assert float(slope[0]) == pytest.approx(40.0249688472073, rel=2e-13)  # of exp(-800): 800 ulp


# ---- ode -------------------------------------------------------------------------------------------------------------


def flow(rate: sp.Expr, start: sp.Expr) -> CompiledSystem:
    overlap = Quantity(m, "overlap", sp.Interval(-1, 1))
    return compile_system(EquationSystem((Flow(overlap, rate, HERE),), (), {m: start}))


@pytest.mark.parametrize(
    ("rate", "start", "right"), [(m * (1 - m**2), "1e-6", 13.2662044136297), (m**3, "1e-3", 499998)]
)
def test_a24_escape_times(rate: sp.Expr, start: str, right: float) -> None:
    found = flow(rate, sp.Rational(start)).escape_time({}, 0.5)
    assert found.time == pytest.approx(right, rel=1e-9)  # what the solver promises
    assert abs(found.time - right) <= found.error + 1e-14 * right


def test_a25_a_start_on_the_fixed_point_is_stated() -> None:
    flat = flow(m * (1 - m**2), sp.S.Zero)
    assert "fixed point of the flow: nothing moves" in flat.integrate({}, [0.0, 5.0]).notes[0]
    escape = flat.escape_time({}, 0.5)
    assert (escape.time, escape.status) == (np.inf, Status.converged)
    assert "nothing escapes" in escape.reason


def test_a25_by_the_command_line() -> None:
    words = ("solve", "h2sum-tied-relu", "--set", "training.start={m = 0}", "--set", "solve.times=0:1:2")
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    assert "nothing escapes" in out
    record = json.loads(call(*words, "--json")[1])
    assert record["values"]["escape_time"] == "inf"
    assert any("is a fixed point" in note for note in record["notes"])


# ---- fixed points ----------------------------------------------------------------------------------------------------


def magnetisation() -> CompiledSystem:
    """q = E tanh(lambda q + sqrt(lambda q) z)."""
    unknown = Quantity(q, "overlap", sp.Interval(0, 1))
    mean = Expectation(sp.tanh(x), [x], Gaussian([lam * q], [[lam * q]]))
    rate = Quantity(lam, "signal", sp.Interval.open(0, sp.oo))
    return compile_system(EquationSystem((Define(unknown, mean, HERE),), (rate,), {q: sp.S.Half}))


def iterated(unknown: sp.Symbol, rhs: sp.Expr, start: sp.Expr, domain: sp.Set = sp.S.Reals) -> CompiledSystem:
    return compile_system(EquationSystem((Define(Quantity(unknown, ""), rhs, HERE),), (), {unknown: start}))


@pytest.mark.parametrize(
    ("strength", "right"), [(2, 0.618447509348823), (1.1, 0.0961280354604091), (1.01, 0.009965920457), (1, 0)]
)
def test_a26_a_slow_fixed_point(strength: float, right: float) -> None:
    found = magnetisation().solve({"lam": strength})
    assert abs(found[q] - right) <= found.error + 1e-10  # at 1 the residual, q^2, drowns in rounding: sqrt of 1e-17 q
    assert abs(found[q] - right) < 1e-9


def test_a26_small_steps_are_no_solution() -> None:
    with pytest.raises(SolveError, match="used all its steps"):
        magnetisation().solve({"lam": 1}, solver=Picard(max_steps=300))


def test_a27_coinciding_residuals() -> None:
    accelerated = iterated(
        n, 1 + sp.log(3 / n) / sp.log(sp.Rational("3.7477525683") * n / (n - 1)), sp.Rational("1.001")
    )
    assert accelerated.solve({})[n] == pytest.approx(1.300000000001, abs=1e-10)  # the solver's tolerance


def test_a28_all_solutions_with_their_stability() -> None:
    found = magnetisation().fixed_points({"lam": 2})
    assert [p.stability.name for p in found] == ["unstable", "stable"]
    assert [float(p.at[0]) for p in found] == pytest.approx([0, 0.618447509348823], abs=1e-12)  # quadrature


def test_a66_an_oscillation_is_no_solution() -> None:
    swing = iterated(n, -sp.Rational(3, 2) * sp.tanh(n), sp.S.One)
    with pytest.raises(SolveError, match="cycle") as raised:
        swing.solve({}, solver=Picard())
    assert raised.value.status is Status.oscillates
    assert abs(swing.iterate({}, 100)[n][-1]) == pytest.approx(1.28783945496017, rel=1e-12)  # rounding
    for solver in (Picard(damping=0.5), Newton()):
        assert abs(swing.solve({}, solver=solver)[n]) < 1e-11  # the solver's atol of 1e-12, and a tanh


# ---- parse -----------------------------------------------------------------------------------------------------------

NAMES = ["E", "I", "N", "Q", "O", "beta", "lambda", "pi", "zeta"]


@pytest.mark.parametrize("name", [*NAMES, "gamma", "S"])
def test_a30_names_of_the_algebra_system(tmp_path: Path, name: str) -> None:
    """A free parameter of that name, or (S, the noise) an error that names the clash."""
    declared = "" if name == "gamma" else f"{name} = {{ default = 3 }}\n"
    path = task_file(tmp_path, ("gamma =", f"{declared}gamma ="), ("sum(h(2, z))", f"{name}*z1 + {name}*h(2, z2)"))
    if name == "S":
        assert "'S' cannot name a parameter: it is a quantity of this theory" in refused("check", path)
        return
    task = limitlaw.load(path)
    canonical = "lam" if name == "lambda" else name
    assert {s.name for s in task.target[0].free_symbols} == {canonical, "z1", "z2"}
    assert canonical in {p.symbol.name for p in task.parameters}
    exponents = limitlaw.sie(f"{name}*z1 + He2(z2)", 2, parameters=(name,))
    assert exponents["target_sie"] == 1


def test_a30_a_parameter_reaches_the_equations_and_the_numbers(tmp_path: Path) -> None:
    path = task_file(tmp_path, ("gamma =", "E = { default = 3 }\ngamma ="), ("sum(h(2, z))", "E*sum(h(2, z))"))
    code, out, err = call("solve", path, "--set", "solve.times=0:1:2", "--json")
    assert (code, err) == (0, ""), err
    assert json.loads(out)["values"]["G"] == pytest.approx(3 * 0.282094791773878, rel=DIGITS)


@pytest.mark.parametrize("name", ["m", "V", "S_m", "gain", "growth", "threshold", "escape_time"])
def test_a30_names_of_the_theory_are_refused(tmp_path: Path, name: str) -> None:
    path = task_file(tmp_path, ("gamma =", f"{name} = {{ default = 3 }}\ngamma ="))
    said = refused("check", path)
    assert f"parameters.{name} (line " in said
    assert "is a quantity of this theory" in said


def test_a30_the_letter_of_the_expectation() -> None:
    assert expect("E*z**2 + I", "--set", "E=2", "--set", "I=1/3")["closed_form"] == "7/3"


HOSTILE = [
    "__import__('os').system('true')",
    "().__class__",
    "(lambda: 0)()",
    "9**9**9**9",
    "(" * 5000 + "1" + ")" * 5000,
]


@pytest.mark.parametrize("formula", HOSTILE, ids=lambda f: f[:20])
def test_a31_untrusted_formulas(tmp_path: Path, formula: str) -> None:
    assert "target.formula (line" in refused("check", task_file(tmp_path, ("sum(h(2, z))", formula)))
    refused("expect", formula)


def test_a31_untrusted_files(tmp_path: Path) -> None:
    assert "at most" in refused("check", task_file(tmp_path, ("sum(h(2, z))", "z1+" * 3_500_000 + "z1")))
    hostile = "\"__import__('os').system('true')\""
    assert "cannot name a parameter" in refused("check", task_file(tmp_path, ("gamma =", f"{hostile} = 1\ngamma =")))
    assert "__import__" in refused("solve", "h2sum-tied-relu", "--set", "__import__('os')=1")
    assert "__import__" in refused("solve", "h2sum-tied-relu", "--sweep", "__import__('os')=0:1:2")


def test_a49_decimals_are_exact(tmp_path: Path) -> None:
    path = task_file(tmp_path, ("gamma =", "lam = 0.1\ngamma ="), ('"(f - y)**2/2"', '"(f - y)**2/2 + lam/3 + 0.1"'))
    entry = json.loads(call("derive", path, "--json")[1])
    assert {p["name"]: p["default"] for p in entry["parameters"]} == {"lam": "1/10", "gamma": "1/4"}
    (risk,) = (e["text"] for e in entry["equations"] if e["unknown"] == "R")
    assert "lam/3" in risk
    assert "37/20" in risk  # 7/4 + 1/10
    assert "." not in risk


def test_a53_an_unknown_key(tmp_path: Path) -> None:
    said = refused("check", task_file(tmp_path, ("escape =", "metric_kwargs =")))
    line = next(i for i, text in enumerate(example_text("h2sum-tied-relu").splitlines(), 1) if "escape" in text)
    assert f"solve.metric_kwargs (line {line} of " in said
    near = refused("check", task_file(tmp_path, ("escape =", "escapes =")))
    assert "unknown key, or one without use here; the nearest is escape" in near


# ---- latex -----------------------------------------------------------------------------------------------------------


def test_a32_latex_of_a_system() -> None:
    q_hat, m_star, theta, z1 = sp.symbols("qhat m_star theta z1", real=True)
    rhs = [He(3, z1) + theta, sp.log(q_hat) ** 2, sp.Heaviside(m_star) * theta]
    unknowns = [q_hat, m_star, sp.Symbol("r", real=True)]
    equations = tuple(Define(Quantity(s, ""), f, HERE) for s, f in zip(unknowns, rhs, strict=True))
    printed = latex(EquationSystem(equations, (Quantity(theta, ""), Quantity(z1, ""))))
    for part in (
        r"\hat{q} &=",
        r"m^{\star} &= (\log \hat{q})^{2}",
        r"\mathrm{He}_{3}(z_{1})",
        r"\mathbf{1}[m^{\star} > 0]",
    ):
        assert part in printed
    assert printed.count(r"\theta") == 2


# ---- cache -----------------------------------------------------------------------------------------------------------


def test_a50_keys_do_not_depend_on_the_hash_seed() -> None:
    words = [sys.executable, "-m", "limitlaw", "derive", "h2sum-tied-relu", "--set", "L=1"]
    words += ["--set", "target.formula=tanh(z1)*z1", "--json"]
    seen = [
        subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    ]
    assert seen[0] == seen[1]
    assert "Expectation(" in seen[0]
    assert len(json.loads(seen[0])["key"]) == 64


def test_a50_keys_do_not_depend_on_the_names_of_bound_variables() -> None:
    law = Gaussian([0, 0], [[1, m], [m, 1]])

    def system(a: sp.Symbol, b: sp.Symbol, scale: int = 1) -> EquationSystem:
        mean = Expectation(sp.tanh(scale * a) * relu(b), [a, b], law)
        return EquationSystem((Define(Quantity(q, ""), mean, HERE),), (Quantity(m, ""),))

    assert key(system(x, u)) == key(system(u, z)) == key(system(sp.Dummy("t", real=True), x))
    assert key(system(x, u)) != key(system(x, u, scale=2))
