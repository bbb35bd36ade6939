"""Proximal operators and Moreau envelopes of convex losses: nodes, their derivatives, closed forms by regions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Self

import mpmath
import sympy as sp

from derive.functions import elementary, without_kinks_hidden
from derive.polynomial import affine, expand

__all__ = [
    "Confined",
    "LossNode",
    "Moreau",
    "MoreauCurvature",
    "MoreauSlope",
    "Prox",
    "Region",
    "closed_proximal",
    "confinement",
    "kinks",
    "minimisers",
    "non_convex_point",
    "regions",
    "slope_at",
]

_variable = sp.Symbol("u", real=True, bound=True)


class LossNode(sp.Expr):
    """A node whose first arguments are a loss, a Lambda, and a step V > 0. Abstract."""

    is_commutative = True

    @property
    def loss(self) -> sp.Lambda:
        return self.args[0]

    @property
    def V(self) -> sp.Expr:
        return self.args[1]

    def _eval_is_real(self) -> bool:
        return True

    def without(self, s: sp.Symbol) -> None:
        """Raises `NotImplementedError` for a derivative in a parameter of the loss."""
        if self.loss.has_free(s):
            raise NotImplementedError(f"No derivative of {type(self).__name__} in {s}, a parameter of the loss.")


class _Proximal(LossNode):
    """A node of a loss (one convex function of one variable, a Lambda), a step V > 0 and a point w. Abstract."""

    def __new__(cls, loss: sp.Lambda, V: sp.Expr, w: sp.Expr) -> Self:
        if len(loss.variables) != 1:
            raise ValueError(f"{cls.__name__}: a loss of one variable is needed, got {loss}.")
        (u,) = loss.variables
        canonical = sp.Lambda(_variable, loss.expr.xreplace({u: _variable}))
        new: Self = super().__new__(cls, canonical, sp.S(V), sp.S(w))
        return new

    @property
    def w(self) -> sp.Expr:
        return self.args[2]


class Prox(_Proximal):
    """prox_{V loss}(w) = argmin_u loss(u) + (u - w)^2/(2 V) = w - V r, r = `MoreauSlope`."""

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        return self.w.diff(s) - self.V.diff(s) * MoreauSlope(*self.args) - self.V * MoreauSlope(*self.args).diff(s)


class Moreau(_Proximal):
    """M_V(w) = min_u loss(u) + (u - w)^2/(2 V), the Moreau envelope."""

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        """dM = r dw - r^2/2 dV, r = `MoreauSlope`  [envelope theorem]."""
        self.without(s)
        r = MoreauSlope(*self.args)
        return r * self.w.diff(s) - r**2 / 2 * self.V.diff(s)


class MoreauSlope(_Proximal):
    """r = (w - Prox)/V, a slope of the loss at Prox: the derivative of the Moreau envelope in w."""

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        """dr = c (dw - r dV), c = `MoreauCurvature`: w = Prox + V loss'(Prox) differentiated."""
        self.without(s)
        change = self.w.diff(s) - self * self.V.diff(s)
        return sp.S.Zero if change == 0 else MoreauCurvature(*self.args) * change


class MoreauCurvature(_Proximal):
    """c = dr/dw = loss''/(1 + V loss'') at Prox, 1/V where Prox rests on a kink of the loss.

    Its derivative, for smooth losses: dc = loss^(3) (1 - V c)^3 (dw - r dV) - c^2 dV.
    """

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        self.without(s)
        if not (self.V.has_free(s) or self.w.has_free(s)):
            return sp.S.Zero
        if kinks(self.loss) != ():
            raise NotImplementedError("MoreauCurvature has a derivative rule for smooth losses only.")
        (u,) = self.loss.variables
        third = self.loss.expr.diff(u, 3).xreplace({u: Prox(*self.args)}) * (1 - self.V * self) ** 3
        change = self.w.diff(s) - MoreauSlope(*self.args) * self.V.diff(s)
        return third * change - self**2 * self.V.diff(s)


# ---- the shape of a loss ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Piece:
    """The loss between two neighbouring kinks, -oo and oo where there is none."""

    start: sp.Expr
    stop: sp.Expr
    expr: sp.Expr


def kinks(loss: sp.Lambda) -> tuple[sp.Expr, ...] | None:
    """Where the loss changes its formula or becomes infinite, in increasing order.

    None where that is not on affine forms or not known.
    """
    pieces = _pieces(loss)
    if pieces is None:
        return None
    ends = [pieces[0].start, *(p.stop for p in pieces)]
    return tuple(dict.fromkeys(k for k in ends if not k.is_infinite))


def _pieces(loss: sp.Lambda) -> tuple[_Piece, ...] | None:
    """The pieces of the interval on which the loss is finite."""
    (u,) = loss.variables
    low, high, rest = confinement(loss)
    return _split(_Piece(low, high, without_kinks_hidden(rest)), u)


def confinement(loss: sp.Lambda) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """(low, high, rest): the interval on which the loss is finite, and what it is there."""
    inside = [t for t in sp.Add.make_args(loss.expr) if isinstance(t, Confined)]
    if len(inside) > 1:
        raise ValueError(f"A loss is confined to one interval, not to those of {inside}.")
    low, high = inside[0].args[1:] if inside else (-sp.oo, sp.oo)
    return low, high, loss.expr - sp.Add(*inside)


def _split(piece: _Piece, u: sp.Symbol) -> tuple[_Piece, ...] | None:
    """The pieces between the places inside where steps of affine forms jump; None where a step is of another form."""
    steps = sorted((s for s in piece.expr.atoms(sp.Heaviside) if s.has_free(u)), key=sp.default_sort_key)
    if not steps:
        return (piece,)
    for step in steps:
        form = affine(step.args[0], (u,))
        if form is None:
            continue  # holds another step, whose value is known on a smaller piece
        place = sp.expand(-form[1] / form[0][0])
        before, after = (
            sp.expand(place - piece.start).is_extended_positive,
            sp.expand(piece.stop - place).is_extended_positive,
        )
        if before is None or after is None:
            return None
        ends = [piece.start, *([place] if before and after else []), piece.stop]
        parts = [_on(piece.expr, step, form[0][0], place, a, b) for a, b in itertools.pairwise(ends)]
        found = [_split(p, u) for p in parts]
        return None if None in found else _joined(tuple(p for f in found for p in f or ()))
    return None


def _on(expr: sp.Expr, step: sp.Expr, slope: sp.Expr, place: sp.Expr, start: sp.Expr, stop: sp.Expr) -> _Piece:
    """The piece from start to stop, on one side of the place of the step."""
    above = sp.expand(stop - place).is_extended_positive
    value = sp.Heaviside(slope) if above else sp.Heaviside(-slope)
    return _Piece(start, stop, expr.xreplace({step: value}))


def _joined(pieces: tuple[_Piece, ...]) -> tuple[_Piece, ...]:
    """Neighbours of one formula as one piece."""
    found: list[_Piece] = []
    for p in pieces:
        if found and expand(found[-1].expr - p.expr) == 0:
            found[-1] = _Piece(found[-1].start, p.stop, found[-1].expr)
        else:
            found.append(p)
    return tuple(found)


def slope_at(loss: sp.Lambda, place: sp.Expr, *, from_below: bool) -> sp.Expr:
    """The one-sided derivative loss'(place -) or loss'(place +), infinite outside the set of an indicator."""
    (u,) = loss.variables
    low, high, _ = confinement(loss)
    below, above = (place <= low, place > high) if from_below else (place < low, place >= high)
    if sp.true in (below, above):
        return -sp.oo if below == sp.true else sp.oo
    pieces = _pieces(loss)
    if pieces is None:
        return loss.expr.diff(u).xreplace({u: place})
    for piece in pieces:
        low, high = (piece.start - place).is_extended_negative, (piece.stop - place).is_extended_positive
        inside = (low and (high or piece.stop == place)) if from_below else (high and (low or piece.start == place))
        if inside:
            return piece.expr.diff(u).xreplace({u: place})
    raise ValueError(f"The place {place} cannot be ordered among the kinks of {loss}.")


class Confined(sp.Function):
    """0 for low <= u <= high, infinite outside: Confined(u, low, high), the convex indicator of an interval."""

    nargs = 3

    def _eval_is_real(self) -> bool:
        return True


def minimisers(loss: sp.Lambda) -> tuple[sp.Expr, sp.Expr] | None:
    """The ends, also -oo and oo, of the interval where a convex loss of linear and quadratic pieces is least.

    None where it has no least value, or no such pieces, or its slopes have no known sign.
    """
    (u,) = loss.variables
    lines = [_slope(p, u) for p in _pieces(loss) or ()]
    if not lines or None in lines:
        return None
    known = [line for line in lines if line is not None]
    low = next((line.zero(line.start) for line in known if line.at_stop.is_extended_nonnegative), None)
    high = next((line.zero(line.stop) for line in reversed(known) if line.at_start.is_extended_nonpositive), None)
    return None if low is None or high is None else (low, high)


@dataclass(frozen=True)
class _Line:
    """The slope a u + b of a piece, with its values at the ends."""

    start: sp.Expr
    stop: sp.Expr
    a: sp.Expr
    b: sp.Expr
    at_start: sp.Expr
    at_stop: sp.Expr

    def zero(self, end: sp.Expr) -> sp.Expr:
        """That end of the piece if the slope has not changed its sign there, else where it does."""
        beyond = self.at_start.is_extended_nonnegative if end == self.start else self.at_stop.is_extended_nonpositive
        return end if beyond else sp.expand(-self.b / self.a)


def _slope(piece: _Piece, u: sp.Symbol) -> _Line | None:
    polynomial = sp.Poly(piece.expr.diff(u), u) if piece.expr.is_polynomial(u) else None
    if polynomial is None or polynomial.degree() > 1:
        return None
    a, b = polynomial.coeff_monomial(u), polynomial.coeff_monomial(1)
    at = [(a * k if a != 0 else b) if k.is_infinite else expand(a * k + b) for k in (piece.start, piece.stop)]
    return _Line(piece.start, piece.stop, a, b, *at)


# ---- closed forms -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Region:
    """start < w < stop, where Prox is `prox`, an affine function of w; the loss, r and dr/dw there."""

    start: sp.Expr
    stop: sp.Expr
    prox: sp.Expr
    loss: sp.Expr
    slope: sp.Expr
    curvature: sp.Expr

    @property
    def values(self) -> tuple[sp.Expr, ...]:
        """Prox, the loss, r and dr/dw."""
        return self.prox, self.loss, self.slope, self.curvature


def regions(loss: sp.Lambda, V: sp.Expr, w: sp.Expr) -> tuple[Region, ...] | None:
    """The regions of prox_{V loss}(w) for a convex loss of linear and quadratic pieces, else None.

    On a piece a u^2/2 + b u + c, the first-order condition w = u + V (a u + b) gives u = (w - V b)/(1 + V a); at a
    kink k, Prox = k for V loss'(k -) <= w - k <= V loss'(k +), these slopes infinite where the loss ends.
    """
    (u,) = loss.variables
    pieces = _pieces(loss)
    if pieces is None:
        return None
    found: list[Region] = []
    stop = -sp.oo
    for piece in pieces:
        polynomial = sp.Poly(piece.expr, u) if piece.expr.is_polynomial(u) else None
        if polynomial is None or polynomial.degree() > 2:
            return None
        a, b = 2 * polynomial.coeff_monomial(u**2), polynomial.coeff_monomial(u)
        low, high = (k if k.is_infinite else expand(k + V * (a * k + b)) for k in (piece.start, piece.stop))
        if not piece.start.is_infinite:
            found.append(_resting(stop, low, piece.start, piece.expr, u, V, w))
        inside = (w - V * b) / (1 + V * a)
        at = piece.expr.xreplace({u: inside})
        found.append(Region(low, high, inside, at, (a * w + b) / (1 + V * a), a / (1 + V * a)))
        stop = high
    if not pieces[-1].stop.is_infinite:
        found.append(_resting(stop, sp.oo, pieces[-1].stop, pieces[-1].expr, u, V, w))
    apart = [r for r in found if r.start != r.stop and expand(r.stop - r.start) != 0]
    joined: list[Region] = []
    for r in apart:
        same = joined and all(expand(a - b) == 0 for a, b in zip(joined[-1].values, r.values, strict=True))
        joined[-1:] = [replace(joined[-1], stop=r.stop)] if same else [*joined[-1:], r]
    return tuple(joined)


def _resting(
    start: sp.Expr, stop: sp.Expr, kink: sp.Expr, expr: sp.Expr, u: sp.Symbol, V: sp.Expr, w: sp.Expr
) -> Region:
    """The region where Prox rests on a kink of the loss."""
    return Region(start, stop, kink, expr.xreplace({u: kink}), (w - kink) / V, 1 / V)


def closed_proximal(expr: sp.Expr) -> sp.Expr:
    """`expr` with its nodes of proximal operators in closed form, a sum over regions, where they have one.

    Steps multiply the whole expression, once: 1[start < w < stop] f(prox) for each region.
    """
    nodes = sorted(expr.atoms(_Proximal), key=sp.default_sort_key)
    for loss, V, w in dict.fromkeys(n.args for n in nodes):
        found = regions(loss, V, w)
        if found is None:
            continue
        expr = sp.Add(*(_indicator(r, w) * expr.xreplace(_in_region(r, loss, V, w)) for r in found))
    return expr


def _in_region(r: Region, loss: sp.Lambda, V: sp.Expr, w: sp.Expr) -> dict[sp.Expr, sp.Expr]:
    return {
        Prox(loss, V, w): r.prox,
        Moreau(loss, V, w): r.loss + V * r.slope**2 / 2,
        MoreauSlope(loss, V, w): r.slope,
        MoreauCurvature(loss, V, w): r.curvature,
    }


def _indicator(r: Region, w: sp.Expr) -> sp.Expr:
    above = sp.S.One if r.start is -sp.oo else sp.Heaviside(w - r.start)
    return above if r.stop is sp.oo else above - sp.Heaviside(w - r.stop)


# ---- convexity --------------------------------------------------------------------------------------------
_PLACES = tuple(sp.Rational(k, 8) for k in range(-400, 401))
_NEGATIVE = -1e-9  # of a second derivative, in units of 1 + |loss'|: beyond rounding


def _step(x: Any, _at_zero: Any = None) -> float:
    return 0.5 + 0.5 * float((x > 0) - (x < 0))


def non_convex_point(loss: sp.Lambda) -> float | None:
    """A place where the loss, a formula of its variable alone, is not convex; None if none is found.

    Looked for where the slope falls, at kinks and along a grid of [-50, 50], and where loss'' < 0 on that grid.
    """
    (u,) = loss.variables
    pieces = _pieces(loss) or (_Piece(-sp.oo, sp.oo, without_kinks_hidden(loss.expr)),)
    for left, right in itertools.pairwise(pieces):
        k = left.stop
        jump = (right.expr - left.expr).xreplace({u: k}).evalf()
        fall = (right.expr - left.expr).diff(u).xreplace({u: k}).evalf()
        if abs(jump) > 1e-12 or fall < _NEGATIVE:
            return float(k)
    for piece in pieces:
        first = piece.expr.diff(u)
        both = [d.replace(sp.DiracDelta, lambda *_: sp.S.Zero) for d in (first, first.diff(u))]
        slopes = sp.lambdify([u], [elementary(d) for d in both], [{"Heaviside": _step}, "mpmath"], cse=True)
        before = -mpmath.inf
        for place in _PLACES:
            if piece.start < place < piece.stop:
                slope, curvature = slopes(float(place))
                if min(curvature, slope - before) < _NEGATIVE * (1 + abs(slope)):
                    return float(place)
                before = slope
    return None
