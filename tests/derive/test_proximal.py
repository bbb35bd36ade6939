"""Proximal operators: nodes, derivatives, regions, minimisers, convexity; against minimisation by mpmath."""

from __future__ import annotations

import mpmath
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.expectation import Expectation
from derive.functions import relu, softplus
from derive.measures import Gaussian, Pushforward, standard_normal
from derive.proximal import (
    Confined,
    Moreau,
    MoreauCurvature,
    MoreauSlope,
    Prox,
    closed_proximal,
    kinks,
    minimisers,
    non_convex_point,
    regions,
    slope_at,
)
from derive.rules import closed_form

u, w, G = sp.symbols("u w G", real=True)
y = sp.Symbol("y", real=True)
V = sp.Symbol("V", positive=True)

PIECEWISE = {
    "square": (u - 1) ** 2 / 2,
    "hinge": relu(1 - u),
    "squared hinge": relu(1 - u) ** 2,
    "absolute": sp.Abs(u - 2),
    "huber": (u - 1) ** 2 / 2 - relu(sp.Abs(u - 1) - 1) ** 2 / 2,
    "pinball": sp.Max(2 * u, -u / 3),
    "three pieces": relu(-u) + relu(1 - u) ** 2 / 4 + u**2 / 10,
}
numbers = st.floats(-6, 6)
steps = st.floats(0.01, 20)


def minimum(loss: sp.Expr, step: float, point: float) -> float:
    """argmin of loss(u) + (u - point)^2/(2 step) by golden sections of mpmath at 30 digits."""
    f = sp.lambdify(u, loss.replace(relu, lambda x: sp.Max(x, 0)), "mpmath")
    with mpmath.workdps(30):
        a, b = mpmath.mpf(-400), mpmath.mpf(400)
        golden = (mpmath.sqrt(5) - 1) / 2

        def objective(x: mpmath.mpf) -> mpmath.mpf:
            return f(x) + (x - point) ** 2 / (2 * mpmath.mpf(step))

        while b - a > mpmath.mpf("1e-14"):
            c, d = b - golden * (b - a), a + golden * (b - a)
            a, b = (a, d) if objective(c) < objective(d) else (c, b)
        return float((a + b) / 2)


@pytest.mark.parametrize("name", PIECEWISE)
@settings(max_examples=15)
@given(step=steps, point=numbers)
def test_regions_give_the_minimiser(name: str, step: float, point: float) -> None:
    loss = sp.Lambda(u, PIECEWISE[name])
    closed = closed_proximal(Prox(loss, V, w))
    assert not closed.has(Prox)
    value = float(closed.subs({V: sp.Float(step, 30), w: sp.Float(point, 30)}))
    # a minimum is found to the square root of the digits that its objective has: 1e-14 at 30 digits
    assert value == pytest.approx(minimum(PIECEWISE[name], step, point), abs=1e-12)


@pytest.mark.parametrize("name", PIECEWISE)
def test_closed_nodes_are_consistent(name: str) -> None:
    loss = sp.Lambda(u, PIECEWISE[name])
    at = {V: sp.Rational(7, 5), w: sp.Rational(-31, 17)}
    prox, envelope, slope, curvature = (
        closed_proximal(node(loss, V, w)) for node in (Prox, Moreau, MoreauSlope, MoreauCurvature)
    )
    p = prox.subs(at)
    assert slope.subs(at) == ((at[w] - p) / at[V]).expand()
    assert sp.simplify(envelope.subs(at) - PIECEWISE[name].subs(u, p) - (p - at[w]) ** 2 / (2 * at[V])) == 0
    step = sp.Rational(1, 10**6)
    ahead, behind = (slope.subs({**at, w: at[w] + s * step}) for s in (1, -1))
    assert curvature.subs(at) == sp.expand((ahead - behind) / (2 * step))  # slopes are affine between the regions


def test_derivatives_of_the_nodes_of_a_smooth_loss() -> None:
    loss = sp.Lambda(u, (u - 1) ** 2 / 2 + u**4 / 12)
    smooth = loss.expr

    def values(step: mpmath.mpf, point: mpmath.mpf) -> dict[type, mpmath.mpf]:
        prime, second = (sp.lambdify(u, smooth.diff(u, k), "mpmath") for k in (1, 2))
        p = mpmath.findroot(lambda x: x - point + step * prime(x), point)
        r, bend = (point - p) / step, second(p)
        moreau = sp.lambdify(u, smooth, "mpmath")(p) + (p - point) ** 2 / (2 * step)
        return {Prox: p, MoreauSlope: r, Moreau: moreau, MoreauCurvature: bend / (1 + step * bend)}

    with mpmath.workdps(40):
        point, step = mpmath.mpf("0.7"), mpmath.mpf("1.3")
        here = values(step, point)
        nodes = {n(loss, V, w): sp.Float(str(v), 40) for n, v in here.items()}
        for kind in here:
            for symbol, move in ((w, (0, 1)), (V, (1, 0))):
                rule = kind(loss, V, w).diff(symbol).xreplace(nodes).subs({V: sp.Float(str(step), 40)})
                rule = rule.subs(w, sp.Float(str(point), 40))
                h = mpmath.mpf("1e-10")
                ahead, behind = (values(step + s * h * move[0], point + s * h * move[1])[kind] for s in (1, -1))
                difference = (ahead - behind) / (2 * h)
                assert abs(mpmath.mpf(str(rule)) - difference) < mpmath.mpf("1e-17")  # h^2 times a third derivative


def test_a_kink_has_no_derivative_of_the_curvature() -> None:
    with pytest.raises(NotImplementedError, match="smooth losses"):
        MoreauCurvature(sp.Lambda(u, relu(1 - u)), V, w).diff(w)


def test_expectations_of_the_hinge_close() -> None:
    a, s = sp.Symbol("a", real=True), sp.Symbol("s", positive=True)
    loss = sp.Lambda(u, relu(1 - u))
    for node in (Moreau, MoreauSlope, MoreauCurvature):
        integrand = closed_proximal(node(loss, V, a + s * G))
        closed = closed_form(sp.S(Expectation(integrand, [G], standard_normal())))
        assert not closed.has(Expectation)
        at = {a: 0.3, s: 0.8, V: 0.6}
        f = sp.lambdify(G, integrand.subs(at), [{"Heaviside": lambda x, _=None: (mpmath.sign(x) + 1) / 2}, "mpmath"])
        with mpmath.workdps(20):
            ends = [-12, (1 - 0.6 - 0.3) / 0.8, (1 - 0.3) / 0.8, 12]
            expected = mpmath.quad(lambda x, f=f: f(x) * mpmath.npdf(x), ends)
        assert float(closed.subs(at)) == pytest.approx(float(expected), rel=1e-13)  # float64 arithmetic


def test_shapes_of_losses() -> None:
    assert kinks(sp.Lambda(u, relu(sp.Abs(u - y) - 1))) == (y - 1, y + 1)
    assert kinks(sp.Lambda(u, softplus(-u))) == ()
    assert kinks(sp.Lambda(u, relu(sp.exp(u) - 2))) is None
    assert minimisers(sp.Lambda(u, relu(1 - u))) == (1, sp.oo)
    assert minimisers(sp.Lambda(u, relu(-1 - u))) == (-1, sp.oo)
    assert minimisers(sp.Lambda(u, relu(u) + relu(-u - 3))) == (-3, 0)
    assert minimisers(sp.Lambda(u, (u - y) ** 2 / 2)) == (y, y)
    assert minimisers(sp.Lambda(u, relu(1 - u) ** 2 + u / 2)) == (sp.Rational(3, 4), sp.Rational(3, 4))
    assert minimisers(sp.Lambda(u, softplus(-u))) is None
    assert minimisers(sp.Lambda(u, -u)) is None
    assert slope_at(sp.Lambda(u, sp.Abs(u)), sp.S.Zero, from_below=True) == -1
    assert slope_at(sp.Lambda(u, sp.Abs(u)), sp.S.Zero, from_below=False) == 1
    assert slope_at(sp.Lambda(u, softplus(-u)), sp.S.Zero, from_below=True) == -sp.S.Half
    assert slope_at(sp.Lambda(u, Confined(u, 1, sp.oo)), sp.S.Zero, from_below=True) == -sp.oo
    assert regions(sp.Lambda(u, softplus(-u)), V, w) is None


@pytest.mark.parametrize(
    ("loss", "place"),
    [
        (sp.sin(u), True),
        (sp.Min(u, 1), 1.0),
        (sp.sqrt(1 + u**2) - 2 * relu(1 - sp.Abs(u)), True),
        (u**3, True),
        (sp.Heaviside(u), 0.0),
        (sp.log(1 + sp.exp(-u)), None),
        (sp.sqrt(1 + u**2), None),
        (sp.exp(-u) + relu(u - 2), None),
        (relu(1 - u) ** 2, None),
    ],
)
def test_convexity(loss: sp.Expr, place: float | bool | None) -> None:
    found = non_convex_point(sp.Lambda(u, loss))
    if place is None:
        assert found is None
    else:
        assert found is not None
        assert place is True or found == place


def test_projection_onto_an_interval() -> None:
    loss = sp.Lambda(u, Confined(u, -1, 2))
    closed = closed_proximal(Prox(loss, V, w))
    assert [closed.subs(w, x) for x in (-3, 0, 5)] == [-1, 0, 2]
    assert closed_proximal(Moreau(loss, V, w)).subs({w: 5, V: 3}) == sp.Rational(9, 6)


def test_pushforward_is_equal_up_to_names_and_drops_what_is_not_needed() -> None:
    a, b, s, t = sp.symbols("a b s t", real=True)
    law = Pushforward(standard_normal(2), [a, b], [(s, a + b), (t, y * s**2)], [t])
    other = Pushforward(Gaussian([0, 0], [[1, 0], [0, 1]]), [s, t], [(a, s + t), (b, y * a**2)], [b])
    assert law == other
    assert hash(law) == hash(other)
    assert law.free_symbols == {y}
    both = Pushforward(standard_normal(2), [a, b], [(s, a**2), (t, b + y)], [s, t])
    assert both.marginal([0]).base.dim == 1
    assert both.marginal([0]).free_symbols == set()
    integral = Expectation(sp.tanh(w * s), [s, t], both)
    assert integral == Expectation(sp.tanh(w * s), [s], both.marginal([0]))
    assert integral.diff(w) == Expectation(s * (1 - sp.tanh(w * s) ** 2), [s], both.marginal([0]))
    with pytest.raises(ValueError, match="not defined before"):
        Pushforward(standard_normal(1), [a], [(s, t), (t, a)], [s])
