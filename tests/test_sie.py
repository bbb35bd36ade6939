"""`sie` as users call it: the table of exponents of two-token targets, for tied and untied networks.

Expected values: the classification of the Hermite coefficients of each target by hand (degrees, parity and
exchange symmetry), the sign rule, and sigma_k of ReLU: zero for odd k >= 3, negative for k = 4.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import limitlaw

# target, exponent of the target, tied ReLU, tied generic, untied ReLU; "t" marks a trap
ROWS = [
    ("z1", 1, 1, 1, 1),
    ("(z1 + z2)/sqrt(2)", 1, 1, 1, 1),
    ("z1 - z2", 1, "inf", "inf", 1),
    ("h2(z1) + h2(z2)", 2, 2, 2, 2),
    ("z1*z2", 2, 2, 2, 2),
    ("h2(z1) - h2(z2)", 2, "inf", "inf", 2),
    ("h3(z1) + h3(z2)", 3, "inf", 3, "inf"),
    ("h3(z1) - h3(z2)", 3, "inf", "inf", "inf"),
    ("h4(z1) + h4(z2)", 4, "4t", 4, "4t"),
    ("z1 - z2 - h4(z1) - h4(z2)", 1, 4, 4, 1),
]


def exponents(formula: str, length: int, student: str, activation: str) -> dict[str, object]:
    return limitlaw.sie(formula, length, student=student, activation=activation)


@pytest.mark.parametrize(("formula", "target", "tied", "generic", "untied"), ROWS)
def test_two_token_targets(formula: str, target: object, tied: object, generic: object, untied: object) -> None:
    cases = (("tied", "relu(x)", tied), ("tied", "generic", generic), ("untied", "relu(x)", untied))
    for student, activation, expected in cases:
        record = exponents(formula, 2, student, activation)
        assert record["target_sie"] == target
        assert record["sie"] == (4 if expected == "4t" else expected)
        if expected == "4t":
            assert record["trapped"] is True
            assert record["sample_complexity"]["law"] == "never"
        assert record["certificate"]["sie"]["kind"] == "exact"


def test_odd_activation_sees_third_order() -> None:
    record = exponents("h3(z1) + h3(z2)", 2, "tied", "generic-odd")
    assert (record["sie"], record["trapped"]) == (3, "depends_on_start")
    assert record["sample_complexity"]["law"] == "d^(k-1)"


@pytest.mark.parametrize(
    ("formula", "tied", "untied"), [("z1 - z2", "inf", 1), ("(z1**2 - z2**2)/sqrt(2)", "inf", 2), ("z1*z2", 2, 2)]
)
def test_tying_can_destroy_the_information(formula: str, tied: object, untied: object) -> None:
    assert exponents(formula, 2, "tied", "generic")["sie"] == tied
    record = exponents(formula, 2, "untied", "generic")
    assert (record["sie"], record["trapped"]) == (untied, False)


def test_symmetry_proves_infinity_beyond_polynomials() -> None:
    record = exponents("tanh(z1) - tanh(z2)", 2, "tied", "generic")
    assert record["sie"] == "inf"
    assert record["certificate"]["sie"]["kind"] == "exact"


def test_trace_of_two_token_attention() -> None:
    # G_2 = sqrt 2 sigma_2 (kappa_1 - 1/8) with kappa_1 = E[x tanh(x/2)]/2 < 1/8, x = z1 (z1 - z2): negative, a trap
    record = exponents("trace(attention(z))/sqrt(2)", 2, "tied", "relu(x)")
    assert (record["target_sie"], record["sie"], record["trapped"]) == (2, 2, True)
    assert record["certificate"]["sie"]["kind"] == "enclosure"
    low, high = (float(v) for v in record["certificate"]["sie"]["interval"])
    exact = 2**0.5 / (2 * 3.141592653589793**0.5) * (0.0996867747123848 - 0.125)
    assert low <= exact <= high < 0


@pytest.mark.parametrize("length", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_longer_sequences_of_attention(length: int) -> None:
    record = exponents(f"trace(attention(z))/sqrt({length})", length, "tied", "relu(x)")
    assert (record["sie"], record["trapped"]) == (2, True)
    assert record["certificate"]["sie"]["kind"] == "enclosure"


def test_a_parameter_may_have_any_name() -> None:
    record = limitlaw.sie("E*z1 + beta*He2(z2)", 2, parameters=("E", "beta"))
    assert record["target_sie"] == 1
    assert limitlaw.sie("E*z1 + beta*He2(z2)", 2, parameters=("beta",), changes={"E": "0"})["target_sie"] == 2
    with pytest.raises(ValueError, match="E"):
        limitlaw.sie("E*z1", 2)


def test_nothing_found_is_not_infinity() -> None:
    record = limitlaw.sie("h(10, z1)", 1, student="tied", activation="generic", order=8)
    assert record["target_sie"] is None
    assert record["certificate"]["target_sie"]["kind"] == "undecided"
    assert record["sample_complexity"]["law"] == "unknown"


def test_the_command_prints_json_alone() -> None:
    command = [sys.executable, "-m", "limitlaw", "sie", "h2(z1) + h2(z2)", "--length", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = json.loads(done.stdout)
    assert record["schema"] == "sie/1"
    assert (record["target_sie"], record["sie"], record["joint_sie"]) == (2, 2, None)


@pytest.mark.parametrize(
    "formula",
    ["__import__('os').system('true')", "().__class__", "(lambda: 0)()", "9**9**9**9", "(" * 5000 + "1" + ")" * 5000],
)
def test_hostile_formulas_are_refused(formula: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "limitlaw", "sie", formula, "--length", "2"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
