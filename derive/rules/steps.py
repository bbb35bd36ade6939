"""Rules for jumps: point masses, half lines, quadrants, and distribution functions as hidden steps."""

from __future__ import annotations

import sympy as sp

from derive.expectation import Expectation
from derive.functions import He, Phi
from derive.gaussian import conditional, hermite_basis, normal_density
from derive.measures import Gaussian
from derive.polynomial import affine, algebra, is_zero
from derive.rules.reading import law_of, only_term, section

__all__ = ["half_line", "point_mass", "probit", "quadrant"]


def point_mass(e: Expectation) -> sp.Expr | None:
    """E[delta(a.x + b) f(x)] = p(0) E[f | a.x + b = 0], p the density of a.x + b.

    A derivative of delta is the derivative of the result in b.
    """
    term = only_term(e)
    if term is None:
        return None
    mass = next((a for a in term.atoms if isinstance(a, sp.DiracDelta)), None)
    if mass is None:
        return None
    order = int(mass.args[1]) if len(mass.args) > 1 else 0
    shift = sp.Dummy("shift", real=True)
    rest = sp.Mul(*(a for a in term.atoms if a != mass)) * term.polynomial
    found = _at_zero(mass.args[0] + (shift if order else 0), rest, e)
    return found if found is None or not order else found.diff(shift, order).subs(shift, 0)


def _at_zero(form: sp.Expr, f: sp.Expr, e: Expectation) -> sp.Expr | None:
    """E[delta(form) f] by the law given that the affine form vanishes."""
    law, x = law_of(e), tuple(e.variables)
    parts = affine(form, x)
    if parts is None or all(is_zero(a) for a in parts[0]):
        return None
    row = sp.ImmutableDenseMatrix([parts[0]])
    centre = (row * sp.ImmutableDenseMatrix(list(law.mean)))[0] + parts[1]
    variance = (row * law.cov * row.T)[0]
    if is_zero(variance):
        return None
    given = conditional(law, row, [-parts[1]])
    pivot = next(i for i, a in enumerate(parts[0]) if not is_zero(a))
    rest = [i for i in range(law.dim) if i != pivot]
    solved = -(parts[1] + sp.Add(*(parts[0][i] * x[i] for i in rest))) / parts[0][pivot]
    there = f.xreplace({x[pivot]: solved})
    inner = Expectation(there, [x[i] for i in rest], given.marginal(rest)) if rest else there
    return normal_density(centre, variance) * inner


def half_line(e: Expectation) -> sp.Expr | None:
    """E[He_n(z) 1[z > t]] = He_{n-1}(t) phi(t) for n >= 1, Phi(-t) for n = 0."""
    term, law = only_term(e), law_of(e)
    if term is None:
        return None
    if law.dim != 1 or len(term.atoms) != 1 or not isinstance(term.atoms[0], sp.Heaviside):
        return None
    parts = affine(term.atoms[0].args[0], tuple(e.variables))
    if parts is None or not parts[0][0].is_positive:
        return None
    spread = sp.sqrt(law.cov[0, 0])
    t = -(parts[1] / parts[0][0] + law.mean[0]) / spread
    z = sp.Dummy("z", real=True)
    scaled = term.polynomial.xreplace({e.variables[0]: law.mean[0] + spread * z})
    return sp.Add(
        *(c * (He(n - 1, t) * normal_density(t) if n else Phi(-t)) for n, c in hermite_basis(scaled, z).items())
    )


def quadrant(e: Expectation) -> sp.Expr | None:
    """E[P(y) 1[y1 > 0] 1[y2 > 0]] for a centred pair: Stein's lemma down to 1/4 + asin(rho) / (2 pi)."""
    term, law = only_term(e), law_of(e)
    if term is None:
        return None
    if law.dim != 2 or any(m != 0 for m in law.mean) or len(term.atoms) != 2:
        return None
    steps = [affine(a.args[0], tuple(e.variables)) for a in term.atoms if isinstance(a, sp.Heaviside)]
    forms = [s[0] for s in steps if s is not None and s[1] == 0]
    if len(forms) != 2:
        return None
    y = [sp.Dummy("y", real=True) for _ in forms]
    point, rows = section(forms, y, tuple(e.variables)), sp.ImmutableDenseMatrix(forms)
    cov = (rows * law.cov * rows.T).applyfunc(sp.expand)
    polynomial = term.polynomial.xreplace(point)
    ring = algebra([polynomial], y)
    groups = ring.collect(ring.element(polynomial), 2)
    return sp.Add(*(ring.expr(f) * _quadrant_moment(a, b, cov) for (a, b), f in groups.items()))


def probit(e: Expectation) -> sp.Expr | None:
    """Phi(y) = E 1[y + g > 0] with g ~ N(0, 1) independent; used only where the steps then close."""
    term, law, x = only_term(e), law_of(e), tuple(e.variables)
    if term is None:
        return None
    bases = [a.as_base_exp() for a in term.atoms]
    forms = [affine(b.args[0], x) for b, n in bases if isinstance(b, Phi | sp.Heaviside) and n.is_Integer]
    count = sum(int(n) if isinstance(b, Phi) else 1 for b, n in bases if n.is_Integer)
    if len(forms) < len(bases) or None in forms or not any(isinstance(b, Phi) for b, _ in bases):
        return None
    centred = all(m == 0 for m in law.mean) and all(f is not None and is_zero(f[1]) for f in forms)
    if count > 2 or (count == 2 and not centred):
        return None
    steps, extra = [], []
    for b, n in bases:
        if isinstance(b, Phi):
            fresh = [sp.Dummy("g", real=True) for _ in range(int(n))]
            extra += fresh
            steps += [sp.Heaviside(b.args[0] + g) for g in fresh]
        else:
            steps.append(b)
    wide = Gaussian([*law.mean, *[0] * len(extra)], sp.diag(law.cov, sp.eye(len(extra))))
    return Expectation(sp.Mul(*steps) * term.polynomial, [*x, *extra], wide)


def _quadrant_moment(a: int, b: int, cov: sp.ImmutableDenseMatrix) -> sp.Expr:
    """E[y1^a y2^b 1[y1 > 0] 1[y2 > 0]], y centred: E[y1 G] = C11 E[d1 G] + C12 E[d2 G]."""
    (v1, c), (_, v2) = cov.tolist()
    if a == 0 and b == 0:
        return sp.Rational(1, 4) + sp.asin(c / sp.sqrt(v1 * v2)) / (2 * sp.pi)
    if a == 0:
        return _quadrant_moment(b, a, sp.ImmutableDenseMatrix([[v2, c], [c, v1]]))
    total = sp.S.Zero
    if a > 1:
        total += v1 * (a - 1) * _quadrant_moment(a - 2, b, cov)
    else:
        total += v1 * normal_density(sp.S.Zero, v1) * _positive_moment(b, v2 - c**2 / v1)
    if b > 0:
        total += c * b * _quadrant_moment(a - 1, b - 1, cov)
    else:
        total += c * normal_density(sp.S.Zero, v2) * _positive_moment(a - 1, v1 - c**2 / v2)
    return total


def _positive_moment(n: int, variance: sp.Expr) -> sp.Expr:
    """E[y^n 1[y > 0]], y ~ N(0, variance)."""
    return variance ** sp.Rational(n, 2) * 2 ** sp.Rational(n - 2, 2) * sp.gamma(sp.Rational(n + 1, 2)) / sp.sqrt(sp.pi)
