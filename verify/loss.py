"""A convex loss of label and output in torch: value, slope, curvature, and its proximal operator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import sympy as sp
import torch
from torch import Tensor

from derive.functions import relu
from derive.polynomial import affine
from verify.lower import Lowered, lower

__all__ = ["LoweredLoss", "Response"]

_BENT = (sp.Abs, sp.Max, sp.Min, sp.Piecewise, sp.Heaviside, sp.sign, relu)
_HALVING = 5  # every so many Newton steps the bracket is halved, for kinks at places that are not known
_MOST_STEPS = 80 * _HALVING  # from any bracket to neighbouring floats
_ULP = 2.0**-52
_BESIDE = 2.0**-40  # how far from a kink, in units of 1 + |kink|, its one-sided slopes are taken
_JUMP = 1e-9  # of the slope at a kink, in units of 1 + |slope|: beyond what the curvature does on that distance


class Response(NamedTuple):
    """Of the Moreau envelope in a: `output` the proximal point u, `force` (a - u)/V, `stiffness` its slope."""

    output: Tensor
    force: Tensor
    stiffness: Tensor


@dataclass(frozen=True)
class LoweredLoss:
    """loss(y, u), convex in u, for labels and outputs of one shape (n,).

    quadratic: the curvature does not depend on u. places: kinks in u, as functions of y; `all_places`: no other kinks.
    """

    program: Lowered  # y, u -> loss, d loss/du, d2 loss/du2 (almost everywhere)
    places: Lowered
    all_places: bool
    quadratic: bool

    @classmethod
    def of(cls, loss: sp.Lambda, values: Mapping[sp.Symbol, float] | None = None) -> Self:
        """The loss Lambda((y, u), formula) with its parameters at `values`.

        Raises `ValueError` for a parameter without a value, `NotImplementedError` for a node without torch operation.
        """
        y, u = sp.Dummy("y", real=True), sp.Dummy("u", real=True)
        formula = loss(y, u).xreplace({s: sp.Float(v) for s, v in (values or {}).items()})
        slope = formula.diff(u)
        curvature = slope.diff(u).replace(sp.DiracDelta, lambda *_: sp.S.Zero)
        bends = tuple(dict.fromkeys(_bends(formula, u)))
        forms = [affine(b, (u,)) for b in bends]
        places = [-f[1] / f[0][0] for f in forms if f is not None]
        quadratic = not bends and not curvature.has_free(u)
        return cls(lower([formula, slope, curvature], (y, u)), lower(places, (y,)), None not in forms, quadratic)

    def value(self, y: Tensor, u: Tensor) -> Tensor:
        """loss(y, u)."""
        return self.program((y, u))[0]

    def smooth(self, y: Tensor) -> bool:
        """Whether the slope is known to be continuous for each of these labels."""
        return self.all_places and not any(bool((rise > _JUMP).any()) for _, rise in self._kinks(y))

    def _kinks(self, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each kink its places (n,), and by how much the slope rises there in units of 1 + |slope|."""
        for place in self.places((y,)) if self.places.expressions else ():
            below, above = (self.program((y, place + s * _BESIDE * (1 + place.abs())))[1] for s in (-1, 1))
            yield place, (above - below) / (1 + below.abs())

    def response(self, y: Tensor, a: Tensor, step: float) -> Response:
        """u = argmin_u loss(y, u) + (u - a)^2/(2 step), the force (a - u)/step in d loss(u), and d force/da.

        step = 0, for smooth losses only: u = a, the slope and the curvature.
        """
        if step == 0:
            _, slope, curvature = self.program((y, a))
            return Response(a, slope, curvature)
        u, rests = self._proximal(y, a, step)
        curvature = self.program((y, u))[2]
        return Response(u, (a - u) / step, torch.where(rests, 1 / step, curvature / (1 + step * curvature)))

    def _proximal(self, y: Tensor, a: Tensor, step: float) -> tuple[Tensor, Tensor]:
        """The crossing of u + step loss'(u) = a, and whether it is at a jump of the slope.

        At a known kink where the one-sided slopes enclose it, else by Newton steps and halving.
        """
        slope = self.program((y, a))[1]
        end = a - step * slope  # the slope at the crossing is not further from 0
        low, high = torch.minimum(a, end), torch.maximum(a, end)
        found = torch.full_like(a, torch.nan)
        for place in self.places((y,)) if self.places.expressions else ():
            aside = _BESIDE * (1 + place.abs())
            below, above = (p - a + step * self.program((y, p))[1] for p in (place - aside, place + aside))
            found = torch.where((below <= 0) & (above >= 0), place, found)
            low = torch.where(above < 0, torch.maximum(low, place), low)
            high = torch.where(below > 0, torch.minimum(high, place), high)
        rests = ~found.isnan()
        u = torch.where(rests, found, (low + high) / 2)
        for k in range(_MOST_STEPS):
            _, slope, curvature = self.program((y, u))
            excess = u - a + step * slope
            low, high = torch.where(excess <= 0, u, low), torch.where(excess >= 0, u, high)
            rounding = 4 * _ULP * (a.abs() + step * slope.abs())
            done = rests | (excess.abs() <= rounding) | (high - low <= rounding)
            if bool(done.all()):
                break
            newton = torch.clamp(u - excess / (1 + step * curvature), low, high)
            u = torch.where(done, u, newton if (k + 1) % _HALVING else (low + high) / 2)
        jumps = (u - a + step * slope).abs() > _JUMP * (a.abs() + step * (1 + slope.abs()))
        return u, rests | jumps


def _bends(expr: sp.Expr, u: sp.Symbol) -> Iterator[sp.Expr]:
    """What changes sign where the formula changes, in smooth pieces."""
    for e in expr.atoms(*_BENT):
        if not e.has_free(u):
            continue
        bends = e.args[:1]
        if isinstance(e, sp.Max | sp.Min):
            bends = [p - q for p, q in itertools.combinations(e.args, 2)]
        elif isinstance(e, sp.Piecewise):
            bends = [r.lhs - r.rhs for _, condition in e.args for r in condition.atoms(sp.Rel)]
        yield from (piece for bend in bends for piece in _pieces(bend, u) if piece.has_free(u))


def _pieces(expr: sp.Expr, u: sp.Symbol) -> Iterator[sp.Expr]:
    """The smooth formulas among which the expression changes: of |x| x and -x, of max and min their arguments, .."""
    bent = next((e for e in expr.atoms(*_BENT) if e.has_free(u) and not any(a.has(*_BENT) for a in e.args)), None)
    if bent is None:
        yield expr
        return
    (first, *_) = bent.args
    match bent:
        case sp.Max() | sp.Min():
            branches = bent.args
        case sp.Abs():
            branches = (first, -first)
        case relu():
            branches = (first, sp.S.Zero)
        case sp.Piecewise():
            branches = tuple(e for e, _ in bent.args)
        case _:
            branches = (sp.S.Zero, sp.S.One, sp.S.NegativeOne)
    for branch in branches:
        yield from _pieces(expr.xreplace({bent: branch}), u)
