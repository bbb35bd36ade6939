"""Rules that turn a Gaussian expectation into an equal expression: closed, or over fewer variables.

Each rule is a theorem about Gaussian vectors, not about a model. `closed_form` keeps an expectation as it is
written unless the rules remove it; `reduced` also accepts a result whose expectations are over fewer
variables or have lost parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

import networkx as nx
import sympy as sp

from derive.expectation import Expectation, expectations
from derive.functions import He, Phi
from derive.gaussian import Term, conditional, hermite_basis, linear_forms, normal_density, terms, wick
from derive.measures import Gaussian
from derive.polynomial import affine, algebra, expand, is_zero, quadratic

__all__ = ["RULES", "Rule", "closed_form", "reduced"]

Rule: TypeAlias = Callable[[Expectation], sp.Expr | None]


def linearity(e: Expectation) -> sp.Expr | None:
    """E[f + g] = E f + E g, after multiplying out; polynomial parts by Wick's formula."""
    parts = _terms(e)
    if len(parts) == 1 and parts[0].atoms:
        return None
    return sp.Add(*(_expect(t, e) if t.atoms else wick(t.polynomial, e.variables, _law(e)) for t in parts))


def point_mass(e: Expectation) -> sp.Expr | None:
    """E[delta(a.x + b) f(x)] = p(0) E[f | a.x + b = 0], p the density of a.x + b."""
    term = _terms(e)[0]
    mass = next((a for a in term.atoms if isinstance(a, sp.DiracDelta) and len(a.args) == 1), None)
    parts = affine(mass.args[0], tuple(e.variables)) if mass is not None else None
    if parts is None:
        return None
    law, form = _law(e), sp.ImmutableDenseMatrix([parts[0]])
    centre = (form * sp.ImmutableDenseMatrix(list(law.mean)))[0] + parts[1]
    variance = (form * law.cov * form.T)[0]
    given = conditional(law, form, [-parts[1]])
    pivot = next(i for i, a in enumerate(parts[0]) if not is_zero(a))
    rest = [i for i in range(law.dim) if i != pivot]
    solved = -(parts[1] + sp.Add(*(parts[0][i] * e.variables[i] for i in rest))) / parts[0][pivot]
    f = sp.Mul(*(a for a in term.atoms if a != mass)) * term.polynomial
    f = f.xreplace({e.variables[pivot]: solved})
    inner = Expectation(f, [e.variables[i] for i in rest], given.marginal(rest)) if rest else f
    return normal_density(centre, variance) * inner


def degenerate(e: Expectation) -> sp.Expr | None:
    """A linear form of variance zero is its mean: one variable fewer."""
    law = _law(e)
    if law.cov.free_symbols or law.cov.det() != 0:
        return None
    null = law.cov.nullspace()[0]
    pivot = next(i for i in range(law.dim) if null[i] != 0)
    rest = [i for i in range(law.dim) if i != pivot]
    value = law.mean[pivot] - sp.Add(*(null[i] * (e.variables[i] - law.mean[i]) for i in rest)) / null[pivot]
    f = e.integrand.xreplace({e.variables[pivot]: value})
    return Expectation(f, [e.variables[i] for i in rest], law.marginal(rest)) if rest else f


def conditioning(e: Expectation) -> sp.Expr | None:
    """E[f(A x) P(x)] = E[f(y) E[P(x) | A x = y]]: polynomial directions are integrated by Wick's formula."""
    term, law, x = _terms(e)[0], _law(e), tuple(e.variables)
    forms = _basis([f for a in term.atoms for f in linear_forms(a, x)], law)
    if len(forms) >= law.dim and forms == _unit(law.dim):
        return None
    if len(forms) == law.dim:
        return None
    rows = sp.ImmutableDenseMatrix(forms)
    y = [sp.Dummy(f"y{i}", real=True) for i in range(len(forms))]
    inverse = _section(forms, y, x)
    polynomial = wick(term.polynomial, x, conditional(law, rows, y))
    atoms = sp.Mul(*(_in_forms(a, inverse) for a in term.atoms))
    mean = rows * sp.ImmutableDenseMatrix(list(law.mean))
    cov = (rows * law.cov * rows.T).applyfunc(sp.expand)
    return Expectation(atoms * polynomial, y, Gaussian(list(mean), cov))


def tilting(e: Expectation) -> sp.Expr | None:
    """E[exp(x.Q x + a.x + c) f(x)] = Z E'[f(x)] under the tilted Gaussian law.

    With x centred: C' = (1 - 2 C Q)^-1 C, mean' = C' a, Z = det(1 - 2 C Q)^(-1/2) exp(c + a.C' a / 2).
    """
    term, law, x = _terms(e)[0], _law(e), tuple(e.variables)
    found = [(a, quadratic(a.exp, x)) for a in term.atoms if isinstance(a, sp.exp)]
    factor = next(((a, q) for a, q in found if q is not None), None)
    if factor is None:
        return None
    q, a_, c = factor[1]
    a, mean = sp.ImmutableDenseMatrix(a_), sp.ImmutableDenseMatrix(list(law.mean))
    if not _tilt_exists(law.cov, q):
        return None
    c = c + (a.T * mean)[0] + (mean.T * q * mean)[0]
    a = a + 2 * q * mean
    shrink = sp.eye(law.dim) - 2 * law.cov * q
    cov = (
        (shrink.inv(method="ADJ") * law.cov).applyfunc(sp.cancel) if q.is_zero_matrix is not True else law.cov
    )
    weight = sp.exp(sp.expand(c + (a.T * cov * a)[0] / 2)) / sp.sqrt(shrink.det())
    f = sp.Mul(*(b for b in term.atoms if b != factor[0])) * term.polynomial
    tilted = Gaussian([sp.expand(v) for v in mean + cov * a], (cov + cov.T) / 2)
    return weight * Expectation(f, x, tilted)


def probit(e: Expectation) -> sp.Expr | None:
    """Phi(y) = E 1[y + g > 0] with g ~ N(0, 1) independent; kept only where that leads to a closed form."""
    term, law = _terms(e)[0], _law(e)
    x = tuple(e.variables)
    bases = [(a.base, int(a.exp)) if isinstance(a, sp.Pow) else (a, 1) for a in term.atoms]
    simple = all(isinstance(b, Phi | sp.Heaviside) and affine(b.args[0], x) for b, _ in bases)
    if not simple or not any(isinstance(b, Phi) for b, _ in bases):
        return None
    steps, extra = [], []
    for b, n in bases:
        for _ in range(n if isinstance(b, Phi) else 1):
            if isinstance(b, Phi):
                extra.append(sp.Dummy("g", real=True))
            steps.append(sp.Heaviside(b.args[0] + (extra[-1] if isinstance(b, Phi) else 0)))
    wide = Gaussian([*law.mean, *[0] * len(extra)], sp.diag(law.cov, sp.eye(len(extra))))
    result = _reduce(Expectation(sp.Mul(*steps) * term.polynomial, [*x, *extra], wide))
    return None if result.has(Expectation) else result


def half_line(e: Expectation) -> sp.Expr | None:
    """E[He_n(z) 1[z > t]] = He_{n-1}(t) phi(t) for n >= 1, Phi(-t) for n = 0."""
    term, law = _terms(e)[0], _law(e)
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
        *(
            c * (He(n - 1, t) * normal_density(t) if n else Phi(-t))
            for n, c in hermite_basis(scaled, z).items()
        )
    )


def quadrant(e: Expectation) -> sp.Expr | None:
    """E[P(y) 1[y1 > 0] 1[y2 > 0]] for a centred pair: Stein's lemma down to 1/4 + asin(rho) / (2 pi)."""
    term, law = _terms(e)[0], _law(e)
    if law.dim != 2 or any(m != 0 for m in law.mean) or len(term.atoms) != 2:
        return None
    steps = [affine(a.args[0], tuple(e.variables)) for a in term.atoms if isinstance(a, sp.Heaviside)]
    forms = [s[0] for s in steps if s is not None and s[1] == 0]
    if len(forms) != 2:
        return None
    y = [sp.Dummy("y", real=True) for _ in forms]
    section, rows = _section(forms, y, tuple(e.variables)), sp.ImmutableDenseMatrix(forms)
    cov = (rows * law.cov * rows.T).applyfunc(sp.expand)
    polynomial = term.polynomial.xreplace(section)
    ring = algebra([polynomial], y)
    groups = ring.collect(ring.element(polynomial), 2)
    return sp.Add(*(ring.expr(f) * _quadrant_moment(a, b, cov) for (a, b), f in groups.items()))


def oscillation(e: Expectation) -> sp.Expr | None:
    """E[P(x) exp(i (a.x + b))] = exp(i (a.mean + b) - a.C a / 2) E P(x + i C a), one part of it."""
    term, law, x = _terms(e)[0], _law(e), tuple(e.variables)
    waves = [(b, n) for a in term.atoms for b, n in [a.as_base_exp()]]
    if not all(isinstance(b, sp.cos | sp.sin) and n.is_Integer and affine(b.args[0], x) for b, n in waves):
        return None
    if sum(int(n) for _, n in waves) > 1:
        return Expectation(
            _product_to_sum([b for b, n in waves for _ in range(int(n))]) * term.polynomial, x, law
        )
    wave = waves[0][0]
    parts = affine(wave.args[0], x)
    if parts is None:
        return None
    a, mean = sp.ImmutableDenseMatrix(parts[0]), sp.ImmutableDenseMatrix(list(law.mean))
    i = sp.Dummy("i", real=True)
    moved = Gaussian(list(mean + i * law.cov * a), law.cov)
    real, imaginary = _split_imaginary(wick(term.polynomial, x, moved), i)
    phase = (a.T * mean)[0] + parts[1]
    damping = sp.exp(-(a.T * law.cov * a)[0] / 2)
    if isinstance(wave, sp.cos):
        return damping * (real * sp.cos(phase) - imaginary * sp.sin(phase))
    return damping * (real * sp.sin(phase) + imaginary * sp.cos(phase))


def independence(e: Expectation) -> sp.Expr | None:
    """E[f(x) g(y)] = E f E g for independent x, y; constants out; powers of one N(0, 1) variable by He_n."""
    term, law, x = _terms(e)[0], _law(e), tuple(e.variables)
    parts = _components(term, law, x)
    ring = algebra([term.polynomial], x)
    groups = ring.collect(ring.element(term.polynomial), len(x))
    single = len(parts) == 1
    if single and _is_standard(law):
        basis = hermite_basis(term.polynomial, x[0])
        result = sp.Add(*(c * _expect(Term(term.atoms, He(n, x[0])), e) for n, c in basis.items()))
    else:
        result = sp.Add(
            *(
                ring.expr(f) * sp.Mul(*(_factor(part, powers, term, law, x) for part in parts))
                for powers, f in groups.items()
            )
        )
    return None if result == e or (single and result == _expect(term, e)) else result


def symmetry(e: Expectation) -> sp.Expr | None:
    """E f = 0 when a reflection or exchange of variables keeps the law and changes the sign of f."""
    law, x = _law(e), tuple(e.variables)
    if e.integrand.has(sp.Derivative, sp.Subs):
        return None
    for image in _symmetries(law, x):
        moved = Expectation(e.integrand.xreplace(image), x, law)
        if not isinstance(moved, Expectation) or moved.variables != e.variables:
            continue
        if is_zero(_normal_form(e) + _normal_form(moved)):
            return sp.S.Zero
    return None


RULES: tuple[Rule, ...] = (
    linearity,
    point_mass,
    degenerate,
    oscillation,
    conditioning,
    symmetry,
    tilting,
    probit,
    half_line,
    quadrant,
    independence,
)


def closed_form(expr: sp.Expr, rules: Sequence[Rule] = RULES) -> sp.Expr:
    """`expr` with each expectation replaced by its closed form, where the rules remove it completely."""
    return _replace(expr, lambda e: _accept_closed(e, tuple(rules)))


def reduced(expr: sp.Expr, rules: Sequence[Rule] = RULES) -> sp.Expr:
    """`expr` with each expectation replaced where that leaves fewer variables or parameters inside E."""
    return _replace(expr, lambda e: _accept_smaller(e, tuple(rules)))


def _accept_closed(e: Expectation, rules: tuple[Rule, ...]) -> sp.Expr:
    result = _reduce(e, rules)
    return e if result.has(Expectation) else result


def _accept_smaller(e: Expectation, rules: tuple[Rule, ...]) -> sp.Expr:
    result = _reduce(e, rules)
    return expand(result) if _size(result) <= _size(e) else e


def _size(expr: sp.Expr) -> tuple[int, int, int]:
    """(most variables of an expectation, whether those hold parameters, how many of them there are)."""
    found = expr.atoms(Expectation)
    most = max((len(e.variables) for e in found), default=0)
    largest = [e for e in found if len(e.variables) == most]
    parameters = any(e.free_symbols for e in largest)
    return most, int(parameters), len(largest) if parameters or most > 1 else 1


def _replace(expr: sp.Expr, accept: Callable[[Expectation], sp.Expr]) -> sp.Expr:
    return expr.xreplace({e: accept(e) for e in expectations(expr)})


@lru_cache(maxsize=16384)
def _reduce(expr: sp.Expr, rules: tuple[Rule, ...] | None = None) -> sp.Expr:
    """Apply the first rule that fits, again and again, to every expectation."""
    used = RULES if rules is None else rules
    if not isinstance(expr, Expectation):
        return expr.xreplace({e: _reduce(e, rules) for e in expectations(expr)})
    if not isinstance(expr.measure, Gaussian):
        return expr
    for rule in used:
        result = rule(expr)
        if result is not None:
            return _reduce(result, rules)
    return expr


def _law(e: Expectation) -> Gaussian:
    law = e.measure
    if not isinstance(law, Gaussian):
        raise TypeError(f"These rules are about Gaussian laws, got {type(law).__name__}.")
    return law


def _terms(e: Expectation) -> tuple[Term, ...]:
    return terms(e.integrand, tuple(e.variables))


def _expect(term: Term, e: Expectation) -> sp.Expr:
    return Expectation(term.expr, tuple(e.variables), e.measure)


def _normal_form(e: Expectation) -> sp.Expr:
    return sp.Add(*(t.expr for t in _terms(e)))


def _unit(n: int) -> list[tuple[sp.Expr, ...]]:
    return [tuple(sp.S(int(i == j)) for j in range(n)) for i in range(n)]


def _basis(forms: Sequence[tuple[sp.Expr, ...]], law: Gaussian) -> list[tuple[sp.Expr, ...]]:
    """Independent forms that span `forms`, of unit variance where that is a number; coordinates if all."""
    chosen: list[tuple[sp.Expr, ...]] = []
    echelon: list[tuple[int, list[sp.Expr]]] = []
    for form in forms:
        row = list(form)
        for pivot, other in echelon:
            row = [sp.cancel(a - row[pivot] * b) for a, b in zip(row, other, strict=True)]
        pivot = next((i for i, a in enumerate(row) if not is_zero(a)), -1)
        if pivot >= 0:
            echelon.append((pivot, [a / row[pivot] for a in row]))
            chosen.append(_unit_variance(form, law))
    if len(chosen) == law.dim:
        return _unit(law.dim)
    return chosen


def _unit_variance(form: tuple[sp.Expr, ...], law: Gaussian) -> tuple[sp.Expr, ...]:
    row = sp.ImmutableDenseMatrix([form])
    variance = sp.expand((row * law.cov * row.T)[0])
    return tuple(a / sp.sqrt(variance) for a in form) if variance.is_Rational and variance > 0 else form


def _section(
    forms: list[tuple[sp.Expr, ...]], y: Sequence[sp.Symbol], x: tuple[sp.Symbol, ...]
) -> dict[sp.Symbol, sp.Expr]:
    """Values of x with A x = y: an atom that depends on A x alone takes its value there."""
    rows = sp.ImmutableDenseMatrix(forms)
    pivots = _pivot_columns(rows)
    square = rows.extract(list(range(rows.rows)), pivots)
    solved = square.inv(method="ADJ") * sp.ImmutableDenseMatrix(list(y))
    point: dict[sp.Symbol, sp.Expr] = dict.fromkeys(x, sp.S.Zero)
    return point | {x[p]: sp.expand(v) for p, v in zip(pivots, solved, strict=True)}


def _pivot_columns(rows: sp.ImmutableDenseMatrix) -> list[int]:
    for columns in combinations(range(rows.cols), rows.rows):
        if not is_zero(rows.extract(list(range(rows.rows)), list(columns)).det()):
            return list(columns)
    raise AssertionError("independent rows have a regular minor")


def _in_forms(atom: sp.Expr, point: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
    moved = atom.xreplace(point)
    if isinstance(moved, sp.Function) and not isinstance(moved, He):
        return moved.func(*(sp.expand(a) for a in moved.args))
    return moved


def _tilt_exists(cov: sp.ImmutableDenseMatrix, q: sp.ImmutableDenseMatrix) -> bool:
    if q.is_zero_matrix:
        return True
    if q.is_negative_semidefinite:
        return True
    if cov.free_symbols or q.free_symbols or cov.det() == 0:
        return False
    return bool((cov.inv() - 2 * q).is_positive_definite)


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
    return (
        variance ** sp.Rational(n, 2)
        * 2 ** sp.Rational(n - 2, 2)
        * sp.gamma(sp.Rational(n + 1, 2))
        / sp.sqrt(sp.pi)
    )


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


def _split_imaginary(polynomial: sp.Expr, i: sp.Symbol) -> tuple[sp.Expr, sp.Expr]:
    ring = algebra([polynomial], [i])
    parts = [sp.S.Zero, sp.S.Zero]
    for (n,), f in ring.collect(ring.element(polynomial), 1).items():
        parts[n % 2] += (-1) ** (n // 2) * ring.expr(f)
    return parts[0], parts[1]


def _is_standard(law: Gaussian) -> bool:
    return law.dim == 1 and law.mean[0] == 0 and law.cov[0, 0] == 1


def _components(term: Term, law: Gaussian, x: tuple[sp.Symbol, ...]) -> list[list[int]]:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(x)))
    graph.add_edges_from((i, j) for i, j in combinations(range(len(x)), 2) if law.cov[i, j] != 0)
    for atom in term.atoms:
        inside = [i for i, v in enumerate(x) if atom.has_free(v)]
        graph.add_edges_from((inside[0], j) for j in inside[1:])
    return [sorted(c) for c in nx.connected_components(graph)]


def _factor(
    part: list[int], powers: tuple[int, ...], term: Term, law: Gaussian, x: tuple[sp.Symbol, ...]
) -> sp.Expr:
    inside = [a for a in term.atoms if a.has_free(*(x[i] for i in part))]
    f = sp.Mul(*inside, *(x[i] ** powers[i] for i in part))
    return Expectation(f, [x[i] for i in part], law.marginal(part))


def _symmetries(law: Gaussian, x: tuple[sp.Symbol, ...]) -> list[dict[sp.Symbol, sp.Expr]]:
    """Reflections of one or all variables, and exchanges of two, that keep the law."""
    n = law.dim
    maps: list[dict[sp.Symbol, sp.Expr]] = []
    if all(m == 0 for m in law.mean):
        maps.append({v: -v for v in x})
        alone = [i for i in range(n) if all(law.cov[i, j] == 0 for j in range(n) if j != i)]
        maps += [{x[i]: -x[i]} for i in alone if n > 1]
    for i, j in combinations(range(n), 2):
        order = [j if k == i else i if k == j else k for k in range(n)]
        if law.marginal(order) == law:
            maps.append({x[i]: x[j], x[j]: x[i]})
    return maps
