"""What is read off the minimiser of a risk with a spectral penalty: errors, losses, rank, stability, kinds of error."""

from __future__ import annotations

import sympy as sp

from derive.equations import Define, Equation, Quantity, Source
from derive.expectation import Expectation
from derive.mechanisms.potential import m, m_hat, q
from derive.mechanisms.spectral_erm import PAPER, SpectralErm, delta, eps, factored, place, quantity, target_size
from derive.spectra import FreeConvolution, Listed, PowerLaw, semicircle

__all__ = ["observables"]

_nonnegative = sp.Interval(0, sp.oo)
_training, _mse = sp.Symbol("training_loss", real=True), sp.Symbol("mse", real=True)
_eta = sp.Symbol("eta", positive=True)
_s = sp.Symbol("s", real=True)
_y = sp.Symbol("y", real=True)

Found = list[tuple[Quantity, sp.Expr]]


def observables(problem: SpectralErm, soft: sp.Expr | None = None, ratio: sp.Expr | None = None) -> list[Equation]:
    """Of the solution. soft: the denoiser where it has a simpler form; ratio: m_hat/Sigma_hat where it is a number."""
    data = problem.alpha * factored(problem.channel.training_loss(problem.label_variance))
    penalty = problem.over_spectrum(problem.penalised(problem.denoised(place) if soft is None else soft))
    fresh, clean = (problem.channel.fresh_loss(v) for v in (problem.label_variance, target_size))
    found = [
        (Quantity(_mse, "tr (S - S0)^2", _nonnegative), target_size - 2 * m + q),
        (Quantity(_training, "loss of all training samples over d^2"), data),
        (Quantity(sp.Symbol("objective", real=True), "the same with the penalty"), _training + penalty),
        (Quantity(sp.Symbol("test_error", real=True), "mean loss of a fresh sample with noisy labels"), fresh),
        (Quantity(sp.Symbol("test_error_clean", real=True), "the same without the labels' noise"), clean),
        *_shape(problem, soft),
        *_stability(problem),
    ]
    derived = Source("derived", "expectation at the minimiser")
    kinds = _decomposition(problem, ratio)
    source = Source(PAPER, "decomposition of the error into recovered modes, others and noise")
    return [*(Define(*f, derived) for f in found), *(Define(*f, source) for f in kinds)]


def _shape(problem: SpectralErm, soft: sp.Expr | None) -> Found:
    """rank, and slope eta and threshold eps of a denoiser eta (x - eps)_+."""
    if problem.soft_threshold is None:
        return []
    slope, start = problem.soft_threshold
    rank = problem.over_spectrum(sp.Heaviside(place - (start if soft is None else eps)))
    return [
        (Quantity(_eta, "slope of the denoiser", sp.Interval.open(0, sp.oo)), slope),
        (quantity(eps), start),
        (Quantity(sp.Symbol("rank", real=True), "rank of the student over d", sp.Interval(0, 1)), rank),
    ]


def _stability(problem: SpectralErm) -> Found:
    """The replicon 2 alpha E |dr/d omega|^2 E [(S(x) - S(y))/(x - y)]^2/m_hat^2, below 1 where the minimum is stable.

    For S = eta (x - eps)_+ with a = (x - eps)_+, b = (eps - y)_+ the divided difference is eta for x, y > eps, and
    eta a/(a + b) for x > eps > y.
    """
    law = FreeConvolution(problem.spectrum, delta**2)
    if problem.soft_threshold is None:
        slope = problem.linear_slope
        if slope is None:
            return []
        spread = slope**2
    else:
        above, below = (place - eps) * sp.Heaviside(place - eps), (eps - _y) * sp.Heaviside(eps - _y)
        # the last term keeps 0/0 away where y > eps, which counts nothing here
        part = above / (above + below + sp.Heaviside(_y - eps))
        across = Expectation(sp.Heaviside(eps - _y) * part**2, [_y], law)
        twice = Expectation(2 * sp.Heaviside(place - eps) * across, [place], law)
        spread = _eta**2 * (sp.Symbol("rank", real=True) ** 2 + twice)
    curvature = problem.channel.squared_curvature(problem.label_variance)
    replicon = Quantity(sp.Symbol("replicon", real=True), "stability of the minimum, below 1 where it is stable")
    return [(replicon, 2 * problem.alpha * factored(curvature) * spread / m_hat**2)]


def _decomposition(problem: SpectralErm, ratio: sp.Expr | None) -> Found:
    """The error in parts, for a target of few large eigenvalues s among d: those with s > delta show as eigenvalues
    s + delta^2/s of the noisy target, of overlap 1 - delta^2/s^2 with their direction  [Benaych-Georges and
    Nadakuditi 2011], all else as the semicircle of the noise. a = ratio is what s is multiplied by with many samples.
    """
    if ratio is None or problem.soft_threshold is None or not isinstance(problem.spectrum, PowerLaw | Listed):
        return []
    shown = _s + delta**2 / _s
    learned = _eta * (shown - eps)
    recovered = sp.Heaviside(_s - delta) * sp.Heaviside(shown - eps)
    miss = (ratio * _s) ** 2 - 2 * ratio * _s * learned * (1 - delta**2 / _s**2) + learned**2
    noise = Expectation((_y - eps / delta) ** 2 * sp.Heaviside(_y - eps / delta), [_y], semicircle(1))

    def over_target(integrand: sp.Expr) -> sp.Expr:
        return Expectation(integrand, [_s], problem.spectrum)

    parts = {
        "e_approx": ("error of the recovered modes", over_target(recovered * miss)),
        "e_under": ("size of the modes that are not recovered", over_target((ratio * _s) ** 2 * (1 - recovered))),
        "e_over": ("noise that is learnt", _eta**2 * delta**2 * noise),
        "e_mismatch": ("error of a S0 with many samples", (1 - ratio**2) * target_size - 2 * (1 - ratio) * m),
    }
    return [(Quantity(sp.Symbol(name, real=True), text), rhs) for name, (text, rhs) in parts.items()]
