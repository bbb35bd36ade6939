"""Gaussian expectations by plain numbers, independent of the rules: the truth of the tests in this folder.

`value` is Gauss-Legendre in float64 on panels that end at every kink; `value_mp` is mpmath at 30 digits in one
variable. Both find the kinks from the arguments of the functions that have one, numerically.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import mpmath as mp
import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy import special

from derive.expectation import Expectation
from derive.functions import relu
from derive.measures import Gaussian

Array = NDArray[np.float64]
KINKED = (relu, sp.Abs, sp.sign, sp.Heaviside)


def _hermite(n: int, x: Any) -> Any:
    previous, current = 0 * x, 1 + 0 * x
    for k in range(int(n)):
        previous, current = current, x * current - k * previous
    return current


def _softmax_numpy(own: Any, *others: Any) -> Any:
    return 1 / (1 + sum(np.exp(np.minimum(o - own, 700.0)) for o in others))


def _sech_spectrum(library: Any) -> Any:
    """(w/2) / sinh(pi w/2) times dw/dx over the normal density, at w = x sqrt(x^2 + 4) / pi."""
    pi = mp.pi if library is mp else np.pi

    def value(x: Any) -> Any:
        x = x + 1e-20  # off the removable singularity; the function is even
        root = library.sqrt(x**2 + 4)
        w, slope = x * root / pi, (2 * x**2 + 4) / (pi * root)
        return w / 2 / library.sinh(pi * w / 2) * slope * library.sqrt(2 * pi) * library.exp(x**2 / 2)

    return value


NUMPY = {
    "He": _hermite,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(x, 0),
    "LogCosh": lambda x: np.logaddexp(x, -x),
    "Phi": special.ndtr,
    "SechSpectrum": _sech_spectrum(np),
    "SoftmaxEntry": _softmax_numpy,
    "erf": special.erf,
    "erfc": special.erfc,
    "Heaviside": lambda x, _=0.5: np.heaviside(x, 0.5),
}
MPMATH = {
    "He": _hermite,
    "relu": lambda x: x if x > 0 else mp.mpf(0),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(-abs(x))) + max(x, mp.mpf(0)),
    "LogCosh": lambda x: abs(x) + mp.log1p(mp.exp(-2 * abs(x))),
    "Phi": lambda x: mp.erfc(-x / mp.sqrt(2)) / 2,
    "SechSpectrum": _sech_spectrum(mp),
    "SoftmaxEntry": lambda own, *others: 1 / (1 + sum(mp.exp(o - own) for o in others)),
    "Heaviside": lambda x, _=0.5: mp.mpf(1) if x > 0 else mp.mpf(0) if x < 0 else mp.mpf(1) / 2,
    "sign": mp.sign,
}


def kinks(f: sp.Expr) -> set[sp.Expr]:
    """Expressions without kinks whose zeros hold the kinks and jumps of f."""
    found = [e.args[0] for e in f.atoms(*KINKED)]
    for e in f.atoms(sp.Max, sp.Min):
        found += [a - b for a, b in itertools.combinations(e.args, 2)]
    return set().union(*(_branches(e) for e in found))


def _branches(e: sp.Expr) -> set[sp.Expr]:
    """The expressions that e is between the kinks inside it."""
    inner = next(iter(e.atoms(*KINKED, sp.Max, sp.Min)), None)
    if inner is None:
        return {e}
    a = inner.args[0]
    pieces = {relu: (a, 0), sp.Abs: (a, -a), sp.sign: (1, -1), sp.Heaviside: (0, 1)}.get(inner.func, inner.args)
    return set().union(*(_branches(e.xreplace({inner: sp.S(piece)})) for piece in pieces))


def _lines(f: sp.Expr, x: Sequence[sp.Symbol]) -> list[tuple[Array, float]]:
    """(a, b) of each kink a . x + b = 0; kinks along curves are refused."""
    lines = []
    rng = np.random.default_rng(0)
    for k in kinks(f):
        if not k.has(*x):
            continue
        g = lambda *at, k=k: float(k.xreplace({s: sp.S(t) for s, t in zip(x, at, strict=True)}))
        b = g(*[0] * len(x))
        a = np.array([g(*(int(i == j) for i in range(len(x)))) - b for j in range(len(x))])
        point = rng.normal(size=len(x)).round(3)
        if abs(g(*point) - a @ point - b) > 1e-9 * (1 + np.abs(point).sum()):
            raise NotImplementedError(f"a kink along a curve: {k}")
        lines.append((a, b))
    return lines


@lru_cache(maxsize=8)
def _legendre(n: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(n)


def _panels(cuts: Sequence[float], reach: float, width: float, n: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss-Legendre on [-reach, reach], cut at `cuts` and into panels of `width`."""
    ends = sorted({-reach, reach, *(float(c) for c in cuts if -reach < c < reach)})
    edges = np.concatenate(
        [np.linspace(a, b, max(1, int(np.ceil((b - a) / width))) + 1)[:-1] for a, b in itertools.pairwise(ends)]
        + [np.array([reach])]
    )
    t, w = _legendre(n)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (t + 1)).ravel(), (half * w).ravel()


def _density(t: Array) -> Array:
    return np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)


def _frame(directions: list[Array], dim: int) -> Array:
    """An orthogonal matrix whose first rows span the directions."""
    stacked = np.array([*directions, *np.eye(dim)]).T
    basis: list[Array] = []
    for column in stacked.T:
        rest = column - sum((b @ column) * b for b in basis)
        if np.linalg.norm(rest) > 1e-8 * max(1.0, float(np.linalg.norm(column))):
            rest = rest / np.linalg.norm(rest)
            rest = rest - sum((b @ rest) * b for b in basis)
            basis.append(rest / np.linalg.norm(rest))
    return np.array(basis)


def value(
    e: sp.Expr, values: Mapping[sp.Symbol, Any] | None = None, *, reach: float = 12.0, width: float = 1.5
) -> float:
    """The number that an expression with expectations over at most two kinked directions is."""
    e = sp.S(e).xreplace({k: sp.S(v) for k, v in (values or {}).items()})
    found = {a: sp.Float(_expect(a, reach, width), 17) for a in _outermost(e)}
    return float(sp.N(e.xreplace(found), 17))


def _outermost(e: sp.Basic) -> set[Expectation]:
    if isinstance(e, Expectation):
        return {e}
    return set().union(*(_outermost(a) for a in e.args)) if e.args else set()


def value_nested(e: sp.Expr, values: Mapping[sp.Symbol, Any]) -> float:
    """`value` where an outer expectation in one variable, smooth in it, holds inner ones: 49 trapezoid nodes."""
    e = e.xreplace({k: sp.S(v) for k, v in values.items()})
    numbers = {}
    for outer in _outermost(e):
        if not outer.integrand.has(Expectation):
            continue
        (z,) = outer.variables
        spread, mean = float(sp.sqrt(outer.measure.cov[0, 0])), float(outer.measure.mean[0])
        t = np.arange(-24, 25) / 3
        inside = [value(outer.integrand.xreplace({z: sp.Float(mean + spread * k, 17)})) for k in t]
        numbers[outer] = sp.Float(float(np.sum(_density(t) * np.array(inside)) / 3), 17)
    return value(e.xreplace(numbers))


@lru_cache(maxsize=4096)
def _expect(e: Expectation, reach: float, width: float) -> float:
    return expect(e.integrand, tuple(e.variables), e.measure, reach=reach, width=width)


def expect(
    integrand: sp.Expr,
    x: Sequence[sp.Symbol],
    law: Gaussian,
    values: Mapping[sp.Symbol, Any] | None = None,
    *,
    reach: float = 12.0,
    width: float = 1.5,
) -> float:
    """E f(x), x ~ law. Kinks are straight and lie along at most two directions."""
    swap = {k: sp.S(v) for k, v in (values or {}).items()}
    f, dim = integrand.xreplace(swap), len(x)
    mean = np.array([float(v.xreplace(swap)) for v in law.mean])
    cov = np.array(law.cov.xreplace(swap).tolist(), dtype=float)
    spread, vectors = np.linalg.eigh(cov)
    factor = vectors * np.sqrt(np.maximum(spread, 0))
    lines = [(a @ factor, a @ mean + b) for a, b in _lines(f, x)]
    lines = [(a, b) for a, b in lines if np.linalg.norm(a) > 1e-12]
    frame = _frame([a for a, _ in lines], dim)
    rank = int(np.linalg.matrix_rank(np.array([a for a, _ in lines]), tol=1e-9)) if lines else 0
    if rank > 2:
        raise NotImplementedError("kinks along more than two directions")
    turned = [(frame @ a, b) for a, b in lines]
    g, weights = _nodes(turned, dim, rank, reach, width)
    points = mean[:, None] + factor @ frame.T @ g
    with np.errstate(over="ignore"):
        total = sp.lambdify(list(x), f, [NUMPY, "numpy"])(*points)
    return float(np.sum(weights * total))


def _nodes(lines: list[tuple[Array, float]], dim: int, rank: int, reach: float, width: float) -> tuple[Array, Array]:
    """Nodes (dim, n) and weights (n,): panels along the `rank` kinked directions, trapezoid along the rest."""
    n = 16 if dim < 3 else 12
    if rank == 2:
        g, weights = _plane(lines, reach, width if dim < 3 else 2 * width, n)
    elif rank == 1:
        t, w = _panels([-b / a[0] for a, b in lines], reach, width, n)
        g, weights = t[None], w * _density(t)
    else:
        g, weights = np.zeros((0, 1)), np.ones(1)
    # exponentially accurate for entire functions, and for tanh(s t) with error exp(-pi^2 / (s step))
    step, end = (0.12 * width, reach) if dim < 3 else (0.16 * width, 8.5)
    t = np.arange(-np.ceil(end / step), np.ceil(end / step) + 1) * step
    for _ in range(dim - rank):
        w = _density(t) * step
        g = np.concatenate([np.repeat(g, len(t), axis=1), np.tile(t, g.shape[1])[None]])
        weights = np.repeat(weights, len(t)) * np.tile(w, len(weights))
    return g, weights


def _plane(lines: list[tuple[Array, float]], reach: float, width: float, n: int) -> tuple[Array, Array]:
    """Outer panels end where kinks cross or stand upright, inner ones at the kinks."""
    flat = [(a[0], a[1], b) for a, b in lines]
    cuts = [-b / p for p, q, b in flat if abs(q) < 1e-12]
    for (p, q, b), (r, s, c) in itertools.combinations(flat, 2):
        if abs(p * s - q * r) > 1e-12:
            cuts.append((q * c - s * b) / (p * s - q * r))
    for p, q, b in flat:  # where a kink leaves the square
        if abs(q) > 1e-12 and abs(p) > 1e-12:
            cuts += [(side * reach * -q - b) / p for side in (-1, 1)]
    outer, w = _panels(cuts, reach, width, n)
    blocks, weights = [], []
    for t, weight in zip(outer, w * _density(outer), strict=True):
        u, v = _panels([-(b + p * t) / q for p, q, b in flat if abs(q) > 1e-12], reach, width, n)
        blocks.append(np.stack([np.full_like(u, t), u]))
        weights.append(weight * v * _density(u))
    return np.concatenate(blocks, axis=1), np.concatenate(weights)


def value_mp(f: sp.Expr, x: sp.Symbol, mean: Any = 0, variance: Any = 1) -> mp.mpf:
    """E f(x), x ~ N(mean, variance), by mpmath at 30 digits, split at the kinks."""
    with mp.workdps(30):
        centre, spread = _mpf(mean), mp.sqrt(_mpf(variance))
        g = sp.lambdify([x], f, [MPMATH, "mpmath"])
        ends = {mp.mpf(k) for k in (-12, -6, -2, 0, 2, 6, 12)}
        for k in kinks(f):
            h = sp.lambdify([x], k, [MPMATH, "mpmath"])
            b = h(mp.mpf(0))
            a = h(mp.mpf(1)) - b
            if a != 0:
                ends.add((-b / a - centre) / spread)
        points = sorted(t for t in ends if -12 <= t <= 12)
        density = lambda t: mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi)
        return mp.quad(lambda t: g(centre + spread * t) * density(t), points)


def _mpf(v: Any) -> mp.mpf:
    return sp.lambdify([], sp.S(v), "mpmath")() * mp.mpf(1)
