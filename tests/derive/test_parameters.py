"""Parameters and polynomial directions out of expectations: equal values, nothing multiplied out."""

import numpy as np
import pytest
import sympy as sp

from derive.expectation import Expectation, expectations
from derive.functions import sigmoid
from derive.measures import Gaussian
from derive.rules import closed_form, compact
from derive.rules.glance import glance
from derive.rules.parameters import directions_out, parameters_out
from solve.lower import lower
from solve.quadrature import Accuracy

x, y, z = sp.symbols("x y z", real=True)
w, a, r = sp.symbols("w a r", real=True)


def value(e, at):
    symbols = sorted(at, key=str)
    (found,), _ = lower([e], symbols, Accuracy(rtol=1e-9))(*(float(at[s]) for s in symbols))
    return found


def test_a_polynomial_in_its_parameters():
    law = Gaussian([0, 0], sp.Matrix([[1, r], [r, 1]]))
    e = Expectation(((1 - w) * sp.tanh(x) + w * sigmoid(a**2) - sp.tanh(y)) ** 2, (x, y), law)
    found = parameters_out(e)
    assert not any({w, a} & inner.integrand.free_symbols for inner in expectations(found))
    at = {w: 0.3, a: 1.2, r: 0.4}
    assert value(found, at) == pytest.approx(value(e, at), rel=1e-8)  # two quadratures at 1e-9


@pytest.mark.parametrize(
    "integrand", [sp.tanh(w * x), sp.exp(x) / (w + x**2), sp.tanh(x)], ids=["inside", "denominator", "none"]
)
def test_what_is_no_polynomial_in_parameters_stays(integrand):
    assert parameters_out(Expectation(integrand, (x,), Gaussian([0], [[1]]))) is None


def test_a_polynomial_direction_is_integrated():
    """E[(y + w z)^2 tanh(x)^2] over three correlated variables is an expectation over x alone."""
    cov = sp.Matrix([[1, r, sp.Rational(1, 3)], [r, 1, 0], [sp.Rational(1, 3), 0, 2]])
    e = Expectation((y + w * z) ** 2 * sp.tanh(x) ** 2 + z, (x, y, z), Gaussian([0, 1, 0], cov))
    found = directions_out(e)
    assert len(found.variables) == 1
    rng = np.random.default_rng(3)
    c = np.array(cov.subs(r, 0.4), dtype=float)
    s = rng.multivariate_normal([0, 1, 0], c, 400_000)
    sample = (s[:, 1] + 0.7 * s[:, 2]) ** 2 * np.tanh(s[:, 0]) ** 2 + s[:, 2]
    error = sample.std() / np.sqrt(sample.size)
    assert value(found, {w: 0.7, r: 0.4}) == pytest.approx(sample.mean(), abs=5 * error)
    assert 5 * error < 0.03 * sample.mean()  # a wrong conditional variance is seen


def test_a_degenerate_law_is_left():
    law = Gaussian([0, 0, 0], sp.Matrix([[1, 1, 0], [1, 1, 0], [0, 0, 1]]))
    assert directions_out(Expectation(sp.tanh(x) * sp.tanh(y) * z, (x, y, z), law)) is None


def test_compact_changes_nothing_it_cannot_improve():
    e = Expectation(sp.tanh(x) ** 2, (x,), Gaussian([0], [[1]]))
    assert compact(e) == e


def test_a_glance_is_the_value_or_nothing():
    at = {x: 0.3, y: -1.1}
    for f in (sp.tanh(x) * y**3, sigmoid(x - y) + sp.exp(x), sp.Abs(y), sp.sqrt(2) * x):
        assert glance(f, at) == pytest.approx(float(f.subs(at).evalf()), rel=1e-13)  # rounding
    assert glance(sp.Function("f")(x), at) is None
    assert glance(sp.sqrt(y), at) is None
    assert glance(1 / (x - x**2 / x), at) is None


def test_tilting_closes_a_sigmoid_of_another_product():
    """E sigmoid(l1 l2), l1 = sqrt(2) x, l2 = sqrt(2) x + y + e: Var l1 Var l2 - Cov^2 = Cov, as in attention's own.

    The tilt by exp(-l1 l2) makes l1 and l2 independent, and this shift leaves one of them centred.
    """
    e = sp.Symbol("e", real=True)
    integrand = sigmoid(sp.sqrt(2) * x * (sp.sqrt(2) * x + y))
    for mean in ([0, 0], [e, e / sp.sqrt(2)]):
        node = Expectation(integrand, (x, y), Gaussian(mean, sp.eye(2)))
        found = closed_form(node)
        assert not found.has(Expectation)
        at = {e: 0.6} if mean[1] != 0 else {}
        assert float(found.subs(at)) == pytest.approx(value(node, at), abs=1e-8)  # quadrature at 1e-9
