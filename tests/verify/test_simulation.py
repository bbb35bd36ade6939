"""Streams, batching and the d-dimensional SGD: bitwise repeatable, one step by full autograd, its law projected."""

import concurrent.futures
import math
import multiprocessing

import numpy as np
import pytest
import sympy as sp
import torch

from derive.equations import Quantity
from derive.functions import orthonormal, relu, softmax
from derive.students import StudentKind, attention_student, network
from derive.tasks.sequence_single_index import SequenceSingleIndex, Start
from verify.lower import lower
from verify.simulation import Ensemble, fill_normal, normal, replicate, row_sums, stream, tree_sums
from verify.simulations import direct_sgd as module
from verify.simulations.sequence_single_index import ESCAPE, ESCAPE_TIME, SphericalSGD
from verify.statistics import Verdict, compare, compare_ensembles

CPU = torch.device("cpu")
m, e = sp.symbols("m e", real=True)
gamma = sp.Symbol("gamma", positive=True)
d = sp.Symbol("d", positive=True)
OPPOSITE = sp.ImmutableDenseMatrix([[1], [-1]])


def half_squares(n: int) -> sp.Lambda:
    f, y = sp.symbols(f"f1:{n + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    return sp.Lambda((*f, *y), sum((a - b) ** 2 for a, b in zip(f, y, strict=True)) / 2)


QUARTER = sp.Rational(1, 4)


def hermite_sum(length, kind=StudentKind.TIED, rate=QUARTER, start=Start.RANDOM, parameters=()):
    z, u = sp.symbols(f"z1:{length + 1}", real=True), sp.Symbol("u", real=True)
    target = (sum(orthonormal(2, t) for t in z),)
    student = network(kind, length, sp.Lambda(u, relu(u)))
    return SequenceSingleIndex(length, parameters, z, target, student, half_squares(1), rate, start)


def attention(length=2, start=Start.RANDOM, positions=None):
    z = sp.symbols(f"z1:{length + 1}", real=True)
    target = softmax(sp.Matrix(z) * sp.Matrix(z).T)
    if positions is not None:
        target = sp.Rational(2, 5) * target + sp.Rational(3, 5) * softmax(positions * positions.T)
    student = attention_student(length)
    loss = half_squares(length**2)
    return SequenceSingleIndex(length, (), z, tuple(target), student, loss, sp.S.Half, start, positions)


TASKS = {
    "tied": hermite_sum(3),
    "untied": hermite_sum(2, StudentKind.UNTIED),
    "attention": attention(3),
    "positions": attention(2, {m: sp.Rational(1, 10), e: sp.Rational(1, 5)}, OPPOSITE),
}


def same_bits(a: Ensemble, b: Ensemble, rows: slice = slice(None)) -> bool:
    return all(a[q][rows].tobytes() == b[q].tobytes() for q in a.observed)


# ---------------------------------------------------------------- A43: streams and batching


@pytest.mark.parametrize(("name", "size"), [("tied", 37), ("untied", 101), ("attention", 37), ("positions", 128)])
def test_replicas_do_not_depend_on_the_batching(name, size):
    task = TASKS[name]
    simulation = SphericalSGD(task, times=(0.0, 0.1, 0.3), escape=0.9, max_steps=100)
    whole = replicate(simulation, {}, size=size, seeds=range(64), batch=64, device=CPU)
    assert whole[ESCAPE].shape == (64,)
    assert np.isfinite(whole[task.overlap_symbols[0]]).all()
    in_eights = replicate(simulation, {}, size=size, seeds=range(64), batch=8, device=CPU)
    assert same_bits(whole, in_eights)
    odd = replicate(simulation, {}, size=size, seeds=range(10, 15), batch=3, device=CPU)
    assert same_bits(whole, odd, slice(10, 15))


def test_replicas_do_not_depend_on_the_process():
    simulation = SphericalSGD(TASKS["positions"], times=(0.5,))
    here = replicate(simulation, {}, size=40, seeds=range(16), device=CPU)
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        there = pool.submit(replicate, simulation, {}, size=40, seeds=range(8, 16), device=CPU).result()
    assert same_bits(here, there, slice(8, 16))


def test_replicas_do_not_depend_on_the_threads():
    simulation = SphericalSGD(TASKS["attention"], times=(0.02,))  # 64 * 3 * 500 numbers: torch splits the work
    one = replicate(simulation, {}, size=500, seeds=range(64), device=CPU)
    torch.set_num_threads(3)
    try:
        three = replicate(simulation, {}, size=500, seeds=range(64), device=CPU)
    finally:
        torch.set_num_threads(1)
    assert same_bits(one, three)


@pytest.mark.gpu
@pytest.mark.parametrize("name", TASKS)
def test_replicas_do_not_depend_on_the_batching_on_cuda(name):
    simulation = SphericalSGD(TASKS[name], times=(0.5,))
    cuda = torch.device("cuda")
    whole = replicate(simulation, {}, size=100, seeds=range(64), device=cuda)
    assert same_bits(whole, replicate(simulation, {}, size=100, seeds=range(64), batch=8, device=cuda))


def test_streams_differ_between_seeds_and_sizes():
    simulation = SphericalSGD(TASKS["tied"], times=(1.0,))
    keys = [(size, seed) for size in (100, 200, 400) for seed in range(300)]
    first = normal([stream(simulation, size, seed, CPU) for size, seed in keys], (2,))
    assert len({tuple(x.tolist()) for x in first}) == len(keys)
    columns = first[:, 0].reshape(3, 300)
    assert np.abs(np.corrcoef(columns)[np.triu_indices(3, 1)]).max() < 4.5 / math.sqrt(300)  # 4.5 sigma, 3 pairs
    with pytest.raises(ValueError, match="given twice"):
        replicate(simulation, {}, size=10, seeds=[1, 1])
    with pytest.raises(ValueError, match=r"from 0 to 2\*\*32 - 1"):
        replicate(simulation, {}, size=10, seeds=[2**32])
    with pytest.raises(ValueError, match="at least 1"):
        replicate(simulation, {}, size=0, seeds=[1])


def test_normals_are_normal_and_padding_stays():
    out = torch.zeros(3, 40000)
    fill_normal(out, [torch.Generator().manual_seed(s) for s in (1, 2)])
    x = out[:2].double().numpy()
    n = x.size
    for k, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt((math.factorial(2 * k) / (2**k * math.factorial(k)) - moment**2) / n)
        assert np.mean(x**k) == pytest.approx(moment, abs=5 * spread)  # 5 sigma, 4 moments
    assert not out[2].any()


@pytest.mark.parametrize("width", [1, 2, 37, 1000])
def test_sums_do_not_depend_on_the_number_of_rows(width):
    x = torch.randn(64, 3, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for total in (row_sums, tree_sums):  # the second is what CUDA uses
        torch.testing.assert_close(total(x), torch.from_numpy(x.numpy().sum(-1)), rtol=1e-12, atol=1e-13)  # rounding
        for k in (1, 7, 16):
            assert torch.equal(total(x)[:k], total(x[:k].contiguous()))


# ---------------------------------------------------------------- the model


def full_autograd_step(task: SequenceSingleIndex, w, teacher, tokens, rate):
    """One step of one replica in the units of the model: w (K, d), tokens (L, d), autograd down to w."""
    size, length = tokens.shape[1], task.length
    w = w.clone().requires_grad_()
    if task.student.kind is StudentKind.UNTIED:
        s = [sum(w[i] @ tokens[i] for i in range(length)) / math.sqrt(length)]
    else:
        s = [w[0] @ t for t in tokens]
    fields = [sum(float(c) * v for c, v in zip(row, s, strict=True)) for row in task.student.mixing.tolist()]
    f = lower(task.student.output, task.student.fields)(fields)
    y = lower(task.target, task.tokens)([t @ teacher for t in tokens])
    names = sp.symbols(f"p1:{2 * len(f) + 1}")
    lower([task.loss(*names)], names)([*f, *y])[0].backward()
    new = w.detach() - rate * w.grad
    return new * math.sqrt(len(w) * size) / new.norm()


@pytest.mark.parametrize("name", TASKS)
def test_steps_are_those_of_full_autograd(name):
    task, size, replicas = TASKS[name], 23, 2
    rate = float(task.learning_rate)
    model = module._model(task, SphericalSGD(task, times=(0.0,)).clock({}, size), CPU)
    generators = [torch.Generator().manual_seed(s) for s in range(replicas)]
    u, q = module._start(model, generators)
    x = torch.randn(6, len(u), task.length, size, dtype=torch.float64, generator=generators[0])
    root = math.sqrt(size)
    w = [u[r] * math.sqrt(model.vectors * size) for r in range(replicas)]
    truth = model.truth(x, q[:, :1])
    if task.positions is not None:
        x = x + module._combine(model.positions, q[:, 1:])
    history = module._advance(model, u, q, x, truth)
    for r in range(replicas):
        for t in range(len(x)):
            w[r] = full_autograd_step(task, w[r], q[r, 0] * root, x[t, r] / root, rate)
            overlaps = w[r] @ q[r].T / math.sqrt(model.vectors * size)
            torch.testing.assert_close(history[t, r], overlaps.flatten(), rtol=1e-11, atol=1e-13)  # rounding, 6 steps
        torch.testing.assert_close(u[r] * math.sqrt(model.vectors * size), w[r], rtol=1e-11, atol=1e-12)


def test_positions_shift_the_fields_by_the_overlap():
    task = TASKS["positions"]
    model = module._model(task, SphericalSGD(task, times=(0.0,)).clock({}, 50), CPU)
    u, q = module._start(model, [torch.Generator().manual_seed(0)])
    shift = module._combine(model.positions, q[:, 1:])[0]
    torch.testing.assert_close(shift @ u[0, 0], torch.tensor([0.2, -0.2], dtype=torch.float64), rtol=1e-13, atol=0)
    assert (shift @ q[0, 0]).abs().max() < 1e-14  # orthogonal to the teacher: z* does not see it


def start_of(task, size=200, seeds=400):
    ensemble = replicate(SphericalSGD(task, times=(0.0,)), {}, size=size, seeds=range(seeds), device=CPU)
    return [ensemble[s][:, 0] for s in task.overlap_symbols]


def test_prepared_starts_are_exact():
    found = start_of(TASKS["positions"], seeds=8)
    np.testing.assert_allclose(found, np.array([[0.1] * 8, [0.2] * 8]), atol=1e-14)  # rounding of 200 products
    mu1, mu2 = sp.symbols("mu1 mu2", real=True)
    task = hermite_sum(2, StudentKind.UNTIED, start={mu1: sp.Rational(3, 5), mu2: -1 / sp.sqrt(d)})
    np.testing.assert_allclose(start_of(task, 100, 4), [[0.6] * 4, [-0.1] * 4], atol=1e-14)
    rim = attention(2, {m: sp.Rational(3, 5), e: sp.Rational(4, 5)}, OPPOSITE)
    np.testing.assert_allclose(start_of(rim, 30, 3), [[0.6] * 3, [0.8] * 3], atol=1e-14)


@pytest.mark.parametrize(
    "task", [TASKS["tied"], TASKS["untied"], attention(2, Start.RANDOM, OPPOSITE)], ids=["tied", "untied", "positions"]
)
def test_random_starts_have_variance_one_over_the_dimension(task):
    dimension = 200 * (2 if task.student.kind is StudentKind.UNTIED else 1)
    for overlap in start_of(task):
        scaled = overlap * math.sqrt(dimension)
        assert scaled.mean() == pytest.approx(0, abs=4.5 / 20)  # 4.5 sigma
        assert scaled.var() == pytest.approx(1, abs=4.5 * math.sqrt(2) / 20)  # 4.5 sigma


def test_orthogonal_start_has_no_positional_overlap():
    semantic, positional = start_of(attention(2, Start.ORTHOGONAL, OPPOSITE))
    assert np.abs(positional).max() < 1e-15
    assert semantic.var() * 200 == pytest.approx(1, abs=4.5 * math.sqrt(2) / 20)  # 4.5 sigma


def test_times_are_taken_at_the_nearest_step():
    simulation = SphericalSGD(TASKS["tied"], times=(0.0, 0.1, 0.1024, 1.0))
    ensemble = replicate(simulation, {}, size=100, seeds=range(3), device=CPU)
    step = 0.25 / 100
    np.testing.assert_allclose(ensemble.axis, np.array([0, 40, 41, 400]) * step, rtol=1e-15)
    assert ensemble[m].shape == (3, 4)
    assert ensemble[m].dtype == np.float64
    untied = SphericalSGD(TASKS["untied"], times=(0.1,))
    assert replicate(untied, {}, size=100, seeds=[0]).axis[0] == 80 * step / 2  # tau = lr n/(L d)
    with pytest.raises(KeyError, match="was not observed"):
        ensemble[e]


def test_escape_is_the_first_step_at_the_threshold():
    task = hermite_sum(2, start={m: sp.Rational(3, 10)})
    step = 0.25 / 50
    dense = SphericalSGD(task, times=tuple(n * step for n in range(1500)))
    path = np.abs(replicate(dense, {}, size=50, seeds=range(12), device=CPU)[m])
    expected = np.where((path >= 0.6).any(axis=1), (path >= 0.6).argmax(axis=1), np.nan)
    assert np.isfinite(expected).sum() > 2
    found = replicate(SphericalSGD(task, escape=0.6, max_steps=1499), {}, size=50, seeds=range(12), device=CPU)
    assert list(found.observed) == [ESCAPE, ESCAPE_TIME]
    np.testing.assert_allclose(found[ESCAPE_TIME], expected * step, rtol=1e-12)  # rounding of one product
    np.testing.assert_array_equal(found[ESCAPE], expected)
    limit = int(np.nanmedian(expected))
    short = replicate(SphericalSGD(task, escape=0.6, max_steps=limit), {}, size=50, seeds=range(12), device=CPU)
    np.testing.assert_array_equal(short[ESCAPE], np.where(expected <= limit, expected, np.nan))
    at_once = replicate(SphericalSGD(task, escape=0.3 - 1e-9), {}, size=50, seeds=range(3), device=CPU)
    assert at_once[ESCAPE].tolist() == [0, 0, 0]


def test_escape_is_of_the_norm_of_all_overlaps():
    task = attention(2, {m: sp.Rational(3, 5), e: sp.Rational(3, 5)}, OPPOSITE)
    escape = replicate(SphericalSGD(task, escape=0.8), {}, size=40, seeds=range(4), device=CPU)[ESCAPE]
    assert escape.tolist() == [0] * 4  # |(0.6, 0.6)| = 0.85, each alone is below


def test_a_run_that_blows_up_is_nan_and_ends():
    x, u = sp.symbols("z1 u", real=True)
    student = network(StudentKind.TIED, 1, sp.Lambda(u, sp.exp(u**4)))
    task = SequenceSingleIndex(1, (), (x,), (x,), student, half_squares(1), sp.Integer(10) ** 300, Start.RANDOM)
    ensemble = replicate(SphericalSGD(task, times=(1e300,), escape=1.0), {}, size=30, seeds=range(2), device=CPU)
    assert np.isnan(ensemble[m]).all()
    assert np.isnan(ensemble[ESCAPE]).all()


def test_parameters_and_the_dimension_enter_the_rate():
    quantity = Quantity(gamma, "scale of the learning rate", sp.Interval.open(0, sp.oo))
    fixed = hermite_sum(2, rate=sp.Rational(1, 20))
    scaled = hermite_sum(2, rate=gamma / sp.sqrt(d), parameters=(quantity,))
    a = replicate(SphericalSGD(fixed, times=(1.0,)), {}, size=100, seeds=range(3), device=CPU)
    b = replicate(SphericalSGD(scaled, times=(1.0,)), {gamma: 0.5}, size=100, seeds=range(3), device=CPU)
    np.testing.assert_allclose(a[m], b[m], rtol=1e-12)  # rounding of the rate
    with pytest.raises(ValueError, match=r"needs values for \['gamma'\]"):
        replicate(SphericalSGD(scaled, times=(1.0,)), {}, size=100, seeds=[0])
    with pytest.raises(ValueError, match="outside its domain"):
        replicate(SphericalSGD(scaled, times=(1.0,)), {gamma: -0.5}, size=100, seeds=[0])
    with pytest.raises(ValueError, match="outside its domain"):
        replicate(SphericalSGD(scaled, times=(1.0,)), {gamma: math.nan}, size=100, seeds=[0])
    with pytest.raises(ValueError, match=r"does not know \['m'\]"):
        replicate(SphericalSGD(fixed, times=(1.0,)), {m: 1.0}, size=100, seeds=[0])


def test_what_cannot_be_observed_or_started_is_refused():
    task = TASKS["tied"]
    for arguments in ({}, {"times": (-1.0,)}, {"times": (math.inf,)}, {"escape": 0.0}, {"escape": 1.5}):
        with pytest.raises(ValueError, match="SphericalSGD"):
            SphericalSGD(task, **arguments)
    outside = attention(2, {m: sp.Rational(4, 5), e: sp.Rational(4, 5)}, OPPOSITE)
    with pytest.raises(ValueError, match="outside the unit sphere"):
        start_of(outside)
    with pytest.raises(ValueError, match="need a size of"):
        start_of(task, size=2)


# ---------------------------------------------------------------- the law, against a chain of other origin


def projected_chain(length: int, gamma_: float, m0: float, size: int, taus: list[float], trials: int, seed: int):
    """|w| and the overlap of the tied ReLU student on sum h2, exact in law: numpy, no d-dimensional vector.

    w/|w| = m q + r v: s = m a + r b with a, b the sums of alpha_i, zeta_i over sqrt L; the rest of the step is
    a vector of chi^2_{d-2} squared length.
    """
    rng = np.random.default_rng(seed)
    h = gamma_ / size
    steps = np.rint(np.array(taus) / h).astype(int)
    c, out = np.full(trials, m0), []
    for n in range(steps.max() + 1):
        if n in steps:
            out.append(c.copy())
        z = rng.standard_normal((trials, length))
        a = z.sum(1) / math.sqrt(length)
        b = rng.standard_normal(trials)
        r = np.sqrt(1 - c**2)
        u = c * a + r * b
        slope = (np.maximum(u, 0) - ((z**2 - 1) / math.sqrt(2)).sum(1)) * (u > 0)
        along, across = c - h * slope * a, r - h * slope * b
        rest = (h * slope) ** 2 * rng.chisquare(size - 2, trials)
        c = along / np.sqrt(along**2 + across**2 + rest)
    axis = steps * h
    return Ensemble(size, tuple(range(trials)), axis, {m: np.array(out).T})


def test_law_is_that_of_the_projected_chain():
    task = hermite_sum(2, rate=sp.Rational(2, 5), start={m: sp.Rational(3, 10)})
    taus = (0.0, 0.5, 1.5, 3.0)
    simulation = SphericalSGD(task, times=taus)
    direct = replicate(simulation, {}, size=60, seeds=range(384), device=CPU)
    squared = {q: v**2 for q, v in direct.observed.items()}
    for rate, verdict in ((0.4, Verdict.agrees), (0.6, Verdict.disagrees)):
        chain = projected_chain(2, rate, 0.3, 60, list(taus), 8000, 1)
        if rate != 0.4:  # the same times, reached by another learning rate
            chain = Ensemble(60, chain.seeds, direct.axis, chain.observed)
        report = compare_ensembles([direct], [chain])
        assert report.verdict is verdict, [(r.at, r.mean, r.predicted, r.stderr) for r in report.rows]
        second = compare_ensembles(
            [Ensemble(60, direct.seeds, direct.axis, squared)],
            [Ensemble(60, chain.seeds, direct.axis, {m: chain[m] ** 2})],
        )
        assert second.agrees is (verdict is Verdict.agrees)


@pytest.mark.slow
def test_the_limit_is_the_reference_trajectory():
    """The flow is autonomous: the table from m = 0.1, entered at its third value."""
    task = hermite_sum(3, start={m: sp.Rational(3237, 10000)})
    limit = np.array([0.3237, 0.5103, 0.6716, 0.7549, 0.7848])
    simulation = SphericalSGD(task, times=(0.0, 2.0, 4.0, 6.0, 8.0))
    data = [replicate(simulation, {}, size=size, seeds=range(64), device=CPU) for size in (100, 200, 400)]
    right = compare([{m: limit}] * 3, data)
    assert right.agrees, [(r.at, r.size, r.predicted, r.mean, r.stderr, r.note) for r in right.rows]
    late = compare([{m: np.where(np.arange(5) > 0, 1.05 * limit, limit)}] * 3, data)
    assert right.resolution < 0.05
    assert late.verdict is Verdict.disagrees  # the negative control: 5 per cent
