from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb, ctx

from derive.decision import Certificate, Decision, Sign
from derive.expectation import Expectation
from derive.functions import He, Phi, orthonormal, relu, sigmoid, softmax
from derive.measures import Gaussian, standard_normal
from solve.certified_root import root
from solve.certify import decide, enclose
from solve.decimals import outward
from solve.enclosure import evaluate_ball
from solve.straightline import NotEnclosed

x = sp.Symbol("x", real=True)
z = sp.symbols("z1:6", real=True)
R = sp.Rational


def expect(f: sp.Expr, dim: int = 1, cov: object = None) -> sp.Expr:
    return Expectation(f, z[:dim], Gaussian([0] * dim, cov) if cov else standard_normal(dim))


def trace_target(length: int) -> sp.Expr:
    rows = sp.Matrix(length, length, lambda i, j: z[i] * z[j])
    return sp.trace(softmax(rows)) / sp.sqrt(length)


def exact(number: arb) -> mpmath.mpf:
    mantissa, exponent = number.man_exp()
    return mpmath.mpf(int(mantissa)) * mpmath.mpf(2) ** int(exponent)


def holds(ball: arb, value: mpmath.mpf, digits: int) -> bool:
    """The ball holds a value that is known to `digits` digits, and is no wider than that."""
    with mpmath.workdps(60):
        middle, radius, slack = exact(ball.mid()), exact(ball.rad()), mpmath.mpf(10) ** -digits
        return bool(abs(middle - value) <= radius + slack and radius < 2 * slack)


def inside(decision: Decision, value: float, error: float) -> bool:
    assert decision.interval is not None
    low, high = map(float, decision.interval)
    return low - error <= value <= high + error


def tanh_square() -> mpmath.mpf:
    """E tanh(z)^2 to the working precision."""
    return mpmath.quad(lambda t: mpmath.tanh(t) ** 2 * mpmath.npdf(t), range(-16, 17, 4))


def trapezoid(f, dim: int, step: float, cov: object = None) -> float:
    """E f by the trapezoid rule on [-9, 9]^dim, in float64."""
    grid = np.arange(-9, 9 + step / 2, step)
    weight = np.exp(-(grid**2) / 2) * step / np.sqrt(2 * np.pi)
    points = np.meshgrid(*[grid] * dim, indexing="ij")
    if cov is not None:
        points = list(np.einsum("ij,j...->i...", np.linalg.cholesky(np.array(cov, float)), np.array(points)))
    total = f(*points)
    for _ in range(dim):
        total = total @ weight
    return float(total)


# ----------------------------------------------------------------------------- decisions


@pytest.mark.parametrize("length", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_signs_of_the_trace_of_attention(length):
    def attention(*t):
        diagonal = (1 / sum(np.exp(t[i] * (t[j] - t[i])) for j in range(length)) for i in range(length))
        return sum(diagonal) / np.sqrt(length)

    tests = {
        "h2": (orthonormal(2, sum(z[:length]) / sp.sqrt(length)), Sign.NEGATIVE),
        "c20": (orthonormal(2, z[0]), Sign.POSITIVE),
        "c11": (z[0] * z[1], Sign.NEGATIVE),
    }
    for weight, sign in tests.values():
        decision = decide(expect(trace_target(length) * weight, length))
        assert (decision.sign, decision.certificate) == (sign, Certificate.ENCLOSURE)
        if length <= 3:
            g = sp.lambdify(z[:length], weight.doit().replace(He, lambda n, t: t**2 - 1), "numpy")
            value = trapezoid(lambda *t, g=g: attention(*t) * g(*t), length, 0.25)
            assert inside(decision, value, 1e-5)  # of the trapezoid rule: strips as narrow as pi / (2 * 9)
            assert not inside(decision, 1.3 * value, 1e-5)  # the interval is of some use
    assert decide(expect(trace_target(length) * z[0], length)).sign is Sign.ZERO


@pytest.mark.slow
def test_five_variables_are_within_reach():
    decision = decide(expect(trace_target(5) * orthonormal(2, z[0]), 5))
    assert (decision.sign, decision.certificate) == (Sign.POSITIVE, Certificate.ENCLOSURE)


def test_an_exchange_of_variables_gives_an_exact_zero():
    s = softmax(sp.Matrix(3, 3, lambda i, j: z[i] * z[j]))
    decision = decide(expect((s[0, 0] - s[1, 1]) * (z[0] ** 2 + z[1] ** 2), 3))
    assert (decision.sign, decision.certificate) == (Sign.ZERO, Certificate.EXACT)


def test_a_tiny_number_is_told_from_zero():
    value = expect(sp.tanh(z[0]) ** 2)
    with mpmath.workdps(40):
        close = R(mpmath.nstr(tanh_square(), 34)) + R(1, 10**25)
    decision = decide(value - close)
    assert decision.sign is Sign.NEGATIVE
    assert inside(decision, -1e-25, 1e-31)  # the reference has 33 digits


def test_a_zero_that_algebra_does_not_see_is_undecided():
    # Stein's lemma: E tanh'(x) = E x tanh(x)
    decision = decide(expect(1 - sp.tanh(z[0]) ** 2 - z[0] * sp.tanh(z[0])))
    assert (decision.sign, decision.certificate) == (Sign.UNDECIDED, Certificate.UNDECIDED)
    assert inside(decision, 0, 0)
    closed = decide(sp.asin(R(3, 5)) + sp.asin(R(4, 5)) - sp.pi / 2)
    assert closed.sign is Sign.UNDECIDED
    assert inside(closed, 0, 0)


def test_nonzero_factors_do_not_matter():
    c, p = sp.Symbol("sigma2", real=True, nonzero=True), sp.Symbol("p", positive=True)
    value = expect(sp.tanh(z[0]) ** 2)
    assert decide(c * (value - R(1, 3))).sign is Sign.NONZERO
    assert decide(p * (R(1, 3) - value)).sign is Sign.NEGATIVE
    assert decide(c * value - p).sign is Sign.NONZERO
    hidden = expect(1 - sp.tanh(z[0]) ** 2 - z[0] * sp.tanh(z[0]))
    assert decide(c * hidden).sign is Sign.UNDECIDED
    assert decide(c * hidden + p * hidden).sign is Sign.UNDECIDED


def test_parameters_inside_an_expectation_are_sampled():
    p = sp.Symbol("p", positive=True)
    decision = decide(expect(sp.tanh(p * z[0]) ** 2) - R(1, 9))
    assert decision.sign is Sign.NONZERO
    assert "p = 3/7" in decision.reason


def test_beyond_the_budget_there_is_an_estimate_that_says_what_it_is():
    value = expect(trace_target(3) * orthonormal(2, z[0]), 3)
    decision = decide(value, budget=100)
    assert (decision.sign, decision.interval) == (Sign.UNDECIDED, None)
    assert "no proof" in decision.reason
    number = float(decision.reason.split("numerically ")[1].split(" ")[0])
    low, high = map(float, decide(value).interval)
    assert low < number < high


# ----------------------------------------------------------------------------- digits and roots


@pytest.mark.parametrize("scale", [1, 10**9, R(1, 10**9), -1])
def test_enclose_gives_the_digits_asked_for(scale):
    with mpmath.workdps(40):
        value = tanh_square() * R(scale).p / R(scale).q
        low, high = (mpmath.mpf(e) for e in enclose(scale * expect(sp.tanh(z[0]) ** 2), 20))
        assert low <= value <= high
        assert high - low <= abs(value) * mpmath.mpf(10) ** -18  # two units of the 20th digit


@pytest.mark.parametrize("middle", ["0", "1", "-999.9996", "123456789.25", "3e-9", "-7.25e-31", "1e40"])
@pytest.mark.parametrize("radius", [0, 1e-7])
def test_decimals_are_rounded_outwards(middle, radius):
    with ctx.workprec(200):
        ball = arb(middle) + arb(0, radius)
        pairs = [e.man_exp() for e in (ball.mid(), ball.rad())]
    centre, width = (Fraction(int(m)) * Fraction(2) ** int(e) for m, e in pairs)
    low, high = (Fraction(t) for t in outward(ball, 6))
    assert low <= centre - width <= centre + width <= high
    assert high - low <= 2 * width + 2 * max(abs(low), abs(high)) / 10**5  # two units of the 6th digit


def test_the_separability_threshold_of_logistic_regression():
    # h = min_t E (t v - g)_+^2 with v of density 2 phi(v) sigmoid(2 v): 35 digits of reference
    t = sp.Symbol("t", real=True)
    a = t * x
    square = (1 + a**2) * Phi(a) + a * sp.exp(-(a**2) / 2) / sp.sqrt(2 * sp.pi)
    h = 2 * Expectation(sigmoid(2 * x) * square, [x], standard_normal())
    at = root(h.diff(t), -2, R(-1, 10), 35)
    assert at.interval(33) == ("-0.780888064778711107367359686441328", "-0.780888064778711107367359686441327")
    with mpmath.workdps(40):
        reference = mpmath.mpf("0.34493012840404902578704648011860300")
        assert holds(evaluate_ball(h, 120, {t: at.ball}), reference, 34)  # the reference has 35 digits


def test_a_root_is_proved_to_be_the_only_one():
    assert root(x**3 - 2, 0, 3, 40).interval(30)[0] == "1.25992104989487316476721060727"
    k = sp.Symbol("k", real=True)
    mean = Expectation(relu(x - k), [x], standard_normal()) - R(1, 10)
    with mpmath.workdps(25):
        value = mpmath.findroot(lambda t: mpmath.npdf(t) - t * mpmath.ncdf(-t) - mpmath.mpf(1) / 10, 0.9)
        low, high = (mpmath.mpf(e) for e in root(mean, 0, 3, 20).interval(20))
        assert low <= value <= high


@pytest.mark.parametrize(("f", "count"), [(x**2 - 2, 2), (x**2 + 1, 0), (sp.exp(x) - 100, 0)])
def test_no_root_or_several_are_refused(f, count):
    with pytest.raises(ValueError, match=f"{count} roots"):
        root(f, -2, 3, 10)


def test_a_double_root_is_not_certified():
    with pytest.raises(NotEnclosed, match="both near zero"):
        root(x**2, -1, 1, 10)
    with pytest.raises(ValueError, match="one free symbol"):
        root(x - z[0], -1, 1, 10)
