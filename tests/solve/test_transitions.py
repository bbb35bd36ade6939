"""The positional/semantic task: critical values, regions, basins, all at the level of the shipped example."""

import math

import numpy as np
import pytest
import sympy as sp

from derive.expectation import Expectation, expectations
from derive.rules import closed_form
from derive.task import load
from solve.critical import CriticalSystem
from solve.lower import lower
from solve.phases import Region, regions

# the note on the theory of this task: two independent computations agree to these digits
OMEGA_TRANS = 0.640962617902150045
OMEGA_EQUAL = 0.737606829256651943
OMEGA_LOST = 0.841605403938
OMEGA_GAINED = 0.508214237375


@pytest.fixture(scope="module")
def task():
    return load("positional-semantic")


@pytest.fixture(scope="module")
def critical(task):
    return CriticalSystem(task.thresholds())


def symbol(task, name):
    return next(q.symbol for q in task.parameters if q.symbol.name == name)


def values(critical, a):
    (parameter,) = critical.system.parameters
    return {s.name: c for s, c in critical.values({parameter.symbol: a}).items()}


def test_critical_values_at_the_reference_point(critical):
    found = values(critical, 1.0)
    wanted = {"trans": OMEGA_TRANS, "equal_loss": OMEGA_EQUAL, "semantic_lost": OMEGA_LOST}
    for name, value in (wanted | {"positional_gained": OMEGA_GAINED}).items():
        c = found[f"omega_{name}"]
        assert c.value == pytest.approx(value, abs=1e-12)  # the digits given
        assert c.error <= 1e-12


def test_where_critical_values_end(critical):
    """omega_trans reaches 1 at a = 0.724390881431; the corners are both minima down to a = 0.763500."""
    edge = 0.724390881431
    assert values(critical, edge + 1e-9)["omega_trans"].value == pytest.approx(1, abs=1e-7)
    below = values(critical, edge - 1e-9)["omega_trans"]
    assert math.isnan(below.value)
    assert "stays positive" in below.reason
    above, beneath = values(critical, 0.7636), values(critical, 0.7634)
    assert above["omega_positional_gained"].value < above["omega_semantic_lost"].value
    assert beneath["omega_positional_gained"].value > beneath["omega_semantic_lost"].value


def test_parameters_are_out_of_the_integrals(task):
    """A diagram over (omega, a) needs its integrals once."""
    own = {symbol(task, "omega"), symbol(task, "a")}
    for e in task.landscape.criteria:
        assert not any(own & x.free_symbols for x in expectations(e.value))
    assert not any(own & x.free_symbols for x in expectations(task.problem.gradient_norm))


MAPS = {
    1.0: [
        (0.4, Region.SEMANTIC_ONLY),
        (0.6, Region.BISTABLE_START_SEMANTIC),
        (0.7, Region.BISTABLE_SEMANTIC_GLOBAL_START_POSITIONAL),
        (0.8, Region.BISTABLE_POSITIONAL_GLOBAL),
        (0.9, Region.POSITIONAL_ONLY),
    ],
    0.85: [
        (0.7, Region.SEMANTIC_ONLY),
        (0.75, Region.BISTABLE_START_SEMANTIC),
        (0.82, Region.BISTABLE_SEMANTIC_GLOBAL_START_POSITIONAL),
        (0.89, Region.BISTABLE_POSITIONAL_GLOBAL),
        (0.95, Region.POSITIONAL_ONLY),
    ],
    0.77: [
        (0.9, Region.SEMANTIC_ONLY),
        (0.93, Region.SEMANTIC_ONLY_START_POSITIONAL),
        (0.95, Region.BISTABLE_SEMANTIC_GLOBAL_START_POSITIONAL),
        (0.96, Region.BISTABLE_POSITIONAL_GLOBAL),
        (0.98, Region.POSITIONAL_ONLY),
    ],
    0.74: [(0.95, Region.SEMANTIC_ONLY), (0.98, Region.SEMANTIC_ONLY_START_POSITIONAL), (0.993, Region.RIM)],
}


@pytest.mark.parametrize("a", MAPS)
def test_region_map(task, a):
    omegas, wanted = zip(*MAPS[a], strict=True)
    found = regions(task.landscape, {symbol(task, "omega"): np.array(omegas), symbol(task, "a"): a})
    assert tuple(found) == wanted


def test_the_sliver_before_the_positional_corner_is_a_minimum_on_the_rim(task):
    """At a = 0.77, omega = 0.9448 a minimum has appeared near the positional corner, and not yet at it."""
    m, e = task.landscape.overlaps
    at = {symbol(task, "omega"): sp.Rational("0.9448"), symbol(task, "a"): sp.Rational("0.77")}
    risk = lower([task.landscape.risk.xreplace(at)], [m, e])
    angle = np.linspace(0, np.pi / 2, 721)
    (r,), (error,) = risk(np.cos(angle), np.sin(angle))
    lowest = int(np.argmin(r[540:])) + 540  # beyond the barrier to the semantic corner, at 1.03
    assert 540 < lowest < 720
    assert r[720] - r[lowest] > 10 * error.max()


def test_b_of_e_is_closed(task):
    """E softmax(s s^T)_11 at shift e is 1 - exp(-e^2/2)/(2 sqrt 2): by tilting, with nothing typed in."""
    s1, s2, e = sp.symbols("s1 s2 e", real=True)
    from derive.functions import sigmoid
    from derive.measures import Gaussian

    mean = Expectation(sigmoid(s1 * (s1 - s2)), (s1, s2), Gaussian([e, -e], sp.eye(2)))
    assert sp.expand(closed_form(mean) - (1 - sp.exp(-(e**2) / 2) / (2 * sp.sqrt(2)))) == 0


# ------------------------------------------------------------ the loss and the target are the task's own


@pytest.mark.slow
def test_the_unsquared_loss_turns_elsewhere():
    """omega_trans = 0.628 for the Frobenius norm itself  [the note on this task, section 4]."""
    task = load("positional-semantic", {"training.loss": "sqrt(sum((f-y)**2))"})
    system = CriticalSystem(task.thresholds())
    assert [s.name for s in system.unknowns] == ["omega_trans"]
    (found,) = system.values({symbol(task, "a"): 1.0}).values()
    assert found.error <= 3e-3
    assert found.value == pytest.approx(0.628, abs=found.error + 5e-4)  # its last digit


def attention(s, scale):
    """softmax(scale s s^T) row by row: (2, 2, *B) of s: (2, *B)."""
    scores = scale * s[:, None] * s[None, :]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def risk_curvatures(omega, scale):
    """(R_mm, R_ee) at zero overlap by brute force: a product rule, and a Hermite expansion to degree 2."""
    x, w = np.polynomial.hermite_e.hermegauss(90)
    w = w / w.sum()
    z = np.stack(np.meshgrid(x, x, indexing="ij"))
    weight = np.outer(w, w)

    def mean(f):
        return (f * weight).sum(axis=(-2, -1))

    fixed = attention(np.array([1.0, -1.0]), 1.0)[:, :, None, None]
    label = (1 - omega) * attention(z, scale) + omega * fixed
    degree_two = [(z[0] ** 2 - 1) / np.sqrt(2), (z[1] ** 2 - 1) / np.sqrt(2), z[0] * z[1]]
    overlap = sum((mean(label * h) * mean(attention(z, 1.0) * h)).sum() for h in degree_two)

    def at(e):
        shifted = attention(z + np.array([e, -e])[:, None, None], 1.0)
        return (mean(shifted**2) / 2 - mean(shifted) * mean(label)).sum()

    h = 0.05
    curvature = (-at(2 * h) + 16 * at(h) - 30 * at(0) + 16 * at(-h) - at(-2 * h)) / (12 * h * h)
    return -2 * overlap, curvature


@pytest.mark.parametrize("scale", ["1", "1/2"])
def test_an_inner_scale_moves_the_transition(scale):
    changes = {"target.formula": f"(1-omega)*softmax({scale}*outer(z,z)) + omega*softmax([[a**2,-a**2],[-a**2,a**2]])"}
    task = load("positional-semantic", changes)
    (turn,) = (e for e in task.thresholds().equations if e.unknown.symbol.name == "omega_trans")
    value = lower([turn.rhs], [turn.unknown.symbol, symbol(task, "a")])
    for omega in (0.4, 0.7):
        r_mm, r_ee = risk_curvatures(omega, float(sp.Rational(scale)))
        assert value(omega, 1.0)[0][0] == pytest.approx((r_ee - r_mm) / 2, abs=2e-6)  # the rule's error: h^4, poles
