"""Convex empirical risk minimisation in the proportional limit: the potential of its order parameters, differentiated.

min over (w, b) of (1/n) sum_i loss(y_i, <f_i, w> + b) + (ridge/2) |w|^2, n = alpha d, by the convex Gaussian min-max
theorem  [arXiv:2509.25153, Theorem 4, for attention features; Thrampoulidis, Abbasi and Hassibi 2018].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import sympy as sp

from derive.equations import Define, Equation, EquationSystem, Quantity, Root, Source
from derive.expectation import Expectation, expectations
from derive.features import FeatureLaw, average
from derive.measures import standard_normal
from derive.proximal import Confined, Moreau, MoreauSlope, closed_proximal, minimisers, slope_at
from derive.rules import closed_form
from derive.rules.parameters import parameters_out

__all__ = ["ConvexErm", "bias_symbol", "rho_symbol", "step_symbol"]

PAPER = "arXiv:2509.25153"
_above_zero = sp.Interval.open(0, sp.oo)

bias_symbol = sp.Symbol("b", real=True)
rho_symbol = sp.Symbol("rho", positive=True)
step_symbol = sp.Symbol("V", positive=True)
_scale = sp.Symbol("sigma", positive=True)
_noise = sp.Symbol("G", real=True)
_label = sp.Symbol("y", real=True)
_u = sp.Symbol("u", real=True)
_loss = sp.Function("loss", real=True)
_any = sp.Lambda(_u, _loss(_u))
_moreau_loss = Moreau(_any, step_symbol, _u).loss


@dataclass(frozen=True)
class ConvexErm:
    """law: of the features. losses: of the output u, convex, one for each case of the law; they may hold its label y,
    where that varies. alpha: samples over the dimension of the noise. judged: the losses that are reported, where they
    are others. Make it by `of`.

    Order parameters: the weights along the special directions, rho = sqrt(sum mu_k^2 + r^2) with r the norm of the
    rest, the bias b, and the step V of the proximal operator.
    """

    law: FeatureLaw
    losses: tuple[sp.Lambda, ...]
    ridge: sp.Expr
    bias: bool
    alpha: sp.Expr
    judged: tuple[sp.Lambda, ...] | None = None

    @classmethod
    def of(cls, law: FeatureLaw, loss: sp.Lambda, ridge: sp.Expr, bias: bool, alpha: sp.Expr) -> Self:
        """The problem of a loss that is a Lambda of (y, u)."""
        labels = (_label if c.varies(c.label) else c.label for c in law.cases)
        return cls(law, tuple(sp.Lambda(_u, loss(y, _u)) for y in labels), ridge, bias, alpha)

    # ---- the potential ------------------------------------------------------------------------------------
    @cached_property
    def exact(self) -> tuple[sp.Symbol, ...]:
        """The components t along the directions without noise."""
        return tuple(sp.Symbol(f"t{j + 1}", real=True) for j in range(len(self.law.exact_weights)))

    @cached_property
    def mean(self) -> tuple[sp.Symbol, ...]:
        """The components m along the directions with noise."""
        return tuple(sp.Symbol(f"m{k + 1}", real=True) for k in range(len(self.law.mean_weights)))

    @property
    def w(self) -> tuple[sp.Symbol, ...]:
        """The weights along the directions without noise."""
        return tuple(q.symbol for q in self.law.exact_weights)

    @property
    def mu(self) -> tuple[sp.Symbol, ...]:
        """The weights along the directions with noise."""
        return tuple(q.symbol for q in self.law.mean_weights)

    @cached_property
    def field(self) -> sp.Expr:
        """A = w.t + mu.m + b + rho sigma G, the student's output on a fresh sample."""
        pairs = [*zip(self.w, self.exact, strict=True), *zip(self.mu, self.mean, strict=True)]
        signal = sp.Add(*(a * b for a, b in pairs)) + (bias_symbol if self.bias else 0)
        return signal + rho_symbol * _scale * _noise

    @cached_property
    def envelope(self) -> sp.Expr:
        """M = the Moreau envelope of the loss at A with step V sigma^2, given the latent variables and G."""
        return Moreau(_any, step_symbol * _scale**2, self.field)

    @cached_property
    def regular(self) -> sp.Expr:
        """The potential without E M: (ridge/2)(|w|^2 + rho^2) - (rho^2 - |mu|^2)/(2 alpha V)."""
        rest = rho_symbol**2 - sp.Add(*(m**2 for m in self.mu))
        size = rho_symbol**2 + sp.Add(*(w**2 for w in self.w))
        return self.ridge * size / 2 - rest / (2 * self.alpha * step_symbol)

    def average(self, integrand: sp.Expr) -> sp.Expr:
        """E of a function of t, m, sigma, y, G and the loss; over G in closed form where the rules reach."""
        return self._average(dict.fromkeys(range(len(self.losses)), integrand))

    def stationary(self, symbol: sp.Symbol) -> sp.Expr:
        """alpha V times the derivative of the potential in one of its unknowns; in rho and V see `equations`."""
        scale = self.alpha * step_symbol
        return scale * self.average(self.envelope.diff(symbol)) + sp.expand(scale * self.regular.diff(symbol))

    # ---- the equations ------------------------------------------------------------------------------------
    def equations(self) -> EquationSystem:
        """Stationarity of the potential, and what is read off its solution: a closed system but for the parameters.

        min over (w, mu, b, rho), max over V. The equation in rho, divided by it, is named after V and that in V after
        rho: so the square loss, where V decouples, is solved block after block.
        """
        found = [*self._roots(), *self._observables()]
        read = set().union(*(e.reads() for e in found)) - {e.unknown.symbol for e in found}
        parameters = tuple(Quantity(s, "parameter") for s in sorted(read, key=str))
        return EquationSystem(tuple(found), parameters, self.start)

    @property
    def start(self) -> dict[sp.Symbol, sp.Expr]:
        """Where Newton's method begins."""
        zero = (*self.w, *self.mu, *([bias_symbol] if self.bias else []))
        return {
            **dict.fromkeys(zero, sp.S.Zero),
            rho_symbol: sp.S.One,
            step_symbol: 1 / (self.alpha * (1 + self.ridge)),
        }

    def eased(self, eps: sp.Symbol) -> ConvexErm:
        """The same with the ridge raised by eps."""
        return replace(self, ridge=self.ridge + eps)

    def interpolating(self) -> ConvexErm | None:
        """The limit of a vanishing ridge where the training loss can be made least: V here is the limit of ridge V.

        Of all minimisers of the loss the one of smallest norm is taken: with ridge V = v fixed, the potential over the
        ridge tends to that of the indicator of the set where the loss is least, at ridge 1.
        """
        ends = [minimisers(loss) for loss in self.losses]
        if None in ends:
            return None
        sets = tuple(sp.Lambda(_u, Confined(_u, *e)) for e in ends if e is not None)
        return replace(self, losses=sets, ridge=sp.S.One, judged=self.losses)

    def _roots(self) -> list[Equation]:
        theorem = Source(PAPER, "Theorem 4; derived: stationarity of the potential")
        roots = [*self.law.exact_weights, *self.law.mean_weights]
        roots += [Quantity(bias_symbol, "bias")] if self.bias else []
        found: list[Equation] = [Root(q, self.stationary(q.symbol), theorem) for q in roots]
        scale = self.alpha * step_symbol
        # E[G f(G)] = E f'(G)  [Stein]
        stein = (self.envelope.diff(rho_symbol) / _noise).diff(_noise)
        width = scale * self.average(stein / rho_symbol) + sp.expand(scale * self.regular.diff(rho_symbol) / rho_symbol)
        curvature = 2 * scale * step_symbol
        size = curvature * self.average(self.envelope.diff(step_symbol)) + sp.expand(
            curvature * self.regular.diff(step_symbol)
        )
        rho = Quantity(rho_symbol, "norm of the weights along noisy directions", _above_zero)
        step = Quantity(step_symbol, "step of the proximal operator, over sigma^2", _above_zero)
        return [*found, Root(step, width, theorem), Root(rho, size, theorem)]

    def _observables(self) -> list[Equation]:
        derived = Source("derived", "expectation at the minimiser")
        unit, positive = sp.Interval(0, 1), sp.Interval(0, sp.oo)
        step = step_symbol * _scale**2
        slope = MoreauSlope(_any, step, self.field)
        rest = sp.sqrt(rho_symbol**2 - sp.Add(*(m**2 for m in self.mu))) if self.mu else rho_symbol
        loss = (
            self.average(self.envelope - step * slope**2 / 2) if self.judged is None else self._least_loss(self.judged)
        )
        size = rho_symbol**2 + sp.Add(*(w**2 for w in self.w))
        training = sp.Symbol("training_loss", real=True)
        found = [
            (
                Quantity(sp.Symbol("r", nonnegative=True), "norm of the weights off the special directions", positive),
                rest,
            ),
            (Quantity(training, "mean loss of a training sample"), loss),
            (
                Quantity(sp.Symbol("objective", real=True), "training loss with the ridge's penalty"),
                training + self.ridge * size / 2,
            ),
            (Quantity(sp.Symbol("test_loss", real=True), "mean loss of a fresh sample"), self._fresh_loss()),
        ]
        if self.law.is_binary:
            wrong = self.average(sp.Heaviside(-_label * self.field))
            found.append((Quantity(sp.Symbol("test_error", real=True), "probability that y u < 0, fresh", unit), wrong))
            wrong = self._training_error()
            found.append((Quantity(sp.Symbol("training_error", real=True), "the same, training", unit), wrong))
        return [Define(q, rhs, derived) for q, rhs in found]

    def _fresh_loss(self) -> sp.Expr:
        reported = self if self.judged is None else replace(self, losses=self.judged)
        return reported.average(_loss(self.field))

    def _least_loss(self, judged: tuple[sp.Lambda, ...]) -> sp.Expr:
        """The mean of the losses where they are least."""
        # a loss that is the same everywhere, as y = 0 makes it of a margin's, has no finite end
        ends = [next((e for e in loss.expr.args[1:] if not e.is_infinite), sp.S.Zero) for loss in self.losses]
        return sp.Add(*(c.probability * f(e) for c, f, e in zip(self.law.cases, judged, ends, strict=True)))

    def _training_error(self) -> sp.Expr:
        """P(y Prox < 0): by monotony, that A lies beyond V sigma^2 times the loss's one-sided slope at 0."""
        beyond: dict[int, sp.Expr] = {}
        for i, c in enumerate(self.law.cases):
            slope = slope_at(self.losses[i], sp.S.Zero, from_below=c.label == 1)
            threshold = step_symbol * _scale**2 * slope
            beyond[i] = sp.S.Zero if slope.is_infinite else sp.Heaviside(-c.label * (self.field - threshold))
        return self._average(beyond)

    # ---- expectations -------------------------------------------------------------------------------------
    def _average(self, integrands: Mapping[int, sp.Expr]) -> sp.Expr:
        """sum over the cases of their probability times E of the integrand of that case."""
        return sp.Add(*(c.probability * self._in_case(i, integrands[i]) for i, c in enumerate(self.law.cases)))

    def _in_case(self, i: int, integrand: sp.Expr) -> sp.Expr:
        case = self.law.cases[i]
        formulas = {
            **dict(zip(self.exact, case.exact, strict=True)),
            **dict(zip(self.mean, case.mean, strict=True)),
            _scale: case.scale,
            _label: case.label,
        }
        fixed = {s: f for s, f in formulas.items() if not case.varies(f)}
        varying = {s: f for s, f in formulas.items() if s not in fixed}
        here = integrand.xreplace({_moreau_loss: self.losses[i]}).replace(_loss, self.losses[i]).xreplace(fixed)
        inner = closed_form(sp.S(Expectation(closed_proximal(here), (_noise,), standard_normal())))
        found = average(case, here if inner.has(Expectation) else inner, varying, (_noise,))
        weights = frozenset({*self.w, *self.mu, bias_symbol, rho_symbol})
        return found.xreplace({e: _taken_out(e, weights) for e in expectations(found)})


def _taken_out(e: Expectation, weights: frozenset[sp.Symbol]) -> sp.Expr:
    """E of a polynomial in the weights as one of expectations without them."""
    apart = parameters_out(e, frozenset(e.free_symbols) - weights)
    return e if apart is None else apart
