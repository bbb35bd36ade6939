"""Tables along one argument: the values of quadrature, where they serve, and quadrature itself, where not."""

import numpy as np
import pytest
import sympy as sp

from derive.expectation import Expectation
from derive.measures import Gaussian
from solve.curves import Curve
from solve.lower import lower
from solve.quadrature import Accuracy

x, y, t = sp.symbols("x y t", real=True)
ACCURACY = Accuracy(rtol=1e-10, atol=1e-13)


def lowered(integrand, mean):
    return lower([Expectation(integrand, (x, y), Gaussian(mean, sp.eye(2)))], [t], ACCURACY)


def by_trapezoid(f, shift, nodes=400):
    """An independent rule: a square of nodes on [-12, 12]^2."""
    u = np.linspace(-12, 12, nodes)
    a, b = np.meshgrid(u, u, indexing="ij")
    weight = np.exp(-(a**2 + b**2) / 2) / (2 * np.pi) * (u[1] - u[0]) ** 2
    return float((f(a + shift[0], b + shift[1]) * weight).sum())


@pytest.mark.parametrize("at", [-3.0, -1.0, 0.0, 0.37, 1.0, 8.0])
def test_values_of_a_table(at):
    found, error = lowered(sp.tanh(x * y) ** 2, [t, -t])(at)
    assert found[0] == pytest.approx(by_trapezoid(lambda a, b: np.tanh(a * b) ** 2, (at, -at)), abs=1e-10)
    assert error[0] <= 1e-9


def test_a_batch_is_its_points():
    f = lowered(sp.tanh(x * y) * x * y, [t, 0])
    grid = np.linspace(-1, 1, 7).reshape(7, 1)
    values, _ = f(grid)
    assert values.shape == (1, 7, 1)
    assert values[0, 3, 0] == f(0.0)[0][0]


def test_what_is_not_analytic_is_integrated():
    f = lowered(sp.tanh(x * y + sp.sqrt(t)) ** 2, [1, 1])
    assert any(isinstance(g, Curve) for g in f.program.groups)
    expected = by_trapezoid(lambda a, b: np.tanh(a * b + np.sqrt(0.5)) ** 2, (1, 1))
    assert f(0.5)[0][0] == pytest.approx(expected, abs=1e-10)


def test_what_is_far_away_is_integrated():
    f = lowered(sp.tanh(x * y) ** 2, [t, 0])
    expected = by_trapezoid(lambda a, b: np.tanh(a * b) ** 2, (9.0, 0.0), nodes=1600)
    assert f(9.0)[0][0] == pytest.approx(expected, abs=1e-8)  # tables end at 8.4; the referee's poles are at 0.17


def test_nan_stays_nan():
    found, error = lowered(sp.tanh(x * y) ** 2, [t, 0])(np.array([0.1, np.nan]))
    assert np.isfinite(found[0, 0])
    assert np.isnan(found[0, 1])
    assert error[0, 1] == np.inf
