"""Risk minimisation over symmetric matrices with a spectral penalty: its potential and its denoiser.

min over S of sum_mu loss(h0_mu, h_mu(S)) + d Tr penalty(S) for n = alpha d^2 samples; h_ab = (x_a^T S x_b - delta_ab
Tr S)/sqrt d. The stationary value of the potential is the limit of the minimum over d^2  [arXiv:2509.24914].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from derive.equations import Quantity
from derive.expectation import Expectation
from derive.mechanisms.index_channel import IndexChannel
from derive.mechanisms.potential import Potential, denoiser_input, m, m_hat, q, q_hat, sigma, sigma_hat
from derive.polynomial import expand
from derive.proximal import MoreauSlope, Prox, Region, closed_proximal, confinement, regions
from derive.rules import closed_form
from derive.spectra import FreeConvolution, Spectrum

__all__ = [
    "PAPER",
    "SpectralErm",
    "delta",
    "eps",
    "factored",
    "is_rational",
    "place",
    "quantity",
    "response",
    "target_size",
]

PAPER = "arXiv:2509.24914"
_above_zero = sp.Interval.open(0, sp.oo)
_unit = sp.Rational(1, 4)

delta = sp.Symbol("delta", positive=True)
target_size = sp.Symbol("Q0", positive=True)
eps, response = sp.symbols("eps A", positive=True)
place = sp.Symbol("x", real=True)
"""An eigenvalue of the noisy target."""
_s = sp.Symbol("s", real=True)

MEANINGS = {
    q_hat: "conjugate of Sigma: variance of the noise on the student's matrix",
    m_hat: "conjugate of m: strength of the signal on the student's matrix",
    sigma_hat: "conjugate of q: curvature on the student's matrix",
    sigma: "response of the student's matrix, the step of the proximal operator of the loss",
    m: "overlap tr S S0",
    q: "size tr S^2",
    delta: "noise on the target's matrix, the radius of its semicircle over 2",
    target_size: "size tr S0^2 of the target",
    eps: "threshold of the denoiser eta (x - eps)_+ of an eigenvalue x of the noisy target",
    response: "mean divergence of the denoiser over its slope",
}
DOMAINS = {s: _above_zero for s in MEANINGS if s is not m} | {m: sp.S.Reals}


@dataclass(frozen=True)
class SpectralErm:
    """spectrum: of the target S0. penalty: of an eigenvalue s of S, confined where S must be positive, a Lambda.

    channel: the loss of the indices. noise: Delta, the labels' indices h0 + xi with Var xi_ab = Delta/(2 - delta_ab).
    """

    spectrum: Spectrum
    penalty: sp.Lambda
    channel: IndexChannel
    noise: sp.Expr
    alpha: sp.Expr

    # ---- the potential ------------------------------------------------------------------------------------
    @property
    def label_variance(self) -> sp.Expr:
        """Q, the variance of a coordinate of the labels' indices."""
        return target_size + self.noise / 2

    @cached_property
    def potential(self) -> Potential:
        """Phi(q_hat, m_hat, Sigma_hat; Sigma, m, q)."""
        noisy = FreeConvolution(self.spectrum, q_hat / m_hat**2)

        def average(f: Callable[[sp.Expr], sp.Expr]) -> sp.Expr:
            return Expectation(f(place), [place], noisy)

        own = denoiser_input(self.penalty, _unit, average)
        return Potential(own, self.channel.envelope(self.label_variance), self.alpha, _unit)

    @property
    def step(self) -> sp.Expr:
        """The step of the penalty's proximal operator, the denoiser."""
        return 1 / (2 * _unit * sigma_hat)

    def denoised(self, x: sp.Expr) -> sp.Expr:
        """The eigenvalue of the student where that of the noisy target is x."""
        return Prox(self.penalty, self.step, m_hat * x / sigma_hat)

    def over_spectrum(self, integrand: sp.Expr) -> sp.Expr:
        """E of a function of the eigenvalue x of S0 + delta Z; closed where the rules reach."""
        return self.tidied(Expectation(integrand, [place], FreeConvolution(self.spectrum, delta**2)))

    def of_soft(self, symbol: sp.Symbol, soft: sp.Expr) -> sp.Expr:
        """An order parameter for that denoiser, a formula of x."""
        expr = self.in_delta(self.potential.order_parameter(symbol))
        (e,) = expr.atoms(Expectation)
        (x,) = e.variables
        integrand = e.integrand.replace(lambda n: isinstance(n, Prox), lambda _: soft.xreplace({place: x}))
        scale = m_hat if integrand.has_free(m_hat) else sp.S.One
        once = expand(integrand * scale).replace(_is_step_power, lambda n: n.base)
        return expr.xreplace({e: Expectation(once, [x], e.measure)}) / scale

    def conjugates_at_zero(self) -> tuple[sp.Expr, sp.Expr]:
        """m_hat and q_hat of a student without overlap and size, at no response: Prox there is the point itself."""
        scale = self.alpha / (2 * _unit)
        pull, size = self.channel.gradient_at_zero(self.label_variance)
        return factored(-scale * pull), factored(scale * size)

    @cached_property
    def soft_threshold(self) -> tuple[sp.Expr, sp.Expr] | None:
        """(eta, eps) where the denoiser is eta (x - eps)_+, else None."""
        w = sp.Symbol("w", real=True)
        found = regions(self.penalty, self.step, w)
        if found is None or len(found) != 2 or found[0].prox != 0 or not _vanishes_at_start(found[1], w):
            return None
        slope = found[1].prox.diff(w)
        return sp.cancel(slope * m_hat / sigma_hat), sp.cancel(found[1].start * sigma_hat / m_hat)

    @property
    def linear_slope(self) -> sp.Expr | None:
        """The slope of the denoiser where it is linear, as that of a Frobenius penalty, else None."""
        w = sp.Symbol("w", real=True)
        found = regions(self.penalty, self.step, w)
        if found is None or len(found) != 1 or found[0].prox.subs(w, 0) != 0:
            return None
        return sp.cancel(found[0].prox.diff(w) * m_hat / sigma_hat)

    # ---- pieces -------------------------------------------------------------------------------------------
    @property
    def size(self) -> sp.Expr:
        """tr S0^2."""
        return closed_form(sp.S(Expectation(_s**2, [_s], self.spectrum)))

    def penalised(self, s: sp.Expr) -> sp.Expr:
        """The penalty of an eigenvalue that is allowed."""
        *_, rest = confinement(self.penalty)
        return rest.xreplace({self.penalty.variables[0]: s})

    def in_delta(self, expr: sp.Expr) -> sp.Expr:
        """With the noise on the target as delta, as one expectation."""
        return self.tidied(expr.xreplace({q_hat / m_hat**2: delta**2, q_hat: delta**2 * m_hat**2}))

    def tidied(self, expr: sp.Expr) -> sp.Expr:
        """A linear combination of expectations over the noisy spectrum as one, of the denoiser; closed by rules."""
        rest, integrand = sp.S.Zero, sp.S.Zero
        law = FreeConvolution(self.spectrum, delta**2)
        for term in sp.Add.make_args(expand(expr)):
            found = [e for e in term.args if isinstance(e, Expectation)] or [term]
            if not isinstance(found[0], Expectation):
                rest += term
                continue
            (x,) = found[0].variables
            integrand += term.xreplace({found[0]: sp.S.One}) * found[0].integrand.xreplace({x: place})
        integrand = integrand.replace(lambda n: isinstance(n, MoreauSlope), lambda n: (n.w - Prox(*n.args)) / n.V)
        integrand = expand(integrand)
        closed = closed_form(sp.S(Expectation(closed_proximal(integrand), [place], law)))
        own = Expectation(integrand, [place], law) if closed.has(FreeConvolution) else sp.factor(closed)
        return rest + own


def is_rational(expr: sp.Expr) -> bool:
    """Whether an expression is a rational function of its symbols, but for square roots of numbers and parameters."""
    return not expr.has(Expectation, sp.Function, sp.exp)


def factored(expr: sp.Expr) -> sp.Expr:
    """A rational function in factors, anything else as it is."""
    return sp.factor(expr) if is_rational(expr) else expr


def quantity(symbol: sp.Symbol) -> Quantity:
    """The quantity of a symbol of this theory."""
    return Quantity(symbol, MEANINGS[symbol], DOMAINS[symbol])


def _is_step_power(expr: sp.Basic) -> bool:
    """1[x > 0]^n, which is 1[x > 0]."""
    return isinstance(expr, sp.Pow) and isinstance(expr.base, sp.Heaviside)


def _vanishes_at_start(region: Region, w: sp.Symbol) -> bool:
    return bool(expand(sp.cancel(region.prox.subs(w, region.start))) == 0)
