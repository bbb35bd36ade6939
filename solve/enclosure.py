"""Rigorous enclosures of constants: closed forms, and Gaussian expectations in one variable or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sympy as sp
from flint import acb, arb, ctx

from derive.expectation import Expectation
from derive.polynomial import is_zero
from solve.balls import Balls, constant_ball, gaussian_factor
from solve.cells import Axis, Symmetry
from solve.cubature import cubature
from solve.gaussian_form import Standard, decomposed, split_constant, symmetries
from solve.growth import GrowthBounds, box_radius
from solve.straightline import NotAffordable, NotEnclosed, Program, compile_program, plain
from solve.thresholds import thresholds, turned_to_kink

__all__ = ["DEFAULT_BUDGET", "evaluate_ball"]

DEFAULT_BUDGET = 4e6  # evaluations of an integrand in two or more variables
_GUARD = 40  # bits beyond those asked for
_LARGEST_DIM = 5
_LARGEST_LINE = 30_000  # evaluations in one variable


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
            return self._sum(e)
        if isinstance(e, sp.Mul):
            return self._linear_or_product(e)
        arguments = [acb(self.value(a)) for a in e.args]
        if isinstance(e, sp.Pow) and e.exp.is_Rational:
            return _real(Balls().power(arguments[0], e.exp), e)
        # a node of values: the same table as for constants
        held = {sp.Dummy(real=True): a.real for a in arguments}
        return constant_ball(e.func(*held), {**self.parameters, **held})

    def _linear_or_product(self, e: sp.Mul) -> arb:
        fixed, moving = split_constant(e)
        if isinstance(moving, Expectation):
            return self._sum(e)
        result = constant_ball(fixed, self.parameters)
        for factor in sp.Mul.make_args(moving):
            result *= self.value(factor)
        return result

    def _sum(self, e: sp.Expr) -> arb:
        integrals, rest = decomposed(e)
        return sum((self._integral(s) for s in integrals), sum((self.value(r) for r in rest), arb(0)))

    def _integral(self, s: Standard) -> arb:
        if s.dim > _LARGEST_DIM:
            raise NotAffordable(f"{s.dim} variables; enclosures reach {_LARGEST_DIM}")
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
            total += self._piece(program, axes, symmetric if integrand == s.integrand else ())
        return total

    def _constants(self, program: Program) -> list[arb]:
        return [constant_ball(c, self.parameters) for c in program.constants]

    def _pieces(self, s: Standard, radius: float) -> Iterator[tuple[sp.Expr, Axis]]:
        """The integrand between two neighbouring thresholds of g_1, with its steps replaced by 0 and 1.

        In one piece where the order of the thresholds is not known: still right, only slower to converge.
        """
        cuts = thresholds(s)
        slopes = [constant_ball(c.slope, self.parameters) for c in cuts]
        certain = not any(a.contains(0) for a in slopes)
        places = self._places([c.at for c in cuts], radius) if certain else None
        if places is None:
            yield s.integrand, Axis(arb(-radius), arb(2 * radius))
            return
        ends = [arb(-radius), *(t for _, t in places if abs(t) < radius), arb(radius)]
        below = sum(1 for _, t in places if t < -radius)
        order = {at: k for k, (group, _) in enumerate(places) for at in group}
        for i, (left, right) in enumerate(pairwise(ends)):
            # by rank, not by comparing balls: places may be wide when parameters are
            values = {
                c.step: sp.Integer(int((i + below > order[c.at]) == (a > 0))) for c, a in zip(cuts, slopes, strict=True)
            }
            piece = s.integrand.xreplace(values)
            if piece != 0:
                yield piece, Axis(left, right - left)

    def _places(self, places: Sequence[sp.Expr], radius: float) -> list[tuple[list[sp.Expr], arb]] | None:
        """The places of kinks in increasing order, equal ones together; None where the order is not proved."""
        groups: list[tuple[list[sp.Expr], arb]] = []
        for at in dict.fromkeys(places):
            same = next((group for group, _ in groups if is_zero(group[0] - at)), None)
            if same is not None:
                same.append(at)
            else:
                groups.append(([at], constant_ball(at, self.parameters)))
        groups.sort(key=lambda g: float(g[1].mid()))
        balls = [arb(-radius), *(t for _, t in groups if not abs(t) > radius), arb(radius)]
        ordered = all(a < b for a, b in pairwise(balls))
        return groups if ordered else None

    def _piece(self, program: Program, axes: tuple[Axis, ...], symmetric: Sequence[Symmetry]) -> arb:
        constants = self._constants(program)
        if len(axes) == 1:
            return _line(program, constants, axes[0], self.bits)
        return cubature(program, constants, axes, 2.0 ** -(self.bits + 1), self.budget, symmetric)


def _real(value: acb, e: sp.Expr) -> arb:
    if not value.is_finite():
        raise NotEnclosed(f"{type(e).__name__} of an enclosure is not finite at this precision")
    return value.real


def _line(program: Program, constants: list[arb], axis: Axis, bits: int) -> arb:
    """E[f(x) 1(x on the axis)], x ~ N(0, 1), by Arb's adaptive Gauss-Legendre quadrature (rigorous)."""
    lifted = [acb(c) for c in constants]
    failed: list[NotEnclosed] = []

    def density(u: acb, analytic: bool) -> acb:
        x = axis.start + axis.width * u
        try:
            value: acb = program.run(Balls(analytic), [x], lifted) * gaussian_factor(x)
        except NotEnclosed as reason:  # an exception must not cross Arb
            failed.append(reason)
            return acb(arb.nan())
        return value

    small = arb(2) ** -(bits + 4)
    integral = acb.integral(density, 0, 1, abs_tol=small / axis.width, rel_tol=small, eval_limit=_LARGEST_LINE)
    integral *= axis.width
    if failed:
        raise failed[0]
    return _real(integral, sp.Symbol("integral"))
