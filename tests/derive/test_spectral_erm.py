"""Risk minimisation with a spectral penalty: derived equations against those of the theory note, and another path."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import limitlaw
from derive.equations import EquationSystem
from derive.expectation import Expectation
from derive.functions import softmax
from derive.measures import standard_normal
from derive.mechanisms.index_channel import IndexChannel
from derive.mechanisms.potential import Potential, denoiser_input, m, m_hat, q, q_hat, sigma, sigma_hat
from derive.mechanisms.spectral_erm import SpectralErm, delta, eps, place, response, target_size
from derive.mechanisms.spectral_systems import reduced, state_evolution
from derive.proximal import Confined, Moreau, closed_proximal
from derive.rules import closed_form
from derive.spectra import FreeConvolution, HilbertTransform, Wishart
from derive.symmetric_indices import Indices
from solve.compiled import compile_system
from solve.lower import lower
from solve.solution import solve_derivation

s = sp.Symbol("s", real=True)
alpha, lam, lam_f, Delta, kappa0 = sp.symbols("alpha lam lam_F Delta kappa0", positive=True)
law = FreeConvolution(Wishart(kappa0), delta**2)
POSITIVE = lam * s + Confined(s, 0, sp.oo)


def channel(tokens: int, *, attention: bool) -> IndexChannel:
    target, student = Indices(tokens, "k"), Indices(tokens, "h")
    y, f = (softmax(i.matrix) if attention else i.matrix for i in (target, student))
    return IndexChannel(sp.Add(*(v**2 for v in f - y)), target, student)


def problem(penalty: sp.Expr, tokens: int = 1) -> SpectralErm:
    return SpectralErm(Wishart(kappa0), sp.Lambda(s, penalty), channel(tokens, attention=False), Delta, alpha)


def rhs(system: EquationSystem, symbol: sp.Symbol) -> sp.Expr:
    return next(e.rhs for e in system.equations if e.unknown.symbol == symbol)


def same_average(derived: sp.Expr, integrand: sp.Expr) -> bool:
    """Whether `derived` is E of the integrand, a formula of the eigenvalue x: equal integrands, region by region."""
    (e,) = derived.atoms(Expectation)
    (x,) = e.variables
    factor = derived.xreplace({e: sp.S.One})
    apart = closed_proximal(e.integrand * factor) - integrand.xreplace({place: x})
    step = next(iter(apart.atoms(sp.Heaviside)), sp.S.Zero)
    sides = (apart.xreplace(dict.fromkeys(apart.atoms(sp.Heaviside), v)) for v in (sp.S.Zero, sp.S.One))
    return step != 0 and all(sp.cancel(side) == 0 for side in sides)


# ---- the equations of the note, section 2 -------------------------------------------------------------------
@pytest.mark.parametrize("frobenius", [sp.S.Zero, lam_f])
def test_order_parameters_are_those_of_the_soft_threshold(frobenius: sp.Expr) -> None:
    system = state_evolution(problem(POSITIVE + frobenius * s**2))
    eta, start = m_hat / (sigma_hat + 4 * frobenius), 2 * lam / m_hat
    step, above = sp.Heaviside(m_hat * place / sigma_hat - 2 * lam / sigma_hat), place - start
    hilbert = HilbertTransform(law, place)
    # q = eta^2 J, m = eta (J - delta^2 A + eps I1), Sigma = A/(Sigma_hat + 4 lam_F) as averages over x
    assert same_average(rhs(system, q), eta**2 * above**2 * step)
    assert same_average(rhs(system, m), eta * (above**2 - 2 * delta**2 * above * hilbert + start * above) * step)
    assert same_average(rhs(system, sigma), 2 * above * hilbert * step / (sigma_hat + 4 * frobenius))


def test_a_frobenius_penalty_closes_without_integrals() -> None:
    system = state_evolution(problem(lam_f * s**2))
    eta = m_hat / (sigma_hat + 4 * lam_f)
    expected = {m: eta * (1 + kappa0), q: eta**2 * (1 + kappa0 + delta**2), sigma: 1 / (sigma_hat + 4 * lam_f)}
    assert all(sp.cancel(rhs(system, k) - v) == 0 for k, v in expected.items())


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_the_linear_channel_counts_its_indices(tokens: int) -> None:
    k = sp.Rational(tokens * (tokens + 1), 2)
    system = state_evolution(problem(POSITIVE, tokens))
    hats = 8 * alpha * k / (1 + 4 * sigma)
    error = target_size + Delta / 2 - 2 * m + q
    expected = {m_hat: hats, sigma_hat: hats, q_hat: 32 * alpha * k * error / (1 + 4 * sigma) ** 2}
    assert all(sp.cancel(rhs(system, symbol) - v) == 0 for symbol, v in expected.items())


def test_the_linear_channel_reduces_to_two_equations() -> None:
    system = reduced(problem(POSITIVE, 2))
    assert system is not None
    k = 3
    assert sp.cancel(rhs(system, m_hat) - 4 * (2 * alpha * k - response)) == 0
    assert sp.expand(rhs(system, eps) - (eps * m_hat - 2 * lam)) == 0
    # Q0 + Delta/2 = J - 2 delta^2 A + 2 eps I1 + 2 alpha k delta^2, with m and q standing for their averages
    balance = 2 * alpha * k * rhs(system, delta) - (2 * alpha * k * delta**2 - (target_size + Delta / 2 - 2 * m + q))
    assert sp.cancel(balance) == 0


@pytest.mark.parametrize("penalty", [POSITIVE + lam_f * s**2, lam * sp.Abs(s), lam_f * s**2])
def test_no_reduction_where_the_slope_is_an_unknown(penalty: sp.Expr) -> None:
    assert reduced(problem(penalty)) is None


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_softmax_loses_one_coordinate(tokens: int) -> None:
    assert channel(tokens, attention=True).coordinates == (tokens**2 + tokens - 2) // 2
    assert channel(tokens, attention=False).coordinates == tokens * (tokens + 1) // 2


# ---- stationarity -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("penalty", [POSITIVE, POSITIVE + lam_f * s**2, lam * sp.Abs(s)])
def test_the_potential_is_the_objective(penalty: sp.Expr) -> None:
    """Phi at its stationary point is training loss plus penalty, to 1e-10: the solver's accuracy."""
    task = problem(penalty)
    values = {alpha: 0.4, lam: 0.3, lam_f: 0.2, Delta: 0.5, kappa0: 0.5}
    system = state_evolution(task)
    given = {p.symbol: values[p.symbol] for p in system.parameters}
    found = compile_system(system).solve(given)
    phi = task.potential.value
    known = {**values, **{k: float(v) for k, v in found.values.items()}}
    symbols = sorted(phi.free_symbols, key=str)
    (value,), _ = lower([phi], symbols)(*(known[k] for k in symbols))
    assert value == pytest.approx(known[sp.Symbol("objective", real=True)], rel=1e-10)


# ---- one engine ---------------------------------------------------------------------------------------------
def test_the_same_builder_gives_ridge_regression() -> None:
    """Vectors: unit 1/2, a Gaussian prior and a scalar output; its stationarity is the known one of ridge regression.

    With (y - u)^2/2: m_hat = Sigma_hat = alpha/(1 + V), q_hat = alpha E (y - u)^2/(1 + V)^2, V = 1/(lam + Sigma_hat).
    """
    w0, z, g, e, u = sp.symbols("w0 z g e u", real=True)
    rho = sp.Symbol("rho", positive=True)

    def average(f: object) -> sp.Expr:
        assert callable(f)
        x = sp.sqrt(rho) * w0 + sp.sqrt(q_hat) / m_hat * z
        return closed_form(sp.S(Expectation(closed_proximal(f(x)), (w0, z), standard_normal(2))))

    half = sp.Rational(1, 2)
    own = denoiser_input(sp.Lambda(u, lam * u**2 / 2), half, average)
    field = m / sp.sqrt(rho) * g + sp.sqrt(q - m**2 / rho) * e
    moreau = Moreau(sp.Lambda(u, (u - sp.sqrt(rho) * g) ** 2 / 2), sigma, field)
    output = closed_form(sp.S(Expectation(closed_proximal(moreau), (g, e), standard_normal(2))))
    potential = Potential(own, output, alpha, half)
    expected = {
        m_hat: alpha / (1 + sigma),
        sigma_hat: alpha / (1 + sigma),
        q_hat: alpha * (rho - 2 * m + q) / (1 + sigma) ** 2,
    }
    assert all(sp.cancel(potential.conjugate(k) - v) == 0 for k, v in expected.items())
    orders = {
        sigma: 1 / (lam + sigma_hat),
        m: m_hat * rho / (lam + sigma_hat),
        q: (m_hat**2 * rho + q_hat) / (lam + sigma_hat) ** 2,
    }
    assert all(sp.cancel(potential.order_parameter(k) - v) == 0 for k, v in orders.items())


REGRESSION = """
limitlaw = 1
family = "convex-erm"
[parameters]
alpha = { domain = "(0,inf)" }
Q0 = { domain = "(0,inf)" }
Delta = { domain = "(0,inf)" }
lam = { domain = "(0,inf)" }
[latent]
eps = { normal = [0, 1] }
[features]
mean = ["0"]
[label]
formula = "sqrt(Q0)*x1 + sqrt(Delta/2)*eps"
[erm]
loss = "2*(u - y)**2"
ridge = "lam"
bias = false
"""


@pytest.mark.parametrize("samples", [0.2, 0.6, 2.0])
def test_the_linear_channel_runs_through_both_paths(samples: float, tmp_path: object) -> None:
    """A Frobenius penalty and linear indices are ridge regression in d^2/2 dimensions with k n samples.

    There the ridge is 2 lam_F/(alpha k), the ratio 2 alpha k, |w - w0|^2 the mse; to 1e-9, the solvers' accuracy.
    """
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    file = tmp_path / "regression.toml"
    file.write_text(REGRESSION)
    weight, size, noise = 0.1, 1.5, 0.5
    own = {"alpha": 2 * samples, "Q0": size, "Delta": noise, "lam": 2 * weight / samples}
    other = solve_derivation(limitlaw.derive(limitlaw.load(str(file))), own).prediction
    assert other is not None
    known = {k.name: float(v) for k, v in other.values.items()}
    system = state_evolution(problem(lam_f * s**2))
    given = {alpha: samples, lam_f: weight, Delta: noise, kappa0: size - 1}
    found = compile_system(system).solve({p.symbol: given[p.symbol] for p in system.parameters})
    mse = float(found[sp.Symbol("mse", real=True)])
    assert mse == pytest.approx((known["mu"] - np.sqrt(size)) ** 2 + known["r"] ** 2, rel=1e-9)
    if samples == 0.6:  # the note, section 7
        assert mse == pytest.approx(0.4142857142857, rel=1e-12)
        assert float(found[sp.Symbol("objective", real=True)]) == pytest.approx(0.22, rel=1e-12)
