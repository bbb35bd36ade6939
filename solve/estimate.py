"""A number for what cannot be enclosed: quasi-random sampling, an estimate and not a proof."""

from __future__ import annotations

import numpy as np
import sympy as sp
from flint import arb, ctx
from numpy.typing import NDArray
from scipy.special import ndtri

from solve.balls import BallArrays, constant_ball
from solve.gaussian_form import Standard, decomposed
from solve.straightline import NotEnclosed, compile_program, plain

__all__ = ["estimate"]

_REPLICATES, _POINTS = 8, 1024
_SEED = 20250601


def estimate(value: sp.Expr) -> str:
    """A sentence: mean +- 3 standard errors of 8 scrambled Sobol estimates, for a sum of expectations."""
    try:
        mean, error = _mean(value)
    except (NotEnclosed, ValueError) as reason:
        return f"no numerical estimate either ({reason})"
    return f"numerically {mean:.4g} +- {3 * error:.1g}, which is no proof"


def _mean(value: sp.Expr) -> tuple[float, float]:
    integrals, rest = decomposed(value)
    with ctx.workprec(53):
        replicates = float(sum((constant_ball(r) for r in rest), arb(0)).mid()) + np.zeros(_REPLICATES)
        for s in integrals:
            replicates += np.array([_sample(s, seed) for seed in range(_REPLICATES)])
    return float(replicates.mean()), float(replicates.std(ddof=1) / np.sqrt(_REPLICATES))


def _sample(s: Standard, replicate: int) -> float:
    program = compile_program(plain(s.integrand), s.variables)
    arithmetic = BallArrays()
    constants = [arithmetic.constant(constant_ball(c)) for c in program.constants]
    exact = np.frompyfunc(arb, 1, 1)
    columns = [exact(column) for column in _normal_points(s.dim, replicate).T]
    values = program.run(arithmetic, columns, constants)
    return float(np.sum(values).mid()) / _POINTS


def _normal_points(dim: int, replicate: int) -> NDArray[np.float64]:
    from scipy.stats import qmc  # heavy to import, and seldom needed

    sequence = qmc.Sobol(dim, rng=np.random.default_rng((_SEED, replicate)))
    return np.asarray(ndtri(np.clip(sequence.random(_POINTS), 1e-12, 1 - 1e-12)))
