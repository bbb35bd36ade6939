"""Rules for exponentials: tilting a Gaussian law, reflections under a tilted law, oscillations."""

from __future__ import annotations

import sympy as sp

from derive.expectation import Expectation
from derive.gaussian import inverse, wick
from derive.measures import Gaussian
from derive.polynomial import affine, algebra, is_zero, quadratic
from derive.rules.reading import law_of, only_term

__all__ = ["cancelled", "oscillation", "reflection", "split_imaginary", "tilt", "tilting"]


def tilting(e: Expectation) -> sp.Expr | None:
    """E[exp(q(x)) f(x)] = Z E'[f(x)] for a quadratic q, under the tilted Gaussian law E'."""
    term, law, x = only_term(e), law_of(e), tuple(e.variables)
    if term is None:
        return None
    factor = next((a for a in term.atoms if isinstance(a, sp.exp) and quadratic(a.exp, x) is not None), None)
    tilted = tilt(law, factor.exp, x) if factor is not None else None
    if tilted is None:
        return None
    weight, new_law = tilted
    return weight * Expectation(sp.Mul(*(b for b in term.atoms if b != factor)) * term.polynomial, x, new_law)


def reflection(e: Expectation) -> sp.Expr | None:
    """E[T^k P(x)], T = tanh(l1 l2): tilt by exp(-2 l1 l2), or its inverse, where that makes T odd.

    exp(2 a) (1 - tanh a) = 1 + tanh a. Where l1, l2 are uncorrelated and one of them centred under the tilted
    law, the other keeps its law as that one changes sign, so that odd powers of T drop out of
    E[T^k P] = E[P] - Z E'[(1 + T) (1 + T + .. + T^(k-1)) P].
    """
    term, law, x = only_term(e), law_of(e), tuple(e.variables)
    if term is None:
        return None
    if law.dim != 2 or len(term.atoms) != 1:
        return None
    base, k = term.atoms[0].as_base_exp()
    forms = _linear_factors(base.args[0], x) if isinstance(base, sp.tanh) and k.is_Integer else None
    if forms is None:
        return None
    for sign in (-1, 1):
        tilted = tilt(law, 2 * sign * base.args[0], x)
        if tilted is None:
            continue
        weight, new_law = tilted
        rows, offset = sp.ImmutableDenseMatrix([f[0] for f in forms]), sp.Matrix([f[1] for f in forms])
        mean = (rows * sp.Matrix(list(new_law.mean)) + offset).applyfunc(cancelled)
        cov = (rows * new_law.cov * rows.T).applyfunc(cancelled)
        if cov[0, 1] != 0 or 0 not in mean:
            continue
        y = [sp.Dummy(f"y{i}", real=True) for i in range(2)]
        back = dict(zip(x, inverse(rows) * (sp.Matrix(y) - offset), strict=True))
        t = sp.tanh(y[0] * y[1])
        rest = sp.Add(*((-sign) ** (int(k) - 1 - j) * t**j for j in range(int(k))))
        polynomial = term.polynomial
        limit = (-sign) ** int(k) * Expectation(polynomial, x, law)
        moved = Expectation((1 - sign * t) * rest * polynomial.xreplace(back), y, Gaussian(list(mean), cov))
        return limit + sign * weight * moved
    return None


def oscillation(e: Expectation) -> sp.Expr | None:
    """E[P(x) exp(i (a.x + b))] = exp(i (a.mean + b) - a.C a / 2) E P(x + i C a), one part of it."""
    term, law, x = only_term(e), law_of(e), tuple(e.variables)
    if term is None:
        return None
    waves = [(b, n) for a in term.atoms for b, n in [a.as_base_exp()]]
    if not waves or not all(isinstance(b, sp.cos | sp.sin) and n.is_Integer and affine(b.args[0], x) for b, n in waves):
        return None
    if sum(int(n) for _, n in waves) > 1:
        return Expectation(_product_to_sum([b for b, n in waves for _ in range(int(n))]) * term.polynomial, x, law)
    wave = waves[0][0]
    parts = affine(wave.args[0], x)
    if parts is None:
        return None
    a, mean = sp.ImmutableDenseMatrix(parts[0]), sp.ImmutableDenseMatrix(list(law.mean))
    i = sp.Dummy("i", real=True)
    moved = Gaussian(list(mean + i * law.cov * a), law.cov)
    real, imaginary = split_imaginary(wick(term.polynomial, x, moved), i)
    phase = (a.T * mean)[0] + parts[1]
    damping = sp.exp(-(a.T * law.cov * a)[0] / 2)
    if isinstance(wave, sp.cos):
        return damping * (real * sp.cos(phase) - imaginary * sp.sin(phase))
    return damping * (real * sp.sin(phase) + imaginary * sp.cos(phase))


def tilt(law: Gaussian, exponent: sp.Expr, x: tuple[sp.Symbol, ...]) -> tuple[sp.Expr, Gaussian] | None:
    """(Z, law') with E[exp(q) f] = Z E'[f] for q = x.Q x + a.x + c; None where that is not shown to exist.

    With x centred: C' = (1 - 2 C Q)^-1 C, mean' = C' a, Z = det(1 - 2 C Q)^(-1/2) exp(c + a.C' a / 2).
    """
    parts = quadratic(exponent, x)
    if parts is None or not _tilt_exists(law.cov, parts[0]):
        return None
    q, a, c = parts[0], sp.ImmutableDenseMatrix(parts[1]), parts[2]
    mean = sp.ImmutableDenseMatrix(list(law.mean))
    c = c + (a.T * mean)[0] + (mean.T * q * mean)[0]
    a = a + 2 * q * mean
    shrink = sp.eye(law.dim) - 2 * law.cov * q
    cov = law.cov if q.is_zero_matrix else (inverse(shrink) * law.cov).applyfunc(sp.cancel)
    weight = sp.exp(sp.expand(c + (a.T * cov * a)[0] / 2)) / sp.sqrt(shrink.det())
    return weight, Gaussian([sp.expand(v) for v in mean + cov * a], (cov + cov.T) / 2)


def _linear_factors(
    q: sp.Expr, x: tuple[sp.Symbol, ...]
) -> tuple[tuple[tuple[sp.Expr, ...], sp.Expr], tuple[tuple[sp.Expr, ...], sp.Expr]] | None:
    """Two independent affine forms whose product is q."""
    if quadratic(q, x) is None:
        return None
    constant, factors = sp.factor_list(q, *x)
    found = [affine(f, x) for f, n in factors for _ in range(n)]
    if len(found) != 2 or found[0] is None or found[1] is None:
        return None
    first = (tuple(constant * a for a in found[0][0]), constant * found[0][1])
    if is_zero(sp.Matrix([first[0], found[1][0]]).det()):
        return None
    return first, found[1]


def cancelled(e: sp.Expr) -> sp.Expr:
    """e as a fraction in lowest terms, 0 where it is shown to vanish."""
    return sp.S.Zero if is_zero(e) else sp.cancel(e)


def _tilt_exists(cov: sp.ImmutableDenseMatrix, q: sp.ImmutableDenseMatrix) -> bool:
    if q.is_zero_matrix:
        return True
    if q.is_negative_semidefinite:
        return True
    if cov.free_symbols or q.free_symbols or cov.det() == 0:
        return False
    return bool((cov.inv() - 2 * q).is_positive_definite)


def _product_to_sum(waves: list[sp.Expr]) -> sp.Expr:
    """cos a cos b = [cos(a-b) + cos(a+b)]/2 and its companions, for the first two waves."""
    one, two, rest = waves[0], waves[1], waves[2:]
    a, b = one.args[0], two.args[0]
    if isinstance(one, sp.sin) and isinstance(two, sp.cos):
        one, two, a, b = two, one, b, a
    if isinstance(two, sp.cos):
        pair = (sp.cos(a - b) + sp.cos(a + b)) / 2
    elif isinstance(one, sp.cos):
        pair = (sp.sin(a + b) - sp.sin(a - b)) / 2
    else:
        pair = (sp.cos(a - b) - sp.cos(a + b)) / 2
    return pair * sp.Mul(*rest)


def split_imaginary(polynomial: sp.Expr, i: sp.Symbol) -> tuple[sp.Expr, sp.Expr]:
    """Real and imaginary part of a polynomial in the imaginary unit i."""
    ring = algebra([polynomial], [i])
    parts = [sp.S.Zero, sp.S.Zero]
    for (n,), f in ring.collect(ring.element(polynomial), 1).items():
        parts[n % 2] += (-1) ** (n // 2) * ring.expr(f)
    return parts[0], parts[1]
