"""Proximal operators of several variables: against a global search, a quadratic's closed form, and differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import sympy as sp

from derive.functions import sigmoid
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorProx, VectorSlope
from solve.lower import lower
from solve.vector_proximal import vector_solver

u1, u2, u3, a, b = sp.symbols("u1 u2 u3 a b", real=True)
V, w1, w2 = sp.symbols("V w1 w2", real=True)
ATTENTION = sp.Lambda((u1, u2), 2 * (sigmoid(3 * u1) - a) ** 2 + 2 * (sigmoid(u1 - 2 * u2) - b) ** 2)
QUADRATIC = sp.Lambda((u1, u2), (u1 - u2) ** 2 + 3 * u2**2 + a * u1)


def objective(u: np.ndarray, V_: float, w: np.ndarray, labels: tuple[float, float]) -> float:
    p = 1 / (1 + np.exp(-np.array([3 * u[0], u[0] - 2 * u[1]])))
    return float(2 * ((p - np.array(labels)) ** 2).sum() + ((u - w) ** 2).sum() / (2 * V_))


@pytest.mark.parametrize("seed", range(6))
def test_the_least_of_the_minima(seed: int) -> None:
    """Against the best of sixteen searches by another method; the objective to 1e-8, its tolerance."""
    rng = np.random.default_rng(seed)
    labels = tuple(rng.uniform(0, 1, 2))
    step, w = 10 ** rng.uniform(-1, 1.5), rng.normal(0, 2, 2)
    target = np.log(labels[0] / (1 - labels[0])) / 3
    start = np.array([target, (target - np.log(labels[1] / (1 - labels[1]))) / 2])
    found = vector_solver(ATTENTION, 2)(step, *w, *w, *start, *labels)
    prox = np.array([float(found[0]), float(found[1])])
    starts = [w, start, *rng.normal(0, 3, (14, 2))]
    best = min(scipy.optimize.minimize(objective, s, (step, w, labels), tol=1e-12).fun for s in starts)
    assert objective(prox, step, w, labels) == pytest.approx(best, rel=1e-8, abs=1e-10)


def test_a_quadratic_in_closed_form() -> None:
    """u = (1 + V H)^-1 (w - V g), to rounding, with its loss, slope and curvature."""
    rng = np.random.default_rng(0)
    w, step, slope = rng.normal(size=(2, 50)), rng.uniform(0.1, 5, 50), rng.normal(size=50)
    found = np.array(vector_solver(QUADRATIC, 1)(step, *w, *w, slope))
    hessian = np.array([[2.0, -2.0], [-2.0, 8.0]])
    for i in range(50):
        inverse = np.linalg.inv(np.eye(2) + step[i] * hessian)
        prox = inverse @ (w[:, i] - step[i] * np.array([slope[i], 0.0]))
        expected = [*prox, None, *(w[:, i] - prox) / step[i], *(hessian @ inverse).ravel()]
        expected[2] = (prox[0] - prox[1]) ** 2 + 3 * prox[1] ** 2 + slope[i] * prox[0]
        assert found[:, i] == pytest.approx(np.array(expected, dtype=float), rel=1e-11, abs=1e-12)


def test_derivatives_of_the_nodes() -> None:
    """In V, w and a parameter of the point, against central differences of step 1e-5: good to 1e-8."""
    loss = sp.Lambda((u1, u2), ATTENTION.expr.subs({a: sp.Rational(7, 10), b: sp.Rational(1, 5)}))
    args = (loss, V, (w1, w1 * w2), ((w1, w1 * w2), (0, 0)))
    nodes = [
        VectorMoreau(*args),
        VectorProx(*args, 0),
        VectorProx(*args, 1),
        VectorSlope(*args, 0),
        VectorSlope(*args, 1),
    ]
    at = {V: 0.8, w1: 0.4, w2: -1.3}
    for s in at:
        values = lower([*(n.diff(s) for n in nodes)], [V, w1, w2])(*at.values())[0]
        ends = [lower(nodes, [V, w1, w2])(*{**at, s: at[s] + h}.values())[0] for h in (1e-5, -1e-5)]
        assert values == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-7, abs=1e-8)


def test_symmetric_curvature_and_its_missing_rule() -> None:
    args = (ATTENTION, V, (w1, w2), ((w1, w2),))
    one, other = VectorCurvature(*args, 0, 1), VectorCurvature(*args, 1, 0)
    values = lower([one, other], [V, w1, w2, a, b])(0.7, 0.1, 0.5, 0.3, 0.9)[0]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    with pytest.raises(NotImplementedError):
        one.diff(V)
    with pytest.raises(NotImplementedError, match="parameter of the loss"):
        VectorSlope(*args, 0).diff(a)
    assert one.diff(sp.Symbol("elsewhere")) == 0


def test_what_has_no_minimum_is_nan() -> None:
    solver = vector_solver(QUADRATIC, 1)
    assert np.isnan(solver(-1.0, 0.0, 0.0, 0.0, 0.0, 0.0)[0])
    assert np.isnan(solver(1.0, np.inf, 0.0, 0.0, 0.0, 0.0)[0])
    assert np.isfinite(solver(np.array([1.0, -1.0]), 0.0, 0.0, 0.0, 0.0, 0.0)[0]).tolist() == [True, False]


def test_three_variables() -> None:
    """A separable quadratic in three: each coordinate alone."""
    loss = sp.Lambda((u1, u2, u3), u1**2 + 2 * u2**2 + 3 * u3**2)
    found = vector_solver(loss, 1)(0.5, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    assert [float(v) for v in found[:3]] == pytest.approx([1 / 2, 1 / 3, 1 / 4], rel=1e-13)


def test_nodes_check_themselves() -> None:
    with pytest.raises(ValueError, match="starts"):
        VectorMoreau(ATTENTION, V, (w1, w2), ())
    with pytest.raises(ValueError, match="indices"):
        VectorProx(ATTENTION, V, (w1, w2), ((0, 0),), 2)
    with pytest.raises(ValueError, match="numbers each"):
        VectorMoreau(ATTENTION, V, (w1,), ((0, 0),))
