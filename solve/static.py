"""A derivation without flows in numbers: its fixed point, directly or led to, or the limit where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from derive.equations import Equation
from derive.mechanisms.convex_erm import rho_symbol, step_symbol
from derive.task import Derivation, TaskSpec
from solve.compiled import CompiledSystem, compile_system
from solve.continuation import QUICK, continued
from solve.given import Given
from solve.lower import lower
from solve.quadrature import Accuracy
from solve.result import Prediction, SolveError, Status

__all__ = ["StaticSolver", "accuracy_of"]

_SMALL_RIDGES = tuple(10 ** (-k / 2) for k in range(17))
_GROWS = 0.1  # exponent in the ridge, of a norm that is taken to run to infinity
_ROUGH = 1e-2
_SAME = 1e-6
_FAR = 1e12  # an order parameter that diverges, where what is bounded has reached its limit
_LIMIT_NOTE = (
    "{what} = 0, where this minimum is not unique: these are the limits as it vanishes (of the least norm), V that of "
    "{what} times V."
)
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
    def eased(self) -> tuple[CompiledSystem, sp.Symbol] | None:
        """The system with a parameter that eases it, compiled."""
        found = self.derivation.task.eased
        return None if found is None else (compile_system(found[0], self.main.accuracy), found[1])

    @cached_property
    def limit(self) -> CompiledSystem | None:
        """The system of the limit, compiled."""
        found = self.derivation.task.limit
        return None if found is None else compile_system(found, self.main.accuracy)

    def solve(self, values: Values, start: Values | None = None, *, throw: bool = True) -> Prediction:
        """The unknowns at these values of the parameters; start: a solution nearby.

        Where nothing converges `SolveError` is raised, or with throw=False the status says so.
        """
        found = self.main.solve(values, solver=QUICK, start=start, throw=False)
        if found.status is not Status.converged and self.eased is not None:
            found = continued(*self.eased, values)
        if found.status is not Status.converged and self._vanishes(values):
            found = self._at_the_limit(values, found)
        if throw and found.status not in (Status.converged, Status.diverges):
            raise SolveError(
                f"{', '.join(f'{s}: {float(v):.6g}' for s, v in values.items())}: {found.status.value} Last residual "
                f"{found.residual:.2e}.",
                found.status,
                found.residual,
            )
        return found

    def _vanishes(self, values: Values) -> bool:
        vanishing = self.derivation.task.vanishing
        if vanishing is None or any(s not in values for s in vanishing.free_symbols) or self.limit is None:
            return False
        return float(vanishing.xreplace({s: sp.Float(v) for s, v in values.items()})) == 0

    def _at_the_limit(self, values: Values, failed: Prediction) -> Prediction:
        """The limit of a vanishing ridge; where none is and the weights grow without bound, what stays bounded."""
        compiled = self.limit
        assert compiled is not None
        near: dict[sp.Symbol, float] | None = None
        growth, before = 0.0, np.nan
        for eps in _SMALL_RIDGES:
            here = self._with_ridge(values, eps, near)
            if here is None:
                continue
            found = compiled.solve(values, start={**here, step_symbol: here[step_symbol] * eps}, throw=False)
            if found.status is Status.converged and _is_known(found):
                note = _LIMIT_NOTE.format(what=str(self.derivation.task.vanishing))
                return replace(found, notes=(*found.notes, note))
            if near is not None:
                growth = float(np.log(here[rho_symbol] / near[rho_symbol]) / np.log(before / eps))
            near, before = here, eps
        return self._diverging(values, failed) if growth > _GROWS else failed

    def _with_ridge(self, values: Values, eps: float, near: Given | None) -> dict[sp.Symbol, float] | None:
        """The state of the solution with the ridge raised by eps."""
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
        far = [u for u in implicit if system.equation(u).unknown.domain == sp.Interval.open(0, sp.oo)]
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


def _is_known(found: Prediction) -> bool:
    """Whether rho and V have digits: next to a singularity the residual is small and their error is not."""
    return all(float(found.errors[s]) <= _ROUGH * float(found[s]) for s in (rho_symbol, step_symbol))


def _value(equation: Equation, at: Mapping[sp.Symbol, float]) -> float:
    """The right-hand side there, nan where it reads what is not known."""
    symbols = sorted(equation.rhs.free_symbols, key=str)
    if not set(symbols) <= at.keys():
        return float("nan")
    (value,), _ = lower([equation.rhs], symbols)(*(at[s] for s in symbols))
    return float(value)
