"""The replica-symmetric potential of risk minimisation, and its stationarity by differentiation.

Phi = unit (qh Sig + 2 mh m - Sigh q) + input(mh, qh, Sigh) + alpha output(Sig, m, q), for weights of size q with the
overlap m with the target and the response Sig; qh, mh, Sigh are the conjugates. The regulariser enters the input term
alone, the data the output term alone. `unit` is 1/2 for vectors and 1/4 for symmetric matrices, whose indices have
variances 2 q and q  [Thrampoulidis, Abbasi and Hassibi 2018; arXiv:2509.24914].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from derive.proximal import Moreau

__all__ = ["Potential", "denoiser_input", "m", "m_hat", "q", "q_hat", "sigma", "sigma_hat"]

sigma, q = sp.symbols("Sigma q", positive=True)
m = sp.Symbol("m", real=True)
m_hat, q_hat, sigma_hat = sp.symbols("m_hat q_hat Sigma_hat", positive=True)


@dataclass(frozen=True)
class Potential:
    """input: of m_hat, q_hat, sigma_hat. output: of sigma, m, q, without its factor alpha."""

    input: sp.Expr
    output: sp.Expr
    alpha: sp.Expr
    unit: sp.Expr

    @property
    def value(self) -> sp.Expr:
        """Phi itself: at its stationary point the least objective per squared dimension, or per dimension."""
        pairs = q_hat * sigma + 2 * m_hat * m - sigma_hat * q
        return self.unit * pairs + self.input + self.alpha * self.output

    def conjugate(self, symbol: sp.Symbol) -> sp.Expr:
        """What q_hat, m_hat or sigma_hat is, by the derivative of Phi in sigma, m or q."""
        partner, factor = {q_hat: (sigma, -1), m_hat: (m, -sp.S.Half), sigma_hat: (q, 1)}[symbol]
        return factor * self.alpha / self.unit * self.output.diff(partner)

    def order_parameter(self, symbol: sp.Symbol) -> sp.Expr:
        """What sigma, m or q is, by the derivative of Phi in q_hat, m_hat or sigma_hat."""
        partner, factor = {sigma: (q_hat, -1), m: (m_hat, -sp.S.Half), q: (sigma_hat, 1)}[symbol]
        return factor / self.unit * self.input.diff(partner)


def denoiser_input(
    penalty: sp.Lambda, unit: sp.Expr, average: Callable[[Callable[[sp.Expr], sp.Expr]], sp.Expr]
) -> sp.Expr:
    """E min_s penalty(s) + unit (sigma_hat s^2 - 2 m_hat x s) over x, the target with its noise.

    average: E of a function of x, of noise q_hat/m_hat^2. The place of the minimum is the denoiser Prox(penalty) of x.
    """
    step = 1 / (2 * unit * sigma_hat)

    def least(x: sp.Expr) -> sp.Expr:
        w = m_hat * x / sigma_hat
        return Moreau(penalty, step, w) - w**2 / (2 * step)

    return average(least)
