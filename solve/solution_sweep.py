"""A derivation solved along one or two parameters, together: the record and the data set of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from derive.document import TaskError
from derive.mechanisms.escape import threshold
from derive.parse import nearest_name
from derive.settings import Grid
from derive.task import Derivation
from derive.tasks.sequence_single_index import SequenceSingleIndex
from derive.text import domain_text
from solve.compiled import CompiledSystem
from solve.exponents import number
from solve.result import Array, Prediction, Status, worst
from solve.solution import evaluated_laws, evaluated_system, given_values, missing_parameters, with_constants
from solve.static import StaticSolver
from solve.transitions import critical_columns, region_column

__all__ = ["sweep_record"]

_MOST_POINTS = 100_000
_MOST_ESCAPES = 500
_MOST_FLOWS = 1000  # of a task with a landscape, whose diagrams need no flow


def sweep_record(derivation: Derivation[Any], sweeps: Sequence[tuple[str, str]], save: str | None) -> dict[str, Any]:
    """The record `solve/1` of a sweep: lists per point, the second parameter running fastest.

    sweeps: (name, start:stop:count[:log]), one or two. save: a NetCDF file to write the same data to.
    Raises `TaskError` for more than two sweeps, unknown names, too many points or values that are missing.
    """
    if len(sweeps) > 2:
        raise TaskError(f"--sweep is given {len(sweeps)} times; at most two parameters are swept.")
    grids = {name: np.array(Grid.read(text, f"--sweep {name}").points()) for name, text in sweeps}
    if len(grids) < len(sweeps) or np.prod([len(g) for g in grids.values()]) > _MOST_POINTS:
        raise TaskError(f"--sweep: two different parameters, and at most {_MOST_POINTS} points in all.")
    mesh = np.meshgrid(*grids.values(), indexing="ij")
    columns = {name: m.ravel() for name, m in zip(grids, mesh, strict=True)}
    _check_columns(derivation, columns)
    data = _solved(derivation, columns)
    if save is not None:
        _dataset(data, grids).to_netcdf(Path(save), engine="h5netcdf")
    prediction = data.prediction
    return {
        "status": None if prediction is None else prediction.status.name,
        "residual": None if prediction is None else number(prediction.residual),
        "error": None if prediction is None else number(prediction.error),
        "axis": {"names": list(grids), "values": [[float(v) for v in g] for g in grids.values()]},
        "points": [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)],
        "values": {name: _numbers(column) for name, column in data.values.items()} | data.words,
        "series": {name: [_numbers(point) for point in x.T] for name, x in data.series.items()},
        "times": list(data.times) or None,
        "reasons": data.reasons,
        "missing": list(data.missing),
        "notes": [] if prediction is None else list(prediction.notes),
    }


@dataclass(frozen=True, eq=False)
class _Swept:
    """values, words: (n_points,); series: (n_times, n_points).

    reasons: why something is not there, or not everywhere.
    """

    prediction: Prediction | None
    values: dict[str, Array]
    series: dict[str, Array]
    times: Sequence[float]
    reasons: dict[str, str]
    missing: tuple[str, ...]
    words: dict[str, list[str | None]] = field(default_factory=dict)


def _check_columns(derivation: Derivation[Any], columns: Mapping[str, Array]) -> None:
    quantities = {
        q.symbol.name: q for s in (derivation.system, derivation.laws, derivation.thresholds) if s for q in s.parameters
    }
    for name, column in columns.items():
        if name not in quantities:
            near = nearest_name(name, quantities)
            hint = f"; the nearest is {near}" if near else ""
            known = ", ".join(sorted(quantities)) or "none"
            raise TaskError(f"--sweep {name[:60]}: no parameter of that name{hint}. There are {known}.")
        domain = quantities[name].domain
        outside = [float(v) for v in column[[0, -1]] if sp.Rational(float(v)) not in domain]
        if outside:
            raise TaskError(f"--sweep {name}: the value {outside[0]:g} is outside the domain {domain_text(domain)}.")


def _solved(derivation: Derivation[Any], columns: dict[str, Array]) -> _Swept:
    values: dict[sp.Symbol, Any] = dict(given_values(derivation, dict.fromkeys(columns, 0.0)))
    values |= {s: columns[s.name] for s in values if s.name in columns}
    count = len(next(iter(columns.values())))
    reasons: dict[str, str] = {}
    found = evaluated_laws(derivation.laws, values, reasons)
    laws = {} if found is None else {s.name: np.broadcast_to(v, count) for s, v in found.values.items()}
    words = _transitions(derivation, values, count, laws, reasons)
    compiled = evaluated_system(derivation)
    missing = missing_parameters(compiled, values)
    if missing:
        return _Swept(None, laws, {}, (), reasons, missing, words)
    if words and count > _MOST_FLOWS:
        reasons |= {s.name: f"flows are integrated for up to {_MOST_FLOWS} points" for s in derivation.system.unknowns}
        return _Swept(None, laws, {}, (), reasons, (), words)
    own = {q.symbol: values[q.symbol] for q in compiled.system.parameters if q.symbol in values}
    if not compiled.flow_unknowns:
        prediction, notes = _along(StaticSolver(derivation, compiled), own, count)
        laws |= {s.name: np.broadcast_to(v, count) for s, v in prediction.values.items()}
        return _Swept(prediction, laws, {}, (), reasons | notes, (), words)
    times = derivation.task.solve.times.points()
    _, _, first = compiled.rate(own)
    start = {s: np.broadcast_to(x, count) for s, x in zip(compiled.flow_unknowns, first, strict=True)}
    prediction = with_constants(compiled, compiled.integrate(own, times, start=start, throw=False), own)
    shape = (len(times), count)
    series = {s.name: np.broadcast_to(x, shape) for s, x in prediction.values.items()}
    unsolved = [s for s, x in prediction.values.items() if np.isnan(x).any()]
    reasons |= {s.name: prediction.statuses.get(s, prediction.status).value for s in unsolved}
    # the laws and the flow are asked about one threshold
    reach = np.broadcast_to(columns.get(threshold.name, float(derivation.task.solve.escape)), count)
    if count <= _MOST_ESCAPES:
        laws["escape_time"] = _escapes(compiled, own, count, reach, reasons)
    else:
        reasons["escape_time"] = f"escape times are found for up to {_MOST_ESCAPES} points"
    return _Swept(prediction, laws, series, times, reasons, (), words)


def _along(solver: StaticSolver, own: Mapping[sp.Symbol, Any], count: int) -> tuple[Prediction, dict[str, str]]:
    """The solutions at all points, each from the last, as one; why some are not there."""
    found: list[Prediction] = []
    start: dict[sp.Symbol, float] | None = None
    for i in range(count):
        here = {s: float(np.broadcast_to(v, count)[i]) for s, v in own.items()}
        found.append(solver.solve(here, start, throw=False))
        if found[-1].status is Status.converged:
            start = {s: float(found[-1][s]) for s in solver.main.iterated if s in found[-1].values}
    reasons: dict[str, str] = {}
    values, errors = {}, {}
    for s in solver.main.system.unknowns:
        known = [p.status in (Status.converged, Status.diverges) and s in p.values for p in found]
        values[s] = np.array([float(p.values[s]) if k else np.nan for p, k in zip(found, known, strict=True)])
        errors[s] = np.array([float(p.errors[s]) if k else np.inf for p, k in zip(found, known, strict=True)])
        failed = [p.status.value for p, k in zip(found, known, strict=True) if not k]
        reasons |= {s.name: failed[0]} if failed else {}
    return (
        Prediction(
            values=values,
            axis=None,
            status=worst(*(p.status for p in found)),
            residual=max(p.residual for p in found),
            error=max((float(np.max(e[np.isfinite(e)], initial=0.0)) for e in errors.values()), default=0.0),
            evaluations=sum(p.evaluations for p in found),
            errors=errors,
            notes=tuple(dict.fromkeys(n for p in found for n in p.notes)),
        ),
        reasons,
    )


def _transitions(
    derivation: Derivation[Any],
    values: Mapping[sp.Symbol, Any],
    count: int,
    found: dict[str, Array],
    reasons: dict[str, str],
) -> dict[str, list[str | None]]:
    """Critical values, added to `found`, and the words of the regions at each point."""
    task = derivation.task
    if not isinstance(task, SequenceSingleIndex) or task.landscape is None:
        return {}
    if derivation.thresholds is not None:
        found |= critical_columns(derivation.thresholds, values, count, reasons)
    region = region_column(task, values, reasons)
    return {} if region is None else {"region": np.broadcast_to(region, count).tolist()}


def _numbers(column: Array) -> list[float | str | None]:
    return [number(float(v)) for v in column]


def _escapes(
    compiled: CompiledSystem, own: dict[sp.Symbol, Any], count: int, reach: Array, reasons: dict[str, str]
) -> Array:
    rows = [{s: float(np.broadcast_to(v, count)[i]) for s, v in own.items()} for i in range(count)]
    found = [compiled.escape_time(row, float(r)) for row, r in zip(rows, reach, strict=True)]
    undecided = [e.reason for e in found if np.isnan(e.time)]
    reasons |= {"escape_time": undecided[0]} if undecided else {}
    return np.array([e.time for e in found])


def _dataset(data: _Swept, grids: dict[str, Array]) -> xr.Dataset:
    names, shape = tuple(grids), tuple(len(g) for g in grids.values())
    variables: dict[str, Any] = {name: (names, np.reshape(v, shape)) for name, v in data.values.items()}
    coordinates: dict[str, Any] = dict(grids)
    if data.times:
        coordinates["tau"] = list(data.times)
        for name, x in data.series.items():
            variables[f"{name}_of_tau"] = ((*names, "tau"), x.T.reshape(*shape, -1))
    found = data.prediction
    attributes = (
        {} if found is None else {"status": found.status.name, "residual": found.residual, "error": found.error}
    )
    return xr.Dataset(variables, coordinates, attributes)
