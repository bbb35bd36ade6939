"""Speed of free convolutions, also as ratios to plain ways in the same run; `-m benchmark -n 0`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from solve.base_spectra import AtomicBase, WishartBase
from solve.free_convolution import convolve

pytestmark = pytest.mark.benchmark
BUDGET = 3.0  # times the target: a busy machine


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def power_law(d: int) -> AtomicBase:
    return AtomicBase(math.sqrt(d) / np.arange(1, d + 1), np.full(d, 1 / d))


@pytest.mark.parametrize("kappa0", [0.2, 0.5, 1.0, 3.0])
def test_a_wishart_law_with_two_breaks(benchmark, kappa0: float):
    benchmark(lambda: convolve(WishartBase(kappa0), 1.7).nodes([0.5, 1.2]))
    assert benchmark.stats.stats.min < 0.003 * BUDGET


def test_against_a_damped_inversion_at_a_small_imaginary_part(benchmark):
    """A density at 200 positions, here to 1e-12; there G = G0(x + i 1e-3 - t G), damped, to 1e-6 of its 1e-3 blur."""
    base, t = WishartBase(0.5), 1.0
    law = convolve(base, t)
    x = np.linspace(law.edges[0][0], law.edges[-1][1], 202)[1:-1]

    def inverted() -> np.ndarray:
        s, k = math.sqrt(base.kappa0), base.kappa0
        ends = np.array([(1 - s) ** 2 / s, (1 + s) ** 2 / s])
        z, g = x + 1e-3j, np.full(len(x), -1j)
        for _ in range(10_000):
            y = z - t * g
            new = (s * y + 1 - k - s * np.sqrt(y - ends[0]) * np.sqrt(y - ends[1])) / (2 * y)
            if np.abs(new - g).max() < 1e-6:
                break
            g = 0.5 * g + 0.5 * new
        return -g.imag / math.pi

    np.testing.assert_allclose(inverted(), law.density(x), atol=0.02)  # the blur, at the edges
    benchmark(lambda: convolve(base, t).density(x))
    ratio = seconds(inverted) / benchmark.stats.stats.min
    benchmark.extra_info["ratio"] = ratio
    assert ratio > 0.3


def test_clusters_against_direct_sums(benchmark):
    """The integrals at a thousand points over 1e5 atoms."""
    base = power_law(100_000)
    u, v = np.geomspace(0.01, 300, 1000), 0.1
    anchor = base.nearest(u)
    offset = u - base.points[anchor]
    bound = np.full(1000, v)

    def clustered() -> np.ndarray:
        return base.field(anchor, offset, offset, bound, bound).kernel(offset[:, None], bound[:, None] ** 2).f[:, 0]

    def direct() -> np.ndarray:
        return np.array([np.sum(base.weights / ((a - base.points) ** 2 + v * v)) for a in u])

    np.testing.assert_allclose(clustered(), direct(), rtol=1e-12)
    benchmark(clustered)
    ratio = seconds(direct) / benchmark.stats.stats.min
    benchmark.extra_info["ratio"] = ratio
    assert ratio > 7


@pytest.mark.parametrize(("d", "target"), [(10_000, 0.3), (100_000, 0.8)])
def test_a_power_law(d: int, target: float):
    base = power_law(d)
    convolve(base, 1.0).nodes([0.5])  # the clusters
    assert seconds(lambda: convolve(base, 1.0).nodes([0.5])) < target * BUDGET
