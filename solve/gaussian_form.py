"""Sums of Gaussian expectations as few integrals over independent standard normal variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations

import sympy as sp

from derive.expectation import Expectation
from derive.gaussian import terms
from derive.measures import Gaussian
from derive.polynomial import is_zero
from solve.straightline import NotEnclosed

__all__ = ["Standard", "cancels", "decomposed", "split_constant", "standard", "symmetries"]

_MOST_ORDERED = 5  # variables whose orders are all tried


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


@lru_cache(maxsize=1024)
def decomposed(value: sp.Expr) -> tuple[tuple[Standard, ...], tuple[sp.Expr, ...]]:
    """`value` = sum E f_k + sum rest_j: one integral for each number of variables, and what is not linear in E.

    Integrands are multiplied out; what is equal up to the order of its variables is added, and may cancel.
    """
    sums: dict[int, list[sp.Expr]] = {}
    rest = []
    for summand in sp.Add.make_args(value):
        fixed, moving = split_constant(summand)
        if not isinstance(moving, Expectation):
            rest.append(summand)
            continue
        for s in _terms(standard(moving)):
            (sums.setdefault(s.dim, []) if s.dim else rest).append(fixed * s.integrand)
    integrals = (Standard(sp.Add(*parts), dim) for dim, parts in sorted(sums.items()))
    return tuple(s for s in map(_symmetrised, integrals) if not is_zero(s.integrand)), tuple(rest)


def _terms(s: Standard) -> Iterator[Standard]:
    """The summands of the integrand, each over the variables that it has, these in canonical order."""
    if s.dim == 1:
        yield s
        return
    for term in terms(s.integrand, s.variables):
        used = [v for v in s.variables if term.expr.has_free(v)]
        image = {v: _normal(i) for i, v in enumerate(used)}
        yield _canonical(Standard(term.expr.xreplace(image), len(used)))


def _symmetrised(s: Standard) -> Standard:
    """The mean of the integrand over the exchanges of variables that keep its functions: fewer cells to do."""
    if s.dim == 1 or s.dim > _MOST_ORDERED:
        return s
    functions = s.integrand.atoms(sp.Function, sp.exp)
    images = [dict(zip(s.variables, order, strict=True)) for order in permutations(s.variables)]
    group = [m for m in images if {f.xreplace(m) for f in functions} == functions]
    mean = sp.Add(*(s.integrand.xreplace(m) for m in group)) / len(group)
    return Standard(sp.Add(*(t.expr for t in terms(mean, s.variables))), s.dim)


def split_constant(e: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """e = fixed * moving with the expectations in `moving`."""
    fixed = [a for a in sp.Mul.make_args(e) if not a.has(Expectation)]
    moving = [a for a in sp.Mul.make_args(e) if a.has(Expectation)]
    return sp.Mul(*fixed), sp.Mul(*moving)


def cancels(value: sp.Expr) -> bool:
    """True when `value` is zero because its expectations cancel, and what is left does."""
    try:
        integrals, rest = decomposed(value)
    except NotEnclosed:
        return False
    return not integrals and is_zero(sp.Add(*rest))


def _canonical(s: Standard) -> Standard:
    """The variables in the order whose integrand sorts first, judged by its functions, then as a whole."""
    if s.dim <= 1 or s.dim > _MOST_ORDERED:
        return s
    functions = s.integrand.atoms(sp.Function, sp.exp)
    images = [dict(zip(s.variables, order, strict=True)) for order in permutations(s.variables)]
    names = [sorted(str(f.xreplace(m)) for f in functions) for m in images]
    first = min(names)
    chosen = (s.integrand.xreplace(m) for m, name in zip(images, names, strict=True) if name == first)
    return Standard(min(chosen, key=str), s.dim)


# ------------------------------------------------------------------------------------------- symmetries


@lru_cache(maxsize=1024)
def symmetries(s: Standard) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Exchanges of two variables and reflections of one, two or all that keep the integrand.

    Each is ((place, sign), ..): x_i -> sign x_place.
    """
    n, g = s.dim, s.variables
    same = [(i, 1) for i in range(n)]
    candidates = [_with(same, {i: (j, 1), j: (i, 1)}) for i, j in combinations(range(n), 2)]
    for flipped in _reflected(n):
        candidates.append(_with(same, {i: (i, -1) for i in flipped}))
    return tuple(
        c
        for c in candidates
        if s.integrand.xreplace({g[i]: sign * g[j] for i, (j, sign) in enumerate(c)}) == s.integrand
    )


def _with(places: list[tuple[int, int]], changed: dict[int, tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(changed.get(i, p) for i, p in enumerate(places))


def _reflected(n: int) -> list[tuple[int, ...]]:
    """Sets of variables to reflect: one, two, or all."""
    return [*dict.fromkeys((*combinations(range(n), 1), *combinations(range(n), 2), tuple(range(n))))]
