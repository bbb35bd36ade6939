"""Convex risk minimisation drawn at random: derived, solved and simulated, whatever is drawn."""

from __future__ import annotations

import pytest

from derive.task import derive
from tests.erm_twins import draw
from verify.check import check
from verify.statistics import Verdict, compare

pytestmark = pytest.mark.slow

TWINS = (0, 1, 2)  # two classifiers, one regression


@pytest.mark.parametrize("seed", TWINS)
def test_theory_and_simulation_agree_and_see_five_per_cent(seed: int) -> None:
    """False alarms: 1e-6. A theory off by 5 per cent, and one of half as many samples more, are rejected."""
    checked = check(derive(draw(seed)))
    assert checked.verdict is Verdict.agrees, checked.comparison.tested
    off = [{s: 1.05 * v for s, v in p.items()} for p in checked.predictions]
    assert compare(off, checked.ensembles).verdict is Verdict.disagrees
    moved = checked.plan.moved
    assert moved is not None
    assert compare([moved(1.5)] * len(checked.ensembles), checked.ensembles).verdict is Verdict.disagrees
