"""The law of a trained student: against random matrices, and against the overlaps of the theory."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import limitlaw
from solve.student_spectrum import student_spectrum

LINEAR = {"output": "linear", "T": "1"}
SIGNED = '{atoms=[-1, 0, 2], weights=["1/4", "1/2", "1/4"]}'
CASES = {
    "nuclear": ("aim-linear", {"alpha": "1/2", "lam": "1"}),
    "limit": ("aim-linear", {"alpha": "1/5", "lam": "0"}),
    "frobenius": ("aim-direct", LINEAR),
    "signed": ("aim-direct", {**LINEAR, "frobenius": "1/5", "regulariser.spectral": "abs(s)/5", "spectrum": SIGNED}),
    "quartic": ("aim-direct", {**LINEAR, "frobenius": "0", "regulariser.spectral": "s**4/5", "spectrum": SIGNED}),
}
every_case = pytest.mark.parametrize("case", CASES)


@functools.cache
def solved(case):
    name, changes = CASES[case]
    solution = limitlaw.solve(limitlaw.derive(limitlaw.load(name, changes)))
    known = {s.name: float(v) for s, v in solution.prediction.values.items()}
    return student_spectrum(solution), known


@every_case
def test_the_second_moment_is_q(case):
    law, known = solved(case)
    assert law.moments(2)[0] == pytest.approx(1, abs=1e-10)  # error of the nodes
    assert law.moments(2)[2] == pytest.approx(known["q"], rel=1e-8)  # fixed points are solved for to 1e-9


@every_case
def test_density_and_atoms_have_mass_one_and_the_moments(case):
    law, _ = solved(case)
    low, high = law.support
    ends = np.unique([low, high, *law.atoms])
    t = (np.arange(20_000) + 0.5) / 20_000 * np.pi  # midpoints that crowd at the ends, where roots are
    total = np.zeros(3)
    for a, b in itertools.pairwise(ends):
        s, ds = (a + b) / 2 - (b - a) / 2 * np.cos(t), (b - a) / 2 * np.sin(t) * np.pi / t.size
        total += [float(np.sum(s**k * law.density(s) * ds)) for k in range(3)]
    atoms = np.array([[at**k * mass for k in range(3)] for at, mass in law.atoms.items()]).sum(axis=0)
    # of the midpoint rule across gaps between bands, roots inside the interval: step^1.5
    np.testing.assert_allclose(total + atoms, law.moments(2), atol=3e-6)


@every_case
def test_quantiles_invert_the_distribution(case):
    law, _ = solved(case)
    p = np.linspace(0.01, 0.99, 50)
    s = law.quantile(p)
    atom = np.isin(s, list(law.atoms))
    np.testing.assert_allclose(law.cdf(s)[~atom], p[~atom], atol=1e-9)  # rounding of x by D and back, times densities
    assert (law.cdf(s)[atom] >= p[atom] - 1e-12).all()
    low, high = law.support
    np.testing.assert_allclose(law.cdf([low - 1, high + 1]), [0, 1], atol=0)
    assert np.all(np.diff(law.cdf(np.linspace(low - 0.5, high + 0.5, 200))) >= 0)


@pytest.mark.parametrize("case", ["nuclear", "limit"])
def test_the_zero_mass_is_what_the_rank_leaves(case):
    law, known = solved(case)
    assert law.zero_mass == pytest.approx(1 - known["rank"], abs=1e-9)  # quadrature of the rank
    assert law.density(-0.1) == 0
    assert np.isnan(law.density(0.0))
    below = known["eps"] * 0.5  # x of half eps belongs to the atom
    assert law.denoise(np.array([below]))[0] == 0


def test_of_a_signed_target_both_sides_are_thresholded():
    """On a random matrix itself, S = argmin |S - R|^2 + penalty: eigenvalues D(w) by sorting; d = 800."""
    law, known = solved("signed")
    d, rng = 800, np.random.default_rng(3)
    z = rng.standard_normal((d, d))
    target = np.repeat([-1.0, 0.0, 2.0], [d // 4, d // 2, d // 4])
    x = np.linalg.eigvalsh(np.diag(target) + known["delta"] * (z + z.T) / np.sqrt(2 * d))
    step = 2 / known["Sigma_hat"]
    w = known["m_hat"] * x / known["Sigma_hat"]
    own = np.sign(w) * np.maximum(np.abs(w) - step / 5, 0) / (1 + 2 * step / 5)  # prox of |s|/5 + s^2/5
    assert abs(np.mean(own == 0) - law.zero_mass) < 3 / d  # eigenvalues are rigid: counts are good to O(log d)
    places = np.array([-1.0, -0.3, -0.05, 0.05, 0.4, 1.0, 1.5])
    counts = np.searchsorted(np.sort(own), places, side="right") / d
    np.testing.assert_allclose(law.cdf(places), counts, atol=4 / d)  # the same
    assert np.abs(law.cdf(1.05 * places) - counts).max() > 8 / d  # eigenvalues 5 per cent too large are seen


def test_samples_have_the_law_and_depend_on_the_seed_alone():
    law, known = solved("nuclear")
    drawn = law.sample(np.random.default_rng(1), 4000)
    np.testing.assert_array_equal(drawn, law.sample(np.random.default_rng(1), 4000))
    assert abs(np.mean(drawn**2) - known["q"]) < 5 * np.std(drawn**2) / np.sqrt(4000)  # five standard errors
    assert abs(np.mean(drawn == 0) - law.zero_mass) < 5 * np.sqrt(0.25 / 4000)


def test_a_solution_without_a_student_is_refused():
    for name, changes in (("aim-thresholds", {}), ("h2sum-tied-relu", {"L": "2", "gamma": "1/10"})):
        solution = limitlaw.solve(limitlaw.derive(limitlaw.load(name, changes)))
        with pytest.raises(ValueError, match="attention-indexed task with a student"):
            student_spectrum(solution)
