"""The rule for tanh of a quadratic form in two variables: one frequency in place of two Gaussian variables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import sympy as sp

from derive.expectation import Expectation
from derive.gaussian import wick
from derive.measures import Gaussian, standard_normal
from derive.polynomial import algebra, expand, is_zero, quadratic
from derive.rules.exponentials import cancelled, split_imaginary
from derive.rules.reading import law_of, only_term
from derive.spectrum import SechSpectrum

__all__ = ["is_spectral", "spectral"]

_LARGEST_POWER = 12

Point: TypeAlias = dict[sp.Symbol, sp.Expr]


def spectral(e: Expectation) -> sp.Expr | None:
    """E[P(x) tanh(q(x))^k], x in R^2, q quadratic and tr(C Q) = 0, k <= 12: averages over the frequency w of sech^2.

    With D = d/dq and T = tanh, T^k = [k even] + U_k(D) T, where U_1 = 1 and U_k = U_(k-2) - D U_(k-1) / (k - 1), as
    D T^(k-1) = (k - 1) (T^(k-2) - T^k). And T(q) = int rho(w) sin(w q) / w dw, rho(w) = (w/2) / sinh(pi w/2), because
    sech^2 = int rho(w) cos(w q) dw. So the average is [k even] E P + int rho(w) Im(U_k(i w) E[P exp(i w q)]) / w dw,
    and E[P exp(i w q)] is a tilt, with an imaginary exponent. w = x sqrt(x^2 + 4) / pi, x ~ N(0, 1), turns rho into
    the normal density times `SechSpectrum`, which grows like |x|^3.

    Each monomial of w and of what the tilt brings in is averaged by itself, its coefficient outside; the sum over
    the monomials of U_k of their largest averages is 11 at most, so that few digits cancel.

    tr(C Q) = 0 says that the quadratic part of q is a product of two uncorrelated forms; for another the root of the
    complex determinant would make the result longer than the integral over two variables is. None also for odd k
    where the exponent has a phase (where neither factor is centred), as sin(phase) / w would remain, and where a
    factor is not seen to be smooth in w for all values of the parameters.
    """
    term, law, x = only_term(e), law_of(e), tuple(e.variables)
    if term is None or law.dim != 2 or len(term.atoms) != 1:
        return None
    base, k = term.atoms[0].as_base_exp()
    if not (isinstance(base, sp.tanh) and k.is_Integer and 1 <= k <= _LARGEST_POWER):
        return None
    wave = _wave(base.args[0], law, x)
    if wave is None or (k % 2 and wave.has_phase):
        return None
    real, imaginary = split_imaginary(wick(term.polynomial, x, wave.law) * wave.phase, wave.i)
    if k % 2:
        return _over_frequencies(_operator(int(k), wave.w) * expand(imaginary / wave.w), wave)
    return Expectation(term.polynomial, x, law) + _over_frequencies(_operator(int(k), wave.w) * real, wave)


def is_spectral(e: Expectation) -> bool:
    """Whether an expectation is one over frequencies, which the other rules would only take apart."""
    return bool(e.integrand.has(SechSpectrum))


@dataclass(frozen=True)
class _Wave:
    """E[P exp(i w q)] rho(w) dw/dx = kernel (cos + i sin) E'[P] times the normal density of x, E' under `law`.

    The law holds polynomials in i, w and g. inside: what w, g, and cos and sin of the phase are as functions of x.
    """

    i: sp.Symbol
    w: sp.Symbol
    x: sp.Symbol
    kernel: sp.Expr
    phase: sp.Expr
    law: Gaussian
    inside: Point

    @property
    def has_phase(self) -> bool:
        return bool(self.phase != 1)


@lru_cache(maxsize=256)
def _wave(exponent: sp.Expr, law: Gaussian, variables: tuple[sp.Symbol, ...]) -> _Wave | None:
    """The tilt by i w q: C' = B C and mean' = B (mean + i w C a) with B = (1 - 2 i w C Q)^-1, for q = x.Q x + a.x + c.

    Its weight is det(B)^(1/2) exp(i w q(mean) - w^2 s.C' s / 2) with s = a + 2 Q mean, the slope at the mean; and
    g = det(B) = 1 / (1 - 4 w^2 det(C Q)) where tr(C Q) = 0. None where q is not of that kind.
    """
    parts = quadratic(exponent, variables)
    if parts is None:
        return None
    q, a, c = parts[0], sp.ImmutableDenseMatrix(parts[1]), parts[2]
    if not is_zero((law.cov * q).trace()):
        return None
    i, w, g, x = (sp.Dummy(name, real=True) for name in "iwgx")
    mean, below = sp.ImmutableDenseMatrix(list(law.mean)), 1 - 4 * w**2 * cancelled((law.cov * q).det())
    shrink = (sp.eye(2) - 2 * i * w * law.cov * q).adjugate() * g
    cov = (shrink * law.cov).applyfunc(expand)
    cov = sp.ImmutableDenseMatrix([[cov[0, 0], cov[0, 1]], [cov[0, 1], cov[1, 1]]])
    slope, middle = a + 2 * q * mean, c + (a.T * mean)[0] + (mean.T * q * mean)[0]
    moved = Gaussian([expand(v) for v in shrink * (mean + i * w * law.cov * a)], cov)
    exponents = split_imaginary(i * w * middle - w**2 * (slope.T * cov * slope)[0] / 2, i)
    at: Point = {w: SechSpectrum.frequency(x)}
    if not below.is_positive:
        return None
    at[g] = 1 / below.xreplace(at)
    damping, phase = (f.xreplace(at) for f in exponents)
    kernel = SechSpectrum(x) * sp.exp(damping) * sp.sqrt(at[g])
    if phase == 0:
        return _Wave(i, w, x, kernel, sp.S.One, moved, at)
    cos, sin = sp.Dummy("cos", real=True), sp.Dummy("sin", real=True)
    return _Wave(i, w, x, kernel, cos + i * sin, moved, at | {cos: sp.cos(phase), sin: sp.sin(phase)})


def _over_frequencies(total: sp.Expr, wave: _Wave) -> sp.Expr:
    """int rho(w) total dw as expectations over x ~ N(0, 1), one for each monomial of `total`."""
    leading = tuple(wave.inside)
    ring = algebra([total], leading)
    averages = []
    for powers, f in ring.collect(ring.element(total), len(leading)).items():
        monomial = sp.Mul(*(wave.inside[s] ** n for s, n in zip(leading, powers, strict=True)))
        averages.append(ring.expr(f) * Expectation(wave.kernel * monomial, [wave.x], standard_normal()))
    return sp.Add(*averages)


def _operator(k: int, w: sp.Symbol) -> sp.Expr:
    """U_k(i w), divided by i w for even k: a real polynomial in w^2."""
    before, now = sp.S.Zero, sp.S.One
    for j in range(2, k + 1):
        # V_j = U_j or U_j / (i w): D is i w, and (i w)^2 = -w^2 comes in where the degree of U_(j-1) is odd
        before, now = now, expand(before - now * (1 if j % 2 == 0 else -(w**2)) / (j - 1))
    return now
