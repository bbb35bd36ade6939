"""Information exponents with their certificates: of a target alone, and of a target seen by a student.

A target's exponent is the least k >= 1 with a nonzero Hermite coefficient of degree k. The pair's exponent is
the least degree of the population risk in the overlaps at zero overlap; its leading form decides whether the
start is a trap  [arXiv:2506.02651, sequence information exponent; sign rule derived].
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product

import sympy as sp

from derive.decision import Certificate, Decide, Decision, Sign
from derive.hermite import HermiteExpansion
from derive.mechanisms.spherical_sgd import SphericalSgd
from derive.polynomial import expand

__all__ = ["Coefficient", "Exponent", "Trapped", "pair_exponent", "sample_complexity", "target_exponent"]


class Trapped(enum.Enum):
    """Whether SGD from an uninformed start stays there."""

    NO = "false"
    YES = "true"
    DEPENDS_ON_START = "depends_on_start"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient that was looked at: of what, its multi-index, its value, what was decided about it."""

    of: str
    index: tuple[int, ...]
    value: sp.Expr
    decision: Decision


@dataclass(frozen=True, slots=True)
class Exponent:
    """`value`: an integer, sympy.oo when proved infinite, None when none was found up to `order`."""

    value: int | sp.Expr | None
    certificate: Certificate
    reason: str
    order: int
    coefficients: tuple[Coefficient, ...] = ()
    trapped: Trapped = Trapped.UNKNOWN

    @property
    def leading(self) -> tuple[Coefficient, ...]:
        """The coefficients of the degree that decides."""
        if not isinstance(self.value, int):
            return ()
        return tuple(c for c in self.coefficients if sum(c.index) == self.value)

    def mapped(self, change: Callable[[sp.Expr], sp.Expr]) -> Exponent:
        """The same exponent with the values of its coefficients rewritten."""
        return replace(self, coefficients=tuple(replace(c, value=change(c.value)) for c in self.coefficients))

    @property
    def interval(self) -> tuple[str, str] | None:
        """The interval of the first coefficient that decided, where ball arithmetic gave one."""
        return next((c.decision.interval for c in self.leading if c.decision.is_nonzero), None)


def target_exponent(target: Sequence[sp.Expr], tokens: tuple[sp.Symbol, ...], order: int, decide: Decide) -> Exponent:
    """The least k in 1..order with some c_alpha(g) != 0, |alpha| = k, over all outputs of the target."""
    parts = [HermiteExpansion(g, tokens) for g in target]
    degrees = [p.degree for p in parts]
    highest = None if any(d is None for d in degrees) else max(d for d in degrees if d is not None)
    seen: list[Coefficient] = []
    for k in range(1, order + 1):
        if highest is not None and k > highest:
            return Exponent(sp.oo, Certificate.EXACT, "the target is constant", order, tuple(seen))
        level = _coefficients("target", [p.of_degree(k) for p in parts], decide)
        seen += level
        found = _conclude(k, level, order, tuple(seen))
        if found is not None:
            return found
    if highest is not None and highest <= order:
        return Exponent(sp.oo, Certificate.EXACT, "the target is constant", order, tuple(seen))
    return _nothing(order, seen)


def pair_exponent(problem: SphericalSgd, order: int, decide: Decide, highest: int | None = None) -> Exponent:
    """The least degree of R(o) at zero overlap, with its leading form's sign rule.

    `highest`: a degree above which the form is known to vanish (polynomial targets), None if there is none.
    """
    reason = "the population risk does not depend on the overlaps"
    if not problem.risk.has_free(*problem.overlaps):
        return Exponent(sp.oo, Certificate.EXACT, reason, order, (), Trapped.YES)
    seen: list[Coefficient] = []
    for k in range(1, order + 1):
        if highest is not None and k > highest:
            break
        level = _coefficients("pair", [problem.form(k)], decide)
        seen += level
        found = _conclude(k, level, order, tuple(seen))
        if found is not None:
            return found if found.value is None else _with_trapping(found, len(problem.overlaps), decide)
    if highest is not None and highest <= order:
        return Exponent(
            sp.oo,
            Certificate.EXACT,
            f"every degree up to {highest}, the target's, vanishes",
            order,
            tuple(seen),
            Trapped.YES,
        )
    return _nothing(order, seen)


def sample_complexity(exponent: Exponent) -> tuple[str, str]:
    """(law, text): how the number of steps to weak recovery grows with the dimension d."""
    k = exponent.value
    if k is None:
        return "unknown", f"no exponent was established up to order {exponent.order}"
    if k is sp.oo:
        return "never", "the risk holds no information on the direction: no number of samples suffices"
    if exponent.trapped is Trapped.YES:
        return (
            "never",
            "the start is a local minimum of the risk: SGD stays there whatever the number of samples",
        )
    condition = " where the start's sign agrees" if exponent.trapped is Trapped.DEPENDS_ON_START else ""
    if k == 1:
        return "d", "a number of samples proportional to d" + condition
    if k == 2:
        return "d log d", "a number of samples proportional to d log d, at a fixed learning rate" + condition
    return (
        "d^(k-1)",
        f"a number of samples proportional to d^{int(k) - 1}, at a learning rate ~ d^(-{int(k) - 2}/2)" + condition,
    )


def _coefficients(of: str, groups: Sequence[Mapping[tuple[int, ...], sp.Expr]], decide: Decide) -> list[Coefficient]:
    return [Coefficient(of, index, c, decide(c)) for g in groups for index, c in g.items()]


def _conclude(k: int, level: list[Coefficient], order: int, seen: tuple[Coefficient, ...]) -> Exponent | None:
    """The exponent k if a coefficient of degree k is nonzero, undecided if that is open, None if all vanish."""
    first = next((c for c in level if c.decision.is_nonzero), None)
    if first is not None:
        return Exponent(k, first.decision.certificate, first.decision.reason, order, seen)
    open_ = next((c for c in level if c.decision.sign is Sign.UNDECIDED), None)
    if open_ is not None:
        reason = f"degree {k}, index {open_.index}: {open_.decision.reason}"
        return Exponent(None, Certificate.UNDECIDED, reason, order, seen)
    return None


def _nothing(order: int, seen: Sequence[Coefficient]) -> Exponent:
    reason = f"every coefficient up to order {order} vanishes; higher orders were not searched"
    return Exponent(None, Certificate.UNDECIDED, reason, order, tuple(seen))


def _with_trapping(exponent: Exponent, overlaps: int, decide: Decide) -> Exponent:
    k = exponent.value
    assert isinstance(k, int)
    form = {c.index: c.value for c in exponent.leading}
    trapped = _trapped(k, form, overlaps, decide)
    return Exponent(k, exponent.certificate, exponent.reason, exponent.order, exponent.coefficients, trapped)


def _trapped(k: int, form: Mapping[tuple[int, ...], sp.Expr], overlaps: int, decide: Decide) -> Trapped:
    """Trapped iff the leading form is <= 0 on the whole unit sphere of the overlaps.

    A form of degree >= 3 that takes both signs attracts from some starts and repels from others.
    """
    if k == 1:
        return Trapped.NO
    if k % 2:
        return Trapped.DEPENDS_ON_START
    form, scale = _without_common_symbol(form)
    up = _takes_positive(k, form, overlaps, decide)
    down = _takes_positive(k, {n: -c for n, c in form.items()}, overlaps, decide)
    if k == 2 and up and (down or scale is Sign.POSITIVE):
        return Trapped.NO
    if up and down:
        return Trapped.DEPENDS_ON_START
    if up is None or down is None or scale is Sign.NONZERO:
        return Trapped.UNKNOWN
    rises = up if scale is Sign.POSITIVE else down
    return Trapped.NO if rises else Trapped.YES


def _without_common_symbol(
    form: Mapping[tuple[int, ...], sp.Expr],
) -> tuple[dict[tuple[int, ...], sp.Expr], Sign]:
    """The form without a symbolic factor that all coefficients share, and the sign of that factor."""
    common = sp.gcd_terms(sp.Add(*(c * sp.Dummy() for c in form.values()))).as_independent(sp.Symbol)[1]
    shared = [
        f
        for f in sp.Mul.make_args(common)
        if f.free_symbols and all(not (c / f).has_free(*f.free_symbols) for c in form.values())
    ]
    factor = sp.Mul(*shared)
    sign = Sign.POSITIVE if factor.is_positive else Sign.NEGATIVE if factor.is_negative else Sign.NONZERO
    return {n: expand(c / factor) for n, c in form.items()}, sign


def _takes_positive(k: int, form: Mapping[tuple[int, ...], sp.Expr], overlaps: int, decide: Decide) -> bool | None:
    """Whether the form is positive somewhere; None when that stays open."""
    if k == 2:
        return _quadratic_takes_positive(form, overlaps, decide)
    for point in product((Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2)), repeat=overlaps):
        value = sp.Add(
            *(
                c * sp.Mul(*(sp.Rational(x.numerator, x.denominator) ** a for x, a in zip(point, n, strict=True)))
                for n, c in form.items()
            )
        )
        if decide(expand(value)).sign is Sign.POSITIVE:
            return True
    even = all(not any(a % 2 for a in n) for n in form)
    if even and all(decide(c).sign in (Sign.NEGATIVE, Sign.ZERO) for c in form.values()):
        return False
    return None


def _quadratic_takes_positive(form: Mapping[tuple[int, ...], sp.Expr], overlaps: int, decide: Decide) -> bool | None:
    """A quadratic form q is <= 0 everywhere iff every principal minor of -q is >= 0."""

    def entry(i: int, j: int) -> sp.Expr:
        n = tuple((a == i) + (a == j) for a in range(overlaps))
        return -form.get(n, sp.S.Zero) / (1 if i == j else 2)

    q = sp.Matrix(overlaps, overlaps, lambda i, j: entry(int(i), int(j)))
    open_ = False
    for size in range(1, overlaps + 1):
        for rows in combinations(range(overlaps), size):
            sign = decide(expand(q.extract(list(rows), list(rows)).det())).sign
            if sign is Sign.NEGATIVE:
                return True
            open_ = open_ or sign not in (Sign.POSITIVE, Sign.ZERO)
    return None if open_ else False
