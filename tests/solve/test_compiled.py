from __future__ import annotations

import functools
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import k0

from derive.equations import Define, EquationSystem, Flow, Quantity, Root, Source
from derive.expectation import Expectation
from derive.functions import He
from derive.measures import Gaussian, standard_normal
from solve.compiled import CompiledSystem, compile_system
from solve.domain import Box
from solve.fixed_point import Newton, Picard, Stability
from solve.integrator import DormandPrince
from solve.quadrature import Accuracy
from solve.result import SolveError, Status

SOURCE = Source("derived", "in this test")
x, y = sp.symbols("x y", real=True)
m, e, q, p, a, b, c, r, risk, rate, gain, omega = sp.symbols("m e q p a b c r risk rate gain omega", real=True)
lam, d = sp.symbols("lam d", positive=True)
POSITIVE = sp.Interval.open(0, sp.oo)
UNIT = sp.Interval(0, 1)


ROUGH = Accuracy(rtol=1e-3, atol=1e-3, max_points=2**16)


def above(v: float) -> float:
    """E (x y - v)_+ for independent standard normal x, y, at v >= 0: x y has the density K_0(|u|)/pi."""
    return float(quad(lambda u: (u - v) * k0(u), v, v + 40)[0] / np.pi)


def quantity(symbol: sp.Symbol, domain: sp.Set = sp.S.Reals, default: Any = None) -> Quantity:
    return Quantity(symbol, f"the {symbol}", domain, default=None if default is None else sp.S(default))


def define(symbol: sp.Symbol, rhs: Any, domain: sp.Set = sp.S.Reals) -> Define:
    return Define(quantity(symbol, domain), sp.S(rhs), SOURCE)


def flow(symbol: sp.Symbol, rhs: Any, domain: sp.Set = sp.S.Reals) -> Flow:
    return Flow(quantity(symbol, domain), sp.S(rhs), SOURCE)


def root(symbol: sp.Symbol, rhs: Any, domain: sp.Set = sp.S.Reals) -> Root:
    return Root(quantity(symbol, domain), sp.S(rhs), SOURCE)


def compiled(*equations: Any, parameters: Any = (), start: Any = None) -> CompiledSystem:
    return compile_system(EquationSystem(equations, tuple(parameters), start or {}))


@functools.cache
def magnetisation() -> CompiledSystem:
    law = Gaussian([lam * q], [[lam * q]])
    return compiled(
        define(q, Expectation(sp.tanh(x), [x], law), UNIT),
        parameters=[quantity(lam, POSITIVE, 2)],
        start={q: sp.S.Half},
    )


@functools.cache
def hermite_toy() -> CompiledSystem:
    """dm/dt = -(1 - m^2) d/dm of twice E (He_2(x) - He_2(y))^2/2, corr(x, y) = m: 8 m (1 - m^2); m(0) = 1/sqrt(d)."""
    law = Gaussian([0, 0], [[1, m], [m, 1]])
    loss = Expectation((He(2, x) - He(2, y)) ** 2, [x, y], law)
    return compiled(
        define(risk, loss),
        flow(m, -(1 - m**2) * loss.diff(m), sp.Interval(-1, 1)),
        parameters=[quantity(d, POSITIVE)],
        start={m: 1 / sp.sqrt(d)},
    )


def exact_toy(m0: Any, t: Any) -> Any:
    return np.sign(m0) / np.sqrt(1 + (np.asarray(m0) ** -2.0 - 1) * np.exp(-16 * np.asarray(t)))


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
    assert marked.error >= marked[q]  # 0 is within the error


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


# ------------------------------------------------------------------------------------------ integrate


def test_a_derived_flow_against_its_exact_solution():
    times = np.linspace(0, 3, 13)
    found = hermite_toy().integrate({d: 10**8}, times)
    truth = exact_toy(1e-4, times)
    assert np.max(np.abs(found[m] / truth - 1)) < 1e-9  # the promised accuracy
    assert np.all(np.abs(found[m] - truth) <= found.errors[m])
    assert found[risk] == pytest.approx(4 * (1 - truth**2), abs=1e-8)  # E (He_2 - He_2)^2 = 4 - 4 m^2
    assert np.all(np.abs(found[risk] - 4 * (1 - truth**2)) <= found.errors[risk])
    assert found.error == max(np.max(found.errors[s]) for s in (m, risk))
    assert not found.notes


def test_many_starts_and_parameters_at_once():
    m0 = np.array([[0.01], [-0.3]])
    system = compiled(flow(m, gain * m * (1 - m**2)), define(r, gain * m), parameters=[quantity(gain)])
    found = system.integrate({gain: np.array([1.0, 2.0, 8.0])}, [0.5, 1.0], start={m: m0})
    assert found[m].shape == (2, 2, 3)
    for k, g in enumerate((1.0, 2.0, 8.0)):
        truth = exact_toy(m0[:, 0], g / 8 * np.array([[0.5], [1.0]]))
        assert found[m][..., k] == pytest.approx(truth, rel=1e-9)  # the promised accuracy
        assert found[r][..., k] == pytest.approx(g * truth, rel=1e-9)


def test_a_start_on_a_fixed_point_is_stated():
    flat = hermite_toy().integrate({}, [0.0, 1.0], start={m: 0})
    assert np.all(flat[m] == 0)
    assert flat.notes == ("The start (m) is a fixed point of the flow: nothing moves from there.",)
    some = hermite_toy().integrate({}, [1.0], start={m: [0.0, 0.1, 1.0]})
    assert some.notes == (
        "The start of 2 of 3 trajectories (m) is a fixed point of the flow: nothing moves from there.",
    )
    assert "nothing escapes" in hermite_toy().escape_time({}, 0.5, start={m: 0}).reason


def test_escape_times_of_a_derived_flow():
    found = hermite_toy().escape_time({d: 10**12}, 0.5)
    assert found.time == pytest.approx(13.2662044136297 / 8, rel=1e-9)  # the pitchfork, eight times as fast
    assert abs(found.time - 13.2662044136297 / 8) <= found.error
    both = compiled(flow(m, m), flow(e, -e + 0 * m), start={m: sp.Rational(1, 100), e: sp.Rational(9, 10)})
    assert both.escape_time({}, 0.5, of=[m]).time == pytest.approx(np.log(50), rel=1e-9)
    assert both.escape_time({}, 0.5).time == 0  # the norm of both starts beyond it


def test_flows_coupled_through_definitions_move_together():
    """m drives rate, which drives e; a rotation of m and e whose angle is exact."""
    system = compiled(
        flow(m, -rate), define(rate, 2 * e), flow(e, 2 * m), define(r, m**2 + e**2), start={m: sp.S.One, e: sp.S.Zero}
    )
    times = np.linspace(0, 5, 6)
    found = system.integrate({}, times)
    assert found[m] == pytest.approx(np.cos(2 * times), abs=1e-9)  # the promised accuracy
    assert found[rate] == pytest.approx(2 * np.sin(2 * times), abs=1e-9)
    assert found[r] == pytest.approx(np.ones(6), abs=1e-9)
    cascade = compiled(flow(m, -m), define(rate, m**2), flow(e, rate), start={m: sp.S.One, e: sp.S.Zero})
    assert cascade.integrate({}, times)[e] == pytest.approx((1 - np.exp(-2 * times)) / 2, abs=1e-9)


def test_what_a_flow_needs_is_solved_first_and_what_reads_it_at_every_time():
    system = compiled(
        define(q, sp.cos(q)),
        flow(m, -q * m),
        define(p, sp.tanh(m + p / 2)),
        define(b, b / 2 + 1),  # read by nobody here: not part of the integration
        start={m: sp.S.One},
    )
    times = np.array([0.0, 1.0, 3.0])
    found = system.integrate({}, times)
    assert b not in found.values
    dottie = mpmath.findroot(lambda t: mpmath.cos(t) - t, 0.7)
    for k, t in enumerate(times):
        overlap = mpmath.exp(-dottie * t)
        assert found[m][k] == pytest.approx(float(overlap), abs=1e-9)  # q to 1e-10
        truth = float(mpmath.findroot(lambda v, o=overlap: mpmath.tanh(o + v / 2) - v, 0.9))
        assert found[p][k] == pytest.approx(truth, abs=1e-9)
        assert abs(found[p][k] - truth) <= found.errors[p][k]


def test_a_flow_that_ends_raises():
    system = compiled(flow(m, m**2), start={m: sp.S.One})
    with pytest.raises(SolveError, match="grow without bound"):
        system.integrate({}, [0.5, 2.0])
    found = system.integrate({}, [0.5, 2.0], throw=False)
    assert found.status is Status.diverges
    assert np.isnan(found[m][1])


def test_verbs_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="use integrate"):
        compiled(flow(m, -m), start={m: sp.S.One}).solve({})
    with pytest.raises(ValueError, match="no flow"):
        compiled(define(r, 1)).integrate({}, [1.0])
    with pytest.raises(NotImplementedError, match="mixes flows"):
        compiled(flow(m, -p), define(p, sp.tanh(m + p / 2)), start={m: sp.S.One}).integrate({}, [1.0])
    with pytest.raises(ValueError, match="No start for m"):
        compiled(flow(m, -m)).integrate({}, [1.0])
    with pytest.raises(ValueError, match="outside its domain"):
        hermite_toy().integrate({}, [1.0], start={m: 2})
    with pytest.raises(ValueError, match=r"start names mm \(nearest: m\)"):
        hermite_toy().integrate({}, [1.0], start={"mm": 0.1})
    with pytest.raises(ValueError, match="one block"):
        compiled(define(a, sp.cos(a)), define(b, sp.sin(b))).fixed_points({})


def test_a_flow_that_leaves_its_domain_is_noted():
    found = compiled(flow(m, 1, sp.Interval(-1, 1)), start={m: sp.S.Zero}).integrate({}, [0.5, 2.0])
    assert found.notes == ("m leaves its domain Interval(-1, 1) along the flow.",)


def test_a_quadrature_error_in_the_rate_shows_in_the_flow():
    """dm/dt = E (x y - m)_+, sampled; the exact time to the m that it gives is an integral."""
    rate_of_m = Expectation(sp.Max(x * y - m, 0), [x, y], standard_normal(2))
    system = EquationSystem((flow(m, rate_of_m),), (), {m: sp.S.Zero})
    found = compile_system(system, ROUGH).integrate({}, [2.0], integrator=DormandPrince(rtol=1e-5))
    m_end = float(found[m][0])
    time = quad(lambda v: 1 / above(v), 0, m_end)[0]
    assert abs(time - 2) * above(m_end) <= found.error
    assert 1e-6 < found.error < 1e-2  # what a few thousand points give


# ------------------------------------------------------------------------------------------ iterate


def test_iterates_are_those_of_the_torn_map():
    system = compiled(
        define(m, sp.tanh(2 * r)),
        define(r, m / 2 + gain),
        define(p, m + 1),
        parameters=[quantity(gain)],
        start={m: sp.S.Zero, r: sp.S.Zero},
    )
    found = system.iterate({gain: 0.1}, 5)
    state = next(s for block in system.blocks for s in block.state)
    truth = [0.0]
    for _ in range(5):
        last = truth[-1]
        truth.append(np.tanh(2 * (last / 2 + 0.1)) if state == m else np.tanh(2 * last) / 2 + 0.1)
    assert found[state] == pytest.approx(truth, abs=1e-15)  # rounding
    assert found[p] == pytest.approx(found[m] + 1, abs=1e-15)
    assert found.axis is not None
    assert found.axis.tolist() == [0, 1, 2, 3, 4, 5]


def test_iterates_tell_what_they_do():
    swing = compiled(define(q, gain * sp.tanh(q)), parameters=[quantity(gain)], start={q: sp.S.One})
    cycle = swing.iterate({gain: -1.5}, 60)
    assert cycle.status is Status.oscillates
    assert abs(cycle[q][-1]) == pytest.approx(1.28783945496017, abs=1e-12)  # contracts by 0.15 a step
    assert swing.iterate({gain: 0.5}, 60).status is Status.converged
    assert swing.iterate({gain: 0.5}, 5).status is Status.max_steps
    assert compiled(define(q, sp.exp(q)), start={q: sp.S.One}).iterate({}, 9).status is Status.nonfinite
    with pytest.raises(SolveError, match="repeat in a cycle"):
        swing.solve({gain: -1.5}, solver=Picard())
    assert abs(swing.solve({gain: -1.5}, solver=Picard(damping=0.5))[q]) < 1e-11  # tolerance
    assert abs(swing.solve({gain: -1.5})[q]) < 1e-11


def test_iteration_and_solution_are_two_readings_of_one_system():
    system = magnetisation()
    assert system.iterate({}, 60)[q][-1] == pytest.approx(float(system.solve({})[q]), abs=1e-10)  # tolerance


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
