"""Spectra, their free convolution with a semicircle, and the rules of its derivatives, against explicit densities."""

from __future__ import annotations

import pickle

import mpmath
import pytest
import sympy as sp

from derive.expectation import Expectation
from derive.rules import closed_form
from derive.spectra import (
    Atoms,
    FreeConvolution,
    HilbertTransform,
    Listed,
    PowerLaw,
    SpectralDensity,
    Wishart,
    semicircle,
)
from derive.stieltjes import SemicircleMoment, from_second_partial_moment, lowest_gap, right_of_support, zero_mass
from solve.lower import lower

t, eps = sp.symbols("t eps", positive=True)
x = sp.Symbol("x", real=True)


def density(variance: float, at: mpmath.mpf) -> mpmath.mpf:
    """Wigner's."""
    return mpmath.sqrt(max(4 * variance - at**2, 0)) / (2 * mpmath.pi * variance)


@pytest.mark.parametrize("variance", [0.3, 2.0])
@pytest.mark.parametrize("threshold", [-0.4, 0.5])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_derivatives_in_the_variance(variance: float, threshold: float, power: int) -> None:
    """Of E f and E f H for f = (x - eps)_+^n under a semicircle, where H(x) = x/(2 t): by its density, in mpmath.

    To 1e-8: a central difference of step 1e-5 at thirty digits is good to 1e-10, the convolution to 1e-12.
    """
    law = semicircle(t)
    f = (x - eps) ** power * sp.Heaviside(x - eps)
    both = [Expectation(f, [x], law), Expectation(f * HilbertTransform(law, x), [x], law)]
    evaluate = lower([e.diff(t) for e in both], [t, eps])

    def means(v: mpmath.mpf) -> list[mpmath.mpf]:
        end = 2 * mpmath.sqrt(v)
        return [
            mpmath.quad(lambda z, w=w: (z - threshold) ** power * w(z) * density(v, z), [threshold, end])
            for w in (lambda _: 1, lambda z: z / (2 * v))
        ]

    with mpmath.workdps(30):
        step = mpmath.mpf(10) ** -5
        above, below = means(mpmath.mpf(variance) + step), means(mpmath.mpf(variance) - step)
        expected = [float((a - b) / (2 * step)) for a, b in zip(above, below, strict=True)]
    found, _ = evaluate(variance, threshold)
    assert found == pytest.approx(expected, rel=1e-8)


def test_moments_by_rules() -> None:
    """E x^2 = E s^2 + t, E x H = 1/2, E x^2 H = E s and E x^3 H = E x^2 + (E x)^2/2, exactly."""
    law = FreeConvolution(Wishart(sp.Rational(1, 2)), t)
    mean, second = 1 / sp.sqrt(2), sp.Rational(3, 2) + t
    h = HilbertTransform(law, x)
    expected = {x: mean, x**2: second, x * h: sp.S.Half, x**2 * h: mean, x**3 * h: second + mean**2 / 2}
    for integrand, value in expected.items():
        assert sp.expand(closed_form(sp.S(Expectation(integrand, [x], law))) - value) == 0


def test_a_rule_for_a_rule() -> None:
    """The same by symmetry, E x^n H = (1/2) sum E x^i E x^j, checked against nodes to 1e-11."""
    law = FreeConvolution(Atoms([0, 2], [sp.Rational(1, 4), sp.Rational(3, 4)]), t)
    h = HilbertTransform(law, x)
    integrands = [x**3 * h, x**2 * h, x * h, h]
    averaged = [Expectation(f + eps * sp.Heaviside(x - 50), [x], law) for f in integrands]  # no polynomial: by nodes
    found, _ = lower(averaged, [t, eps])(0.7, 1.0)
    exact = [float(closed_form(sp.S(Expectation(f, [x], law))).subs(t, 0.7)) for f in integrands]
    assert found == pytest.approx(exact, rel=1e-11, abs=1e-11)


def test_no_rule_for_a_square_of_the_transform() -> None:
    law = semicircle(t)
    with pytest.raises(NotImplementedError):
        Expectation(HilbertTransform(law, x) ** 2, [x], law).diff(t)
    with pytest.raises(NotImplementedError):
        HilbertTransform(law, x).diff(x)
    with pytest.raises(NotImplementedError):
        Expectation(SpectralDensity(law, x), [x], law).diff(t)


def test_partial_moments_from_the_second() -> None:
    """Of a semicircle, J = t j(eps/sqrt t): what its derivatives give equals averages by nodes, to 1e-10."""
    law = semicircle(t)
    step, h = sp.Heaviside(x - eps), HilbertTransform(law, x)
    J = t * SemicircleMoment(2, eps / sp.sqrt(t))
    integrands = [step, x * step, x**2 * step, h * step, x * h * step]
    derived = [from_second_partial_moment(Expectation(f, [x], law), J, t, eps) for f in integrands]
    written = [d.replace(lambda e: isinstance(e, SemicircleMoment), lambda e: e.closed()) for d in derived]
    found, _ = lower([Expectation(f, [x], law) for f in integrands], [t, eps])(0.8, 0.6)
    assert [float(d.subs({t: 0.8, eps: 0.6})) for d in written] == pytest.approx(list(found), rel=1e-10)


@pytest.mark.parametrize("k", range(4))
def test_semicircle_moments(k: int) -> None:
    """The closed form against an integral at thirty digits, for both signs of c."""
    for c in (sp.Rational(-3, 2), sp.Rational(1, 3), sp.Rational(7, 4)):
        with mpmath.workdps(30):
            exact = mpmath.quad(lambda z, c=c: (z - mpmath.mpf(c.p) / c.q) ** k * density(1.0, z), [float(c), 2])
        assert float(SemicircleMoment(k, c).closed()) == pytest.approx(float(exact), rel=1e-13)
        slope = SemicircleMoment(k, eps).diff(eps)
        closed = slope.replace(lambda e: isinstance(e, SemicircleMoment), lambda e: e.closed())
        same = SemicircleMoment(k, eps).closed().diff(eps)
        assert float((closed - same).subs(eps, c)) == pytest.approx(0.0, abs=1e-13)


@pytest.mark.parametrize("ratio", ["1/10", "1/2", "9/10"])
def test_transform_of_a_wishart_law(ratio: str) -> None:
    """Against the density of Marchenko and Pastur, integrated, to the right and in the gap."""
    kappa0 = sp.Rational(ratio)
    u = sp.Symbol("u", positive=True)
    right, gap = right_of_support(Wishart(kappa0), u), lowest_gap(Wishart(kappa0), u)
    assert gap is not None
    low, high = float(gap.high), float(right.low)
    root = float(sp.sqrt(kappa0))

    def bulk(v: mpmath.mpf) -> mpmath.mpf:
        return root * mpmath.sqrt((high - v) * (v - low)) / (2 * mpmath.pi * v)

    for form, place in ((right, 1.3 * high), (gap, 0.4 * low)):
        exact = float(1 - kappa0) / place + mpmath.quad(
            lambda v, p=place: bulk(v) / (p - v), [low, (low + high) / 2, high]
        )
        assert float(form.transform.subs(u, place)) == pytest.approx(float(exact), rel=1e-8)
    assert zero_mass(Wishart(kappa0)) == 1 - kappa0


def test_laws_check_themselves() -> None:
    for wrong in (
        lambda: Wishart(0),
        lambda: Atoms([1, 2], [sp.Rational(1, 2)]),
        lambda: Atoms([1, 2], [sp.Rational(1, 2), sp.Rational(1, 3)]),
        lambda: Atoms([1, 2], [2, -1]),
        lambda: Atoms([], []),
        lambda: PowerLaw(sp.Rational(1, 2), 10),
        lambda: PowerLaw(1, sp.Rational(1, 2)),
        lambda: Listed([]),
        lambda: Listed([1.0, float("nan")]),
        lambda: FreeConvolution(Wishart(1), -1),
    ):
        with pytest.raises(ValueError, match=r"Wishart|Atoms|PowerLaw|Listed|FreeConvolution"):
            wrong()


def test_listed_spectra_are_values() -> None:
    one = Listed([3, 1, 2])
    assert one == Listed([1.0, 2.0, 3.0])
    assert one != Listed([1.0, 2.0])
    assert pickle.loads(pickle.dumps(one)) == one
    assert FreeConvolution(FreeConvolution(one, t), t).variance == 2 * t
