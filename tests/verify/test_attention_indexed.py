"""Attention-indexed models at finite size: every piece of the simulation against an independent computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp
import torch

from derive.document import TaskError
from derive.settings import Optimiser
from derive.spectra import Atoms, Listed, PowerLaw, Wishart
from derive.symmetric_indices import adapted_basis, invariant_directions
from derive.task import load
from verify.attention_indexed.descent import Direct, Factorised, adam, lbfgs, start_weights
from verify.attention_indexed.feasibility import (
    AffineSet,
    Draw,
    interpolation_probability,
    least_trace,
    recovery_probability,
)
from verify.attention_indexed.index_loss import IndexLoss
from verify.attention_indexed.message_passing import iterates, message_passing, sample_responses
from verify.attention_indexed.observables import overlaps, student_errors, training
from verify.attention_indexed.penalty import Penalty
from verify.attention_indexed.proximal_gradient import conjugate_gradients, proximal_gradient
from verify.attention_indexed.risk import TrainingError
from verify.attention_indexed.spectra import rank_fraction, spectral_distance
from verify.attention_indexed.target import draw_target, eigenvalues
from verify.attention_indexed.tokens import Tokens, draw_tokens, index_noise
from verify.attention_indexed.vector_prox import respond, scales_of
from verify.distance import largest_distance
from verify.simulation import replicate
from verify.simulations.attention_indexed import AttentionIndexedSimulation, MessagePassing

LINEAR, SOFTMAX, DIRECT = "aim-linear", "aim-softmax", "aim-direct"
ROUNDING = 1e-11  # of sums of some thousand float64 of order one


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def symmetric(d, seed=0):
    m = normal(d, d, seed=seed)
    return (m + m.T) / 2


def values_of(task):
    return {q.symbol: float(task.values.get(q.symbol, q.default)) for q in task.parameters}


def instance(name, d=16, seed=0, **changes):
    task = load(name, {k.replace("__", "."): str(v) for k, v in changes.items()})
    return AttentionIndexedSimulation(task).instance(values_of(task), d, generator(seed))


def norm_of(x):
    return float(torch.linalg.norm(x))


# ---------------------------------------------------------------- data


@pytest.mark.parametrize("count", [1, 2, 3])
def test_indices_are_those_of_the_definition(count):
    tokens, s, d = draw_tokens(count, 7, 5, generator()), symmetric(5), 5
    found = tokens.indices(s)
    for (a, b), row in zip(tokens.pairs, found, strict=True):
        for mu in range(7):
            form = tokens.x[a, mu] @ s @ tokens.x[b, mu] - (torch.trace(s) if a == b else 0)
            assert math.isclose(row[mu], form / math.sqrt(d), rel_tol=ROUNDING, abs_tol=ROUNDING)


def test_the_adjoint_is_the_transpose_and_symmetric():
    tokens, s, w = draw_tokens(3, 50, 8, generator()), symmetric(8), normal(6, 50, seed=1)
    back = tokens.adjoint(w)
    assert math.isclose((back * s).sum(), (w * tokens.indices(s)).sum(), rel_tol=1e-10)  # sums of 300 terms
    torch.testing.assert_close(back, back.T, rtol=0, atol=0)


def test_blocks_change_nothing_but_rounding(monkeypatch):
    tokens, s, w = draw_tokens(2, 100, 6, generator()), symmetric(6), normal(3, 100)
    whole = tokens.indices(s), tokens.adjoint(w)
    monkeypatch.setattr("verify.attention_indexed.tokens._BLOCK", {"cpu": 6 * 7})
    for a, b in zip((tokens.indices(s), tokens.adjoint(w)), whole, strict=True):
        torch.testing.assert_close(a, b, rtol=ROUNDING, atol=ROUNDING)


def test_labels_have_the_variances_of_the_theory():
    """Var h_ab = (1 + delta_ab) q and Var xi_ab = Delta/(2 - delta_ab): that of h_ab + xi_ab is their sum."""
    n, d, noise = 40_000, 30, 0.6
    tokens, s = draw_tokens(2, n, d, generator()), draw_target(Wishart(sp.Rational(1, 2)), {}, d, generator(1))
    q = float(s.square().sum()) / d
    noisy = tokens.indices(s) + index_noise(tokens.pairs, n, noise, generator(2))
    expected = {(0, 0): 2 * q + noise, (0, 1): q + noise / 2, (1, 1): 2 * q + noise}
    for p, row in zip(tokens.pairs, noisy, strict=True):
        # 5 standard errors; the fourth cumulant of a quadratic form at d = 30 widens them by less than 2
        assert abs(float(row.var()) / expected[p] - 1) < 5 * 2 * math.sqrt(2 / n)
        assert abs(float(row.mean())) < 5 * math.sqrt(expected[p] / n)


# ---------------------------------------------------------------- targets


def test_wishart_targets_have_the_moments_of_their_law():
    d, kappa0 = 40, sp.Rational(1, 2)
    drawn = [draw_target(Wishart(kappa0), {}, d, generator(s)) for s in range(200)]
    means = np.array([[float(torch.trace(s)) / d, float(s.square().sum()) / d] for s in drawn])
    expected = [math.sqrt(0.5), 1.5 + 1 / d]  # E tr S^2 = (p + d + 1)/d exactly
    assert np.all(np.abs(means.mean(0) - expected) < 5 * means.std(0, ddof=1) / math.sqrt(200))
    assert int(torch.linalg.matrix_rank(drawn[0])) == 20


def test_other_targets_have_the_quantiles_of_their_law():
    assert sorted(eigenvalues(Atoms([2, 0], [sp.Rational(1, 4), sp.Rational(3, 4)]), {}, 8)) == [0] * 6 + [2] * 2
    np.testing.assert_allclose(eigenvalues(PowerLaw(1, 100), {}, 4), [2 / 4, 2 / 3, 2 / 2, 2], rtol=1e-15)
    np.testing.assert_array_equal(eigenvalues(Listed([3.0, 1.0, 2.0, 4.0]), {}, 2), [2.0, 4.0])
    law = Atoms([1, 3], [sp.Rational(1, 2), sp.Rational(1, 2)])
    s = draw_target(law, {}, 10, generator())
    np.testing.assert_allclose(np.linalg.eigvalsh(s.numpy()), [1] * 5 + [3] * 5, rtol=1e-13)
    # Haar: E S_11 = tr S = 2 and Var S_11 = 2 Var(s)/(d + 2) = 1/6; 5 standard errors of 2000 draws
    corner = np.array([float(draw_target(law, {}, 10, generator(i))[0, 0]) for i in range(2000)])
    assert abs(corner.mean() - 2) < 5 * math.sqrt(1 / 6 / 2000)
    assert abs(corner.var() * 6 - 1) < 5 * math.sqrt(2 / 2000)


# ---------------------------------------------------------------- loss and penalty


@pytest.mark.parametrize(
    ("name", "changes"), [(SOFTMAX, {}), (SOFTMAX, {"T": 3, "beta": 2}), (LINEAR, {}), (LINEAR, {"output": "tanh(h)"})]
)
def test_slopes_and_curvatures_are_the_derivatives(name, changes):
    task = load(name, {k: str(v) for k, v in changes.items()})
    loss = IndexLoss.of(task.loss, task.target.entries, task.student.entries, values_of(task))
    k = len(task.student.entries)
    known, own = loss.labels(2 * normal(k, 20)), 2 * normal(k, 20, seed=1)
    own.requires_grad_()
    value, slopes = loss.value_and_slopes(known, own)
    (by_autograd,) = torch.autograd.grad(loss.value(known, own).sum(), own)
    torch.testing.assert_close(slopes.detach(), by_autograd, rtol=ROUNDING, atol=ROUNDING)
    torch.testing.assert_close(value, loss.value(known, own))
    hessian = torch.autograd.functional.hessian(lambda h: loss.value(known, h).sum(), own.detach())
    diagonal = torch.einsum("injn->nij", hessian)
    torch.testing.assert_close(loss.curvatures(known, own.detach()), diagonal, rtol=ROUNDING, atol=ROUNDING)


def test_the_loss_is_that_of_attention_matrices():
    """sum_ab (softmax(beta0 (h0 + xi)) - softmax(beta h))^2 by torch's own softmax, T = 3."""
    task = load(SOFTMAX, {"T": "3", "beta": "1/2", "beta0": "2"})
    loss = IndexLoss.of(task.loss, task.target.entries, task.student.entries, values_of(task))
    target, own = normal(6, 30), normal(6, 30, seed=1)

    def full(h):
        m = h.new_zeros((30, 3, 3))
        for (a, b), row in zip(task.student.pairs, h, strict=True):
            m[:, a, b] = m[:, b, a] = row
        return m

    expected = (torch.softmax(2 * full(target), -1) - torch.softmax(0.5 * full(own), -1)).square().sum((1, 2))
    torch.testing.assert_close(loss.value(loss.labels(target), own), expected, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize(("name", "changes"), [(SOFTMAX, {}), (LINEAR, {"T": 2}), (DIRECT, {"spectral": "s**4/8"})])
def test_the_gradient_of_the_risk_is_that_of_autograd(name, changes):
    changes = {"regulariser__spectral" if k == "spectral" else k: v for k, v in changes.items()}
    risk = instance(name, d=9, **changes).risk
    s = symmetric(9)
    if risk.penalty.positive:
        s = s @ s
    s.requires_grad_()
    total = risk.loss.value(risk.known, risk.tokens.indices(s)).sum()
    (data,) = torch.autograd.grad(total, s)
    value, found = risk.data(s.detach())
    assert math.isclose(value, float(total.detach()), rel_tol=1e-12)  # a sum of 81 terms
    torch.testing.assert_close(found, (data + data.T) / 2, rtol=1e-10, atol=1e-10)
    flat = s.detach()
    along, h = symmetric(9, seed=3), 1e-5
    slope = (risk.penalty.value(flat + h * along) - risk.penalty.value(flat - h * along)) / (2 * h)
    assert math.isclose(slope, float((risk.penalty.gradient(flat) * along).sum()), rel_tol=1e-6)  # h^2 and rounding/h


@pytest.mark.parametrize("name", [LINEAR, DIRECT])
def test_the_response_of_a_denoiser_is_its_derivative(name):
    task = load(name, {})
    penalty = Penalty.of(task.penalty, {**values_of(task)})
    r, along, h, step = symmetric(10), symmetric(10, seed=1), 1e-6, 0.05
    found = penalty.denoise(r, step)
    measured = (penalty.denoise(r + h * along, step).matrix - penalty.denoise(r - h * along, step).matrix) / (2 * h)
    inside = found.basis.T @ along @ found.basis
    expected = found.basis @ (found.response * inside) @ found.basis.T
    torch.testing.assert_close(measured, expected, rtol=0, atol=1e-8)  # h^2 and rounding/h
    unit = [(i, j) for i in range(10) for j in range(i + 1)]
    assert math.isclose(found.divergence, sum(float(found.response[i, j]) for i, j in unit), rel_tol=1e-12)


def test_the_nuclear_norm_has_the_soft_threshold():
    """argmin |S - R|^2/2 + step d lamt Tr S over S >= 0 is (R - step d lamt)_+; lamt = sqrt(kappa) lam."""
    task = load(LINEAR, {"kappa": "4", "lam": "3"})
    r, step, d = symmetric(10), 0.01, 10
    found = Penalty.of(task.penalty, values_of(task)).denoise(r, step)
    w, u = np.linalg.eigh(r.numpy())
    np.testing.assert_allclose(found.matrix, (u * np.maximum(w - step * d * 6, 0)) @ u.T, atol=1e-13)
    assert math.isclose(found.value, 6 * d * float(torch.trace(found.matrix)), rel_tol=1e-12)


# ---------------------------------------------------------------- minimisers


def optimality(risk, s):
    """(violation, complementarity) of the conditions for S >= 0: G = gradient >= 0, Tr S G = 0, over |gradient|."""
    _, data = risk.data(s)
    gradient = data + risk.penalty.gradient(s)
    size = norm_of(data)
    return -float(torch.linalg.eigvalsh(gradient)[0]) / size, abs(float((gradient * s).sum())) / (size * norm_of(s))


@pytest.mark.parametrize("name", [LINEAR, SOFTMAX])
@pytest.mark.parametrize("lam", ["1/50", "1/2"])
def test_all_methods_find_a_point_of_least_risk(name, lam):
    """Karush's, Kuhn's and Tucker's conditions, and the same S from four methods."""
    risk = instance(name, lam=lam, alpha="1/3").risk
    found = {
        "W": lbfgs(risk, Factorised(), start_weights(16, 16, generator(5))),
        "wide W": lbfgs(risk, Factorised(), start_weights(16, 25, generator(6))),
        "S": proximal_gradient(risk),
        "messages": message_passing(risk),
    }
    best = found["S"].s
    for method, minimum in found.items():
        assert minimum.residual <= 1e-6
        violation, complementarity = optimality(risk, minimum.s)
        assert violation < 1e-3, method  # of a W, singular values fall off slowly where G is nearly zero
        assert complementarity < 1e-5, method
        assert norm_of(minimum.s - best) < 1e-3 * norm_of(best), method  # residual 1e-6 over the least curvature
        assert abs(risk.objective(minimum.s) / risk.objective(best) - 1) < 1e-7, method  # of second order


def test_adam_comes_near_the_minimum():
    risk = instance(SOFTMAX, d=12, alpha="1/2", lam="1/20").risk
    start = start_weights(12, 12, generator(1))
    best, found = lbfgs(risk, Factorised(), start), adam(risk, Factorised(), start, steps=1000)
    assert 0 <= risk.objective(found.s) / risk.objective(best.s) - 1 < 1e-4  # its tolerance 1e-2, squared
    with pytest.raises(TrainingError, match="Adam stopped after 5 steps"):
        adam(risk, Factorised(), start, steps=5)


def test_direct_training_solves_the_normal_equations():
    """Frobenius penalty and linear indices against a dense linear solve, T = 2, d = 12."""
    risk = instance(DIRECT, d=12, output="linear", alpha="1/2").risk
    d, tokens = 12, risk.tokens
    unit = torch.eye(d, dtype=torch.float64)
    rows, scale = [], []
    for a, b in tokens.pairs:
        product = torch.einsum("ni,nj->nij", tokens.x[a], tokens.x[b])
        rows.append(((product + product.mT) / 2 - (unit if a == b else 0)).reshape(-1, d * d) / math.sqrt(d))
        scale.append(torch.full((tokens.n,), 1.0 if a == b else 2.0, dtype=torch.float64))  # ordered pairs
    design, weight = torch.cat(rows), torch.cat(scale)
    labels = -risk.loss.value_and_slopes(risk.known, torch.zeros((3, tokens.n), dtype=torch.float64))[1].reshape(-1)
    y = labels / (2 * weight)
    system = 2 * design.T @ (weight[:, None] * design) + 2 * 0.1 * d * torch.eye(d * d, dtype=torch.float64)
    exact = torch.linalg.solve(system, 2 * design.T @ (weight * y)).reshape(d, d)
    for found, tolerance in (
        (conjugate_gradients(risk), 1e-10),
        (proximal_gradient(risk, tolerance=1e-9), 1e-7),  # the residual over the least curvature
        (lbfgs(risk, Direct(), torch.zeros((d, d), dtype=torch.float64), tolerance=1e-9), 1e-7),
        (message_passing(risk, tolerance=1e-9), 1e-7),
    ):
        assert norm_of(found.s - exact) < tolerance * norm_of(exact)


@pytest.mark.parametrize("spectral", ["s**4/8", "sqrt(1+s**2)/5"])
def test_any_smooth_penalty_has_one_minimum(spectral):
    risk = instance(DIRECT, d=10, regulariser__spectral=spectral).risk
    start = torch.zeros((10, 10), dtype=torch.float64)
    proximal, descent = proximal_gradient(risk), lbfgs(risk, Direct(), start)
    assert norm_of(proximal.s - descent.s) < 1e-4 * norm_of(descent.s)


def test_the_nuclear_norm_of_all_symmetric_matrices():
    """G = gradient of the data: |G| <= d lam on the null space, -d lam sign(s) on the range."""
    lam = 0.3
    risk = instance(DIRECT, d=14, frobenius="0", regulariser__spectral="3/10*abs(s)", alpha="1/3").risk
    s = proximal_gradient(risk).s
    values, basis = torch.linalg.eigh(s)
    _, data = risk.data(s)
    inside = basis.T @ data @ basis / (14 * lam)
    kept = values.abs() > 1e-6
    assert 0 < int(kept.sum()) < 14
    assert float(torch.linalg.eigvalsh(inside[~kept][:, ~kept]).abs().max()) < 1 + 1e-4
    expected = -torch.diag(values[kept].sign())
    torch.testing.assert_close(inside[kept][:, kept], expected, rtol=0, atol=1e-4)  # residual 1e-6 of norms of order d


def test_training_that_does_not_come_to_rest_is_an_error():
    risk = instance(LINEAR).risk
    with pytest.raises(TrainingError, match="proximal gradient method stopped after 3 steps"):
        proximal_gradient(risk, most_steps=3)
    with pytest.raises(TrainingError, match="L-BFGS stopped"):
        lbfgs(risk, Factorised(), start_weights(16, 16, generator()), most_steps=3)
    with pytest.raises(TrainingError, match="Message passing stopped after 2 steps"):
        message_passing(risk, most_steps=2)
    with pytest.raises(ValueError, match="for all s"):
        conjugate_gradients(risk)


# ---------------------------------------------------------------- message passing


def test_responses_of_samples_are_forms_of_the_denoisers_derivative():
    tokens = draw_tokens(2, 5, 6, generator())
    task = load(LINEAR, {})
    denoised = Penalty.of(task.penalty, values_of(task)).denoise(symmetric(6), 0.05)
    found, scales = sample_responses(tokens, denoised), scales_of(tokens.pairs, tokens.x)
    for mu in range(5):
        one = Tokens(tokens.x[:, mu : mu + 1])
        rows = torch.stack([one.adjoint(e[:, None]) / c for e, c in zip(torch.eye(3).double(), scales, strict=True)])
        turned = denoised.basis.T @ rows @ denoised.basis
        torch.testing.assert_close(found[mu], torch.einsum("aij,ij,bij->ab", turned, denoised.response, turned))


@pytest.mark.parametrize(("name", "beta"), [(SOFTMAX, "1"), (SOFTMAX, "4"), (LINEAR, None)])
def test_proximal_points_are_minima_with_their_derivatives(name, beta):
    task = load(name, {"beta": beta} if beta else {})
    loss = IndexLoss.of(task.loss, task.target.entries, task.student.entries, values_of(task))
    k = len(task.student.entries)
    known, omega = loss.labels(3 * normal(k, 40)), 2 * normal(k, 40, seed=1)
    root = normal(40, k, k, seed=2)
    v = 0.2 * root @ root.mT + 0.5 * torch.eye(k, dtype=torch.float64)
    scales = scales_of(task.student.pairs, omega)
    found = respond(loss, known, omega, v, scales)

    def slopes(points):
        return scales[:, None] * loss.value_and_slopes(known, scales[:, None] * points)[1]

    forces = torch.linalg.solve(v, (found.points - omega).T[:, :, None])[:, :, 0].T
    torch.testing.assert_close(found.forces, forces, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.forces, -slopes(found.points), rtol=0, atol=1e-8)  # tolerance 1e-10 over V
    h, measured = 1e-5, torch.zeros(40, dtype=torch.float64)
    for j in range(k):
        move = torch.zeros_like(omega)
        move[j] = h
        ends = [respond(loss, known, omega + s * move, v, scales).forces[j] for s in (1, -1)]
        measured += (ends[0] - ends[1]) / (2 * h)
    torch.testing.assert_close(found.divergence, measured, rtol=0, atol=1e-5)  # h^2 and tolerance/h


def test_the_lower_of_two_starts_is_kept():
    task = load(SOFTMAX, {"beta": "6"})
    loss = IndexLoss.of(task.loss, task.target.entries, task.student.entries, values_of(task))
    scales = scales_of(task.student.pairs, torch.zeros(1, dtype=torch.float64))
    target = 2 * normal(3, 200)
    known, omega = loss.labels(target), normal(3, 200, seed=1)
    v = 4 * torch.eye(3, dtype=torch.float64).expand(200, 3, 3)

    def value(points):
        return loss.value(known, scales[:, None] * points) + (points - omega).square().sum(0) / 8

    alone = value(respond(loss, known, omega, v, scales).points)
    both = value(respond(loss, known, omega, v, scales, [target / scales[:, None]]).points)
    assert bool((both <= alone + 1e-9).all())
    assert bool((both < alone - 1e-3).any())  # the square loss of a steep softmax has several minima


def test_messages_at_a_fixed_point_stay_there():
    risk = instance(SOFTMAX, d=12, alpha="1/2", lam="1/10").risk
    path = iterates(risk)
    *_, last = (next(path) for _ in range(120))
    following = next(path)
    assert norm_of(following.s - last.s) < 1e-8 * norm_of(last.s)
    assert math.isclose(following.sigma, last.sigma, rel_tol=1e-8)


# ---------------------------------------------------------------- what is observed


def test_overlaps_and_losses_are_those_of_their_definitions():
    found = instance(SOFTMAX, d=10)
    s = symmetric(10) @ symmetric(10)
    o, t = overlaps(s, found.target), training(found.risk, s)
    assert math.isclose(o.mse, o.q - 2 * o.m + float(found.target.square().sum()) / 10, rel_tol=1e-12)
    assert math.isclose(t["objective"] - t["training_loss"], 0.01 * float(torch.trace(s)) / 10, rel_tol=1e-10)
    assert t["rank"] == 1


def test_test_errors_of_linear_indices_are_2_k_mse():
    """E (h - h0)^2 summed over ordered pairs is T (T + 1) mse exactly, at any d; labels add T (T + 1) Delta/2."""
    task = load(LINEAR, {"T": "2"})
    loss = IndexLoss.of(task.loss, task.target.entries, task.student.entries, values_of(task))
    s, target = symmetric(20) / 2, symmetric(20, seed=1) / 2
    found = student_errors(s, target, loss, 2, 0.5, generator(2), n=40_000)
    mse = overlaps(s, target).mse
    spread = 5 * 1.5 / math.sqrt(40_000)  # 5 standard errors of a loss that varies by 1.5 times its mean at most
    assert abs(found["test_error_clean"] / (6 * mse) - 1) < spread
    assert abs(found["test_error"] / (6 * (mse + 0.25)) - 1) < spread


def atom_and_uniform(x):
    """Half an atom at zero, half uniform on [0, 1]."""
    return np.where(x < 0, 0.0, 0.5 + 0.5 * np.clip(x, 0, 1))


def test_the_distance_of_few_eigenvalues():
    assert spectral_distance(np.array([0.0, 0.0, 0.25, 0.75]), atom_and_uniform) == pytest.approx(0.125, abs=1e-12)
    assert spectral_distance(np.array([1e-7, -1e-7, 0.25, 0.75]), atom_and_uniform) == pytest.approx(0.125, abs=1e-12)
    assert spectral_distance(np.array([0.5]), atom_and_uniform) == pytest.approx(0.75, abs=1e-12)
    assert rank_fraction(np.array([0.0, 1e-7, 0.25, -0.75])) == 0.5
    with pytest.raises(ValueError, match="finite eigenvalues"):
        spectral_distance(np.array([np.nan]), atom_and_uniform)


def test_distances_are_calibrated_and_find_a_wrong_law():
    """Independent draws exceed the bound of Dvoretzky, Kiefer and Wolfowitz with at most its chance; a shift does."""
    rng, n, chance = np.random.default_rng(0), 400, 0.05
    allowed = largest_distance(n, 10**12, chance)
    draws = np.where(rng.random((400, n)) < 0.5, 0.0, rng.random((400, n)))
    beyond = sum(spectral_distance(x, atom_and_uniform) > allowed for x in draws)
    assert beyond < 20 + 5 * math.sqrt(20)  # 5 standard deviations above the chance
    shifted = sum(spectral_distance(np.where(x > 0, x + 0.2, 0), atom_and_uniform) > allowed for x in draws)
    assert shifted > 380


# ---------------------------------------------------------------- feasibility


def test_the_offset_is_the_shortest_way_to_the_set():
    tokens, s = draw_tokens(1, 20, 8, generator()), symmetric(8)
    affine = AffineSet.of(tokens, tokens.indices(symmetric(8, seed=1)))
    there = s - affine.offset(s)
    torch.testing.assert_close(affine.rows @ there.reshape(-1), affine.y, rtol=0, atol=1e-10)
    shift = symmetric(8, seed=2)
    free = shift - (affine.offset(s + shift) - affine.offset(s))  # a direction within the set
    assert abs(float((affine.offset(s) * free).sum())) < 1e-10 * norm_of(s) * norm_of(free)


def test_the_least_trace_recovers_a_target_from_enough_samples():
    """d = 14, kappa0 = 1/2: the limit of n/d^2 is 0.422 (k = 1), all of 105 conditions are 0.536."""
    target, tokens = (
        draw_target(Wishart(sp.Rational(1, 2)), {}, 14, generator(2)),
        draw_tokens(1, 100, 14, generator(3)),
    )
    s = least_trace(AffineSet.of(tokens, tokens.indices(target)), 4.0)
    assert norm_of(s - target) < 1e-4 * norm_of(target)
    few = Tokens(tokens.x[:, :50])
    other = least_trace(AffineSet.of(few, few.indices(target)), 4.0)
    torch.testing.assert_close(few.indices(other), few.indices(target), rtol=0, atol=1e-3)  # rests at 1e-6 in z
    assert float(torch.trace(other)) < float(torch.trace(target))
    assert float(torch.linalg.eigvalsh(other)[0]) > -1e-10


def test_probabilities_fall_and_rise():
    """d = 14; limits of n: 0.307 d^2 = 60 to interpolate, 0.158 d^2 = 31 (kappa0 = 1/10) to recover."""
    fitted = interpolation_probability(Draw(Wishart(sp.Rational(1, 2)), 14), 0.5, [30, 100], range(4))
    assert fitted == [1.0, 0.0]
    found = recovery_probability(Draw(Wishart(sp.Rational(1, 10)), 14), [12, 60], range(2))
    assert found == [0.0, 1.0]


def test_softmax_shows_all_coordinates_but_one():
    """T = 2: k = 2 coordinates of 3, so that the interpolation threshold lies at n = 0.307 d^2/2 = 30."""
    task = load(SOFTMAX, {})
    rows, k = adapted_basis(task.student, invariant_directions([task.loss], task.student.entries))
    basis = torch.tensor(np.array(rows[:k, :], dtype=float))
    assert k == 2
    draw = Draw(Wishart(sp.Rational(1, 2)), 14, tokens=2, basis=basis)
    assert interpolation_probability(draw, 0.5, [15, 50], range(4)) == [1.0, 0.0]


# ---------------------------------------------------------------- the simulation of a task


@pytest.mark.parametrize("optimiser", list(Optimiser))
def test_optimisers_of_a_task(optimiser):
    task = load(SOFTMAX, {"verify.optimiser": optimiser.value, "alpha": "1/2"})
    assert task.verify.optimiser is optimiser
    if optimiser is Optimiser.ADAM:
        return  # takes seconds, and test_adam_comes_near_the_minimum runs it
    (found,) = [replicate(AttentionIndexedSimulation(task), values_of(task), size=10, seeds=[4])]
    (default,) = [replicate(AttentionIndexedSimulation(load(SOFTMAX, {})), values_of(task), size=10, seeds=[4])]
    for q in found.observed:
        np.testing.assert_allclose(found[q], default[q], rtol=1e-2 if q.name.startswith("test") else 1e-3)


def test_replicas_do_not_depend_on_the_batch(assert_float64):
    task = load(DIRECT, {})
    simulation = AttentionIndexedSimulation(task)
    together = replicate(simulation, values_of(task), size=8, seeds=[1, 2, 3])
    alone = replicate(simulation, values_of(task), size=8, seeds=[3], batch=1)
    assert {s.name for s in together.observed} >= {"test_error", "mse", "objective", "rank"}
    for q, column in together.observed.items():
        assert column[2] == alone[q][0]
    assert_float64(together.observed)


def test_paths_of_messages_have_steps_as_their_axis():
    task = load(DIRECT, {"output": "linear", "T": "1"})
    found = replicate(MessagePassing(task, steps=3), values_of(task), size=8, seeds=[0, 1])
    np.testing.assert_array_equal(found.axis, [1, 2, 3])
    assert all(column.shape == (2, 3) for column in found.observed.values())


def test_wrong_settings_are_told():
    with pytest.raises(TaskError, match="optimiser"):
        load(SOFTMAX, {"verify.optimiser": "newton"})
    kinked = {"frobenius": "0", "regulariser.spectral": "abs(s)/10", "verify.optimiser": "lbfgs"}
    task = load(DIRECT, kinked)
    with pytest.raises(TaskError, match="kinks"):
        replicate(AttentionIndexedSimulation(task), values_of(task), size=8, seeds=[0])
