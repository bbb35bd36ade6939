"""The law of the eigenvalues of a trained student: of D(x), x an eigenvalue of S0 + delta Z and D the denoiser.

D is the proximal operator of the penalty p, s = D(x) the s with x = (Sigma_hat s + 2 p'(s))/m_hat; for eta (x - eps)_+
that is x = s/eta + eps. Where p has a kink, or S is confined, D is constant and S has an atom  [arXiv:2509.24914].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike

from derive.proximal import confinement, kinks, slope_at
from derive.tasks.attention_indexed import AttentionIndexed
from solve.elementary import compile_expressions
from solve.free_convolution import Convolved, Nodes
from solve.nodes import Array
from solve.proximal import parameters_of, proximal_solver
from solve.result import SolveError
from solve.solution import Solution
from solve.spectral import convolved, spectrum_parameters

__all__ = ["Atom", "StudentSpectrum", "student_spectrum"]

_s = sp.Symbol("s", real=True)
Values = Mapping[sp.Symbol, float]


class Atom(NamedTuple):
    """Every x in [low, high] becomes the eigenvalue `at`."""

    at: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class StudentSpectrum:
    """noisy: the law of x. denoise: D. origin: of s, the x with D(x) = s and dx/ds. kinks: ascending, apart."""

    noisy: Convolved
    denoise: Callable[[Array], Array]
    origin: Callable[[Array], tuple[Array, Array]]
    kinks: tuple[Atom, ...]

    @cached_property
    def atoms(self) -> Mapping[float, float]:
        """The masses of the eigenvalues that more than one x becomes."""
        return {k.at: self.noisy.mass((k.low, k.high)) for k in self.kinks}

    @property
    def zero_mass(self) -> float:
        """The part of the eigenvalues that are zero."""
        return self.atoms.get(0.0, 0.0)

    @cached_property
    def support(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue."""
        ends = [self.noisy.edges[0][0], self.noisy.edges[-1][1]]
        low, high = self.denoise(np.array(ends))
        return float(low), float(high)

    def density(self, s: ArrayLike) -> Array:
        """Of the part without atoms; nan at a kink."""
        array = np.asarray(s, dtype=np.float64)
        x, slope = self.origin(array)
        found: Array = self.noisy.density(x) * slope
        own = self.denoise(x)  # elsewhere where s is no value of D, as below zero where S >= 0
        reached = np.abs(own - array) <= 1e-9 * (1 + np.abs(array))
        at_kink = np.isin(array, [k.at for k in self.kinks])
        return np.where(at_kink, np.nan, np.where(reached, found, 0.0))

    def cdf(self, s: ArrayLike) -> Array:
        """The part of the eigenvalues up to s, with the atom at s."""
        array = np.asarray(s, dtype=np.float64)
        x, _ = self.origin(array)
        for kink in self.kinks:
            x = np.where(array == kink.at, kink.high, x)
            if kink.low == -math.inf:
                x = np.where(array < kink.at, -math.inf, x)
            if kink.high == math.inf:
                x = np.where(array > kink.at, math.inf, x)
        found = np.where(np.isposinf(x), 1.0, 0.0)
        inside = np.isfinite(x)
        found[inside] = self.noisy.cdf(x[inside])
        return found

    def quantile(self, p: ArrayLike) -> Array:
        """The eigenvalue below which a part p lies, 0 <= p <= 1."""
        return self.denoise(self.noisy.quantile(p))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """n independent draws; eigenvalues of one matrix repel each other and lie more evenly."""
        return self.denoise(self.noisy.sample(rng, n))

    def moments(self, n: int) -> Array:
        """E s^k, k = 0 .. n; the second is q."""
        nodes = self._nodes
        own = self.denoise(nodes.x)
        return np.array([float(nodes.weight @ own**k) for k in range(n + 1)])

    @cached_property
    def _nodes(self) -> Nodes:
        return self.noisy.nodes([e for k in self.kinks for e in (k.low, k.high) if math.isfinite(e)])


def student_spectrum(solution: Solution) -> StudentSpectrum:
    """Of a solved attention-indexed task.

    Raises `ValueError` for another task, or one of thresholds; `SolveError` where delta, or the denoiser, is no number.
    """
    task, prediction = solution.derivation.task, solution.prediction
    if not isinstance(task, AttentionIndexed) or task.asks_thresholds or prediction is None:
        raise ValueError("student_spectrum: needs a solution of an attention-indexed task with a student.")
    known = {s.name: float(v) for s, v in prediction.values.items()}
    if not math.isfinite(known["delta"]):
        raise SolveError(f"student_spectrum: delta is {known['delta']}; there is no law.", prediction.status)
    values = dict(solution.parameters)
    law = tuple(float(e.xreplace(values)) for e in spectrum_parameters(task.spectrum))
    noisy = convolved(task.spectrum, law, known["delta"] ** 2)
    if math.isfinite(known.get("eta", math.nan)) and math.isfinite(known.get("eps", math.nan)):
        return _soft(noisy, known["eta"], known["eps"])
    strength, curvature = known["m_hat"], known["Sigma_hat"]
    if not (0 < strength < math.inf and 0 < curvature < math.inf):
        raise SolveError(
            f"student_spectrum: m_hat is {strength}, Sigma_hat {curvature}; the denoiser needs positive numbers.",
            prediction.status,
        )
    return _of_penalty(noisy, task.penalty, values, strength, curvature)


def _soft(noisy: Convolved, eta: float, eps: float) -> StudentSpectrum:
    """D(x) = eta (x - eps)_+, also in the limit of no penalty, where m_hat and Sigma_hat vanish."""
    return StudentSpectrum(
        noisy,
        lambda x: eta * np.maximum(x - eps, 0.0),
        lambda s: (s / eta + eps, np.full_like(s, 1 / eta)),
        (Atom(0.0, -math.inf, eps),),
    )


def _of_penalty(
    noisy: Convolved, penalty: sp.Lambda, values: Values, strength: float, curvature: float
) -> StudentSpectrum:
    """D(x) = argmin p(s) + Sigma_hat (s - m_hat x/Sigma_hat)^2/4."""
    places = kinks(penalty)
    if places is None:
        raise ValueError(f"student_spectrum: the kinks of the penalty {penalty.expr} are not known.")
    *_, rest = confinement(penalty)
    bare = rest.xreplace({penalty.variables[0]: _s})
    parameters = parameters_of(penalty)
    numbers = [float(values[p]) for p in parameters]
    first = bare.diff(_s).replace(sp.DiracDelta, lambda *_: sp.S.Zero)
    second = first.diff(_s).replace(sp.DiracDelta, lambda *_: sp.S.Zero)
    slopes = compile_expressions([first, second], (_s, *parameters))
    solver, step, pull = proximal_solver(penalty), 2 / curvature, strength / curvature

    def denoise(x: Array) -> Array:
        found = solver(np.full_like(x, step), pull * x, *(np.full_like(x, v) for v in numbers))[0]
        return np.asarray(found)

    def origin(s: Array) -> tuple[Array, Array]:
        slope, bend = (np.broadcast_to(v, s.shape) for v in slopes(s, *numbers))
        return (s + step * slope) / pull, (1 + step * bend) / pull

    def end(place: sp.Expr, *, from_below: bool) -> float:
        slope = slope_at(penalty, place, from_below=from_below)  # infinite where S is confined
        return float((place + step * slope).xreplace(dict(values))) / pull

    atoms = [Atom(float(k.xreplace(dict(values))), end(k, from_below=True), end(k, from_below=False)) for k in places]
    return StudentSpectrum(noisy, denoise, origin, tuple(atoms))
