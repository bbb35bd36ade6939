"""Escape from zero overlap under one-pass SGD: the leading order of the flow at the start, integrated.

With k the exponent and G the largest value of the leading form on the unit sphere of the overlaps, the overlap
r in the best direction obeys dr/dtau = k G r^(k-1) - (gamma/2) V0 r to leading order, tau = gamma n / D.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from derive.equations import Define, EquationSystem, Quantity, Source
from derive.functions import LargestEigenvalue
from derive.mechanisms.spherical_sgd import SphericalSgd
from derive.rules import reduced

__all__ = ["LAW_NAMES", "escape_laws", "gain_laws", "leading_strength", "threshold"]

G = sp.Symbol("G", real=True)
V0 = sp.Symbol("V0", nonnegative=True)
S0 = sp.Symbol("S0", nonnegative=True)
growth = sp.Symbol("growth", real=True)
learning_rate_max = sp.Symbol("learning_rate_max", real=True)
start_overlap = sp.Symbol("start_overlap", positive=True)
steps = sp.Symbol("steps_to_escape", real=True)
threshold = sp.Symbol("threshold", positive=True)
G_tied = sp.Symbol("G_tied", real=True)
G_untied = sp.Symbol("G_untied", real=True)
rate_ratio = sp.Symbol("learning_rate_ratio", positive=True)
gain = sp.Symbol("gain", real=True)

LAW_NAMES = tuple(
    s.name
    for s in (G, V0, S0, growth, learning_rate_max, start_overlap, steps, threshold, G_tied, G_untied, rate_ratio, gain)
)
"""What the laws call their quantities: no parameter of a task can have these names."""

_POSITIVE = sp.Interval(0, sp.oo)
_DERIVED = Source("derived", "leading order of the flow at zero overlap")


def leading_strength(form: Mapping[tuple[int, ...], sp.Expr], k: int, overlaps: int) -> sp.Expr | None:
    """max of the form on the unit sphere; None for several overlaps and degree >= 3 (no single direction)."""
    if overlaps == 1:
        c = form.get((k,), sp.S.Zero)
        return sp.Abs(c) if k % 2 else c
    if k == 1:
        return sp.sqrt(sp.Add(*(c**2 for c in form.values())))
    return LargestEigenvalue.of(_matrix(form, overlaps)) if k == 2 else None


def _matrix(form: Mapping[tuple[int, ...], sp.Expr], overlaps: int) -> sp.ImmutableDenseMatrix:
    """The symmetric matrix of a quadratic form."""

    def entry(i: int, j: int) -> sp.Expr:
        n = tuple((a == i) + (a == j) for a in range(overlaps))
        return form.get(n, sp.S.Zero) / (1 if i == j else 2)

    return sp.ImmutableDenseMatrix(overlaps, overlaps, lambda i, j: entry(int(i), int(j)))


def _start_noise(problem: SphericalSgd) -> sp.Expr | None:
    """The noise at zero overlap along the direction of escape; None where that direction is not a coordinate's."""
    q = _matrix(problem.form(2), len(problem.overlaps))
    count = q.rows
    best = [i for i in range(count) if all(i == j or (q[i, i] - q[j, j]).is_nonnegative for j in range(count))]
    if not q.is_diagonal() or not best:
        return None
    origin = dict.fromkeys(problem.overlaps, sp.S.Zero)
    noises = {reduced(problem.noise(i, i).xreplace(origin)) for i in best}
    return noises.pop() if len(noises) == 1 else None


def escape_laws(
    problem: SphericalSgd,
    k: int,
    dimension: sp.Expr,
    initial: sp.Expr,
    parameters: tuple[Quantity, ...],
    random_start: bool,
    escaped: sp.Expr = sp.S.Half,
) -> EquationSystem | None:
    """Growth at the start, largest learning rate, steps until the overlap reaches `threshold`, `escaped` by default.

    dimension: D as an expression in d; initial: |overlap| at the start; `random_start` adds the noise that the
    first steps collect to the initial spread: 1/D -> (1 + gamma S0 / (2 growth)) / D for k = 2.
    """
    strength = leading_strength(problem.form(k), k, len(problem.overlaps))
    if strength is None:
        return None
    origin = dict.fromkeys(problem.overlaps, sp.S.Zero)
    v0 = reduced(problem.gradient_norm.xreplace(origin))
    rate = problem.learning_rate
    equations = [_define(G, "largest value of the leading form of -R on the unit sphere of overlaps", strength)]
    equations.append(_define(V0, "squared gradient norm at zero overlap", v0))
    used = rate
    if k == 2:
        s0 = _start_noise(problem) if random_start else None
        equations.append(
            _define(growth, "growth rate of the overlap at the start, per unit of tau", k * G - used * V0 / 2)
        )
        equations.append(
            _define(learning_rate_max, "learning rate above which the start is stable", 2 * k * G / V0, _POSITIVE)
        )
        noise = sp.S.One
        if s0 is not None:
            equations.append(_define(S0, "noise of the overlap at zero overlap, along the direction of escape", s0))
            noise = sp.sqrt(1 + used * S0 / (2 * growth))
        equations.append(_define(start_overlap, "overlap that the escape starts from", initial * noise))
        time = sp.log(threshold / start_overlap) / growth
    else:
        equations.append(_define(start_overlap, "overlap that the escape starts from", initial))
        time = (threshold - start_overlap) / G
        if k > 2:
            limit = 2 * k * G * start_overlap ** (k - 2) / V0
            equations.append(
                _define(
                    learning_rate_max, "learning rate above which the overlap at the start decays", limit, _POSITIVE
                )
            )
            time = (start_overlap ** (2 - k) - threshold ** (2 - k)) / (k * (k - 2) * G)
    equations.append(
        Define(
            Quantity(
                steps,
                "steps until the overlap reaches the threshold, drift at leading order",
                _POSITIVE,
                dimension,
            ),
            dimension * time / used,
            _DERIVED,
        )
    )
    reach = Quantity(threshold, "overlap that counts as escaped", sp.Interval(0, 1), default=escaped)
    read = set().union(*(e.reads() for e in equations))
    return EquationSystem(tuple(equations), tuple(p for p in (*parameters, reach) if p.symbol in read))


def gain_laws(
    tied: SphericalSgd,
    untied: SphericalSgd,
    k: int,
    length: int,
    ratio: sp.Expr,
    parameters: tuple[Quantity, ...],
) -> EquationSystem | None:
    """Steps of the untied student over steps of the tied one to the same overlap, drift alone, from equal overlaps.

    n = D tau / gamma and tau ~ 1/G at equal exponents: gain = L (gamma_tied / gamma_untied) G_tied / G_untied.
    k is the exponent of either; None where the other's differs or a leading form has no single best direction.
    """
    problems = (tied, untied)
    if any(p.form(j) for p in problems for j in range(1, k)) or not all(p.form(k) for p in problems):
        return None
    strengths = [leading_strength(p.form(k), k, len(p.overlaps)) for p in problems]
    if strengths[0] is None or strengths[1] is None:
        return None
    equations = (
        _define(G_tied, "leading strength of the tied student", strengths[0]),
        _define(G_untied, "leading strength of the untied student", strengths[1]),
        _define(rate_ratio, "learning rate of the tied over that of the untied student", ratio),
        _define(gain, "steps of the untied over steps of the tied student", length * rate_ratio * G_tied / G_untied),
    )
    read = set().union(*(e.reads() for e in equations))
    return EquationSystem(equations, tuple(p for p in parameters if p.symbol in read))


def _define(symbol: sp.Symbol, meaning: str, rhs: sp.Expr, domain: sp.Set = sp.S.Reals) -> Define:
    return Define(Quantity(symbol, meaning, domain), rhs, _DERIVED)
