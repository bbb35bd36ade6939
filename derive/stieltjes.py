"""Stieltjes transforms of spectra outside their support, gaps and atoms, and the rules of partial moments."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from derive.expectation import Expectation
from derive.polynomial import algebra
from derive.spectra import Atoms, HilbertTransform, Listed, PowerLaw, Spectrum, Wishart

__all__ = ["Gap", "SemicircleMoment", "from_second_partial_moment", "lowest_gap", "right_of_support", "zero_mass"]


@dataclass(frozen=True)
class Gap:
    """An interval without eigenvalues, low < u < high (oo to the right of all), and G(u) = E 1/(u - s) there."""

    low: sp.Expr
    high: sp.Expr
    u: sp.Symbol
    transform: sp.Expr


def right_of_support(law: Spectrum, u: sp.Symbol) -> Gap:
    """Beyond the largest eigenvalue."""
    if isinstance(law, Wishart):
        low = (1 + sp.sqrt(law.kappa0)) ** 2 / sp.sqrt(law.kappa0)
        return Gap(low, sp.oo, u, _wishart(law.kappa0, u, -1))
    if isinstance(law, Atoms):
        return Gap(sp.Max(*law.points), sp.oo, u, _atoms(law, u))
    if isinstance(law, PowerLaw):
        return Gap(sp.sqrt(law.count), sp.oo, u, _averaged(law, u))
    if isinstance(law, Listed):
        return Gap(sp.Float(law.values[-1]), sp.oo, u, _averaged(law, u))
    raise NotImplementedError(f"No support is known of {type(law).__name__}.")


def lowest_gap(law: Spectrum, u: sp.Symbol) -> Gap | None:
    """Between zero and the bulk of a Wishart law of kappa0 < 1, between the two least of some atoms; None else."""
    if isinstance(law, Wishart):
        high = (1 - sp.sqrt(law.kappa0)) ** 2 / sp.sqrt(law.kappa0)
        return Gap(sp.S.Zero, high, u, _wishart(law.kappa0, u, 1))
    if isinstance(law, Atoms) and len(law.points) > 1 and all(p.is_number for p in law.points):
        low, high, *_ = sorted(law.points)
        return Gap(low, high, u, _atoms(law, u))
    return None


def zero_mass(law: Spectrum) -> sp.Expr:
    """The weight of the eigenvalue zero, of a Wishart law as if kappa0 < 1."""
    if isinstance(law, Wishart):
        return 1 - law.kappa0
    if isinstance(law, Atoms):
        return sp.Add(*(w for s, w in zip(law.points, law.weights, strict=True) if s == 0))
    if isinstance(law, Listed):
        return sp.Rational(sum(v == 0 for v in law.values), len(law.values))
    return sp.S.Zero


def _wishart(kappa0: sp.Expr, u: sp.Expr, branch: int) -> sp.Expr:
    """G of a free Poisson law, u = 1/G + kappa0/(sqrt(kappa0) - G): a root of u G^2 - a G + sqrt(kappa0) = 0."""
    a = u * sp.sqrt(kappa0) + 1 - kappa0
    return (a + branch * sp.sqrt(a**2 - 4 * u * sp.sqrt(kappa0))) / (2 * u)


def _atoms(law: Atoms, u: sp.Expr) -> sp.Expr:
    return sp.Add(*(w / (u - s) for s, w in zip(law.points, law.weights, strict=True)))


def _averaged(law: Spectrum, u: sp.Expr) -> sp.Expr:
    s = sp.Symbol("s", real=True)
    return Expectation(1 / (u - s), [s], law)


# ---- partial moments --------------------------------------------------------------------------------------
def from_second_partial_moment(e: Expectation, J: sp.Expr, t: sp.Symbol, eps: sp.Symbol) -> sp.Expr:
    """E[(P(x) + Q(x) H(x)) 1(x > eps)] in derivatives of J(t, eps) = E (x - eps)_+^2, t the variance of the noise.

    P of degree 2, Q of degree 1 at most: E (x - eps)_+ = -J_eps/2, E 1(x > eps) = J_eps_eps/2, E (x - eps)_+ H = J_t/2,
    E 1(x > eps) H = -J_t_eps/2, for H the law's Hilbert transform.
    """
    (x,) = e.variables
    y, h = sp.symbols("y h", real=True, cls=sp.Dummy)
    step = sp.Heaviside(x - eps)
    integrand = e.integrand.xreplace({HilbertTransform(e.measure, x): h, step: sp.S.One}).subs(x, y + eps)
    ring = algebra([sp.expand(integrand)], [y, h])
    moments = {
        (0, 0): J.diff(eps, 2) / 2,
        (1, 0): -J.diff(eps) / 2,
        (2, 0): J,
        (0, 1): -J.diff(t).diff(eps) / 2,
        (1, 1): J.diff(t) / 2,
    }
    total = sp.S.Zero
    for powers, coefficient in ring.collect(ring.element(sp.expand(integrand)), 2).items():
        total += ring.expr(coefficient) * moments[powers[0], powers[1]]
    return total


class SemicircleMoment(sp.Function):
    """SemicircleMoment(k, c) = E (z - c)_+^k of Wigner's law of variance one; P(z > c) for k = 0; -2 <= c <= 2."""

    nargs = 2

    def _eval_is_real(self) -> bool:
        return True

    def fdiff(self, argindex: int = 2) -> sp.Expr:
        k, c = self.args
        if argindex != 2:
            raise sp.ArgumentIndexError(self, argindex)
        return -sp.sqrt(4 - c**2) / (2 * sp.pi) if k == 0 else -k * SemicircleMoment(k - 1, c)

    def closed(self) -> sp.Expr:
        """By (n + 2) I_n = c^(n-1) (4 - c^2)^(3/2) + 4 (n - 1) I_(n-2), I_n = int_c^2 x^n sqrt(4 - x^2)."""
        k, c = int(self.args[0]), self.args[1]
        root = sp.sqrt(4 - c**2)
        integrals = [sp.pi - c * root / 2 - 2 * sp.asin(c / 2), root**3 / 3]
        for n in range(2, k + 1):
            integrals.append((c ** (n - 1) * root**3 + 4 * (n - 1) * integrals[n - 2]) / (n + 2))
        terms = (sp.binomial(k, n) * (-c) ** (k - n) * integrals[n] for n in range(k + 1))
        return sp.expand(sp.Add(*terms) / (2 * sp.pi))
