"""The projected simulation against the d-dimensional one at length: every kind of student and loss, d = 8 and 40.

Every comparison of laws rejects a correct simulation with a chance of at most 1e-6.
"""

from dataclasses import replace

import numpy as np
import pytest
import sympy as sp

from derive.settings import Method
from derive.students import Reduction, StudentKind
from derive.tasks.sequence_single_index import Start
from tests.verify.trainings import (
    CPU,
    OPPOSITE,
    attention_task,
    chain_ensemble,
    chain_of,
    derived,
    direct_ensemble,
    e,
    m,
    network_task,
    of_another_loss,
    projected_ensemble,
    squared,
    unsquared,
    untied_start,
)
from verify.check import check, check_record
from verify.distance import compare_laws
from verify.simulation import replicate
from verify.simulations.sequence_single_index import ProjectedSGD, SphericalSGD
from verify.statistics import Verdict

pytestmark = pytest.mark.slow

HALF = sp.Rational(1, 2)
TRACE = Reduction(trace=True)
ENDS = Reduction((1, -2, 1), (sp.Integer(3), HALF, sp.Integer(-1)))
PLACES = sp.ImmutableDenseMatrix([[1, 0], [0, 1], [-1, HALF]])
STUDENTS = {
    "tied": lambda loss: network_task(StudentKind.TIED, 3, 1, {m: HALF}, loss),
    "tied, tanh": lambda loss: network_task(StudentKind.TIED, 2, 1, Start.RANDOM, loss, sp.tanh),
    "untied": lambda loss: network_task(StudentKind.UNTIED, 2, 2, untied_start("1/2", "-1/2"), loss),
    "untied, random": lambda loss: network_task(StudentKind.UNTIED, 3, 2, Start.RANDOM, loss),
    "attention": lambda loss: attention_task(2, 4, {m: HALF}, loss),
    "trace": lambda loss: attention_task(2, 4, Start.RANDOM, loss, None, TRACE),
    "left and right": lambda loss: attention_task(3, 1, {m: HALF}, loss, None, ENDS),
    "positions": lambda loss: attention_task(2, 4, {m: HALF, e: HALF}, loss, OPPOSITE),
    "orthogonal start": lambda loss: attention_task(2, 4, Start.ORTHOGONAL, loss, OPPOSITE),
    "positions in a plane": lambda loss: attention_task(3, 4, Start.RANDOM, loss, PLACES, TRACE),
}


@pytest.mark.parametrize("size", [8, 40])
@pytest.mark.parametrize("loss", [squared, unsquared])
@pytest.mark.parametrize("name", STUDENTS)
def test_laws_are_equal(name, loss, size):
    task, steps = STUDENTS[name](loss), (0, 3, 12) if size == 8 else (0, 10, 40)
    report = compare_laws([direct_ensemble(task, size, steps, 1000)], [projected_ensemble(task, size, steps, 3000)])
    assert report.agrees, [(r.quantity, r.at, r.mean, r.allowed) for r in report.rows]


@pytest.mark.parametrize(
    ("task", "right", "wrong"),
    [
        (network_task(StudentKind.TIED, 2, 1, {m: sp.Rational(4, 5)}), 6, (7, 8)),
        (network_task(StudentKind.UNTIED, 2, 2, untied_start("4/5"), unsquared), 13, (14, 16)),
        (attention_task(3, 8, {m: sp.Rational(4, 5)}), 6, (7, 8)),
    ],
    ids=["tied", "untied", "attention"],
)
def test_one_degree_of_freedom_is_seen(task, right, wrong):
    """D - K - 1, neither D - K nor D: at d = 8."""
    steps = (1, 2, 4, 8, 12)
    direct, (chain, state) = direct_ensemble(task, 8, steps, 10_000), chain_of(task, 8)
    assert chain.freedom == right
    for freedom in (right, *wrong):
        other = chain_ensemble(task, direct, replace(chain, freedom=float(freedom)), state, steps, 30_000)
        expected = Verdict.agrees if freedom == right else Verdict.disagrees
        assert compare_laws([direct], [other]).verdict is expected, freedom


@pytest.mark.parametrize("name", ["untied", "attention", "positions", "left and right"])
@pytest.mark.parametrize("loss", [squared, unsquared])
def test_the_slopes_of_another_loss_are_seen(name, loss):
    task, steps = STUDENTS[name](loss), (1, 3, 12)
    direct, (chain, state) = direct_ensemble(task, 8, steps, 2500), chain_of(task, 8)
    wrong = chain_ensemble(task, direct, of_another_loss(task, chain, 8), state, steps, 8000)
    assert compare_laws([direct], [wrong]).verdict is Verdict.disagrees


def test_escapes_are_equal_in_law():
    task = network_task(StudentKind.TIED, 2, sp.Rational(1, 4), Start.RANDOM)
    arguments = {"escape": 0.5, "max_steps": 2000}
    direct = replicate(SphericalSGD(task, **arguments), {}, size=40, seeds=range(1000), device=CPU, batch=1000)
    projected = replicate(ProjectedSGD(task, **arguments), {}, size=40, seeds=range(4000), batch=1024)
    report = compare_laws([direct], [projected])
    assert report.agrees, [(r.quantity, r.mean, r.allowed) for r in report.rows]
    slower = replace(task, learning_rate=sp.Rational(1, 5))
    other = replicate(ProjectedSGD(slower, **arguments), {}, size=40, seeds=range(4000), batch=1024)
    assert compare_laws([direct], [other]).verdict is Verdict.disagrees


@pytest.mark.parametrize("dimensions", [(30,), (20, 40, 80)])
def test_both_methods_are_compared(dimensions):
    found = check(derived(Method.BOTH, dimensions))
    record = check_record(found)
    rows = record["rows"]
    distances = [r for r in rows if r["quantity"] == "KS(m)"]
    assert [r["dimension"] for r in distances[:: len(distances) // len(dimensions)]] == list(dimensions)
    assert all(r["predicted"] == 0 and r["mean"] < r["allowed"] and r["stderr"] is None for r in distances)
    assert found.verdict is Verdict.agrees
    assert found.control is not None
    if len(dimensions) == 1:  # the means are tested against the other simulation's, the theory informs
        assert "learning rate times" in found.control.mutation
        tested = [r for r in rows if r["quantity"] == "m" and r["agrees"] is not None]
        assert len(tested) == len(distances)
    else:
        assert "drift" in found.control.mutation


def test_the_projected_method_takes_large_dimensions():
    found = check(derived(Method.PROJECTED, (1000, 10_000, 100_000), seeds=16))
    assert found.verdict is Verdict.agrees
    assert found.comparison.resolution < 0.01
    assert isinstance(found.plan.simulation, ProjectedSGD)
    assert np.isfinite(found.ensembles[-1][m]).all()
