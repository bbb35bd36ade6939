"""The unevaluated expectation: identity up to bound names, and derivatives by Bonnet's and Price's theorems."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest
import sympy as sp

from derive.expectation import Expectation, expectations
from derive.functions import He, Phi, relu, sigmoid
from derive.measures import Gaussian, Measure, standard_normal
from derive.rules import closed_form, reduced
from derive.scope import bound_symbol
from tests.derive.truth import value, value_nested

x, y, w = sp.symbols("x y w", real=True)
m, mu, t = sp.symbols("m mu t", real=True)
v = sp.Symbol("v", positive=True)
STEP = sp.Heaviside


def pair(c: sp.Expr, v1: sp.Expr = sp.S.One, v2: sp.Expr = sp.S.One, mean: tuple[sp.Expr, ...] = (0, 0)) -> Gaussian:
    return Gaussian(mean, [[v1, c], [c, v2]])


# ---- the law -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "cov", "message"),
    [
        ([0, 0], [[1]], r"a mean of length 2 needs a covariance \(2, 2\), got \(1, 1\)"),
        ([0, 0], [[1, m], [t, 1]], "must be symmetric"),
        ([0, 0], [[1, 0], [0, -2]], "variance 2 is -2; variances must not be negative"),
    ],
)
def test_a_law_that_is_none_is_refused(mean: list[int], cov: list[list[sp.Expr]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gaussian(mean, cov)


def test_marginal_keeps_the_order_asked_for() -> None:
    law = Gaussian([1, 2, 3], [[4, m, 0], [m, 5, t], [0, t, 6]])
    assert law.marginal([2, 1]) == Gaussian([3, 2], [[6, t], [t, 5]])


# ---- identity ------------------------------------------------------------------------------------------------


def test_equal_up_to_bound_names() -> None:
    first = Expectation(sp.tanh(m + x) * relu(y), [x, y], pair(m))
    second = Expectation(sp.tanh(m + w) * relu(x), [w, x], pair(m))
    assert first == second
    assert hash(first) == hash(second)
    assert (first - second, first.free_symbols) == (0, {m})


def test_names_are_exchanged_at_once() -> None:
    one, two = bound_symbol(0, 0), bound_symbol(0, 1)
    found = Expectation(sp.tanh(two) * one**2, [two, one], pair(m))
    assert found == Expectation(sp.tanh(x) * y**2, [x, y], pair(m))
    assert found != Expectation(sp.tanh(y) * x**2, [x, y], pair(m))


def test_variables_that_are_not_used_are_dropped() -> None:
    law = Gaussian([1, mu, 2], [[3, 1, m], [1, 5, 0], [m, 0, v]])
    assert Expectation(sp.tanh(x + w), [x, y, w], law) == Expectation(
        sp.tanh(x + y), [x, y], Gaussian([1, 2], [[3, m], [m, v]])
    )
    assert Expectation(m * t, [x], standard_normal()) == m * t
    assert Expectation(0, [x], standard_normal()) is sp.S.Zero


def test_a_law_of_another_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2 variables for a law on R\^1"):
        Expectation(x + y, [x, y], standard_normal())


def test_nested_expectations_keep_their_variables_apart() -> None:
    inner = Expectation(sp.tanh(x + y), [x], standard_normal())
    outer = Expectation(inner * y, [y], standard_normal())
    assert outer.free_symbols == set()
    assert outer.integrand.free_symbols == set(outer.variables)
    other = Expectation(y * sp.tanh(w + y), [w], standard_normal())
    assert outer == Expectation(other, [y], standard_normal()) or outer.integrand.has(Expectation)
    moved = Expectation(Expectation(sp.tanh(w), [w], Gaussian([x], [[v]])), [x], standard_normal())
    assert moved.free_symbols == {v}
    assert expectations(outer + moved) == {outer, moved}


def test_an_outer_expectation_survives_the_loss_of_the_inner_one() -> None:
    nested = Expectation(Expectation(sp.tanh(x + m * y), [x], standard_normal()), [y], standard_normal())
    flat = Expectation(sp.tanh(x), [x], standard_normal())
    assert nested.subs(m, 0) == flat


def test_a_bound_variable_is_not_free() -> None:
    e = Expectation(sp.tanh(x + m), [x], standard_normal())
    bound = e.variables[0]
    assert e.xreplace({x: y}) == e
    assert e.subs(bound, 3) == e
    assert not e.has_free(bound)


def test_a_free_canonical_name_is_not_captured() -> None:
    # the integrand of a taken-apart expectation: its variable is free in it
    free = Expectation(sp.tanh(x), [x], standard_normal()).integrand
    (symbol,) = free.free_symbols
    e = Expectation(free * relu(y), [y], standard_normal())
    assert e.free_symbols == {symbol}
    assert closed_form(e) == free / sp.sqrt(2 * sp.pi)


def test_substitution_into_a_law_is_not_captured() -> None:
    e = Expectation(sp.tanh(x + m), [x], Gaussian([mu], [[1]]))
    (symbol,) = e.integrand.free_symbols - {m}
    assert e.subs({m: symbol}).free_symbols == {symbol, mu}


def test_pickling_keeps_equality() -> None:
    nested = Expectation(Expectation(relu(x + y), [x], Gaussian([y], [[v]])) * y, [y], pair(m).marginal([0]))
    flat = Expectation(He(2, x) * Phi(y) * sigmoid(t * x), [x, y], pair(m))
    for e in (nested, flat, nested + flat):
        assert pickle.loads(pickle.dumps(e)) == e


def test_pickling_survives_another_process() -> None:
    e = Expectation(sp.tanh(m + x) * relu(y) * He(3, x), [x, y], pair(m))
    script = (
        "import pickle, sys, sympy as sp\n"
        "from derive.expectation import Expectation\n"
        "from derive.functions import He, relu\n"
        "from derive.measures import Gaussian\n"
        "a, b, m = sp.symbols('a b m', real=True)\n"
        "e = Expectation(sp.tanh(m + b) * relu(a) * He(3, b), [b, a], Gaussian([0, 0], [[1, m], [m, 1]]))\n"
        "assert pickle.loads(bytes.fromhex(sys.argv[1])) == e\n"
        "sys.stdout.write(str(e))\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    found = subprocess.run(
        [sys.executable, "-c", script, pickle.dumps(e).hex()],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert found.stdout == str(e)


def test_real_integrands_give_real_numbers() -> None:
    assert Expectation(sp.tanh(x), [x], standard_normal()).is_real
    assert Expectation(sp.sqrt(x), [x], standard_normal()).is_real is None


# ---- derivatives ---------------------------------------------------------------------------------------------


def slope(f: Callable[[sp.Rational], float], at: sp.Rational) -> float:
    """f'(at) by the five-point rule at h = 1/1000: its error is h^4 f^(5) / 30 and 1e-15 / h, below 1e-10 here."""
    h = sp.Rational(1, 1000)
    return (8 * (f(at + h) - f(at - h)) - (f(at + 2 * h) - f(at - 2 * h))) / (12 * float(h))


AT = {m: sp.Rational(2, 5), mu: sp.Rational(3, 10), v: sp.Rational(9, 5), t: sp.Rational(1, 4)}

SMOOTH: Mapping[str, tuple[sp.Expr, sp.Symbol]] = {
    "mean": (Expectation(sp.tanh(x) ** 2, [x], Gaussian([mu], [[1]])), mu),
    "mean in two places": (Expectation(sp.tanh(x) * sp.sin(y), [x, y], pair(m, mean=(mu, mu**2))), mu),
    "variance": (Expectation(sp.tanh(x) ** 2 * x, [x], Gaussian([mu], [[v]])), v),
    "covariance": (Expectation(sp.tanh(x) * sp.tanh(y), [x, y], pair(m)), m),
    "covariance, general variances": (Expectation(sp.tanh(x) * y**3, [x, y], pair(m, v, 2)), m),
    "everywhere": (Expectation(sp.tanh(x + v) * sigmoid(y), [x, y], pair(v / 3, v, v**2, (v, 0))), v),
    "integrand": (Expectation(sp.tanh(t * x + m) ** 2, [x], standard_normal()), t),
    "exponential": (Expectation(sp.exp(-t * x**2 + m * x), [x], Gaussian([mu], [[v]])), m),
}
KINKED: Mapping[str, tuple[sp.Expr, sp.Symbol]] = {
    "relu, mean": (Expectation(relu(x) ** 2, [x], Gaussian([mu], [[v]])), mu),
    "relu, variance": (Expectation(relu(x - t), [x], Gaussian([mu], [[v]])), v),
    "abs, variance": (Expectation(sp.Abs(x - t), [x], Gaussian([mu], [[v]])), v),
    "step, mean": (Expectation(STEP(x - t), [x], Gaussian([mu], [[v]])), mu),
    "step, variance": (Expectation(STEP(x - t) * x, [x], Gaussian([mu], [[v]])), v),
    "step, threshold": (Expectation(STEP(x - t) * sp.tanh(x), [x], standard_normal()), t),
    "pair of relus": (Expectation(relu(x) * relu(y), [x, y], pair(m)), m),
    "pair of signs": (Expectation(sp.sign(x) * sp.sign(y), [x, y], pair(m)), m),
    "relu and tanh": (Expectation(relu(x - t) * sp.tanh(y), [x, y], pair(m)), m),
    "step and tanh": (Expectation(STEP(x - t) * sp.tanh(y), [x, y], pair(m)), m),
    "max": (Expectation(sp.Max(x, y), [x, y], pair(m, v, 1)), m),
    "slope of a relu": (Expectation(relu(t * x + m) * x, [x], standard_normal()), t),
}  # fmt: skip


@pytest.mark.parametrize("name", [*SMOOTH, *KINKED])
def test_derivative_is_the_slope(name: str) -> None:
    e, s = (SMOOTH | KINKED)[name]
    derivative = reduced(e.diff(s))
    assert not derivative.has(sp.DiracDelta, sp.Derivative)
    numerical = slope(lambda at: value(e, AT | {s: at}), AT[s])
    assert value(derivative, AT) == pytest.approx(numerical, rel=1e-8, abs=1e-9)  # the five-point rule's error


def test_second_derivative_of_a_pair_of_relus() -> None:
    e = Expectation(relu(x) * relu(y), [x, y], pair(m))
    second = closed_form(e.diff(m, 2))
    # d2/dm2 = density of the pair at zero
    assert sp.simplify(second - 1 / (2 * sp.pi * sp.sqrt(1 - m**2))) == 0


def test_derivative_in_a_symbol_that_does_not_occur() -> None:
    assert Expectation(sp.tanh(x + m), [x], standard_normal()).diff(t) == 0
    assert Expectation(sp.tanh(x + m), [x], standard_normal()).diff(x) == 0


@pytest.mark.parametrize(
    ("power", "integrand"),
    [
        ("cube of a step", STEP(x) ** 3),
        ("fourth power of a residual", (STEP(x) - sp.Rational(1, 3)) ** 4),
        ("cube of a sign", sp.sign(x) ** 3),
        ("product of steps", STEP(x) * STEP(2 * x) * STEP(3 * x)),
    ],
)
def test_derivative_of_powers_of_a_jump(power: str, integrand: sp.Expr) -> None:
    # f jumps by J at 0 and is constant elsewhere: dE f/dmu = J phi(mu)
    jump = integrand.subs(x, 1) - integrand.subs(x, -1)
    derivative = closed_form(Expectation(integrand, [x], Gaussian([mu], [[1]])).diff(mu))
    expected = jump * sp.exp(-(mu**2) / 2) / sp.sqrt(2 * sp.pi)
    assert value(derivative, AT) == pytest.approx(float(expected.subs(AT)), rel=1e-12), power  # closed forms


def test_derivative_of_a_nested_expectation() -> None:
    # E_y E_x tanh(x), x | y ~ N(m y, 1 - m^2), y ~ N(0, v): the same as x ~ N(0, 1 - m^2 + m^2 v)
    inner = Expectation(sp.tanh(x + mu), [x], Gaussian([m * y], [[1 - m**2]]))
    nested = Expectation(inner, [y], Gaussian([0], [[v]]))
    flat = Expectation(sp.tanh(x + mu), [x], Gaussian([0], [[1 - m**2 + m**2 * v]]))
    for s in (m, v, mu):
        found = value_nested(nested.diff(s), AT)
        assert found == pytest.approx(value(flat.diff(s), AT), rel=1e-10)  # trapezoid, exponentially accurate


class _Uniform(Measure):
    """A law with a parameter and no derivative rule."""

    @property
    def dim(self) -> int:
        return 1


def test_no_silent_derivative_of_other_laws() -> None:
    e = Expectation(sp.tanh(x), [x], _Uniform(m))
    with pytest.raises(NotImplementedError, match="No derivative rule for the parameters of _Uniform"):
        e.diff(m)
    assert closed_form(e) == e
    assert reduced(2 * e) == 2 * e
