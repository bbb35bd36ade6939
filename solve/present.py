"""Records of exponents and solutions as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["exponents_text", "solution_text"]

_TITLES = {
    "target_sie": "exponent of the target",
    "sie": "exponent with the student",
    "joint_sie": "exponent with positions",
    "dynamic_sie": "exponent after positions escape",
}


def exponents_text(record: Mapping[str, Any]) -> str:
    """The exponents with their certificates, the sign rule and the sample complexity."""
    lines = []
    for name, title in _TITLES.items():
        certificate = record["certificate"][name]
        value = record[name]
        shown = "not established" if value is None else "infinite" if value == "inf" else str(value)
        if value is None and certificate["order"] is None:
            continue
        interval = f" in [{', '.join(certificate['interval'])}]" if certificate["interval"] else ""
        lines.append(f"{title:32} {shown}   ({certificate['kind']}: {certificate['reason']}{interval})")
    trapped = {True: "yes", False: "no", "depends_on_start": "depends on the start"}
    lines.append(f"{'trapped at the start':32} {trapped.get(record['trapped'], record['trapped'])}")
    lines.append(f"{'samples to weak recovery':32} {record['sample_complexity']['law']}: {_words(record)}")
    return "\n".join(lines)


def solution_text(record: Mapping[str, Any]) -> str:
    """Values, series, fixed points and thresholds as tables."""
    tables = [_points(record)] if "points" in record else [_values(record), _series(record), _fixed_points(record)]
    notes = [f"note: {n}" for n in record.get("notes", ())]
    residual = "" if record.get("error") is None else f" (estimated error {_shown(record['error'])})"
    tables.append("\n".join([*notes, f"status: {record['status'] or 'not solved'}{residual}"]))
    return "\n\n".join(p for p in tables if p)


def _words(record: Mapping[str, Any]) -> str:
    return str(record["sample_complexity"]["text"])


def _shown(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float | int) else str(value)


def _values(record: Mapping[str, Any]) -> str:
    reasons = record.get("reasons", {})
    rows = [
        f"{name:24} {_shown(value) if value is not None else '-  (' + reasons.get(name, 'no value') + ')'}"
        for name, value in record.get("values", {}).items()
    ]
    return "\n".join(rows)


def _points(record: Mapping[str, Any]) -> str:
    """A line for each point of a sweep: the parameters, then the values; series are left to the JSON."""
    names = [*record["axis"]["names"], *record["values"]]
    rows = [
        [*point.values(), *(column[i] for column in record["values"].values())]
        for i, point in enumerate(record["points"])
    ]
    return "\n".join("".join(f"{_shown(v):>20}" for v in row) for row in [names, *rows])


def _series(record: Mapping[str, Any]) -> str:
    series, axis = record.get("series") or {}, record.get("axis")
    if not series or axis is None:
        return ""
    names = [axis["name"], *series]
    columns = [axis["values"], *series.values()]
    head = "".join(f"{n:>16}" for n in names)
    rows = ["".join(f"{_shown(v):>16}" for v in row) for row in zip(*columns, strict=True)]
    return "\n".join([head, *rows])


def _fixed_points(record: Mapping[str, Any]) -> str:
    rows = [
        f"fixed point  {', '.join(f'{k} = {_shown(v)}' for k, v in p['at'].items())}   {p['stability']}"
        for p in record.get("fixed_points", ())
    ]
    return "\n".join(rows)
