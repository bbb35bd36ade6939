"""Rules of structure: linearity, conditioning, independence, symmetry."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import networkx as nx
import sympy as sp

from derive.expectation import Expectation
from derive.functions import He, Phi
from derive.gaussian import Term, conditional, hermite_basis, linear_forms, wick
from derive.measures import Gaussian
from derive.polynomial import algebra, is_zero, vanishes
from derive.rules.growth import integrable
from derive.rules.reading import expectation_of, law_of, normal_form, only_term, section, terms_of, unit_forms

__all__ = ["conditioning", "degenerate", "independence", "keeps_all_variables", "linearity", "symmetry"]

_MOST_COMPARED = 24


def linearity(e: Expectation) -> sp.Expr | None:
    """E[f + g] = E f + E g, after multiplying out; polynomial parts by Wick's formula."""
    parts = terms_of(e)
    if len(parts) == 1 and parts[0].atoms:
        return None
    return sp.Add(*(expectation_of(t, e) if t.atoms else wick(t.polynomial, e.variables, law_of(e)) for t in parts))


def degenerate(e: Expectation) -> sp.Expr | None:
    """A linear form of variance zero is its mean: one variable fewer."""
    law = law_of(e)
    if not is_zero(law.cov.det()):
        return None
    null = law.cov.nullspace(iszerofunc=is_zero)[0]
    pivot = next(i for i in range(law.dim) if not is_zero(null[i]))
    rest = [i for i in range(law.dim) if i != pivot]
    value = law.mean[pivot] - sp.Add(*(null[i] * (e.variables[i] - law.mean[i]) for i in rest)) / null[pivot]
    f = e.integrand.xreplace({e.variables[pivot]: value})
    return Expectation(f, [e.variables[i] for i in rest], law.marginal(rest)) if rest else f


def conditioning(e: Expectation) -> sp.Expr | None:
    """E[f(A x) P(x)] = E[f(y) E[P(x) | A x = y]]: polynomial directions are integrated by Wick's formula."""
    term, law, x = only_term(e), law_of(e), tuple(e.variables)
    if term is None:
        return None
    forms = _basis([f for a in term.atoms for f in linear_forms(a, x)], law)
    if not forms:
        return None
    if len(forms) >= law.dim and forms == unit_forms(law.dim):
        return None
    if len(forms) == law.dim:
        return None
    rows = sp.ImmutableDenseMatrix(forms)
    y = [sp.Dummy(f"y{i}", real=True) for i in range(len(forms))]
    inverse = section(forms, y, x)
    polynomial = wick(term.polynomial, x, conditional(law, rows, y))
    atoms = sp.Mul(*(_in_forms(a, inverse) for a in term.atoms))
    mean = rows * sp.ImmutableDenseMatrix(list(law.mean))
    cov = (rows * law.cov * rows.T).applyfunc(sp.expand)
    return Expectation(atoms * polynomial, y, Gaussian(list(mean), cov))


def independence(e: Expectation) -> sp.Expr | None:
    """E[f(x) g(y)] = E f E g for independent x, y; constants out; powers of one N(0, 1) variable by He_n."""
    term, law, x = only_term(e), law_of(e), tuple(e.variables)
    if term is None:
        return None
    parts = _components(term, law, x)
    ring = algebra([term.polynomial], x)
    groups = ring.collect(ring.element(term.polynomial), len(x))
    single = len(parts) == 1
    if single and _is_standard(law):
        basis = hermite_basis(term.polynomial, x[0])
        result = sp.Add(*(c * expectation_of(Term(term.atoms, He(n, x[0])), e) for n, c in basis.items()))
    else:
        result = sp.Add(
            *(
                ring.expr(f) * sp.Mul(*(_factor(part, powers, term, law, x) for part in parts))
                for powers, f in groups.items()
            )
        )
    return None if result == e or (single and result == expectation_of(term, e)) else result


def symmetry(e: Expectation) -> sp.Expr | None:
    """E f = 0 when a reflection or exchange of variables keeps the law and changes the sign of an integrable f."""
    law, x = law_of(e), tuple(e.variables)
    steps = {a for t in terms_of(e) for a in t.atoms}
    if len(steps) < 2 and all(isinstance(a, sp.Heaviside) for a in steps):
        return None  # polynomials on a half space close anyhow
    if e.integrand.has(sp.Derivative, sp.Subs) or len(terms_of(e)) > _MOST_COMPARED or not integrable(e.integrand, x):
        return None
    for image in _symmetries(law, x):
        moved = Expectation(e.integrand.xreplace(image), x, law)
        if not isinstance(moved, Expectation) or moved.variables != e.variables:
            continue
        if vanishes(normal_form(e) + normal_form(moved)):
            return sp.S.Zero
    return None


def keeps_all_variables(e: Expectation, term: Term) -> bool:
    """Whether no rule here, nor one for steps or exponentials, takes a variable from this term."""
    law, x = law_of(e), tuple(e.variables)
    closing = (sp.Heaviside, sp.DiracDelta, sp.exp, sp.cos, sp.sin, Phi)
    if any(isinstance(a.as_base_exp()[0], closing) or isinstance(a, sp.exp) for a in term.atoms):
        return False
    spanned = _basis([f for a in term.atoms for f in linear_forms(a, x)], law)
    return len(spanned) == law.dim and len(_components(term, law, x)) == 1


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
        return unit_forms(law.dim)
    return chosen


def _unit_variance(form: tuple[sp.Expr, ...], law: Gaussian) -> tuple[sp.Expr, ...]:
    row = sp.ImmutableDenseMatrix([form])
    variance = sp.expand((row * law.cov * row.T)[0])
    return tuple(a / sp.sqrt(variance) for a in form) if variance.is_Rational and variance > 0 else form


def _in_forms(atom: sp.Expr, point: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
    moved = atom.xreplace(point)
    if isinstance(moved, sp.Function) and not isinstance(moved, He):
        return moved.func(*(sp.expand(a) for a in moved.args))
    return moved


def _is_standard(law: Gaussian) -> bool:
    return law.dim == 1 and law.mean[0] == 0 and law.cov[0, 0] == 1


def _components(term: Term, law: Gaussian, x: tuple[sp.Symbol, ...]) -> list[list[int]]:
    together = [[i for i, v in enumerate(x) if atom.has_free(v)] for atom in term.atoms]
    return _correlated(law, [(inside[0], j) for inside in together for j in inside[1:]])


def _correlated(law: Gaussian, links: Sequence[tuple[int, int]] = ()) -> list[list[int]]:
    """The parts of the vector that are independent of each other, with `links` kept together."""
    graph = nx.Graph()
    graph.add_nodes_from(range(law.dim))
    graph.add_edges_from((i, j) for i, j in combinations(range(law.dim), 2) if law.cov[i, j] != 0)
    graph.add_edges_from(links)
    return [sorted(c) for c in nx.connected_components(graph)]


def _factor(part: list[int], powers: tuple[int, ...], term: Term, law: Gaussian, x: tuple[sp.Symbol, ...]) -> sp.Expr:
    inside = [a for a in term.atoms if a.has_free(*(x[i] for i in part))]
    f = sp.Mul(*inside, *(x[i] ** powers[i] for i in part))
    return Expectation(f, [x[i] for i in part], law.marginal(part))


def _symmetries(law: Gaussian, x: tuple[sp.Symbol, ...]) -> list[dict[sp.Symbol, sp.Expr]]:
    """Reflections of centred independent parts, one or all, and exchanges of two variables: they keep the law."""
    n = law.dim
    maps: list[dict[sp.Symbol, sp.Expr]] = []
    centred = [c for c in _correlated(law) if all(law.mean[i] == 0 for i in c)]
    maps += [{x[i]: -x[i] for i in c} for c in centred]
    if len(centred) > 1:
        maps.append({x[i]: -x[i] for c in centred for i in c})
    for i, j in combinations(range(n), 2):
        order = [j if k == i else i if k == j else k for k in range(n)]
        if law.marginal(order) == law:
            maps.append({x[i]: x[j], x[j]: x[i]})
    return maps
