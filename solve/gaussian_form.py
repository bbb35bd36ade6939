"""A Gaussian expectation as one integral over independent standard normal variables, cut at its kinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import sympy as sp

from derive.expectation import Expectation, expectations
from derive.measures import Gaussian
from derive.polynomial import affine, is_zero
from solve.straightline import NotEnclosed, plain

__all__ = ["Standard", "Threshold", "merged", "standard", "symmetries", "thresholds", "turned_to_kink"]


def _normal(i: int) -> sp.Symbol:
    return sp.Symbol(f"g{i + 1}", real=True, standard_normal=True)


@dataclass(frozen=True, slots=True)
class Standard:
    """E f(g_1 .. g_dim), g_i independent N(0, 1)."""

    integrand: sp.Expr
    dim: int

    @property
    def variables(self) -> tuple[sp.Symbol, ...]:
        return tuple(_normal(i) for i in range(self.dim))


def standard(e: Expectation) -> Standard:
    """The expectation, nested ones included, over independent standard normal variables x = mean + A g.

    Raises `NotEnclosed` for other laws, and for an expectation inside a nonlinear function of another.
    """
    integrand, dim = _flat(e, 0)
    return Standard(integrand, dim)


def _flat(e: sp.Expr, first: int) -> tuple[sp.Expr, int]:
    """(e with its expectations written by the variables g_first+1 .., the number of variables used so far)."""
    if not e.has(Expectation):
        return e, first
    if isinstance(e, Expectation):
        return _flat_expectation(e, first)
    if isinstance(e, sp.Add):  # summands may share variables, factors may not
        parts = [_flat(a, first) for a in e.args]
        return sp.Add(*(p for p, _ in parts)), max(n for _, n in parts)
    if isinstance(e, sp.Mul) or (isinstance(e, sp.Pow) and e.exp.is_Integer and e.exp.is_positive):
        factors = []
        for a in e.args if isinstance(e, sp.Mul) else [e.base] * int(e.exp):
            part, first = _flat(a, first)
            factors.append(part)
        return sp.Mul(*factors), first
    raise NotEnclosed(f"an expectation inside {type(e).__name__}, inside another expectation")


def _flat_expectation(e: Expectation, first: int) -> tuple[sp.Expr, int]:
    if not isinstance(e.measure, Gaussian):
        raise NotEnclosed(f"an expectation under {type(e.measure).__name__}, not a Gaussian law")
    law = e.measure
    g = sp.ImmutableDenseMatrix([_normal(first + i) for i in range(law.dim)])
    x = sp.ImmutableDenseMatrix(list(law.mean)) + _cholesky(law.cov) * g
    inner, used = _flat(e.integrand, first + law.dim)
    return inner.xreplace(dict(zip(e.variables, x, strict=True))), used


def _cholesky(cov: sp.ImmutableDenseMatrix) -> sp.ImmutableDenseMatrix:
    """Lower triangular A with A A^T = cov; a pivot that is zero gives a column of zeros."""
    n = cov.rows
    a = sp.zeros(n, n)
    for j in range(n):
        pivot = sp.expand(cov[j, j] - sum(a[j, k] ** 2 for k in range(j)))
        if is_zero(pivot):
            continue
        a[j, j] = sp.sqrt(pivot)
        for i in range(j + 1, n):
            a[i, j] = sp.expand(cov[i, j] - sum(a[i, k] * a[j, k] for k in range(j))) / a[j, j]
    return sp.ImmutableDenseMatrix(a)


# ------------------------------------------------------------------------------------------- sums of expectations


def merged(terms: Sequence[tuple[sp.Expr, Standard]]) -> list[Standard]:
    """sum_k c_k E f_k with one integral for each number of variables; equal ones up to their order cancel."""
    sums: dict[int, list[sp.Expr]] = {}
    for c, s in terms:
        sums.setdefault(s.dim, []).append(c * _canonical(s))
    return [Standard(f, dim) for dim, parts in sorted(sums.items()) if not is_zero(f := sp.Add(*parts))]


def _canonical(s: Standard) -> sp.Expr:
    """The integrand with its variables in the order that sorts first, judged by its functions, then as a whole."""
    if s.dim == 1:
        return s.integrand
    images = (
        s.integrand.xreplace(dict(zip(s.variables, order, strict=True))) for order in permutations(s.variables)
    )
    return min(images, key=_order)


def _order(f: sp.Expr) -> tuple[str, str]:
    return str(sorted(map(str, f.atoms(sp.Function, sp.exp)))), str(f)


# ------------------------------------------------------------------------------------------- kinks


@dataclass(frozen=True, slots=True)
class Threshold:
    """The step 1[a g_1 + b > 0] changes at g_1 = `at`; upwards when `slope` = a is positive."""

    step: sp.Heaviside
    slope: sp.Expr
    at: sp.Expr


def thresholds(s: Standard) -> list[Threshold]:
    """The steps that depend on g_1 alone and are affine in it."""
    found = []
    for step in sorted(s.integrand.atoms(sp.Heaviside), key=sp.default_sort_key):
        parts = affine(step.args[0], s.variables)
        if parts is not None and not any(parts[0][1:]):
            found.append(Threshold(step, parts[0][0], -parts[1] / parts[0][0]))
    return found


def turned_to_kink(s: Standard) -> Standard:
    """The same expectation with g_1 along the normal of a kink 1[a . g + b > 0], by a Householder reflection."""
    g = s.variables
    kinks = {step: affine(step.args[0], g) for step in sorted(s.integrand.atoms(sp.Heaviside), key=str)}
    normal = next((parts[0] for parts in kinks.values() if parts is not None), None)
    if normal is None or all(is_zero(a) for a in normal[1:]):
        return s
    length = sp.sqrt(sp.Add(*(a**2 for a in normal)))
    # parallel kinks are written by g_1 alone at once: radicals would hide that their other coefficients vanish
    held: dict[sp.Expr, sp.Dummy] = {}
    for step, parts in kinks.items():
        factor = _multiple(parts[0], normal) if parts is not None else None
        if factor is not None:
            held[step] = sp.Dummy()
            kinks[step] = ((factor * length,), parts[1])
    turned = s.integrand.xreplace(held).xreplace(_reflection(normal, length, g))
    back = {mark: sp.Heaviside(kinks[step][0][0] * g[0] + kinks[step][1]) for step, mark in held.items()}
    return Standard(turned.xreplace(back), s.dim)


def _multiple(a: tuple[sp.Expr, ...], b: tuple[sp.Expr, ...]) -> sp.Expr | None:
    """c with a = c b, or None."""
    pivot = next(i for i, v in enumerate(b) if not is_zero(v))
    c = sp.cancel(a[pivot] / b[pivot])
    return c if all(is_zero(x - c * y) for x, y in zip(a, b, strict=True)) else None


def _reflection(
    normal: tuple[sp.Expr, ...], length: sp.Expr, g: tuple[sp.Symbol, ...]
) -> dict[sp.Symbol, sp.Expr]:
    """g -> g - v (v . g) / (1 - a_1 / |a|), v = a / |a| - e_1: it exchanges a / |a| and e_1."""
    v = [a / length - int(i == 0) for i, a in enumerate(normal)]
    dot = sp.Add(*(v[i] * g[i] for i in range(len(g)))) / (1 - normal[0] / length)
    return {g[i]: g[i] - v[i] * dot for i in range(len(g)) if v[i] != 0}


# ------------------------------------------------------------------------------------------- symmetries


def symmetries(s: Standard) -> list[tuple[tuple[int, int], ...]]:
    """Exchanges of two variables and reflections of one, two or all that keep the integrand.

    Each is ((place, sign), ..): x_i -> sign x_place.
    """
    n, g = s.dim, s.variables
    plain = [(i, 1) for i in range(n)]
    candidates = [_with(plain, {i: (j, 1), j: (i, 1)}) for i, j in combinations(range(n), 2)]
    for flipped in {*combinations(range(n), 1), *combinations(range(n), 2), tuple(range(n))}:
        candidates.append(_with(plain, {i: (i, -1) for i in flipped}))
    return [c for c in candidates if _keeps(s.integrand, {g[i]: sign * g[j] for i, (j, sign) in enumerate(c)})]


def _with(places: list[tuple[int, int]], changed: dict[int, tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(changed.get(i, p) for i, p in enumerate(places))


def _keeps(f: sp.Expr, image: dict[sp.Symbol, sp.Expr]) -> bool:
    moved = f.xreplace(image)
    return bool(moved == f) or is_zero(moved - f)
