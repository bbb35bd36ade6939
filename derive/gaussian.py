"""Gaussian vectors: Wick's formula, conditioning, and an integrand as a sum of simple terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy as sp

from derive.functions import He, without_kinks_hidden
from derive.measures import Gaussian
from derive.polynomial import affine, algebra, generators, is_zero, quadratic

__all__ = [
    "Term",
    "conditional",
    "dual_hermite",
    "hermite_basis",
    "inverse",
    "linear_forms",
    "normal_density",
    "terms",
    "wick",
]


def normal_density(x: sp.Expr, variance: sp.Expr = sp.S.One) -> sp.Expr:
    """phi(x) = exp(-x^2 / (2 v)) / sqrt(2 pi v)."""
    return sp.exp(-(x**2) / (2 * variance)) / sp.sqrt(2 * sp.pi * variance)


def wick(polynomial: sp.Expr, variables: Sequence[sp.Symbol], law: Gaussian) -> sp.Expr:
    """E P(x) = [exp(sum_ij C_ij d_i d_j / 2) P](mean), x ~ N(mean, C)  [Isserlis' theorem]."""
    n = len(variables)
    rates = [law.cov[i, j] / (2 if i == j else 1) for i in range(n) for j in range(i, n)]
    ring = algebra([polynomial, *law.mean, *rates], variables)
    gens = ring.ring.gens
    pairs = [(i, j) for i in range(n) for j in range(i, n)]
    weights = [ring.element(r) for r in rates]
    total = term = ring.element(polynomial)
    order = 0
    while term:
        order += 1
        image = ring.ring.zero
        for (i, j), w in zip(pairs, weights, strict=True):
            if w:
                image = image + w * term.diff(gens[i]).diff(gens[j])
        term = ring.reduce(image).quo_ground(order)
        total = total + term
    values = [(gens[i], ring.element(law.mean[i])) for i in range(n)]
    return ring.expr(ring.reduce(total.compose(values)))


def hermite_basis(polynomial: sp.Expr, x: sp.Symbol) -> dict[int, sp.Expr]:
    """{n: c_n} with P(x) = sum_n c_n He_n(x), by x^n = sum_k n! / (2^k k! (n-2k)!) He_{n-2k}(x)."""
    ring = algebra([polynomial], [x])
    result: dict[int, sp.Expr] = {}
    for (n,), f in ring.collect(ring.element(polynomial), 1).items():
        c = ring.expr(f)
        for k in range(n // 2 + 1):
            weight = sp.Rational(sp.factorial(n), 2**k * sp.factorial(k) * sp.factorial(n - 2 * k))
            result[n - 2 * k] = result.get(n - 2 * k, sp.S.Zero) + weight * c
    return {n: c for n, c in sorted(result.items()) if not is_zero(c)}


def inverse(matrix: sp.MatrixBase) -> sp.ImmutableDenseMatrix:
    """The inverse of a small regular matrix by its cofactors, without simplification."""
    return sp.ImmutableDenseMatrix(matrix.adjugate(method="berkowitz") / matrix.det(method="berkowitz"))


def dual_hermite(alpha: Sequence[int], x: Sequence[sp.Symbol], cov: sp.MatrixBase) -> sp.Expr:
    """H with E[d^alpha f(x)] = E[f(x) H(x)], x ~ N(0, cov): H_{alpha + e_i} = (cov^-1 x)_i H_alpha - d_i H_alpha."""
    if cov == sp.eye(len(x)):
        return sp.Mul(*(He(n, v) for n, v in zip(alpha, x, strict=True)))
    steps = [i for i, n in enumerate(alpha) for _ in range(n)]
    if not steps:
        return sp.S.One
    scaled = inverse(cov) * sp.Matrix(list(x))
    h: sp.Expr = sp.S.One
    for i in steps:
        h = sp.expand(scaled[i] * h - h.diff(x[i]))
    return h


def conditional(law: Gaussian, forms: sp.MatrixBase, values: Sequence[sp.Expr]) -> Gaussian:
    """The law of x given A x = y, A (r, n) of rank r with A C A^T regular.

    N(mean + B (y - A mean), C - B A C),  B = C A^T (A C A^T)^-1.
    """
    cov, mean = law.cov, sp.ImmutableDenseMatrix(list(law.mean))
    gain = cov * forms.T * inverse(forms * cov * forms.T)
    shifted = mean + gain * (sp.ImmutableDenseMatrix(list(values)) - forms * mean)
    left = (cov - gain * forms * cov).applyfunc(sp.cancel)
    return Gaussian(list(shifted), (left + left.T) / 2)


@dataclass(frozen=True)
class Term:
    """A summand of an integrand: `atoms` (not polynomial in the variables) times `polynomial`."""

    atoms: tuple[sp.Expr, ...]
    polynomial: sp.Expr

    @property
    def expr(self) -> sp.Expr:
        return sp.Mul(*self.atoms) * self.polynomial


@lru_cache(maxsize=16384)
def terms(integrand: sp.Expr, variables: tuple[sp.Symbol, ...]) -> tuple[Term, ...]:
    """The integrand multiplied out into terms; kinks and jumps are idempotent steps 1[y + b > 0]."""
    f = without_kinks_hidden(integrand)
    f = f.replace(lambda e: isinstance(e, sp.Heaviside), lambda e: _normal_step(e.args[0], variables))
    atoms = sorted((g for g in generators(f) if g not in variables and g.has_free(*variables)), key=sp.default_sort_key)
    ring = algebra([f], [*atoms])
    merged: dict[tuple[int, ...], sp.Expr] = {}
    for powers, g in ring.collect(ring.element(f), len(atoms)).items():
        key = tuple(min(n, 1) if isinstance(a, sp.Heaviside) else n for a, n in zip(atoms, powers, strict=True))
        merged[key] = merged.get(key, ring.ring.zero) + g
    return tuple(
        Term(_factors([a**n for a, n in zip(atoms, key, strict=True) if n]), ring.expr(g))
        for key, g in merged.items()
        if g
    )


def _factors(powers: list[sp.Expr]) -> tuple[sp.Expr, ...]:
    # the product merges exponentials; a number that splits off stays with them as a factor
    return tuple(sp.Mul.make_args(sp.Mul(*powers))) if powers else ()


def _normal_step(x: sp.Expr, variables: tuple[sp.Symbol, ...]) -> sp.Expr:
    """1[x > 0] by a step whose argument has leading coefficient 1 where the coefficient is a number."""
    parts = affine(x, variables)
    if parts is None:
        return 1 - sp.Heaviside(-x) if x.could_extract_minus_sign() else sp.Heaviside(x)
    lead = next((a for a in parts[0] if not is_zero(a)), None)
    if lead is None:
        return sp.Heaviside(parts[1])
    if lead.is_negative:
        return 1 - _normal_step(-x, variables)
    scale = lead if lead.is_positive else sp.S.One
    return sp.Heaviside(sp.Add(*(a / scale * v for a, v in zip(parts[0], variables, strict=True))) + parts[1] / scale)


def linear_forms(atom: sp.Expr, variables: tuple[sp.Symbol, ...]) -> list[tuple[sp.Expr, ...]]:
    """Linear forms a . x through which the atom depends on x: the span of the gradients of its arguments."""
    unit = {v: tuple(sp.S(int(v == w)) for w in variables) for v in variables}
    if isinstance(atom, sp.Pow) and not atom.exp.has_free(*variables):
        return linear_forms(atom.base, variables)
    arguments = atom.args if isinstance(atom, sp.Function | sp.exp) else (atom,)
    forms: list[tuple[sp.Expr, ...]] = []
    for argument in arguments:
        parts = quadratic(argument, variables)
        if parts is None:
            forms += [unit[v] for v in variables if argument.has_free(v)]
        else:
            rows = [tuple(parts[0].row(i)) for i in range(len(variables))]
            forms += [f for f in (*rows, parts[1]) if not all(is_zero(a) for a in f)]
    return forms
