"""The torch programs against mpmath, and their gradients against SymPy's derivatives."""

import math

import mpmath
import pytest
import sympy as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from derive.expectation import Expectation
from derive.functions import He, LogCosh, Phi, SoftmaxEntry, orthonormal, relu, sigmoid, softmax, softplus
from derive.measures import standard_normal
from verify.lower import lower

x, y, t = sp.symbols("x y t", real=True)

TRUTH = {  # at 30 digits, by definitions that share nothing with the back end
    relu: lambda v: mpmath.mpf(max(v, 0)),
    sigmoid: lambda v: 1 / (1 + mpmath.exp(-v)),
    softplus: lambda v: mpmath.log(1 + mpmath.exp(v)),
    LogCosh: lambda v: mpmath.log(2 * mpmath.cosh(v)),
    Phi: mpmath.ncdf,
    sp.erf: mpmath.erf,
    sp.tanh: mpmath.tanh,
    sp.Abs: abs,
    sp.sign: mpmath.sign,
    sp.Heaviside: lambda v: (1 + mpmath.sign(v)) / 2,
    sp.exp: mpmath.exp,
    sp.sin: mpmath.sin,
    sp.cos: mpmath.cos,
}
POINTS = (-9.5, -2.25, -0.5, 0.0, 0.375, 1.0, 4.0, 8.75)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def evaluate(expr: sp.Expr, **values: float) -> float:
    symbols = sorted(expr.free_symbols, key=str)
    return float(lower([expr], symbols)([tensor(values[s.name])[0] for s in symbols])[0])


@pytest.mark.parametrize("function", TRUTH, ids=lambda f: f.__name__)
def test_each_function_is_its_definition(function):
    values = lower([function(x)], [x])([tensor(*POINTS)])[0].tolist()
    for point, value in zip(POINTS, values, strict=True):
        with mpmath.workdps(30):
            exact = float(TRUTH[function](mpmath.mpf(point)))
        assert value == pytest.approx(exact, rel=3e-14, abs=1e-300)  # rounding of x/sqrt 2, 90 ulp at x = 9


@pytest.mark.parametrize("function", TRUTH, ids=lambda f: f.__name__)
def test_gradient_is_the_symbolic_derivative(function):
    point = tensor(*(p for p in POINTS if p)).requires_grad_()
    (gradient,) = torch.autograd.grad(lower([function(2 * x - 1)], [x])([point]).sum(), point)
    derivative = function(2 * x - 1).diff(x).replace(sp.DiracDelta, lambda *_: sp.S.Zero)
    expected = lower([derivative], [x])([point.detach()])[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-15)  # rounding of 1 - s near s = 1


@pytest.mark.parametrize(
    ("expr", "right"),
    [
        (softplus(x), 800.0),
        (sigmoid(x), 1.0),
        (SoftmaxEntry(x, -x), 1.0),
        (SoftmaxEntry(-x, x), 0.0),
        (SoftmaxEntry(x, -x, 0), 1.0),
        (SoftmaxEntry(-x, x, 0), 0.0),
        (LogCosh(-x), 800.0),
        (sp.log(1 + sp.exp(x)), 800.0),
        (sp.log(2 + 3 * sp.exp(x)), 800.0 + math.log(3)),
        (sp.log(sigmoid(-x)), -800.0),
        (sp.log(SoftmaxEntry(-x, x, 0)), -1600.0),
    ],
    ids=str,
)
def test_tails_neither_overflow_nor_lose_their_gradient(expr, right):  # A19
    point = tensor(800.0).requires_grad_()
    value = lower([expr], [x])([point])[0]
    (gradient,) = torch.autograd.grad(value.sum(), point)
    assert value.item() == right
    assert gradient.item() == pytest.approx({0.0: 0.0, 1.0: 0.0}.get(right, round(right / 800)), abs=1e-300)


def test_lower_tail_of_the_normal_distribution_function():  # A21, A22, A20
    values = lower([Phi(x)], [x])([tensor(-10.0, -9.0, -37.0)])[0].tolist()
    assert values[0] == pytest.approx(7.61985302416053e-24, rel=3e-14)  # 100 ulp: rounding of x/sqrt 2
    assert values[1] == pytest.approx(1.12858840595384e-19, rel=3e-14)  # 80 ulp
    assert values[2] == pytest.approx(float(mpmath.ncdf(-37)), rel=4e-13)  # 1400 ulp
    assert evaluate(sp.log(Phi(x)), x=6.0) == pytest.approx(-9.86587645524376e-10, rel=3e-14)
    log_tail = evaluate(sp.log(Phi(x)), x=-40 * math.sqrt(2.0))
    assert log_tail == pytest.approx(-1604.95470383383, rel=1e-14)  # log(erfc(40)/2)


def test_step_is_one_half_at_the_jump_and_keeps_nan():  # A17
    values = lower([sp.Heaviside(x), sp.sign(x)], [x])([tensor(-1e-300, 0.0, 1e-300, math.nan)])
    assert values[:, :3].tolist() == [[0.0, 0.5, 1.0], [-1.0, 0.0, 1.0]]
    assert values[:, 3].isnan().all()


def test_hermite_of_high_order():  # A04
    assert evaluate(orthonormal(64, x), x=3.0) == pytest.approx(1.15037268310601, rel=1e-13)  # 64 steps
    for n in (2, 3, 7, 12):
        exact = float(mpmath.hermite(n, mpmath.mpf("1.25") / mpmath.sqrt(2)) * mpmath.mpf(2) ** (-n / 2))
        assert evaluate(He(n, x), x=1.25) == pytest.approx(exact, rel=1e-13)  # cancellation in n steps
    single = lower([orthonormal(64, x)], [x])([torch.tensor([3.0], dtype=torch.float32)])
    assert single.dtype == torch.float64


def test_hermite_gradient_and_shared_recurrence():
    point = tensor(0.3, -1.7).requires_grad_()
    program = lower([He(5, x), He(6, x)], [x])
    (gradient,) = torch.autograd.grad(program([point])[1].sum(), point)
    torch.testing.assert_close(gradient, 6 * program([point.detach()])[0], rtol=1e-13, atol=0)  # He_6' = 6 He_5
    assert len(program.steps) == len(lower([He(6, x)], [x]).steps) + 1
    with pytest.raises(ValueError, match="beyond double precision"):
        lower([He(400, x)], [x])


def test_piecewise_at_the_removable_singularity():  # A18
    f = sp.Piecewise(((sp.exp(x) - 1) / x, sp.Ne(x, 0)), (1, True))
    point = tensor(0.0, 1.0, -2.0).requires_grad_()
    value = lower([f], [x])([point])[0]
    (gradient,) = torch.autograd.grad(value.sum(), point)
    exact = [1.0, math.e - 1, (math.exp(-2) - 1) / -2]
    assert value.tolist() == pytest.approx(exact, rel=1e-15)
    slope = [0.0, 1.0, (math.exp(-2) * -2 - math.exp(-2) + 1) / 4]  # the branch 1 is constant
    assert gradient.tolist() == pytest.approx(slope, rel=1e-14)


def test_piecewise_takes_the_first_true_branch_and_is_nan_without_one():
    f = sp.Piecewise((1, x < -1), (sp.log(x), x > 0), (x, sp.And(x > -2, x <= -sp.S.Half)))
    values = lower([f], [x])([tensor(-3.0, -0.75, math.e, -0.25)])[0].tolist()
    assert values[:3] == [1.0, -0.75, 1.0]
    assert math.isnan(values[3])


@given(a=st.floats(-3, 3), b=st.floats(-3, 3))
def test_composite_expressions(a, b):
    logits = sp.Matrix([x, y, x * y])
    expr = (
        sp.Max(x, y, x * y) - sp.Min(x, y) / 3
        + sp.sqrt(1 + x**2) * sp.exp(-(y**2) / 2) / sp.sqrt(2 * sp.pi)
        + sum((i + 1) * p for i, p in enumerate(softmax(logits.T)))
        - x**3 * sp.Rational(1, 7) + (1 + y**2) ** sp.Rational(-3, 2) - sp.log(2) * Phi(x * y)
    )  # fmt: skip
    m, n = mpmath.mpf(a), mpmath.mpf(b)
    weights = [mpmath.exp(v) for v in (m, n, m * n)]
    exact = (
        max(m, n, m * n) - min(m, n) / 3
        + mpmath.sqrt(1 + m**2) * mpmath.npdf(n)
        + sum((i + 1) * p for i, p in enumerate(weights)) / sum(weights)
        - m**3 / 7 + (1 + n**2) ** mpmath.mpf(-1.5) - mpmath.log(2) * mpmath.ncdf(m * n)
    )  # fmt: skip
    assert evaluate(expr + t, x=a, y=b, t=0.0) == pytest.approx(float(exact), rel=1e-13, abs=1e-13)  # ~20 terms


def test_several_expressions_broadcast_and_constants_fill_the_batch():
    program = lower([x + y, sp.sqrt(2), SoftmaxEntry(1, 2, 3)], [x, y])
    values = program([torch.zeros(4, 1, dtype=torch.float64), tensor(1.0, 2.0, 3.0)])
    assert values.shape == (3, 4, 3)
    assert values[0, 2].tolist() == [1.0, 2.0, 3.0]
    assert values[1, 0, 0].item() == math.sqrt(2)
    assert values[2, 0, 0].item() == pytest.approx(1 / (1 + math.e + math.e**2), rel=1e-15)


def test_attention_gradient_matches_finite_differences():
    z = sp.symbols("z1:4", real=True)
    loss = sum((e - sp.Rational(i, 9)) ** 2 for i, e in enumerate(softmax(sp.Matrix(3, 3, lambda i, j: z[i] * z[j]))))
    program = lower([loss], z)
    points = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: program(p.unbind())[0], points)


def test_names_are_not_code():
    strange = sp.Symbol("__import__('os').abort()", real=True)
    assert lower([strange**2], [strange])([tensor(3.0)]).item() == 9.0


@pytest.mark.parametrize("bad", [sp.log(-1), sp.S.ComplexInfinity, sp.nan, sp.exp(sp.exp(10**3)), sp.oo], ids=str)
def test_constants_must_be_finite_and_real(bad):
    with pytest.raises(ValueError, match="not a finite real number"):
        lower([x + sp.Mul(2, bad, evaluate=False)], [x])


def test_what_has_no_rule_and_what_is_no_argument_is_refused():
    with pytest.raises(NotImplementedError, match="No torch rule for Expectation"):
        lower([Expectation(sp.tanh(x + y), [x], standard_normal())], [y])
    with pytest.raises(ValueError, match="y stand in the expressions but not among"):
        lower([x * y], [x])
    with pytest.raises(ValueError, match="given twice"):
        lower([x], [x, x])
    with pytest.raises(ValueError, match="got 1 values"):
        lower([x * y], [x, y])([tensor(1.0)])
