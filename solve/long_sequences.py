"""The signal that each model class needs for a target error, from short sequences to long ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sympy as sp

from derive.mechanisms.oracle import ModelClass, Tokens, model_classes
from solve.oracle import Need, needed
from solve.quadrature import Array

__all__ = ["exponents", "needs"]

_theta, _prior, _length, _favoured = sp.symbols("theta pi L k", real=True, positive=True)
_FIRST = 3.0  # a signal below all that are needed
_ABOVE_HARD = 1.02  # attention at its best needs no more than hard attention; from closer the rounds settle early


def needs(
    names: Sequence[str], lengths: Sequence[float], target: float, *, prior: float = 0.5, gamma: sp.Expr = sp.S.One
) -> dict[str, tuple[Need, ...]]:
    """The least theta at which each class errs by `target`, at every length L.

    names: of `derive.mechanisms.oracle.model_classes`: pooled, vectorised, fixed (attention at the inverse temperature
    gamma), attention, hard, bayes. Raises `ValueError` for other names, `SolveError` where no signal is enough.
    """
    models = {m.name: m for m in model_classes(Tokens(_theta, _prior, _length), gamma, _favoured)}
    unknown = sorted(set(names) - set(models))
    if unknown:
        raise ValueError(f"needs: no model class {', '.join(unknown)}; there are {', '.join(models)}.")
    return {name: _along(models[name], models["hard"], lengths, target, prior) for name in names}


def _along(
    model: ModelClass, hard: ModelClass, lengths: Sequence[float], target: float, prior: float
) -> tuple[Need, ...]:
    found: list[Need] = []
    place: Array | None = None
    for length in lengths:
        values = {_prior: prior, _length: float(length)}
        near = _FIRST
        if model.name == "attention":
            near = _ABOVE_HARD * needed(hard, _theta, values, target, _FIRST).value
        if model.error.has_free(_favoured):
            values[_favoured] = length / 2
        found.append(needed(model, _theta, values, target, near, place))
        place = found[-1].place if model.variables else None
    return tuple(found)


def exponents(lengths: Sequence[float], found: Sequence[Need]) -> Array:
    """d log theta / d log L between neighbouring lengths: (n - 1,)."""
    theta = np.array([n.value for n in found])
    slopes: Array = np.diff(np.log(theta)) / np.diff(np.log(np.asarray(lengths, dtype=float)))
    return slopes
