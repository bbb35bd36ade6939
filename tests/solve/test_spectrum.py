"""The spectrum of sech^2 as a number, as a ball and as a bound, and integrals over it to many digits."""

import mpmath as mp
import numpy as np
import pytest
import sympy as sp
from flint import acb, arb, ctx

from derive.expectation import Expectation
from derive.functions import sigmoid
from derive.measures import Gaussian
from derive.rules import reduced
from derive.spectrum import SechSpectrum
from solve.balls import BallArrays, Balls
from solve.certify import enclose
from solve.elementary import compile_expressions
from solve.estimate import estimate
from solve.growth import GrowthBounds
from solve.lower import lower
from solve.quadrature import Accuracy

x, y, e = sp.symbols("x y e", real=True)
R = sp.Rational
POINTS = (0.0, 1e-9, -1e-3, 0.5, -1.0, 2.5, 9.0, -28.0, 40.0)


def exact(t):
    """rho(w) dw/dx over the normal density, w = x sqrt(x^2 + 4) / pi, at 40 digits."""
    t = mp.mpf(t)
    if t == 0:
        return 2 * mp.sqrt(2) / mp.pi**1.5
    w = t * mp.sqrt(t * t + 4) / mp.pi
    slope = (2 * t * t + 4) / (mp.pi * mp.sqrt(t * t + 4))
    return w / 2 / mp.sinh(mp.pi * w / 2) * slope * mp.sqrt(2 * mp.pi) * mp.exp(t * t / 2)


def test_the_values_at_any_point():
    (found,) = compile_expressions([SechSpectrum(x)], [x])(np.array(POINTS))
    with mp.workdps(40):
        wanted = np.array([float(exact(t)) for t in POINTS])
    assert found == pytest.approx(wanted, rel=4e-15, abs=0)  # a few roundings, at 0 and where exp overflows alike


def test_balls_hold_the_values():
    with ctx.workprec(120), mp.workdps(40):
        for t in POINTS:
            ball = Balls().apply(SechSpectrum, [acb(t)])
            assert abs(ball.imag) < arb(10) ** -28
            assert abs(mp.mpf(ball.real.mid().str(38, radius=False)) - exact(t)) < mp.mpf(10) ** -27 * exact(t)
            (entry,) = BallArrays().apply(SechSpectrum, [np.array([arb(t)], dtype=object)])
            assert (entry - ball.real).contains(0)


@pytest.mark.parametrize("radius", [0.01, 0.05, 0.1])
def test_a_wide_ball_holds_the_values_in_it(radius):
    with ctx.workprec(60), mp.workdps(30):
        for centre in (0.0, 0.3, -1.0, 4.0, 9.0):
            ball = Balls(True).apply(SechSpectrum, [acb(arb(centre, radius), arb(0, radius))])
            assert ball.is_finite()
            for direction in (1, -1, 1j, 0.7 + 0.7j):
                inside = mp.mpmathify(centre + 0.99 * radius * direction)
                w = inside * mp.sqrt(inside**2 + 4) / mp.pi
                slope = (2 * inside**2 + 4) / (mp.pi * mp.sqrt(inside**2 + 4))
                value = w / 2 / mp.sinh(mp.pi * w / 2) * slope * mp.sqrt(2 * mp.pi) * mp.exp(inside**2 / 2)
                assert ball.contains(acb(float(value.real), float(value.imag)))


def test_the_bound_at_infinity():
    bounds = GrowthBounds(1)
    growth = bounds.apply(SechSpectrum, [bounds.variable(0)])
    assert growth.low == 0
    assert not any(growth.rate)
    for t in (0.0, 0.2, 1.0, 5.0, 40.0):
        above = sum(c * t ** p[0] for p, c in growth.powers.items())
        assert float(exact(t)) <= above
    assert above < 1.02 * np.e * float(exact(40.0))  # of the right order: exp(-2 x / (s + x)) is bounded by 1, not 1/e


ENTRY = Expectation(sigmoid(x**2 - x * y) ** 2, (x, y), Gaussian([e, -e], sp.eye(2)))


@pytest.mark.parametrize("at", [0, R(1, 3), 1])
def test_digits_of_the_mean_square_of_attention(at):
    """N(e) = E softmax(s s^T)_11^2: 40 proved digits over one variable hold those over two, by mpmath."""
    low, high = enclose(ENTRY.xreplace({e: sp.S(at)}), 40)
    assert reduced(ENTRY).atoms(Expectation).pop().measure.dim == 1
    with mp.workdps(20):
        shift = mp.mpf(sp.S(at).p) / sp.S(at).q
        h = mp.mpf("0.08")
        nodes = [n * h for n in range(-110, 111)]
        entry = lambda s, t: 1 / (1 + mp.exp(-s * (s - t))) ** 2
        rows = (h * mp.npdf(s) * h * mp.npdf(t) * entry(s + shift, t - shift) for s in nodes for t in nodes)
        assert abs(mp.fsum(rows) - mp.mpf(low)) < mp.mpf(10) ** -15  # poles of the logistic function near the axis
    assert mp.mpf(high) - mp.mpf(low) < mp.mpf(10) ** -39


def test_the_value_over_one_variable_is_that_over_two():
    one, two = (lower([f], [e], Accuracy(rtol=1e-13, atol=1e-15)) for f in (reduced(ENTRY), ENTRY))
    at = np.linspace(-3, 3, 13)
    (found,), (error,) = one(at)
    assert found == pytest.approx(two(at)[0][0], rel=1e-12, abs=0)  # float64 sums
    assert (error <= 1e-13).all()


def test_an_estimate_knows_the_spectrum():
    value = lower([ENTRY], [e])(0.0)[0][0]
    assert estimate(reduced(ENTRY).xreplace({e: sp.S.Zero})).startswith(f"numerically {value:.3f}")


@pytest.mark.parametrize("scale", [R(1, 100), 10, 100])
def test_flat_and_steep_forms(scale):
    """tanh(c x y)^2 for c far from 1: (c x y)^2 is a constant, or nearly everywhere 1 but along the axes."""
    form = Expectation(sp.tanh(scale * x * y) ** 2, (x, y), Gaussian([0, 0], sp.eye(2)))
    (found,), (error,) = lower([reduced(form)], [])()
    assert error < 1e-12
    with mp.workdps(20):
        # x y has the density K_0(|u|) / pi
        density = lambda u: 2 * mp.besselk(0, u) / mp.pi
        c = mp.mpf(scale.p) / scale.q if isinstance(scale, sp.Rational) else mp.mpf(scale)
        wanted = mp.quad(lambda u: mp.tanh(c * u) ** 2 * density(u), [0, 1 / (10 * c), 1 / c, 5 / c, 1 + 20 / c, 60])
    assert found == pytest.approx(float(wanted), rel=1e-11, abs=1e-13)  # the rule's relative accuracy of 1e-10, met
