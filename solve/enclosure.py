"""Rigorous enclosures of constants: closed forms, and Gaussian expectations in one variable or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp
from flint import acb, arb, ctx

from derive.expectation import Expectation
from solve.balls import Balls, constant_ball, gaussian_factor
from solve.cubature import Axis, Symmetry, cubature
from solve.gaussian_form import Standard, merged, standard, symmetries, thresholds, turned_to_kink
from solve.growth import GrowthBounds, box_radius
from solve.straightline import NotEnclosed, Program, compile_program, plain

__all__ = ["DEFAULT_BUDGET", "evaluate_ball"]

DEFAULT_BUDGET = 4e6  # evaluations of an integrand in two or more variables
_GUARD = 40  # bits beyond those asked for
_LARGEST_DIM = 4


def evaluate_ball(
    expr: sp.Expr,
    bits: int = 64,
    parameters: Mapping[sp.Symbol, arb] | None = None,
    budget: float = DEFAULT_BUDGET,
) -> arb:
    """A ball that holds `expr`; every expectation in it to about 2^-bits, absolutely.

    `parameters` gives the values of symbols, as balls: the result holds the value for each choice in them.
    Raises `NotEnclosed` when no bound is known or `budget` evaluations do not do; `ValueError` for a symbol
    without a value or a float.
    """
    with ctx.workprec(bits + _GUARD):
        return _Evaluation(bits, parameters or {}, budget).value(expr)


@dataclass(frozen=True)
class _Evaluation:
    bits: int
    parameters: Mapping[sp.Symbol, arb]
    budget: float

    def value(self, e: sp.Expr) -> arb:
        if not e.has(Expectation):
            return constant_ball(e, self.parameters)
        if isinstance(e, sp.Add | Expectation):
            return self._sum(sp.Add.make_args(e))
        if isinstance(e, sp.Mul):
            return self._linear_or_product(e)
        arguments = [acb(self.value(a)) for a in e.args]
        if isinstance(e, sp.Pow) and e.exp.is_Rational:
            return _real(Balls().power(arguments[0], e.exp), e)
        # a node of values: the same table as for constants
        held = {sp.Dummy(real=True): a.real for a in arguments}
        return constant_ball(e.func(*held), {**self.parameters, **held})

    def _linear_or_product(self, e: sp.Mul) -> arb:
        fixed, moving = _split(e)
        if isinstance(moving, Expectation):
            return self._sum((e,))
        result = constant_ball(fixed, self.parameters)
        for factor in sp.Mul.make_args(moving):
            result *= self.value(factor)
        return result

    def _sum(self, summands: tuple[sp.Expr, ...]) -> arb:
        """Terms c E f with f of as many variables go into one integral: what they share is done once."""
        total, linear = arb(0), []
        for e in summands:
            fixed, moving = _split(e)
            if isinstance(moving, Expectation):
                linear.append((fixed, standard(moving)))
            else:
                total += self.value(e)
        return sum((self._integral(s) for s in merged(linear)), total)

    def _integral(self, s: Standard) -> arb:
        if s.dim > _LARGEST_DIM:
            raise NotEnclosed(f"{s.dim} variables; enclosures reach {_LARGEST_DIM}")
        s = turned_to_kink(Standard(plain(s.integrand), s.dim))
        tolerance = arb(2) ** -(self.bits + 2)
        whole = compile_program(s.integrand, s.variables)
        bounds = GrowthBounds(s.dim)
        growth = whole.run(
            bounds, [bounds.variable(i) for i in range(s.dim)], [bounds.constant(c) for c in self._constants(whole)]
        )
        radius, tail = box_radius(growth, tolerance)
        total, symmetric = arb(0, tail), symmetries(s)
        for integrand, axis in self._pieces(s, radius):
            program = compile_program(integrand, s.variables)
            axes = (axis, *[Axis(arb(-radius), arb(2 * radius))] * (s.dim - 1))
            total += self._piece(program, axes, symmetric if integrand == s.integrand else [])
        return total

    def _constants(self, program: Program) -> list[arb]:
        return [constant_ball(c, self.parameters) for c in program.constants]

    def _pieces(self, s: Standard, radius: float) -> Iterator[tuple[sp.Expr, Axis]]:
        """The integrand between two neighbouring thresholds of g_1, with its steps replaced by 0 and 1."""
        cuts = thresholds(s)
        slopes = [constant_ball(c.slope, self.parameters) for c in cuts]
        places = [constant_ball(c.at, self.parameters) for c in cuts]
        if any(a.contains(0) for a in slopes):
            raise NotEnclosed("the direction of a kink is not known at this precision")
        inside = _distinct([t for t in places if not abs(t) > radius])
        ends = [arb(-radius), *inside, arb(radius)]
        for left, right in zip(ends, ends[1:], strict=False):
            middle = (left + right) / 2
            values = {
                c.step: sp.Integer(int((middle > t) == (a > 0))) for c, a, t in zip(cuts, slopes, places, strict=True)
            }
            piece = s.integrand.xreplace(values)
            if piece != 0:
                yield piece, Axis(left, right - left)

    def _piece(self, program: Program, axes: tuple[Axis, ...], symmetric: Sequence[Symmetry]) -> arb:
        constants = self._constants(program)
        if len(axes) == 1:
            return _line(program, constants, axes[0], self.bits)
        return cubature(program, constants, axes, 2.0 ** -(self.bits + 1), self.budget, symmetric)


def _split(e: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """e = fixed * moving with the expectations in `moving`."""
    fixed = [a for a in sp.Mul.make_args(e) if not a.has(Expectation)]
    moving = [a for a in sp.Mul.make_args(e) if a.has(Expectation)]
    return sp.Mul(*fixed), sp.Mul(*moving)


def _real(value: acb, e: sp.Expr) -> arb:
    if not value.is_finite():
        raise NotEnclosed(f"{type(e).__name__} of an enclosure is not finite at this precision")
    return value.real


def _distinct(places: list[arb]) -> list[arb]:
    """The places in increasing order, equal ones once; raises where two balls overlap and are not equal."""
    result: list[arb] = []
    for t in sorted(places, key=lambda t: float(t.mid())):
        if result and not t > result[-1]:
            if t.mid() != result[-1].mid() or t.rad() != result[-1].rad():
                raise NotEnclosed("two kinks are not told apart at this precision")
            continue
        result.append(t)
    return result


def _line(program: Program, constants: list[arb], axis: Axis, bits: int) -> arb:
    """E[f(x) 1(x on the axis)], x ~ N(0, 1), by Arb's adaptive Gauss-Legendre quadrature (rigorous)."""
    lifted = [acb(c) for c in constants]
    failed: list[NotEnclosed] = []

    def density(u: acb, analytic: bool) -> acb:
        x = axis.start + axis.width * u
        try:
            return program.run(Balls(analytic), [x], lifted) * gaussian_factor(x)
        except NotEnclosed as reason:  # an exception must not cross Arb
            failed.append(reason)
            return acb(arb.nan())

    value = acb.integral(density, 0, 1, abs_tol=arb(2) ** -(bits + 4), rel_tol=arb(2) ** -(bits + 4)) * axis.width
    if failed:
        raise failed[0]
    return _real(value, sp.Symbol("integral"))


Evaluate = Callable[[sp.Expr, int], arb]
