"""Mehler series of correlated pairs: against exact algebra, direct quadrature, and one side alone at |overlap| = 1."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.expectation import Expectation
from derive.functions import relu, sigmoid
from derive.measures import Gaussian
from solve.hermite_series import Frames, frames
from solve.lower import Lowered, lower
from solve.mehler import Channels, Terms, tabulate
from solve.nodes import gauss_hermite, trapezoid
from solve.pairs import PairGroup, separation_in_pairs
from solve.quadrature import Accuracy
from solve.separation import separate

Z = z1, z2, z3, z4 = sp.symbols("z1:5", real=True)
m, e, a, w = sp.symbols("m e a w", real=True)
half, third = sp.S.Half, sp.Rational(1, 3)
SERIES = 1e-10  # the default relative accuracy of `lower`


def attended(s: Any, t: Any) -> Any:
    """First entry of a row of softmax attention."""
    return sigmoid(s * (s - t))


def pair_law(cross: Any = None, left: Any = None, right: Any = None, mean: Any = (e, -e, 0, 0)) -> Gaussian:
    left, right = sp.Matrix(left or sp.eye(2)), sp.Matrix(right or sp.eye(2))
    cross = sp.Matrix(cross or m * sp.eye(2))
    return Gaussian(mean, sp.Matrix(sp.BlockMatrix([[left, cross], [cross.T, right]])))


LOSS = Expectation(attended(z1, z2) * attended(z3, z4), Z, pair_law())


@functools.cache
def loss() -> Lowered:
    return lower([LOSS], [m, e])


def lowered_to_pairs(*expressions: sp.Expr, arguments: tuple[sp.Symbol, ...]) -> Lowered:
    found = lower(expressions, arguments)
    assert any(isinstance(g, PairGroup) for g in found.program.groups)
    return found


def integrated(f: Any, g: Any, rho: float, shift: float, nodes: int = 49) -> float:
    """E f(z + (shift, -shift)) g(z') by a product trapezoid rule in z and in z' given z."""
    t, weight = trapezoid(nodes, 8.0)
    x, y = t[:, None, None, None], t[None, :, None, None]
    u, v = t[None, None, :, None], t[None, None, None, :]
    c = math.sqrt(1 - rho * rho)
    values = f(x + shift, y - shift) * g(rho * x + c * u, rho * y + c * v)
    return float(functools.reduce(lambda total, _: total @ weight, range(4), values))


def numeric(s: Any, t: Any) -> Any:
    return 1 / (1 + np.exp(np.clip(-s * (s - t), -700, 700)))


# -------------------------------------------------------------------------- the loss of two tokens


@pytest.mark.parametrize(("rho", "shift"), [(0.4, 0.3), (-0.7, 0.9), (0.0, -0.5), (0.9, 0.0)])
def test_the_loss_of_two_tokens_against_four_dimensional_quadrature(rho: float, shift: float):
    (value,), (error,) = loss()(rho, shift)
    assert error < SERIES * value
    # 49 nodes a coordinate: the rule itself is good to 2e-8 here
    assert value == pytest.approx(integrated(numeric, numeric, rho, shift), abs=1e-7)


@pytest.mark.parametrize("sign", [1, -1])
def test_at_full_overlap_one_side_remains(sign: int):
    """z' = +-(z - mean), and a is even. The value: mpmath's numbers on trapezoids of spacing 1/10 and 1/14."""
    shift = 0.25
    (value,), (error,) = loss()(sign, shift)
    assert error < 1e-13
    assert value == pytest.approx(0.45819332890522623, abs=1e-14)  # rounding
    near, bound = loss()(sign * (1 - 1e-13), shift)
    assert abs(near[0] - value) < bound[0] + 1e-12  # the step in the overlap moves the value by less than 1e-12


def test_the_mean_of_a_coinciding_pair_is_the_mean_square():
    square = Expectation(attended(z1, z2) ** 2, Z[:2], Gaussian([0, 0], sp.eye(2)))
    (here, there), _ = lower([LOSS, square], [m, e])(1.0, 0.0)
    assert here == pytest.approx(there, abs=2e-13)  # the accuracy of the second one


def test_coefficients_fall_as_measured():
    """D_40 = 6e-8 and D_120 = 8e-12 at e = 0."""
    pair = [lambda x: [numeric(*x)]] * 2
    channels = Channels(*pair, np.ones((1, 1, 1)), np.zeros(2), np.zeros(2), np.zeros(2))
    terms = Terms(channels, Frames(np.eye(2), np.eye(2), np.ones(2), 1.0), 128, (296, 14.0))
    with np.errstate(all="ignore"):
        series = terms.at(0.0)[0][0]
    assert series[40] == pytest.approx(5.867681840e-8, rel=1e-6)  # from two other resolutions
    assert series[120] == pytest.approx(7.69441e-12, rel=1e-4)  # 1e-16 of rounding in E f
    assert series[0] == pytest.approx((1 - math.sqrt(2) / 4) ** 2, abs=1e-15)  # E a(z) = 1 - 1/(2 sqrt 2)


def test_overlaps_beyond_one_and_far_means():
    (value,), (error,) = loss()(np.array([1.2, np.nan, 0.3, 0.3]), np.array([0.0, 0.0, np.inf, 3.0]))
    assert np.isnan(value[:3]).all()
    assert np.isinf(error[:3]).all()
    assert value[3] == pytest.approx(integrated(numeric, numeric, 0.3, 3.0), abs=1e-7)  # of the reference
    assert error[3] < SERIES


def test_a_batch_equals_its_points():
    rng = np.random.default_rng(5)
    scattered = rng.uniform(-1, 1, (2, 40))
    (value,), _ = loss()(*scattered)
    grid = np.meshgrid([-1.0, -0.2, 1.0], [-0.3, 0.0, 0.8], indexing="ij")
    (on_grid,), _ = loss()(*grid)
    points = np.concatenate([scattered, np.reshape(grid, (2, -1))], axis=1)
    singly = [loss()(*p)[0][0] for p in points.T]
    assert np.concatenate([value, on_grid.ravel()]) == pytest.approx(singly, rel=1e-14)
    (broadcast,), _ = loss()(grid[0][:, :1], grid[1][0])
    assert broadcast == pytest.approx(on_grid, rel=1e-14)


def test_the_price_differentiated_loss_is_the_slope_of_the_loss():
    slopes = lowered_to_pairs(LOSS.diff(m), LOSS.diff(e), arguments=(m, e))
    h = 1e-3
    for at in ([0.3, 0.2], [-0.8, 0.5], [0.0, 0.0]):
        found, error = slopes(*at)
        assert (error < 1e-10).all()
        for i, slope in enumerate(found):
            step = h * np.eye(2)[i]
            near, far = (
                (loss()(*(at + k * step))[0][0] - loss()(*(at - k * step))[0][0]) / (2 * k * h) for k in (1, 2)
            )
            assert slope == pytest.approx((4 * near - far) / 3, abs=1e-9)  # of the differences: h^4 and 1e-12/h


# ----------------------------------------------------------------------------- exact algebra


def test_case_a15_a_product_of_four_by_wick():
    """E z1^2 z2 z3^2 z4 with Cov(z_left, z_right) = m K is Wick's sum over pairings."""
    law = pair_law(m * sp.Matrix([[half, third], [-third, half]]), [[1, third], [third, 1]], mean=[0, 0, 0, 0])
    product = (z1, z1, z2, z3, z3, z4)
    place = {z: i for i, z in enumerate(Z)}

    def wick(rest: tuple[sp.Symbol, ...]) -> Any:
        if not rest:
            return 1
        others = range(1, len(rest))
        return sum(law.cov[place[rest[0]], place[rest[i]]] * wick(rest[1:i] + rest[i + 1 :]) for i in others)

    value = by_tables(Expectation(sp.Mul(*product), Z, law), m, 0.7)
    assert value == pytest.approx(float(wick(product).subs(m, 0.7)), rel=1e-12)  # rounding of the rule


def by_tables(expectation: sp.Expr, overlap: sp.Symbol, rho: float) -> float:
    """By the tables alone, also where `lower` has a shorter way."""
    found = separate(expectation)
    assert found is not None
    return float(PairGroup((found,), (overlap,), (), Accuracy(), never)([rho]).value[0])


def never(*_: Any) -> Any:
    raise AssertionError("quadrature was asked for")


@settings(max_examples=20)
@given(
    st.lists(st.floats(-0.55, 0.55), min_size=4, max_size=4),
    st.floats(-0.9, 0.9),
    st.floats(-0.9, 0.9),
    st.floats(-1, 1),
)
def test_quadratic_exponentials_have_a_determinant(cross: list[float], r: float, q: float, rho: float):
    """E exp(-x.Ax/2 - y.By/2) = det(1 + S D)^(-1/2) for the joint covariance S and D = diag(A, B)."""
    left, right = np.array([[1, r], [r, 1]]), np.array([[1, q], [q, 2]])
    # scaled so that the joint covariance is positive for every |rho| <= 1
    block = np.reshape(cross, (2, 2)) * min(1, (1 - abs(r)) * (1 - abs(q)))
    law = frames(left, right, block)
    if law is None:
        return
    a, b = np.diag([0.3, 0.8]), np.diag([1.1, 0.2])
    channels = Channels(
        lambda x: [np.exp(-0.15 * x[0] ** 2 - 0.4 * x[1] ** 2)],
        lambda y: [np.exp(-0.55 * y[0] ** 2 - 0.1 * y[1] ** 2)],
        np.ones((1, 1, 1)),
        *np.zeros((3, 2)),
    )
    table = tabulate(channels, law, 1.0, 1e-11, 1e-13)
    (value,), (error,) = table.at(np.zeros(1), np.array([rho * law.scale]))
    joint = np.block([[left, rho * block], [rho * block.T, right]])
    weights = np.block([[a, np.zeros((2, 2))], [np.zeros((2, 2)), b]])
    right_value = np.linalg.det(np.eye(4) + joint @ weights) ** -0.5
    assert value[0] == pytest.approx(right_value, abs=error[0] + 1e-14)
    assert error[0] < 1e-9


def test_parameters_in_and_beside_the_factors():
    """Coefficients stay outside the tables; each value of a parameter of a factor has its own table."""
    f = (w * sp.tanh(a * z1 * z2) + (1 - w) * sigmoid(z1)) * sp.tanh(z3 + z4 / 3)
    together = lowered_to_pairs(Expectation(f, Z, pair_law()), arguments=(m, e, a, w))
    values = [np.array([0.3, -0.5, 0.8]), 0.4, np.array([0.5, 1.5, 0.5]), np.array([0.2, 0.7, 0.9])]
    (value,), (error,) = together(*values)
    assert (error < 1e-11).all()
    t, weight = trapezoid(300, 9.0)
    u, c = trapezoid(100, 9.0)
    x, y = t[:, None, None], t[None, :, None]
    for i in range(3):
        rho, shift, slope, part = (float(np.broadcast_to(v, 3)[i]) for v in values)
        left = part * np.tanh(slope * (x + shift) * (y - shift)) + (1 - part) / (1 + np.exp(-x - shift))
        right = np.tanh(rho * (x + y / 3) + math.sqrt((1 - rho**2) * 10 / 9) * u)  # of z3 + z4/3 given z1 and z2
        assert value[i] == pytest.approx(float(weight @ (weight @ ((left * right) @ c))), abs=1e-12)  # 240: 1e-13


@pytest.mark.parametrize("overlap", [0.45, -1.0])
def test_sides_of_different_dimension(overlap: float):
    """y = rho (3 x1 + 4 x2)/5 + ..., by Gauss-Hermite in the part of y that x does not determine."""
    cov = [[1, 0, 3 * m / 5], [0, 1, 4 * m / 5], [3 * m / 5, 4 * m / 5, 1]]
    f = Expectation(sp.tanh(z1 * z2 + z1) * sp.tanh(z3 + third), Z[:3], Gaussian([e, third, 0], cov))
    t, weight = trapezoid(160, 9.0)
    u, c = gauss_hermite(120)
    x, y = t[:, None, None], t[None, :, None]
    z = overlap * (0.6 * x + 0.8 * y) + math.sqrt(1 - overlap**2) * u
    values = np.tanh((x + 0.2) * (y + 1 / 3) + x + 0.2) * np.tanh(z + 1 / 3)
    for arguments, at in (((m, e), (overlap, 0.2)), ((e, m), (0.2, overlap))):
        (value,), (error,) = lowered_to_pairs(f, arguments=arguments)(*at)
        assert error < 1e-13
        assert value == pytest.approx(float(weight @ (weight @ (values @ c))), abs=1e-9)  # 120 Gauss-Hermite nodes


def test_a_general_law_against_sampling():
    """Correlated blocks, a cross-covariance with two different singular values, means on a slanted line."""
    left, right = sp.Matrix([[2, half], [half, 1]]), sp.Matrix([[1, third], [third, 1]])
    law = pair_law(sp.sin(m) * sp.Matrix([[half, third], [-third, half]]), left, right, [e + 1, -2 * e, third, 0])
    f = z1 * sp.tanh(z1 * z2) * sigmoid(z3 * z4 - z3) + half * sp.exp(-(z1**2) - z2**2) * sp.cos(z3 + z4)
    found, error = lowered_to_pairs(Expectation(f, Z, law), arguments=(m, e))(0.6, -0.5)
    assert error[0] < 1e-11
    mean, cov = (np.array(v.subs({m: 0.6, e: -0.5}).tolist(), dtype=float) for v in (sp.Matrix(law.mean), law.cov))
    rng = np.random.default_rng(11)
    x, y, u, v = rng.multivariate_normal(mean.ravel(), cov, 2_000_000).T
    samples = x * np.tanh(x * y) / (1 + np.exp(u - u * v)) + np.exp(-(x**2) - y**2) * np.cos(u + v) / 2
    stderr = samples.std() / math.sqrt(samples.size)
    assert stderr < 0.005 * abs(found[0])
    assert found[0] == pytest.approx(samples.mean(), abs=4 * stderr)  # 6e-5 false alarms


def test_three_tokens_a_side():
    """A product over coordinates is the product of three bivariate expectations 1/sqrt(4 - m^2)."""
    x = sp.symbols("x1:7", real=True)
    overlap = m * sp.eye(3)
    law = Gaussian([0] * 6, sp.Matrix(sp.BlockMatrix([[sp.eye(3), overlap], [overlap, sp.eye(3)]])))
    product = Expectation(sp.exp(-sp.Add(*(v**2 for v in x)) / 2), x, law)
    for rho in (0.6, -1.0):
        assert by_tables(product, m, rho) == pytest.approx((4 - rho**2) ** -1.5, rel=1e-10)  # the accuracy


# -------------------------------------------------------------------------------- structure


def test_the_sides_are_the_finest_split():
    found = separate(LOSS)
    assert found is not None
    assert (len(found.law.left), len(found.law.right)) == (2, 2)
    assert (found.law.overlap, found.law.shift, found.law.direction) == (m, e, sp.Tuple(1, -1))
    mirrored = separate(LOSS.subs(e, 0).subs(m, 2 * m))
    assert mirrored is not None
    assert mirrored.law.overlap == m
    assert mirrored.law.cross == 2 * sp.eye(2)


@pytest.mark.parametrize(
    ("integrand", "law"),
    [
        (relu(z1 * z2) * sp.tanh(z3 * z4), pair_law()),  # a kink
        (sp.tanh(z1 * z3) * sp.tanh(z2 * z4), pair_law()),  # does not separate
        (sp.tanh(z1 * z2) * sp.tanh(z3 * z4), pair_law(sp.diag(m, e), mean=[0] * 4)),  # two overlaps
        (sp.tanh(z1 * z2) * sp.tanh(z3 * z4), pair_law(mean=[e, a, 0, 0])),  # no line
        (sp.tanh(z1 * z2) * sp.tanh(z3 * z4), pair_law(mean=[e, 0, a, 0])),  # both means move
        (sp.tanh(z1 * z2) * sp.tanh(z3 * z4), pair_law(left=sp.diag(a**2, 1))),  # a variance moves
        (sp.tanh(z1 * z2) * sp.tanh(z3 * z4), pair_law(left=sp.ones(2, 2))),  # a singular block
        (sp.tanh(z1 * z2) * sp.tanh(z3 * z4), pair_law(half * sp.eye(2))),  # no parameter
    ],
)
def test_other_structures_are_left_to_quadrature(integrand: sp.Expr, law: Gaussian):
    assert separation_in_pairs(Expectation(integrand, Z, law)) is None


def test_slow_series_say_so():
    """tanh(8 x): the bound at an overlap near 1 is honest, and at the corner one side alone is exact again."""
    f = Expectation(sp.tanh(8 * z1) * sp.tanh(8 * z3), (z1, z3), Gaussian([0, 0], [[1, m], [m, 1]]))
    g = Expectation(sp.tanh(8 * z1) * sp.tanh(8 * z3) * sp.tanh(z4), (z1, z3, z4), slow_law())
    assert separation_in_pairs(f) is None
    found, error = lowered_to_pairs(g, arguments=(m,))(np.array([0.3, 0.6]))
    right = [lower([nested(rho)], [])()[0][0] for rho in (0.3, 0.6)]
    assert np.abs(found[0] - right) == pytest.approx(0, abs=1e-7)
    assert (np.abs(found[0] - right) <= error[0] + 1e-9).all()


def slow_law() -> Gaussian:
    return Gaussian([0, 0, half], [[1, m, m / 2], [m, 1, half], [m / 2, half, 1]])


def nested(rho: float) -> sp.Expr:
    """The same expectation at one overlap, which has no parameter and so goes to quadrature."""
    r = sp.Rational(str(rho))
    law = Gaussian([0, 0, half], slow_law().cov.subs(m, r))
    return Expectation(sp.tanh(8 * z1) * sp.tanh(8 * z3) * sp.tanh(z4), (z1, z3, z4), law)
