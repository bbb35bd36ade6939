from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import sympy as sp
import xarray as xr

from derive.equations import Define, EquationSystem, Flow, Quantity, Root, Source
from solve.compiled import CompiledSystem, compile_system
from solve.fixed_point import Picard
from solve.flow import escape_time
from solve.result import SolveError, Status
from solve.sweep import critical, exponent, sweep

SOURCE = Source("derived", "in this test")
m, q, r, error, omega = sp.symbols("m q r error omega", real=True)
field, gain = sp.symbols("field gain", real=True)


def quantity(symbol: sp.Symbol, domain: sp.Set = sp.S.Reals, default: Any = None) -> Quantity:
    return Quantity(symbol, f"the {symbol}", domain, default=default)


def compiled(*equations: Any, parameters: Any = (field, gain), start: Any = None) -> CompiledSystem:
    return compile_system(EquationSystem(equations, tuple(map(quantity, parameters)), start or {}))


def magnet() -> CompiledSystem:
    """m = tanh(gain m + field), whose field is a closed form in m; and an unknown of the name of a diagnostic."""
    return compiled(
        Define(quantity(m, sp.Interval(-1, 1)), sp.tanh(gain * m + field), SOURCE),
        Define(quantity(error), 1 - m**2, SOURCE),
        start={m: sp.Rational(9, 10)},
    )


def test_a_branch_is_followed_and_every_point_is_a_solution():
    grid = np.linspace(0.0, 0.6, 13)
    found = sweep(magnet(), {"gain": 1.5}, field, grid)
    assert found.m.dims == ("field",)
    assert found.field.values.tolist() == grid.tolist()
    assert set(found.status.values) == {"converged"}
    inverse = np.arctanh(found.m.values) - 1.5 * found.m.values  # the field that this m belongs to, exactly
    assert inverse == pytest.approx(grid, abs=1e-9)  # tolerance 1e-10 times the slope of atanh, below 10
    assert found.error.values == pytest.approx(1 - found.m.values**2)  # the unknown; the diagnostic is error_
    assert found.error_.values.max() < 1e-9


def test_continuation_stays_on_its_branch_to_the_end_of_it():
    """From above the branch m > 0 lives in negative fields down to the spinodal: a start at -0.9 would miss it."""
    system = magnet()
    edge = np.sqrt(1 - 1 / 1.5)  # m at the spinodal: d field/d m = 0
    spinodal = np.arctanh(edge) - 1.5 * edge
    grid = np.linspace(0.2, spinodal + 1e-4, 9)
    found = sweep(system, {gain: 1.5}, "field", grid, start={m: sp.Rational(1, 2)})
    assert np.all(found.m.values > edge)
    other = system.solve({gain: 1.5, field: grid[-1]}, start={m: -0.9})
    assert other[m] < 0


def test_a_trivial_branch_is_left_where_it_becomes_unstable():
    """At gain < 1 only m = 0 exists; continued past 1 it would hide the solution that the iteration reaches."""
    found = sweep(magnet(), {field: 0}, gain, np.linspace(0.5, 2, 7))
    m_found, gains = found.m.values, found.gain.values
    assert np.all(np.abs(m_found[gains < 1]) < 1e-9)
    assert np.all(m_found[gains > 1] > 0.5)
    residual = m_found - np.tanh(gains * m_found)
    assert np.max(np.abs(residual)) < 1e-9


def test_two_parameters_in_any_order():
    fields, gains = np.array([0.1, 0.3]), np.array([0.5, 1.0, 1.5])
    found = sweep(magnet(), {}, [gain, "field"], [gains, fields])
    assert found.m.dims == ("gain", "field")
    back = np.arctanh(found.m.values) - gains[:, None] * found.m.values
    assert back == pytest.approx(np.tile(fields, (3, 1)), abs=1e-9)  # tolerance
    turned = sweep(magnet(), {}, ["field", gain], [fields, gains])
    assert np.max(np.abs(turned.m.values.T - found.m.values)) < 1e-9  # tolerance


def test_a_point_without_solution_is_nan_and_says_so():
    system = compiled(
        Root(quantity(omega, sp.Interval(0, 1)), omega**2 - gain, SOURCE),
        Define(quantity(r), omega + field, SOURCE),
        Define(quantity(q), 2 * field, SOURCE),
    )
    found = sweep(system, {"field": 1}, "gain", [0.25, 2.0, 0.5])
    assert found.omega.values == pytest.approx([0.5, np.nan, np.sqrt(0.5)], abs=1e-11, nan_ok=True)  # tolerance
    assert np.isnan(found.r.values[1])
    assert found["q"].values.tolist() == [2, 2, 2]  # does not depend on omega
    assert found.status.values[0] == found.status.values[2] == "converged"
    assert found.status.values[1] != "converged"
    assert found.residual.values[1] > 0.5
    assert any("does not change its sign" in n for n in json.loads(found.attrs["notes"]))


def test_an_unconverged_point_does_not_spoil_its_neighbours():
    found = sweep(magnet(), {field: 0}, gain, [-3.0, 0.5], solver=Picard())
    assert found.status.values.tolist() == [Status.oscillates.name, Status.converged.name]
    assert np.isnan(found.m.values[0])


def test_formulas_are_evaluated_at_all_points_at_once():
    system = compiled(Define(quantity(r), field / gain, SOURCE))
    found = sweep(system, {}, [field, gain], [np.arange(200.0), np.arange(200.0)])
    assert found.r.values[3, 2] == 1.5
    assert np.isnan(found.r.values[:, 0]).all()
    assert set(found.status.values[:, 0]) == {"nonfinite"}
    assert set(found.status.values[:, 1:].ravel()) == {"converged"}


def test_flows_have_a_dimension_of_time():
    system = compiled(
        Flow(quantity(m), gain * m * (1 - m**2), SOURCE),
        Define(quantity(r), 1 - m**2, SOURCE),
        parameters=[gain],
        start={m: sp.Rational(1, 100)},
    )
    times, gains = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 8.0])
    found = sweep(system, {}, gain, gains, times=times)
    assert found.m.dims == ("gain", "time")
    truth = 1 / np.sqrt(1 + (1e4 - 1) * np.exp(-2 * gains[:, None] * times))
    assert found.m.values == pytest.approx(truth, rel=1e-9)  # the promised accuracy of a flow
    assert found.r.values == pytest.approx(1 - truth**2, abs=1e-9)
    assert np.all(found.error.values < 1e-8)


def test_a_trajectory_that_ends_early_leaves_the_others():
    system = compiled(Flow(quantity(m), gain * m**2, SOURCE), parameters=[gain], start={m: sp.S.One})
    found = sweep(system, {}, gain, [0.1, 1.0], times=[0.5, 2.0])
    assert found.m.values[0] == pytest.approx([1 / 0.95, 1 / 0.8], rel=1e-9)  # 1/(1 - gain t)
    assert found.m.values[1] == pytest.approx([2.0, np.nan], rel=1e-9, nan_ok=True)
    assert found.status.values.tolist() == ["converged", "diverges"]


def test_a_sweep_is_saved_with_what_made_it(tmp_path):
    system = compile_system(
        EquationSystem(
            (Define(quantity(m), sp.tanh(gain * m + field), SOURCE),),
            (quantity(field, default=sp.Rational(1, 10)), quantity(gain)),
        )
    )
    found = sweep(system, {}, "gain", [0.5, 1.5])
    found.to_netcdf(tmp_path / "sweep.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "sweep.nc", engine="h5netcdf") as again:
        xr.testing.assert_identical(again.load(), found)
        assert json.loads(again.attrs["parameters"]) == {"field": "1/10"}
        assert {"python", "numpy", "scipy", "sympy", "limitlaw"} == set(json.loads(again.attrs["versions"]))
        assert again.m.attrs["long_name"] == "the m"


@pytest.mark.parametrize(
    ("given", "over", "grid", "message"),
    [
        ({"gain": 1, "field": 0}, "gain", [1.0], "both"),
        ({}, ["gain", "field", "m"], [[1.0]] * 3, "one or two"),
        ({}, ["gain", "field"], [[1.0]], "one or two"),
        ({"field": 0}, "gain", [[1.0]], "vector"),
        ({"field": 0}, "gain", [np.nan], "finite"),
        ({"field": 0}, "gian", [1.0], r"missing: gain; unknown: gian \(nearest: gain\)"),
    ],
)
def test_what_does_not_fit_is_refused(given, over, grid, message):
    with pytest.raises(ValueError, match=message):
        sweep(magnet(), given, over, grid)


# ------------------------------------------------------------------------------------------ critical values


def test_a_critical_value_to_rounding():
    found = critical(lambda v: v**2 - 2, (0, 2))
    assert abs(found.value - np.sqrt(2)) <= found.error < 1e-14
    assert not found.jump
    noisy = critical(lambda v: v**2 - 2, (0, 2), f_error=1e-6)
    assert noisy.error == pytest.approx(1e-6 / (2 * np.sqrt(2)), rel=1e-3)  # over the slope
    assert critical(lambda v: v, (0, 1)).value == 0


def test_a_critical_parameter_of_a_solved_system():
    """m reaches 1/2 where field = atanh(1/2) - gain/2."""
    system = magnet()
    found = critical(lambda g: float(system.solve({gain: g, field: 0.1})[m]) - 0.5, (0.0, 2.0), f_error=1e-10)
    assert abs(found.value - 2 * (np.arctanh(0.5) - 0.1)) <= found.error
    assert found.error < 1e-9


def test_a_jump_is_told_from_a_root():
    found = critical(lambda v: np.sign(v - 0.3) + 0.1 * v, (0, 1))
    assert found.jump
    assert found.value == pytest.approx(0.3, abs=1e-14)
    assert not critical(lambda v: np.cbrt(v - 0.3), (0, 1)).jump


def test_no_sign_change_and_no_number_are_errors():
    with pytest.raises(SolveError, match="does not change its sign"):
        critical(lambda v: v**2 + 1, (-1, 1))
    with pytest.raises(SolveError, match="must be finite"):
        critical(lambda v: np.nan, (-1, 1))


# ------------------------------------------------------------------------------------------ exponents


def test_an_exponent_with_an_honest_error():
    """The slope lies within 1.96 stderr in 95 per cent of 2000 fits, to three binomial deviations of 0.5 per cent."""
    rng = np.random.default_rng(3)
    n = np.geomspace(10, 1000, 12)
    sigma = 0.03 * n**1.5 * rng.uniform(0.5, 2, n.size)
    fits = [exponent(n, n**1.5 + sigma * rng.normal(size=n.size), sigma) for _ in range(2000)]
    z = np.array([(f.slope - 1.5) / f.stderr for f in fits])
    assert np.mean(np.abs(z) < 1.96) > 0.95 - 0.015  # chi2 above 1 widens, never narrows
    assert np.std(z) < 1.05
    assert np.mean([f.chi2 for f in fits]) == pytest.approx(1, abs=0.06)  # sqrt(2/10/2000) = 0.01, and log bias


def test_an_exponent_without_errors_uses_the_scatter():
    n = np.array([1.0, 2, 4, 8])
    exact = exponent(n, 3 * n**-0.5)
    assert exact.slope == pytest.approx(-0.5, abs=1e-14)
    assert exact.stderr < 1e-14
    assert np.exp(exact.intercept) == pytest.approx(3)
    assert exponent(n, 3 * n**-0.5 * [1, 1.1, 0.9, 1]).stderr > 0.02


def test_exponent_of_an_escape_time():
    m0 = np.geomspace(1e-6, 1e-4, 3)
    times = [escape_time(lambda v: v**3, [v], 0.5) for v in m0]
    fit = exponent(m0, [t.time for t in times], [t.error for t in times])
    assert fit.slope == pytest.approx(-2, abs=1e-6)  # (1/m0^2 - 4)/2: the correction at m0 = 1e-4 is 4e-8


@pytest.mark.parametrize("y", [[1.0, 2.0], [1.0, -2.0, 3.0], [1.0, np.nan, 3.0]])
def test_what_cannot_be_fitted_is_refused(y):
    with pytest.raises(ValueError, match="exponent"):
        exponent(np.arange(1.0, len(y) + 1), y)
