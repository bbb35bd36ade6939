"""Thresholds of attention-indexed models, each as an equation of its own: interpolation, recovery, collapse, splitting.

They are those of the least trace of a positive S whose indices are the labels': the limit of little regularisation
[arXiv:2509.24914; Donoho, Johnstone and Montanari 2013 for recovery].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import sympy as sp

from derive.equations import Define, Equation, EquationSystem, Quantity, Root, Source
from derive.expectation import Expectation
from derive.mechanisms.potential import m, m_hat, q, q_hat, sigma
from derive.mechanisms.spectral_erm import SpectralErm, delta, eps, response, target_size
from derive.polynomial import expand
from derive.proximal import Confined
from derive.spectra import Wishart
from derive.stieltjes import (
    SemicircleMoment,
    from_second_partial_moment,
    lowest_gap,
    right_of_support,
    zero_mass,
)

__all__ = ["SpectralThresholds"]

_above_zero = sp.Interval.open(0, sp.oo)
_derived = Source("arXiv:2509.24914", "derived: limit of little regularisation of the potential")
_rule = Source("derived", "integrals of Wigner's density")
_x = sp.Symbol("x", real=True)
_s = sp.Symbol("s", real=True)
_u = sp.Symbol("u", positive=True)


_STARTS = {
    "delta_interpolation": sp.S.One,
    "c_recovery": sp.S.Half,
    "u_collapse": sp.S.One,
    "u_split": sp.S.Half,
}


@dataclass(frozen=True)
class SpectralThresholds:
    """Of a problem; weight: the slope of its penalty in s > 0 for one unit of weight decay, None without one.

    values: of the parameters, as far as they are known.
    """

    problem: SpectralErm
    weight: sp.Expr | None
    values: Mapping[sp.Symbol, sp.Expr]

    def equations(self) -> EquationSystem:
        """Those that the target's spectrum and the penalty allow."""
        size = Define(Quantity(target_size, "size tr S0^2 of the target", _above_zero), self.problem.size, _rule)
        kept = [part for name, part in self._parts.items() if name not in self.absent]
        found = [size, *(e for part in kept for e in part())]
        starts = {e.unknown.symbol: _STARTS[e.unknown.symbol.name] for e in found if isinstance(e, Root)}
        read = set().union(*(e.reads() for e in found)) - {e.unknown.symbol for e in found}
        return EquationSystem(tuple(found), tuple(Quantity(s, "parameter") for s in sorted(read, key=str)), starts)

    @property
    def _parts(self) -> dict[str, Callable[[], list[Equation]]]:
        return {
            "alpha_interpolation": self.interpolation,
            "alpha_recovery": self.recovery,
            "lambda_collapse": self.collapse,
            "delta_split": self.splitting,
        }

    @cached_property
    def absent(self) -> dict[str, str]:
        """Thresholds that do not exist here, each with the reason."""
        spectrum, found = self.problem.spectrum, {}
        zeros = zero_mass(spectrum).xreplace(dict(self.values))
        if zeros.is_positive is False:
            found["alpha_recovery"] = "the target has no eigenvalue zero: all d(d+1)/2 entries are needed to recover it"
        elif spectrum.moments is None:
            found["alpha_recovery"] = "known for spectra stated by formulas"
        if self.problem.noise.xreplace(dict(self.values)) == 0:
            found["alpha_interpolation"] = "without noise the target itself fits any labels"
        if self.weight is None:
            found["lambda_collapse"] = "a direct student has no weight decay"
        if lowest_gap(spectrum, _u) is None or (isinstance(spectrum, Wishart) and zeros.is_positive is False):
            found["delta_split"] = "the target's spectrum has no gap above its least eigenvalue"
        return found

    # ---- the least trace ----------------------------------------------------------------------------------
    @cached_property
    def exact(self) -> SpectralErm:
        """Least Tr S over positive S whose indices are those of the labels."""
        positive = sp.Lambda(_s, _s + Confined(_s, 0, sp.oo))
        return replace(self.problem, penalty=positive, channel=self.problem.channel.exact())

    @cached_property
    def _noise(self) -> sp.Expr:
        """delta^2 of m and q."""
        conjugate = self.exact.potential.conjugate
        return sp.factor(sp.cancel(sp.factor(conjugate(q_hat)) / sp.factor(conjugate(m_hat)) ** 2))

    def _samples(self, divergence: sp.Expr) -> sp.Expr:
        """alpha where m_hat cancels of its equation at Sigma = A/m_hat: alpha = A/(2 k), A the divergence."""
        conjugate = sp.factor(self.exact.potential.conjugate(m_hat)).subs(sigma, divergence / m_hat)
        per_alpha = sp.cancel(conjugate / m_hat / self.problem.alpha)
        return 1 / per_alpha

    def _soft(self, symbol: sp.Symbol, start: sp.Expr) -> sp.Expr:
        """m, q or A of the denoiser (x - start)_+."""
        found = self.exact.of_soft(symbol, (_x - start) * sp.Heaviside(_x - start))
        return expand(found * m_hat) if symbol == sigma else found

    # ---- the thresholds -----------------------------------------------------------------------------------
    def interpolation(self) -> list[Equation]:
        """The least samples that no positive S fits: eps = 0 while A = 2 alpha k."""
        alpha = sp.Symbol("alpha_interpolation", positive=True)
        radius = sp.Symbol("delta_interpolation", positive=True)
        at = {delta: radius}
        samples = self._samples(response).subs(response, self._soft(sigma, sp.S.Zero))
        orders = {s: self._soft(s, sp.S.Zero) for s in (m, q)}
        balance = radius**2 - self._noise.xreplace({self.problem.alpha: alpha}).xreplace(orders).subs(at)
        mse = target_size - 2 * orders[m] + orders[q]
        return [
            Define(
                Quantity(alpha, "samples over d^2 up to which the labels are fitted", _above_zero),
                samples.subs(at),
                _derived,
            ),
            Root(Quantity(radius, "noise on the target there", _above_zero), balance, _derived),
            Define(
                Quantity(sp.Symbol("mse_interpolation", real=True), "mse there without a penalty"),
                mse.subs(at),
                _derived,
            ),
        ]

    def recovery(self) -> list[Equation]:
        """The samples from which noiseless labels give S0 itself: delta -> 0 with c = eps/(delta sqrt(mass at zero)).

        There J = E (x - eps)_+^2 = Q0 + (1 - p^2) t - 2 eps tr S0 + eps^2 (1 - p) + p^2 t j(c) + o(t): eigenvalues zero
        become a semicircle of variance p t, the others keep the rest of the second moment Q0 + t.
        """
        p, moments = zero_mass(self.problem.spectrum), self.problem.spectrum.moments
        assert moments is not None
        t = sp.Symbol("t", positive=True)
        c, alpha = sp.Symbol("c_recovery", positive=True), sp.Symbol("alpha_recovery", positive=True)
        j = SemicircleMoment(2, eps / sp.sqrt(p * t))
        J = moments[1] + (1 - p**2) * t - 2 * eps * moments[0] + eps**2 * (1 - p) + p**2 * t * j
        near = {s: self._near(self._soft(s, eps), J, t) for s in (m, q, sigma)}
        scaled = {eps: c * sp.sqrt(p) * delta, t: delta**2}
        samples = self._samples(response).subs(response, near[sigma]).subs(scaled)
        noiseless = replace(self, problem=replace(self.problem, noise=sp.S.Zero))._noise.subs(self.problem.alpha, alpha)
        orders = {m: near[m], q: near[q], target_size: moments[1]}
        balance = delta**2 - noiseless.subs(orders).subs(scaled)
        order = expand(balance.xreplace({alpha: 1 / (per := sp.Symbol("per", positive=True))}) / delta**2)
        order = sp.factor_terms(order.xreplace({per: 1 / alpha}))
        partial = {
            SemicircleMoment(k, c): sp.Symbol(f"semicircle_{k}", positive=True)
            for k in range(3)
            if order.has(SemicircleMoment)
        }
        named = [
            Define(Quantity(s, f"E (z - c)_+^{f.args[0]} of a semicircle of variance one"), f.closed(), _rule)
            for f, s in partial.items()
        ]
        return [
            *named,
            Define(
                Quantity(alpha, "samples over d^2 that give the target", _above_zero),
                expand(samples).xreplace(partial),
                _derived,
            ),
            Root(
                Quantity(c, "threshold over noise at recovery", sp.Interval.open(0, 2)),
                order.xreplace(partial),
                _derived,
            ),
        ]

    def collapse(self) -> list[Equation]:
        """The weight decay above which S = 0: the threshold eps is the right edge of the noisy target at m = q = 0."""
        assert self.weight is not None
        strength, size = self.problem.conjugates_at_zero()
        pull, spread = sp.symbols("m_hat_collapse q_hat_collapse", positive=True)
        gap = right_of_support(self.problem.spectrum, _u)
        w = sp.Symbol("u_collapse", positive=True)
        place = {_u: gap.low + w}
        noise = spread / pull**2
        decay = sp.Symbol("lambda_collapse", positive=True)
        edge = (gap.low + w) + noise * gap.transform.subs(place)
        balance = 1 + noise * gap.transform.diff(_u).subs(place)
        return [
            Define(Quantity(pull, "m_hat at S = 0", _above_zero), strength, _derived),
            Define(Quantity(spread, "q_hat at S = 0", _above_zero), size, _derived),
            Root(Quantity(w, "place of the edge beyond the target's", _above_zero), balance, _derived),
            Define(
                Quantity(decay, "weight decay above which S = 0", _above_zero),
                pull * edge / (2 * self.weight),
                _derived,
            ),
        ]

    def splitting(self) -> list[Equation]:
        """The noise below which the least eigenvalues come apart from the others: the gap's least E (u - s)^-2."""
        gap = lowest_gap(self.problem.spectrum, _u)
        assert gap is not None
        part = sp.Symbol("u_split", positive=True)
        place = {_u: gap.low + (gap.high - gap.low) * part}
        radius = 1 / sp.sqrt(-gap.transform.diff(_u).subs(place))
        split = sp.Symbol("delta_split", positive=True)
        return [
            Root(
                Quantity(part, "place in the gap", sp.Interval.open(0, 1)),
                gap.transform.diff(_u, 2).subs(place),
                _derived,
            ),
            Define(Quantity(split, "noise below which the spectrum splits", _above_zero), radius, _derived),
        ]

    def _near(self, expr: sp.Expr, J: sp.Expr, t: sp.Symbol) -> sp.Expr:
        """An order parameter where J is known."""
        found = {e: from_second_partial_moment(e, J, t, eps) for e in expr.atoms(Expectation)}
        return expr.xreplace(found)
