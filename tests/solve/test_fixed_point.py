from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.stats import ortho_group

from solve.domain import Box, Disc
from solve.fixed_point import Anderson, AndersonNewton, Map, Newton, Picard, Stability, all_fixed_points
from solve.result import Array, Status

NODES = 0.1 * np.arange(-100, 101)  # trapezoid rule of a function analytic near the real line: exact to rounding
WEIGHTS = np.exp(-(NODES**2) / 2) / np.sum(np.exp(-(NODES**2) / 2))
UNIT = Box.closed([0.0], [1.0])
SOLVERS = [Picard(), Picard(damping=0.5), Anderson(), Anderson(memory=1), Newton(), AndersonNewton()]
# q = E tanh(lam q + sqrt(lam q) z), by two independent methods
MAGNETISATION = {2: 0.618447509348823, 1.1: 0.0961280354604091, 1.01: 0.009965920457, 1: 0.0}


def magnetisation(lam: float) -> Map:
    """q -> E tanh(lam q + sqrt(lam q) z), its odd part summed so that no digit is lost at small q."""

    def F(q: Array) -> Array:
        u = lam * np.asarray(q)[..., None]
        values = np.tanh(u + np.sqrt(u) * NODES)
        result: Array = ((values + values[..., ::-1]) / 2) @ WEIGHTS
        return result

    return F


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("lam", [2, 1.1, 1.01])
def test_error_bound_holds_where_the_iteration_is_slow(solver, lam):
    found = solver.solve(magnetisation(lam), [0.5], UNIT)
    assert found.status is Status.converged
    true_error = abs(found.x[0] - MAGNETISATION[lam])
    reference = 1e-15 / (1 - 0.99) if lam == 1.01 else 1e-15  # digits of the reference, 1/(1 - contraction) at 1.01
    assert true_error <= 1.05 * found.error + reference  # the contraction is itself known to a few per cent
    assert found.error <= 1e-12 + 1e-10 * MAGNETISATION[lam]  # what the solver promises


def test_stopping_on_the_last_step_would_be_wrong():
    """The negative control of the bound: at lam = 1.01 a last step of 1e-6 is an error of 1 per cent."""
    F = magnetisation(1.01)
    q, step = np.array([0.5]), np.inf
    while step > 1e-6:
        q, step = F(q), float(abs(F(q) - q)[0])
    assert abs(q[0] / MAGNETISATION[1.01] - 1) > 0.005


def test_marginal_iteration_is_not_called_converged():
    found = Picard(max_steps=3000).solve(magnetisation(1), [0.5], UNIT)
    assert found.status is Status.max_steps
    assert found.contraction > 0.999
    assert found.x[0] > 1e-4  # q_n falls like 1/n: the true solution, 0, is this far away,
    assert found.x[0] <= 1.01 * found.error  # and the bound says so (its own error is O(1/n))


@pytest.mark.parametrize("solver", [Anderson(), Newton(), AndersonNewton()], ids=repr)
def test_marginal_solution_by_fast_methods(solver):
    found = solver.solve(magnetisation(1), [0.5], UNIT)
    assert abs(found.x[0]) <= 1e-10  # where q^2, the residual, drowns in the rounding of F, 1e-17 sqrt(q)
    assert abs(found.x[0]) <= 2 * found.error  # the noise is estimated from four values


def test_newton_reports_the_contraction_of_the_map():
    assert Newton().solve(magnetisation(1), [0.5], UNIT).contraction == pytest.approx(1, abs=1e-6)  # differences
    found = Newton().solve(lambda x: 0.25 * x + 1, [0.0])
    assert found.contraction == pytest.approx(0.25, abs=1e-9)  # rounding of differences


@pytest.mark.parametrize("solver", [Anderson(), Anderson(memory=1), AndersonNewton()], ids=repr)
@pytest.mark.parametrize("domain", [None, Box(*map(np.array, ([1.0], [3.0], [True], [True])))])
def test_coinciding_residuals_are_not_divided(solver, domain):
    found = solver.solve(lambda n: 1 + np.log(3 / n) / np.log(3.7477525683 * n / (n - 1)), [1.001], domain)
    assert found.status is Status.converged
    assert found.x[0] == pytest.approx(1.300000000001, abs=1e-11)  # the solver's tolerance is 1e-10 of it


def test_next_to_a_singularity_small_steps_are_no_solution():
    """At n -> 1 the slope of that map is infinite: Newton's steps vanish there, the residual 0.03 does not."""
    domain = Box(*map(np.array, ([1.0], [3.0], [True], [True])))
    found = Newton().solve(lambda n: 1 + np.log(3 / n) / np.log(3.7477525683 * n / (n - 1)), [1.001], domain)
    assert found.status is not Status.converged or found.x[0] == pytest.approx(1.3, abs=1e-9)  # tolerance


def test_oscillation_is_no_convergence():
    found = Picard().solve(lambda x: -1.5 * np.tanh(x), [1.0])
    assert found.status is Status.oscillates
    assert abs(found.x[0]) == pytest.approx(1.28783945496017, abs=1e-8)  # detected when it repeats to nine digits
    assert found.error == np.inf


@pytest.mark.parametrize("solver", [Picard(damping=0.5), Anderson(), Newton(), AndersonNewton()], ids=repr)
def test_the_fixed_point_inside_a_cycle_is_found(solver):
    found = solver.solve(lambda x: -1.5 * np.tanh(x), [1.0])
    assert found.status is Status.converged
    assert abs(found.x[0]) < 1e-11  # atol 1e-12, and what a tanh may add


def test_a_longer_cycle_is_seen():
    assert Picard().solve(lambda x: 3.5 * x * (1 - x), [0.3]).status is Status.oscillates  # period 4
    assert Picard(max_steps=500).solve(lambda x: 3.9 * x * (1 - x), [0.3]).status is Status.max_steps  # chaos


def test_damping_is_the_weight_of_the_new_value():
    seen = []

    def F(x: Array) -> Array:
        seen.append(float(x[0]))
        return np.array([0.6])

    Picard(damping=0.8).solve(F, [0.2])
    assert seen[:2] == pytest.approx([0.2, 0.52], abs=1e-15)  # rounding
    assert "weight of the NEW value" in str(Picard.__doc__)
    with pytest.raises(ValueError, match="weight of the new value"):
        Picard(damping=1.5)


@pytest.mark.parametrize(
    ("F", "status"),
    [
        (lambda x: 2 * x + 1, Status.diverges),
        (lambda x: x + 1, Status.max_steps),
        (lambda x: np.log(x - 5), Status.nonfinite),
        (lambda x: x - 1 - x**2, Status.diverges),
    ],
)
def test_failures_have_names(F, status):
    found = Picard(max_steps=200).solve(F, [1.0], Box.closed([0], [np.inf]))
    assert found.status is status
    assert found.error == np.inf


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_every_iterate_stays_in_the_domain(solver):
    """The map is undefined outside, and Newton's first step from 0.02 points there."""
    seen = []

    def F(x: Array) -> Array:
        seen.append(float(x[0]))
        return np.sqrt(x) * np.exp(-x)

    domain = Box(np.array([0.0]), np.array([1.0]), np.array([True]), np.array([False]))
    found = solver.solve(F, [0.02], domain)
    assert min(seen) > 0
    assert max(seen) <= 1
    truth = float(mpmath.findroot(lambda x: mpmath.sqrt(x) * mpmath.exp(-x) - x, 0.4))
    if isinstance(solver, Newton):  # it is drawn to the solution 0, which the open end excludes
        assert found.status is Status.diverges
    else:
        assert found.x[0] == pytest.approx(truth, abs=2e-10)  # the solver's tolerance


def test_a_step_is_shortened_not_clipped():
    box = Box(np.array([0.0, -1.0]), np.array([1.0, 1.0]), np.array([True, False]), np.array([False, False]))
    x, step = np.array([0.5, 0.0]), np.array([-2.0, 0.4])
    short = box.shorten(x, step)
    assert short / step == pytest.approx(np.full(2, 0.9 * 0.25))  # direction kept, nine tenths of the way
    assert np.array_equal(box.shorten(x, np.array([0.5, 1.0])), [0.5, 1.0])  # closed ends may be reached
    assert np.array_equal(box.shorten(np.array([1.0, 0.0]), np.array([1.0, 0.4])), [0.0, 0.4])


def test_a_start_outside_the_domain_is_refused():
    with pytest.raises(ValueError, match="outside its domain"):
        Picard().solve(lambda x: x, [0.0], Box(*map(np.array, ([0.0], [1.0], [True], [False]))))
    with pytest.raises(ValueError, match="shape"):
        Picard().solve(lambda x: np.zeros(3), [0.0])


@pytest.mark.parametrize("solver", [Picard(), Anderson(), Newton(), AndersonNewton()], ids=repr)
def test_linear_systems_against_their_solution(solver):
    rng = np.random.default_rng(5)
    turn = ortho_group.rvs(4, random_state=rng)
    A = turn @ np.diag([0.97, 0.5, -0.6, 0.1]) @ turn.T
    b = rng.normal(size=4)
    truth = np.linalg.solve(np.eye(4) - A, b)
    found = solver.solve(lambda x: A @ x + b, np.zeros(4))
    assert found.status is Status.converged
    assert np.max(np.abs(found.x - truth)) <= 1.05 * found.error + 1e-13  # 1e-13: rounding times 1/(1 - 0.97)
    assert found.error <= 1e-9 * np.max(np.abs(truth))  # of the largest component; rtol is 1e-10 for each


@pytest.mark.parametrize("solver", [Anderson(), AndersonNewton()], ids=repr)
def test_random_networks_are_solved_with_errors_that_hold(solver):
    """x = tanh(A x + b), spectral radius up to 2, most of them beyond the reach of the plain iteration."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = int(rng.integers(1, 6))
        A, b = rng.normal(size=(n, n)) * rng.uniform(0.2, 2) / np.sqrt(n), rng.normal(size=n) / 2
        found = solver.solve(lambda x, A=A, b=b: np.tanh(A @ x + b), np.full(n, 0.1))
        assert found.status is Status.converged
        truth = found.x
        for _ in range(3):  # Newton with the exact Jacobian, to rounding
            y = np.tanh(A @ truth + b)
            truth = truth - np.linalg.solve((1 - y**2)[:, None] * A - np.eye(n), y - truth)
        assert np.max(np.abs(found.x - truth)) <= 2 * found.error + 1e-14  # spirals, and rounding


def test_a_supplied_jacobian_saves_evaluations():
    def F(x: Array) -> Array:
        return np.cos(x)

    plain, given = Newton().solve(F, [1.0]), Newton(jacobian=lambda x: -np.diag(np.sin(x))).solve(F, [1.0])
    assert given.x[0] == pytest.approx(0.739085133215161, abs=1e-10)  # Dottie number; tolerance
    assert given.evaluations < plain.evaluations


def test_anderson_leaves_a_trivial_branch_that_the_iteration_leaves():
    near_zero = Anderson().solve(magnetisation(2), [1e-6], UNIT)
    assert near_zero.x[0] == pytest.approx(MAGNETISATION[2], abs=1e-9)  # tolerance


# ------------------------------------------------------------------------------------------ all of them


def test_all_solutions_with_their_stability():
    found = all_fixed_points(magnetisation(2), 0, 1)
    assert [p.stability for p in found] == [Stability.unstable, Stability.stable]
    assert [float(p.at[0]) for p in found] == pytest.approx([0, MAGNETISATION[2]], abs=1e-14)  # rounding
    assert found[0].eigenvalues[0] == pytest.approx(2, abs=1e-6)  # F'(0) = lam exactly; one-sided differences


def test_a_solution_close_to_another_is_found():
    points = [float(p.at[0]) for p in all_fixed_points(magnetisation(1.0001), 0, 1)]
    assert len(points) == 2
    # q = (lam - 1) - (lam - 1)^2/3 ... : the leading term, right to its relative order 1e-4 times O(10)
    assert points[1] == pytest.approx(1e-4, rel=1e-2)


def test_marginal_and_tangent_solutions_are_flagged():
    (zero,) = all_fixed_points(magnetisation(1), 0, 1)
    assert zero.stability is Stability.marginal
    (touch,) = all_fixed_points(lambda x: x + (x - 0.3) ** 2, 0, 1)
    assert touch.tangent
    assert touch.stability is Stability.marginal
    assert touch.at[0] == pytest.approx(0.3, abs=1e-5)  # sqrt of the 1e-11 that counts as touching
    assert not all_fixed_points(lambda x: x + (x - 0.3) ** 2 + 1e-9, 0, 1)
    assert len(all_fixed_points(lambda x: x + (x - 0.3) ** 2 - 1e-9, 0, 1)) == 2


def test_a_jump_over_the_diagonal_is_no_fixed_point():
    assert not all_fixed_points(lambda x: np.where(x < 0.4, 0.9, 0.1), 0, 1)


def test_all_solutions_in_two_dimensions():
    """Two uncoupled cubics, turned: nine fixed points of which four attract, known by construction."""
    angle = 0.3
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def F(x: Array) -> Array:
        y = turn.T @ x
        return turn @ (y + 0.3 * (y - 4 * y**3))

    found = all_fixed_points(F, [-1, -1], [1, 1])
    truth = np.array([turn @ [a, b] for a in (-0.5, 0, 0.5) for b in (-0.5, 0, 0.5)])
    assert len(found) == 9
    for t in truth:
        assert min(np.max(np.abs(p.at - t)) for p in found) < 1e-12  # Newton to rounding
    kinds = [p.stability for p in found]
    assert [kinds.count(k) for k in Stability] == [4, 4, 1, 0]  # stable, saddle, unstable, marginal


def test_unbounded_searches_are_refused():
    with pytest.raises(ValueError, match="bounded"):
        all_fixed_points(lambda x: x / 2, 0, np.inf)
    with pytest.raises(ValueError, match="Every point"):
        all_fixed_points(lambda x: x, 0, 1)


@pytest.mark.parametrize("region", [Disc(), Disc(3, 2.0), Box.closed([0, 1], [1, 4])], ids=repr)
def test_starts_lie_in_their_region_and_reach_its_edge(region):
    x = region.starts(400)
    assert region.contains(x).all()
    edge: ArrayLike = region.radius if isinstance(region, Disc) else 4.0
    size = np.linalg.norm(x, axis=0) if isinstance(region, Disc) else x[1]
    assert np.max(size) == pytest.approx(edge)
