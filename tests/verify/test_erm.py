"""Minimisers of the empirical risk against independent solvers, and the proximal operators behind them."""

import numpy as np
import pytest
import sympy as sp
import torch
from scipy import optimize

from derive.functions import relu, softplus
from verify.erm import Problem, SimulationError, minimise
from verify.loss import LoweredLoss

y, u = sp.symbols("y u", real=True)
delta = sp.Symbol("delta", positive=True)

LOSSES = {
    "square": (u - y) ** 2 / 2,
    "logistic": softplus(-y * u),
    "exponential": sp.exp(-y * u),
    "hinge": relu(1 - y * u),
    "squared hinge": sp.Max(0, 1 - y * u) ** 2,
    "huber": (u - y) ** 2 / 2 - relu(sp.Abs(u - y) - 1) ** 2 / 2,
    "absolute": sp.Abs(u - y),
    "insensitive": sp.Max(0, sp.Abs(u - y) - sp.Rational(3, 10)),
    "pieces": sp.Max(-2 * y * u, 1 - y * u, y * u / 4 - 1),
    "smooth and bent": softplus(-y * u) + sp.Abs(u - y / 2) / 3,
    "steep beyond": sp.Max(0, 1 - y * u) ** 3 + relu(-y * u),
    "flat, then a parabola": sp.Max((u - y) ** 2, 1),
    "piecewise": sp.Piecewise(((u - y) ** 2, u > y), (2 * (y - u), True)),
}
SMOOTH = {"square", "logistic", "exponential", "squared hinge", "huber"}


def lowered(name):
    return LoweredLoss.of(sp.Lambda((y, u), LOSSES[name]))


def sample(n, d, seed=0, *, binary=True):
    """Correlated features whose labels no direction separates, more positive ones than negative."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    field = features[:, 0] + 0.7 * rng.standard_normal(n) + 0.4
    labels = np.sign(field) if binary else field
    return torch.from_numpy(features), torch.from_numpy(labels)


# ---------------------------------------------------------------- the proximal operator


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("step", [1e-4, 0.03, 0.7, 5.0])
def test_the_force_is_a_subgradient(name, step):
    names = {"relu": lambda x: np.maximum(x, 0), "softplus": lambda x: np.logaddexp(x, 0)}
    value = sp.lambdify((y, u), LOSSES[name], [names, "numpy"])
    loss, rng = lowered(name), np.random.default_rng(1)
    labels, a = rng.choice([-1.0, 1.0], 200), 3 * rng.standard_normal(200)
    found = loss.response(torch.from_numpy(labels), torch.from_numpy(a), step)
    output, force = found.output.numpy(), found.force.numpy()
    np.testing.assert_allclose(force, (a - output) / step, rtol=1e-12)
    here = value(labels, output)
    for move in (-3.0, -0.1, -1e-3, 1e-3, 0.1, 3.0):
        there = value(labels, output + move)
        rounding = 1e-13 * (1 + np.abs(here) + np.abs(there)) + 1e-15 * np.abs(move * a) / step
        assert (there - here - force * move >= -rounding).all()  # convex: on both sides this fixes the force


@pytest.mark.parametrize("name", LOSSES)
def test_the_stiffness_is_the_slope_of_the_force(name):
    loss, rng = lowered(name), np.random.default_rng(2)
    labels = torch.from_numpy(rng.choice([-1.0, 1.0], 60))
    a, h = torch.from_numpy(3 * rng.standard_normal(60)), 1e-6
    found = loss.response(labels, a, 0.4)
    above, below = (loss.response(labels, a + s * h, 0.4).force for s in (1, -1))
    torch.testing.assert_close((above - below) / (2 * h), found.stiffness, rtol=1e-6, atol=1e-6)  # h^2, rounding/h


@pytest.mark.parametrize("name", LOSSES)
def test_smooth_losses_are_recognised(name):
    loss = lowered(name)
    labels = torch.tensor([1.0, -1.0, 2.5], dtype=torch.float64)
    assert loss.smooth(labels) == (name in SMOOTH)
    assert loss.quadratic == (name == "square")
    assert loss.all_places == (name != "flat, then a parabola")


def test_kinks_may_depend_on_parameters_and_labels():
    loss = LoweredLoss.of(sp.Lambda((y, u), sp.Abs(u - y) + delta * relu(y * u - delta)), {delta: 0.5})
    labels, a = torch.tensor([2.0, -1.0, 0.0], dtype=torch.float64), torch.tensor([2.2, 7.0, 0.3], dtype=torch.float64)
    found = loss.response(labels, a, 1.0)
    # 2.2 - 1 > y = 2 is false: rests at y; 7 - 1 (slope of |.| alone, for y u < 0); rests at 0 = y
    np.testing.assert_allclose(found.output, [2.0, 6.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.stiffness, [1.0, 0.0, 1.0], atol=1e-12)
    with pytest.raises(ValueError, match="delta"):
        LoweredLoss.of(sp.Lambda((y, u), sp.Abs(u - y) * delta))


# ---------------------------------------------------------------- minimisers


POLYHEDRAL = {  # the affine pieces (slope, offset) in u of their maximum
    "hinge": lambda t: [(-t, 1 + 0 * t), (0 * t, 0 * t)],
    "absolute": lambda t: [(1 + 0 * t, -t), (-1 + 0 * t, t)],
    "insensitive": lambda t: [(1 + 0 * t, -t - 0.3), (-1 + 0 * t, t - 0.3), (0 * t, 0 * t)],
    "pieces": lambda t: [(-2 * t, 0 * t), (-t, 1 + 0 * t), (t / 4, -1 + 0 * t)],
}


def quadratic_program(f, pieces, ridge, *, bias):
    """The least mean_i t_i + (ridge/2)|w|^2 over w, b, t with all pieces slope_i u_i + offset_i <= t_i, by SciPy."""
    n, d = f.shape
    column = np.full((n, 1), float(bias))
    rows = np.concatenate([np.hstack([-s[:, None] * f, -s[:, None] * column, np.eye(n)]) for s, _ in pieces])
    offsets = np.concatenate([o for _, o in pieces])
    found = optimize.minimize(
        lambda x: x[d + 1 :].mean() + ridge / 2 * x[:d] @ x[:d],
        np.concatenate([np.zeros(d + 1), np.full(n, np.abs(offsets).max() + 1)]),
        jac=lambda x: np.concatenate([ridge * x[:d], [0.0], np.full(n, 1 / n)]),
        constraints={"type": "ineq", "fun": lambda x: rows @ x - offsets, "jac": lambda x: rows},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.status in (0, 8)  # converged, or no direction left that lowers it within rounding
    return found.fun


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "d"), [(30, 12), (30, 45)])
@pytest.mark.parametrize("name", POLYHEDRAL)
def test_polyhedral_losses_reach_the_quadratic_program(name, n, d, bias):
    features, labels = sample(n, d, binary=name in {"hinge", "pieces"})
    found = minimise(Problem(features, labels, lowered(name), 0.05, bias))
    expected = quadratic_program(features.numpy(), POLYHEDRAL[name](labels.numpy()), 0.05, bias=bias)
    assert found.objective == pytest.approx(expected, rel=1e-7)  # SLSQP's tolerance
    assert found.gap <= 1e-10 * abs(found.objective)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "d"), [(40, 15), (15, 40)])
@pytest.mark.parametrize("name", sorted(SMOOTH))
def test_smooth_losses_have_no_gradient_left(name, n, d, bias):
    features, labels = sample(n, d)
    ridge = 1e-3
    found = minimise(Problem(features, labels, lowered(name), ridge, bias))
    w = found.w.clone().requires_grad_()
    b = torch.tensor(found.b, dtype=torch.float64, requires_grad=True)
    margin = labels * (features @ w + b)
    loss = {
        "square": (1 - margin) ** 2 / 2,
        "logistic": torch.nn.functional.softplus(-margin, threshold=100),
        "exponential": torch.exp(-margin),
        "squared hinge": torch.clamp(1 - margin, min=0) ** 2,
        "huber": torch.nn.functional.huber_loss(margin, torch.ones_like(margin), reduction="none"),
    }[name].mean() + ridge / 2 * w @ w
    loss.backward()
    assert found.objective == pytest.approx(loss.item(), rel=1e-12)
    assert float(w.grad.norm()) <= (2 * ridge * 1e-10 * found.objective) ** 0.5  # the stated gap
    if bias:
        assert abs(b.grad.item()) <= 1e-10 * found.objective
    else:
        assert found.b == 0


@pytest.mark.parametrize("name", LOSSES)
def test_the_gap_bounds_what_is_left(name):
    features, labels = sample(60, 30, seed=3)
    problem = Problem(features, labels, lowered(name), 1e-2, True)
    best = minimise(problem, 1e-12)
    for tolerance in (0.3, 1e-2, 1e-5):
        rough = minimise(problem, tolerance)
        assert rough.gap <= tolerance * abs(rough.objective)
        assert 0 <= rough.objective - best.objective + 1e-14 <= rough.gap + 1e-13  # rounding of the objectives
    rng = torch.Generator().manual_seed(0)
    for size in (1e-6, 1e-3, 1e-1):  # no point around it lies lower
        w = best.w + size * torch.randn(30, generator=rng, dtype=torch.float64)
        b = best.b + size * float(torch.randn((), generator=rng, dtype=torch.float64))
        there = float(problem.loss.value(labels, problem.outputs(w, b)).mean()) + 5e-3 * float(w @ w)
        assert there >= best.objective - best.gap


@pytest.mark.parametrize("name", ["hinge", "absolute", "logistic", "smooth and bent"])
@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_the_units_of_loss_and_ridge_do_not_matter(name, factor):
    features, labels = sample(50, 20, seed=4)
    plain = minimise(Problem(features, labels, lowered(name), 1e-2, True))
    scaled = LoweredLoss.of(sp.Lambda((y, u), sp.Float(factor) * LOSSES[name]))
    found = minimise(Problem(features, labels, scaled, 1e-2 * factor, True))
    assert found.objective == pytest.approx(factor * plain.objective, rel=3e-10)  # the two gaps


def test_tiny_ridges_on_separable_data():
    features, labels = sample(60, 100, seed=5)
    for name, most in (("hinge", 2e-3), ("logistic", 5e-2)):
        problem = Problem(features, labels, lowered(name), 1e-5, True)
        found = minimise(problem)
        assert found.gap <= 1e-10 * found.objective < 1e-10 * most
        assert bool((labels * found.outputs > 0).all())


# ---------------------------------------------------------------- ridge 0


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "d"), [(40, 15), (15, 40)])
def test_least_squares_of_the_smallest_norm(n, d, bias):
    features, labels = sample(n, d)
    found = minimise(Problem(features, labels, lowered("square"), 0.0, bias))
    f = features.numpy() - (features.numpy().mean(axis=0) if bias else 0)
    residual = found.outputs.numpy() - labels.numpy()
    np.testing.assert_allclose(f.T @ residual, 0, atol=1e-10)  # rounding, condition about 10
    if bias:
        assert residual.sum() == pytest.approx(0, abs=1e-10)
    # of the smallest norm: in the row space of the centred features
    outside = np.eye(d) - np.linalg.pinv(f) @ f
    np.testing.assert_allclose(outside @ found.w.numpy(), 0, atol=1e-10)
    near = minimise(Problem(features, labels, lowered("square"), 1e-9, bias))
    torch.testing.assert_close(found.w, near.w, rtol=1e-5, atol=1e-6)  # first order in the ridge


def test_without_a_ridge_a_minimum_is_found_where_there_is_one():
    features, labels = sample(200, 5, seed=6)
    found = minimise(Problem(features, labels, lowered("logistic"), 0.0, True))
    near = minimise(Problem(features, labels, lowered("logistic"), 1e-9, True))
    torch.testing.assert_close(found.w, near.w, rtol=1e-5, atol=1e-6)
    features, labels = sample(10, 40)
    for name in ("logistic", "exponential"):  # separable: the weights run to infinity
        with pytest.raises(SimulationError, match="Raise the ridge"):
            minimise(Problem(features, labels, lowered(name), 0.0, True))


# ---------------------------------------------------------------- wrong input


def test_what_has_no_minimum_or_no_shape_is_refused():
    features, labels = sample(10, 4)
    with pytest.raises(ValueError, match="ridge must not be negative"):
        Problem(features, labels, lowered("square"), -1.0, True)
    with pytest.raises(ValueError, match="ridge is 0: a loss with kinks"):
        Problem(features, labels, lowered("hinge"), 0.0, True)
    for wrong in ((features, labels[:3]), (features[0], labels), (features[:0], labels[:0])):
        with pytest.raises(ValueError, match="features"):
            Problem(*wrong, lowered("square"), 1.0, True)
