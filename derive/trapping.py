"""The sign rule: whether the leading form of the risk keeps SGD at an uninformed start."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations, product

import sympy as sp

from derive.decision import Decide, Sign
from derive.polynomial import expand

__all__ = ["Form", "Trapped", "trapped"]

Form = Mapping[tuple[int, ...], sp.Expr]
"""A homogeneous polynomial of the overlaps: coefficients by powers."""


class Trapped(enum.Enum):
    """Whether SGD from an uninformed start stays there."""

    NO = "false"
    YES = "true"
    DEPENDS_ON_START = "depends_on_start"
    UNKNOWN = "unknown"


def trapped(k: int, form: Form, overlaps: int, decide: Decide) -> Trapped:
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
    form: Form,
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


def _takes_positive(k: int, form: Form, overlaps: int, decide: Decide) -> bool | None:
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


def _quadratic_takes_positive(form: Form, overlaps: int, decide: Decide) -> bool | None:
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
