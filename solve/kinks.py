"""Where an integrand is not smooth, found symbolically: kinks and jumps on hyperplanes, curved ones, steep steps."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sympy as sp
from sympy.core.relational import Relational

from derive import polynomial
from derive.expectation import Expectation
from derive.functions import He, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.measures import Gaussian, Pushforward
from derive.proximal import Moreau, MoreauCurvature, MoreauSlope, Prox, kinks, slope_at

__all__ = ["Affine", "Smoothness", "affine", "kink_forms", "normal", "smoothness"]

_MAX_BRANCHES = 64
_PROXIMAL = (Prox, Moreau, MoreauSlope, MoreauCurvature)
_INCREASING_ODD = (sp.tanh, sp.sinh, sp.erf, sp.atan, sp.asinh)
_INCREASING = (sp.exp, sigmoid, softplus, Phi)
# a node equals its own limit to 1e-17 beyond |rate * argument| = 20
_STEP_RATES = {
    sp.tanh: sp.S.One,
    LogCosh: sp.S.One,
    sigmoid: sp.S.Half,
    softplus: sp.S.Half,
    Phi: sp.Integer(2),
    sp.erf: sp.Integer(3),
    sp.erfc: sp.Integer(3),
}


@dataclass(frozen=True)
class Affine:
    """The form sum_i coefficients[i] x_i + constant."""

    coefficients: tuple[sp.Expr, ...]
    constant: sp.Expr


@dataclass(frozen=True)
class Smoothness:
    """What a quadrature rule must know of an integrand.

    `degree`: of a polynomial, None for anything else. `kinks`: analytic between the zeros of these forms.
    `curved`: expressions whose zero sets are further kinks, but no hyperplanes. `steps`: forms across which the
    integrand is analytic but changes within |form| < 20. `singular`: it may be infinite, or have infinite
    slope, on a kink.
    """

    degree: int | None = None
    kinks: tuple[Affine, ...] = ()
    curved: tuple[sp.Expr, ...] = ()
    steps: tuple[Affine, ...] = ()
    singular: bool = False


@functools.lru_cache(maxsize=4096)
def smoothness(integrand: sp.Expr, variables: Sequence[sp.Symbol]) -> Smoothness:
    """The smoothness of an integrand as a function of `variables`; other symbols are parameters."""
    inside = set(variables)
    degree = _degree(integrand, inside)
    if degree is not None:
        return Smoothness(degree=degree)
    kinks, curved = _zero_sets(_kink_arguments(integrand, inside), variables)
    edges, unknown = _zero_sets(_singular_arguments(integrand, inside), variables)
    if len(variables) > 1:
        # where no hyperplane and no sign is known, most are positive; the error estimate sees the others
        unknown = []
    return Smoothness(
        kinks=tuple(dict.fromkeys(kinks + edges)),
        curved=tuple(dict.fromkeys(curved + unknown)),
        steps=tuple(dict.fromkeys(_steps(integrand, variables))),
        singular=bool(edges or unknown),
    )


def kink_forms(integrand: sp.Expr, x: sp.Symbol) -> tuple[Affine, ...]:
    """The affine forms of one variable at whose zeros the integrand jumps or has a kink; it is finite everywhere."""
    forms, _ = _zero_sets(_kink_arguments(integrand, {x}), (x,))
    return tuple(dict.fromkeys(forms))


def _zero_sets(arguments: Iterable[sp.Expr], variables: Sequence[sp.Symbol]) -> tuple[list[Affine], list[sp.Expr]]:
    """The hyperplanes on which an argument vanishes, and the factors whose zeros are none."""
    flat, curved = [], []
    for factor in (f for a in dict.fromkeys(arguments) for f in _factors(a, variables)):
        form = affine(factor, variables)
        if form is not None:
            flat.append(normal(form))
        elif not (factor.is_positive or factor.is_negative):
            curved.append(factor)
    return flat, curved


def _degree(expr: sp.Expr, variables: set[sp.Symbol]) -> int | None:
    """Total degree in the variables, None where `expr` is no polynomial of them."""
    if not expr.has_free(*variables):
        return 0
    if expr in variables:
        return 1
    parts = expr.args
    if isinstance(expr, sp.Pow) and expr.exp.is_Integer and expr.exp.is_nonnegative:
        parts, times = (expr.base,), int(expr.exp)
    elif isinstance(expr, He):
        parts, times = (expr.args[1],), int(expr.args[0])
    elif isinstance(expr, (sp.Add, sp.Mul)):
        times = 1
    else:
        return None
    degrees = [_degree(p, variables) for p in parts]
    known = [d for d in degrees if d is not None]
    if len(known) < len(degrees):
        return None
    return times * (sum(known) if isinstance(expr, sp.Mul) else max(known))


def _kink_arguments(expr: sp.Basic, variables: set[sp.Symbol]) -> Iterator[sp.Expr]:
    """Expressions at whose zeros `expr` jumps or has a kink."""
    for node in _nodes(expr, variables):
        yield from (b for a in _own_kink_arguments(node) if a.has_free(*variables) for b in _branches(a))
        if isinstance(node, Expectation):
            # the average smooths a kink in which its own variables take part
            inner = _kink_arguments(node.integrand, variables)
            yield from (a for a in inner if not a.has_free(*node.variables))


def _singular_arguments(expr: sp.Basic, variables: set[sp.Symbol]) -> Iterator[sp.Expr]:
    """Expressions at whose zeros `expr` may be infinite or have infinite slope."""
    for node in _nodes(expr, variables):
        for a in _own_singular_arguments(node):
            if a.has_free(*variables) and not a.is_positive:
                yield from _branches(a)


def _nodes(expr: sp.Basic, variables: set[sp.Symbol]) -> Iterator[sp.Basic]:
    """The nodes that read the variables; of an inner expectation its law, not its integrand, and of a loss nothing."""
    if expr.has_free(*variables):
        yield expr
        for part in _parts(expr):
            yield from _nodes(part, variables)


def _parts(expr: sp.Basic) -> Sequence[sp.Basic]:
    if isinstance(expr, Expectation | Pushforward):
        return (expr.measure,) if isinstance(expr, Expectation) else ()
    return (expr.V, expr.w) if isinstance(expr, _PROXIMAL) else tuple(expr.args)


def _own_kink_arguments(expr: sp.Basic) -> Iterable[sp.Expr]:
    if isinstance(expr, (relu, sp.Abs, sp.sign, sp.Heaviside)):
        return (expr.args[0],)
    if isinstance(expr, (sp.Max, sp.Min)):
        return (a - b for a, b in itertools.combinations(expr.args, 2))
    if isinstance(expr, Relational):
        return (expr.lhs - expr.rhs,)
    return _proximal_kinks(expr) if isinstance(expr, _PROXIMAL) else ()


def _proximal_kinks(node: sp.Expr) -> list[sp.Expr]:
    """Prox comes to rest on a kink k of the loss, and leaves it, at w = k + V loss'(k -) and k + V loss'(k +)."""
    try:
        return [
            node.w - k - node.V * slope_at(node.loss, k, from_below=below)
            for k in kinks(node.loss) or ()
            for below in (True, False)
        ]
    except ValueError:  # kinks in an unknown order
        return []


def _own_singular_arguments(expr: sp.Basic) -> Sequence[sp.Expr]:
    if isinstance(expr, sp.Pow) and not (expr.exp.is_Integer and expr.exp.is_nonnegative):
        return (expr.base,)
    if isinstance(expr, sp.log):
        return tuple(expr.args)
    if isinstance(expr, (sp.asin, sp.acos, sp.atanh)):
        return (1 - expr.args[0], 1 + expr.args[0])
    if isinstance(expr, sp.tan):
        return (sp.cos(expr.args[0]),)
    if isinstance(expr, Gaussian):
        # a square root of the covariance enters
        variances = [expr.cov[i, i] for i in range(expr.dim)]
        return (*variances, expr.cov.det()) if 1 < expr.dim < 4 else variances
    return ()


def _branches(argument: sp.Expr) -> list[sp.Expr]:
    """The smooth expressions that a piecewise smooth one is made of: relu(x) - 1 gives x - 1 and -1."""
    done: list[sp.Expr] = []
    todo = [argument]
    while todo:
        expr = todo.pop()
        node = next((n for n in _nodes(expr, expr.free_symbols) if _choices(n)), None)
        if node is None or len(todo) + len(done) > _MAX_BRANCHES:
            done.append(expr)
        else:
            todo += [expr.xreplace({node: choice}) for choice in _choices(node)]
    return done


def _choices(node: sp.Basic) -> tuple[sp.Expr, ...]:
    if isinstance(node, relu):
        return (node.args[0], sp.S.Zero)
    if isinstance(node, sp.Abs):
        return (node.args[0], -node.args[0])
    if isinstance(node, (sp.Max, sp.Min)):
        return tuple(node.args)
    if isinstance(node, sp.Heaviside):
        return (sp.S.One, sp.S.Zero)
    if isinstance(node, sp.sign):
        return (sp.S.One, sp.S.NegativeOne)
    if isinstance(node, sp.Piecewise):
        return tuple(value for value, _ in node.args)
    return ()


def _factors(argument: sp.Expr, variables: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """Factors whose zero sets make up that of the argument, those that read the variables."""
    if argument.as_poly(*variables) is not None:
        factors = [f for f, _ in sp.factor_list(sp.numer(sp.together(argument)))[1]]
        return [f for f in factors if f.has_free(*variables)]
    simpler = [_same_zeros(f.as_base_exp()[0]) for f in sp.Mul.make_args(argument)]
    if simpler == [argument]:
        return simpler
    return [f for s in simpler if s.has_free(*variables) for f in _factors(s, variables)]


def _same_zeros(expr: sp.Expr) -> sp.Expr:
    """f(a) as a for an increasing odd f; f(a) - f(b) as a - b for an increasing f."""
    if isinstance(expr, _INCREASING_ODD):
        return expr.args[0]
    if isinstance(expr, sp.Add) and len(expr.args) == 2:
        (c, f), (d, g) = (t.as_coeff_Mul() for t in expr.args)
        if c == -d and type(f) is type(g) and isinstance(f, (*_INCREASING_ODD, *_INCREASING)):
            return f.args[0] - g.args[0]
    return expr


def affine(expr: sp.Basic, variables: Sequence[sp.Symbol]) -> Affine | None:
    """`expr` as sum_i a_i x_i + c, None where it is not affine in the variables."""
    form = polynomial.affine(expr, tuple(variables)) if isinstance(expr, sp.Expr) and not expr.is_Matrix else None
    return None if form is None else Affine(*form)


def normal(form: Affine) -> Affine:
    """The same zero set, with the first coefficient one where it is a number."""
    first = next(c for c in form.coefficients if c != 0)
    scale = first if first.is_number else (-1 if first.could_extract_minus_sign() else 1)
    return Affine(tuple(c / scale for c in form.coefficients), form.constant / scale)


def _steps(integrand: sp.Expr, variables: Sequence[sp.Symbol]) -> Iterator[Affine]:
    """Forms within 20 of whose zeros the integrand changes: arguments of steps, and of peaks."""
    for node in _nodes(integrand, set(variables)):
        rate = _STEP_RATES.get(type(node))
        arguments: list[sp.Expr] = [] if rate is None else [rate * node.args[0]]
        if isinstance(node, SoftmaxEntry):
            arguments = [(node.args[0] - b) / 2 for b in node.args[1:]]
        elif isinstance(node, sp.exp):
            arguments = _peaks(node.args[0], variables)
        for a in arguments:
            form = affine(a, variables) if a.has_free(*variables) else None
            if form is not None:
                yield form


def _peaks(exponent: sp.Expr, variables: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """c a.x for each term -k (a.x)^2 of an exponent: the peak exp(-k (a.x)^2) has ended where |c a.x| = 20."""
    polynomial = exponent.as_poly(*variables) if len(variables) == 1 else None
    if polynomial is not None and polynomial.total_degree() == 2:
        k, b, _ = (polynomial.coeff_monomial(variables[0] ** i) for i in (2, 1, 0))
        squares = [(k, variables[0] + b / (2 * k))]
    else:
        terms = [t.as_independent(*variables, as_Add=False) for t in sp.Add.make_args(exponent)]
        squares = [(k, t.base) for k, t in terms if isinstance(t, sp.Pow) and t.exp == 2]
    return [sp.Rational(20, 9) * sp.sqrt(2 * sp.Abs(k)) * a for k, a in squares]
