from __future__ import annotations

import mpmath
import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad

from derive.equations import Define, EquationSystem, Flow, Quantity, Source
from derive.expectation import Expectation
from derive.measures import standard_normal
from solve.compiled import compile_system
from solve.domain import Disc
from solve.fixed_point import Picard, Stability
from solve.integrator import DormandPrince
from solve.result import SolveError, Status
from tests.solve.systems import (
    ROUGH,
    a,
    above,
    b,
    compiled,
    d,
    define,
    e,
    exact_toy,
    flow,
    gain,
    hermite_toy,
    m,
    magnetisation,
    p,
    q,
    quantity,
    r,
    rate,
    risk,
    x,
    y,
)

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
    system = EquationSystem((flow(m, rate_of_m),), (), {m: sp.Rational(1, 10)})
    found = compile_system(system, ROUGH).integrate({}, [1.0], integrator=DormandPrince(rtol=1e-3))
    m_end = float(found[m][0])
    time = quad(lambda v: 1 / above(v), 0.1, m_end)[0]
    assert abs(time - 1) * above(m_end) <= found.error
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


def test_fixed_points_of_a_flow_in_a_disc():
    """m grows once e has: minima at the four diagonal points, the axes and the origin are saddles."""
    system = compiled(
        flow(m, m * (e**2 - gain) * (1 - m**2)), flow(e, e * (1 - e**2 - m**2)), parameters=[quantity(gain)]
    )
    stable = [s for s in system.fixed_points({gain: 0.5}, Disc()) if s.stability is Stability.stable]
    assert system.flow_unknowns == (m, e)
    assert len(stable) == 4
    assert np.abs([s.at for s in stable]) == pytest.approx(np.full((4, 2), np.sqrt(0.5)), abs=1e-12)  # Newton
    # Jacobian at (1, 1)/sqrt 2: [[0, 1/2], [-1, -1]] up to signs, eigenvalues -1/2 (1 +- i)
    assert stable[0].eigenvalues.real == pytest.approx([-0.5, -0.5], abs=1e-8)  # differences


def test_an_array_that_only_a_reader_of_the_flow_needs() -> None:
    # dm/dt = -m, p = a m: one column of p for each a, whether or not their number equals that of the times
    m, a, p = sp.symbols("m a p", real=True)
    source = Source("derived", "test")
    flow, reader = Flow(Quantity(m, ""), -m, source), Define(Quantity(p, ""), a * m, source)
    compiled = compile_system(EquationSystem((flow, reader), (Quantity(a, ""),), {m: sp.S.One}))
    times = np.array([0.0, 1.0, 2.0])
    for count in (3, 4):
        values = np.arange(1.0, count + 1)
        found = compiled.integrate({"a": values}, times)[p]
        np.testing.assert_allclose(found, np.exp(-times)[:, None] * values, rtol=1e-9)  # the integrator's accuracy
