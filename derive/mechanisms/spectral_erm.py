"""Risk minimisation over symmetric matrices with a spectral penalty: the potential, its equations, what is read off.

min over S of sum_mu loss(h0_mu, h_mu(S)) + d Tr penalty(S) for n = alpha d^2 samples; h_ab = (x_a^T S x_b - delta_ab
Tr S)/sqrt d. The stationary value of the potential is the limit of the minimum over d^2. Read as an iteration, the same
equations are the state evolution of approximate message passing  [arXiv:2509.24914].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import sympy as sp

from derive.equations import Define, Equation, EquationSystem, Quantity, Root, Source
from derive.expectation import Expectation
from derive.mechanisms.index_channel import IndexChannel
from derive.mechanisms.potential import Potential, denoiser_input, m, m_hat, q, q_hat, sigma, sigma_hat
from derive.polynomial import expand
from derive.proximal import MoreauSlope, Prox, Region, closed_proximal, confinement, regions
from derive.rules import closed_form
from derive.spectra import FreeConvolution, Spectrum

__all__ = ["SpectralErm", "delta", "target_size"]

PAPER = "arXiv:2509.24914"
_above_zero = sp.Interval.open(0, sp.oo)
_unit = sp.Rational(1, 4)

delta = sp.Symbol("delta", positive=True)
target_size = sp.Symbol("Q0", positive=True)
eps, response = sp.symbols("eps A", positive=True)
_x = sp.Symbol("x", real=True)
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
_curvature = sp.Symbol("curvature", positive=True)
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
            return Expectation(f(_x), [_x], noisy)

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
        return self._tidied(Expectation(integrand, [_x], FreeConvolution(self.spectrum, delta**2)))

    # ---- the equations ------------------------------------------------------------------------------------
    def state_evolution(self) -> EquationSystem:
        """Stationarity of the potential: each conjugate by the data, each order parameter by the denoiser."""
        theorem = Source(PAPER, "state evolution; derived: stationarity of the potential")
        derived = Source("derived", "definition")
        found: list[Equation] = [Define(_quantity(target_size), self.size, derived)]
        for symbol in (m_hat, q_hat, sigma_hat):
            found.append(Define(_quantity(symbol), _factored(self.potential.conjugate(symbol)), theorem))
        found.append(Define(_quantity(delta), sp.sqrt(q_hat) / m_hat, derived))
        for symbol in (m, q, sigma):
            found.append(Define(_quantity(symbol), self._in_delta(self.potential.order_parameter(symbol)), theorem))
        return self._closed([*found, *self.observables()], self.start)

    def reduced(self) -> EquationSystem | None:
        """The same for a denoiser eta (x - eps)_+ of known slope, in delta and eps alone; None where it has none.

        The conjugates must be rational in the order parameters, m_hat/Sigma_hat a number, and m_hat the one solution
        of its equation when Sigma = eta A/m_hat, A = E 2 (x - eps)_+ Re G(x), is put in.
        """
        eliminated = self._eliminated
        if eliminated is None:
            return None
        eta, threshold, ratio, strength, noise = eliminated
        derived = Source("derived", "state evolution, conjugates eliminated")
        soft = eta * (_x - eps) * sp.Heaviside(_x - eps)
        found: list[Equation] = [
            Define(_quantity(target_size), self.size, Source("derived", "definition")),
            Define(_quantity(response), self.of_soft(sigma, soft) * m_hat / eta, derived),
            Define(_quantity(m_hat), strength, derived),
            Root(_quantity(eps), eps * m_hat - threshold, derived),
            Define(_quantity(m), self.of_soft(m, soft), derived),
            Define(_quantity(q), self.of_soft(q, soft), derived),
            Root(_quantity(delta), delta**2 - noise, derived),
            Define(_quantity(sigma), eta * response / m_hat, derived),
            Define(_quantity(sigma_hat), m_hat / ratio, derived),
            Define(_quantity(q_hat), (delta * m_hat) ** 2, derived),
        ]
        observed = [e for e in self.observables(soft) if e.unknown.symbol != eps]
        first = sp.sqrt(noise.subs({m: 0, q: 0}))
        return self._closed([*found, *observed], {delta: first, eps: first})

    @cached_property
    def _eliminated(self) -> tuple[sp.Expr, ...] | None:
        """eta, eps m_hat, m_hat/Sigma_hat, m_hat of A and delta^2 of m and q; None where there is no such form."""
        if self.soft_threshold is None:
            return None
        conjugates = {s: _factored(self.potential.conjugate(s)) for s in (m_hat, q_hat, sigma_hat)}
        if any(c.has(Expectation) for c in conjugates.values()):
            return None
        ratio = sp.cancel(conjugates[m_hat] / conjugates[sigma_hat])
        noise = sp.factor(sp.cancel(conjugates[q_hat] / conjugates[m_hat] ** 2))
        slope, start = (sp.cancel(e.subs(sigma_hat, m_hat / ratio)) for e in self.soft_threshold)
        threshold = sp.cancel(start * m_hat)
        strength = _only_solution(conjugates[m_hat].subs(sigma, slope * response / m_hat) - m_hat, m_hat)
        fixed = (ratio, slope, threshold, noise)
        if strength is None or any(e.has_free(sigma, m_hat) for e in fixed) or ratio.has_free(m, q):
            return None
        return slope, threshold, ratio, strength, noise

    def of_soft(self, symbol: sp.Symbol, soft: sp.Expr) -> sp.Expr:
        """An order parameter for that denoiser, a formula of x."""
        expr = self._in_delta(self.potential.order_parameter(symbol))
        (e,) = expr.atoms(Expectation)
        (x,) = e.variables
        integrand = e.integrand.replace(lambda n: isinstance(n, Prox), lambda _: soft.xreplace({_x: x}))
        scale = m_hat if integrand.has_free(m_hat) else sp.S.One
        once = expand(integrand * scale).replace(_is_step_power, lambda n: n.base)
        return expr.xreplace({e: Expectation(once, [x], e.measure)}) / scale

    def conjugates_at_zero(self) -> tuple[sp.Expr, sp.Expr]:
        """m_hat and q_hat of a student without overlap and size, at no response: Prox there is the point itself."""
        scale = self.alpha / (2 * _unit)
        pull, size = self.channel.gradient_at_zero(self.label_variance)
        return _factored(-scale * pull), _factored(scale * size)

    def proxy(self) -> EquationSystem:
        """The equations for a quadratic loss of the same mean curvature, which are easily solved."""
        near = replace(self, channel=self.channel.quadratic(_curvature))
        system = near.reduced() or near.state_evolution()
        known = Quantity(_curvature, "half the mean curvature of the loss at the target", _above_zero)
        first = Define(known, self.channel.curvature(self.label_variance), Source("derived", "second derivative"))
        kept = [e for e in system.equations if e.unknown.symbol in MEANINGS]
        size = next(e for e in kept if e.unknown.symbol == target_size)
        rest = [e for e in kept if e is not size]
        return self._closed([size, first, *rest], dict(system.start))

    @property
    def start(self) -> dict[sp.Symbol, sp.Expr]:
        """Where an iteration begins: no overlap is needed, the data show the target at once."""
        return {m_hat: self.alpha, q_hat: self.alpha, sigma_hat: self.alpha, sigma: sp.S.One, q: sp.S.One, m: sp.S.Half}

    def observables(self, soft: sp.Expr | None = None) -> list[Equation]:
        """Errors, losses and the student's spectrum at the solution; soft: its denoiser where that is simpler."""
        derived = Source("derived", "expectation at the minimiser")
        nonnegative = sp.Interval(0, sp.oo)
        training, mse = sp.Symbol("training_loss", real=True), sp.Symbol("mse", real=True)
        data = self.alpha * _factored(self.channel.training_loss(self.label_variance))
        penalty = self.over_spectrum(self._without_confinement(self.denoised(_x) if soft is None else soft))
        fresh, clean = (self.channel.fresh_loss(v) for v in (self.label_variance, target_size))
        found = [
            (Quantity(mse, "tr (S - S0)^2", nonnegative), target_size - 2 * m + q),
            (Quantity(training, "loss of all training samples over d^2"), data),
            (Quantity(sp.Symbol("objective", real=True), "the same with the penalty"), training + penalty),
            (Quantity(sp.Symbol("test_error", real=True), "mean loss of a fresh sample with noisy labels"), fresh),
            (Quantity(sp.Symbol("test_error_clean", real=True), "the same without the labels' noise"), clean),
        ]
        return [Define(quantity, rhs, derived) for quantity, rhs in (*found, *self._shape(soft))]

    def _shape(self, soft: sp.Expr | None) -> list[tuple[Quantity, sp.Expr]]:
        """rank, and slope eta and threshold eps of a denoiser eta (x - eps)_+."""
        shape = self.soft_threshold
        if shape is None:
            return []
        slope, start = shape
        rank = self.over_spectrum(sp.Heaviside(_x - (start if soft is None else eps)))
        unit = sp.Interval(0, 1)
        return [
            (Quantity(sp.Symbol("eta", positive=True), "slope of the denoiser", _above_zero), slope),
            (_quantity(eps), start),
            (Quantity(sp.Symbol("rank", real=True), "rank of the student over d", unit), rank),
        ]

    @cached_property
    def soft_threshold(self) -> tuple[sp.Expr, sp.Expr] | None:
        """(eta, eps) where the denoiser is eta (x - eps)_+, else None."""
        w = sp.Symbol("w", real=True)
        found = regions(self.penalty, self.step, w)
        if found is None or len(found) != 2 or found[0].prox != 0 or not _vanishes_at_start(found[1], w):
            return None
        slope = found[1].prox.diff(w)
        return sp.cancel(slope * m_hat / sigma_hat), sp.cancel(found[1].start * sigma_hat / m_hat)

    # ---- pieces -------------------------------------------------------------------------------------------
    @property
    def size(self) -> sp.Expr:
        """tr S0^2."""
        return closed_form(sp.S(Expectation(_s**2, [_s], self.spectrum)))

    def _without_confinement(self, s: sp.Expr) -> sp.Expr:
        *_, rest = confinement(self.penalty)
        return rest.xreplace({self.penalty.variables[0]: s})

    def _in_delta(self, expr: sp.Expr) -> sp.Expr:
        """With the noise on the target as delta, as one expectation."""
        return self._tidied(expr.xreplace({q_hat / m_hat**2: delta**2, q_hat: delta**2 * m_hat**2}))

    def _tidied(self, expr: sp.Expr) -> sp.Expr:
        """A linear combination of expectations over the noisy spectrum as one, of the denoiser; closed by rules."""
        rest, integrand = sp.S.Zero, sp.S.Zero
        law = FreeConvolution(self.spectrum, delta**2)
        for term in sp.Add.make_args(expand(expr)):
            found = [e for e in term.args if isinstance(e, Expectation)] or [term]
            if not isinstance(found[0], Expectation):
                rest += term
                continue
            (x,) = found[0].variables
            integrand += term.xreplace({found[0]: sp.S.One}) * found[0].integrand.xreplace({x: _x})
        integrand = integrand.replace(lambda n: isinstance(n, MoreauSlope), lambda n: (n.w - Prox(*n.args)) / n.V)
        integrand = expand(integrand)
        closed = closed_form(sp.S(Expectation(closed_proximal(integrand), [_x], law)))
        own = Expectation(integrand, [_x], law) if closed.has(FreeConvolution) else sp.factor(closed)
        return rest + own

    def _closed(self, equations: list[Equation], start: dict[sp.Symbol, sp.Expr]) -> EquationSystem:
        read = set().union(*(e.reads() for e in equations), *(v.free_symbols for v in start.values()))
        own = {e.unknown.symbol for e in equations}
        parameters = tuple(Quantity(s, "parameter") for s in sorted(read - own, key=str))
        return EquationSystem(tuple(equations), parameters, {s: v for s, v in start.items() if s in own})


def _factored(expr: sp.Expr) -> sp.Expr:
    """A rational function in factors, anything else as it is."""
    return expr if expr.has(Expectation) else sp.factor(expr)


def _quantity(symbol: sp.Symbol) -> Quantity:
    return Quantity(symbol, MEANINGS[symbol], DOMAINS[symbol])


def _is_step_power(expr: sp.Basic) -> bool:
    """1[x > 0]^n, which is 1[x > 0]."""
    return isinstance(expr, sp.Pow) and isinstance(expr.base, sp.Heaviside)


def _only_solution(expr: sp.Expr, s: sp.Symbol) -> sp.Expr | None:
    """The one s != 0 at which a rational function vanishes, where its numerator has one factor that is linear in s."""
    numerator, _ = sp.fraction(sp.together(expr))
    factors = [f for f, _ in sp.factor_list(numerator)[1] if f.has_free(s) and f != s]
    if len(factors) != 1 or sp.degree(factors[0], s) != 1:
        return None
    a, b = sp.Poly(factors[0], s).all_coeffs()
    return sp.factor(-b / a)


def _vanishes_at_start(region: Region, w: sp.Symbol) -> bool:
    return expand(sp.cancel(region.prox.subs(w, region.start))) == 0
