"""Training problems of tests, and their equations evaluated by plain numbers: quadrature, or Sobol points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp
from scipy import special
from scipy.stats import qmc

from derive.equations import Define
from derive.expectation import Expectation
from derive.functions import SoftmaxEntry, softplus
from derive.measures import Pushforward
from derive.mechanisms.gradient_steps import Data, GradientSteps, Start, Step, Vector, descend, rare_signal
from tests.derive.truth import NUMPY, Array, value

w, q = sp.symbols("w q")
b, y, f = sp.symbols("b y f", real=True)
alpha0, beta = sp.symbols("alpha0 beta", positive=True)
R = sp.Rational
HALF, SPARSE = R(1, 2), R(7, 10)

LOSSES: Mapping[str, Callable[[Any], Any]] = {
    "square": lambda x: (1 - x) ** 2 / 2,
    "logistic": lambda x: softplus(-x),
    "hinge": lambda x: sp.Max(0, 1 - x),
}


def loss(name: str) -> sp.Lambda:
    return sp.Lambda((y, f), LOSSES[name](y * f))


def softmax(scores: Sequence[sp.Expr]) -> list[sp.Expr]:
    return [SoftmaxEntry(s, *(t for j, t in enumerate(scores) if j != i)) for i, s in enumerate(scores)]


def fields(name: str, length: int) -> tuple[sp.Symbol, ...]:
    return tuple(sp.symbols(f"{name}_1:{length + 1}", real=True))


def attention(length: int) -> tuple[tuple[Vector, Vector], sp.Expr]:
    """f = softmax(beta X q) . X w + b."""
    values, scores = fields("u", length), fields("s", length)
    weights = softmax([beta * s for s in scores])
    return (Vector(w, values), Vector(q, scores)), sp.Add(*(a * c for a, c in zip(values, weights, strict=True))) + b


def two_steps(
    name: str,
    *,
    length: int = 10,
    signals: int = 1,
    pi: Any = HALF,
    theta: Any = 5,
    eta: Any = 1,
    eta_b: Any = 1,
    eta_q: Any = 1,
    reuse: bool = True,
) -> GradientSteps:
    """From zero: w and b on D0, then q on D0 again or on as many fresh samples."""
    vectors, output = attention(length)
    first = Data("D0", alpha0)
    return GradientSteps(
        vectors=vectors,
        output=output,
        loss=loss(name),
        cases=rare_signal(pi, theta, length, signals),
        steps=(
            Step(first, {w: descend(w, eta), b: descend(b, eta_b)}),
            Step(first if reuse else Data("D1", alpha0), {q: descend(q, eta_q)}),
        ),
        biases={b: sp.S.Zero},
    )


def tied(
    steps: int, *, name: str = "logistic", length: int = 3, ratio: Any = SPARSE, fresh: bool = False
) -> GradientSteps:
    """f = softmax(X w) . X w, |w_0| = 1, orthogonal to xi."""
    u = fields("u", length)
    return GradientSteps(
        vectors=(Vector(w, u),),
        output=sp.Add(*(a * c for a, c in zip(u, softmax(u), strict=True))),
        loss=loss(name),
        cases=rare_signal(R(1, 2), 2, length, 1),
        steps=tuple(Step(Data(f"D{t if fresh else 0}", ratio), {w: descend(w, sp.S(4))}) for t in range(steps)),
        start=Start((w,), sp.ImmutableDenseMatrix([[1]]), (sp.S.Zero,)),
    )


# ---- numbers ---------------------------------------------------------------------------------------------------
def numbers(
    equations: Sequence[Define],
    wanted: Sequence[sp.Expr],
    at: Mapping[sp.Symbol, Any] | None = None,
    log_points: int = 13,
) -> list[float]:
    """The wanted expressions, the equations evaluated one after the other."""
    known = {k: sp.S(v) for k, v in (at or {}).items()}

    def evaluated(e: sp.Expr) -> float:
        sampled = [a for a in sp.S(e).atoms(Expectation) if isinstance(a.measure, Pushforward)]
        return value(sp.S(e).xreplace({a: sp.Float(_sampled(a, known, log_points), 17) for a in sampled}), known)

    for equation in equations:
        known[equation.unknown.symbol] = sp.Float(evaluated(equation.rhs), 17)
    return [evaluated(e) for e in wanted]


@lru_cache(maxsize=64)
def _points(dim: int, log_points: int) -> Array:
    points = qmc.Sobol(dim, scramble=True, seed=1).random_base2(log_points)
    return special.ndtri(np.clip(points, 1e-15, 1 - 1e-15)).T


def _sampled(e: Expectation, known: Mapping[sp.Symbol, sp.Expr], log_points: int) -> float:
    law = e.measure
    mean = np.array([float(v.xreplace(known)) for v in law.base.mean])
    factor = np.linalg.cholesky(np.array(law.base.cov.xreplace(known).tolist(), dtype=float))
    values: dict[sp.Symbol, Any] = dict(
        zip(law.inputs, mean[:, None] + factor @ _points(law.base.dim, log_points), strict=True)
    )

    def call(g: sp.Expr) -> Any:
        read = sorted(g.free_symbols, key=str)
        return sp.lambdify(read, g, [NUMPY, "numpy"])(*(values[s] for s in read))

    for s, definition in law.definitions:
        values[s] = call(definition.xreplace(known))
    return float(np.mean(call(e.integrand.xreplace(known).xreplace(dict(zip(e.variables, law.outputs, strict=True))))))
