"""Symbolic expressions with Gaussian expectations to float64 functions of a batch of arguments.

Expectations are lifted out first, so that common subexpressions never mix a bound variable with the outside.
Those of one law, one kind and the same arguments share their nodes and one compiled function. An inner
expectation is evaluated on the nodes of the outer one as a batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike

from derive.binding import Binder, binders
from derive.expectation import Expectation, expectations
from derive.measures import Gaussian, Pushforward
from derive.minimum import Minimum
from derive.rules.spectral import is_spectral
from derive.spectra import Spectrum
from derive.sums import PositiveSum
from derive.table import Unsupported
from solve.curves import Curve
from solve.functions import compile_functions, without_affine
from solve.kinks import Affine, Smoothness, smoothness
from solve.measured import Measured, standard_error
from solve.minimum import MinimumGroup, minimum_group
from solve.pairs import PairGroup, separation_in_pairs
from solve.quadrature import Accuracy, Array, Estimate, Structure, integrate
from solve.reduction import reduce_expectations
from solve.sampled import SampledGroup, sampled_groups
from solve.separation import Separation
from solve.spectral import SpectralGroup, spectral_groups
from solve.sums import Compiler, SumGroup, sum_group

__all__ = ["Lowered", "lower"]

_TABULATED_DIM = 2
_INNER = 0.1  # the accuracy of an inner expectation relative to that of the outer one


@dataclass(frozen=True)
class Lowered:
    """Expressions compiled to numbers.

    Called with one value for each argument, broadcastable to a common shape B, it returns the values and their
    absolute errors, both (len(expressions), *B): of quadrature, 0 in closed forms; where points are sampled plus one
    standard error; inf where a value is not finite. Never raises for what it is given: read the error.
    """

    expressions: tuple[sp.Expr, ...]
    arguments: tuple[sp.Symbol, ...]
    program: _Program = field(repr=False, compare=False)

    def __call__(self, *values: ArrayLike) -> tuple[Array, Array]:
        found = self.measured(*values)
        return found.value, found.total

    def with_samples(self, samples: int) -> Lowered:
        """The same with that many points where points are sampled."""
        return replace(self, program=self.program.with_samples(samples))

    def measured(self, *values: ArrayLike) -> Measured:
        """The values with the two parts of their errors."""
        if len(values) != len(self.arguments):
            raise ValueError(
                f"{len(values)} values for the {len(self.arguments)} arguments "
                f"({', '.join(map(str, self.arguments))}). Give one for each, in this order."
            )
        arrays = [np.asarray(v, dtype=float) for v in values]
        scalar = all(a.ndim == 0 for a in arrays)
        with np.errstate(all="ignore"):
            found, scatter = self.program.with_scatter([a[()] for a in arrays])
        if scalar and not self.program.groups:
            value, error = np.array([float(v) for v, _ in found]), np.zeros(len(found))
            if not all(map(math.isfinite, value)):
                error[~np.isfinite(value)] = np.inf
            return Measured(value, error, None)
        shape = () if scalar else np.broadcast_shapes(*(a.shape for a in arrays))
        value = np.empty((len(self.expressions), *shape))
        error = np.zeros_like(value)
        for i, (v, e) in enumerate(found):
            value[i] = v
            if e is not None:
                error[i] = e
        error[~np.isfinite(value)] = np.inf
        if scatter is None:
            return Measured(value, error, None)
        spread = np.stack([np.broadcast_to(s, (*shape, s.shape[-1])) for s in scatter])
        return Measured(value, error, np.where(np.isfinite(error)[..., None], spread, 0.0))


def lower(expressions: Sequence[sp.Expr], arguments: Sequence[sp.Symbol], accuracy: Accuracy | None = None) -> Lowered:
    """Compile expressions of `arguments`; expectations among them are evaluated to `accuracy`.

    Raises `TypeError` for what is no SymPy expression, `ValueError` for free symbols that are no arguments or an
    argument given twice, `NotImplementedError` for nodes or laws without a numeric form.
    """
    for e in expressions:
        if not isinstance(e, sp.Expr):
            raise TypeError(f"lower() compiles SymPy expressions, got {e!r} of type {type(e).__name__}.")
    repeated = sorted({str(s) for s in arguments if list(arguments).count(s) > 1})
    if repeated:
        raise ValueError(f"The arguments {', '.join(repeated)} are given more than once.")
    return _lowered(tuple(expressions), tuple(arguments), accuracy or Accuracy())


@functools.lru_cache(maxsize=256)
def _lowered(expressions: tuple[sp.Expr, ...], arguments: tuple[sp.Symbol, ...], accuracy: Accuracy) -> Lowered:
    """Kept, so that systems compiled anew are ready at once."""
    return Lowered(expressions, arguments, _program(expressions, arguments, accuracy))


Found = Sequence[tuple[Any, "Array | None"]]


@dataclass(frozen=True)
class _Program:
    """A compiled function of the arguments and of the expectations, which the groups evaluate."""

    function: Callable[..., Sequence[Any]]
    groups: tuple[_Group | PairGroup | SampledGroup | SpectralGroup | Curve | SumGroup | MinimumGroup, ...]

    def __call__(self, arguments: list[Any]) -> Found:
        found, scatter = self.with_scatter(arguments)
        if scatter is None:
            return found
        return [(v, standard_error(s) + (0.0 if e is None else e)) for (v, e), s in zip(found, scatter, strict=True)]

    def with_scatter(self, arguments: list[Any]) -> tuple[Found, list[Array] | None]:
        """The values with their quadrature errors, and their scatter where points are sampled."""
        if not self.groups:
            return [(v, None) for v in self.function(*arguments)], None
        estimates = [g(arguments) for g in self.groups]
        averages = [v for e in estimates for v in e.value]
        errors = [v for e in estimates for v in e.error]
        values = self.function(*arguments, *averages)
        total: list[Any] = [0.0] * len(values)
        for i, error in enumerate(errors):
            if np.any(error):
                moved = [*averages[:i], averages[i] + error, *averages[i + 1 :]]
                shifted = self.function(*arguments, *moved)
                total = [t + np.abs(a - b) for t, a, b in zip(total, shifted, values, strict=True)]
        found = [(v, np.where(np.isnan(t), np.inf, t)) for v, t in zip(values, total, strict=True)]
        return found, self._scatter(arguments, estimates, values)

    def with_samples(self, samples: int) -> _Program:
        """The same with that many points where points are sampled."""
        groups = tuple(g.with_samples(samples) if isinstance(g, SampledGroup) else g for g in self.groups)
        return replace(self, groups=groups)

    def _scatter(
        self, arguments: list[Any], estimates: Sequence[Estimate], values: Sequence[Any]
    ) -> list[Array] | None:
        """The change of each value with the sampled averages, by a difference of the size of a standard error."""
        spread = [e.scatter for e in estimates if e.scatter is not None]
        if not spread:
            return None
        count = spread[0].shape[-1]
        moved: list[Any] = []
        for e in estimates:
            far = np.zeros((*e.value.shape, count)) if e.scatter is None else e.scatter / math.sqrt(count)
            moved += list(e.value[..., None] + far)
        shifted = self.function(*(np.asarray(a)[..., None] for a in arguments), *moved)
        return [
            (np.broadcast_to(s, (*np.shape(v), count)) - np.asarray(v)[..., None]) * math.sqrt(count)
            for s, v in zip(shifted, values, strict=True)
        ]


@dataclass(frozen=True)
class _Group:
    """Expectations under one law that read the same arguments, evaluated on the same nodes.

    `reads`: positions of the arguments that matter here. `law` gives the mean, the upper triangle of the
    covariance, then the coefficients of the kinks and steps; `integrands` and `curved` read those arguments and
    then the variables.
    """

    dim: int
    reads: tuple[int, ...]
    kind: Smoothness
    law: _Program
    integrands: _Program
    curved: _Program | None
    count: int
    accuracy: Accuracy

    def __call__(self, arguments: list[Any]) -> Estimate:
        """value and error (count, *shape), of the shape to which the arguments it reads broadcast."""
        if not self.reads:
            return self._constant
        own = [np.asarray(arguments[i]) for i in self.reads]
        shape = np.broadcast_shapes(*(a.shape for a in own))
        if math.prod(shape) == 0:
            return Estimate(*(np.zeros((self.count, *shape)) for _ in range(2)))
        found = self._evaluate([np.broadcast_to(a, shape).ravel() for a in own])
        return Estimate(*(a.reshape(self.count, *shape) for a in (found.value, found.error)))

    @functools.cached_property
    def _constant(self) -> Estimate:
        found = self._evaluate([])
        return Estimate(found.value[:, 0], found.error[:, 0])

    def _evaluate(self, own: list[Array]) -> Estimate:
        batch = own[0].size if own else 1
        found = self.law(own)
        parameters = np.stack([np.broadcast_to(v, batch) for v, _ in found])
        estimate = self._integrate(own, parameters)
        uncertain = [e for _, e in found if e is not None and np.any(e)]
        if uncertain:
            moved = np.stack([np.broadcast_to(v if e is None else v + e, batch) for v, e in found])
            shift = np.abs(self._integrate(own, moved).value - estimate.value)
            estimate = replace(estimate, error=estimate.error + np.where(np.isnan(shift), np.inf, shift))
        return estimate

    def _integrate(self, own: list[Array], parameters: Array) -> Estimate:
        n, kinks, steps = self.dim, len(self.kind.kinks), len(self.kind.steps)
        upper = _upper(n)
        mean, entries, forms = np.split(parameters, [n, n + len(upper[0])])
        cov = np.empty((parameters.shape[1], n, n))
        cov[:, upper[0], upper[1]] = cov[:, upper[1], upper[0]] = entries.T
        rows = forms.T.reshape(parameters.shape[1], kinks + steps, n + 1)
        curved = self.curved
        structure = Structure(
            degree=self.kind.degree,
            kinks=rows[:, :kinks] if kinks else None,
            steps=rows[:, kinks:] if steps else None,
            curved=None if curved is None else lambda x, owner: [v for v, _ in curved(_at(own, owner) + x)],
            singular=self.kind.singular,
        )
        return integrate(
            lambda x, owner: self.integrands(_at(own, owner) + x),
            self.count,
            np.ascontiguousarray(mean.T),
            cov,
            structure,
            self.accuracy,
        )


@functools.cache
def _upper(n: int) -> tuple[Any, ...]:
    return np.triu_indices(n)


def _at(own: list[Array], owner: Any) -> list[Array]:
    """The arguments of each row of nodes, as columns."""
    return [a[owner, None] for a in own]


def _program(
    expressions: Sequence[sp.Expr], arguments: tuple[sp.Symbol, ...], accuracy: Accuracy, series: bool = True
) -> _Program:
    """`series`: whether expectations that separate in pairs are evaluated by their Mehler series."""
    nodes = sorted(set().union(*(binders(e) for e in expressions)), key=sp.default_sort_key)
    held = {n: sp.Dummy("node", real=True) for n in nodes}
    written = [reduce_expectations(without_affine(e.xreplace(held))) for e in expressions]
    every = sorted(set().union(*(expectations(e) for e in written)), key=sp.default_sort_key)
    found = [e for e in every if isinstance(e.measure, Gaussian)]
    spectral = spectral_groups(
        [e for e in every if isinstance(e.measure, Spectrum)],
        arguments,
        lambda e, own: _program(e, own, accuracy, series=False),
    )
    sampled = sampled_groups(
        [e for e in every if isinstance(e.measure, Pushforward)],
        arguments,
        accuracy,
        lambda e, own: _program(e, own, accuracy, series=False),
    )
    gathered: dict[Any, list[tuple[Expectation, Smoothness]]] = {}
    pairs: dict[Any, list[Separation]] = {}
    for e in found:
        kind = smoothness(e.integrand, e.variables)
        pair = separation_in_pairs(e) if series and kind.degree is None else None
        if pair is not None:
            pairs.setdefault((pair.law, pair.inside), []).append(pair)
            continue
        reads = frozenset(e.free_symbols)
        same = (e.measure, e.variables, reads, replace(kind, degree=None, steps=()), kind.degree is None)
        gathered.setdefault(same, []).append((e, kind))
    members = [e for group in gathered.values() for e, _ in group]
    members += [s.expectation for group in pairs.values() for s in group]
    members += [e for _, group in (*sampled, *spectral) for e in group]
    symbols = {e: sp.Dummy("average", real=True) for e in members}
    inputs = (*arguments, *symbols.values(), *held.values())
    function = compile_functions([e.xreplace(symbols) for e in written], inputs)
    groups = [_quadrature_group(tuple(g), arguments, accuracy) for g in gathered.values()]
    in_pairs = (_pair_group(g, arguments, accuracy) for g in pairs.values())
    on_nodes = (_node_group(n, arguments, accuracy) for n in nodes)
    on_points, over_spectra = [g for g, _ in sampled], [g for g, _ in spectral]
    return _Program(function, (*groups, *in_pairs, *on_points, *over_spectra, *on_nodes))


def _node_group(node: Binder, arguments: tuple[sp.Symbol, ...], accuracy: Accuracy) -> SumGroup | MinimumGroup:
    if isinstance(node, Minimum):
        return minimum_group(node, arguments, accuracy, _compiler)
    if isinstance(node, PositiveSum):
        return sum_group(node, arguments, accuracy, _compiler(accuracy))
    raise Unsupported(f"No numeric form for {type(node).__name__}.")


def _compiler(accuracy: Accuracy) -> Compiler:
    return lambda expressions, arguments: _program(expressions, arguments, accuracy)


@functools.lru_cache(maxsize=256)
def _quadrature_group(
    members: tuple[tuple[Expectation, Smoothness], ...], arguments: tuple[sp.Symbol, ...], accuracy: Accuracy
) -> _Group | Curve:
    """The group, by a table where it is smooth and costly and depends on one argument alone.

    Kept, so that systems compiled apart share what is tabulated.
    """
    group = _group(list(members), arguments, accuracy)
    kind = group.kind
    smooth = kind.degree is None and not (kind.kinks or kind.steps or kind.curved or kind.singular)
    few = group.dim < _TABULATED_DIM and not any(is_spectral(e) for e, _ in members)
    if len(group.reads) != 1 or few or not smooth:
        return group
    return Curve(group, group.reads[0], group.count, group.accuracy)


def _pair_group(members: list[Separation], arguments: tuple[sp.Symbol, ...], accuracy: Accuracy) -> PairGroup:
    inside = tuple(sorted(members[0].inside, key=str))
    return PairGroup(
        tuple(members), arguments, inside, accuracy, lambda e, own: _program(e, own, accuracy, series=False)
    )


def _group(
    members: list[tuple[Expectation, Smoothness]], arguments: tuple[sp.Symbol, ...], accuracy: Accuracy
) -> _Group:
    first, kind = members[0]
    variables, law = tuple(first.variables), first.measure
    free = set().union(*(e.free_symbols for e, _ in members))
    own = tuple(s for s in arguments if s in free)
    if kind.degree is None:
        kind = replace(kind, steps=tuple(dict.fromkeys(s for _, k in members for s in k.steps)))
    else:
        kind = replace(kind, degree=max(k.degree or 0 for _, k in members))
    upper = [law.cov[i, j] for i in range(law.dim) for j in range(i, law.dim)]
    inner = replace(accuracy, rtol=_INNER * accuracy.rtol, atol=_INNER * accuracy.atol)
    return _Group(
        dim=law.dim,
        reads=tuple(arguments.index(s) for s in own),
        kind=kind,
        law=_program([*law.mean, *upper, *_coefficients(kind.kinks + kind.steps)], own, inner),
        integrands=_program([e.integrand for e, _ in members], (*own, *variables), inner),
        curved=_program(kind.curved, (*own, *variables), inner) if kind.curved else None,
        count=len(members),
        accuracy=accuracy,
    )


def _coefficients(forms: Sequence[Affine]) -> list[sp.Expr]:
    return [c for form in forms for c in (*form.coefficients, form.constant)]
