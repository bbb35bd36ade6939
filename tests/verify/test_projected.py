"""The projected simulation: equal in law to the d-dimensional one at d = 8, and not where it is made wrong.

Every comparison of laws rejects a correct simulation with a chance of at most 1e-6.
"""

from dataclasses import replace

import numba
import numpy as np
import pytest
import scipy.stats
import sympy as sp
import torch

from derive.document import TaskError
from derive.equations import Quantity
from derive.mechanisms.spherical_sgd import SphericalSgd
from derive.settings import Method
from derive.students import Reduction, StudentKind
from derive.task import derive
from derive.tasks.sequence_single_index import Start
from solve.certify import decide
from solve.compiled import compile_system
from solve.scalar import compile_scalar
from solve.solution import solve_derivation
from tests.verify.trainings import (
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
    squared,
    unsquared,
    untied_start,
    wrong_chains,
)
from verify.distance import compare_laws, distance, largest_distance
from verify.experiment import experiment
from verify.lower import lower
from verify.projected import project
from verify.simulation import Ensemble, replicate
from verify.simulations.projected_sgd import ProjectedSGD, field_slopes
from verify.simulations.sequence_single_index import ESCAPE, ESCAPE_TIME
from verify.statistics import Verdict, compare

HALF, QUARTER = sp.Rational(1, 2), sp.Rational(1, 4)
STEPS = (1, 2, 4, 8)
LAWS = {
    "tied, squared": network_task(StudentKind.TIED, 2, 1, {m: sp.Rational(4, 5)}),
    "untied, unsquared": network_task(StudentKind.UNTIED, 2, 4, untied_start("4/5"), unsquared),
    "attention, positions, unsquared": attention_task(2, 8, {m: HALF, e: HALF}, unsquared, OPPOSITE),
}
TASKS = {
    **LAWS,
    "trace, unsquared": attention_task(2, 1, Start.RANDOM, unsquared, OPPOSITE, Reduction(trace=True)),
    "left and right": attention_task(2, 1, Start.RANDOM, squared, None, Reduction((1, -2), (sp.Integer(3), HALF))),
    "jump": network_task(StudentKind.TIED, 2, 1, Start.RANDOM, squared, lambda u: sp.sign(u) + sp.tanh(u)),
    "a label not known to be real": replace(
        network_task(StudentKind.TIED, 1, 1, Start.RANDOM, unsquared),
        target=(sp.log(sp.Abs(sp.Symbol("z1", real=True))),),
    ),
}


# ---------------------------------------------------------------- the law


@pytest.mark.parametrize("name", LAWS)
def test_law_is_that_of_the_direct_simulation(name):
    task = LAWS[name]
    direct = direct_ensemble(task, 8, STEPS, 2500)
    chain, state = chain_of(task, 8)
    right = compare_laws([direct], [chain_ensemble(task, direct, chain, state, STEPS, 5000)])
    assert right.agrees, [(r.quantity, r.at, r.mean, r.allowed) for r in right.rows]
    wrong_ones = wrong_chains(task, chain, 8)
    if name == "tied, squared":
        wrong_ones["slopes"] = of_another_loss(task, chain, 8)
    for mutation, wrong in wrong_ones.items():
        report = compare_laws([direct], [chain_ensemble(task, direct, wrong, state, STEPS, 5000)])
        assert report.verdict is Verdict.disagrees, mutation


@pytest.mark.parametrize(
    ("name", "freedom"), [("tied, squared", 6), ("untied, unsquared", 13), ("attention, positions, unsquared", 5)]
)
def test_degrees_of_freedom(name, freedom):
    assert chain_of(LAWS[name], 8)[0].freedom == freedom  # d - 2, L (d - 1) - 1, d - 3


@pytest.mark.parametrize("name", TASKS)
def test_slopes_are_those_of_autograd(name):
    task = TASKS[name]
    code = compile_scalar(field_slopes(task), (*task.tokens, *task.student.fields))
    rng = np.random.default_rng(1)
    inputs = 1.5 * rng.standard_normal((20, len(task.tokens) + len(task.student.fields)))
    found = np.empty((20, len(task.student.fields)))
    for row, out in zip(inputs, found, strict=True):
        code(row, out)
    z = torch.from_numpy(inputs[:, : len(task.tokens)].T.copy())
    fields = torch.from_numpy(inputs[:, len(task.tokens) :].T.copy()).requires_grad_()
    loss = lower([task.loss(*task.student.output, *task.target)], (*task.tokens, *task.student.fields))
    (expected,) = torch.autograd.grad(loss((*z, *fields)).sum(), fields)
    np.testing.assert_allclose(found, expected.numpy().T, rtol=1e-11, atol=1e-13)  # rounding of some hundred operations


def test_landmarks_of_any_gram_matrix():
    """Positions along a direction at 60 degrees to the teacher, and a third landmark equal to the first."""
    z, u, o = sp.symbols("z1 z2", real=True), sp.Symbol("u", real=True), sp.symbols("o1:4", real=True)
    gram = sp.ImmutableDenseMatrix([[1, HALF, 1], [HALF, 1, HALF], [1, HALF, 1]])
    places = sp.ImmutableDenseMatrix([[0, 1, 0], [0, -2, 0]])
    mixing = sp.ImmutableDenseMatrix([[1, 1]]) / sp.sqrt(2)
    loss, rate, size, count = (sp.tanh(u) - z[0] + z[1] ** 2) ** 2 / 2, 2.0 / 10, 10, 4000
    problem = SphericalSgd((u,), z, ((0, 0), (1, 2)), mixing, o, gram, places, loss, sp.Integer(2))
    chain = project(problem, [loss.diff(u)], {}, rate, size)
    assert (chain.rank, chain.freedom) == (2, 7.0)
    np.testing.assert_allclose(chain.frame @ chain.frame.T, np.array(gram, dtype=float), atol=1e-15)
    start = (0.6, 0.7, 0.6)
    state = chain.prepared(start)
    rng = np.random.default_rng(1)
    found = np.stack([chain.run(rng, state, np.array(STEPS)).overlaps for _ in range(count)])
    expected = tied_tanh_run(start[:2], rate, size, count)
    np.testing.assert_array_equal(found[..., 0], found[..., 2])
    allowed = largest_distance(count, count, 1e-6 / 8)
    gaps = [distance(found[:, i, k], expected[:, i, k]) for i in range(len(STEPS)) for k in range(2)]
    assert max(gaps) < allowed  # false-alarm rate 1e-6
    alone = replace(chain, shift=0 * chain.shift)
    wrong = np.stack([alone.run(rng, state, np.array(STEPS)).overlaps for _ in range(count)])
    assert distance(wrong[:, -1, 1], expected[:, -1, 1]) > allowed
    with pytest.raises(ValueError, match="No vector on the sphere"):
        chain.prepared((0.6, 0.7, 0.5))
    impossible = replace(problem, gram=sp.ImmutableDenseMatrix([[1, 2, 0], [2, 1, 0], [0, 0, 1]]))
    with pytest.raises(ValueError, match="cannot have the Gram matrix"):
        project(impossible, [loss.diff(u)], {}, rate, size)


def tied_tanh_run(start, rate: float, size: int, count: int) -> np.ndarray:
    """Overlaps (count, n_steps, 2) with a = f_0 and b = f_0/2 + sqrt(3)/2 f_1 of unit vectors in all their entries."""
    rng = np.random.default_rng(2)
    a, b = np.zeros(size), np.zeros(size)
    a[0], b[0], b[1] = 1.0, 0.5, np.sqrt(0.75)
    along = np.array([start[0], (start[1] - start[0] / 2) / b[1]])
    w = np.zeros((count, size))
    w[:, :2], w[:, 2] = along, np.sqrt(1 - along @ along)
    found = []
    for n in range(1, max(STEPS) + 1):
        x = rng.standard_normal((count, 2, size))
        z = x[..., 0].copy()  # the teacher does not see positions
        x += np.array([[1.0], [-2.0]]) * b
        s = np.einsum("ntd,nd->n", x, w) / np.sqrt(2)
        slope = (np.tanh(s) - z[:, 0] + z[:, 1] ** 2) / np.cosh(s) ** 2
        w -= rate * slope[:, None] * x.sum(axis=1) / np.sqrt(2)
        w /= np.linalg.norm(w, axis=1)[:, None]
        if n in STEPS:
            found.append(np.stack([w @ a, w @ b], axis=1))
    return np.stack(found, axis=1)


# ---------------------------------------------------------------- starts, streams, what is observed


def test_starts_are_those_of_uniform_vectors():
    chain, _ = chain_of(LAWS["attention, positions, unsquared"], 8)
    rng = np.random.default_rng(0)
    free = np.stack([chain.drawn(rng) for _ in range(4000)])
    np.testing.assert_allclose((free**2).sum(axis=1), 1, rtol=1e-14)  # rounding
    # c_k^2 and |c|^2 of a uniform unit vector in R^8; the level of each of three tests is 1e-6
    for value, law in ((free[:, 0] ** 2, (0.5, 3.5)), (free[:, 1] ** 2, (0.5, 3.5)), (1 - free[:, 2] ** 2, (1, 3))):
        assert scipy.stats.kstest(value, "beta", args=law).pvalue > 1e-6
    held = np.stack([chain.drawn(rng, [1]) for _ in range(8000)])
    assert np.abs(held[:, 1]).max() < 1e-15
    assert scipy.stats.kstest(held[:, 0] ** 2, "beta", args=(0.5, 3.0)).pvalue > 1e-6
    assert scipy.stats.kstest(held[:, 0] ** 2, "beta", args=(0.5, 3.5)).pvalue < 1e-6  # the control: not in R^8


def test_starts_of_the_task():
    def first(task):
        return replicate(ProjectedSGD(task, times=(0.0,)), {}, size=50, seeds=range(40))

    prepared = first(attention_task(2, 1, {m: sp.Rational(3, 5), e: sp.Rational(4, 5)}, squared, OPPOSITE))
    np.testing.assert_allclose(prepared[m], 0.6, atol=1e-15)
    np.testing.assert_allclose(prepared[e], 0.8, atol=1e-15)
    orthogonal = first(attention_task(2, 1, Start.ORTHOGONAL, squared, OPPOSITE))
    assert np.abs(orthogonal[e]).max() < 1e-15
    assert 0.5 < orthogonal[m].std() * np.sqrt(50) < 1.5  # 4.5 sigma of 40 normal numbers
    random = first(attention_task(2, 1, Start.RANDOM, squared, OPPOSITE))
    assert 0.5 < random[e].std() * np.sqrt(50) < 1.5
    outside = attention_task(2, 1, {m: sp.Rational(4, 5), e: sp.Rational(4, 5)}, squared, OPPOSITE)
    with pytest.raises(ValueError, match="outside the unit sphere"):
        first(outside)


def test_replicas_do_not_depend_on_batch_threads_or_company(monkeypatch):
    simulation = ProjectedSGD(LAWS["tied, squared"], times=(0.5, 0.1, 2.0), escape=0.9, max_steps=500)
    whole = replicate(simulation, {}, size=20, seeds=range(12), batch=12)
    assert whole[m].shape == (12, 3)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 3)
    odd = replicate(simulation, {}, size=20, seeds=range(5, 12), batch=2)
    assert all(whole[q][5:].tobytes() == odd[q].tobytes() for q in whole.observed)
    assert len(np.unique(whole[m][:, 2])) == 12


def test_escape_is_the_first_step_at_the_threshold():
    task = network_task(StudentKind.TIED, 2, QUARTER, {m: sp.Rational(3, 10)})
    step = 0.25 / 50
    dense = replicate(ProjectedSGD(task, tuple(n * step for n in range(1500))), {}, size=50, seeds=range(12))
    path = np.abs(dense[m])
    expected = np.where((path >= 0.6).any(axis=1), (path >= 0.6).argmax(axis=1), np.nan)
    assert np.isfinite(expected).sum() > 2
    found = replicate(ProjectedSGD(task, escape=0.6, max_steps=1499), {}, size=50, seeds=range(12))
    assert list(found.observed) == [ESCAPE, ESCAPE_TIME]
    np.testing.assert_array_equal(found[ESCAPE], expected)
    np.testing.assert_allclose(found[ESCAPE_TIME], expected * step, rtol=1e-12)  # rounding of one product
    limit = int(np.nanmedian(expected))
    short = replicate(ProjectedSGD(task, (10.0,), 0.6, limit), {}, size=50, seeds=range(12))
    np.testing.assert_array_equal(short[ESCAPE], np.where(expected <= limit, expected, np.nan))
    assert np.isfinite(short[m]).all()


def test_a_run_that_blows_up_is_nan_and_ends():
    task = network_task(StudentKind.TIED, 1, sp.Integer(10) ** 300, Start.RANDOM, squared, lambda u: sp.exp(u**4))
    ensemble = replicate(ProjectedSGD(task, (1e300,), 1.0), {}, size=30, seeds=range(2))
    assert np.isnan(ensemble[m]).all()
    assert np.isnan(ensemble[ESCAPE]).all()


def test_parameters_and_the_dimension_enter():
    gamma, d = sp.Symbol("gamma", positive=True), sp.Symbol("d", positive=True)
    quantity = Quantity(gamma, "scale", sp.Interval.open(0, sp.oo))
    fixed = network_task(StudentKind.TIED, 2, sp.Rational(1, 20), {m: HALF})
    target = (fixed.target[0] * gamma,)
    scaled = replace(fixed, learning_rate=gamma / sp.sqrt(d), target=target, parameters=(quantity,))
    fixed = replace(fixed, target=(fixed.target[0] / 2,))
    a = replicate(ProjectedSGD(fixed, times=(1.0,)), {}, size=100, seeds=range(3))
    b = replicate(ProjectedSGD(scaled, times=(1.0,)), {gamma: 0.5}, size=100, seeds=range(3))
    np.testing.assert_allclose(a[m], b[m], rtol=1e-11)  # rounding of the rate and of 2000 steps
    with pytest.raises(ValueError, match=r"needs values for \['gamma'\]"):
        replicate(ProjectedSGD(scaled, times=(1.0,)), {}, size=100, seeds=[0])


def test_what_cannot_run_is_refused():
    task = LAWS["tied, squared"]
    with pytest.raises(ValueError, match="ProjectedSGD observes nothing"):
        ProjectedSGD(task)
    with pytest.raises(ValueError, match="need a size of"):
        replicate(ProjectedSGD(task, (1.0,)), {}, size=2, seeds=[0])
    flat = network_task(StudentKind.TIED, 1, 1, Start.RANDOM, squared, sp.sign)
    with pytest.raises(ValueError, match="nothing to train"):
        replicate(ProjectedSGD(flat, (1.0,)), {}, size=10, seeds=[0])


# ---------------------------------------------------------------- large dimensions, and the limit


def test_a_million_dimensions():
    task = network_task(StudentKind.TIED, 2, QUARTER, Start.RANDOM)
    ensemble = replicate(ProjectedSGD(task, (0.0, 0.05)), {}, size=10**6, seeds=range(2))
    assert ensemble.axis[1] == pytest.approx(0.05, rel=1e-12)  # 2e5 steps
    assert np.isfinite(ensemble[m]).all()
    assert np.abs(ensemble[m][:, 0]).max() < 6e-3  # 6 sigma


def test_the_flow_is_the_limit():
    task = network_task(StudentKind.TIED, 2, QUARTER, {m: HALF})
    times, size = (0.5, 1.5, 3.0), 10_000
    data = replicate(ProjectedSGD(task, times), {}, size=size, seeds=range(32))
    limit = compile_system(derive(task, order=2, decide=decide).system).integrate({}, data.axis)[m]
    right = compare([{m: limit}], [data], finite_size=True)
    assert right.agrees, [(r.at, r.predicted, r.mean, r.allowed) for r in right.rows]
    assert right.resolution < 0.02
    assert compare([{m: 1.02 * limit}], [data], finite_size=True).verdict is Verdict.disagrees


# ---------------------------------------------------------------- the distance, and the report


def test_distance_of_samples():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert distance(x, x + 0.5) == 0.25
    assert distance(x, np.array([2.5])) == 0.5
    assert distance(x, np.append(x[:3], np.nan)) == 0.25
    assert distance(x, x * (1 + 1e-14)) == 0  # rounding is no difference
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(200), rng.standard_normal(300)
    assert distance(a, b) == pytest.approx(scipy.stats.ks_2samp(a, b).statistic, rel=1e-12)


def test_false_alarms_of_the_distance_are_as_stated():
    rng = np.random.default_rng(3)
    allowed, trials = largest_distance(40, 160, 0.05), 2000
    alarms = sum(distance(rng.standard_normal(40), rng.standard_normal(160)) > allowed for _ in range(trials))
    assert 0.01 * trials < alarms < 0.05 * trials + 4.5 * np.sqrt(0.05 * trials)  # not above, and not idle


def test_ensembles_that_do_not_match_are_refused():
    a = Ensemble(10, (0, 1), np.array([1.0]), {m: np.zeros((2, 1))})
    with pytest.raises(ValueError, match="Simulate both at the same sizes and times"):
        compare_laws([a], [Ensemble(20, (0, 1), np.array([1.0]), {m: np.zeros((2, 1))})])
    with pytest.raises(ValueError, match="Simulate both at the same sizes and times"):
        compare_laws([a], [Ensemble(10, (0, 1), np.array([1.1]), {m: np.zeros((2, 1))})])


def test_a_dimension_that_a_method_does_not_take_is_refused():
    for method in (Method.DIRECT, Method.BOTH):
        derivation = derived(method, [100, 10**6])
        with pytest.raises(TaskError, match=f'too large for verify.method = "{method.value}".*"projected"'):
            experiment(derivation, solve_derivation(derivation, {}))
    plan = experiment(derived(Method.PROJECTED, [100, 10**6]), solve_derivation(derivation, {}))
    assert isinstance(plan.simulation, ProjectedSGD)
    derivation = derived(Method.PROJECTED, [2])
    with pytest.raises(TaskError, match="2 is too small"):
        experiment(derivation, solve_derivation(derivation, {}))
