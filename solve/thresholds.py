"""Where an integrand over standard normal variables has kinks, and the axes turned so that they lie across one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import sympy as sp

from derive.polynomial import affine, is_zero
from solve.gaussian_form import Standard

__all__ = ["Threshold", "thresholds", "turned_to_kink"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """The step 1[a g_1 + b > 0] changes at g_1 = `at`; upwards when `slope` = a is positive."""

    step: sp.Heaviside
    slope: sp.Expr
    at: sp.Expr


@lru_cache(maxsize=1024)
def thresholds(s: Standard) -> tuple[Threshold, ...]:
    """The steps that depend on g_1 alone and are affine in it."""
    found = []
    for step in sorted(s.integrand.atoms(sp.Heaviside), key=sp.default_sort_key):
        parts = affine(step.args[0], s.variables)
        if parts is not None and not any(parts[0][1:]):
            found.append(Threshold(step, parts[0][0], -parts[1] / parts[0][0]))
    return tuple(found)


@lru_cache(maxsize=1024)
def turned_to_kink(s: Standard) -> Standard:
    """The same expectation with g_1 along the normal of a kink 1[a . g + b > 0], by a Householder reflection."""
    g = s.variables
    steps = sorted(s.integrand.atoms(sp.Heaviside), key=sp.default_sort_key)
    found = ((step, affine(step.args[0], g)) for step in steps)
    kinks = {step: parts for step, parts in found if parts is not None}
    normal = next((a for a, _ in kinks.values()), None)
    if normal is None or all(is_zero(a) for a in normal[1:]):
        return s
    length = sp.sqrt(sp.Add(*(a**2 for a in normal)))
    # parallel kinks are written by g_1 alone at once: radicals would hide that their other coefficients vanish
    held, turned_steps = {}, {}
    for step, (a, b) in kinks.items():
        factor = _multiple(a, normal)
        if factor is not None:
            held[step] = sp.Dummy()
            turned_steps[held[step]] = sp.Heaviside(factor * length * g[0] + b)
    turned = s.integrand.xreplace(held).xreplace(_reflection(normal, length, g))
    return Standard(turned.xreplace(turned_steps), s.dim)


def _multiple(a: tuple[sp.Expr, ...], b: tuple[sp.Expr, ...]) -> sp.Expr | None:
    """c with a = c b, or None."""
    pivot = next(i for i, v in enumerate(b) if not is_zero(v))
    c = sp.cancel(a[pivot] / b[pivot])
    return c if all(is_zero(x - c * y) for x, y in zip(a, b, strict=True)) else None


def _reflection(normal: tuple[sp.Expr, ...], length: sp.Expr, g: tuple[sp.Symbol, ...]) -> dict[sp.Symbol, sp.Expr]:
    """g -> g - v (v . g) / (1 - a_1 / |a|), v = a / |a| - e_1: it exchanges a / |a| and e_1."""
    v = [a / length - int(i == 0) for i, a in enumerate(normal)]
    dot = sp.Add(*(v[i] * g[i] for i in range(len(g)))) / (1 - normal[0] / length)
    return {g[i]: g[i] - v[i] * dot for i in range(len(g)) if v[i] != 0}
