"""A derivation solved along one or two parameters, together: the record and the data set of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from derive.document import TaskError
from derive.settings import Grid
from derive.task import Derivation
from solve.compiled import CompiledSystem, compile_system
from solve.exponents import number
from solve.result import Array, Prediction
from solve.solution import given_values

__all__ = ["sweep_record"]

_MOST_POINTS = 100_000
_MOST_ESCAPES = 500


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
    data = _solved(derivation, columns)
    shape = tuple(len(g) for g in grids.values())
    if save is not None:
        _dataset(data, grids, shape).to_netcdf(Path(save), engine="h5netcdf")
    prediction: Prediction = data["prediction"]
    return {
        "status": prediction.status.name,
        "residual": number(prediction.residual),
        "error": number(prediction.error),
        "axis": {"names": list(grids), "values": [[float(v) for v in g] for g in grids.values()]},
        "points": [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)],
        "values": {name: [number(float(v)) for v in column] for name, column in data["values"].items()},
        "series": {name: np.moveaxis(x, 0, -1).tolist() for name, x in data["series"].items()},
        "times": data["times"],
        "missing": [],
        "notes": list(prediction.notes),
    }


def _solved(derivation: Derivation[Any], columns: dict[str, Array]) -> dict[str, Any]:
    values: dict[sp.Symbol, Any] = dict(given_values(derivation, dict.fromkeys(columns, 0.0)))
    values |= {s: columns[s.name] for s in values if s.name in columns}
    count = len(next(iter(columns.values())))
    compiled = compile_system(derivation.system)
    own = {q.symbol: values[q.symbol] for q in derivation.system.parameters if q.symbol in values}
    laws = _laws(derivation, values, count)
    if not compiled.flow_unknowns:
        prediction = compiled.solve(own, throw=False)
        laws |= {s.name: np.broadcast_to(v, count) for s, v in prediction.values.items()}
        return {"prediction": prediction, "values": laws, "series": {}, "times": None}
    times = derivation.task.solve.times.points()
    prediction = compiled.integrate(own, times, throw=False)
    shape = (len(times), count)
    series = {
        s.name: np.broadcast_to(x if x.ndim == 2 else np.reshape(x, (-1, 1)), shape)
        for s, x in prediction.values.items()
    }
    if count <= _MOST_ESCAPES:
        laws["escape_time"] = _escapes(compiled, own, count, float(derivation.task.solve.escape))
    return {"prediction": prediction, "values": laws, "series": series, "times": times}


def _laws(derivation: Derivation[Any], values: dict[sp.Symbol, Any], count: int) -> dict[str, Array]:
    if derivation.laws is None:
        return {}
    compiled = compile_system(derivation.laws)
    possible = [u for u in derivation.laws.unknowns if compiled.needs(u) <= set(values)]
    if not possible:
        return {}
    part = compiled.restricted(possible)
    own = {q.symbol: values[q.symbol] for q in part.system.parameters if q.symbol in values}
    found = part.solve(own, throw=False)
    return {s.name: np.broadcast_to(v, count) for s, v in found.values.items()}


def _escapes(compiled: CompiledSystem, own: dict[sp.Symbol, Any], count: int, threshold: float) -> Array:
    rows = [{s: float(np.broadcast_to(v, count)[i]) for s, v in own.items()} for i in range(count)]
    return np.array([compiled.escape_time(row, threshold).time for row in rows])


def _dataset(data: dict[str, Any], grids: dict[str, Array], shape: tuple[int, ...]) -> xr.Dataset:
    names = tuple(grids)
    variables: dict[str, Any] = {name: (names, np.reshape(v, shape)) for name, v in data["values"].items()}
    coordinates: dict[str, Any] = dict(grids)
    if data["times"] is not None:
        coordinates["tau"] = data["times"]
        for name, x in data["series"].items():
            variables[f"{name}_of_tau"] = ((*names, "tau"), np.moveaxis(x, 0, -1).reshape(*shape, -1))
    prediction: Prediction = data["prediction"]
    attributes = {"status": prediction.status.name, "residual": prediction.residual, "error": prediction.error}
    return xr.Dataset(variables, coordinates, attributes)
