"""Blocks of roots by Newton's method with derivatives by rule: known solutions, errors of samples, no solution."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import sympy as sp

from derive.equations import EquationSystem
from derive.expectation import Expectation
from derive.functions import Phi, relu, softplus
from derive.measures import Pushforward, standard_normal
from derive.proximal import Moreau, MoreauSlope
from solve.compiled import CompiledSystem, compile_system
from solve.domain import Box
from solve.newton import solve_root
from solve.quadrature import Accuracy
from solve.result import SolveError, Status
from tests.solve.systems import POSITIVE, define, quantity, root

mu, b, u, G, t, s, x, y = sp.symbols("mu b u G t s x y", real=True)
test_error, training_loss = sp.symbols("test_error training_loss", real=True)
rho, V, alpha, lam = sp.symbols("rho V alpha lam", positive=True)
z = sp.symbols("z1:9", real=True)
half = sp.S.Half
REFERENCE = 1e-10  # ten digits are given
signal = 5 / sp.sqrt(10)  # theta R/sqrt(L)


def erm(loss: Callable[[Any], sp.Expr], average: Callable[[sp.Expr], sp.Expr], noise: sp.Expr, samples: int = 2**15):
    """Two clusters at mu = 0 and `signal`, labels -1 and 1: stationarity of the potential of a pooled classifier.

    noise: what multiplies the weights' norm in the output; average: over it.
    """

    def mean(f: Callable[[sp.Lambda, sp.Expr], sp.Expr]) -> sp.Expr:
        sides = ((1, mu * signal + b), (-1, b))
        return sum(half * average(f(sp.Lambda(u, loss(label * u)), field + rho * noise)) for label, field in sides)

    potential = mean(lambda f, w: Moreau(f, V, w)) - (rho**2 - mu**2) / (2 * alpha * V) + 10 * lam / 2 * rho**2
    unknowns = {mu: sp.S.Reals, b: sp.S.Reals, rho: POSITIVE, V: POSITIVE}
    # scaled so that no equation vanishes where V or rho does, or where they grow
    scales = {mu: alpha * V, b: alpha * V, rho: alpha * V / rho, V: 2 * alpha * V**2}
    equations = [root(s_, sp.expand(scales[s_] * potential.diff(s_)), d) for s_, d in unknowns.items()]
    equations += [
        define(test_error, half * Phi(-(mu * signal + b) / rho) + half * Phi(b / rho)),
        define(training_loss, mean(lambda f, w: Moreau(f, V, w) - V * MoreauSlope(f, V, w) ** 2 / 2)),
    ]
    parameters = (quantity(alpha, POSITIVE), quantity(lam, sp.Interval(0, sp.oo)))
    start = {mu: sp.S.Zero, b: sp.S.Zero, rho: sp.Rational(1, 10), V: sp.Rational(1, 100)}
    return compile_system(EquationSystem(tuple(equations), parameters, start), Accuracy(samples=samples))


def gaussian(f: sp.Expr) -> sp.Expr:
    return Expectation(f, [G], standard_normal())


@functools.cache
def logistic() -> CompiledSystem:
    return erm(lambda v: softplus(-v), gaussian, G)


@pytest.mark.parametrize(
    ("values", "right"),
    [((2, 1e-5), (0.3405051680, 0.0077423410)), ((5, 0.01), (0.2543306635, 0.4085695457))],
)
def test_pooled_logistic_regression(values: tuple[float, float], right: tuple[float, float]):
    found = logistic().solve(dict(zip((alpha, lam), values, strict=True)))
    assert (found[test_error], found[training_loss]) == pytest.approx(right, abs=REFERENCE)
    assert found.residual <= 1e-10
    assert found.errors[test_error] <= 1e-9
    assert found.evaluations <= 30  # differences would take 200


def test_pooled_hinge():
    """Known to 1e-5."""
    found = erm(lambda v: relu(1 - v), gaussian, G).solve({alpha: 2, lam: 0.01})
    assert (found[test_error], found[training_loss]) == pytest.approx((0.315526, 0.186787), abs=1e-5)


def test_a_series_goes_from_point_to_point():
    ridges = np.array([1.0, 0.1, 0.01])
    found = logistic().solve({alpha: 5, lam: ridges})
    assert found[test_error].shape == (3,)
    assert found[test_error][2] == pytest.approx(0.2543306635, abs=REFERENCE)


def test_separable_data_without_a_ridge_diverge():
    """Below capacity the logistic loss has no minimiser; above, it has."""
    with pytest.raises(SolveError) as error:
        logistic().solve({alpha: 2, lam: 0})
    assert error.value.status is Status.diverges
    assert logistic().solve({alpha: 5, lam: 0}).status is Status.converged


# ------------------------------------------------------------------------------- samples


def sampled_noise(f: sp.Expr) -> sp.Expr:
    """The same Gaussian noise as a normalised sum of eight, which only sampling reaches."""
    law = Pushforward(standard_normal(8), z, [(t, sum(z) / sp.sqrt(8))], (t,))
    return Expectation(f, (t,), law)


@functools.cache
def sampled_logistic(samples: int) -> CompiledSystem:
    return erm(lambda v: softplus(-v), sampled_noise, t, samples)


@pytest.mark.parametrize("ridge", [0.01, 0.3])
def test_sampled_solutions_are_right_within_their_errors(ridge: float):
    exact = logistic().solve({alpha: 5, lam: ridge})
    found = sampled_logistic(2**13).solve({alpha: 5, lam: ridge})
    assert found.residual <= 1e-12  # of the sampled equations, whose points are frozen
    for symbol in (mu, b, rho, V, test_error, training_loss):
        # t with 15 degrees of freedom: a false alarm of 2e-4
        assert abs(found[symbol] - exact[symbol]) <= 5 * found.errors[symbol]
        assert found.errors[symbol] <= 5e-3 * abs(exact[symbol])


def test_errors_of_samples_are_those_seen_between_independent_samples():
    """The scatter of solutions on each scrambling alone against the linear propagation of that of the equations."""
    found = sampled_logistic(2**13).solve({alpha: 5, lam: 0.1})
    coarse = sampled_logistic(2**9).solve({alpha: 5, lam: 0.1})
    for symbol in (mu, rho, V, test_error, training_loss):
        gap = abs(float(coarse[symbol] - found[symbol]))
        assert gap <= 5 * float(coarse.errors[symbol] + found.errors[symbol])
        assert 2 < coarse.errors[symbol] / found.errors[symbol] < 100  # 16 times the points


def test_correlated_errors_are_smaller_than_their_bound():
    """test_error is nearly stationary along the errors of mu, b and rho, which the sum of their effects would hide."""
    found = sampled_logistic(2**13).solve({alpha: 5, lam: 0.01})
    at = {q: float(found[q]) for q in (mu, b, rho)}
    rhs = half * Phi(-(mu * signal + b) / rho) + half * Phi(b / rho)
    bound = sum(abs(float(rhs.diff(q).xreplace(at))) * float(found.errors[q]) for q in at)
    assert 0 < found.errors[test_error] < bound / 2


# ------------------------------------------------------------------------------- chains and small systems


def test_stages_are_followed_by_the_chain_rule():
    """0 = x - cos(stage), stage = x^2 + y, 0 = y - stage x/4: against SciPy."""
    stage = sp.Symbol("stage", real=True)
    system = compile_system(
        EquationSystem(
            (
                root(x, x - sp.cos(stage)),
                root(y, y - stage * x / 4),
                define(stage, x**2 + y),
            ),
            start={x: half, y: sp.S.Zero},
        )
    )
    (block,) = system.blocks
    linear = block.linearised(())
    assert linear is not None
    found = system.solve({})
    right = scipy.optimize.root(
        lambda v: [v[0] - np.cos(v[0] ** 2 + v[1]), v[1] - (v[0] ** 2 + v[1]) * v[0] / 4], [0.5, 0.0], tol=1e-13
    )
    assert [found[x], found[y]] == pytest.approx(right.x, abs=1e-10)
    at = np.array([0.4, 0.3])
    row = linear.residual({}, at)
    for j in range(2):
        step = 1e-6 * np.eye(2)[j]
        difference = (linear.residual({}, at + step).value - linear.residual({}, at - step).value) / 2e-6
        assert row.slope[:, j] == pytest.approx(difference, abs=1e-9)  # h^2 and rounding over h


def test_newton_in_logarithms_reaches_scales_far_apart():
    """x y = 1, x^3 y = 1e18 from (1, 1): x = 1e9, y = 1e-9."""

    def linear(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = np.array([v[0] * v[1] - 1, v[0] ** 3 * v[1] - 1e18])
        return value, np.array([[v[1], v[0]], [3 * v[0] ** 2 * v[1], v[0] ** 3]])

    found = solve_root(linear, np.ones(2), Box.of([POSITIVE, POSITIVE]), rtol=1e-10, atol=1e-12, max_steps=50)
    assert found.status is Status.converged
    assert found.x == pytest.approx([1e9, 1e-9], rel=1e-9)


def test_a_root_at_infinity_diverges_and_a_singular_start_is_no_solution():
    half_line = Box.of([POSITIVE])
    away = solve_root(
        lambda v: (1 / v, np.diag(-1 / v**2)), np.ones(1), half_line, rtol=1e-10, atol=1e-12, max_steps=100
    )
    assert away.status is Status.diverges
    flat = solve_root(
        lambda v: (v**2 + 1, np.diag(2 * v)), np.zeros(1), Box.of([sp.S.Reals]), rtol=1e-10, atol=1e-12, max_steps=100
    )
    assert flat.status is not Status.converged
