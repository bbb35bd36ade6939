"""Tasks of convex risk minimisation drawn at random, as twins of theory and simulation.

A twin has a latent class, features along one or two directions with a scale that may depend on it, labels +-1, or real
ones with one normal variable, and a loss that is a sum of convex pieces, some with kinks. It is read from the text that
a user would write; theory and simulation must agree whatever is drawn. Two classes and one normal variable at most keep
the averages to one dimension, and a twin to seconds.
"""

from __future__ import annotations

import random
from fractions import Fraction

from derive.document import Document
from derive.task import load
from derive.tasks.convex_erm import ConvexErmTask

__all__ = ["draw", "text"]

MARGIN_PIECES = (
    ("{c}*relu({k} - y*u)", "{c}*max({k} - y*u, y*u/4)", "{c}*abs(u - y)"),
    ("{c}*relu({k} - y*u)**2", "{c}*(u - y)**2"),
)
RESIDUAL_PIECES = (
    ("{c}*abs(u - y)", "{c}*max(0, abs(u - y) - {k})", "{c}*(relu(u - y - {k}) + 2*relu(y - u))"),
    ("{c}*(u - y)**2", "{c}*((u - y)**2 - relu(abs(u - y) - {k})**2)"),
)
"""Pieces with kinks, and pieces with a curvature: one of each, as minimisers of kinks alone are slow to find.

All are polynomials between kinks, so that their proximal operators are, too: others take iterations in each evaluation.
"""


def text(
    latents: dict[str, str], mean: list[str], scale: str, label: str, loss: str, *, alpha: str, ridge: str, bias: bool
) -> str:
    """A task file; ridge is a default that can be changed."""
    table = "\n".join(f"{name} = {law}" for name, law in latents.items())
    return f"""
limitlaw = 1
family = "convex-erm"
[parameters]
alpha = {{ domain = "(0,inf)", default = "{alpha}" }}
lam = {{ domain = "[0,inf)", default = "{ridge}" }}
[latent]
{table}
[features]
mean = {mean}
scale = "{scale}"
[label]
formula = "{label}"
[erm]
loss = "{loss}"
ridge = "lam"
bias = {"true" if bias else "false"}
[verify]
dimensions = [50, 100, 400]
seeds = 24
"""


def draw(seed: int) -> ConvexErmTask:
    """A random task, the same on every machine; every third one is a regression."""
    rng = random.Random(seed)
    regression = seed % 3 == 2
    often = rng.randint(3, 7)
    latents = {"s": f'{{ values = [1, -1], probabilities = ["{often}/10", "{10 - often}/10"] }}'}
    mean = [f"{_tenths(rng, 12, 20)}*s"]
    scale = f"1 + {_tenths(rng, 1, 4)}*(1 + s)" if rng.random() < 2 / 3 else "1"
    if rng.random() < 1 / 2:
        mean.append(f"{_tenths(rng, 5, 12)}*(1 + s)")
    label, pieces = "s", MARGIN_PIECES
    if regression:
        label, pieces = f"{_tenths(rng, 5, 15)}*s", RESIDUAL_PIECES
        if rng.random() < 1 / 2:
            label += f" + {_tenths(rng, 5, 15)}*x1"
        else:
            label += " + eps"
            latents["eps"] = f'{{ normal = [0, "{_tenths(rng, 2, 9)}"] }}'
    parts = [rng.choice(kind) for kind in pieces]
    loss = " + ".join(p.format(c=_tenths(rng, 4, 12), k=_tenths(rng, 3, 12)) for p in parts)
    source = text(
        *(latents, mean, scale, label, loss),
        alpha=f"{rng.randint(25, 45)}/10",
        ridge=f"{rng.randint(10, 40)}/100",
        bias=rng.random() < 2 / 3,
    )
    task = load(Document.read(source, "the test"))
    assert isinstance(task, ConvexErmTask)
    return task


def _tenths(rng: random.Random, low: int, high: int) -> Fraction:
    return Fraction(rng.randint(low, high), 10)
