"""Exponents with positional encodings: the joint column of the SIE table, and what happens after e has escaped."""

import math

import pytest
import sympy as sp

import limitlaw
from derive.exponent import joint_exponent
from derive.trapping import Trapped
from solve.certify import decide
from solve.dynamic import dynamic_exponent
from tests.twins import attention

# the table of the note on online SGD, L = 2, trace attention with opposite positions; "inf": proved infinite
JOINT = {
    "z1": 2,
    "(z1+z2)/sqrt(2)": "inf",
    "z1-z2": 2,
    "h(2,z1)+h(2,z2)": 2,
    "z1*z2": 2,
    "h(2,z1)-h(2,z2)": "inf",
    "h(3,z1)+h(3,z2)": "inf",
    "h(3,z1)-h(3,z2)": 4,
    "h(4,z1)+h(4,z2)": 4,
    "z1-z2-h(4,z1)-h(4,z2)": 2,
    "trace(attention(z))/sqrt(L)": 2,
}


@pytest.mark.parametrize("formula", JOINT)
def test_joint_exponent_of_the_table(formula):
    found = joint_exponent(attention(formula).problem, 8, decide)
    value = "inf" if found.value is sp.oo else found.value
    assert value == JOINT[formula]
    assert found.certificate.value in ("exact", "enclosure")


def test_the_first_term_of_the_lowered_exponent():
    """The m e term of z1 - z2 - h4 - h4 is that of G_1(e) = e exp(-e^2/2)/2."""
    form = attention("z1-z2-h(4,z1)-h(4,z2)").problem.form(2, positions=True, informed=True)
    assert form == {(1, 1): sp.Rational(1, 2)}


def test_the_form_at_a_positional_overlap_is_that_function():
    problem = attention("z1-z2-h(4,z1)-h(4,z2)").problem
    for e in (sp.Rational(1, 3), sp.Rational(-4, 5)):
        found = problem.form(1, at={problem.overlaps[1]: e})
        assert sp.expand(found[(1, 0)] - e * sp.exp(-(e**2) / 2) / 2) == 0


SECOND_WAY = "{0} - (h(2,z1)+h(2,z2)) - 9378974/10000000*z1*z2 - (h(4,z1)+h(4,z2))"


@pytest.mark.parametrize(("constant", "trapped"), [("13/10", Trapped.NO), ("3", Trapped.YES)])
def test_the_second_way_down_and_its_rim_condition(constant, trapped):
    """q makes G_2(0) vanish to 1e-8: e escapes to 1, where G_2(1) = 0.0994; the constant decides who wins there."""
    problem = attention(SECOND_WAY.format(constant)).problem
    joint = joint_exponent(problem, 4, decide)
    assert joint.trapped is Trapped.YES
    found = dynamic_exponent(problem, joint, 4, decide)
    assert found.value == 2
    assert found.trapped is trapped
    low, high = (float(x) for x in found.coefficients[-1].decision.interval)
    assert low < 0.0994 < high


def test_a_mixed_term_needs_no_escape_of_e_first():
    problem = attention("z1-z2-h(4,z1)-h(4,z2)").problem
    joint = joint_exponent(problem, 4, decide)
    found = dynamic_exponent(problem, joint, 4, decide)
    assert (found.value, found.trapped) == (2, Trapped.NO)
    assert "e does not escape first" in found.reason


def test_command_and_facade():
    record = limitlaw.sie("z1 - z2", 2, student="attention", reduction="trace", positional=True)
    assert (record["sie"], record["joint_sie"], record["dynamic_sie"]) == ("inf", 2, 2)
    assert record["trapped"] is False
    assert record["sample_complexity"]["law"] == "d log d"
    assert math.isfinite(record["joint_sie"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"length": 3, "positional": True}, "two tokens"),
        ({"length": 2, "student": "attention", "activation": "relu(x)"}, "no activation"),
        ({"length": 2, "reduction": "trace"}, "attention matrix"),
        ({"length": 2, "student": "attention"}, "outputs"),
    ],
)
def test_what_does_not_go_together(options, words):
    with pytest.raises(ValueError, match=words):
        limitlaw.sie("z1", **options)
