"""The spectrum of sech^2 as a weight of averages over one normal variable."""

from __future__ import annotations

import sympy as sp

__all__ = ["SechSpectrum"]


class SechSpectrum(sp.Function):
    """E[SechSpectrum(x) cos(w(x) u)] = sech(u)^2 with x ~ N(0, 1) and w(x) = x sqrt(x^2 + 4) / pi.

    rho(w(x)) w'(x) over the normal density, with the spectrum rho(w) = (w/2) / sinh(pi w/2) of sech^2. Even, and of
    cubic growth, as w grows like x^2: with w proportional to x it would grow like exp(x^2/2). It is a weight of
    averages, so that nothing needs its derivative.
    """

    nargs = 1

    @classmethod
    def eval(cls, x: sp.Expr) -> sp.Expr | None:
        if x.is_zero:
            return 2 * sp.sqrt(2) / sp.pi ** sp.Rational(3, 2)
        return cls(-x) if x.could_extract_minus_sign() else None

    @classmethod
    def written_out(cls, expr: sp.Expr) -> sp.Expr:
        """`expr` with each spectrum written by SymPy's own functions, as people see it."""
        return expr.xreplace({e: e.elementary() for e in expr.atoms(cls)})

    @staticmethod
    def frequency(x: sp.Expr) -> sp.Expr:
        """w(x)."""
        return x * sp.sqrt(x**2 + 4) / sp.pi

    def elementary(self) -> sp.Expr:
        """sqrt(2) x (x^2 + 2) exp(x^2/2) / (pi^(3/2) sinh(x sqrt(x^2 + 4) / 2)), with 0/0 at x = 0."""
        (x,) = self.args
        scale = sp.sqrt(2) / sp.pi ** sp.Rational(3, 2)
        return scale * x * (x**2 + 2) * sp.exp(x**2 / 2) / sp.sinh(x * sp.sqrt(x**2 + 4) / 2)

    def _eval_is_real(self) -> bool | None:
        return bool(self.args[0].is_real) or None

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.elementary()._eval_evalf(prec)
