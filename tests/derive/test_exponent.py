"""Information exponents at the level of the mechanism: values, certificates, traps, decisions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import sympy as sp

from derive.decision import Certificate, Decision, Sign, decide_symbolically
from derive.equations import Quantity
from derive.expectation import Expectation
from derive.exponent import Exponent, Trapped, pair_exponent, sample_complexity, target_exponent
from derive.functions import He, Phi, attention, relu
from derive.hermite import HermiteExpansion
from derive.measures import standard_normal
from derive.mechanisms.escape import escape_laws
from derive.mechanisms.spherical_sgd import SphericalSgd, cross_terms
from derive.students import (
    GenericActivation,
    GenericOddActivation,
    Reduction,
    attention_student,
    name_generic_coefficients,
)
from tests.derive.problems import HALF_SQUARE, Z, attention_pair, gamma, h, landmarks, m, tied, u, untied, z1, z2, z3
from tests.derive.truth import value

R = sp.Rational
a, q = sp.symbols("a q", real=True)
p = sp.Symbol("p", positive=True)
x = sp.Symbol("x", real=True)


def numerically(e: sp.Expr) -> Decision:
    """A decision for tests: the sign of a number computed by quadrature, far from zero."""
    decision = decide_symbolically(e)
    if decision.sign is not Sign.UNDECIDED or e.free_symbols:
        return decision
    number = value(e, width=0.7)
    if abs(number) < 1e-8:
        return decision
    sign = Sign.POSITIVE if number > 0 else Sign.NEGATIVE
    return Decision(sign, Certificate.ENCLOSURE, "quadrature", (str(number - 1e-9), str(number + 1e-9)))


def degree_of(target: sp.Expr, length: int) -> int | None:
    return HermiteExpansion(target, Z[:length]).degree


def exponent(problem: SphericalSgd, target: sp.Expr, length: int, order: int = 6) -> Exponent:
    return pair_exponent(problem, order, numerically, degree_of(target, length))


def generic(problem_of: object, target: sp.Expr, length: int, order: int = 6, odd: bool = False) -> Exponent:
    activation = (GenericOddActivation if odd else GenericActivation)(u)
    problem = problem_of(length, activation, target)  # type: ignore[operator]
    decide = lambda e: decide_symbolically(name_generic_coefficients(e))
    return pair_exponent(problem, order, decide, degree_of(target, length))


# ---- the target alone --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "length", "expected"),
    [
        (z1, 2, 1),
        (z1 - z2, 2, 1),
        (h(2, z1) - h(2, z2), 2, 2),
        (z1 * z2, 2, 2),
        (h(3, z1) + h(3, z2), 2, 3),
        (He(4, z1) + 3, 1, 4),
        (z1**4 - 6 * z1**2, 1, 4),
        (z1 * z2 * z3, 3, 3),
        ((z1 + z2) ** 3 - 3 * (z1 + z2), 2, 1),
        ((z1 + z2) ** 3 / sp.sqrt(8) - 3 * (z1 + z2) / sp.sqrt(2), 2, 3),
        (relu(z1), 1, 1),
        (sp.Abs(z1), 1, 2),
        (relu(z1) - z1 / 2, 1, 2),
        (relu(z1) - z1 / 2 - He(2, z1) / (2 * sp.sqrt(2 * sp.pi)), 1, 4),
        (sp.cos(z1) + sp.exp(-R(1, 2)) * He(2, z1) / 2, 1, 4),
        (sp.tanh(z1 * z2), 2, 2),
        (sp.tanh(z1) * sp.tanh(z2) * sp.tanh(z3), 3, 3),
        (a * z1 + z2**2, 2, 1),
    ],
    ids=str,
)
def test_exponent_of_a_target(target: sp.Expr, length: int, expected: int) -> None:
    found = target_exponent([target], Z[:length], 6, numerically)
    assert found.value == expected, found.reason
    assert found.certificate in (Certificate.EXACT, Certificate.ENCLOSURE)
    assert all(sum(c.index) == expected for c in found.leading)
    assert found.leading


@pytest.mark.parametrize("target", [sp.S(3), (z1 + 1) ** 2 - z1**2 - 2 * z1, z1 * z2 - z2 * z1 + sp.pi], ids=str)
def test_a_constant_target_has_an_infinite_exponent(target: sp.Expr) -> None:
    found = target_exponent([target], (z1, z2), 4, decide_symbolically)
    assert (found.value, found.certificate) == (sp.oo, Certificate.EXACT)
    assert "constant" in found.reason


def test_several_outputs_share_the_least_exponent() -> None:
    outputs = [h(4, z1), h(3, z1) * z2, h(2, z2) * 0 + h(4, z2)]
    assert target_exponent(outputs, (z1, z2), 6, decide_symbolically).value == 4
    assert target_exponent([*outputs, z2], (z1, z2), 6, decide_symbolically).value == 1


def test_nothing_is_claimed_beyond_the_order() -> None:
    for target in (He(8, z1), sp.cos(z1) + sp.exp(-R(1, 2)) * (He(2, z1) / 2 - He(4, z1) / 24)):
        found = target_exponent([target], (z1,), 5, decide_symbolically)
        assert (found.value, found.certificate) == (None, Certificate.UNDECIDED)
        assert "up to order 5" in found.reason


def test_an_open_coefficient_is_not_passed_over() -> None:
    # c_1 of tanh is not zero, but algebra alone does not say so; degree 3 is exact
    found = target_exponent([sp.tanh(z1) + He(3, z1)], (z1,), 6, decide_symbolically)
    assert (found.value, found.certificate) == (None, Certificate.UNDECIDED)
    assert "degree 1, index (1,)" in found.reason


@pytest.mark.parametrize("target", [sp.Abs(z1) * sp.tanh(z1) ** 2, sp.Abs(z1) * sp.cosh(z1 / 4)], ids=str)
def test_even_functions_with_kinks_have_exact_zeros(target: sp.Expr) -> None:
    found = target_exponent([target], (z1,), 4, numerically)
    assert found.value == 2, found.reason


def test_odd_functions_with_kinks_have_exact_zeros() -> None:
    # |z| tanh(z) less its projection on z has no even part, and its degree 3 is not zero
    target = sp.Abs(z1) * sp.tanh(z1)
    projected = target - z1 * Expectation(target * z1, [z1], standard_normal())
    found = target_exponent([projected], (z1,), 4, numerically)
    assert found.value == 3, found.reason


# ---- target and student ------------------------------------------------------------------------------------------

INFINITE = sp.oo
TIED_RELU: Sequence[tuple[sp.Expr, object, Trapped]] = (
    (z1, 1, Trapped.NO),
    ((z1 + z2) / sp.sqrt(2), 1, Trapped.NO),
    (-z1, 1, Trapped.NO),
    (z1 - z2, INFINITE, Trapped.YES),
    (h(2, z1) + h(2, z2), 2, Trapped.NO),
    (-h(2, z1) - h(2, z2), 2, Trapped.YES),
    (z1 * z2, 2, Trapped.NO),
    (h(2, z1) - h(2, z2), INFINITE, Trapped.YES),
    (h(3, z1) + h(3, z2), INFINITE, Trapped.YES),
    (h(4, z1) + h(4, z2), 4, Trapped.YES),
    (-h(4, z1) - h(4, z2), 4, Trapped.NO),
    (z1 - z2 - h(4, z1) - h(4, z2), 4, Trapped.NO),
    (h(6, z1), 6, Trapped.NO),
)


@pytest.mark.parametrize(("target", "expected", "trapped"), TIED_RELU, ids=str)
def test_the_table_of_the_tied_relu_student(target: sp.Expr, expected: object, trapped: Trapped) -> None:
    found = exponent(tied(2, relu(u), target), target, 2)
    assert (found.value, found.certificate, found.trapped) == (expected, Certificate.EXACT, trapped), found.reason


@pytest.mark.parametrize(
    ("target", "expected", "trapped"),
    [
        (z1 - z2, 1, Trapped.NO),
        (h(2, z1) - h(2, z2), 2, Trapped.NO),
        (z1 * z2, 2, Trapped.NO),
        (h(2, z1) + h(2, z2), 2, Trapped.NO),
        (-h(2, z1) - h(2, z2) / 3, 2, Trapped.YES),
        (-h(2, z1) - z1 * z2 / 2 - h(2, z2), 2, Trapped.YES),
        (-h(2, z1) - 3 * z1 * z2 - h(2, z2), 2, Trapped.NO),
        (h(4, z1), 4, Trapped.YES),
        (-h(4, z1), 4, Trapped.NO),
        (h(4, z1) - h(4, z2), 4, Trapped.DEPENDS_ON_START),
        (h(3, z1) * z2, 4, Trapped.DEPENDS_ON_START),
        (h(3, z1), INFINITE, Trapped.YES),
    ],
    ids=str,
)
def test_the_untied_relu_student(target: sp.Expr, expected: object, trapped: Trapped) -> None:
    found = exponent(untied(2, relu(u), target), target, 2)
    assert (found.value, found.certificate, found.trapped) == (expected, Certificate.EXACT, trapped), found.reason


@pytest.mark.parametrize(
    ("target", "of_tied", "of_untied"),
    [(z1 - z2, INFINITE, 1), ((z1**2 - z2**2) / sp.sqrt(2), INFINITE, 2), (z1 * z2, 2, 2)],
    ids=str,
)
def test_generic_activations(target: sp.Expr, of_tied: object, of_untied: object) -> None:
    assert generic(tied, target, 2).value == of_tied
    assert generic(untied, target, 2).value == of_untied


def test_z1_z2_untied_with_a_generic_activation_is_never_trapped() -> None:
    assert generic(untied, z1 * z2, 2).trapped is Trapped.NO  # mu1 mu2 takes both signs, whatever sigma_2's is
    assert generic(tied, h(2, z1) + h(2, z2), 2).trapped is Trapped.UNKNOWN  # the sign of sigma_2 decides


def test_generic_odd_activations_see_odd_degrees_only() -> None:
    assert generic(tied, h(3, z1) + h(3, z2), 2, odd=True).value == 3
    assert generic(tied, h(3, z1) + h(3, z2), 2, odd=True).trapped is Trapped.DEPENDS_ON_START
    assert generic(tied, h(2, z1) + h(2, z2), 2, odd=True).value == INFINITE
    assert generic(tied, h(2, z1) + h(5, z2), 2, odd=True).value == 5


def test_the_trace_of_attention() -> None:
    student = attention_student(2, Reduction(trace=True))

    def problem(target: sp.Expr) -> SphericalSgd:
        return SphericalSgd(
            student=student.fields, teacher=Z[:2], teacher_of=((0, 0), (1, 0)), mixing=student.mixing, overlaps=(m,),
            gram=sp.ImmutableDenseMatrix([[1]]), positions=sp.ImmutableDenseMatrix([[0], [0]]),
            loss=HALF_SQUARE(student.output[0], target), learning_rate=gamma,
            cross=cross_terms(HALF_SQUARE, student.output, (target,)),
        )  # fmt: skip

    kappa_1 = 0.0996867747123848
    both = h(2, z1) + h(2, z2)
    found = exponent(problem(both), both, 2)
    assert (found.value, found.trapped) == (2, Trapped.NO)
    (leading,) = found.leading
    assert value(leading.value, width=0.6) == pytest.approx(2 * kappa_1 / np.sqrt(2), rel=1e-10)  # kappa: 15 digits
    assert exponent(problem(z1 * z2), z1 * z2, 2).trapped is Trapped.YES
    assert exponent(problem(-z1 * z2), -z1 * z2, 2).trapped is Trapped.NO
    for blind in (z1, z1 - z2, h(2, z1) - h(2, z2), h(3, z1) + h(3, z2)):
        assert exponent(problem(blind), blind, 2).value == INFINITE


def test_attention_learns_attention() -> None:
    target = tuple(attention(sp.ImmutableDenseMatrix([z1, z2])))
    found = pair_exponent(attention_pair(target, positional=False), 4, numerically)
    assert (found.value, found.trapped) == (2, Trapped.NO)


def test_a_risk_without_overlaps_is_infinite() -> None:
    found = pair_exponent(tied(2, sp.tanh(u), z1 * z2), 4, decide_symbolically)
    assert (found.value, found.certificate, found.trapped) == (sp.oo, Certificate.EXACT, Trapped.YES)


def test_no_infinity_without_a_proof() -> None:
    # all coefficients up to the order vanish, the target is no polynomial
    found = pair_exponent(tied(1, He(8, u), sp.cos(z1)), 4, numerically)
    assert (found.value, found.certificate) == (None, Certificate.UNDECIDED)


def test_a_landmark_of_another_norm() -> None:
    # z ~ N(0, 2): z^3 - 6 z is orthogonal to z, although He_3(z) is not
    target = z1**3 - 6 * z1
    problem = landmarks(sp.tanh(u), target, sp.Matrix([[2]]))
    assert problem.form(1) == {}
    assert exponent(problem, target, 1).value == 3


# ---- trapping with symbols ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "trapped"),
    [
        (p * h(2, z1), Trapped.NO),
        (-p * h(2, z1), Trapped.YES),
        (a * h(2, z1), Trapped.UNKNOWN),
        (a * z1 * z2, Trapped.NO),
        (p * (-h(2, z1) - h(2, z2)), Trapped.YES),
    ],
    ids=str,
)
def test_traps_with_parameters(target: sp.Expr, trapped: Trapped) -> None:
    found = pair_exponent(untied(2, relu(u), target), 4, decide_symbolically, 2)
    assert (found.value, found.trapped) == (2, trapped)


def test_odd_exponents_need_a_sign() -> None:
    assert exponent(tied(1, h(3, u), h(3, z1)), h(3, z1), 1).trapped is Trapped.DEPENDS_ON_START
    assert exponent(tied(1, h(3, u), -h(3, z1)), h(3, z1), 1).trapped is Trapped.DEPENDS_ON_START


# ---- decisions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "sign"),
    [
        (sp.S.Zero, Sign.ZERO),
        (sp.sqrt(6) - sp.sqrt(2) * sp.sqrt(3), Sign.ZERO),
        (1 / (1 + sp.sqrt(2)) - sp.sqrt(2) + 1, Sign.ZERO),
        (R(1, 10**30), Sign.POSITIVE),
        (sp.sqrt(2) - R(141421356237309504880168872420969808, 10**35), Sign.NEGATIVE),
        (sp.sqrt(2) - R(141421356237309504880168872420969807, 10**35), Sign.POSITIVE),
        (1 / sp.sqrt(2 * sp.pi) - R(2, 5), Sign.NEGATIVE),
        (Phi(R(1, 3)) - R(1, 2), Sign.POSITIVE),
        (p + p**2, Sign.POSITIVE),
        (-p / sp.sqrt(sp.pi), Sign.NEGATIVE),
        (a, Sign.NONZERO),
        (a**2 - 1, Sign.NONZERO),
        (a - a, Sign.ZERO),
        ((1 + a) ** 2 - 1 - 2 * a - a**2, Sign.ZERO),
        (Expectation(sp.tanh(x) ** 2, [x], standard_normal()), Sign.UNDECIDED),
    ],
    ids=str,
)
def test_decisions(number: sp.Expr, sign: Sign) -> None:
    decision = decide_symbolically(number)
    assert decision.sign is sign
    assert (decision.certificate is Certificate.UNDECIDED) == (sign is Sign.UNDECIDED)


@pytest.mark.parametrize(
    "zero",
    [
        a * (sp.sqrt(3 + 2 * sp.sqrt(2)) - 1 - sp.sqrt(2)),
        sp.sin(a) ** 2 + sp.cos(a) ** 2 - 1,
        Phi(a) + Phi(-a) - 1,
        sp.asin(a) + sp.acos(a) - sp.pi / 2,
        (1 + sp.sqrt(p)) ** 2 - 1 - 2 * sp.sqrt(p) - p,
        (1 + sp.sqrt(sp.pi)) ** 2 - 1 - 2 * sp.sqrt(sp.pi) - sp.pi,
        (sp.exp(a) + 1) ** 2 - sp.exp(2 * a) - 2 * sp.exp(a) - 1,
        sp.sqrt(3 + 2 * sp.sqrt(2)) - 1 - sp.sqrt(2),
    ],
    ids=str,
)
def test_a_hidden_zero_is_never_certified_to_be_nonzero(zero: sp.Expr) -> None:
    assert abs(zero.subs({a: R(3, 7), p: R(3, 7)}).evalf(30)) < 1e-25  # the premise
    decision = decide_symbolically(zero)
    assert decision.sign in (Sign.ZERO, Sign.UNDECIDED)


# ---- what follows from an exponent -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value_", "trapped", "law"),
    [
        (1, Trapped.NO, "d"),
        (2, Trapped.NO, "d log d"),
        (3, Trapped.DEPENDS_ON_START, "d^(k-1)"),
        (4, Trapped.NO, "d^(k-1)"),
        (2, Trapped.YES, "never"),
        (4, Trapped.YES, "never"),
        (sp.oo, Trapped.YES, "never"),
        (None, Trapped.UNKNOWN, "unknown"),
    ],
)
def test_sample_complexity(value_: object, trapped: Trapped, law: str) -> None:
    found = sample_complexity(Exponent(value_, Certificate.EXACT, "", 8, (), trapped))  # type: ignore[arg-type]
    assert found[0] == law
    assert ("sign" in found[1]) == (trapped is Trapped.DEPENDS_ON_START)
    if value_ == 4 and trapped is Trapped.NO:
        assert "d^3" in found[1]


DIMENSION = sp.Symbol("d", positive=True)


def _law(target: sp.Expr, student: sp.Expr, k: int, initial: sp.Expr, random_start: bool = False) -> dict[str, float]:
    problem = tied(1, student, target)
    parameters = (Quantity(gamma, "learning rate"), Quantity(DIMENSION, "dimension"))
    system = escape_laws(problem, k, DIMENSION, initial, parameters, random_start)
    assert system is not None
    known: dict[sp.Symbol, sp.Expr] = {gamma: R(1, 100), DIMENSION: sp.S(1000), system.symbol("threshold"): R(1, 10)}
    for block in system.blocks():
        for equation in block.equations:
            known[equation.unknown.symbol] = equation.rhs.xreplace(known).evalf(20)
    return {s.name: float(v) for s, v in known.items()}


@pytest.mark.parametrize(
    ("target", "student", "k"),
    [(z1, relu(u), 1), (-z1, relu(u), 1), (h(2, z1), relu(u), 2), (h(3, z1), h(3, u), 3), (-h(4, z1), relu(u), 4)],
    ids=str,
)
def test_escape_time_is_that_of_the_flow(target: sp.Expr, student: sp.Expr, k: int) -> None:
    # dr/dtau = k G r^(k-1) - gamma V0 r / 2 [k = 2], integrated in small steps from the start to the threshold
    start = R(1, 50)
    found = _law(target, student, k, start)
    problem = tied(1, student, target)
    strength = abs(float(sp.N(problem.form(k)[(k,)])))
    assert found["G"] == pytest.approx(strength, rel=1e-12)  # exact
    v0 = float(sp.N(problem.gradient_norm.subs(m, 0)))
    assert found["V0"] == pytest.approx(v0, rel=1e-12)  # exact
    r, tau, step = float(start), 0.0, 1e-3
    rate = lambda s: k * strength * s ** (k - 1) - (0.01 * v0 * s / 2 if k == 2 else 0)
    while r < 0.1:
        middle = r + step * r / 2
        tau += step * r / rate(middle)  # the midpoint rule in r, steps of 0.1 per cent
        r += step * r
    assert found["steps_to_escape"] == pytest.approx(1000 * tau / 0.01, rel=2e-3)  # the last step overshoots


def test_a_random_start_adds_the_noise_of_the_first_steps() -> None:
    exact, noisy = (_law(h(2, z1), relu(u), 2, 1 / sp.sqrt(DIMENSION), kind) for kind in (False, True))
    ratio = (noisy["start_overlap"] / exact["start_overlap"]) ** 2
    assert ratio == pytest.approx(1 + 0.01 * noisy["S0"] / (2 * noisy["growth"]), rel=1e-12)  # exact
    assert noisy["learning_rate_max"] == pytest.approx(4 * noisy["G"] / noisy["V0"], rel=1e-12)  # exact


def test_the_noise_is_that_of_the_direction_of_escape() -> None:
    # h2(z2) is learned along mu2: S0 is the noise of mu2, not of mu1
    parameters = (Quantity(gamma, "learning rate"), Quantity(DIMENSION, "dimension"))
    s0 = []
    for target in (h(2, z1), h(2, z2)):
        system = escape_laws(untied(2, relu(u), target), 2, 2 * DIMENSION, 1 / sp.sqrt(DIMENSION), parameters, True)
        assert system is not None
        s0.append(system.equation(system.symbol("S0")).rhs)
    assert s0[0] == s0[1]
