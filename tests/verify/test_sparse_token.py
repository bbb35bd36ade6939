"""The samplers of sequences and features, the steps' gradients, separability: by hand, by counting, by known laws."""

import itertools
import math

import numpy as np
import pytest
import sympy as sp
import torch
from scipy import stats

from derive.document import TaskError
from derive.task import derive, load
from solve.solution import Solution
from verify import token_samples
from verify.erm import Problem, minimise
from verify.erm_observations import Fresh
from verify.loss import LoweredLoss
from verify.simulation import replicate
from verify.simulations import convex_erm, sparse_token
from verify.simulations.sparse_token import Separability, SparseTokenSimulation

CPU = torch.device("cpu")
y, u = sp.symbols("y u", real=True)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def at_defaults(task):
    return {q.symbol: float(task.values.get(q.symbol, q.default)) for q in task.parameters}


def data(length=6, signals=2, theta=3.0, pi=0.3, weights=None):
    return token_samples.TokenData(length, signals, theta, pi, weights)


# ---------------------------------------------------------------- sequences


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 3.0, 0.0, 5.0)])
def test_signals_lie_in_sets_with_the_product_of_their_weights(weights):
    law = data(5, 2, 1.5, 0.3, None if weights is None else torch.tensor(weights, dtype=torch.float64))
    n = 40_000
    labels = law.labels(n, generator())
    signal = law.signal(labels, generator(1)).numpy()
    positive = labels.numpy() > 0
    assert positive.mean() == pytest.approx(0.3, abs=4.5 * math.sqrt(0.21 / n))  # 4.5 sigma
    assert not signal[~positive].any()
    assert set(np.unique(signal[positive])) == {0.0, 1.5}
    sets = list(itertools.combinations(range(5), 2))
    found = [int((signal[positive][:, list(s)] > 0).all(axis=1).sum()) for s in sets]
    assert sum(found) == positive.sum()
    chance = np.array([1.0 if weights is None else weights[i] * weights[j] for i, j in sets])
    drawn = chance > 0
    assert not np.array(found)[~drawn].any()
    expected = chance[drawn] / chance.sum() * positive.sum()
    assert stats.chisquare(np.array(found)[drawn], expected).pvalue > 1e-5


def test_features_of_a_given_query_have_the_law_of_whole_sequences():
    d, n, kappa, cosine = 7, 20_000, 1.3, -0.6
    law = data()
    labels = law.labels(n, generator())
    signal = law.signal(labels, generator(1))
    query = torch.zeros(d, dtype=torch.float64)
    query[0], query[3] = cosine, math.sqrt(1 - cosine**2)
    whole = token_samples.attending(signal, 2 * query, kappa / 2, generator(2))
    t, m, sigma = token_samples.attended(signal, cosine, kappa, generator(3))
    across = torch.zeros_like(query)
    across[0] = math.sqrt(1 - cosine**2)  # xi off the query, normalised
    across[3] = -cosine
    noise = normal(n, 2, seed=4)
    pairs = {
        "along": (whole @ query, t),
        "across": (whole @ across, m + sigma * noise[:, 0]),
        "rest": (whole[:, 5], sigma * noise[:, 1]),
        "sum": (whole @ (query + across) + whole[:, 5], t + m + sigma * noise.sum(dim=1)),
    }
    for label in (-1, 1):
        of = labels == label
        for name, (a, b) in pairs.items():
            assert stats.ks_2samp(a[of].numpy(), b[of].numpy()).pvalue > 1e-5, (label, name)


@pytest.mark.parametrize("reuse", ["true", "false"])
@pytest.mark.parametrize(("loss", "slope"), [("square", lambda x: x - 1), ("logistic", lambda x: -1 / (1 + np.exp(x)))])
def test_the_steps_follow_the_gradients_by_hand(reuse, loss, slope):
    changes = {"loss": loss, "reuse": reuse, "eta_w": "3/2", "eta_b": "1/3", "eta_q": "2", "beta": "7/10", "L": "4"}
    task = load("sparse-token-alignment", changes)
    values, d = at_defaults(task), 12
    law = token_samples.token_data(task, values)
    query = SparseTokenSimulation(task)._stepped(values, law, d, generator()).numpy()
    g = generator()
    n = round(values[sp.Symbol("alpha0", positive=True)] * d)
    x, labels = (v.numpy() for v in token_samples.sequences(law, d, n, g))
    # f = w . X^T 1/L + b at q = 0; d f/d q = beta X^T (I - 11^T/L) X w / L; phi(y u) has the slope y phi'(y u)
    residual = labels * slope(0 * labels)
    w = -1.5 * np.einsum("i,ild->d", residual, x) / (4 * n)
    b = -residual.mean() / 3
    if reuse == "false":
        x, labels = (v.numpy() for v in token_samples.sequences(law, d, n, g))
    outputs = (x @ w).mean(axis=1) + b
    centred = x - x.mean(axis=1, keepdims=True)
    by_query = 0.7 * np.einsum("ild,il->id", centred, x @ w) / 4
    expected = -2 * np.einsum("i,id->d", labels * slope(labels * outputs), by_query) / n
    np.testing.assert_allclose(query, expected, rtol=1e-10, atol=1e-13)  # rounding


# ---------------------------------------------------------------- the classifiers


@pytest.mark.parametrize("model", ["attention", "pooled", "vectorised"])
def test_errors_of_fresh_samples_are_those_that_one_counts(model):
    task = load("sparse-token-attention", {"model": model, "L": "4", "R": "2", "theta": "2", "lam": "1/10"})
    values, d = at_defaults(task), 15
    law = token_samples.token_data(task, values)
    loss = LoweredLoss.of(task.erm.loss, values)
    problem = Problem(*token_samples.drawn_features(task, values, law, d, 40, None, generator()), loss, 0.1, True)
    student = minimise(problem)
    found = SparseTokenSimulation(task)._judged(values, law, d, None, problem, student, loss, generator(1))
    n = 100_000
    features, labels = token_samples.drawn_features(task, values, law, d, n, None, generator(2))
    outputs = features @ student.w + student.b
    wrong = float((labels * outputs < 0).double().mean())
    assert found["test_error"] == pytest.approx(wrong, abs=4.5 * math.sqrt(2 * wrong * (1 - wrong) / n))  # 4.5 sigma
    each = loss.value(labels, outputs)
    assert found["test_loss"] == pytest.approx(float(each.mean()), abs=5 * float(each.std()) * math.sqrt(3 / n))
    size = sum(found[q.symbol.name] ** 2 for q in (*task.law.exact_weights, *task.law.mean_weights)) + found["r"] ** 2
    assert size == pytest.approx(float(student.w @ student.w), rel=1e-10)


def test_an_output_on_a_kink_at_zero_is_no_error():
    fresh = Fresh(
        torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 1.0]).double(), torch.tensor([1.0, 1.0]).double()
    )
    assert fresh.error() == pytest.approx((stats.norm.cdf(-2) + stats.norm.cdf(2)) / 2, rel=1e-12)
    bent = LoweredLoss.of(sp.Lambda((y, u), sp.Max(0, 1 - y * u) + sp.Max(0, -y * u) / 2))
    features, labels = normal(60, 30), torch.sign(normal(60, seed=1))
    problem = Problem(features, labels, bent, 0.1, False)
    found = minimise(problem)
    at_zero = found.outputs.abs() < 1e-7
    assert at_zero.sum() > 3
    counted = convex_erm.observed(found, labels, bent, fresh, generator(), binary=True)["training_error"]
    assert counted == pytest.approx(float(((labels * found.outputs < 0) & ~at_zero).double().mean()), abs=1e-12)


@pytest.mark.parametrize("name", ["sparse-token-pooled", "sparse-token-attention"])
def test_replicas_do_not_depend_on_the_batching(name):
    task = load(name, {"lam": "1/10"})
    simulation = SparseTokenSimulation(task)
    whole = replicate(simulation, at_defaults(task), size=20, seeds=range(5), device=CPU)
    parts = replicate(simulation, at_defaults(task), size=20, seeds=range(2, 5), batch=2, device=CPU)
    assert all(whole[s][2:].tobytes() == parts[s].tobytes() for s in whole.observed)


# ---------------------------------------------------------------- separability


def test_separable_or_not():
    cross = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    biased = np.hstack([cross, np.ones((4, 1))])
    assert not sparse_token._separable(np.array([1.0, -1, -1, 1])[:, None] * biased)
    assert sparse_token._separable(np.array([1.0, 1, 1, -1])[:, None] * biased)
    assert sparse_token._separable(np.array([1.0, 1, 1, 1])[:, None] * biased)  # by the bias


def test_without_a_signal_the_capacity_is_two_and_its_law_known():
    # the largest separable n among random labels in general position in D = d + 1 dimensions  [Cover 1965]:
    # P(n separable) = P(Bin(n - 1, 1/2) <= D - 1), so that E = 2 D
    task = load("sparse-token-capacity", {"model": "pooled", "theta": "0"})
    d, seeds = 10, 100
    ensemble = replicate(Separability(task), at_defaults(task), size=d, seeds=range(seeds), device=CPU)
    (alpha,) = ensemble.observed.values()
    largest = alpha * d - 0.5
    n = np.arange(1, 400)
    tail = stats.binom.cdf(d, n - 1, 0.5)
    mean = tail.sum()
    spread = math.sqrt((2 * n - 1) @ tail - mean**2)
    assert mean == pytest.approx(2 * (d + 1), rel=1e-9)
    assert largest.mean() == pytest.approx(mean, abs=4.5 * spread / math.sqrt(seeds))  # 4.5 sigma


# ---------------------------------------------------------------- what is refused


def test_an_oracle_is_not_simulated():
    derivation = derive(load("sparse-token-oracle", {"L": "2"}))
    solution = Solution(derivation, {}, None, None, None, None, (), {}, (), ())
    with pytest.raises(TaskError, match="exact for every d"):
        sparse_token.experiment(derivation, solution)
