"""Laws of eigenvalues of large symmetric matrices, and their free convolution with a semicircle."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Self

import sympy as sp
from sympy.core.symbol import Str

from derive.measures import Measure

__all__ = [
    "Atoms",
    "FreeConvolution",
    "HilbertTransform",
    "Listed",
    "PowerLaw",
    "SpectralDensity",
    "Spectrum",
    "Wishart",
    "semicircle",
]


class Spectrum(Measure):
    """The law of an eigenvalue of a large symmetric matrix. Abstract."""

    @property
    def dim(self) -> int:
        return 1

    def marginal(self, keep: Sequence[int]) -> Spectrum:
        return self

    @property
    def moments(self) -> tuple[sp.Expr, sp.Expr] | None:
        """Mean and second moment, None where they are known as numbers alone."""
        return None

    @property
    def has_negative(self) -> bool:
        """Whether an eigenvalue is known to be negative."""
        return False


class Wishart(Spectrum):
    """Of W W^T/sqrt(p d) for W (d, p) with independent N(0, 1) entries, p = kappa0 d: Marchenko and Pastur's law.

    Mean sqrt(kappa0), second moment 1 + kappa0, an atom of mass 1 - kappa0 at zero where kappa0 < 1.
    """

    def __new__(cls, kappa0: Any) -> Wishart:
        kappa0 = sp.S(kappa0)
        if kappa0.is_positive is False:
            raise ValueError(f"Wishart: kappa0 is {kappa0}; the rank over the dimension must be positive.")
        new: Wishart = super().__new__(cls, kappa0)
        return new

    @property
    def kappa0(self) -> sp.Expr:
        return self.args[0]

    @property
    def moments(self) -> tuple[sp.Expr, sp.Expr]:
        return sp.sqrt(self.kappa0), 1 + self.kappa0


class Atoms(Spectrum):
    """sum_i weights_i delta(points_i); the weights are positive and sum to one."""

    def __new__(cls, points: Sequence[Any], weights: Sequence[Any]) -> Atoms:
        x, w = sp.Tuple(*map(sp.S, points)), sp.Tuple(*map(sp.S, weights))
        if not x or len(x) != len(w):
            raise ValueError(f"Atoms: {len(x)} points and {len(w)} weights; give at least one point, each its weight.")
        if any(a.is_positive is False for a in w) or sp.expand(sp.Add(*w) - 1).is_zero is False:
            raise ValueError(f"Atoms: the weights {list(w)} must be positive and sum to 1.")
        new: Atoms = super().__new__(cls, x, w)
        return new

    @property
    def points(self) -> sp.Tuple:
        return self.args[0]

    @property
    def weights(self) -> sp.Tuple:
        return self.args[1]

    @property
    def has_negative(self) -> bool:
        return any(p.is_negative for p in self.points)

    @property
    def moments(self) -> tuple[sp.Expr, sp.Expr]:
        pairs = list(zip(self.points, self.weights, strict=True))
        return sp.Add(*(w * x for x, w in pairs)), sp.Add(*(w * x**2 for x, w in pairs))


class PowerLaw(Spectrum):
    """The eigenvalues sqrt(d) i^-gamma, i = 1 .. d, each of weight 1/d.

    The second moment sum_i i^(-2 gamma) stays bounded as d grows where gamma > 1/2.
    """

    def __new__(cls, gamma: Any, d: Any) -> PowerLaw:
        gamma, d = sp.S(gamma), sp.S(d)
        if (gamma - sp.S.Half).is_positive is False:
            raise ValueError(f"PowerLaw: gamma is {gamma}; the second moment is bounded for gamma > 1/2 alone.")
        if d.is_positive is False or d.is_integer is False:
            raise ValueError(f"PowerLaw: d is {d}; the number of eigenvalues is a natural number.")
        new: PowerLaw = super().__new__(cls, gamma, d)
        return new

    @property
    def gamma(self) -> sp.Expr:
        return self.args[0]

    @property
    def count(self) -> sp.Expr:
        return self.args[1]


class Listed(Spectrum):
    """Equal weights on the eigenvalues of a list, data of the user's: doubles, sorted.

    >>> Listed([2, 1]) == Listed([1.0, 2.0])
    True
    """

    values: array[float]

    def __new__(cls, values: Iterable[float]) -> Listed:
        data = array("d", sorted(float(v) + 0.0 for v in values))
        if not data or not all(abs(v) < float("inf") for v in data):
            raise ValueError("Listed: a spectrum is a list of at least one finite number.")
        new: Listed = super().__new__(cls, Str(data.tobytes().hex()))
        new.values = data
        return new

    @property
    def has_negative(self) -> bool:
        return self.values[0] < 0

    def __getnewargs__(self) -> tuple[list[float]]:
        return (self.values.tolist(),)

    @property
    def func(self) -> Any:
        return lambda *_: self

    def _sympystr(self, printer: Any) -> str:
        return f"Listed({len(self.values)} eigenvalues from {self.values[0]:.6g} to {self.values[-1]:.6g})"


class FreeConvolution(Spectrum):
    """Of S0 + Z for S0 with the law `base` and an independent Z of Wigner's semicircle law of that variance."""

    def __new__(cls, base: Spectrum, variance: Any) -> FreeConvolution:
        variance = sp.S(variance)
        if variance.is_negative:
            raise ValueError(f"FreeConvolution: the variance is {variance}; it must not be negative.")
        if isinstance(base, FreeConvolution):
            base, variance = base.base, base.variance + variance
        new: FreeConvolution = super().__new__(cls, base, variance)
        return new

    @property
    def base(self) -> Spectrum:
        law: Spectrum = self.args[0]
        return law

    @property
    def variance(self) -> sp.Expr:
        return self.args[1]

    @property
    def moments(self) -> tuple[sp.Expr, sp.Expr] | None:
        base = self.base.moments
        return None if base is None else (base[0], base[1] + self.variance)

    def derivative(self, f: sp.Expr, variables: Sequence[sp.Symbol], s: sp.Symbol) -> list[sp.Expr]:
        """With G = H - i pi rho the Stieltjes transform on the real line and t the variance,

        d/dt E f = E[f' H],  d/dt E[f H] = E[f' (H^2 - pi^2 rho^2/3)],

        the imaginary parts of dG/dt = -G dG/dx (Burgers) and dG^2/dt = -(2/3) dG^3/dx  [Voiculescu 1993, Biane 1997].
        """
        (x,) = variables
        hilbert = HilbertTransform(self, x)
        h = sp.Dummy("h", real=True)
        held = f.xreplace({hilbert: h})
        slope = held.diff(h)
        if slope.has_free(h) or held.has(HilbertTransform) or (self.has_free(s) and held.has(SpectralDensity)):
            raise NotImplementedError(
                "No derivative rule for powers of a Hilbert transform, and none for another law's."
            )
        rest = held.xreplace({h: sp.S.Zero})
        own = [_continuous(rest.diff(s), x), hilbert * _continuous(slope.diff(s), x)]
        if not self.has_free(s):
            return own
        if self.base.has_free(s):
            raise NotImplementedError(f"No derivative rule for the parameters of {type(self.base).__name__}.")
        rate = self.variance.diff(s)
        rest_slope, slope_slope = (_continuous(g.diff(x), x) for g in (rest, slope))
        second = hilbert**2 - sp.pi**2 * SpectralDensity(self, x) ** 2 / 3
        return [*own, rate * rest_slope * hilbert, rate * slope_slope * second]


def _continuous(derivative: sp.Expr, x: sp.Symbol) -> sp.Expr:
    """The derivative of a function of x without point masses, which have no weight where the function is continuous."""
    masses = [d for d in derivative.atoms(sp.DiracDelta) if d.has_free(x)]
    for mass in masses:
        argument = mass.args[0]
        slope = argument.diff(x)
        weight = sp.expand(derivative).coeff(mass)
        if slope.has_free(x) or sp.expand(weight.subs(x, x - argument / slope)) != 0:
            raise NotImplementedError(f"No derivative rule where a function jumps, as at {argument} = 0.")
    return derivative.xreplace(dict.fromkeys(masses, sp.S.Zero))


def semicircle(variance: Any) -> FreeConvolution:
    """Wigner's law of that variance, on [-2 sqrt(variance), 2 sqrt(variance)]."""
    return FreeConvolution(Atoms([0], [1]), variance)


class _OfSpectrum(sp.Expr):
    """A function of a law and a place. Abstract."""

    is_commutative = True

    def __new__(cls, law: Spectrum, x: Any) -> Self:
        new: Self = super().__new__(cls, law, sp.S(x))
        return new

    @property
    def law(self) -> Spectrum:
        law: Spectrum = self.args[0]
        return law

    @property
    def x(self) -> sp.Expr:
        return self.args[1]

    def _eval_is_real(self) -> bool:
        return True

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        if not self.has_free(s):
            return sp.S.Zero
        raise NotImplementedError(f"No derivative rule for {type(self).__name__} but under an expectation.")


class HilbertTransform(_OfSpectrum):
    """H(x) = Re G(x), G(x) = integral law(ds)/(x - s), the principal value where x lies in the support."""


class SpectralDensity(_OfSpectrum):
    """rho(x), the density of the law's continuous part."""
