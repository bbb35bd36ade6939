"""Rules of expectations under a spectrum: its moments, and E of a polynomial times the Hilbert transform."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from derive.expectation import Expectation
from derive.polynomial import algebra
from derive.spectra import FreeConvolution, HilbertTransform, Spectrum

__all__ = ["free_moments"]


def free_moments(e: Expectation) -> sp.Expr | None:
    """E[P(x) + Q(x) Re G(x)] for polynomials P of degree 2 and Q of degree 3 at most, by mean and second moment.

    E[x^n Re G(x)] = (1/2) sum_{i + j = n - 1} E[x^i] E[x^j], by symmetry of (x^n - y^n)/(x - y); of a free convolution
    with a semicircle of variance t, the mean is that of the base and the second moment larger by t.
    """
    if not isinstance(e.measure, Spectrum):
        return None
    (x,) = e.variables
    law = e.measure
    hilbert = HilbertTransform(law, x)
    h = sp.Dummy("h", real=True)
    integrand = e.integrand.xreplace({hilbert: h})
    if not integrand.is_polynomial(x, h):
        return None
    ring = algebra([integrand], [x, h])
    moment = _moments(law)
    total = sp.S.Zero
    for (n, k), coefficient in ring.collect(ring.element(integrand), 2).items():
        if k > 1 or n > (3 if k else 2):
            return None
        pairs = [moment(i) * moment(n - 1 - i) for i in range(n)]
        total += ring.expr(coefficient) * (sp.Add(*pairs) / 2 if k else moment(n))
    return total


def _moments(law: Spectrum) -> Callable[[int], sp.Expr]:
    base, variance = (law.base, law.variance) if isinstance(law, FreeConvolution) else (law, sp.S.Zero)
    s = sp.Symbol("s", real=True)

    def moment(n: int) -> sp.Expr:
        if n == 0:
            return sp.S.One
        known = base.moments
        own = Expectation(s**n, [s], base) if known is None else known[n - 1]
        return own + (variance if n == 2 else 0)

    return moment
