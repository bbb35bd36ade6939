from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import hypothesis.strategies as st
import pytest
import sympy as sp
from hypothesis import given, settings

from derive.constants import ELEMENTARY, constant_value
from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.measures import Gaussian, standard_normal
from derive.parse import FormulaError, check_parameter_name, nearest_name, parse_constant, parse_expression
from derive.syntax import Fault

z1, z2, z3 = z = sp.symbols("z1:4", real=True)
a = sp.Symbol("a", real=True, positive=True)
w = sp.Symbol("omega", real=True, nonnegative=True)
lam = sp.Symbol("lam", real=True)
column = sp.ImmutableDenseMatrix(z)
square = sp.ImmutableDenseMatrix(2, 2, sp.symbols("f1_1 f1_2 f2_1 f2_2", real=True))
NAMES = {"z": column, "z1": z1, "z2": z2, "z3": z3, "a": a, "omega": w, "lam": lam, "f": square}
HALF = sp.Rational(1, 2)


def vector(*entries: sp.Expr) -> sp.ImmutableDenseMatrix:
    return sp.ImmutableDenseMatrix(entries)


@contextmanager
def under_a_second() -> Iterator[None]:
    sp.core.cache.clear_cache()
    start = time.process_time()
    yield
    assert time.process_time() - start < 5  # milliseconds on a quiet machine; what this guards against is minutes


def refusal(text: str, what: str = "formula", equations: bool = False) -> str:
    with under_a_second(), pytest.raises(FormulaError) as caught:
        parse_expression(text, NAMES, what=what, equations=equations)
    message = str(caught.value)
    assert message.startswith(f"{what}: ")
    assert "\n" not in message
    assert len(message) < 500
    return message


# ---- meaning ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("z1", z1),
        ("-z1**2", -(z1**2)),
        ("2**-z1", 2 ** (-z1)),
        ("z1**2**3", z1**8),
        ("-2**2", sp.Integer(-4)),
        ("--z1", z1),
        ("+-+z1", -z1),
        ("z1-z2-z3", z1 - z2 - z3),
        ("z1/z2/z3", z1 / z2 / z3),
        ("z1/z2*z3", z1 * z3 / z2),
        ("z1*-z2", -z1 * z2),
        ("(z1 + z2)*(z1\n - z2)", (z1 + z2) * (z1 - z2)),
        ("1/(1 + z1**2)", 1 / (1 + z1**2)),
        ("exp(-z1**2/2)/sqrt(2*pi)", sp.exp(-(z1**2) / 2) / sp.sqrt(2 * sp.pi)),
        ("log(1+exp(-z1*z2))", sp.log(1 + sp.exp(-z1 * z2))),
        ("sin(z1) + cos(z1) + tanh(z1) + erf(z1)", sp.sin(z1) + sp.cos(z1) + sp.tanh(z1) + sp.erf(z1)),
        ("sigmoid(z1)*softplus(z1)*relu(z1)*Phi(z1)", sigmoid(z1) * softplus(z1) * relu(z1) * Phi(z1)),
        ("abs(z1) + sign(z1) + step(z1)", sp.Abs(z1) + sp.sign(z1) + sp.Heaviside(z1)),
        ("step(0)", HALF),
        ("step(-z1)", sp.Heaviside(-z1)),
        ("He(3, z1)", He(3, z1)),
        ("He(0, z1) + He(1, z1)", 1 + z1),
        ("He12(z1)", He(12, z1)),
        ("h(3, z1)", He(3, z1) / sp.sqrt(6)),
        ("h4(2*z1)", He(4, 2 * z1) / sp.sqrt(24)),
        ("He4(1/2)", sp.Rational(1, 16) - sp.Rational(6, 4) + 3),
        ("He3(sqrt(2))", 2 * sp.sqrt(2) - 3 * sp.sqrt(2)),
        ("max(z1, 0)", sp.Max(z1, 0)),
        ("min(z1, z2, 3)", sp.Min(z1, z2, 3)),
        ("max(omega, 0)", w),
        ("max(1, sqrt(3), 2)", sp.Integer(2)),
        ("min(z1, z1 + 1)", z1),
        ("max(z)", sp.Max(z1, z2, z3)),
        ("sum(z)", z1 + z2 + z3),
        ("prod(z)", z1 * z2 * z3),
        ("sum(z1)", z1),
        ("trace(f)", square[0, 0] + square[1, 1]),
        ("trace(outer(z, z))", z1**2 + z2**2 + z3**2),
        ("lambda*z1", lam * z1),
        ("pi", sp.pi),
        ("a**omega", a**w),
    ],
)
def test_a_formula_means(text: str, expected: sp.Expr) -> None:
    assert parse_expression(text, NAMES) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("z**2", vector(z1**2, z2**2, z3**2)),
        ("z*z", vector(z1**2, z2**2, z3**2)),
        ("2**z", vector(2**z1, 2**z2, 2**z3)),
        ("1/z - a", vector(1 / z1 - a, 1 / z2 - a, 1 / z3 - a)),
        ("tanh(z)", vector(sp.tanh(z1), sp.tanh(z2), sp.tanh(z3))),
        ("He2(z)", vector(He(2, z1), He(2, z2), He(2, z3))),
        ("max(z, 0)", vector(sp.Max(z1, 0), sp.Max(z2, 0), sp.Max(z3, 0))),
        ("[z1, 2]", vector(z1, 2)),
        ("[[z1, 2], [3, z2]]*a", sp.ImmutableDenseMatrix([[a * z1, 2 * a], [3 * a, a * z2]])),
        ("f*[[1, 2], [3, 4]]", sp.ImmutableDenseMatrix(2, 2, [square[i] * (i + 1) for i in range(4)])),
        ("outer([1, a], z)", sp.ImmutableDenseMatrix([[z1, z2, z3], [a * z1, a * z2, a * z3]])),
        ("softmax(z)", vector(SoftmaxEntry(z1, z2, z3), SoftmaxEntry(z2, z1, z3), SoftmaxEntry(z3, z1, z2))),
        ("softmax([[z1, z2], [0, 0]])", sp.ImmutableDenseMatrix([[sigmoid(z1 - z2), sigmoid(z2 - z1)], [HALF, HALF]])),
    ],
)
def test_operations_act_entry_by_entry(text: str, expected: sp.ImmutableDenseMatrix) -> None:
    result = parse_expression(text, NAMES)
    assert isinstance(result, sp.ImmutableDenseMatrix)
    assert result == expected


def test_attention_is_the_softmax_of_the_rows_of_the_outer_product() -> None:
    attention = parse_expression("attention(z)", NAMES)
    assert attention == parse_expression("softmax(outer(z, z))", NAMES)
    assert attention[1, 0] == SoftmaxEntry(z2 * z1, z2**2, z2 * z3)


def test_a_single_token_is_a_vector_of_length_one() -> None:
    names = {"z": sp.ImmutableDenseMatrix([z1])}
    assert parse_expression("attention(z)", names) == sp.ImmutableDenseMatrix([[1]])
    assert parse_expression("sum(z)", names) == z1


def test_the_positional_and_semantic_target() -> None:
    names = {"z": vector(z1, z2), "omega": w, "a": a}
    target = parse_expression("(1-omega)*attention(z) + omega*softmax([[a**2,-a**2],[-a**2,a**2]])", names)
    assert target[0, 0] == (1 - w) * sigmoid(z1**2 - z1 * z2) + w * sigmoid(2 * a**2)
    assert target[1, 0] == (1 - w) * sigmoid(z1 * z2 - z2**2) + w * sigmoid(-2 * a**2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", sp.Rational(1, 10)),
        (".5", HALF),
        ("5.", sp.Integer(5)),
        ("1e-5", sp.Rational(1, 10**5)),
        ("1.25E2", sp.Integer(125)),
        ("9/10", sp.Rational(9, 10)),
        ("0.1 + 0.2 - 0.3", sp.Integer(0)),
        ("sqrt(0.3 - 0.2 - 0.1)", sp.Integer(0)),
        ("sqrt(2)", sp.sqrt(2)),
        ("8**(1/3)", sp.Integer(2)),
        ("0.1*z1", z1 / 10),
        ("12345678901234567890.123456789", sp.Rational("12345678901234567890123456789/1000000000")),
    ],
)
def test_numbers_are_exact(text: str, expected: sp.Expr) -> None:
    assert parse_expression(text, NAMES) == expected


FRACTIONS = {"p": Fraction(2, 3), "q": Fraction(-5, 7), "r": Fraction(11, 2)}
operands = st.one_of(st.sampled_from(list(FRACTIONS)), st.sampled_from(["(-q)", "-r", "p**2", "q**3", "-p**2"]))
arithmetic = st.recursive(
    operands,
    lambda inner: st.builds(
        lambda x, op, y, brackets: f"({x}{op}{y})" if brackets else f"{x} {op} {y}",
        inner,
        st.sampled_from(["+", "-", "*", "/"]),
        inner,
        st.booleans(),
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(arithmetic)
def test_operators_bind_as_in_python(text: str) -> None:
    names = {n: sp.Rational(v.numerator, v.denominator) for n, v in FRACTIONS.items()}
    try:
        expected = eval(text, {"__builtins__": {}}, FRACTIONS)  # the reference: Python on exact fractions
    except ZeroDivisionError:
        with pytest.raises(FormulaError, match="divides by zero"):
            parse_expression(text, names)
        return
    assert parse_expression(text, names) == sp.Rational(expected.numerator, expected.denominator)


# ---- names (A30) ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    ["E", "I", "S", "N", "Q", "O", "beta", "gamma", "lambda", "pi", "zeta", "C", "oo", "Symbol", "if", "None", "in"],
)
def test_a_declared_name_is_that_parameter_and_nothing_of_sympy(name: str) -> None:
    canonical = check_parameter_name(name, {"m", "e"})
    symbol = sp.Symbol(canonical, real=True)
    result = parse_expression(f"{name}*z1 + He2({name}) + {name}", {canonical: symbol, "z1": z1})
    assert result == symbol * z1 + He(2, symbol) + symbol
    assert result.free_symbols == {symbol, z1}


@pytest.mark.parametrize("name", ["E", "I", "S", "N", "Q", "O", "beta", "gamma", "zeta", "oo", "Symbol", "nan", "d"])
def test_an_undeclared_name_is_refused(name: str) -> None:
    with pytest.raises(FormulaError, match=f"'{name}' is (not declared|no finite number)"):
        parse_expression(f"{name}*z1 + beta0*He2(z2)", NAMES)


def test_an_undeclared_name_gets_the_nearest_one() -> None:
    assert "'omga' is not declared; the nearest is omega (declared: a, f, lam," in refusal("omga*z1")
    assert "the nearest is softmax" in refusal("softmx(z)")
    assert nearest_name("metrics_kwargs", ["metric_kwargs", "loss"]) == "metric_kwargs"
    assert nearest_name("qqq", ["metric_kwargs", "loss"]) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("m", "a quantity of this theory"),
        ("tau", "a quantity of this theory"),
        ("z", "a token"),
        ("z12", "a token"),
        ("x1", "a variable under an expectation"),
        ("x1_2", "a variable under an expectation"),
        ("relu", "a function"),
        ("He5", "a function"),
        ("h", "a function"),
        ("sum", "a function"),
        ("inf", "reads as a number"),
        ("__class__", "letter first"),
        ("a__b", "letter first"),
        ("_a", "letter first"),
        ("1a", "letter first"),
        ("a.b", "letter first"),
        ("", "letter first"),
        ("a" * 33, "up to 32 letters"),
        ("__import__('os').system('true')", "letter first"),
        ("a\n", "letter first"),
        ("é", "letter first"),
    ],
)
def test_names_that_a_parameter_cannot_have(name: str, reason: str) -> None:
    with pytest.raises(FormulaError, match=reason) as caught:
        check_parameter_name(name, {"m", "tau"})
    assert "\n" not in str(caught.value)


def test_lam_stands_for_lambda() -> None:
    assert check_parameter_name("lambda", ()) == check_parameter_name("lam", ()) == "lam"
    assert parse_expression("lam - lambda", NAMES) == 0
    with pytest.raises(FormulaError, match="quantity of this theory"):
        check_parameter_name("lambda", {"lam"})


# ---- refusals ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("__import__('os').system('true')", "'__import__' is no name that a formula may use"),
        ("().__class__", "'.__class__' is no part of a formula"),
        ("z1.is_real", "'.is_real' is no part of a formula"),
        ("(lambda: 0)()", "':' is no part of a formula"),
        ("lambda x: x", "'lambda x' lacks an operator"),
        ("[z1 for z1 in z]", "'z1 for' lacks an operator"),
        ("z1 if z2 else z3", "'z1 if' lacks an operator"),
        ("z1; z2", "';' is no part of a formula"),
        ("z1 := 2", "':' is no part of a formula"),
        ("z1 == 2", "'=' is no part of a formula; a formula is one expression"),
        ("z1 < 2", "'<' is no part of a formula"),
        ("z1^2", "'^' is no part of a formula; powers are written **"),
        ("z @ z", "'@' is no part of a formula"),
        ("z1 // 2", "'/' stands where a value is needed"),
        ("z1 *** 2", "'**' stands where a value is needed"),
        ("z[0]", "'[' needs an operator before it"),
        ("f(*z)", "'*' stands where a value is needed"),
        ("f(x=1)", "'=' is no part"),
        ("'z1'", '"\'z1" is no part of a formula'),
        ('"""', "'\"' is no part of a formula"),
        ("1_000", "'1_000' lacks an operator"),
        ("0x10", "'0x10' lacks an operator"),
        ("1j", "'1j' lacks an operator"),
        ("2z1", "'2z1' lacks an operator"),
        ("z1 z2", "'z1 z2' lacks an operator"),
        ("(z1)(z2)", "'(' needs an operator before it; a product is written with *"),
        ("z1 +", "ends where a value is needed"),
        ("(", "'(' is not closed"),
        ("(z1]", "']' closes no bracket"),
        ("z1)", "')' closes no bracket"),
        ("()", "')' stands where a value is needed"),
        ("sum()", "')' closes an empty list"),
        ("(z1, z2)", "',' stands where an operator or ')' is needed"),
        ("z1 # comment", "'#' is no part of a formula"),
        ("z1\\", "'\\\\' is no part of a formula"),
        ("z1 + \u03b2", "'\\u03b2' is no plain ASCII character"),
        ("z\uff11", "'\\uff11' is no plain ASCII character"),
        ("z1\x00", "'\\x00' is no plain ASCII character"),
        ("", "is empty"),
        (" \n\t", "is empty"),
        ("tanh", "'tanh' is a function; give it an argument, tanh(...)"),
        ("He2*z1", "'He2' is a function"),
        ("z1(2)", "uses z1 as a function, which it is not"),
        ("foo(z1)", "calls 'foo', which is no function here"),
        ("tan(z1)", "calls 'tan', which is no function here; the nearest is tanh"),
        ("delta(z1)", "calls 'delta', which is no function here"),
        ("Expectation(x1, [x1], [0], [[1]])", "calls 'Expectation', which is no function here"),
        ("prox(u, u**2, 1, z1)", "calls 'prox', which is no function here"),
        ("Minimum(x1**2, [x1], [[0]], 0)", "calls 'Minimum', which is no function here"),
        ("normal(2)", "calls 'normal', which is no function here"),
        ("exp(z1, z2)", "has 2 arguments where 1 must stand"),
        ("He(z1)", "has 1 argument where 2 must stand"),
        ("He(1/2, z1)", "needs a whole number as its order"),
        ("He(z1, z1)", "needs a whole number as its order"),
        ("He(-1, z1)", "needs an order from 0 to 64"),
        ("He(65, z1)", "needs an order from 0 to 64"),
        ("He(z, z1)", "where a scalar is needed"),
        ("max(z1)", "needs at least two arguments, or one vector or matrix"),
        ("inf", "'inf' is no finite number"),
        ("nan + z1", "'nan' is no finite number"),
    ],
)
def test_what_is_no_formula_is_refused_by_its_part(text: str, part: str) -> None:
    assert part in refusal(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("z + [1, 2]", "'z + [1, 2]' combines the shapes (2,) and (3,); they must be equal"),
        ("z*f", "combines the shapes (2, 2) and (3,)"),
        ("outer(f, z)", "has an argument of shape (2, 2) where a vector is needed"),
        ("attention(z1)", "has an argument of shape () where a vector is needed"),
        ("softmax(z1)", "needs a vector, or a matrix for its rows"),
        ("trace(z)", "of shape (3,) where a square matrix is needed"),
        ("trace(outer(z, [1, 2]))", "of shape (3, 2) where a square matrix is needed"),
        ("[[1, 2], [3]]", "is no vector [a, b] and no matrix"),
        ("[1, [2]]", "is no vector"),
        ("[[[1]]]", "is no vector"),
        ("sum(z1, z2)", "has 2 arguments where 1 must stand"),
    ],
)
def test_shapes_are_checked(text: str, reason: str) -> None:
    assert reason in refusal(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("9**9**9**9", "'9**9**9' has an exponent beyond 64"),
        ("exp(exp(exp(100)))", "'exp(exp(100))' has a value of 1e60 or more"),
        ("max(exp(exp(exp(100))), 1)", "'exp(exp(100))' has a value of 1e60"),
        ("1/(2 - 2)", "'2 - 2' divides by zero"),
        ("z1/(z1 - z1)", "'z1 - z1' divides by zero"),
        ("0**-1", "'0**-1' divides by zero"),
        ("log(0)", "'log(0)' has no real value: the argument must be a positive number, and is 0"),
        ("log(1 - 2)", "'log(1 - 2)' has no real value"),
        ("log(z1 - z1 - 1)", "has no real value"),
        ("sqrt(-2)", "'sqrt(-2)' has no real value: the argument must be a number that is not negative"),
        ("(-8)**(1/3)", "a negative number to a fractional power"),
        ("(-2)**z1", "raises a constant that is not positive to a variable power"),
        ("0**z1", "raises a constant that is not positive to a variable power"),
        ("sqrt(-z1**2)", "'sqrt(-z1**2)' has no real value"),
        ("log(-exp(z1))", "has no real value"),
        ("1e60", "has a value of 1e60 or more"),
        ("1e999999999999", "an exponent beyond 60"),
        ("1e-999999999999", "an exponent beyond 60"),
        ("1" * 31, "has more than 30 digits"),
        ("0." + "1" * 40, "has more than 30 digits"),
        ("1e29*1e29*1e29", "has a value of 1e60 or more"),
        ("z1**65", "has an exponent beyond 64"),
        ("z1**-65", "has an exponent beyond 64"),
        ("(z1**60)**60", "has an exponent beyond 64"),
        ("((z1+z2)**64)**64", "has an exponent beyond 64"),
        ("exp(1e20*log(3))", "has a value of 1e60 or more"),
        ("exp(-1e9*log(3))", "has a power beyond 64 in its exponent"),
        ("exp(1e20*log(1 + 1e-20) + z1)", "has a power beyond 64 in its exponent"),
        ("2**(1e20*log(1 + 1e-20)/log(2))", "has a power beyond 64 in its exponent"),
        ("2**(z1 + 1000000000)", "has an exact value of thousands of digits"),
        ("(1e29*z1)**64", "holds a number of 1e60 or more"),
        ("((1e29/(1e29 + 1))**64)**64", "has an exact value of thousands of digits"),
        ("sqrt(2) + sqrt(3) - sqrt(5 + 2*sqrt(6))", "cancels to nothing within rounding"),
        ("1/(z1 + sqrt(2) + sqrt(3) - z1 - sqrt(5 + 2*sqrt(6)))", "cancels to nothing within rounding"),
        ("max(z1 + sqrt(2) + sqrt(3), z1 + sqrt(5 + 2*sqrt(6)))", "cancels to nothing within rounding"),
        ("He(64, 1e5)", "has a value of 1e60 or more"),
        ("He(64, exp(1) + sqrt(2) + sqrt(3))", "is too involved a constant"),
        ("sin(1e20)", "the argument must be a number within 1e6"),
        ("tanh(tanh(tanh(tanh(sqrt(2)))))", "nests functions of constants more than 3 deep"),
        ("tanh(" * 7 + "z1" + ")" * 7, "nests functions more than 6 deep"),
        ("99999999999999999989**(1/3)", "takes a root of too long a number"),
        ("12345678**(1/63)", "takes a root of too long a number, or of too high an order"),
        ("1e50*z1*1e50", "has a value of 1e60 or more"),
        ("exp(100)*z1*exp(100)", "has a value of 1e60 or more"),
    ],
)
def test_what_sympy_must_not_evaluate_is_refused_by_its_part(text: str, part: str) -> None:
    assert part in refusal(text)


def test_exhausting_formulas_are_refused_in_a_moment() -> None:
    assert "more than 3000" in refusal("z1+" * 3_500_000)
    assert "more than 3000" in refusal("(" * 5000 + "z1" + ")" * 5000)
    assert "more than 40 brackets inside one another" in refusal("(" * 1000 + "z1" + ")" * 1000)
    assert "more than 40 brackets inside one another" in refusal("[" * 41 + "1" + "]" * 41)
    assert "more than 40 powers of powers" in refusal("**".join(["z1"] * 100))
    assert "compares too much" in refusal(f"max({','.join(f'z1*{i}' for i in range(200))})")
    assert "irrational constant" in refusal("*".join(f"sqrt({p})*z1" for p in range(10**9 + 7, 10**9 + 87)))
    assert "irrational constant" in refusal("+".join(f"({p}*z1)**(1/7)" for p in range(101, 200)))
    assert "more than 60 parts" in refusal("+".join(f"log({p % 9 + 2})" for p in range(60)))
    assert "thousands of digits" in refusal("*".join(f"({p}/{p + 1000})**64" for p in range(10**9, 10**9 + 100)))


def test_vectors_are_limited() -> None:
    def vector_of(n: int) -> dict[str, sp.ImmutableDenseMatrix]:
        return {"z": sp.ImmutableDenseMatrix(sp.symbols(f"z1:{n + 1}", real=True))}

    assert parse_expression("outer(z, z)", vector_of(64)).shape == (64, 64)
    with under_a_second(), pytest.raises(FormulaError, match="more than 4096 entries"):
        parse_expression("outer(z, z)", vector_of(65))
    with under_a_second(), pytest.raises(FormulaError, match="too large"):
        parse_expression("attention(z)", vector_of(64))
    with under_a_second():
        assert parse_expression("sum(attention(z))/20", vector_of(20)).is_Add


@pytest.mark.parametrize(
    "text",
    [
        "-" * 2990 + "z1",
        "(z1+z2+z3)**64",
        "+".join(f"z1**{i % 60}*z2" for i in range(250)),
        "*".join(["z1"] * 64),
        "sum(z**2)" + "*tanh(z1)" * 60,
        "(" * 40 + "z1" + ")" * 40,
        "relu(abs(z1 - softplus(z2*max(z3, 0))))",
        "abs(abs(abs(abs(abs(abs(z1)-1)-2)-3)-4)-5)",
        "tanh(1-exp(1-cos(1-sqrt(1-sigmoid(1-z1/7)/7)/7)/7)/7)",
        f"max({','.join(f'z1*{i}+z2' for i in range(60))})",
        "max(z1*max(z2*max(z3*max(z1+z2, z3), z2), z1), 1)",
        "*".join(f"sqrt({p})" for p in (2, 3, 5, 7, 11, 13, 17, 19)),
        "cos(pi/1152921504606846976)",
        "+".join(f"cos(pi/{q})*z1" for q in range(2, 35)),
        "Phi(softplus(tanh(1/3)))",
        "((z1+1)**63+1)**(1/3)",
    ],
)
def test_large_but_allowed_formulas_are_quick(text: str) -> None:
    with under_a_second():
        assert isinstance(parse_expression(text, NAMES), sp.Expr)


def test_errors_say_what_the_formula_is_for() -> None:
    assert refusal("tehta", what="target.formula (line 12 of a.toml)").startswith("target.formula (line 12 of a.toml):")


@pytest.mark.parametrize("text", [None, 3, b"z1", ["z1"]])
def test_only_text_is_parsed(text: object) -> None:
    with pytest.raises(FormulaError, match="is not text"):
        parse_expression(text, NAMES)  # type: ignore[arg-type]


# ---- constants --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "z1", "E", "[1, 2]", "1/0", "", "x", "10**70", "sqrt(-1)"])
def test_what_is_no_constant(text: str) -> None:
    with pytest.raises(FormulaError, match="--set alpha"):
        parse_constant(text, "--set alpha")


@pytest.mark.parametrize("x", [sp.Rational(3, 7), sp.Rational(-3, 7)])
@pytest.mark.parametrize("name", sorted(ELEMENTARY))
def test_the_float_that_a_constant_is_judged_by_is_its_value(name: str, x: sp.Rational) -> None:
    argument = abs(x) if name in ("log", "sqrt") else x
    expr = ELEMENTARY[name].build(argument)
    exact = 0 if name == "delta" else expr.evalf(30)
    assert ELEMENTARY[name].value(float(argument)) == pytest.approx(float(exact), rel=1e-14)  # rounding
    assert constant_value(expr) == pytest.approx(float(exact), rel=1e-14)  # rounding


def test_the_floats_of_compound_constants() -> None:
    assert constant_value(sp.sqrt(2) ** sp.Rational(3, 5) - sp.pi / 7) == pytest.approx(
        2**0.3 - math.pi / 7, rel=1e-14
    )  # rounding
    assert constant_value(SoftmaxEntry(1, 2, 3)) == pytest.approx(0.0900305732, rel=1e-8)  # 1/(1 + e + e^2)
    node = LargestEigenvalue(2, 2, 1, 1, 3)
    assert constant_value(node) == pytest.approx(2.5 + 5**0.5 / 2, rel=1e-12)  # the shifted ratio is 0.65**600
    with pytest.raises(Fault, match="no known real value"):
        constant_value(sp.I)


def test_constants_are_formulas() -> None:
    assert parse_constant(" 9/10 ", "alpha") == sp.Rational(9, 10)
    assert parse_constant("2*pi*exp(-1/2)", "alpha") == 2 * sp.pi * sp.exp(-HALF)
    assert parse_constant("sum([1, 2, 3])", "alpha") == 6


# ---- equations --------------------------------------------------------------------------------------------
x1, x2 = (sp.Symbol(f"x{i}", real=True) for i in (1, 2))
rho = sp.Symbol("rho", real=True)
EQUATION_NAMES = {"m": rho, "a": a}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("logcosh(m) + delta(m)", LogCosh(rho) + sp.DiracDelta(rho)),
        ("asin(m) + acos(m) + atan(m)", sp.asin(rho) + sp.acos(rho) + sp.atan(rho)),
        ("sinh(m) + cosh(m) + erfc(m)", sp.sinh(rho) + sp.cosh(rho) + sp.erfc(rho)),
        ("softmax_entry(m, a, 2)", SoftmaxEntry(rho, a, 2)),
        ("largest_eigenvalue(2, a, m, m, a)", LargestEigenvalue(2, a, rho, rho, a)),
        ("Expectation(tanh(x1), [x1], [m], [[1]])", Expectation(sp.tanh(x1), [x1], Gaussian([rho], [[1]]))),
        (
            "m*Expectation(relu(x1)*relu(x2), [x1, x2], [0, 0], [[1, m], [m, 1]])",
            rho * Expectation(relu(x1) * relu(x2), [x1, x2], Gaussian([0, 0], [[1, rho], [rho, 1]])),
        ),
        (
            "Expectation(x1_1*Expectation(tanh(x1 + x1_1), [x1], [0], [[1]]), [x1_1], [0], [[1]])",
            Expectation(x2 * Expectation(sp.tanh(x1 + x2), [x1], standard_normal()), [x2], standard_normal()),
        ),
        ("Expectation(x1**2, [x1, x2], [0, 0], [[1, 0], [0, 1]])", Expectation(x1**2, [x1], standard_normal())),
        ("m**200", rho**200),
    ],
)  # fmt: skip
def test_equations_hold_further_functions(text: str, expected: sp.Expr) -> None:
    assert parse_expression(text, EQUATION_NAMES, equations=True) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Expectation(x1, [x1], [0])", "needs an integrand"),
        ("Expectation(x1, x1, 0, 1)", "needs its variables as a list of names"),
        ("Expectation(x1, [x1 + 1], [0], [[1]])", "needs its variables as a list of names"),
        ("Expectation(y, [y], [0], [[1]])", "needs different variables named x1"),
        ("Expectation(x1, [x1, x1], [0, 0], [[1, 0], [0, 1]])", "needs different variables named x1"),
        ("Expectation(x1, [x1], [0, 0], [[1]])", "has 1 variables, a mean of shape (2,)"),
        ("Expectation(x1, [x1], [0], [[-1]])", "has no such law"),
        ("Expectation(x1*x2, [x1, x2], [0, 0], [[1, 2], [3, 4]])", "has no such law"),
        ("Expectation([x1], [x1], [0], [[1]])", "has integrand of shape (1,)"),
        ("Expectation(x2, [x1], [0], [[1]])", "'x2' is not declared"),
        ("x1 + Expectation(x1, [x1], [0], [[1]])", "'x1' is not declared"),
        ("largest_eigenvalue(2, m, m, m)", "the n**2 entries"),
        ("largest_eigenvalue(1e20, m)", "the n**2 entries"),
        ("delta(0)", "a number other than 0"),
        ("asin(2)", "a number from -1 to 1"),
        ("m**257", "an exponent beyond 256"),
        ("Expectation(" * 20 + "x1" + ", [x1], [0], [[1]])" * 20, ""),
        ("prox(" * 9 + "u" + ", u, 1, m)" * 9, "needs u as the name"),
        ("moreau(u, " * 9 + "u" + ", 1, m)" * 9, "nests functions more than 8 deep"),
        ("prox(m, m**2, 1, 2)", "needs u as the name of the loss's variable"),
        ("prox(u, [u, u], 1, m)", "has a loss of shape (2,)"),
        ("prox(u, u**2, u, m)", "'u' is not declared"),
        ("moreau_slope(u, u**2, 1)", "needs a name u, a loss of u, V and w"),
        ("Expectation(x1, [x1], normal(1))", "needs a law, Pushforward("),
        ("Expectation(x1, [x1], Pushforward(g, normal(1), q, [g1]))", "needs a law, Pushforward("),
        ("Expectation(x1, [x1], Pushforward(g, normal(1e6), q, [g1], [q1]))", "a whole number from 1 to 256"),
        ("Expectation(x1, [x1], Pushforward(g, normal(m), q, [g1], [q1]))", "a whole number from 1 to 256"),
        ("Expectation(x1, [x1], Pushforward(g, normal([0], [[-1]]), q, [g1], [q1]))", "has no such law"),
        ("Expectation(x1, [x1], Pushforward(g, uniform(2), q, [g1], [q1]))", "needs the law of its inputs"),
        ("Expectation(x1, [x1], Pushforward(g, normal(1), g1, [g1], [g1]))", "needs g and q, with which"),
        ("Expectation(x1, [x1], Pushforward(g, normal(1), q, [q2, g1], [q1]))", "'q2' is not declared"),
        ("Expectation(x1, [x1], Pushforward(g, normal(1), q, [g1], [m]))", "needs outputs among its inputs"),
        ("Expectation(x1, [x1], Pushforward(g, normal(1), q, g1, [q1]))", "needs its definitions as a list"),
        ("Expectation(x1, [x1, x2], Pushforward(g, normal(1), q, [g1], [q1]))", "has 2 variables and a law on R^1"),
        ("g1 + Expectation(x1, [x1], Pushforward(g, normal(1), q, [g1], [q1]))", "'g1' is not declared"),
        ("Minimum(x1**2, [x1], [[0, 1]], 0)", "has starts of shape (1, 2)"),
        ("Minimum(x1**2, [x1], [[0]], 2)", "the index 2 for 1 variables"),
        ("Minimum(x1**2, [x1], [[x1]], 0)", "'x1' is not declared"),
        ("PositiveSum([x1], [x1], [-1])", "a count that is not negative"),
        ("PositiveSum([x1], [x1, 1], [3])", "for each summand a count"),
        ("().__class__", "'.__class__' is no part of a formula"),
    ],
)
def test_equations_are_no_safer_place(text: str, reason: str) -> None:
    with under_a_second(), pytest.raises(FormulaError) as caught:
        parse_expression(text, EQUATION_NAMES, equations=True)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 500


# ---- anything at all --------------------------------------------------------------------------------------
def words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


pieces = st.just("\n") | words(
    "z1 z2 z a omega lam f 0 1 2 3 1/3 0.5 64 1e20 9**9 pi sqrt(2) + - * / ** ( ) [ ] , He( He3( h( exp( log( sqrt( "
    "sin( tanh( sigmoid( Phi( relu( abs( sign( step( max( min( sum( prod( outer( softmax( trace( attention( "
    "lambda __import__ . : ' = @ ^"
)
leaves = words("z1 z2 a omega 0 1 2 -1 1/3 0.7 64 1e20 1e-20 pi sqrt(2) sqrt(3)")
functions = words("exp log sqrt sin cos tanh sigmoid softplus erf Phi relu abs sign step He3 h5")
well_formed = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda f, x: f"{f}({x})", functions, inner),
        st.builds(lambda x, op, y: f"({x}){op}({y})", inner, st.sampled_from(["+", "-", "*", "/", "**"]), inner),
        st.builds(lambda x, y: f"max({x}, {y}, z1)", inner, inner),
        st.builds(lambda x, y: f"sum(softmax([{x}, {y}]))", inner, inner),
        st.builds(lambda x, y: f"trace(f*({x})**({y}))", inner, inner),
    ),
    max_leaves=10,
)


def parsed_or_refused(text: str) -> sp.Expr | sp.ImmutableDenseMatrix | str:
    try:
        return parse_expression(text, NAMES)
    except FormulaError as error:
        return str(error)


@settings(max_examples=400)
@given(st.one_of(well_formed, st.lists(pieces, max_size=30).map("".join), st.text(max_size=40)))
def test_any_text_gives_a_finite_expression_or_one_line(text: str) -> None:
    with under_a_second():
        result = parsed_or_refused(text)
    if isinstance(result, str):
        assert "\n" not in result
        return
    for entry in result if isinstance(result, sp.MatrixBase) else [result]:
        assert not entry.has(sp.nan, sp.zoo, sp.oo, sp.I, sp.Float)
        assert entry.free_symbols <= {z1, z2, z3, a, w, lam, *square}
