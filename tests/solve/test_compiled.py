from __future__ import annotations

import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import mpmath
import numpy as np
import pytest
import sympy as sp
from scipy.optimize import brentq

from derive.equations import EquationSystem
from derive.expectation import Expectation
from derive.measures import standard_normal
from solve.compiled import compile_system
from solve.domain import Box
from solve.fixed_point import Newton, Picard, Stability
from solve.result import SolveError, Status
from tests.solve.systems import (
    ROUGH,
    UNIT,
    a,
    above,
    b,
    c,
    compiled,
    d,
    define,
    gain,
    hermite_toy,
    lam,
    m,
    magnetisation,
    omega,
    p,
    q,
    quantity,
    r,
    root,
    x,
    y,
)

# ------------------------------------------------------------------------------------------ solve


@pytest.mark.parametrize(
    ("value", "truth"), [(2, 0.618447509348823), (1.1, 0.0961280354604091), (1.01, 0.009965920457)]
)
def test_a_fixed_point_with_its_error(value, truth):
    found = magnetisation().solve({lam: value})
    assert found.status is Status.converged
    assert abs(found[q] - truth) <= found.error + 1e-15 / (value - 1)  # the digits of the reference, amplified
    assert found.error < 1e-11  # tolerance 1e-12 + 1e-10 q


def test_a_marginal_solution_carries_its_large_error():
    found = magnetisation().solve({lam: 1})
    assert abs(found[q]) <= found.error + 1e-10  # sqrt of the rounding in E tanh: q^2 drowns in 1e-17 sqrt(q)
    assert found.error > 1e-10  # a hundred times the tolerance: rounding over 1 - F'(q)
    assert any("degenerate" in n for n in found.notes)


def test_an_iteration_that_did_not_converge_raises_and_names_everything():
    with pytest.raises(SolveError, match=r"Block \(q\) at \{lam: 1\}: The solver used all its steps") as caught:
        magnetisation().solve({"lam": 1.0}, solver=Picard(max_steps=30))
    assert caught.value.status is Status.max_steps
    assert caught.value.residual > 0
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.status) == (str(caught.value), Status.max_steps)
    marked = magnetisation().solve({"lam": 1.0}, solver=Picard(max_steps=30), throw=False)
    assert marked.status is Status.max_steps
    assert marked.error >= 0.9 * marked[q]  # 0 is within the error, which is itself known to 1/30


def test_all_solutions_and_a_warning_at_the_trivial_one():
    points = magnetisation().fixed_points({})
    assert [s.stability for s in points] == [Stability.unstable, Stability.stable]
    assert [float(s.at[0]) for s in points] == pytest.approx([0, 0.618447509348823], abs=1e-12)  # quadrature
    trivial = magnetisation().solve({}, start={"q": 0}, solver=Newton())
    assert trivial[q] == 0
    assert trivial.unstable == {q}
    assert any("there is another" in n for n in trivial.notes)
    assert magnetisation().solve({}).unstable == frozenset()


def test_linear_blocks_against_exact_algebra():
    """Three unknowns that read each other, one before and one after them."""
    system = compiled(
        define(r, 2 * a + b),
        define(a, b / 2 + p),
        define(b, a / 3 - c / 4),
        define(c, a + b + 1),
        define(p, lam**2),
        parameters=[quantity(lam)],
    )
    exact = sp.solve([a - b / 2 - 9, b - a / 3 + c / 4, c - a - b - 1], [a, b, c])
    found = system.solve({lam: 3})
    assert [float(found[s]) for s in (p, a, b, c)] == pytest.approx([9, *map(float, exact.values())], rel=1e-9)
    assert float(found[r]) == pytest.approx(float(2 * exact[a] + exact[b]), rel=1e-9)  # solver tolerance 1e-10
    for s in (a, b, c):
        assert abs(found[s] - float(exact[s])) <= found.errors[s]


def test_errors_reach_what_is_computed_from_them():
    system = compiled(
        define(q, sp.cos(q), UNIT), define(r, 10**6 * q), define(p, sp.exp(r - 10**6 * q)), start={q: sp.S.Half}
    )
    found = system.solve({}, solver=Picard())
    dottie = float(mpmath.findroot(lambda t: mpmath.cos(t) - t, 0.7))
    assert abs(found[r] - 1e6 * dottie) <= found.errors[r] + 1e-9  # rounding of r
    assert 1e-11 < found.errors[q] < 1e-9  # the promised tolerance is about 1e-10
    assert found.errors[r] == pytest.approx(1e6 * found.errors[q], rel=1e-3)
    assert found.errors[p] > found.errors[r]  # r and q are counted as if their errors were independent
    assert found.error == max(float(v) for v in found.errors.values())


def test_quadrature_errors_reach_the_solution():
    """A curved kink in two dimensions is sampled."""
    mean = Expectation(sp.Max(x * y, q), [x, y], standard_normal(2))
    found = compile_system(EquationSystem((define(q, mean / 2),)), ROUGH).solve({}, solver=Picard(rtol=1e-6))
    truth = brentq(lambda v: (v + above(v)) / 2 - v, 0, 1)
    assert abs(found[q] - truth) <= found.error
    assert 1e-6 < found.error < 1e-2  # what a few thousand points give: more than the solver's tolerance


def test_roots_are_solved_inside_their_domain():
    system = compiled(root(omega, gain * omega - sp.cos(omega), UNIT), parameters=[quantity(gain)])
    truth = float(mpmath.findroot(lambda t: 1.5 * t - mpmath.cos(t), 0.5))
    found = system.solve({gain: 1.5})
    assert found[omega] == pytest.approx(truth, abs=1e-11)  # solver tolerance
    with pytest.raises(ValueError, match="Newton"):
        system.solve({gain: 1.5}, solver=Picard())


def test_a_root_that_does_not_exist_is_null_with_its_reason():
    system = compiled(
        root(omega, omega**2 + gain, UNIT), define(r, omega + 1), define(p, 2 * gain), parameters=[quantity(gain)]
    )
    with pytest.raises(SolveError, match="does not change its sign"):
        system.solve({gain: 0.5})
    found = system.solve({gain: 0.5}, throw=False)
    assert found.status is not Status.converged
    assert found.statuses[omega] is found.statuses[r] is found.status  # what reads it shares its fate,
    assert found.statuses[p] is Status.converged  # what does not is solved
    assert found[p] == 1
    assert any("does not change its sign" in n for n in found.notes)


def test_a_root_that_newton_misses_is_found_by_search():
    """A residual with a flat valley before its only root: Newton from the middle is caught."""
    system = compiled(
        root(omega, (omega - sp.Rational(1, 2)) ** 2 * (omega - sp.Rational(9, 10)) - sp.Rational(1, 200), UNIT)
    )
    truth = float(mpmath.findroot(lambda t: (t - 0.5) ** 2 * (t - 0.9) - 0.005, 0.93))
    assert system.solve({})[omega] == pytest.approx(truth, abs=1e-11)  # solver tolerance


def test_values_that_are_not_finite_are_not_returned_quietly():
    system = compiled(define(r, 1 / (gain - 1)), define(p, gain), parameters=[quantity(gain)])
    with pytest.raises(SolveError, match="inf or nan"):
        system.solve({gain: 1})
    found = system.solve({gain: 1}, throw=False)
    assert (found.statuses[r], found.statuses[p]) == (Status.nonfinite, Status.converged)


def test_parameters_may_be_arrays():
    found = magnetisation().solve({lam: np.array([[1.1, 2.0], [3.0, 0.5]])})
    assert found[q].shape == (2, 2)
    assert found[q][0] == pytest.approx([0.0961280354604091, 0.618447509348823], abs=1e-10)  # solver tolerance
    assert abs(found[q][1, 1]) < 1e-10
    explicit = compiled(define(r, a * b), parameters=[quantity(a), quantity(b)])
    assert explicit.solve({a: np.arange(3.0), b: np.arange(2.0)[:, None]})[r].tolist() == [[0, 0, 0], [0, 1, 2]]


# ------------------------------------------------------------------------------------------ parameters


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lambda": 2}, "unknown: lambda (nearest: lam)"),
        ({"lam": -1}, "lam (the lam) = -1.0 lies outside its domain Interval.open(0, oo)"),
        ({"lam": "two"}, "'two' is not a number"),
        ({"lam": np.nan}, "is not finite"),
        ({"lam": 2 * x}, "is not a number: it holds ['x']"),
    ],
)
def test_wrong_parameters_are_named(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        magnetisation().solve(given)


def test_missing_and_unknown_names_come_together():
    system = compiled(define(r, a * b + c), parameters=[quantity(a), quantity(b), quantity(c, default=1)])
    with pytest.raises(ValueError, match=r"needs a value for a, b, c; missing: a; unknown: bb \(nearest: b\)"):
        system.solve({"b": 1, "bb": 2})
    assert system.solve({a: sp.Rational(1, 2), "b": 4})[r] == 3


def test_defaults_may_read_other_parameters_and_domains_may_be_integers():
    length = sp.Symbol("L", integer=True, positive=True)
    system = compiled(
        define(r, a * length), parameters=[quantity(length, sp.S.Naturals), quantity(a, default=length / 2)]
    )
    assert system.solve({"L": 4})[r] == 8
    with pytest.raises(ValueError, match="outside its domain Naturals"):
        system.solve({"L": 2.5})


def test_a_parameter_that_is_not_needed_may_be_missing():
    toy = hermite_toy()
    assert toy.needs() == {d}
    assert toy.integrate({"d": 100}, [1.0]).status is Status.converged
    with pytest.raises(ValueError, match="missing: d"):
        toy.integrate({}, [1.0])
    toy.integrate({}, [1.0], start={"m": 0.1})
    assert [s.stability.name for s in toy.fixed_points({})] == ["stable", "unstable", "stable"]


def test_a_system_is_restricted_to_what_is_asked():
    system = compiled(define(r, a), define(p, b + r), define(q, c), parameters=map(quantity, (a, b, c)))
    part = system.restricted([p])
    assert part.system.unknowns == (r, p)
    assert system.needs(p) == {a, b}
    assert part.solve({a: 1, b: 2})[p] == 3
    with pytest.raises(ValueError, match="no unknown"):
        system.restricted([a])


# ------------------------------------------------------------------------------------------ processes


def test_a_compiled_system_travels_as_its_equations():
    system = hermite_toy()
    assert len(pickle.dumps(system)) < 20_000
    again = pickle.loads(pickle.dumps(system))
    assert again.system == system.system
    assert again.integrate({d: 100}, [1.0])[m] == system.integrate({d: 100}, [1.0])[m]


def test_a_compiled_system_in_a_process_pool():
    system = magnetisation()
    values = [1.1, 2.0]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(system.solve, [{"lam": v} for v in values]))
    assert [float(f.values[q]) for f in found] == [float(system.solve({"lam": v})[q]) for v in values]


def test_fixed_points_of_a_map_are_looked_for_in_a_box():
    found = magnetisation().fixed_points({lam: 2}, Box.closed([0.5], [1.0]))
    assert len(found) == 1
