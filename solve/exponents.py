"""Exponents as a record of numbers: what `limitlaw sie` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy as sp

from derive.expectation import Expectation
from derive.exponent import Coefficient, Exponent, Trapped, sample_complexity
from derive.students import GenericActivation, GenericOddActivation
from derive.text import text
from solve.lower import lower

__all__ = ["exponent_record", "number"]

_NAMES = ("target_sie", "sie", "joint_sie", "dynamic_sie")
_LARGEST_LISTED = 200


def number(value: float) -> float | str | None:
    """A JSON number: finite, "inf", "-inf", or None for nan."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(value)


def exponent_record(exponents: Mapping[str, Exponent]) -> dict[str, Any]:
    """The exponents, their certificates, the sign rule, the sample complexity and the coefficients looked at.

    Sign rule and complexity are those of the last exponent there is: with positions, of the dynamics.
    A name without an exponent is None, with the reason under `certificate`.
    """
    ruling = exponents[next(name for name in reversed(_NAMES) if name in exponents)]
    law, words = sample_complexity(ruling)
    trapped = {Trapped.YES: True, Trapped.NO: False}.get(ruling.trapped, ruling.trapped.value)
    seen = [c for name in _NAMES if name in exponents for c in exponents[name].coefficients]
    return {
        **{name: _value(exponents.get(name)) for name in _NAMES},
        "trapped": trapped,
        "sample_complexity": {"law": law, "text": words},
        "certificate": {name: _certificate(exponents.get(name)) for name in _NAMES},
        "coefficients": [_coefficient(c) for c in seen[:_LARGEST_LISTED]],
        "coefficients_left_out": max(0, len(seen) - _LARGEST_LISTED),
    }


def _value(exponent: Exponent | None) -> int | str | None:
    if exponent is None or exponent.value is None:
        return None
    return "inf" if exponent.value is sp.oo else int(exponent.value)


def _certificate(exponent: Exponent | None) -> dict[str, Any]:
    if exponent is None:
        reason = "the task has no positional encodings"
        return {"kind": "exact", "reason": reason, "order": None, "interval": None}
    interval = None if exponent.interval is None else list(exponent.interval)
    return {
        "kind": exponent.certificate.value,
        "reason": exponent.reason,
        "order": exponent.order,
        "interval": interval,
    }


def _coefficient(c: Coefficient) -> dict[str, Any]:
    interval = None if c.decision.interval is None else list(c.decision.interval)
    record: dict[str, Any] = {"of": c.of, "index": list(c.index), "exact": None, "value": None, "interval": interval}
    if not c.value.has(Expectation):
        record["exact"] = text(c.value)
    if not c.value.free_symbols and not c.value.has(GenericActivation, GenericOddActivation):
        values, _ = lower([c.value], [])()
        record["value"] = number(float(values[0]))
    return record
