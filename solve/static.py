"""A derivation without flows in numbers: its fixed point, directly or led to, or the limit where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from derive.equations import Equation, EquationSystem
from derive.task import Derivation, Limit, TaskSpec
from solve.compiled import CompiledSystem, compile_system
from solve.continuation import NEGLIGIBLE, QUICK, continued
from solve.given import Given
from solve.lower import lower
from solve.quadrature import Accuracy
from solve.result import Array, Prediction, SolveError, Status

__all__ = ["StaticSolver", "accuracy_of"]

_EASING = tuple(10 ** (-k / 2) for k in range(17))
_LEAST = 1e-8
_COARSE = 2**13  # sampled points
_GROWS = 0.1  # exponent in the easing, of an unknown that is taken to run to infinity
_ROUGH = 1e-2
_SAME = 1e-6
_FAR = 1e12  # an order parameter that diverges, where what is bounded has reached its limit
_LIMIT_NOTE = (
    "{what} = 0, where the solution is not unique: these are the limits as it vanishes (of the least norm), {scaled} "
    "that of {what} times {scaled}."
)
_NOTHING = 1e-8
_AT_A_THRESHOLD = "at a threshold, between samples that determine the minimum and samples that leave a choice:"
_SINGULAR_NOTE = "the solution diverges here; finite values are limits."

Values = Mapping[sp.Symbol, float]


def accuracy_of(task: TaskSpec) -> Accuracy:
    """The accuracy that the task's settings ask for."""
    return Accuracy(samples=task.solve.samples)


@dataclass(frozen=True, eq=False)
class StaticSolver:
    """Solves a task without flows at one point of its parameters after the other."""

    derivation: Derivation[Any]
    main: CompiledSystem

    @cached_property
    def proxy(self) -> CompiledSystem | None:
        """The system whose solution is a start, compiled for few sampled points."""
        found = self.derivation.task.proxy
        return None if found is None else compile_system(found, _coarse(self.main.accuracy))

    @cached_property
    def eased(self) -> tuple[CompiledSystem, sp.Symbol] | None:
        """The system with a parameter that eases it, compiled."""
        found = self.derivation.task.eased
        return None if found is None else (compile_system(found[0], _coarse(self.main.accuracy)), found[1])

    @cached_property
    def limits(self) -> tuple[tuple[CompiledSystem, Limit], ...]:
        """The limits with their systems compiled."""
        return tuple((compile_system(f.system, self.main.accuracy), f) for f in self.derivation.task.limits)

    def solve(self, values: Values, start: Values | None = None, *, throw: bool = True) -> Prediction:
        """The unknowns at these values of the parameters; start: a solution nearby.

        Where nothing converges `SolveError` is raised, or with throw=False the status says so.
        """
        start = start or self._from_proxy(values)
        found = self.main.solve(values, solver=QUICK, start=start, throw=False)
        missed = found.status is not Status.converged
        vanishing = [pair for pair in self.limits if _vanishes(pair[1], values)] if missed else []
        for compiled, limit in vanishing:
            if limit.direct and found.status is not Status.converged:
                found = self._direct_limit(compiled, limit, values)
        if found.status is not Status.converged and self.eased is not None:
            found = self._eased_to(values)
        for compiled, limit in vanishing:
            if not limit.direct and found.status is not Status.converged:
                found = self._at_the_limit(compiled, limit, values, found)
        if throw and found.status not in (Status.converged, Status.diverges):
            raise SolveError(
                f"{', '.join(f'{s}: {float(v):.6g}' for s, v in values.items())}: {found.status.value} Last residual "
                f"{found.residual:.2e}.",
                found.status,
                found.residual,
            )
        return self._cautioned(found, values)

    def _cautioned(self, found: Prediction, values: Values) -> Prediction:
        """With what the task says of such a solution."""
        known = {**{s: float(v) for s, v in values.items()}, **{s: float(v) for s, v in found.values.items()}}
        notes = []
        for caution in self.derivation.task.cautions:
            symbols = sorted(caution.excess.free_symbols, key=str)
            if set(symbols) <= known.keys():
                (excess,), _ = lower([caution.excess], symbols)(*(known[s] for s in symbols))
                notes += [caution.text] if excess > 0 else []
        return replace(found, notes=(*found.notes, *notes)) if notes else found

    def _from_proxy(self, values: Values) -> Values | None:
        """The solution of the proxy, None where there is none."""
        if self.proxy is None:
            return None
        near = self.proxy.restricted(self.main.iterated).solve(values, solver=QUICK, throw=False)
        known = {s: float(near[s]) for s in self.main.iterated}
        return known if near.status is Status.converged and np.isfinite(list(known.values())).all() else None

    def _eased_to(self, values: Values) -> Prediction:
        """The solution that eased systems lead to, on few sampled points until the end."""
        assert self.eased is not None
        # where a limit may take over there is none to be reached beyond rounding
        vanishes = any(_vanishes(limit, values) for _, limit in self.limits if not limit.direct)
        near = continued(*self.eased, values, least=_LEAST if vanishes else NEGLIGIBLE)
        if near.status is not Status.converged or self.eased[0].accuracy == self.main.accuracy:
            return near
        start = {s: float(near[s]) for s in self.main.iterated}
        if not self._inside(start):
            # at the end of a domain, where the eased system of other unknowns still has its solution
            return near
        found = self.main.solve(values, solver=QUICK, start=start, throw=False)
        return replace(found, evaluations=found.evaluations + near.evaluations)

    def _inside(self, start: Values) -> bool:
        """Whether each value lies in the domain of its unknown."""
        domains = {e.unknown.symbol: e.unknown.domain for e in self.main.system.equations}
        return all(domains[s].contains(sp.Float(v)) == sp.true for s, v in start.items())

    def _direct_limit(self, compiled: CompiledSystem, limit: Limit, values: Values) -> Prediction:
        """The limit from its own start; not converged where an unknown leaves its domain."""
        found = compiled.solve(values, throw=False)
        domains = {e.unknown.symbol: e.unknown.domain for e in limit.system.equations}
        outside = [s for s, v in found.values.items() if domains[s].contains(sp.Float(float(v))) != sp.true]
        if found.status is not Status.converged or any(not _at_an_end(found.values[s]) for s in outside):
            return replace(found, status=Status.max_steps)
        notes = [f"{limit.vanishing} = 0: the limit as it vanishes."]
        if outside:
            notes.append(f"{_AT_A_THRESHOLD} {', '.join(sorted(s.name for s in outside))} end here, at 0 or infinity.")
        known = {s: np.full_like(v, np.nan) if s in outside else v for s, v in found.values.items()}
        return replace(found, values=known, notes=(*found.notes, *notes))

    def _at_the_limit(self, compiled: CompiledSystem, limit: Limit, values: Values, failed: Prediction) -> Prediction:
        """The limit, sought from eased solutions; where there is none and they run away, what stays bounded."""
        sizes = _half_lines(limit.system) & compiled.iterated
        near: dict[sp.Symbol, float] | None = None
        growth, before = 0.0, np.nan
        for eps in _EASING:
            here = self._eased_by(eps, values, near)
            if here is None:
                continue
            start = {s: v * eps if s in limit.scaled else v for s, v in here.items()}
            found = compiled.solve(values, start=start, throw=False)
            # next to a singularity the residual is small and the errors are not
            if found.status is Status.converged and all(found.errors[s] <= _ROUGH * found[s] for s in sizes):
                scaled = ", ".join(sorted(s.name for s in limit.scaled))
                note = _LIMIT_NOTE.format(what=str(limit.vanishing), scaled=scaled)
                return replace(found, notes=(*found.notes, note))
            if near is not None:
                ratios = [here[s] / near[s] for s in sizes - limit.scaled]
                growth = float(np.log(max(ratios, default=1.0)) / np.log(before / eps))
            near, before = here, eps
        return self._diverging(values, failed) if growth > _GROWS else failed

    def _eased_by(self, eps: float, values: Values, near: Given | None) -> dict[sp.Symbol, float] | None:
        """The state of the solution of the eased system."""
        if self.eased is None:
            return None
        compiled, easing = self.eased
        found = compiled.solve({**values, easing: eps}, start=near, throw=False)
        if found.status is not Status.converged:
            return None
        return {s: float(found[s]) for s in compiled.iterated}

    def _diverging(self, values: Values, failed: Prediction) -> Prediction:
        """What has a limit as the order parameters on half-lines run to infinity, at whatever rates."""
        system = self.derivation.system
        implicit = [u for b in self.main.blocks for u in b.state]
        far = [u for u in implicit if u in _half_lines(system)]
        explicit = [e for e in system.equations if e.unknown.symbol not in implicit]
        ends = []
        for rates in (dict.fromkeys(far, 1.0), {u: 1.0 + i for i, u in enumerate(far)}):
            at = {**dict(values), **dict.fromkeys(implicit, 0.0), **{u: _FAR ** rates[u] for u in far}}
            ends.append([_value(e, at) for e in explicit])
        known = {u: np.array(np.inf) for u in far}
        for e, one, other in zip(explicit, *ends, strict=True):
            same = np.isfinite(one) and abs(one - other) < _SAME
            known[e.unknown.symbol] = np.array(one if same else np.nan)
        unknowns = [u for u in system.unknowns if u in known]
        return replace(
            failed,
            values={u: known[u] for u in unknowns},
            status=Status.diverges,
            error=np.inf,
            errors={u: np.zeros(()) for u in unknowns},
            statuses=dict.fromkeys(unknowns, Status.diverges),
            notes=(*failed.notes, _SINGULAR_NOTE),
        )


def _at_an_end(value: Array) -> bool:
    """Whether it is 0 or infinite but for rounding."""
    size = abs(float(value))
    return size < _NOTHING or size > 1 / _NOTHING


def _coarse(accuracy: Accuracy) -> Accuracy:
    """Of a path to the solution."""
    return replace(accuracy, samples=min(accuracy.samples, _COARSE))


def _vanishes(limit: Limit, values: Values) -> bool:
    known = {s: sp.Float(v) for s, v in values.items()}
    return limit.vanishing.free_symbols <= known.keys() and float(limit.vanishing.xreplace(known)) == 0


def _half_lines(system: EquationSystem) -> set[sp.Symbol]:
    """The unknowns that are positive and may be of any size."""
    return {e.unknown.symbol for e in system.equations if e.unknown.domain == sp.Interval.open(0, sp.oo)}


def _value(equation: Equation, at: Mapping[sp.Symbol, float]) -> float:
    """The right-hand side there, nan where it reads what is not known."""
    symbols = sorted(equation.rhs.free_symbols, key=str)
    if not set(symbols) <= at.keys():
        return float("nan")
    (value,), _ = lower([equation.rhs], symbols)(*(at[s] for s in symbols))
    return float(value)
