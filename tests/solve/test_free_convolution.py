from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solve.base_spectra import AbstractBase, AtomicBase, WishartBase
from solve.free_convolution import Convolved, Nodes, convolve


def power_law(d: int, gamma: float) -> AtomicBase:
    return AtomicBase(math.sqrt(d) * np.arange(1, d + 1) ** -gamma, np.full(d, 1 / d))


def functionals(n: Nodes, eps: float) -> dict[str, float]:
    over = np.maximum(n.x - eps, 0.0)
    return {
        "I0": float(n.weight[n.x > eps].sum()),
        "I1": float(n.weight @ over),
        "J": float(n.weight @ over**2),
        "A": float(2 * n.weight @ (over * n.hilbert)),
    }


ATOMS = AtomicBase([0.0, 1.0, 1.25, 3.0], [0.5, 0.25, 0.125, 0.125])
BASES = [WishartBase(k) for k in (0.05, 0.5, 1.0, 3.0)] + [ATOMS]
DELTAS = [1e-3, 0.1, 1.0, 30.0]

# ---------------------------------------------------------------------------------------- exact laws


@pytest.mark.parametrize("t", [1e-6, 1.0, 900.0])
def test_an_atom_gives_the_semicircle(t: float):
    law = convolve(AtomicBase([2.0], [1.0]), t)
    r = 2 * math.sqrt(t)
    ((low, high),) = law.edges
    assert (low, high) == pytest.approx((2 - r, 2 + r), rel=1e-14)
    y = np.linspace(-0.99, 0.99, 31)
    x = 2 + r * y
    rounding = 1e-13 * (1 + 2 / r)  # x = 2 + r y itself is rounded
    np.testing.assert_allclose(law.density(x) * r, 2 * np.sqrt(1 - y * y) / math.pi, rtol=100 * rounding)
    exact = 0.5 + (y * np.sqrt(1 - y * y) + np.arcsin(y)) / math.pi
    np.testing.assert_allclose(law.cdf(x), exact, atol=rounding)
    np.testing.assert_allclose(law.quantile(exact), x, rtol=1e-12)
    np.testing.assert_allclose(law.stieltjes_real(x), (x - 2) / (2 * t), atol=10 * rounding / r)
    assert law.stieltjes_real(2 + 2 * r) == pytest.approx((2 * r - math.sqrt(3) * r) / (2 * t), rel=1e-12)


def test_partial_moments_of_the_semicircle():
    c = 0.7  # i0, M1, M2 and a of section 3 of the theory
    root = math.sqrt(4 - c * c)
    i0 = 0.5 - c * root / (4 * math.pi) - math.asin(c / 2) / math.pi
    m1 = root**3 / (6 * math.pi)
    m2 = i0 + c * root**3 / (8 * math.pi)
    found = functionals(convolve(AtomicBase([0.0], [1.0]), 1.0).nodes([c]), c)
    exact = {"I0": i0, "I1": m1 - c * i0, "J": m2 - 2 * c * m1 + c * c * i0, "A": m2 - c * m1}
    assert found == pytest.approx(exact, rel=1e-13)  # quadrature to rounding


def partitions_sum(moments: list[Fraction], t: Fraction) -> list[Fraction]:
    """Moments after adding t to the second free cumulant: the first block of a non-crossing partition leaves gaps."""

    def products(m: list[Fraction], s: int, n: int) -> Fraction:
        if s == 0:
            return Fraction(n == 0)
        return sum((m[i] * products(m, s - 1, n - i) for i in range(n + 1)), Fraction(0))

    cumulants = [Fraction(0)]
    for n in range(1, len(moments)):
        cumulants.append(moments[n] - sum(cumulants[s] * products(moments, s, n - s) for s in range(1, n)))
    cumulants[2] += t
    found = [Fraction(1)]
    for n in range(1, len(moments)):
        found.append(sum((cumulants[s] * products(found, s, n - s) for s in range(1, n + 1)), Fraction(0)))
    return found


@pytest.mark.parametrize("delta", DELTAS)
def test_moments_of_atoms_by_free_cumulants(delta: float):
    points, weights = map(Fraction, ATOMS.points), list(map(Fraction, ATOMS.weights))
    points = list(points)
    base = [sum((w * p**k for p, w in zip(points, weights, strict=True)), Fraction(0)) for k in range(9)]
    exact = [float(m) for m in partitions_sum(base, Fraction(delta * delta))]
    law = convolve(ATOMS, delta * delta)
    n = law.nodes()
    np.testing.assert_allclose(law.moments(8), exact, rtol=1e-13)
    np.testing.assert_allclose([n.weight @ n.x**k for k in range(9)], exact, rtol=1e-12)
    assert n.error < 1e-13


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("kappa0", [0.05, 0.5, 1.0, 3.0])
def test_moments_of_wishart_by_free_cumulants(kappa0: float, delta: float):
    # free cumulants of Marchenko and Pastur's law in this scale: kappa0^(1 - n/2)
    s, k = Fraction(math.sqrt(kappa0)), Fraction(kappa0)
    cumulants = [Fraction(0), *(k * s**-n for n in range(1, 9))]
    base = [Fraction(1)]
    for n in range(1, 9):
        power = [Fraction(1)] + [Fraction(0)] * n
        total = Fraction(0)
        for j in range(1, n + 1):
            power = [sum((power[i] * base[m - i] for i in range(m + 1) if m - i < n), Fraction(0)) for m in range(n)]
            total += cumulants[j] * power[n - j]
        base.append(total)
    law = WishartBase(kappa0)
    np.testing.assert_allclose(law.moments(8), [float(m) for m in base], rtol=1e-13)
    assert (law.mean, law.second_moment) == pytest.approx((math.sqrt(kappa0), 1 + kappa0), rel=1e-14)
    exact = [float(m) for m in partitions_sum(base, Fraction(delta * delta))]
    sums = convolve(law, delta * delta)
    n = sums.nodes([0.3, 1.7])
    np.testing.assert_allclose([n.weight @ n.x**i for i in range(9)], exact, rtol=1e-12)
    np.testing.assert_allclose(sums.moments(8), exact, rtol=1e-11)  # cumulants cancel some digits
    assert n.error < 1e-13


def marchenko_pastur_cubic(x: float, kappa0: float, t: float) -> mpmath.mpc:
    """G(x) in the upper half plane's limit: x = kappa0/(sqrt(kappa0) - g) + 1/g + t g."""
    s, x, t = mpmath.sqrt(kappa0), mpmath.mpf(x), mpmath.mpf(t)
    roots = mpmath.polyroots([-t, x + t * s, -(x * s + 1 - mpmath.mpf(kappa0)), s], maxsteps=500, extraprec=200)
    return min(roots, key=mpmath.im)


def two_atoms_cubic(x: float, points: list[float], weights: list[float], t: float) -> mpmath.mpc:
    """g (y - a)(y - b) = w_a (y - b) + w_b (y - a), y = x - t g."""
    (a, b), (wa, wb) = map(mpmath.mpf, points), map(mpmath.mpf, weights)
    x, t = mpmath.mpf(x), mpmath.mpf(t)
    p, q, mean = x - a, x - b, wa * (x - b) + wb * (x - a)
    roots = mpmath.polyroots([t * t, -t * (p + q), p * q + t, -mean], maxsteps=500, extraprec=200)
    return min(roots, key=mpmath.im)


@pytest.mark.parametrize("delta", [0.1, 0.5, 2.0, 30.0])
@pytest.mark.parametrize("kappa0", [0.05, 0.5, 1.0, 3.0])
def test_the_cubic_of_wishart(kappa0: float, delta: float):
    law = convolve(WishartBase(kappa0), delta**2)
    compare_with(law, lambda x: marchenko_pastur_cubic(x, kappa0, delta**2))


@pytest.mark.parametrize("delta", [0.1, 0.5, 2.0, 30.0])
def test_the_cubic_of_two_atoms(delta: float):
    points, weights = [-0.25, 1.5], [0.375, 0.625]
    law = convolve(AtomicBase(points, weights), delta**2)
    compare_with(law, lambda x: two_atoms_cubic(x, points, weights, delta**2))


def compare_with(law: Convolved, stieltjes: Callable[[float], mpmath.mpc]) -> None:
    """Away from the edges by a fiftieth of the band, where density and Re G vary slowly: 1e-12 of their scale."""
    for low, high in law.edges:
        x = low + (high - low) * np.array([0.02, 0.1, 0.37, 0.5, 0.81, 0.98])
        exact = [stieltjes(float(v)) for v in x]
        density = np.array([-float(mpmath.im(g) / mpmath.pi) for g in exact])
        real = np.array([float(mpmath.re(g)) for g in exact])
        np.testing.assert_allclose(law.density(x), density, rtol=1e-12 * (1 + abs(high) / (high - low)))
        np.testing.assert_allclose(law.stieltjes_real(x), real, atol=1e-12 / math.sqrt(law.t))
        np.testing.assert_allclose(law.expected_signal(x), x - 2 * law.t * real, atol=1e-12 * (1 + abs(x).max()))


# ---------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("delta", [1e-3, 0.3, 0.9, 5.0])
def test_edges_of_two_atoms(delta: float):
    points, weights = [-1.0, 1.0], [0.25, 0.75]
    t = mpmath.mpf(delta) ** 2
    # integral mu(ds)/(u - s)^2 = 1/t, a quartic in u
    wa, wb = map(mpmath.mpf, weights)
    quartic = [1, 0, -2 - t, -2 * t * (wb - wa), 1 - t]
    u = [mpmath.re(r) for r in mpmath.polyroots(quartic, maxsteps=500, extraprec=300) if abs(mpmath.im(r)) < 1e-12]
    exact = sorted(float(v + t * (wa / (v + 1) + wb / (v - 1))) for v in u)
    found = convolve(AtomicBase(points, weights), delta**2).edges
    np.testing.assert_allclose(np.ravel(found), exact, rtol=1e-14, atol=1e-14)  # rounding of u + t G


@pytest.mark.parametrize("kappa0", [0.1, 0.5, 0.9])
def test_the_bulk_of_wishart_splits_at_the_known_noise(kappa0: float):
    split = math.sqrt((1 - kappa0 ** (1 / 3)) ** 3 / kappa0)  # section 3 of the theory
    assert len(convolve(WishartBase(kappa0), (split * (1 - 1e-6)) ** 2).edges) == 2
    assert len(convolve(WishartBase(kappa0), (split * (1 + 1e-6)) ** 2).edges) == 1


def test_near_the_split_nothing_is_lost():
    kappa0 = 0.5
    split = math.sqrt((1 - kappa0 ** (1 / 3)) ** 3 / kappa0)
    for relative in (-1e-9, -1e-15, 0.0, 1e-15, 1e-9):
        assert convolve(WishartBase(kappa0), (split * (1 + relative)) ** 2).nodes([0.2]).error < 1e-12


def test_a_spike_leaves_the_bulk():
    spike, delta = 3.0, 1.0
    weight = 1e-9
    law = convolve(AtomicBase([0.0, spike], [1 - weight, weight]), delta**2)
    (_, _), (low, high) = law.edges
    assert (low + high) / 2 == pytest.approx(spike + delta**2 / spike, abs=1e-6)  # width 2 sqrt(weight), shift weight
    assert law.mass((low, high)) == pytest.approx(weight, rel=1e-6)


# ---------------------------------------------------------------------------------------- functionals


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize(("delta", "eps"), [(0.05, 0.9), (0.8, 0.4), (2.0, 1.5)])
def test_derivatives_of_the_functionals(base: AbstractBase, delta: float, eps: float):
    def j(d: float, e: float) -> float:
        return functionals(convolve(base, d * d).nodes([e]), e)["J"]

    def slope(f: Callable[[float], float], h: float) -> float:  # error h^6 f^(7)/140 and rounding 1e-15/h
        steps = ((1, 0.75), (2, -0.15), (3, 1 / 60))
        return sum(c * (f(k * h) - f(-k * h)) for k, c in steps) / h

    found = functionals(convolve(base, delta**2).nodes([eps]), eps)
    h = 2e-3 * delta
    assert slope(lambda h: j(delta + h, eps), h) == pytest.approx(2 * delta * found["A"], abs=1e-9)
    assert slope(lambda h: j(delta, eps + h), h) == pytest.approx(-2 * found["I1"], abs=1e-9)


def test_the_linear_channel_of_the_theory():
    # section 7 of the theory: kappa0, alpha, lamt, Delta, k = 0.5, 0.2, 0.1, 0.5, 1; ten digits are given
    delta, eps = 1.6217497687, 1.2651495654
    f = functionals(convolve(WishartBase(0.5), delta**2).nodes([eps]), eps)
    assert eps * (0.4 - f["A"]) == pytest.approx(0.05, abs=1e-9)
    assert f["J"] - 2 * delta**2 * f["A"] + 2 * eps * f["I1"] + 0.4 * delta**2 == pytest.approx(1.75, abs=1e-9)
    assert f["I0"] == pytest.approx(0.38593143, abs=1e-8)


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("delta", DELTAS)
def test_identities_of_every_law(base: AbstractBase, delta: float):
    law = convolve(base, delta**2)
    breaks = [0.5 * delta, 1.0, 50.0]
    n = law.nodes(breaks)
    assert (np.diff(n.x) >= 0).all()
    assert math.fsum(n.weight) == pytest.approx(1, abs=1e-13)
    assert n.weight @ n.x == pytest.approx(law.mean, rel=1e-12, abs=1e-13)
    assert n.weight @ (n.x * n.hilbert) == pytest.approx(0.5, abs=1e-12)  # E x Re G(x) = 1/2 for any law
    for b in breaks:  # panels end at the breaks
        assert n.weight[n.x < b].sum() == pytest.approx(law.cdf(b), abs=1e-12)
    p = np.array([0.0, 1e-6, 0.1, 0.5, 0.77, 1 - 1e-6, 1.0])
    np.testing.assert_allclose(law.cdf(law.quantile(p)), p, atol=1e-12)  # steep cdf at small delta
    assert law.quantile(p)[[0, -1]] == pytest.approx([law.edges[0][0], law.edges[-1][1]])
    outside = law.edges[-1][1] + max(1.0, delta)  # nearer, 1/(x - y) is not smooth for the nodes
    assert law.stieltjes_real(outside) == pytest.approx(n.weight @ (1 / (outside - n.x)), rel=1e-11)
    assert law.density(outside) == 0


# ---------------------------------------------------------------------------------------- limits, random matrices


@pytest.mark.parametrize("kappa0", [0.5, 3.0])
def test_small_noise_is_first_order_in_the_variance(kappa0: float):
    # E f(x) = E f(s) + (t/2) E E (f'(s) - f'(s'))/(s - s') + O(t^2); f = x^3: 3 t E s
    delta = 1e-3
    n = convolve(WishartBase(kappa0), delta**2).nodes()
    exact = WishartBase(kappa0).moments(3)[3] + 3 * delta**2 * math.sqrt(kappa0)
    assert n.weight @ n.x**3 == pytest.approx(exact, rel=1e-12)


def test_large_noise_is_a_semicircle_about_the_mean():
    delta = 30.0
    law = convolve(WishartBase(0.5), delta**2)
    x = law.mean + delta * np.linspace(-1.5, 1.5, 7)
    semicircle = np.sqrt(4 * delta**2 - (x - law.mean) ** 2) / (2 * math.pi * delta**2)
    np.testing.assert_allclose(law.density(x), semicircle, rtol=3 / delta**2)  # relative corrections 1/delta^2


def eigenvalues(kappa0: float, delta: float, d: int = 1000) -> np.ndarray:
    rng = np.random.default_rng(20261201)
    w = rng.standard_normal((d, round(kappa0 * d)))
    z = rng.standard_normal((d, d))
    s = w @ w.T / math.sqrt(w.shape[1] * d) + delta * (z + z.T) / math.sqrt(2 * d)
    return np.linalg.eigvalsh(s)


def distances(found: np.ndarray, kappa0: float, delta: float, eps: float) -> list[float]:
    """Of I0, I1, J from those of the law, over 8/d: linear statistics of a random matrix scatter by a few 1/d."""
    f = functionals(convolve(WishartBase(kappa0), delta**2).nodes([eps]), eps)
    over = np.maximum(found - eps, 0)
    own = {"I0": (found > eps).mean(), "I1": over.mean(), "J": (over**2).mean()}
    return [abs(own[k] - f[k]) * len(found) / 8 for k in own]


def test_a_random_matrix():
    found = eigenvalues(0.5, 0.7)
    assert max(distances(found, 0.5, 0.7, 0.6)) < 1
    # controls: five per cent of delta or kappa0, and the other normalisation, W W^T/d
    assert max(distances(found, 0.5, 0.735, 0.6)) > 1
    assert max(distances(found, 0.525, 0.7, 0.6)) > 1
    assert max(distances(found * math.sqrt(0.5), 0.5, 0.7, 0.6)) > 1


def test_samples_follow_the_law():
    law = convolve(WishartBase(0.3), 0.04)
    x = np.sort(law.sample(np.random.default_rng(5), 4000))
    distance = np.abs(law.cdf(x) - (np.arange(4000) + 0.5) / 4000).max()
    assert distance < 2.2 / math.sqrt(4000)  # Kolmogorov: false alarm 1.2e-4


# ---------------------------------------------------------------------------------------- many atoms


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=40),
    st.integers(0, 2**32 - 1),
    st.floats(-3, 1.5),
)
def test_any_atoms(points: list[float], seed: int, log_delta: float):
    weights = np.random.default_rng(seed).dirichlet(np.full(len(points), 0.5))
    law = convolve(AtomicBase(points, weights / weights.sum()), 10 ** (2 * log_delta))
    n = law.nodes([0.3])
    assert n.error < 1e-12
    assert n.weight @ n.x == pytest.approx(law.mean, abs=1e-11)
    assert n.weight @ (n.x * n.hilbert) == pytest.approx(0.5, abs=1e-11)
    low, high = np.array(law.edges).T
    assert (low <= high).all()
    assert (high[:-1] <= low[1:]).all()


@pytest.mark.parametrize("gamma", [0.75, 1.5])
def test_clusters_against_direct_sums(gamma: float):
    base = power_law(20_000, gamma)
    rng = np.random.default_rng(3)
    u = np.exp(rng.uniform(math.log(base.points[0]), math.log(base.points[-1]), 100))
    v = 10 ** rng.uniform(-6, 1, 100)
    anchor = base.nearest(u)
    offset = u - base.points[anchor]
    found = base.field(anchor, offset, offset, v, v).kernel(offset[:, None], v[:, None] ** 2)
    d = (base.points[anchor][:, None] - base.points) + offset[:, None]
    q, m = 1 / (d * d + v[:, None] ** 2), base.weights
    exact = (q @ m, q**2 @ m, (d * q**2) @ m, (d * q) @ m)
    scale = (q @ m, q**2 @ m, (np.abs(d) * q**2) @ m, (np.abs(d) * q) @ m)
    for a, b, s in zip(found, exact, scale, strict=True):
        assert np.max(np.abs(a[:, 0] - b) / s) < 1e-13


def test_the_cost_of_a_node_grows_with_the_logarithm_of_the_number_of_atoms():
    def seen(d: int) -> float:
        base = power_law(d, 1.0)
        u = np.geomspace(base.points[0], base.points[-1], 1000)
        anchor = base.nearest(u)
        offset = u - base.points[anchor]
        s = base.field(anchor, offset, offset, np.zeros(1000), np.full(1000, 1e-3)).sources
        return float((s.mass > 0).sum(axis=1).mean()) + s.remote.shape[1]

    counts = [seen(d) for d in (1_000, 10_000, 100_000)]
    assert counts[2] < 150  # of 100000
    assert counts[2] - counts[1] < 1.6 * (counts[1] - counts[0])  # equal steps a decade; ten times if linear


def test_a_power_law_of_a_hundred_thousand_eigenvalues():
    law = convolve(power_law(100_000, 1.0), 1.0)
    n = law.nodes([0.5])
    assert n.error < 1e-12
    np.testing.assert_allclose([n.weight @ n.x**k for k in range(7)], law.moments(6), rtol=1e-11)
    assert len(n.x) < 20_000  # 165 bands
    low, high = law.edges[-1]
    assert (low + high) / 2 == pytest.approx(math.sqrt(1e5) + 1 / math.sqrt(1e5), rel=1e-6)
    assert law.mass((low, high)) == pytest.approx(1e-5, rel=1e-9)  # one eigenvalue


# ---------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AtomicBase([], []), "at least one point"),
        (lambda: AtomicBase([1.0], [0.5, 0.5]), "1 points and 2 weights"),
        (lambda: AtomicBase([1.0, 2.0], [1.5, -0.5]), "negative"),
        (lambda: AtomicBase([1.0, 2.0], [0.5, 0.5 + 1e-8]), "sum to"),
        (lambda: AtomicBase([1.0, math.nan], [0.5, 0.5]), "not finite"),
        (lambda: WishartBase(0.0), "kappa0"),
        (lambda: WishartBase(-1.0), "kappa0"),
        (lambda: WishartBase(math.inf), "kappa0"),
        (lambda: convolve(ATOMS, 0.0), "variance t"),
        (lambda: convolve(ATOMS, math.nan), "variance t"),
        (lambda: convolve(ATOMS, 1.0).nodes([math.nan]), "breaks"),
        (lambda: convolve(ATOMS, 1.0).density([math.inf]), "not finite"),
        (lambda: convolve(ATOMS, 1.0).quantile(1.5), "quantile"),
        (lambda: convolve(ATOMS, 1.0).mass((2.0, 1.0)), "interval"),
    ],
)
def test_wrong_input(make: Callable[[], object], message: str):
    with pytest.raises(ValueError, match=message):
        make()


def test_no_positions_give_no_values():
    law = convolve(power_law(100, 1.0), 0.1)
    assert law.cdf([]).shape == law.density([]).shape == law.quantile([]).shape == (0,)


def test_equal_points_are_joined_and_empty_ones_dropped():
    base = AtomicBase([2.0, 1.0, 2.0, 5.0], [0.25, 0.5, 0.25, 0.0])
    assert base.points.tolist() == [1.0, 2.0]
    assert base.weights.tolist() == [0.5, 0.5]
