"""Reductions of expectations to fewer dimensions, and the kinks that are found in an integrand."""

from __future__ import annotations

import pytest
import sympy as sp

from derive.expectation import Expectation, expectations
from derive.functions import He, Phi, SoftmaxEntry, relu, sigmoid
from derive.measures import Gaussian, Measure, standard_normal
from solve.kinks import smoothness
from solve.reduction import reduce_expectations

x, y, z, w = v4 = sp.symbols("x y z w", real=True)
m, k = sp.symbols("m k", real=True)


def widest(expr: sp.Expr) -> int:
    """The largest dimension of an expectation in `expr`, also inside others."""
    return max((len(e.variables) for e in expr.atoms(Expectation)), default=0)


@pytest.mark.parametrize(
    ("integrand", "variables", "dimension"),
    [
        (sp.tanh(x) + sp.tanh(y) ** 2 * sp.cos(x), (x, y), 1),
        (sp.tanh(x + y + z) ** 2, (x, y, z), 1),
        (relu((x + y + z + w) / 2) * (He(2, x) + He(2, y) + He(2, z) + He(2, w)), v4, 2),
        ((sp.tanh(x) - sp.tanh(y) + sp.tanh(z)) ** 2, (x, y, z), 1),
        (SoftmaxEntry(x + y, z - 2 * x, z) * (x + y) ** 2, (x, y, z), 3),
        (SoftmaxEntry(x + y, z, 2 * z) * (x + y) ** 2, (x, y, z), 2),
        (sp.exp(x * y * z) * w, v4, 3),
    ],
)
def test_independent_tokens_need_fewer_dimensions(integrand: sp.Expr, variables: tuple[sp.Symbol, ...], dimension: int):
    law = standard_normal(len(variables))
    assert widest(reduce_expectations(Expectation(integrand, variables, law))) == dimension


def test_parameters_leave_an_expectation_that_does_not_need_them():
    law = standard_normal()
    found = reduce_expectations(Expectation(m * sp.tanh(x) ** 2 + k**2 * relu(x) + 3 * sp.cos(x), [x], law))
    assert not any(e.free_symbols for e in expectations(found))
    # with parameters in the law nothing is gained
    whole = Expectation(m * sp.tanh(x) ** 2 + k**2 * relu(x), [x], Gaussian([m], [[1]]))
    assert reduce_expectations(whole) == whole


def test_correlated_factors_stay_together():
    pair = Expectation(sp.tanh(x) * relu(y), [x, y], Gaussian([0, 0], [[1, m], [m, 1]]))
    assert reduce_expectations(pair) == pair


def test_point_masses_are_done_exactly():
    law = standard_normal()
    # case A16: E relu''(z) = 1/sqrt(2 pi)
    assert reduce_expectations(Expectation(relu(x).diff(x, 2), [x], law)) == 1 / sp.sqrt(2 * sp.pi)
    shifted = reduce_expectations(Expectation(sp.DiracDelta(2 * x - 1) * sp.cos(x), [x], law))
    assert (shifted - sp.cos(sp.S.Half) * sp.exp(-sp.Rational(1, 8)) / sp.sqrt(2 * sp.pi) / 2).equals(0)


def test_two_point_masses():
    """E delta(x) delta(y) is the density at the origin, 1/(2 pi sqrt(1 - m^2))."""
    law = Gaussian([0, 0], [[1, m], [m, 1]])
    found = reduce_expectations(Expectation(sp.DiracDelta(x) * sp.DiracDelta(y), [x, y], law))
    assert (found.subs(m, sp.Rational(1, 3)) - 1 / (2 * sp.pi * sp.sqrt(sp.Rational(8, 9)))).equals(0)


@pytest.mark.parametrize(
    "integrand", [sp.DiracDelta(x**2 - 1), sp.DiracDelta(x, 1), sp.DiracDelta(x) ** 2, sp.exp(sp.DiracDelta(x))]
)
def test_a_point_mass_that_has_no_average_is_refused(integrand: sp.Expr):
    with pytest.raises(NotImplementedError, match="DiracDelta"):
        reduce_expectations(Expectation(integrand, [x], standard_normal()))


def test_other_laws_are_refused():
    class Other(Measure):
        @property
        def dim(self) -> int:
            return 1

    with pytest.raises(NotImplementedError, match="No quadrature for Other"):
        reduce_expectations(Expectation(sp.tanh(x), [x], Other()))


def planes(integrand: sp.Expr, *variables: sp.Symbol) -> set[sp.Expr]:
    """The hyperplanes found, as expressions."""
    return {
        sum(a * v for a, v in zip(f.coefficients, variables, strict=True)) + f.constant
        for f in smoothness(integrand, variables).kinks
    }


@pytest.mark.parametrize(
    ("integrand", "expected"),
    [
        (relu(2 * x - 1) * sp.sign(1 - 2 * x), {x - sp.S.Half}),
        (sp.Max(x, y, 0), {x, y, x - y}),
        (sp.Heaviside(x * y - x**2), {x, x - y}),
        (relu(relu(x) - sp.Abs(y)), {x, y, x - y, x + y}),
        (sp.Piecewise((x, (x > 1) & (y < 2)), (y, True)), {x - 1, y - 2}),
        (relu(sp.tanh(x) * sp.tanh(m * x + y)), {x, m * x + y}),
        (sp.Max(sp.exp(x), sp.exp(y)), {x - y}),
        (sp.sqrt(sp.Abs(x - m)) * sp.cos(y), {x - m}),
        (sigmoid(x * y) * Phi(x) / (1 + sp.exp(y)), set()),
        (Expectation(relu(z + x) * sp.Abs(y), [z], standard_normal()) * x, {y}),
        (Expectation(relu(z), [z], Gaussian([y], [[x**2]])), {x}),
    ],
)
def test_kinks_are_found(integrand: sp.Expr, expected: set[sp.Expr]):
    assert planes(integrand, x, y) == expected


def test_curved_kinks_and_polynomials_are_told_apart():
    assert smoothness(sp.Heaviside(x * y - 1), (x, y)).curved
    assert smoothness(He(3, x) * (y - m) ** 2 + m * x, (x, y)).degree == 5
    assert smoothness(sp.Abs(m) * x, (x,)).degree == 1
    assert smoothness(sp.log(1 + sp.exp(x)) / (1 + x**2), (x,)).singular is False
    assert smoothness(1 / x, (x,)).singular is True
    steep = smoothness(sp.tanh(50 * x) * sp.exp(-100 * (x - y) ** 2), (x, y)).steps
    assert [f.coefficients[0] for f in steep if f.coefficients[1] == 0] == [50]
    assert len(steep) == 2
