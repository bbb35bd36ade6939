"""The command line as users meet it: what each command prints, its JSON, its exit code, its one line on failure.

The task of most tests is the shipped tied ReLU network, L = 3, on the sum of second Hermite polynomials, whose
flow can be solved by hand. With sigma_2 = 1/(2 sqrt pi): -R'(m) = 2 sigma_2 m = m/sqrt pi and
V(m) = E[(relu(u) - y)^2; u > 0] = 1/2 + 3/2 - 2 sigma_2 m^2, so dm/dtau = a m - b m^3 with a = 1/sqrt pi - gamma
and b = 1/sqrt pi - gamma/(2 sqrt pi): m^-2 = b/a + (m_0^-2 - b/a) exp(-2 a tau).
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr
from matplotlib.mathtext import MathTextParser

import limitlaw
import solve.compiled
import verify.check
from derive.record import read_system
from derive.task import example_text
from solve.compiled import compile_system
from solve.quadrature import Accuracy

TIED, UNTIED = "h2sum-tied-relu", "h2sum-untied-relu"
START = 0.4  # of both examples
HEAD = {"limitlaw", "schema", "task", "set", "versions", "seed"}
SHORT = "solve.times=0:2:3"


@dataclass(frozen=True)
class Run:
    """What one call left behind."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> dict[str, Any]:
        """The JSON on stdout: pure, and without NaN or Infinity."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} in JSON")

        record: dict[str, Any] = json.loads(self.out, parse_constant=refuse)
        assert record.keys() >= HEAD
        return record


def call(*words: str) -> Run:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
        limitlaw.main(words)
    assert isinstance(stop.value.code, int)
    return Run(stop.value.code, out.getvalue(), err.getvalue())


once = functools.cache(call)  # for commands whose answer several tests read


def good(*words: str) -> Run:
    done = once(*words)
    assert (done.code, done.err) == (0, ""), done.err
    return done


def changes(*given: str) -> list[str]:
    return [word for change in given for word in ("--set", change)]


def exact(tau: Any, gamma: float = 0.25, start: float = START) -> Any:
    a = 1 / math.sqrt(math.pi) - gamma
    b = (1 - gamma / 2) / math.sqrt(math.pi)
    return (b / a + (start**-2 - b / a) * np.exp(-2 * a * np.asarray(tau))) ** -0.5


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) of a JSON value."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(inner, f"{path}.{key}")
    else:
        yield path, value


# ---- the whole ---------------------------------------------------------------------------------------------------


def test_version_and_help() -> None:
    assert good("--version").out.startswith("limitlaw, version ")
    whole = good("--help").out
    for command in ("sie", "expect", "examples", "check", "derive", "solve", "verify"):
        assert f"\n  {command} " in whole


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("sie", "--length --student --activation --parameter --order --set --json"),
        ("expect", "--correlation --set --json"),
        ("examples", ""),
        ("check", "--set"),
        ("derive", "--latex --dot --svg --order --set --json"),
        ("solve", "--sweep --save --order --seed --set --json"),
        ("verify", "--report --order --seed --set --json"),
    ],
)
def test_every_command_explains_its_options(command: str, options: str) -> None:
    said = good(command, "--help").out
    assert all(option in said for option in options.split())


def test_without_a_command_the_help_is_shown() -> None:
    done = call()
    assert done.code == 2
    assert "Commands:" in done.err or "Usage:" in done.err


# ---- sie -----------------------------------------------------------------------------------------------------------


def sie(formula: str, *options: str, length: int = 2) -> dict[str, Any]:
    return good("sie", formula, "--length", str(length), *options, "--json").record


def test_sie_has_the_documented_keys() -> None:
    record = sie("h2(z1) + h2(z2)", "--activation", "relu(x)")
    names = ("target_sie", "sie", "joint_sie", "dynamic_sie")
    assert [record[n] for n in names] == [2, 2, None, None]
    assert record["schema"] == "sie/1"
    assert (record["trapped"], record["sample_complexity"]["law"]) == (False, "d log d")
    assert set(record["certificate"]) == set(names)
    for certificate in record["certificate"].values():
        assert set(certificate) == {"kind", "reason", "order", "interval"}
        assert certificate["kind"] in {"exact", "enclosure", "undecided"}
        assert certificate["reason"]
    assert {frozenset(c) for c in record["coefficients"]} == {frozenset({"of", "index", "exact", "value", "interval"})}
    second = next(c for c in record["coefficients"] if c["index"] == [2])
    assert second["value"] == pytest.approx(1 / (2 * math.sqrt(math.pi)), rel=1e-14)  # sigma_2 of ReLU; rounding


def test_sie_options_change_the_answer() -> None:
    assert sie("z1 - z2")["sie"] == "inf"
    assert sie("z1 - z2", "--student", "untied")["sie"] == 1
    assert sie("h3(z1) + h3(z2)", "--activation", "relu(x)")["sie"] == "inf"
    assert sie("h3(z1) + h3(z2)", "--activation", "generic-odd")["sie"] == 3
    assert sie("h(10, z1)", length=1)["target_sie"] is None
    assert sie("h(10, z1)", "--order", "10", length=1)["target_sie"] == 10
    assert sie("a*z1 + h2(z2)", "--parameter", "a")["target_sie"] == 1
    assert sie("a*z1 + h2(z2)", "--set", "a=0")["target_sie"] == 2
    assert sie("h4(z1) + h4(z2)", "--activation", "relu(x)")["sample_complexity"]["law"] == "never"


def test_sie_as_text_says_the_same() -> None:
    said = good("sie", "z1 - z2", "--length", "2").out
    assert re.search(r"exponent with the student +infinite +\(exact: ", said)
    assert re.search(r"samples to weak recovery +never", said)


# ---- expect --------------------------------------------------------------------------------------------------------


def test_expect_prints_closed_form_value_and_error() -> None:
    said = good("expect", "abs(z - 1/3)").out
    assert re.search(r"closed form +\S", said)
    assert re.search(r"value +0\.841805561931477\n", said)
    record = good("expect", "tanh(z)**2", "--json").record
    assert record["closed_form"] is None
    assert "Expectation(" in record["text"]
    assert 0 < record["error"] < 1e-10


def test_expect_takes_parameters_and_a_correlation() -> None:
    assert good("expect", "(a*z1 + b)**2", *changes("a=2", "b=1/3"), "--json").record["closed_form"] == "37/9"
    for rho, right in (("0", "0"), ("1/2", "1/2"), ("-1", "-1"), ("0.1", "1/10")):
        assert good("expect", "u*v", "--correlation", rho, "--json").record["closed_form"] == right


# ---- examples, check -----------------------------------------------------------------------------------------------


def test_examples_are_listed_printed_and_in_order() -> None:
    names = good("examples").out.split()
    assert {TIED, UNTIED} <= set(names)
    for name in names:
        assert tomllib.loads(good("examples", name).out)["limitlaw"] == 1
        assert "in order" in good("check", name).out


def test_a_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text(example_text(TIED), encoding="utf-8")
    assert "family sequence-single-index, in order" in good("check", str(path)).out
    assert call("check", str(path), "--set", "student.kind=tide").code == 2


# ---- derive --------------------------------------------------------------------------------------------------------


def test_derive_has_the_documented_keys() -> None:
    record = good("derive", UNTIED, "--json").record
    assert (record["schema"], record["task"], record["set"]) == ("derive/1", UNTIED, {})
    for unknown in record["unknowns"]:
        assert unknown.keys() >= {"name", "latex", "meaning", "domain", "scale"}
    assert [p["name"] for p in record["parameters"]] == ["gamma"]
    assert {e["kind"] for e in record["equations"]} == {"flow", "define"}
    for equation in record["equations"]:
        assert set(equation) == {"unknown", "kind", "text", "latex", "source"}
        assert set(equation["source"]) == {"reference", "where"}
    assert {frozenset(b) for b in record["blocks"]} == {frozenset({"unknowns", "state"})}
    assert ["mu1", "R"] in record["edges"]
    assert re.fullmatch("[0-9a-f]{64}", record["key"])
    assert {e["unknown"] for e in record["laws"]["equations"]} >= {"learning_rate_max", "steps_to_escape", "gain"}


def test_derive_is_the_same_in_every_process_and_form(tmp_path: Path) -> None:
    record = good("derive", TIED, "--json").record
    latex, markdown = good("derive", TIED, "--latex").out, good("derive", TIED).out
    for equation in record["equations"]:
        MathTextParser("agg").parse(f"${equation['latex']}$".replace(r"\mathrm{d}\tau", r"\mathrm{d} \tau"))
        left, right = equation["latex"].split(" = ", 1)
        assert f"{left} &= {right.split(' ')[0]}" in latex
        assert equation["latex"] in markdown
    assert latex.startswith(r"\documentclass")
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    dot = good("derive", TIED, "--dot").out
    assert dot.startswith("digraph")
    svg = tmp_path / "graph.svg"
    good("derive", TIED, "--svg", str(svg))
    drawn = ElementTree.parse(svg).getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    for start, end in record["edges"]:
        assert re.search(rf'"?{start}"? -> "?{end}"?', dot)


def test_a_changed_task_is_derived_anew() -> None:
    shorter = good("derive", UNTIED, "--set", "L=2", "--order", "4", "--json").record
    assert [u["name"] for u in shorter["unknowns"]][:3] == ["mu1", "mu2", "V"]
    assert shorter["set"] == {"L": "2"}


TANH = changes(
    "L=2", "target.formula=tanh(z1*z2)", "activation=tanh(x)", "training.start={m = 0.5}", "solve.times=0:1:2"
)


@pytest.mark.parametrize("words", [(TIED,), (UNTIED,), (TIED, *TANH)], ids=["tied", "untied", "not closed"])
def test_equations_rebuilt_from_their_texts_give_the_same_numbers(words: tuple[str, ...]) -> None:
    entry = good("derive", *words, "--json").record
    rebuilt = read_system({k: entry[k] for k in ("unknowns", "parameters", "equations", "blocks", "edges")})
    task = limitlaw.load(words[0], dict(w.split("=", 1) for w in words[2::2]))
    assert any("Expectation(" in e["text"] for e in entry["equations"]) == (len(words) > 1)
    found = []
    for system in (rebuilt, task.equations()):
        moving = [s for block in system.blocks() if block.is_flow for s in block.unknowns]
        compiled = compile_system(system, Accuracy(rtol=1e-5, atol=1e-7)).restricted(moving)
        found.append(compiled.integrate({"gamma": 0.25}, task.solve.times.points()))
    again, direct = found
    assert (again.status, again.residual) == (direct.status, direct.residual)
    assert {s.name: v.tolist() for s, v in again.values.items()} == {
        s.name: v.tolist() for s, v in direct.values.items()
    }


# ---- solve ---------------------------------------------------------------------------------------------------------


def test_solve_has_the_documented_keys_and_the_exact_series() -> None:
    record = good("solve", TIED, "--json").record
    assert record["schema"] == "solve/1"
    assert record.keys() >= {
        "status", "residual", "error", "values", "axis", "series", "fixed_points", "thresholds", "certified",
    }  # fmt: skip
    assert (record["status"], record["seed"], record["certified"]) == ("converged", 0, False)
    tau = record["axis"]["values"]
    assert (record["axis"]["name"], tau[0], tau[-1]) == ("tau", 0, 8)
    m = exact(tau)
    assert record["series"]["m"] == pytest.approx(m, rel=1e-9)  # the accuracy of the integrator
    assert record["series"]["V"] == pytest.approx(2 - m**2 / math.sqrt(math.pi), rel=1e-9)
    assert record["series"]["R"] == pytest.approx(0.25 + 1.5 - m**2 / (2 * math.sqrt(math.pi)), rel=1e-9)
    assert 0 <= record["error"] < 1e-8


def test_solve_finds_thresholds_fixed_points_and_the_escape() -> None:
    record = good("solve", TIED, *changes("d=1000"), "--json").record
    a, b = 1 / math.sqrt(math.pi) - 0.25, (1 - 0.125) / math.sqrt(math.pi)
    assert record["thresholds"] == {"learning_rate_max": pytest.approx(1 / math.sqrt(math.pi), rel=1e-12)}  # rounding
    low, zero, high = record["fixed_points"]
    assert zero["at"]["m"] == pytest.approx(0, abs=1e-9)  # the search's tolerance
    assert [p["stability"] for p in (low, zero, high)] == ["stable", "unstable", "stable"]
    assert high["at"]["m"] == pytest.approx(math.sqrt(a / b), rel=1e-9)
    assert high["eigenvalues"][0] == pytest.approx([-2 * a, 0], rel=1e-5, abs=1e-9)  # differences
    assert high["loss"] == pytest.approx(1.75 - a / b / (2 * math.sqrt(math.pi)), rel=1e-9)
    assert high.keys() >= {"at", "stability", "eigenvalues", "loss", "basin"}
    x0, x1 = START**2, 0.25
    time = math.log(x1 * (a - b * x0) / (x0 * (a - b * x1))) / (2 * a)
    assert record["values"]["escape_time"] == pytest.approx(time, rel=1e-8)
    assert record["values"]["escape_steps"] == pytest.approx(1000 * time / 0.25, rel=1e-8)


def test_solve_as_text_shows_the_same_numbers() -> None:
    said = good("solve", TIED).out
    assert re.search(r"learning_rate_max +0\.5641895835\n", said)
    assert f" {exact(8):.6f}" in said  # the ten digits shown begin with these
    assert "status: converged" in said
    assert re.search(r"fixed point +m = 0\.79\d+ +stable", said)


@pytest.mark.parametrize("words", [(TIED,), (UNTIED,), (TIED, *changes("training.start=random"))])
def test_what_is_not_there_has_its_reason(words: tuple[str, ...]) -> None:
    record = once("solve", *words, "--json").record
    for name, value in record["values"].items():
        assert value is not None or record["reasons"][name], name
    assert record["reasons"]["escape_steps"] == "needs a value for d"


def test_a_missing_parameter_is_named_and_the_rest_is_solved() -> None:
    done = once("solve", TIED, *changes("training.start=random"), "--json")
    assert done.code == 2
    assert done.err == "limitlaw: no value for d; give one with --set NAME=VALUE.\n"
    record = done.record
    assert (record["missing"], record["status"], record["series"]) == (["d"], None, {})
    assert record["values"]["learning_rate_max"] == pytest.approx(1 / math.sqrt(math.pi), rel=1e-12)  # rounding
    assert record["values"]["steps_to_escape"] is None
    assert good("solve", TIED, *changes("training.start=random", "d=400", SHORT), "--json").record["missing"] == []


def test_numbers_that_are_not_finite_are_words() -> None:
    record = good("solve", TIED, *changes("gamma=3/5", "d=1000", SHORT), "--json").record
    assert record["values"]["escape_time"] == record["values"]["escape_steps"] == "inf"
    assert record["notes"]


def test_a_start_that_never_escapes_takes_no_negative_number_of_steps() -> None:
    record = good("solve", TIED, *changes("gamma=3/5", "d=1000", SHORT), "--json").record
    assert record["values"]["steps_to_escape"] is None
    assert record["reasons"]["steps_to_escape"]


def test_all_laws_use_the_threshold_of_the_task() -> None:
    """From a start so low that the flow is linear, the law at leading order is the flow's own escape time."""
    given = changes("d=1000", "training.start={m = 0.0001}", "solve.escape=1/100", SHORT)
    values = good("solve", TIED, *given, "--json").record["values"]
    assert values["steps_to_escape"] == pytest.approx(values["escape_steps"], rel=1e-4)  # b m^2/a at 1/100


def test_an_untied_student_of_a_product_is_solved() -> None:
    """z1 z2, L = 2: the leading form sqrt 2 sigma_2 mu_1 mu_2 has the largest value sigma_2/sqrt 2."""
    given = changes("L=2", "target.formula=z1*z2", "d=1000", SHORT)
    values = good("solve", UNTIED, *given, "--json").record["values"]
    assert values["G"] == pytest.approx(1 / (2 * math.sqrt(2 * math.pi)), rel=1e-12)  # rounding


# ---- sweeps --------------------------------------------------------------------------------------------------------


def test_a_sweep_is_inclusive_and_agrees_with_single_solutions() -> None:
    record = good("solve", TIED, "--sweep", "gamma=1/10:1/2:3", *changes(SHORT), "--json").record
    assert record["axis"] == {"names": ["gamma"], "values": [[0.1, 0.3, 0.5]]}
    assert record["points"] == [{"gamma": 0.1}, {"gamma": 0.3}, {"gamma": 0.5}]
    for i, gamma in enumerate((0.1, 0.3, 0.5)):
        assert record["series"]["m"][i] == pytest.approx(exact([0, 1, 2], gamma), rel=1e-9)
    single = good("solve", TIED, *changes("gamma=0.3", SHORT), "--json").record
    for name in ("G", "growth", "learning_rate_max", "escape_time"):
        assert record["values"][name][1] == pytest.approx(single["values"][name], rel=1e-9)
    assert record["times"] == [0, 1, 2]


def test_two_parameters_are_swept_and_the_second_runs_fastest(tmp_path: Path) -> None:
    saved = tmp_path / "sweep.nc"
    words = ("--sweep", "gamma=0.1:0.7:3", "--sweep", "d=100:10000:3:log", "--save", str(saved))
    record = good("solve", TIED, *words, *changes(SHORT), "--json").record
    assert record["axis"]["names"] == ["gamma", "d"]
    assert record["axis"]["values"][1] == pytest.approx([100, 1000, 10000], rel=1e-12)  # rounding
    assert [p["gamma"] for p in record["points"]] == [g for g in (0.1, 0.4, 0.7) for _ in range(3)]
    assert [p["d"] for p in record["points"]][:3] == pytest.approx([100, 1000, 10000], rel=1e-12)
    assert record["values"]["escape_time"][6:] == ["inf"] * 3  # above the largest learning rate
    with xr.open_dataset(saved, engine="h5netcdf") as data:
        assert data.attrs["status"] == record["status"]
        assert data["gamma"].values.tolist() == record["axis"]["values"][0]
        for name, column in record["values"].items():
            held = [float(v) if v is not None else math.nan for v in column]
            np.testing.assert_array_equal(data[name].transpose("gamma", "d").values.ravel(), held)
        for name, series in record["series"].items():
            held = data[f"{name}_of_tau"].transpose("gamma", "d", "tau")
            np.testing.assert_array_equal(held.values.reshape(9, 3), series)


def test_a_sweep_without_a_needed_value_still_gives_the_laws() -> None:
    done = call("solve", TIED, "--sweep", "gamma=1/10:1/2:2", *changes("training.start=random"), "--json")
    assert done.code == 2
    assert "no value for d" in done.err
    assert done.record["values"]["learning_rate_max"] == pytest.approx([1 / math.sqrt(math.pi)] * 2, rel=1e-12)
    assert done.record["reasons"]["steps_to_escape"] == "needs a value for d"
    assert done.record["status"] is None


def test_a_parameter_that_moves_nothing_is_swept_alike() -> None:
    """The flow does not read `shift`, the risk does: as many points as times must not be mixed up with times."""
    given = changes("training.loss=(f - y)**2/2 + shift", SHORT)
    text = example_text(TIED).replace("[parameters]", '[parameters]\nshift = { default = "0" }')
    with _file(text) as path:
        record = good("solve", path, "--sweep", "shift=0:2:3", *given, "--json").record
    risk = 1.75 - exact([0, 1, 2]) ** 2 / (2 * math.sqrt(math.pi))
    for i in range(3):
        assert record["series"]["m"][i] == pytest.approx(exact([0, 1, 2]), rel=1e-9)
        assert record["series"]["R"][i] == pytest.approx(risk + i, rel=1e-9)


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(text, encoding="utf-8")
        yield str(path)


# ---- verify --------------------------------------------------------------------------------------------------------

QUICK = changes("verify.dimensions=[40,80,160]", "verify.seeds=64", "solve.times=0:1:2")
FEW = changes("verify.dimensions=[20,30,40]", "verify.seeds=2", "solve.times=0:1:2")


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    folder = tmp_path_factory.mktemp("verify") / "made" / "here"
    return call("verify", TIED, *QUICK, "--seed", "5", "--report", str(folder), "--json"), folder


def test_verify_has_the_documented_keys(verified: tuple[Run, Path]) -> None:
    done, _ = verified
    record = done.record
    assert done.code == 0
    assert record.keys() >= {
        "agrees", "verdict", "false_alarm", "comparisons", "rows", "negative_control", "seeds", "device", "seconds",
    }  # fmt: skip
    assert (record["schema"], record["seed"]) == ("verify/1", 5)
    assert (record["agrees"], record["verdict"], record["false_alarm"]) == (True, "agrees", 1e-6)
    assert record["seeds"] == list(range(5, 69))
    assert record["negative_control"]["verdict"] == "disagrees"
    names = {"quantity", "at", "dimension", "predicted", "mean", "stderr", "z", "effect", "allowed", "agrees"}
    assert all(row.keys() >= names for row in record["rows"])
    limits = [row for row in record["rows"] if row["dimension"] == "inf"]
    assert len(limits) == record["comparisons"]
    for row in limits:
        assert row["predicted"] == pytest.approx(float(exact(row["at"])), rel=1e-9)
        assert abs(row["mean"] - row["predicted"]) <= row["allowed"]
    for row in record["rows"]:
        assert row["agrees"] is not None or row["note"]


def test_verify_reports_progress_beside_the_answer(verified: tuple[Run, Path]) -> None:
    done, _ = verified
    lines = done.err.splitlines()
    assert [re.findall(r"d = (\d+)", line) for line in lines[:3]] == [["40"], ["80"], ["160"]]
    assert re.search(r"about \d+ s left", lines[1])
    assert "simulated in" in lines[-1]


def test_the_report_is_complete(verified: tuple[Run, Path]) -> None:
    _, folder = verified
    assert {p.name for p in folder.iterdir()} == {"report.html", "report.md", "figure.svg"}
    markdown, html = ((folder / n).read_text("utf-8") for n in ("report.md", "report.html"))
    for text in (markdown, html):
        assert "Verdict: agrees" in text
        assert "limitlaw verify h2sum-tied-relu --set" in text
        assert "--seed 5" in text
    assert 'formula = "sum(h(2, z))"' in markdown
    assert ElementTree.parse(folder / "figure.svg").getroot().tag.endswith("svg")
    assert "<script" not in html


def test_a_simulation_that_cannot_decide_exits_1() -> None:
    done = call("verify", TIED, *FEW)
    assert done.code == 1
    assert "Verdict: inconclusive" in done.out
    assert once("verify", TIED, *FEW, "--json").record["verdict"] == "inconclusive"


def test_a_wrong_theory_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation runs at half the drift of the theory."""
    given = changes("verify.dimensions=[40,80,160]", "verify.seeds=64", "solve.times=0:2:2")
    honest = verify.check.experiment

    def experiment(derivation: Any, solution: Any) -> Any:
        slow = limitlaw.load(TIED, {"target.formula": "sum(h(2, z))/2", **dict(c.split("=") for c in given[1::2])})
        return honest(limitlaw.derive(slow), solution)

    monkeypatch.setattr(verify.check, "experiment", experiment)
    done = call("verify", TIED, *given, "--json")
    assert done.code == 1
    assert (done.record["verdict"], done.record["agrees"]) == ("disagrees", False)


# ---- wrong input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("solve", "Missing argument"),
        ("slove h2sum-tied-relu", "No such command 'slove'"),
        ("solve h2sum-tied-relu --colour red", "No such option"),
        ("sie z1", "--length"),
        ("sie z1 --length 0", "not in the range"),
        ("sie z1+omga --length 1 --parameter omega", "the nearest is omega"),
        ("sie z1 --length 1 --student teid", "'teid' is not one of"),
        ("sie z1 --length 1 --order 65", "not in the range"),
        ("expect z1**2 --correlation 2", "between -1 and 1"),
        ("expect [z1,z2]", "matrix"),
        ("expect tnah(z)", "the nearest is tanh"),
        ("examples nothing", "No example 'nothing'; there are"),
        ("check nothing.toml", "No task file 'nothing.toml'"),
        ("solve h2sum-tied-relu --set gama=1", "the nearest is gamma"),
        ("solve h2sum-tied-relu --set gamma=-1", "the value -1 is outside the domain (0,inf)"),
        ("solve h2sum-tied-relu --set gamma", "is not NAME=VALUE"),
        ("solve h2sum-tied-relu --set gamma=x", "'x' is not declared"),
        ("solve h2sum-tied-relu --set training.learning_rat=1", "the nearest is learning_rate"),
        ("solve h2sum-tied-relu --set training.start={m=2}", "squares of the overlaps"),
        ("solve h2sum-tied-relu --set verify.dimensions=[2]", "verify.dimensions"),
        ("solve h2sum-tied-relu --sweep gama=0:1:3", "the nearest is gamma"),
        ("solve h2sum-tied-relu --sweep gamma=0:1:3", "the value 0 is outside the domain (0,inf)"),
        ("solve h2sum-tied-relu --sweep gamma=1:2", "is not start:stop:count"),
        ("solve h2sum-tied-relu --sweep gamma=1:2:3:lin", "is not start:stop:count"),
        ("solve h2sum-tied-relu --sweep gamma=1:2:0", "the count is 0"),
        ("solve h2sum-tied-relu --sweep gamma=-1:2:3:log", "needs positive ends"),
        ("solve h2sum-tied-relu --sweep gamma", "is not NAME=VALUE"),
        ("solve h2sum-tied-relu --sweep gamma=1:2:2 --sweep gamma=1:2:2", "two different parameters"),
        ("solve h2sum-tied-relu --sweep gamma=1:2:999 --sweep d=1:2:999", "at most 100000 points"),
        ("solve h2sum-tied-relu --sweep gamma=1:2:2 --sweep d=1:2:2 --sweep threshold=0.1:0.2:2", "at most two"),
        ("solve h2sum-tied-relu --save x.nc", "--save writes a sweep"),
        ("solve h2sum-tied-relu --sweep gamma=1:2:2 --save /no/such/folder/x.nc", "does not exist"),
        ("solve h2sum-tied-relu --seed -1", "not in the range"),
        ("derive h2sum-tied-relu --json --dot", "choose one"),
        ("derive h2sum-tied-relu --svg /no/such/folder/x.svg", "does not exist"),
        ("derive h2sum-tied-relu --set activation=generic", "name one, e.g. relu(x)"),
        ("verify h2sum-tied-relu --set learning_rate=rate", "learning_rate"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(line: str, said: str) -> None:
    done = call(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("limitlaw: ")
    assert done.err.count("\n") == 1
    assert said in done.err


def test_a_value_that_verify_lacks_is_named() -> None:
    with _file(example_text(TIED).replace('gamma = { default = "1/4",', "gamma = {")) as path:
        done = call("verify", path)
    assert (done.code, done.out) == (2, "")
    assert "needs a value for gamma" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limitlaw = 1\nfamily = \"sequence-single-index\"\n[data\nlength = 2\n", "line 3"),
        (example_text(TIED).replace("learning_rate", "learning_rat"), r"this by training.learning_rat \(line \d+ of "),
        (example_text(TIED).replace("limitlaw = 1", "limitlaw = 2"), r"limitlaw \(line \d+.*reads limitlaw = 1"),
        (example_text(TIED).replace("sequence-single-index", "sequence"), "Unknown family 'sequence'"),
        (example_text(TIED).replace("sum(h(2, z))", "sum(h(2, z)"), r"target.formula \(line \d+ of .*is not closed"),
        (example_text(TIED).replace('"(0,inf)"', '"(1,inf)"'), "the value 1/4 is outside the domain"),
        ("", "limitlaw = 1 is missing"),
    ],
    ids=["no TOML", "unknown key", "version", "family", "formula", "domain", "empty"],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_line(text: str, said: str) -> None:
    with _file(text) as path:
        done = call("check", path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert re.search(said, done.err), done.err


def test_what_cannot_be_read_or_written_is_wrong_input(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "no text in UTF-8" in call("check", str(binary)).err
    assert call("check", str(tmp_path)).code == 2
    assert "is a directory" in call("derive", TIED, "--svg", str(tmp_path)).err
    assert "is a file" in call("verify", TIED, "--report", str(binary)).err
    below = call("verify", TIED, "--report", str(binary / "report"))
    assert (below.code, below.out) == (2, "")  # before anything is simulated


# ---- no convergence, internal errors -------------------------------------------------------------------------------


def test_an_expectation_that_does_not_exist_exits_3() -> None:
    for formula in ("exp(z**2)", "1/z1**2"):
        done = call("expect", formula)
        assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
        assert "may not exist" in done.err


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The integrator gives up after three steps."""
    monkeypatch.setitem(vars(solve.compiled._INTEGRATOR), "max_steps", 3)


@pytest.mark.usefixtures("impatient")
def test_a_flow_that_is_not_solved_exits_3() -> None:
    done = call("solve", TIED, "--json")
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
    assert "used all its steps" in done.err


@pytest.mark.usefixtures("impatient")
def test_a_sweep_that_is_not_solved_is_marked_and_exits_3() -> None:
    done = call("solve", TIED, "--sweep", "gamma=1/10:1/2:2", "--json")
    assert done.code == 3
    record = done.record
    assert record["status"] in {"max_steps", "nonfinite"}  # of m, and of V after it
    assert done.err == f"limitlaw: not converged: {record['status']}\n"
    assert record["series"]["m"][0][-1] is None
    assert "used all its steps" in record["reasons"]["m"]


def test_an_internal_error_is_one_line_with_its_traceback_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a flaw\nin two lines")

    monkeypatch.setattr(limitlaw, "load", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = call("solve", TIED, "--json")
    assert (done.code, done.out, done.err.count("\n")) == (70, "", 1)
    assert "internal error (ZeroDivisionError: a flaw in two lines)" in done.err
    (log,) = tmp_path.iterdir()
    assert str(log) in done.err
    assert "Traceback" in log.read_text("utf-8")
    assert 'raise ZeroDivisionError("a flaw' in log.read_text("utf-8")


def test_an_interrupt_is_no_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(limitlaw, "load", interrupted)
    done = call("solve", TIED)
    assert (done.code, done.out) == (130, "")
