"""The equations of risk minimisation with a spectral penalty: state evolution, and for two unknowns where possible."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy as sp

from derive.equations import Define, Equation, EquationSystem, Quantity, Root, Source
from derive.expectation import Expectation
from derive.mechanisms.potential import m, m_hat, q, q_hat, sigma, sigma_hat
from derive.mechanisms.spectral_erm import (
    PAPER,
    SpectralErm,
    delta,
    eps,
    factored,
    is_rational,
    place,
    quantity,
    response,
    target_size,
)
from derive.mechanisms.spectral_observables import observables

__all__ = ["half_steps", "proxy", "reduced", "state_evolution", "unpenalised"]

_definition = Source("derived", "definition")
_curvature = sp.Symbol("curvature", positive=True)


def state_evolution(problem: SpectralErm) -> EquationSystem:
    """Stationarity of the potential: each conjugate by the data, each order parameter by the denoiser."""
    theorem = Source(PAPER, "state evolution; derived: stationarity of the potential")
    found: list[Equation] = [Define(quantity(target_size), problem.size, _definition)]
    for symbol in (m_hat, q_hat, sigma_hat):
        found.append(Define(quantity(symbol), factored(problem.potential.conjugate(symbol)), theorem))
    found.append(Define(quantity(delta), sp.sqrt(q_hat) / m_hat, _definition))
    for symbol in (m, q, sigma):
        found.append(Define(quantity(symbol), problem.in_delta(problem.potential.order_parameter(symbol)), theorem))
    # no overlap is needed at the start: the data show the target at once
    start = {**dict.fromkeys((m_hat, q_hat, sigma_hat), problem.alpha), sigma: sp.S.One, q: sp.S.One, m: sp.S.Half}
    return _closed([*found, *observables(problem)], start)


def half_steps(problem: SpectralErm) -> tuple[EquationSystem, EquationSystem, EquationSystem]:
    """State evolution as message passing runs it: conjugates of Sigma at S = 0, conjugates, then order parameters."""
    whole = {e.unknown.symbol: e for e in state_evolution(problem).equations}
    hats = {s: whole[s].rhs for s in (m_hat, q_hat, sigma_hat)}
    if all(map(is_rational, hats.values())):
        first = {s: rhs.subs({m: 0, q: 0}) for s, rhs in hats.items()}
    else:
        pull, size, bend = problem.channel.response_at_zero(problem.label_variance)
        scale = problem.alpha / (2 * problem.potential.unit)
        first = {m_hat: -scale * pull, q_hat: scale * size, sigma_hat: scale * bend}
    source = Source(PAPER, "state evolution from S = 0")
    start = [whole[target_size], *(Define(quantity(s), rhs, source) for s, rhs in first.items())]
    data = [whole[target_size], *(whole[s] for s in first)]
    student = [whole[target_size], *(whole[s] for s in (delta, m, q, sigma))]
    begin, forth, back = (_closed(list(part), {}) for part in (start, data, student))
    return begin, forth, back


@dataclass(frozen=True)
class _Eliminated:
    """slope: eta. threshold: eps m_hat. ratio: m_hat/Sigma_hat. strength: m_hat of A. noise: delta^2 of m and q."""

    slope: sp.Expr
    threshold: sp.Expr
    ratio: sp.Expr
    strength: sp.Expr
    noise: sp.Expr


def reduced(problem: SpectralErm) -> EquationSystem | None:
    """The same for a denoiser eta (x - eps)_+ of known slope, in delta and eps alone; None where it has none.

    The conjugates must be rational in the order parameters, m_hat/Sigma_hat a number, and m_hat the one solution
    of its equation when Sigma = eta A/m_hat, A = E 2 (x - eps)_+ Re G(x), is put in.
    """
    known = _eliminated(problem)
    if known is None:
        return None
    derived = Source("derived", "state evolution, conjugates eliminated")
    soft = known.slope * (place - eps) * sp.Heaviside(place - eps)
    found: list[Equation] = [
        Define(quantity(target_size), problem.size, _definition),
        Define(quantity(response), problem.of_soft(sigma, soft) * m_hat / known.slope, derived),
        Define(quantity(m_hat), known.strength, derived),
        Root(quantity(eps), eps * m_hat - known.threshold, derived),
        Define(quantity(m), problem.of_soft(m, soft), derived),
        Define(quantity(q), problem.of_soft(q, soft), derived),
        Root(quantity(delta), delta**2 - known.noise, derived),
        Define(quantity(sigma), known.slope * response / m_hat, derived),
        Define(quantity(sigma_hat), m_hat / known.ratio, derived),
        Define(quantity(q_hat), (delta * m_hat) ** 2, derived),
    ]
    observed = [e for e in observables(problem, soft, known.ratio) if e.unknown.symbol != eps]
    return _closed([*found, *observed], _first(known))


def unpenalised(problem: SpectralErm) -> tuple[EquationSystem, EquationSystem] | None:
    """The limits of a vanishing penalty: where the samples determine S, eps = 0, and where they leave a choice.

    There S has the least penalty among those that fit: m_hat -> 0 and Sigma -> oo with eps > 0.
    """
    system, known = reduced(problem), _eliminated(problem)
    if system is None or known is None:
        return None
    half_line = sp.Interval(0, sp.oo)
    zero = Define(Quantity(eps, quantity(eps).meaning, half_line), sp.S.Zero, _definition)
    determined = [zero if e.unknown.symbol == eps else e for e in system.equations]
    pull = factored(problem.potential.conjugate(m_hat))
    limit = Source("derived", "Sigma -> oo at m_hat Sigma = eta A")
    chosen: list[Equation] = []
    for e in system.equations:
        symbol = e.unknown.symbol
        if symbol == eps:
            chosen.append(Root(e.unknown, known.strength, limit))
        elif symbol not in (m_hat, sigma, sigma_hat, q_hat):
            at_end = (
                e.rhs
                if isinstance(e, Root)
                else _at_infinity(e.rhs.xreplace({m_hat: pull, sigma_hat: pull / known.ratio}))
            )
            chosen.append(replace(e, rhs=at_end))
    return (
        EquationSystem(tuple(determined), system.parameters, {delta: system.start[delta]}),
        EquationSystem(tuple(chosen), system.parameters, system.start),
    )


def _at_infinity(expr: sp.Expr) -> sp.Expr:
    """The limit of an expression as Sigma grows; expectations in it do not read Sigma."""
    held = {e: sp.Dummy(real=True) for e in expr.atoms(Expectation)}
    bare = expr.xreplace(held)
    if not bare.has_free(sigma):
        return expr
    return sp.limit(sp.cancel(bare), sigma, sp.oo).xreplace({d: e for e, d in held.items()})


def _first(known: _Eliminated) -> dict[sp.Symbol, sp.Expr]:
    """delta of S = 0; eps between what a large penalty makes it and the edge 2 delta, where it is for few samples."""
    noise = sp.sqrt(known.noise.subs({m: 0, q: 0}))
    most = _only_solution(known.strength, response)
    edge = 2 * noise if most is None else 2 * noise / (1 + 5 * most)
    return {delta: noise, eps: known.threshold / known.strength.subs(response, 0) + edge}


def _eliminated(problem: SpectralErm) -> _Eliminated | None:
    if problem.soft_threshold is None:
        return None
    conjugates = {s: factored(problem.potential.conjugate(s)) for s in (m_hat, q_hat, sigma_hat)}
    if not all(is_rational(c) for c in conjugates.values()):
        return None
    ratio = sp.cancel(conjugates[m_hat] / conjugates[sigma_hat])
    noise = sp.factor(sp.cancel(conjugates[q_hat] / conjugates[m_hat] ** 2))
    slope, start = (sp.cancel(e.subs(sigma_hat, m_hat / ratio)) for e in problem.soft_threshold)
    threshold = sp.cancel(start * m_hat)
    strength = _only_solution(conjugates[m_hat].subs(sigma, slope * response / m_hat) - m_hat, m_hat)
    fixed = (ratio, slope, threshold, noise)
    if strength is None or any(e.has_free(sigma, m_hat) for e in fixed) or ratio.has_free(m, q):
        return None
    return _Eliminated(slope, threshold, ratio, strength, noise)


def proxy(problem: SpectralErm) -> EquationSystem:
    """The equations for a quadratic loss of the same mean curvature, which are easily solved."""
    near = replace(problem, channel=problem.channel.quadratic(_curvature))
    system = reduced(near) or state_evolution(near)
    known = Quantity(_curvature, "half the mean curvature of the loss at the target", sp.Interval.open(0, sp.oo))
    first = Define(known, problem.channel.curvature(problem.label_variance), Source("derived", "second derivative"))
    size, *rest = system.equations
    wanted = {target_size, response, m_hat, q_hat, sigma_hat, delta, eps, m, q, sigma}
    return _closed([size, first, *(e for e in rest if e.unknown.symbol in wanted)], dict(system.start))


def _closed(equations: list[Equation], start: dict[sp.Symbol, sp.Expr]) -> EquationSystem:
    read = set().union(*(e.reads() for e in equations), *(v.free_symbols for v in start.values()))
    own = {e.unknown.symbol for e in equations}
    parameters = tuple(Quantity(s, "parameter") for s in sorted(read - own, key=str))
    return EquationSystem(tuple(equations), parameters, {s: v for s, v in start.items() if s in own})


def _only_solution(expr: sp.Expr, s: sp.Symbol) -> sp.Expr | None:
    """The one s != 0 at which a rational function vanishes, where its numerator has one factor that is linear in s."""
    numerator, _ = sp.fraction(sp.together(expr))
    factors = [f for f, _ in sp.factor_list(numerator)[1] if f.has_free(s) and f != s]
    if len(factors) != 1 or sp.degree(factors[0], s) != 1:
        return None
    a, b = sp.Poly(factors[0], s).all_coeffs()
    return sp.factor(-b / a)
