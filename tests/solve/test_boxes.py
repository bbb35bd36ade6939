from __future__ import annotations

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import acb, arb, ctx

from derive.functions import LogCosh, Phi, SoftmaxEntry
from solve.balls import Balls, constant_ball
from solve.boxes import BoxBounds
from solve.growth import Growth, GrowthBounds, box_radius
from solve.rectangles import Rectangle
from solve.straightline import compile_program

x, y = X = sp.symbols("x y", real=True)
R = sp.Rational
INTEGRANDS = [
    (x - 2 * y + 1) ** 3 * (x + R(1, 3)),
    sp.tanh(x * (x - y)),
    sp.tanh(3 * x) ** 2 * sp.tanh(y - 1),
    LogCosh(x + y**2),
    SoftmaxEntry(x**2, x * y, y - 1) * (x**2 - 1),
    Phi(2 * x - y) * sp.sin(3 * y),
    sp.exp(-(x**2) + y / 2) * sp.cos(x),
    1 / (2 + x**2 + y**2),
    sp.sqrt(1 + x**2 + y**2) * sp.log(3 + x**2 + 2 * y**2 + sp.sin(x * y)),
    (3 + sp.tanh(x + y)) ** R(-3, 2),
    sp.Heaviside(x - R(1, 3)) * sp.tanh(y) + y,
]
IDS = [str(f)[:40] for f in INTEGRANDS]
BOXES = 400


def bounds(f, centre, radius, height):
    program = compile_program(f, X)
    arithmetic = BoxBounds(radius, height)
    constants = [arithmetic.constant(constant_ball(c)) for c in program.constants]
    with np.errstate(all="ignore"):
        value = program.run(arithmetic, [arithmetic.variable(i, centre[i]) for i in range(2)], constants)
        return value if isinstance(value, Rectangle) else value.rectangle


def value_at(f, *point):
    program = compile_program(f, X)
    with ctx.workprec(100):
        constants = [acb(constant_ball(c)) for c in program.constants]
        return complex(program.run(Balls(), [acb(*map(float, (p.real, p.imag))) for p in point], constants))


@pytest.mark.parametrize("imaginary", [0, 1])
@pytest.mark.parametrize("f", INTEGRANDS, ids=IDS)
def test_values_in_a_box_are_within_its_bounds(f, imaginary):
    rng = np.random.default_rng(1)
    centre = rng.normal(size=(2, BOXES)) * 2
    radius = rng.choice([0, 1e-3, 0.1, 0.5, 2.0], size=(2, BOXES))
    height = imaginary * rng.choice([1e-3, 0.1, 0.6, 2.0], size=(2, BOXES)) * np.array([[1], [0]])
    found = bounds(f, centre, radius, height)
    finite = 0
    for k in range(BOXES):
        corner = [rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=2) for _ in range(2)]
        point = centre[:, k] + radius[:, k] * corner[0] + 1j * height[:, k] * corner[1]
        if not np.isfinite(found.modulus[k] + np.zeros(1))[0]:
            continue
        finite += 1
        value = value_at(f, *point)
        slack = 1e-13 * (1 + abs(value))  # of the complex number that the ball was turned into
        assert abs(value) <= found.modulus[k] + slack
        assert found.low[k] - slack <= value.real <= found.high[k] + slack
        assert abs(value.imag) <= found.height[k] + slack
    assert finite > BOXES / 4  # the bounds exist often enough to mean something


@pytest.mark.parametrize("f", [f for f in INTEGRANDS if not f.has(sp.sin, sp.cos, Phi)], ids=str)
def test_bounds_are_sharp_to_first_order_on_small_boxes(f):
    rng = np.random.default_rng(2)
    centre = rng.uniform(-2, 2, size=(2, 50))
    small = np.full((2, 50), 1e-6)
    found = bounds(f, centre, small, 0 * small)
    values = np.array([value_at(f, *c).real for c in (centre + 0j).T])
    assert np.all(found.high - found.low <= 1e-6 * 8000)  # the sum of the slopes on [-2, 2]^2 is below 4000
    assert np.all((found.low <= values) & (values <= found.high))


def test_a_pole_or_a_jump_in_the_box_has_no_bound():
    centre, radius = np.zeros((2, 1)), np.full((2, 1), 0.1)
    high = np.array([[1.6], [0]])  # beyond i pi/2
    for f in (sp.tanh(x), LogCosh(x), 1 / x, sp.log(x), sp.Heaviside(x) + 1, SoftmaxEntry(2 * x, 0, y)):
        assert not np.isfinite(bounds(f, centre, radius, high).modulus[0]), f


@pytest.mark.parametrize("f", INTEGRANDS, ids=IDS)
def test_growth_bounds_hold_everywhere(f):
    program = compile_program(f, X)
    arithmetic = GrowthBounds(2)
    growth = program.run(
        arithmetic,
        [arithmetic.variable(i) for i in range(2)],
        [arithmetic.constant(constant_ball(c)) for c in program.constants],
    )
    rng = np.random.default_rng(3)
    for point in rng.normal(size=(200, 2)) * rng.choice([0.1, 1, 6], size=(200, 1)):
        value = value_at(f, *(point + 0j)).real
        size = sum(c * np.prod(np.abs(point) ** p) for p, c in growth.powers.items())
        assert abs(value) <= size * np.exp(np.dot(growth.rate, np.abs(point))) * (1 + 1e-12)  # rounding
        assert growth.low - 1e-12 <= value <= growth.high + 1e-12  # rounding


@pytest.mark.parametrize(("power", "rate"), [(0, 0.0), (3, 0.0), (3, 0.5), (1, 2.0)])
def test_what_a_box_leaves_out_is_bounded(power, rate):
    radius, bound = box_radius(Growth({(power,): 1.0}, (rate,)), arb("1e-6"))
    with mpmath.workdps(20):
        exact = 2 * mpmath.quad(
            lambda t: t**power * mpmath.exp(rate * t) * mpmath.npdf(t), [radius, radius + 3, radius + 20]
        )
    assert exact <= float(bound) < 1.01 * exact  # it is exact for one variable
    assert float(bound) < 1e-6
