"""What newcomers and attackers found: wrong input is refused in one line, with the reason and what to do."""

from __future__ import annotations

import contextlib
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import sympy as sp

import limitlaw
from derive.decision import decide_symbolically
from derive.document import Document, TaskError
from derive.exponent import _form, _of_degree, pair_exponent
from derive.hermite import HermiteExpansion
from derive.losses import check_descent, without_jumps
from derive.rules.growth import undefined, unsquarable
from derive.table import Unsupported
from derive.task import load
from derive.tasks.sequence_single_index import SequenceSingleIndex

TASK = """
limitlaw = 1
family = "sequence-single-index"
[parameters]
gamma = {{ default = "1/4" }}
[data]
length = {length}
[target]
formula = "{target}"
[student]
kind = "{kind}"
activation = "{activation}"
[training]
loss = "{loss}"
learning_rate = "{rate}"
start = {{ m = "2/5" }}
[solve]
times = "0:2:3"
[verify]
dimensions = [50]
seeds = 2
"""
USUAL = {
    "length": 2,
    "target": "z1*z2",
    "kind": "tied",
    "activation": "relu(x)",
    "loss": "(f-y)**2/2",
    "rate": "gamma",
}


def stated(**changes: Any) -> str:
    return TASK.format(**{**USUAL, **changes})


def task(**changes: Any) -> SequenceSingleIndex:
    found = load(Document.read(stated(**changes), "task.toml"))
    assert isinstance(found, SequenceSingleIndex)
    return found


def call(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
        limitlaw.main(words)
    assert isinstance(stop.value.code, int)
    return stop.value.code, out.getvalue(), err.getvalue()


def refused(*words: str) -> str:
    code, out, err = call(*words)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    return err


# ---- 1 to 4: tasks that cannot be trained, or not be derived ----------------------------------------------
@pytest.mark.parametrize("rate", ["gamma-1", "-gamma", "0*gamma", "sqrt(gamma-1)", "-1/d", "gamma-1/4"])
def test_a_learning_rate_is_positive_at_the_values(rate: str) -> None:
    with pytest.raises(TaskError, match=r"learning_rate.*must be positive"):
        task(rate=rate)


def test_a_learning_rate_may_fall_with_the_dimension() -> None:
    assert task(rate="gamma/sqrt(d)").learning_rate.free_symbols


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"activation": "step(x)"}, "SGD does not move"),
        ({"activation": "sign(x) + 1"}, "SGD does not move"),
        ({"activation": "x + step(x)"}, "no gradient sees the jump"),
        ({"activation": "3"}, "SGD does not move"),
        ({"activation": "gamma"}, "SGD does not move"),
        ({"loss": "y**2"}, "does not read f"),
        ({"loss": "step(f-y)"}, "SGD does not move"),
    ],
)
@pytest.mark.parametrize("command", ["check", "derive", "solve", "verify"])
def test_what_does_not_move_is_refused(changes: dict[str, str], said: str, command: str, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(stated(**changes), encoding="utf-8")
    assert said in refused(command, str(file))


@pytest.mark.parametrize("activation", ["step(x)", "sign(x)", "3"])
def test_sie_refuses_what_does_not_move(activation: str) -> None:
    assert "SGD does not move" in refused("sie", "z1", "-L", "1", "--activation", activation)


def test_a_jump_of_weight_zero_is_none() -> None:
    x = sp.Symbol("x", real=True)
    assert without_jumps([(x * sp.Heaviside(x)).diff(x)], "f") == (sp.Heaviside(x),)
    assert without_jumps([((2 * x - 1) * sp.Heaviside(2 * x - 1)).diff(x)], "f") == (2 * sp.Heaviside(2 * x - 1),)
    with pytest.raises(TaskError):
        without_jumps([((x + 1) * sp.Heaviside(x)).diff(x)], "f")
    f, y = sp.symbols("f y", real=True)
    check_descent(sp.Lambda((f, y), (f - y) ** 2), [x * sp.Heaviside(x)], [x])


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "abs(f-y)"},
        {"loss": "max(0,1-f*y)"},
        {"loss": "abs(f-y)", "target": "z1"},  # the point mass lies on a bent line
        {"target": "step(z1**2-1)"},
        {"target": "sign(z1*z2)"},
    ],
)
@pytest.mark.parametrize("command", ["check", "derive", "solve", "verify"])
def test_a_point_mass_on_a_curve_is_refused(changes: dict[str, str], command: str, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(stated(**changes), encoding="utf-8")
    assert "smooth" in refused(command, str(file))


def test_a_point_mass_on_a_line_is_none_of_these() -> None:
    for changes in ({"loss": "abs(f-y)", "activation": "x", "target": "z1"}, {"target": "sign(z1+z2)"}):
        limitlaw.derive(task(**changes))


def test_limits_of_sie_are_no_internal_errors() -> None:
    assert "polynomial of f and y" in refused("sie", "z1*z2", "-L", "2", "--set", "training.loss=abs(f-y)")
    assert "137846528820 coefficients" in refused("sie", "prod(z)", "-L", "20", "--order", "20")
    code, out, _ = call("sie", "z1**2", "-L", "1", "--set", "training.loss=(f**2-y)**2", "--json")
    assert (code, json.loads(out)["sie"]) == (0, None)  # E sigma^2 He_2 has no name


@pytest.mark.parametrize("times", ["0:0:1", "0:5:1", "3:2:1", "-1:2:4"])
def test_times_hold_a_positive_one(times: str) -> None:
    assert "solve.times" in refused("verify", "h2sum-tied-relu", "--set", f"solve.times={times}")


# ---- 5: functions without a second moment -----------------------------------------------------------------
a, b = sp.symbols("z1 z2", real=True)


@pytest.mark.parametrize(
    "f",
    [
        1 / a,
        a**-2,
        1 / sp.sqrt(sp.Abs(a)),
        b + 1 / a,
        1 / a + 1 / b,
        1 / (a - a**2),
        1 / sp.sin(a),
        sp.exp(a**2 / 4),  # E f^2 = E exp(z^2/2)
        a * sp.exp(a**2 / 3) + 1,
        sp.exp(a * b / 2),  # eigenvalues +-1/4
        sp.exp(a**3),
    ],
)
def test_no_second_moment(f: sp.Expr) -> None:
    assert unsquarable(f, (a, b)) is not None


@pytest.mark.parametrize(
    "f",
    [
        sp.sin(a) / a,
        sp.exp(a) / a - 1 / a,
        1 / (1 + a**2),
        sp.Abs(a) ** sp.Rational(-2, 5),  # E |z|^(-4/5) is finite
        sp.exp(a**2 / 5),
        sp.exp(a * b / 3),
        sp.exp(-(a**4)),
        sp.log(sp.Abs(a)),
        sp.tanh(1 / a),
        a**3 * b,
    ],
)
def test_a_second_moment(f: sp.Expr) -> None:
    assert unsquarable(f, (a, b)) is None
    assert undefined(f, (a, b)) is None


@pytest.mark.parametrize("f", [sp.log(a), sp.sqrt(a), a**b, b + sp.sqrt(a - b), sp.tanh(sp.log(a * b))])
def test_not_real_on_a_part_of_the_line(f: sp.Expr) -> None:
    assert undefined(f, (a, b)) is not None


@pytest.mark.parametrize("formula", ["1/z1", "exp(z1**2/4)", "log(z1)", "sqrt(z1)", "z1**z2"])
def test_sie_refuses_them(formula: str) -> None:
    said = refused("sie", formula, "-L", "2")
    assert "is infinite" in said or "is not real" in said


def test_a_value_decides(tmp_path: Path) -> None:
    words = ("sie", "exp(c*z1**2)", "-L", "1", "--activation", "relu(x)", "--set")
    assert "infinite" in refused(*words, "c=1/4")
    assert call(*words, "c=1/5")[0] == 0
    with pytest.raises(TaskError, match="activation: the mean square of 1/x is infinite"):
        task(activation="1/x")


# ---- 6: what contradicts, and what is not used ------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sie z1 -L 1 --set gamma=5", "Nothing reads the parameter gamma"),
        ("sie gamma*z1 -L 1", "'gamma' is not declared"),
        ("sie z1 -L 1 --parameter q", "Nothing reads the parameter q"),
        ("sie z1 -L 1 --set L=3", "data.length"),
        ("sie z1 -L 1 --set data.length=3", "data.length"),
        ("sie z1 -L 2 --set target.formula=z2", "target.formula"),
        ("sie z1 -L 1 --set student.kind=untied", "student.kind"),
        ("sie z1 -L 1 --set activation=relu(x)", "student.activation"),
        ("sie z1 -L 1 --set start=random", "training.start"),
        ("sie L*z1 -L 1 --parameter L", "L is the number of tokens"),
        ("sie a*z1 -L 1 --set a=1 --set a=2", "given twice"),
        ("expect z1**2 --correlation 1/2", "leave it out"),
        ("expect u**2 --correlation 1/2", "leave it out"),
        ("expect z1**2 --set a=2", "does not hold a"),
        ("expect a*z1**2 --set a=2 --set a=3", "given twice"),
        ("solve h2sum-tied-relu --set L=2 --set data.length=3", "data.length"),
        ("solve h2sum-tied-relu --set gamma=1 --set parameters.gamma=2", "gamma"),
        ("solve h2sum-tied-relu --sweep gamma=1/10:1/5:2 --set gamma=1", "by --set and by --sweep"),
        # ---- 7: words ----
        ("sie q*z1 -L 1", "the formula: 'q' is not declared"),
        ("sie z1 -L 1 --activation foo(x)", "--activation: "),
        ("sie -z1*z2 -L 2", "after --"),
        ("expect -z1", "after --"),
        ("solve h2sum-tied-relu --set start={m=1/2,m=1/3}", "training.start"),
        ("solve h2sum-tied-relu --set start={m=2}", "more than 1"),
        ("solve h2sum-tied-relu --set start={m=sqrt(-1)}", "training.start"),
        ("solve h2sum-untied-relu --set start={m=2}", "more than 1"),
    ],
)
def test_refused(line: str, said: str) -> None:
    err = refused(*line.split())
    assert said in err
    assert "line" not in err.replace("linear", "")


def test_sie_takes_the_loss_and_its_parameters() -> None:
    words = ("sie", "a*z1", "-L", "1", "--activation", "relu(x)", "--set", "a=2", "--set", "loss=(f-y)**4", "--json")
    code, out, _ = call(*words)
    assert (code, json.loads(out)["sie"]) == (0, 1)


def test_powers_of_the_dimension_are_reduced() -> None:
    texts = [limitlaw.sie(f"h({k}, z1)", 1, order=12)["sample_complexity"]["text"] for k in (4, 5, 12)]
    assert [word in said for word, said in zip(("d^(-1)", "d^(-3/2)", "d^(-5)"), texts, strict=True)] == [True] * 3


def test_short_forms() -> None:
    for start in ("{m=1/2}", "{ m = sqrt(1/4) }", '{m = "1/2"}', "{m=0.5}"):
        changed = load("h2sum-tied-relu", {"start": start, "learning_rate": "gamma/2"})
        assert isinstance(changed, SequenceSingleIndex)
        assert changed.start == {sp.Symbol("m", real=True): sp.S.Half}
        assert changed.learning_rate == sp.Symbol("gamma", real=True, positive=True) / 2


# ---- 8: a record also without a value ---------------------------------------------------------------------
@pytest.mark.parametrize("formula", ["1/z", "exp(z**2)"])
def test_expect_prints_a_record_without_a_value(formula: str) -> None:
    code, out, err = call("expect", formula, "--json")
    record = json.loads(out)
    assert (code, record["value"], record["closed_form"], record["schema"]) == (3, None, None, "expect/1")
    assert record["reason"] in err


# ---- 9: matrices ------------------------------------------------------------------------------------------
def test_a_matrix_of_losses_says_to_sum() -> None:
    text = stated(target="attention(z)", kind="attention", loss="(f-y)**2")
    attention = text.replace('activation = "relu(x)"', 'reduction = "none"')
    with pytest.raises(TaskError, match=r"2 x 2.*sum\(\(f-y\)\*\*2\)/2"):
        load(Document.read(attention, "task.toml"))


# ---- 10: many tokens --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("formula", "length", "expected"), [("sum(h(2,z))", 64, 2), ("sum(h(4,z))", 20, 4), ("sum(abs(z))", 20, 2)]
)
def test_many_tokens(formula: str, length: int, expected: int) -> None:
    record = limitlaw.sie(formula, length)
    assert (record["target_sie"], record["sie"]) == (expected, expected)


@pytest.mark.parametrize("kind", ["tied", "untied"])
@pytest.mark.parametrize("target", ["z1*z2 + h3(z1)", "tanh(z1) + z1*z2**2", "abs(z1 + z2)", "exp(z1) - z2"])
@pytest.mark.parametrize("loss", ["(f-y)**2/2", "(f-y)**4"])
def test_forms_through_the_coefficients_of_the_labels(kind: str, target: str, loss: str) -> None:
    problem = task(kind=kind, target=target, loss=loss, activation="relu(x) + x**2").problem
    for degree in (1, 2, 3):
        expected, found = problem.form(degree), _form(problem, degree)
        assert found.keys() == expected.keys()
        assert all(_equal(found[n], expected[n]) for n in found)


def _equal(x: sp.Expr, y: sp.Expr) -> bool:
    from solve.lower import lower

    (first, second), (e1, e2) = lower([x, y], [])()
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=10 * (e1 + e2) + 1e-12)  # quadrature's own errors


def test_a_blind_risk_is_still_proved() -> None:
    odd = task(target="tanh(z1) - tanh(z2)").problem  # exchanging the tokens changes the label's sign
    exponent = pair_exponent(odd, 8, decide_symbolically)
    assert exponent.value is sp.oo


def test_a_size_limit_names_the_size() -> None:
    tokens = sp.symbols("z1:65", real=True)
    with pytest.raises(Unsupported, match=r"Degree 3 in 64 .* has 45760 coefficients.*--order 2"):
        _of_degree(HermiteExpansion(sp.tanh(sp.Add(*tokens)), tokens), 3)


def test_a_swept_threshold_is_that_of_laws_and_flow():
    from solve.solution_sweep import sweep_record

    derivation = limitlaw.derive(limitlaw.load("h2sum-tied-relu", {"training.start.m": "1/20"}))
    record = sweep_record(derivation, [("threshold", "1/10:1/2:2")], None)
    low, high = record["values"]["escape_time"]
    assert low < high
    alone = limitlaw.solve(
        limitlaw.derive(limitlaw.load("h2sum-tied-relu", {"training.start.m": "1/20", "solve.escape": "1/10"}))
    )
    assert low == pytest.approx(alone.escape.time, rel=1e-8)  # the accuracy of a passage


@pytest.mark.parametrize("loss", ["(f-y)**4", "(f-y)**2/2"])
def test_a_limit_of_size_is_no_internal_error(loss):
    """A power of the label too large to expand leaves its degree unknown; a target too large is refused."""
    for formula, length in (("prod(z)", "10"), ("prod(z)", "20")):
        words = [
            "sie",
            formula,
            "-L",
            length,
            "--activation",
            "tanh(x)",
            "--order",
            "2",
            "--set",
            f"training.loss={loss}",
        ]
        with pytest.raises(SystemExit) as stop:
            limitlaw.main([*words, "--set", f"training.loss={loss}"])
        assert stop.value.code in (0, 2)
