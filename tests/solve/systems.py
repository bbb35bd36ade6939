"""Systems built by hand, as a user would, whose solutions are known otherwise."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import sympy as sp
from scipy.integrate import quad
from scipy.special import k0

from derive.equations import Define, EquationSystem, Flow, Quantity, Root, Source
from derive.expectation import Expectation
from derive.functions import He
from derive.measures import Gaussian
from solve.compiled import CompiledSystem, compile_system
from solve.quadrature import Accuracy

SOURCE = Source("derived", "in this test")
x, y = sp.symbols("x y", real=True)
m, e, q, p, a, b, c, r, risk, rate, gain, omega = sp.symbols("m e q p a b c r risk rate gain omega", real=True)
lam, d = sp.symbols("lam d", positive=True)
POSITIVE = sp.Interval.open(0, sp.oo)
UNIT = sp.Interval(0, 1)


ROUGH = Accuracy(rtol=1e-3, atol=1e-3, max_points=2**14)


def above(v: float) -> float:
    """E (x y - v)_+ for independent standard normal x, y, at v >= 0: x y has the density K_0(|u|)/pi."""
    return float(quad(lambda u: (u - v) * k0(u), v, v + 40)[0] / np.pi)


def quantity(symbol: sp.Symbol, domain: sp.Set = sp.S.Reals, default: Any = None) -> Quantity:
    return Quantity(symbol, f"the {symbol}", domain, default=None if default is None else sp.S(default))


def define(symbol: sp.Symbol, rhs: Any, domain: sp.Set = sp.S.Reals) -> Define:
    return Define(quantity(symbol, domain), sp.S(rhs), SOURCE)


def flow(symbol: sp.Symbol, rhs: Any, domain: sp.Set = sp.S.Reals) -> Flow:
    return Flow(quantity(symbol, domain), sp.S(rhs), SOURCE)


def root(symbol: sp.Symbol, rhs: Any, domain: sp.Set = sp.S.Reals) -> Root:
    return Root(quantity(symbol, domain), sp.S(rhs), SOURCE)


def compiled(*equations: Any, parameters: Any = (), start: Any = None) -> CompiledSystem:
    return compile_system(EquationSystem(equations, tuple(parameters), start or {}))


@functools.cache
def magnetisation() -> CompiledSystem:
    law = Gaussian([lam * q], [[lam * q]])
    return compiled(
        define(q, Expectation(sp.tanh(x), [x], law), UNIT),
        parameters=[quantity(lam, POSITIVE, 2)],
        start={q: sp.S.Half},
    )


@functools.cache
def hermite_toy() -> CompiledSystem:
    """dm/dt = -(1 - m^2) d/dm of twice E (He_2(x) - He_2(y))^2/2, corr(x, y) = m: 8 m (1 - m^2); m(0) = 1/sqrt(d)."""
    law = Gaussian([0, 0], [[1, m], [m, 1]])
    loss = Expectation((He(2, x) - He(2, y)) ** 2, [x, y], law)
    return compiled(
        define(risk, loss),
        flow(m, -(1 - m**2) * loss.diff(m), sp.Interval(-1, 1)),
        parameters=[quantity(d, POSITIVE)],
        start={m: 1 / sp.sqrt(d)},
    )


def exact_toy(m0: Any, t: Any) -> Any:
    return np.sign(m0) / np.sqrt(1 + (np.asarray(m0) ** -2.0 - 1) * np.exp(-16 * np.asarray(t)))
