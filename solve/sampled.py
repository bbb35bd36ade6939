"""Expectations under the law of quantities made of many Gaussian variables, over frozen scrambled Sobol points.

The points do not change from call to call, so that what is found is a smooth function of the parameters, solved to
rounding; how it differs from one scrambling to the next is its error. The quantities are computed once for each value
of the parameters of their law.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp

from derive.expectation import Expectation, expectations
from derive.measures import Gaussian, Pushforward
from derive.table import Unsupported
from solve.functions import compile_functions
from solve.law import Law, factorise
from solve.nodes import SCRAMBLINGS, Array, scrambled_normal
from solve.quadrature import Accuracy, Estimate

__all__ = ["SampledGroup", "sampled_groups"]

_KEPT = 4  # values of the parameters of a law for which its quantities are kept
_CHUNK = 2**13
_EXTRA = 2  # coordinates for inner Gaussian expectations
_extra = tuple(sp.Symbol(f"e{k + 1}", real=True, bound=True) for k in range(_EXTRA))

Function = Callable[[list[Any]], Sequence[tuple[Any, "Array | None"]]]
Compile = Callable[[Sequence[sp.Expr], tuple[sp.Symbol, ...]], Function]


# ---- one law ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sample:
    """The outputs of a law at 2^log_points points of each scrambling, of the set `scrambled` of these."""

    law: Pushforward
    log_points: int
    scrambled: int = 0

    @functools.cached_property
    def parameters(self) -> tuple[sp.Symbol, ...]:
        """The parameters of the law, sorted by name."""
        return tuple(sorted(self.law.free_symbols, key=str))

    @functools.cached_property
    def at(self) -> Callable[[tuple[float, ...]], tuple[Array, ...]]:
        """The outputs, each (scramblings * points,), given the values of the parameters; the last few are kept."""
        return functools.lru_cache(maxsize=_KEPT)(self._computed)

    @functools.cached_property
    def extra(self) -> tuple[Array, ...]:
        """Normal variables beside those of the law, each (scramblings * points,)."""
        every = [self._normal(r)[self.law.base.dim :] for r in range(SCRAMBLINGS)]
        return tuple(np.concatenate(columns) for columns in zip(*every, strict=True))

    def _normal(self, scrambling: int) -> Array:
        return scrambled_normal(self.law.base.dim + _EXTRA, self.log_points, self.scrambled * SCRAMBLINGS + scrambling)

    def _computed(self, values: tuple[float, ...]) -> tuple[Array, ...]:
        base = self._base(values)
        outputs = [self._one(base, self._normal(r), values) for r in range(SCRAMBLINGS)]
        return tuple(np.concatenate(columns) for columns in zip(*outputs, strict=True))

    def _base(self, values: tuple[float, ...]) -> Law:
        n = self.law.base.dim
        found = [float(v) for v in self._moments(*values)]
        factor, valid = factorise(np.array(found[n:]).reshape(1, n, n))
        if not valid[0]:
            factor = np.full_like(factor, np.nan)
        return Law(np.array([found[:n]]), factor)

    def _one(self, base: Law, t: Array, values: tuple[float, ...]) -> list[Array]:
        rows = base.points([r[None] for r in t[: self.law.base.dim]], np.zeros(1, dtype=int))
        known: dict[sp.Symbol, Any] = dict(zip(self.law.inputs, (x[0] for x in rows), strict=True))
        known |= zip(self.parameters, values, strict=True)
        for symbols, function in self._stages:
            known |= zip(symbols, function(*known.values()), strict=True)
        return [np.broadcast_to(known[s], t.shape[1:]) for s in self.law.outputs]

    @functools.cached_property
    def _moments(self) -> Callable[..., Sequence[Any]]:
        return compile_functions([*self.law.base.mean, *self.law.base.cov], self.parameters)

    @functools.cached_property
    def _stages(self) -> list[tuple[list[sp.Symbol], Callable[..., Sequence[Any]]]]:
        """The definitions, those together that do not read each other."""
        levels: list[dict[sp.Symbol, sp.Expr]] = []
        depth: dict[sp.Symbol, int] = {}
        for s, e in self.law.definitions:
            if e.has(Expectation):
                raise Unsupported(f"{e} defines a quantity by an expectation; its law cannot be sampled.")
            depth[s] = 1 + max((depth[r] for r in e.free_symbols if r in depth), default=-1)
            if depth[s] == len(levels):
                levels.append({})
            levels[depth[s]][s] = e
        known, stages = [*self.law.inputs, *self.parameters], []
        for level in levels:
            stages.append((list(level), compile_functions(list(level.values()), tuple(known))))
            known += level
        return stages


@functools.lru_cache(maxsize=64)
def _sample(law: Pushforward, log_points: int, scrambled: int) -> Sample:
    """One object for equal laws, so that systems compiled apart share its points."""
    return Sample(law, log_points, scrambled)


def _log_points(samples: int) -> int:
    """The binary logarithm of the points of each scrambling, of `samples` in all."""
    return max(1, math.floor(math.log2(samples / SCRAMBLINGS)))


# ---- expectations under it --------------------------------------------------------------------------------
@dataclass(frozen=True)
class SampledGroup:
    """Expectations on the points of one sample.

    `reads`: positions of the arguments that matter here, `law_reads` those of the law's parameters among them.
    `integrands` reads those arguments, the outputs of the sample and the extra normal variables.
    """

    sample: Sample
    reads: tuple[int, ...]
    law_reads: tuple[int, ...]
    integrands: Function
    count: int

    def with_samples(self, samples: int) -> SampledGroup:
        """The same with that many points."""
        return replace(self, sample=_sample(self.sample.law, _log_points(samples), self.sample.scrambled))

    def __call__(self, arguments: list[Any]) -> Estimate:
        """value, error and scatter (count, *shape) of the shape to which the arguments it reads broadcast."""
        own = [np.asarray(arguments[i], dtype=float) for i in self.reads]
        shape = np.broadcast_shapes(*(a.shape for a in own))
        rows = np.stack([np.broadcast_to(a, shape).ravel() for a in own]).T if own else np.empty((1, 0))
        means, errors = np.empty((self.count, len(rows), SCRAMBLINGS)), np.empty((self.count, len(rows)))
        for i, row in enumerate(rows):
            means[:, i], errors[:, i] = self._at(tuple(row.tolist()))
        value = means.mean(axis=2)
        return Estimate(
            value.reshape(self.count, *shape),
            errors.reshape(self.count, *shape),
            (means - value[..., None]).reshape(self.count, *shape, SCRAMBLINGS),
        )

    @functools.cached_property
    def _at(self) -> Callable[[tuple[float, ...]], tuple[Array, Array]]:
        """The mean on each scrambling (count, scramblings), and the error of the integrands (count,); the last kept.

        Of equations that are linear in most unknowns the expectations read only few.
        """
        return functools.lru_cache(maxsize=_KEPT)(self._averaged)

    def _averaged(self, own: tuple[float, ...]) -> tuple[Array, Array]:
        columns = [*self.sample.at(tuple(own[i] for i in self.law_reads)), *self.sample.extra]
        points = 2**self.sample.log_points
        part = min(points, _CHUNK)
        step = max(part, _CHUNK // part * part)
        sums = np.empty((self.count, SCRAMBLINGS * points // part))
        error, ones = np.zeros(self.count), np.ones(part)
        for start in range(0, SCRAMBLINGS * points, step):
            here = slice(start // part, (start + step) // part)
            with np.errstate(all="ignore"):
                found = self.integrands([*map(np.float64, own), *(c[start : start + step] for c in columns)])
            for k, (f, e) in enumerate(found):
                sums[k, here] = f.reshape(-1, part) @ ones if np.size(f) > 1 else f * part
                if e is not None:
                    error[k] += np.sum(e) if np.size(e) > 1 else e * step
        return sums.reshape(self.count, SCRAMBLINGS, -1).sum(axis=2) / points, error / (SCRAMBLINGS * points)


def sampled_groups(
    members: Sequence[Expectation], arguments: tuple[sp.Symbol, ...], accuracy: Accuracy, program: Compile
) -> list[tuple[SampledGroup, list[Expectation]]]:
    """Groups of the expectations, which have Pushforward laws, on common points as far as their base laws agree.

    program: compiles integrands, which may hold inner expectations.
    """
    remaining = sorted(members, key=lambda e: -e.measure.base.dim)
    groups = []
    while remaining:
        base = remaining[0].measure.base
        same = [e for e in remaining if _starts(base, e.measure.base)]
        remaining = [e for e in remaining if e not in same]
        groups.append((_group(base, same, arguments, accuracy, program), same))
    return groups


def _starts(base: Gaussian, first: Gaussian) -> bool:
    """Whether `first` is the law of the first coordinates of `base`."""
    return bool(first.dim <= base.dim and base.marginal(range(first.dim)) == first)


def _group(
    base: Gaussian,
    members: list[Expectation],
    arguments: tuple[sp.Symbol, ...],
    accuracy: Accuracy,
    program: Compile,
) -> SampledGroup:
    inputs = [sp.Dummy(f"g{k + 1}", real=True) for k in range(base.dim)]
    merged: dict[sp.Expr, sp.Symbol] = {}
    names = {law: _merged(law, inputs, merged) for law in dict.fromkeys(e.measure for e in members)}
    integrands = [_inlined(_renamed(e, names[e.measure])) for e in members]
    read = set().union(*(f.free_symbols for f in integrands))
    outputs = [s for s in (*inputs, *merged.values()) if s in read]
    law = Pushforward(base, inputs, [(s, d) for d, s in merged.items()], outputs)
    free = set().union(*(e.free_symbols for e in members))
    own = tuple(s for s in arguments if s in free)
    sample = _sample(law, _log_points(accuracy.samples), accuracy.scrambled)
    return SampledGroup(
        sample,
        tuple(arguments.index(s) for s in own),
        tuple(own.index(s) for s in sample.parameters),
        program(integrands, (*own, *outputs, *_extra)),
        len(members),
    )


def _merged(
    law: Pushforward, inputs: Sequence[sp.Symbol], merged: dict[sp.Expr, sp.Symbol]
) -> dict[sp.Symbol, sp.Symbol]:
    """The names of the law's symbols among `inputs` and `merged`, to which its definitions are added."""
    names: dict[sp.Symbol, sp.Symbol] = dict(zip(law.inputs, inputs, strict=False))
    for s, formula in law.definitions:
        names[s] = merged.setdefault(formula.xreplace(names), sp.Dummy(f"q{len(merged) + 1}", real=True))
    return names


def _renamed(e: Expectation, names: Mapping[sp.Symbol, sp.Symbol]) -> sp.Expr:
    return e.integrand.xreplace({v: names[o] for v, o in zip(e.variables, e.measure.outputs, strict=True)})


def _inlined(integrand: sp.Expr) -> sp.Expr:
    """Inner Gaussian expectations in which it is linear replaced by their integrands, at extra normal variables.

    E[a + b E_x f(x)] = E[a + b f(x)]. Others stay nested: polynomials, which a few nodes average exactly, and laws of
    correlated or many variables.
    """
    inner = {e: sp.Dummy("inner", real=True) for e in expectations(integrand)}
    if not inner:
        return integrand
    marked = integrand.xreplace(inner)
    markers = tuple(inner.values())
    replaced: dict[sp.Expr, sp.Expr] = {}
    for e, marker in inner.items():
        try:
            linear = not marked.diff(marker).has_free(*markers)
        except NotImplementedError:
            linear = False
        point = _point(e) if linear else None
        replaced[e] = e if point is None else e.integrand.xreplace(point)
    return marked.xreplace({marker: replaced[e] for e, marker in inner.items()})


def _point(e: Expectation) -> Mapping[sp.Symbol, sp.Expr] | None:
    """The variables of an inner expectation at a point of the extra normal variables; None where it stays nested."""
    law = e.measure
    uncorrelated = isinstance(law, Gaussian) and law.cov.is_diagonal()
    if not uncorrelated or law.dim > _EXTRA or e.integrand.is_polynomial(*e.variables) or e.integrand.has(Expectation):
        return None
    return {v: law.mean[i] + sp.sqrt(law.cov[i, i]) * _extra[i] for i, v in enumerate(e.variables)}
