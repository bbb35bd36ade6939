"""Where the landscape of two overlaps changes: the start turns, minima exchange their order, appear or vanish.

The overlaps are m, with the target's direction, and e, with the positions', on the disc m^2 + e^2 <= 1. Corners are
(1, 0), the semantic one, and (0, 1), the positional one; SGD is taken at a small learning rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from derive.equations import EquationSystem, Quantity, Root, Source
from derive.mechanisms.spherical_sgd import SphericalSgd
from derive.rules import reduced

__all__ = ["CRITERIA", "Criterion", "Landscape", "critical_system", "landscape"]

CRITERIA = ("trans", "equal_loss", "semantic_lost", "positional_gained")
"""The suffixes of critical values: omega_trans is where the criterion `trans` changes sign in omega."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A quantity whose sign says on which side of a transition a task is; positive: the semantic side first."""

    name: str
    meaning: str
    value: sp.Expr


@dataclass(frozen=True)
class Landscape:
    """The risk of two overlaps, its criteria, and its slopes towards the corners, R_m(1, 0) and R_e(0, 1).

    A loss that is no polynomial of output and label has the criterion `trans` alone, and no slopes: at a corner,
    where output and label may coincide, it need not be smooth.
    """

    overlaps: tuple[sp.Symbol, sp.Symbol]
    risk: sp.Expr
    criteria: tuple[Criterion, ...]
    slopes: tuple[sp.Expr, sp.Expr] | None


def landscape(problem: SphericalSgd) -> Landscape | None:
    """The landscape where there is one overlap of either kind, else None. Its criteria:

    trans: [R_ee - R_mm](0, 0) / 2, where m and e do not mix at that order; else it is left out.
    equal_loss: R(0, 1) - R(1, 0).
    semantic_lost: [R_ee - R_m](1, 0), the curvature of R along the rim.
    positional_gained: [R_e - R_mm](0, 1), minus that curvature.
    """
    teacher = sorted({k for _, k in problem.teacher_of})
    if len(teacher) != 1 or len(problem.overlaps) != 2:
        return None
    i = teacher[0]
    m, e = problem.overlaps[i], problem.overlaps[1 - i]
    turn = _turn(problem, i)
    start = () if turn is None else (turn,)
    if problem.cross is None:
        return Landscape((m, e), problem.risk, start, None)
    corners, slopes = _corners(problem, i)
    return Landscape((m, e), problem.risk, (*start, *corners), slopes)


def _turn(problem: SphericalSgd, i: int) -> Criterion | None:
    form = problem.form(2, positions=True)
    if (1, 1) in form:
        return None
    squares = [form.get(tuple(2 * int(k == j) for k in range(2)), sp.S.Zero) for j in (i, 1 - i)]
    meaning = "the steepest direction at zero overlap turns from the target's to the positions'"
    return Criterion("trans", meaning, squares[0] - squares[1])


def _corners(problem: SphericalSgd, i: int) -> tuple[tuple[Criterion, ...], tuple[sp.Expr, sp.Expr]]:
    m, e = problem.overlaps[i], problem.overlaps[1 - i]
    semantic, positional = {m: sp.S.One, e: sp.S.Zero}, {m: sp.S.Zero, e: sp.S.One}
    r_m, r_e = problem.gradient[i], problem.gradient[1 - i]

    def at(value: sp.Expr, corner: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
        return reduced(value.xreplace(corner))

    slopes = at(r_m, semantic), at(r_e, positional)
    found = (
        Criterion(
            "equal_loss",
            "the two corners have the same loss",
            at(problem.risk, positional) - at(problem.risk, semantic),
        ),
        Criterion(
            "semantic_lost",
            "the semantic corner stops being a minimum",
            at(r_e.diff(e).doit(), semantic) - slopes[0],
        ),
        Criterion(
            "positional_gained",
            "the positional corner becomes a minimum",
            slopes[1] - at(r_m.diff(m).doit(), positional),
        ),
    )
    return found, slopes


def critical_system(
    found: Sequence[Criterion], control: Quantity, parameters: Sequence[Quantity]
) -> EquationSystem | None:
    """A Root equation for each criterion, in the unknown `<control>_<criterion>`; None without any.

    Criteria in which the control does not appear have no critical value and no equation.
    """
    source = Source("derived", "a criterion of the landscape changes sign")
    equations = []
    for c in found:
        if c.value.has_free(control.symbol):
            unknown = sp.Symbol(f"{control.symbol.name}_{c.name}", **control.symbol.assumptions0)
            quantity = Quantity(unknown, f"{control.symbol.name} at which {c.meaning}", control.domain)
            equations.append(Root(quantity, c.value.xreplace({control.symbol: unknown}), source))
    if not equations:
        return None
    read = set().union(*(e.reads() for e in equations))
    return EquationSystem(tuple(equations), tuple(p for p in parameters if p.symbol in read))
