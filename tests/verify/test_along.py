"""Theory and simulation along a parameter: right ones agree, wrong ones do not, the figure and the table tell both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from derive.document import TaskError
from derive.task import derive, load
from verify.along import Curve, along, table
from verify.curve_figure import curve_figure, figure_text
from verify.statistics import compare
from verify.verdict import Verdict

pytestmark = pytest.mark.slow
POINTS = (2.0, 4.0)


@pytest.fixture(scope="module")
def curve() -> Curve:
    derivation = derive(load("sparse-token-pooled", {"loss": "square", "lam": "1/10"}))
    quantities = ("test_error", "training_loss")
    return along(derivation, "alpha1", (1, 3), POINTS, quantities=quantities, dimensions=(25, 50, 100), seeds=40)


def test_every_point_is_tested_and_agrees(curve: Curve) -> None:
    assert [(r.quantity.name, r.at) for r in curve.rows] == [
        (q, x) for q in ("test_error", "training_loss") for x in POINTS
    ]
    assert curve.comparison.verdict is Verdict.agrees, curve.rows
    assert curve.grid.tolist() == [1, 2, 3, 4]


def test_replicas_of_different_points_are_independent(curve: Curve) -> None:
    for ensemble in curve.ensembles:
        for columns in ensemble.observed.values():
            assert abs(np.corrcoef(columns.T)[0, 1]) < 0.7  # 40 pairs: 1e-6 is the chance of more


def test_a_theory_that_is_off_by_five_per_cent_is_seen(curve: Curve) -> None:
    shown = {s: v[[1, 3]] * 1.05 for s, v in curve.theory.items()}
    wrong = compare([shown] * 3, curve.ensembles)
    assert wrong.verdict is Verdict.disagrees


def test_table_and_figure(curve: Curve) -> None:
    text = table([replace(curve, name="pooled")])
    assert text.count("\n") == 5
    assert "| pooled | test_error | 2 |" in text
    figure = curve_figure({"one": [curve], "two": [curve]}, ("test_error", "training_loss"))
    assert len(figure.axes) == 4
    assert figure_text(figure).lstrip().startswith("<?xml")


def test_what_is_not_there_is_refused() -> None:
    derivation = derive(load("sparse-token-pooled", {"loss": "square"}))
    with pytest.raises(TaskError, match="alpha is no parameter"):
        along(derivation, "alpha", (1,), (1,), quantities=("test_error",))
