"""Rules of structure: linearity, conditioning, independence, symmetry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product

import networkx as nx
import sympy as sp

from derive.expectation import Expectation
from derive.functions import He, Phi
from derive.gaussian import Term, conditional, hermite_basis, linear_forms, wick
from derive.measures import Gaussian
from derive.polynomial import algebra, is_zero, vanishes
from derive.rules.glance import glance
from derive.rules.growth import integrable
from derive.rules.reading import expectation_of, law_of, normal_form, only_term, section, terms_of, unit_forms

__all__ = ["conditioning", "degenerate", "independence", "keeps_all_variables", "linearity", "symmetry"]

_MOST_COMPARED = 24
_MOST_SYMMETRIES = 128


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
    """E f = 0 when reflections and exchanges of variables keep the law and change the sign of an integrable f."""
    law, x = law_of(e), tuple(e.variables)
    steps = {a for t in terms_of(e) for a in t.atoms}
    if len(steps) < 2 and all(isinstance(a, sp.Heaviside) for a in steps):
        return None  # polynomials on a half space close anyhow
    if e.integrand.has(sp.Derivative, sp.Subs) or len(terms_of(e)) > _MOST_COMPARED or not integrable(e.integrand, x):
        return None
    looks_odd = _odd_at_a_point(e.integrand, x)
    for image in _symmetries(law):
        if not looks_odd(image):
            continue
        f = e.integrand.xreplace({x[i]: sign * x[j] for i, (j, sign) in enumerate(image) if (i, 1) != (j, sign)})
        moved = Expectation(f, x, law)
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


Image = tuple[tuple[int, int], ...]
"""(j, s) for each i: the map x_i -> s x_j, s = 1 or -1."""


def _symmetries(law: Gaussian) -> Iterator[Image]:
    """Signed exchanges that are their own inverses and keep the law, without the identity."""
    identity = tuple((i, 1) for i in range(law.dim))
    return (image for image in islice(_extended(law, {}), _MOST_SYMMETRIES) if image != identity)


def _extended(law: Gaussian, image: dict[int, tuple[int, int]]) -> Iterator[Image]:
    """The completions of a partial map that keeps the means and covariances of the variables it moves."""
    i = next((k for k in range(law.dim) if k not in image), None)
    if i is None:
        yield tuple(image[k] for k in range(law.dim))
        return
    for j, sign in product((k for k in range(i, law.dim) if k not in image), (-1, 1)):
        larger = image | {i: (j, sign), j: (i, sign)}
        if all(_keeps(law, larger, a, b) for a in (i, j) for b in larger):
            yield from _extended(law, larger)


def _keeps(law: Gaussian, image: Mapping[int, tuple[int, int]], a: int, b: int) -> bool:
    (i, s), (j, t) = image[a], image[b]
    return bool(law.mean[a] == s * law.mean[i] and law.cov[a, b] == s * t * law.cov[i, j])


def _odd_at_a_point(f: sp.Expr, x: tuple[sp.Symbol, ...]) -> Callable[[Image], bool]:
    """A quick look before the proof: whether f + f(image) vanishes at one point, True where that is not known."""
    others = sorted(f.free_symbols - set(x), key=sp.default_sort_key)
    point = [(7 + 5 * k) / (11 + 3 * k) * (-1) ** (k % 3) for k in range(len(x) + len(others))]
    rest = dict(zip(others, point[len(x) :], strict=True))

    def value(moved: Sequence[float]) -> float | None:
        return glance(f, {**rest, **dict(zip(x, moved, strict=True))})

    here = value(point[: len(x)])

    def looks_odd(image: Image) -> bool:
        there = None if here is None else value([sign * point[j] for j, sign in image])
        return here is None or there is None or abs(here + there) <= 1e-9 * (abs(here) + abs(there))

    return looks_odd
