"""Gradient steps at finite size against the derived limits: plain torch, the gradients by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

from derive.mechanisms.gradient_steps import Data, GradientSteps, Start, Step, descend, rare_signal
from tests.derive.trained import R, alpha0, attention, b, beta, loss, numbers, q, tied, two_steps, w

pytestmark = pytest.mark.slow

Tensor = torch.Tensor
Output = Callable[[Tensor, Mapping[str, Tensor]], Tensor]
LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "square": lambda x: (1 - x) ** 2 / 2,
    "logistic": lambda x: torch.nn.functional.softplus(-x),
    "hinge": lambda x: torch.clamp(1 - x, min=0),
}


def _tied(x: Tensor, v: Mapping[str, Tensor]) -> Tensor:
    u = x @ v["w"]
    return (torch.softmax(u, 1) * u).sum(1)


def _attention(temperature: float) -> Output:
    def output(x: Tensor, v: Mapping[str, Tensor]) -> Tensor:
        return (torch.softmax(temperature * (x @ v["q"]), 1) * (x @ v["w"])).sum(1) + v["b"]

    return output


def _sample(
    n: int, d: int, length: int, signals: int, theta: float, pi: float, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """xi is the first unit vector; the signal stands in the first tokens."""
    x = torch.randn(n, length, d, generator=rng, dtype=torch.float64)
    positive = torch.rand(n, generator=rng, dtype=torch.float64) < pi
    x[positive, :signals, 0] += theta
    return x, torch.where(positive, 1.0, -1.0).to(torch.float64)


def _train(
    output: Output,
    name: str,
    values: Mapping[str, Tensor],
    steps: Sequence[tuple[tuple[Tensor, Tensor], Mapping[str, float], float]],
) -> list[dict[str, Tensor]]:
    """The course of full-batch steps (data, rate of each variable, decay of vectors)."""
    course = [dict(values)]
    for (x, y), rates, decay in steps:
        now = {k: v.clone().requires_grad_() for k, v in course[-1].items()}
        LOSSES[name](y * output(x, now)).mean().backward()
        moved = {}
        for k, v in course[-1].items():
            gradient = now[k].grad if now[k].grad is not None else torch.zeros_like(v)
            moved[k] = v - rates.get(k, 0.0) * (gradient + (decay * v if v.ndim else 0.0))
        course.append(moved)
    return course


def _check(theory: Sequence[float], runs: Sequence[Sequence[float]], scale: Sequence[float], allowed: float) -> None:
    """Means of runs against the theory: 5 standard errors, and `allowed` x scale for finite d and Sobol points."""
    observed = np.array(runs)
    error = observed.std(axis=0, ddof=1) / np.sqrt(len(runs))
    gap = np.abs(observed.mean(axis=0) - np.array(theory))
    assert np.all(gap < 5 * error + allowed * np.array(scale)), f"{observed.mean(axis=0)} +- {error} for {theory}"
    # a theory that is off by 8 per cent would be seen
    assert np.all(5 * error + allowed * np.array(scale) < 0.08 * np.array(scale)), error


def _unit(d: int, k: int) -> Tensor:
    e = torch.zeros(d, dtype=torch.float64)
    e[k] = 1
    return e


def test_four_steps_on_the_same_data() -> None:
    d, runs = 800, []
    for seed in range(24):
        rng = torch.Generator().manual_seed(seed)
        data = _sample(int(0.7 * d), d, 3, 1, 2.0, 0.5, rng)
        course = _train(_tied, "logistic", {"w": _unit(d, 1)}, [(data, {"w": 4.0}, 0.0)] * 4)
        runs.append([float(v["w"] @ v["w"]) for v in course] + [float(v["w"][0]) for v in course])
    steps = tied(4)
    theory = numbers(
        steps.equations(),
        [g(t) for g in (lambda t: steps.inner(w, w, t), lambda t: steps.overlap(w, t)) for t in range(5)],
    )
    squares = np.array(theory[:5])
    _check(theory, runs, [*squares, *np.sqrt(squares)], 0.01)


def _joint(name: str, plan: Sequence[str], start: Start, rate: sp.Expr) -> GradientSteps:
    """w, q and b of attention trained together, on the named data sets of n = d samples."""
    vectors, output = attention(3)
    sets = {k: Data(k, sp.S.One) for k in plan}
    update = {w: descend(w, rate, R(1, 10)), q: descend(q, rate, R(1, 10)), b: descend(b, R(1, 2))}
    return GradientSteps(
        vectors,
        output,
        loss(name),
        rare_signal(R(1, 3), 3, 3, 1),
        tuple(Step(sets[k], update) for k in plan),
        {b: 0},
        start,
    )


@pytest.mark.parametrize(
    ("name", "plan", "start", "rate"),
    [
        ("logistic", "aaa", Start(), R(2)),
        ("hinge", "aaa", Start((w, q), sp.ImmutableDenseMatrix([[1, R(1, 2)], [R(1, 2), 1]]), (0, 0)), R(1)),
        ("logistic", "aba", Start((w,), sp.ImmutableDenseMatrix([[1]]), (R(3, 5),)), R(2)),
    ],
    ids=["same", "hinge-same", "mixed"],
)
def test_values_scores_and_bias_together(name: str, plan: str, start: Start, rate: sp.Expr) -> None:
    d, runs = 800, []
    states = {
        "w": _unit(d, 1) * (1 if start.vectors == (w, q) else 0.8)
        + _unit(d, 0) * (0.6 if start.vectors == (w,) else 0),
        "q": _unit(d, 1) / 2 + np.sqrt(3) / 2 * _unit(d, 2),
        "b": torch.zeros((), dtype=torch.float64),
    }
    present = {"w": w in start.vectors, "q": q in start.vectors, "b": True}
    states = {k: v if present[k] else 0 * v for k, v in states.items()}
    for seed in range(24):
        rng = torch.Generator().manual_seed(seed)
        sets = {k: _sample(d, d, 3, 1, 3.0, 1 / 3, rng) for k in sorted(set(plan))}
        rates = {"w": float(rate), "q": float(rate), "b": 0.5}
        last = _train(_attention(2.0), name, states, [(sets[k], rates, 0.1) for k in plan])[-1]
        v, s = last["w"], last["q"]
        runs.append([float(a) for a in (v @ v, s @ s, v @ s, v[0], s[0], last["b"])])
    steps = _joint(name, plan, start, rate)
    wanted = [
        steps.inner(w, w),
        steps.inner(q, q),
        steps.inner(w, q),
        steps.overlap(w),
        steps.overlap(q),
        steps.bias(b),
    ]
    theory = numbers(steps.equations(), wanted, {beta: 2}, log_points=15)
    one, two = np.sqrt(theory[0]), np.sqrt(theory[1])
    _check(theory, runs, [one**2, two**2, one * two, one, two, 1.0], 0.015)


@pytest.mark.parametrize(
    ("setting", "ratio", "size", "runs"),
    [
        (
            {"name": "logistic", "signals": 3, "pi": R(1, 5), "theta": 6, "eta": R(1, 2), "eta_b": R(1, 2)},
            R(1, 2),
            1000,
            48,
        ),
        ({"name": "square", "eta": 10}, 2, 500, 16),
        ({"name": "hinge", "eta": 4}, R(1, 4), 1000, 48),
    ],
    ids=["logistic", "square-negative", "hinge"],
)
def test_the_cosine_after_two_steps(setting: Mapping[str, Any], ratio: Any, size: int, runs: int) -> None:
    cosines = []
    steps = two_steps(**setting)
    theory = numbers(steps.equations(), [steps.cosine(q)], {alpha0: ratio, beta: 1})
    pi, theta = float(setting.get("pi", 0.5)), float(setting.get("theta", 5))
    eta, eta_b = float(setting.get("eta", 1)), float(setting.get("eta_b", 1))
    zero = torch.zeros(size, dtype=torch.float64)
    for seed in range(runs):
        rng = torch.Generator().manual_seed(seed)
        data = _sample(int(ratio * size), size, 10, int(setting.get("signals", 1)), theta, pi, rng)
        values = {"w": zero, "q": zero, "b": torch.zeros((), dtype=torch.float64)}
        plan = [(data, {"w": eta, "b": eta_b}, 0.0), (data, {"q": 1.0}, 0.0)]
        s = _train(_attention(1.0), setting["name"], values, plan)[-1]["q"]
        cosines.append([float(s[0] / s.norm())])
    _check(theory, cosines, [1.0], 0.02)
    fresh = two_steps(**setting, reuse=False)
    (other,) = numbers(fresh.equations(), [fresh.cosine(q)], {alpha0: ratio, beta: 1})
    if setting["name"] == "hinge":  # few samples: without their share in w the theory is another
        assert abs(other - theory[0]) > 0.05
        with pytest.raises(AssertionError):
            _check([other], cosines, [1.0], 0.02)
