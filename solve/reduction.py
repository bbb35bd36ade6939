"""Equal expectations in fewer dimensions: point masses, sums, independent factors, fewer linear forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import sympy as sp

from derive.expectation import Expectation
from derive.measures import Gaussian, Pushforward
from derive.spectra import Spectrum
from derive.table import Unsupported
from solve.kinks import Affine, affine, normal

__all__ = ["reduce_expectations"]

Direction: TypeAlias = tuple[sp.Expr, ...]
_MAX_TERMS = 400
_MAX_OPERATIONS = 400  # of an integrand whose affine forms are looked for


def reduce_expectations(expr: sp.Expr) -> sp.Expr:
    """An equal expression whose Gaussian expectations hold no DiracDelta and have the dimension they need.

    Raises `NotImplementedError` for other laws, and for a DiracDelta of anything but an affine form.
    """
    if not expr.has(Expectation):
        return expr
    args = [reduce_expectations(a) for a in expr.args]
    if any(a is not b for a, b in zip(args, expr.args, strict=True)):
        expr = expr.func(*args)
    return _reduced(expr) if isinstance(expr, Expectation) else expr


@functools.lru_cache(maxsize=4096)
def _reduced(e: Expectation) -> sp.Expr:
    if isinstance(e.measure, Pushforward | Spectrum):
        return e
    if not isinstance(e.measure, Gaussian):
        raise Unsupported(f"No quadrature for {type(e.measure).__name__}; Gaussian laws and their images have one.")
    for step in _STEPS:
        found = step(e)
        if found is not None:
            return reduce_expectations(found)
    return e


def _point_mass(e: Expectation) -> sp.Expr | None:
    """E[f + g delta(a.x + c)] = E f + p(0) E[g | a.x + c = 0], p the density of a.x + c."""
    variables = tuple(e.variables)
    masses = [d for d in e.integrand.atoms(sp.DiracDelta) if d.has_free(*variables)]
    if not masses:
        return None
    mass = min(masses, key=sp.default_sort_key)
    form = affine(mass.args[0], variables)
    if form is None or mass.args[1:] not in ((), (sp.S.Zero,)):
        raise Unsupported(f"{mass}: only the delta function of an affine form can be averaged.")
    marker = sp.Dummy("mass")
    marked = e.integrand.xreplace({mass: marker})
    slope = marked.diff(marker)
    if slope.has_free(marker):
        raise Unsupported(f"{e.integrand} is not linear in {mass}; it has no average.")
    rest = Expectation(marked.xreplace({marker: sp.S.Zero}), variables, e.measure)
    return rest + _conditional(slope, variables, e.measure, form)


def _conditional(f: sp.Expr, variables: Sequence[sp.Symbol], law: Gaussian, form: Affine) -> sp.Expr:
    """p(0) E[f | a.x + c = 0], written in the variables other than one that the form determines."""
    a, mean = sp.Matrix(form.coefficients), sp.Matrix(law.mean)
    centre = a.dot(mean) + form.constant
    covariance = law.cov * a
    variance = a.dot(covariance)
    density = sp.exp(-(centre**2) / (2 * variance)) / sp.sqrt(2 * sp.pi * variance)
    j = next((i for i, c in enumerate(a) if c.is_zero is False), next(i for i, c in enumerate(a) if c != 0))
    keep = [i for i in range(law.dim) if i != j]
    determined = -(form.constant + sum(a[i] * variables[i] for i in keep)) / a[j]
    given = Gaussian(
        [mean[i] - covariance[i] * centre / variance for i in keep],
        sp.Matrix(
            len(keep),
            len(keep),
            lambda p, q: law.cov[keep[p], keep[q]] - covariance[keep[p]] * covariance[keep[q]] / variance,
        ),
    )
    rest = [variables[i] for i in keep]
    return density * Expectation(f.xreplace({variables[j]: determined}), rest, given)


def _sum(e: Expectation) -> sp.Expr | None:
    """Terms apart that need fewer dimensions, or whose coefficients alone depend on parameters."""
    groups: dict[tuple[frozenset[Direction] | None, sp.Expr], list[sp.Expr]] = {}
    constant_law = not e.measure.free_symbols
    for term in sp.Add.make_args(e.integrand):
        coefficient, rest = term.as_independent(*e.variables, as_Add=False)
        if not constant_law or coefficient.is_number or not rest.free_symbols <= set(e.variables):
            coefficient, rest = sp.S.One, term
        directions = _directions(term, e.variables)
        few = directions if len(directions) < len(e.variables) else None
        groups.setdefault((few, coefficient), []).append(rest)
    if len(groups) == 1:
        return None
    return sp.Add(*(c * Expectation(sp.Add(*terms), e.variables, e.measure) for (_, c), terms in groups.items()))


def _constant_factor(e: Expectation) -> sp.Expr | None:
    coefficient, rest = e.integrand.as_independent(*e.variables, as_Add=False)
    return None if coefficient == 1 else coefficient * Expectation(rest, e.variables, e.measure)


def _independent_factors(e: Expectation) -> sp.Expr | None:
    """E[f(x) g(y)] = E f(x) E g(y) where x and y are uncorrelated."""
    groups = _independent_groups(e.integrand, e)
    if len(groups) < 2:
        return None
    return sp.Mul(*(Expectation(sp.Mul(*g), e.variables, e.measure) for g in groups))


def _independent_groups(product: sp.Expr, e: Expectation) -> list[list[sp.Expr]]:
    """The factors of a product, together where their variables are correlated."""
    groups: list[tuple[set[int], list[sp.Expr]]] = []
    for factor in sp.Mul.make_args(product):
        reads = {i for i, v in enumerate(e.variables) if factor.has_free(v)}
        members, rest = [factor], []
        for other, theirs in groups:
            if any(i == j or e.measure.cov[i, j] != 0 for i in reads for j in other):
                reads, members = reads | other, theirs + members
            else:
                rest.append((other, theirs))
        groups = [*rest, (reads, members)]
    return [members for _, members in groups]


def _expanded(e: Expectation) -> sp.Expr | None:
    """Products and powers of sums multiplied out, in three dimensions or more, if all terms need fewer."""
    if len(e.variables) < 3 or _terms(e.integrand) > _MAX_TERMS or e.integrand.count_ops() > _MAX_OPERATIONS:
        return None
    expanded = sp.expand_mul(sp.expand_multinomial(e.integrand, deep=False), deep=False)
    if expanded == e.integrand:
        return None
    terms = sp.Add.make_args(expanded)
    needed = max(
        len(_directions(sp.Mul(*group), e.variables)) for term in terms for group in _independent_groups(term, e)
    )
    if len(terms) < 2 or needed >= len(e.variables):
        return None
    return Expectation(expanded, e.variables, e.measure)


def _terms(expr: sp.Expr) -> float:
    """How many terms the product `expr` has when multiplied out."""
    count = 1.0
    for factor in sp.Mul.make_args(expr):
        base, power = factor.as_base_exp()
        size = len(sp.Add.make_args(base))
        whole = power.is_Integer and power.is_positive
        count *= math.comb(int(power) + size - 1, size - 1) if whole else 1
    return count


def _directions(expr: sp.Expr, variables: Sequence[sp.Symbol]) -> frozenset[Direction]:
    """The directions of the affine forms that `expr` is a function of."""
    names: dict[Direction, sp.Symbol] = {}
    _in_forms(expr, tuple(variables), names)
    return frozenset(names)


def _fewer_forms(e: Expectation) -> sp.Expr | None:
    """E f(a_1.x, .., a_k.x) over R^n with k < n, as an expectation over R^k."""
    variables = tuple(e.variables)
    if e.integrand.count_ops() > _MAX_OPERATIONS:
        return None
    names: dict[Direction, sp.Symbol] = {}
    integrand = _in_forms(e.integrand, variables, names)
    if len(names) >= len(variables):
        return None
    rows = sp.Matrix(list(names))
    law = Gaussian(rows * sp.Matrix(e.measure.mean), rows * e.measure.cov * rows.T)
    return Expectation(integrand, list(names.values()), law)


def _in_forms(
    expr: sp.Expr,
    variables: tuple[sp.Symbol, ...],
    names: dict[Direction, sp.Symbol],
    bound: frozenset[sp.Symbol] = frozenset(),
) -> sp.Expr:
    """`expr` with its affine parts written in new symbols, one for each direction free of `bound`."""
    if not expr.has_free(*variables):
        return expr
    form = affine(expr, variables)
    if form is not None and not any(c.has_free(*bound) for c in form.coefficients):
        direction = normal(Affine(form.coefficients, sp.S.Zero)).coefficients
        i = next(i for i, c in enumerate(direction) if c != 0)
        symbol = names.setdefault(direction, sp.Dummy(f"form{len(names)}", real=True))
        return form.coefficients[i] / direction[i] * symbol + form.constant
    if isinstance(expr, Expectation | sp.Lambda):
        bound |= frozenset(expr.variables)
    if isinstance(expr, Pushforward):
        bound |= {*expr.inputs, *(s for s, _ in expr.definitions)}
    args = list(expr.args)
    if isinstance(expr, sp.Add):
        flat = [t for t in args if affine(t, variables) is not None]
        args = [sp.Add(*flat), *(t for t in args if t not in flat)] if len(flat) < len(args) else args
    return expr.func(*(_in_forms(a, variables, names, bound) for a in args))


_STEPS: tuple[Callable[[Expectation], sp.Expr | None], ...] = (
    _point_mass,
    _constant_factor,
    _sum,
    _independent_factors,
    _expanded,
    _fewer_forms,
)
