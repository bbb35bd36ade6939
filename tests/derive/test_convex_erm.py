"""The stationarity equations of convex ERM against those of the paper, typed here, at random points."""

from __future__ import annotations

import mpmath
import pytest
import sympy as sp

from derive.document import Document, TaskError
from derive.equations import Quantity, Root
from derive.expectation import Expectation
from derive.features import Case, FeatureLaw
from derive.functions import relu
from derive.mechanisms.capacity import capacity_system
from derive.mechanisms.convex_erm import ConvexErm, bias_symbol, rho_symbol, step_symbol
from derive.task import load
from derive.tasks.convex_erm import ConvexErmTask

y, u = sp.symbols("y u", real=True)
alpha, s = sp.symbols("alpha s", positive=True)
lam = sp.Symbol("lam", nonnegative=True)
mu = sp.Symbol("mu", real=True)
half = sp.S.Half
b, rho, V = bias_symbol, rho_symbol, step_symbol

MIXTURE = FeatureLaw(
    (Case(half, (), (), (s,), sp.S.One, sp.S.One), Case(half, (), (), (sp.S.Zero,), sp.S.One, sp.S.NegativeOne)),
    (),
    (Quantity(mu, "weight"),),
)
HINGE = sp.Lambda((y, u), relu(1 - y * u))
SQUARE = sp.Lambda((y, u), (u - y) ** 2 / 2)
POINT = {alpha: 1.7, s: 1.6, lam: 0.05, mu: 0.8, b: -0.3, rho: 1.4, V: 0.9}


def problem(loss: sp.Lambda) -> ConvexErm:
    return ConvexErm.of(MIXTURE, loss, lam, True, alpha)


def typed(loss_slope: object, point: dict[sp.Symbol, float]) -> dict[str, mpmath.mpf]:
    """Section 3 of arXiv:2509.25153 for t = 0, m = s 1_+, sigma = 1: each residual, by quadrature at 20 digits.

    loss_slope(y, prox-free): (A, V, y) -> loss' at the proximal point of A.
    """
    p = {k.name: mpmath.mpf(v) for k, v in point.items()}
    r2 = p["rho"] ** 2 - p["mu"] ** 2

    def mean(f: object) -> mpmath.mpf:
        def integrand(g: mpmath.mpf, label: int) -> mpmath.mpf:
            m = p["s"] if label == 1 else mpmath.mpf(0)
            a = p["mu"] * m + p["b"] + p["rho"] * g
            return f(loss_slope(a, p["V"], label), g, m) * mpmath.npdf(g)  # type: ignore[operator]

        parts = [mpmath.quad(lambda g, k=k: integrand(g, k), mpmath.linspace(-10, 10, 81)) for k in (1, -1)]
        return (parts[0] + parts[1]) / 2

    return {
        "b": mean(lambda d, g, m: d),
        "mu": mean(lambda d, g, m: m * d) + p["mu"] / (p["alpha"] * p["V"]),
        "rho": r2 - p["alpha"] * p["V"] ** 2 * mean(lambda d, g, m: d**2),
        "V": mean(lambda d, g, m: g * d) / p["rho"] + p["lam"] - 1 / (p["alpha"] * p["V"]),
    }


def square_slope(a: mpmath.mpf, step: mpmath.mpf, label: int) -> mpmath.mpf:
    return (a - label) / (1 + step)


def hinge_slope(a: mpmath.mpf, step: mpmath.mpf, label: int) -> mpmath.mpf:
    margin = label * a
    return -label * (1 if margin < 1 - step else (1 - margin) / step if margin < 1 else mpmath.mpf(0))


@pytest.mark.parametrize(("loss", "slope"), [(SQUARE, square_slope), (HINGE, hinge_slope)], ids=["square", "hinge"])
def test_equations_are_those_of_the_paper(loss: sp.Lambda, slope: object) -> None:
    expected = typed(slope, POINT)
    scale = {"b": alpha * V, "mu": alpha * V, "rho": sp.S.One, "V": alpha * V}
    system = problem(loss).equations()
    for name, value in expected.items():
        rhs = system.equation(system.symbol(name)).rhs
        assert not rhs.has(Expectation)
        found = float((rhs / scale[name]).subs(POINT))
        # the quadrature splits at 80 places, not at the kinks: it is good to 1e-7
        assert found == pytest.approx(float(value), abs=1e-6)


def hinge_prox(a: mpmath.mpf, step: mpmath.mpf, label: int) -> mpmath.mpf:
    margin = label * a
    return label * (margin + step if margin < 1 - step else mpmath.mpf(1) if margin < 1 else margin)


def square_prox(a: mpmath.mpf, step: mpmath.mpf, label: int) -> mpmath.mpf:
    return (a + step * label) / (1 + step)


@pytest.mark.parametrize(
    ("loss", "prox", "value", "zeros"),
    [
        (SQUARE, square_prox, lambda u, y: (u - y) ** 2 / 2, lambda v: (-v,)),
        (HINGE, hinge_prox, lambda u, y: max(1 - y * u, mpmath.mpf(0)), lambda v: (-v, 1 - v, 1)),
    ],
    ids=["square", "hinge"],
)
def test_what_is_read_off_the_solution(loss: sp.Lambda, prox: object, value: object, zeros: object) -> None:
    """Losses and errors at a random point: averages over the output, by quadrature between its kinks."""
    p = {k.name: mpmath.mpf(v) for k, v in POINT.items()}
    expected = dict.fromkeys(("training_loss", "test_loss", "training_error", "test_error"), mpmath.mpf(0))
    for label, m in ((1, p["s"]), (-1, mpmath.mpf(0))):
        base = p["mu"] * m + p["b"]

        def at(g: mpmath.mpf, base: mpmath.mpf = base, label: int = label) -> dict[str, mpmath.mpf]:
            a = base + p["rho"] * g
            u = prox(a, p["V"], label)  # type: ignore[operator]
            return {
                "training_loss": value(u, label),  # type: ignore[operator]
                "test_loss": value(a, label),  # type: ignore[operator]
                "training_error": mpmath.mpf(label * u < 0),
                "test_error": mpmath.mpf(label * a < 0),
            }

        places = sorted((label * c - base) / p["rho"] for c in (0, *zeros(p["V"])))  # type: ignore[operator]
        for name in expected:
            ends = [-12, *places, 12]
            expected[name] += mpmath.quad(lambda g, n=name, f=at: f(g)[n] * mpmath.npdf(g), ends) / 2
    system = problem(loss).equations()
    for name, number in expected.items():
        found = system.equation(system.symbol(name)).rhs
        assert float(found.subs(POINT)) == pytest.approx(float(number), rel=1e-9)  # between kinks: analytic
    rest = system.equation(system.symbol("r")).rhs
    assert float(rest.subs(POINT)) ** 2 == pytest.approx(POINT[rho] ** 2 - POINT[mu] ** 2, rel=1e-12)


def test_the_square_loss_comes_apart() -> None:
    blocks = [b.unknowns for b in problem(SQUARE).equations().blocks()]
    assert [tuple(u.name for u in block) for block in blocks[:3]] == [("V",), ("mu", "b"), ("rho",)]


def test_ridgeless_limit_of_the_square_loss() -> None:
    limit = problem(SQUARE).interpolating()
    assert limit is not None
    system = limit.equations()
    step = system.equation(V).rhs
    assert sp.solve(step, V) == [(1 - alpha) / alpha]  # lambda V -> 1/alpha - 1 below alpha = 1
    assert system.equation(system.symbol("training_loss")).rhs == 0
    smooth = problem(sp.Lambda((y, u), sp.log(1 + sp.exp(-y * u))))
    assert smooth.interpolating() is None


def test_potential_and_equations_agree() -> None:
    """Central differences of the potential, by quadrature, against the equations."""
    erm = problem(HINGE)
    h = mpmath.mpf("1e-6")

    def potential(at: dict[sp.Symbol, mpmath.mpf]) -> mpmath.mpf:
        p = {k.name: mpmath.mpf(v) for k, v in at.items()}

        def envelope(a: mpmath.mpf, label: int) -> mpmath.mpf:
            margin, step = label * a, p["V"]
            if margin >= 1:
                return mpmath.mpf(0)
            return 1 - margin - step / 2 if margin < 1 - step else (1 - margin) ** 2 / (2 * step)

        total = mpmath.mpf(0)
        for label, m in ((1, p["s"]), (-1, mpmath.mpf(0))):
            base = p["mu"] * m + p["b"]
            kinks = sorted(((label * c - base) / p["rho"]) for c in (1, 1 - p["V"]))
            ends = [-12, *kinks, 12]
            total += mpmath.quad(lambda g: envelope(base + p["rho"] * g, label) * mpmath.npdf(g), ends) / 2  # noqa: B023
        rest = p["rho"] ** 2 - p["mu"] ** 2
        return total - rest / (2 * p["alpha"] * p["V"]) + p["lam"] * p["rho"] ** 2 / 2

    system = erm.equations()
    scale = {mu: alpha * V, b: alpha * V, rho: alpha * V / rho, V: 2 * alpha * V**2}
    named = {mu: mu, b: b, rho: V, V: rho}  # the derivative in rho is the equation of V, and the other way round
    for symbol, factor in scale.items():
        ahead, behind = ({**POINT, symbol: POINT[symbol] + k * float(h)} for k in (1, -1))
        difference = (potential(ahead) - potential(behind)) / (2 * h)
        rhs = system.equation(named[symbol]).rhs / factor
        assert float(rhs.subs(POINT)) == pytest.approx(float(difference), abs=1e-8)  # h^2 and rounding/h


def test_capacity_without_signal_is_covers() -> None:
    law = FeatureLaw(
        (Case(half, (), (), (), sp.S.One, sp.S.One), Case(half, (), (), (), sp.S.One, sp.S.NegativeOne)), (), ()
    )
    system = capacity_system(ConvexErm.of(law, SQUARE, sp.S.Zero, False, alpha))
    misfit = system.equation(system.symbol("misfit")).rhs
    assert misfit == half  # E (G)_+^2: capacity 2


TASK = """
limitlaw = 1
family = "convex-erm"
[parameters]
alpha = {{ domain = "(0,inf)", default = 2 }}
[latent]
{latent}
[features]
mean = {mean}
[label]
formula = "{label}"
[erm]
loss = "{loss}"
ridge = "{ridge}"
"""


def task(**changes: str) -> ConvexErmTask:
    parts = {
        "latent": 's = { values = [1, -1], probabilities = ["1/2", "1/2"] }',
        "mean": '["3/2*s"]',
        "label": "s",
        "loss": "square",
        "ridge": "1/10",
    }
    found = load(Document.read(TASK.format(**(parts | changes)), "test"))
    assert isinstance(found, ConvexErmTask)
    return found


def test_a_label_that_reads_the_feature_gives_its_direction_a_variable() -> None:
    regression = task(latent="eps = { normal = [0, 1] }", mean="[0]", label="x1 + eps/2")
    (case,) = regression.law.cases
    assert len(case.normals) == 2
    assert case.mean == ()
    system = regression.equations()
    v = system.equation(system.symbol("V"))
    assert isinstance(v, Root)
    assert v.rhs.free_symbols == {V, alpha}  # ridge regression: V alone


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "sin(u)"}, "not convex in u"),
        ({"loss": "min(1, (1 - y*u)**2)"}, "not convex in u"),
        ({"loss": "y**2"}, "does not read the output u"),
        ({"ridge": "-1/10"}, "must not be negative"),
        ({"latent": 's = { values = [1, -1], probabilities = ["1/2", "1/3"] }'}, "sum to 1"),
        ({"latent": 's = { values = [1, -1], probabilities = ["1/2"] }'}, "a list of 2 numbers"),
        ({"latent": "s = { normal = [0, -1] }"}, "variance"),
        ({"latent": "s = { uniform = [0, 1] }"}, "normal = "),
        ({"latent": "rho = { normal = [0, 1] }", "label": "1", "mean": "[0]"}, "quantity of this theory"),
        ({"mean": "[]"}, "features"),
    ],
)
def test_bad_input(changes: dict[str, str], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        task(**changes)
