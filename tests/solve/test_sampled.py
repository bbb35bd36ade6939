"""Expectations under laws of computed quantities: against closed forms, quadrature and brute-force sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import sympy as sp
from scipy.special import ndtr

from derive.expectation import Expectation
from derive.functions import Phi, SoftmaxEntry, softplus
from derive.measures import Gaussian, Pushforward, standard_normal
from derive.proximal import Moreau
from derive.table import Unsupported
from solve import sampled
from solve.lower import lower
from solve.measured import standard_error
from solve.quadrature import Accuracy

a, b, c, t, m, s, G, q, x, y = sp.symbols("a b c t m s G q x y", real=True)
rho = sp.Symbol("rho", positive=True)
z = sp.symbols("z1:11", real=True)
p = sp.symbols("p1:11", real=True)
SIGMAS = 5.0  # of t with 15 degrees of freedom: false alarms of 2e-4 each


def attention(kappa: Any, shift: Any, outputs: Sequence[sp.Symbol], more: Sequence[sp.Symbol] = ()) -> Pushforward:
    """t = p.g, m = p_1, s = |p| with p = softmax(kappa g), g = z + shift e_1, in ten tokens."""
    g = [z[0] + shift, *z[1:]]
    entries = [SoftmaxEntry(*(kappa * v for v in (g[k], *g[:k], *g[k + 1 :]))) for k in range(10)]
    quantities = [(t, sum(map(sp.Mul, p, g))), (m, p[0]), (s, sp.sqrt(sum(v**2 for v in p)))]
    inputs = (*z, *more)
    return Pushforward(standard_normal(len(inputs)), inputs, [*zip(p, entries, strict=True), *quantities], outputs)


def brute(kappa: float, shift: float, count: int = 400_000) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(1)
    g = rng.standard_normal((10, count))
    g[0] += shift
    w = np.exp(kappa * (g - g.max(axis=0)))
    w /= w.sum(axis=0)
    return (w * g).sum(axis=0), w[0], np.sqrt((w**2).sum(axis=0)), rng.standard_normal(count)


def test_without_temperature_attention_is_pooling():
    """t ~ N(0, 1/10), m = 1/10, s = 1/sqrt(10) at kappa = 0."""
    law = attention(a, 0, (t, m, s))
    found, error = lower(
        [Expectation(f, (t, m, s), law) for f in (t**2, sp.exp(t), sp.Heaviside(t - sp.Rational(1, 10)), m + s)], [a]
    )(0.0)
    right = [0.1, math.exp(0.05), 1 - ndtr(0.1 * math.sqrt(10)), 0.1 + 1 / math.sqrt(10)]
    assert (np.abs(found - right) <= SIGMAS * error + 1e-14).all()
    assert (error <= [2e-4, 3e-4, 1.5e-3, 1e-14]).all()  # 3 to 10 times better than 2^15 random points


def test_attention_against_brute_force():
    field = a * t + b * m + c + rho * s * G
    law = attention(2, 4, (t, m, s, G), (G,))
    smooth = Expectation(softplus(-field), (t, m, s, G), law)
    lowered = lower([smooth, smooth.diff(a), smooth.diff(rho)], [a, b, c, rho])
    at = (0.8, 1.1, -1.3, 0.7)
    found, error = lowered(*at)
    tb, mb, sb, noise = brute(2.0, 4.0)
    u = at[0] * tb + at[1] * mb + at[2] + at[3] * sb * noise
    slope = -1 / (1 + np.exp(u))
    samples = [np.logaddexp(0, -u), slope * tb, slope * sb * noise]
    for i, values in enumerate(samples):
        stderr = values.std() / math.sqrt(values.size)
        assert abs(found[i] - values.mean()) <= SIGMAS * math.hypot(stderr, error[i])
        assert error[i] <= 0.7 * stderr  # 2^15 quasi-random points do better than 4e5 random ones


def test_the_points_are_frozen_and_derivatives_are_those_of_the_average():
    """With fixed points the average is an analytic function, so that its differences are exact to rounding."""
    field = a * t + b * m + rho * s * G
    mean = Expectation(softplus(field), (t, m, s, G), attention(2, 4, (t, m, s, G), (G,)))
    lowered = lower([mean, mean.diff(a)], [a, b, rho])
    assert lowered(0.3, 0.2, 1.0)[0].tolist() == lower([mean, mean.diff(a)], [a, b, rho])(0.3, 0.2, 1.0)[0].tolist()
    ahead, behind = (lowered(0.3 + h, 0.2, 1.0)[0][0] for h in (1e-4, -1e-4))
    assert lowered(0.3, 0.2, 1.0)[0][1] == pytest.approx((ahead - behind) / 2e-4, abs=1e-8)  # h^2 and 1e-16/h


def test_laws_with_and_without_the_noise_share_their_points():
    """E t^2 over (t, G) of t^2 + 0 G is computed at the points of E t^2: the same number to rounding."""
    with_noise = Expectation(t**2 + a * G, (t, G), attention(2, 4, (t, G), (G,)))
    without = Expectation(t**2, (t,), attention(2, 4, (t,)))
    together, _ = lower([with_noise, without], [a])(0.0)
    apart = [lower([e], [a])(0.0)[0][0] for e in (with_noise, without)]
    assert together[0] == pytest.approx(together[1], rel=1e-14)
    assert apart == pytest.approx(together, rel=1e-14)


def test_more_samples_give_smaller_errors():
    mean = Expectation(Phi(t / s), (t, s), attention(2, 4, (t, s)))
    few, many = (lower([mean], [], Accuracy(samples=n)) for n in (2**11, 2**17))
    (first,), (early,) = few()
    (second,), (late,) = many()
    assert late < early / 8  # as for random points; Sobol points gain more
    assert abs(first - second) <= SIGMAS * early
    with pytest.raises(ValueError, match="512 samples"):
        Accuracy(samples=100)


def test_an_inner_gaussian_average_is_sampled_too():
    """E_(t,s) Phi((c - t)/s) = E_(t,s) E_G 1[t + s G < c]."""
    law = attention(2, 4, (t, s))
    inner = Expectation(sp.Heaviside(c - t - G), (G,), Gaussian([0], [[s**2]]))
    found, error = lower([Expectation(inner, (t, s), law), Expectation(Phi((c - t) / s), (t, s), law)], [c])(2.5)
    assert abs(found[0] - found[1]) <= SIGMAS * error.sum()
    assert found[1] == pytest.approx(found[0], abs=0.01)


def test_a_nonlinear_function_of_an_inner_average_stays_nested():
    """E_x (E_y exp(x y))^2 = E exp(x^2), x = z/2: sqrt(2)."""
    law = Pushforward(standard_normal(), [z[0]], [(q, z[0] / 2)], [q])
    inner = Expectation(sp.exp(q * y), (y,), standard_normal())
    found, error = lower([Expectation(inner**2, (q,), law)], [], Accuracy(samples=2**10))()
    assert abs(found[0] - math.sqrt(2)) <= SIGMAS * error[0]
    assert error[0] <= 0.03


def test_base_laws_with_symbolic_moments():
    """q = x y with (x, y) ~ N((a, 0), [[1, b], [b, 1]]), singular at b = 1: E q = b, E q^2 = 1 + 2 b^2 + a^2."""
    law = Pushforward(Gaussian([a, 0], [[1, b], [b, 1]]), (x, y), [(q, x * y)], (q,))
    found, error = lower([Expectation(q, (q,), law), Expectation(q**2, (q,), law)], [a, b])(
        np.array([0.0, 0.7, 0.7]), np.array([0.4, 1.0, -0.2])
    )
    right = [[0.4, 1.0, -0.2], [1.32, 3 + 0.49, 1.08 + 0.49]]
    assert (np.abs(found - right) <= SIGMAS * error).all()
    assert error.max() <= 0.03


def test_a_law_that_is_no_law_has_no_value():
    law = Pushforward(Gaussian([0, 0], [[1, b], [b, 1]]), (x, y), [(q, x * y)], (q,))
    found, error = lower([Expectation(q, (q,), law)], [b])(1.5)
    assert np.isnan(found[0])
    assert np.isinf(error[0])


def test_the_quantities_are_computed_once_for_each_value_of_the_laws_parameters(monkeypatch: pytest.MonkeyPatch):
    sampled._sample.cache_clear()
    calls = []
    computed = sampled.Sample._computed
    monkeypatch.setattr(sampled.Sample, "_computed", lambda self, v: calls.append(v) or computed(self, v))
    lowered = lower([Expectation(softplus(a * t), (t,), attention(b, 4, (t,)))], [a, b])
    lowered(np.linspace(0, 1, 7), 2.0)
    lowered(0.3, 2.0)
    assert calls == [(2.0,)]
    lowered(0.3, np.array([2.0, 3.0, 2.0]))
    assert calls == [(2.0,), (3.0,)]


def test_scatter_is_correlated():
    """The difference of averages that are equal has no error; their sum has that of twice one."""
    mean = Expectation(Phi(t), (t,), attention(2, 4, (t,)))
    half = Expectation(1 - Phi(-t), (t,), attention(2, 4, (t,)))
    measured = lower([mean, mean - half, mean + half, sp.exp(mean)], []).measured()
    assert measured.scatter is not None
    errors = standard_error(measured.scatter)
    assert errors[1] <= 1e-15
    assert errors[2] == pytest.approx(2 * errors[0], rel=1e-9)
    assert errors[3] == pytest.approx(errors[0] * math.exp(measured.value[0]), rel=1e-3)  # to first order
    assert (measured.error <= 1e-15).all()


def test_the_error_covers_the_truth_as_often_as_it_should():
    """1 200 averages of cos(a_k q + b_k), q = sum_i z_i^2/10, at 2^9 points: 68 per cent within a standard error.

    16 scramblings: 67 per cent of t with 15 degrees of freedom; averages on the same points are not independent, so
    the share may be anything from 40 to 95.
    """
    law = Pushforward(standard_normal(10), z, [(q, sum(v**2 for v in z) / 10)], (q,))
    rng = np.random.default_rng(5)
    frequency, phase = rng.uniform(0.5, 4, 1200), rng.uniform(0, 2 * np.pi, 1200)
    lowered = lower([Expectation(sp.cos(a * q + b), (q,), law)], [a, b], Accuracy(samples=2**9))
    found, error = lowered(frequency, phase)
    exact = np.real(np.exp(1j * phase) * (1 - 2j * frequency / 10) ** -5.0)
    within = np.mean(np.abs(found[0] - exact) <= error[0])
    assert 0.4 <= within <= 0.95
    assert np.max(np.abs(found[0] - exact) / error[0]) <= 6


def test_expectations_in_definitions_are_refused():
    law = Pushforward(standard_normal(), [z[0]], [(q, Expectation(sp.tanh(y * z[0]), [y], standard_normal()))], [q])
    with pytest.raises(Unsupported, match="cannot be sampled"):
        lower([Expectation(q**2, (q,), law)], [])()


def test_envelopes_of_sampled_fields_are_finite_for_every_step():
    V = sp.Symbol("V", positive=True)
    u = sp.Symbol("u", real=True)
    mean = Expectation(
        Moreau(sp.Lambda(u, softplus(-u)), V * s**2, a * t + rho * s * G),
        (t, s, G),
        attention(2, 4, (t, s, G), (G,)),
    )
    found, error = lower([mean, mean.diff(V)], [a, rho, V])(3.0, 5.0, 10.0 ** np.arange(-8, 9))
    assert np.isfinite(found).all()
    assert np.isfinite(error).all()
    assert (np.diff(found[0]) < 0).all()  # an envelope falls in its step
    assert (found[1] <= 0).all()
