from __future__ import annotations

import datetime
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import sympy as sp
from hypothesis import given, settings

from derive.document import Document, TaskError
from derive.equations import Quantity
from derive.functions import sigmoid
from derive.table import Table
from derive.toml_source import SourceError, key_lines, read_toml, read_value

HEAD = 'limitlaw = 1\nfamily = "sequence-single-index"\n'
TASK = """\
# the positional and semantic example
limitlaw = 1
family = "sequence-single-index"
[parameters]
omega = { domain = "[0,1]" }
a     = { default = 1, domain = "(0,inf)" }
gamma = { default = "1/2", domain = "(0,inf)", meaning = "learning rate" }
lam = 0.1

[data]
length = 2
positions = [
  [1],   # [of the first token]
  [-1],
]
[target]
formula = '''
(1-omega)*attention(z)
  + omega*softmax([[a**2,-a**2],[-a**2,a**2]])'''
[student]
kind = "attention"
reduction = {left = [1, 0], right = [0, "1/3"]}
[training]
loss = "sum((f-y)**2)/2"
learning_rate = "gamma"
reuse = true
start = {m = "1/sqrt(d)", e = 0}
[solve]
times = "0:12:7"
escape = 0.5
[verify]
dimensions = [100, 200, 400]
"""
SHORT_FORMS = {"L": "data.length", "loss": "training.loss", "activation": "student.activation"}
z = sp.symbols("z1:3", real=True)
IN_TOKENS = {"z": sp.ImmutableDenseMatrix(z), "omega": sp.Symbol("omega"), "a": sp.Symbol("a", positive=True)}


def task(text: str = TASK) -> Document:
    return Document.read(text, "task.toml")


def one_table(body: str) -> Table:
    return task(f"{HEAD}[t]\n{body}").table("t")


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(TaskError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


# ---- the head ---------------------------------------------------------------------------------------------
def test_version_and_family_are_read() -> None:
    assert (task().version, task().family) == (1, "sequence-single-index")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "task.toml: limitlaw = 1 is missing; it says which format the file has."),
        ('family = "a"', "task.toml: limitlaw = 1 is missing; it says which format the file has."),
        ("#\nlimitlaw = 2", "limitlaw (line 2 of task.toml): the format is '2'; this program reads limitlaw = 1."),
        ("limitlaw = true", "limitlaw (line 1 of task.toml): the format is 'True'; this program reads limitlaw = 1."),
        ("limitlaw = 1.0", "limitlaw (line 1 of task.toml): the format is '1.0'; this program reads limitlaw = 1."),
        ("limitlaw = 1", 'task.toml: family = "..." is missing; it says what kind of task this is.'),
        ("limitlaw = 1\nfamily = 3", 'task.toml: family = "..." is missing; it says what kind of task this is.'),
    ],
)
def test_the_head_is_required(text: str, message: str) -> None:
    assert refusal(lambda: task(text)) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = \n", "line 2 of task.toml: this is no TOML: Invalid value."),
        ("a = 1\na = 2\n", "line 2 of task.toml: a key or table is given twice."),
        ("[a]\nb = 1\n[a]\n", "line 3 of task.toml: a key or table is given twice."),
        ("a = {b = 1, b = 2}", "line 1 of task.toml: a key or table is given twice."),
        ("a = '''\n\n", "line 3 of task.toml: this is no TOML: Expected \"'''\"."),
        ("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q = 1", "line 1 of task.toml: a key has more than 16 parts."),
        ("a = " + "[" * 5000, "task.toml: holds brackets nested too deep, or a number of thousands of digits."),
        ("a = " + "9" * 5000, "task.toml: holds brackets nested too deep, or a number of thousands of digits."),
        ("#" * 1_000_001, "task.toml: has 1000001 characters; a task file has at most 1000000."),
    ],
)
def test_what_is_no_toml_is_refused_by_its_line(text: str, message: str) -> None:
    assert refusal(lambda: task(text)) == message


@pytest.mark.parametrize(
    "text",
    ["a." * 490_000, "a = " + "{b = " * 150_000, 'a = """' + '\\"""' * 240_000, "a" * 990_000, 'a = "\n' * 150_000],
    ids=["dots", "braces", "quotes", "letters", "lines"],
)
def test_exhausting_files_are_refused_in_a_moment(text: str) -> None:
    start = time.process_time()
    refusal(lambda: task(HEAD + text))
    assert time.process_time() - start < 10  # about 1 s for 1 MB of characters, read once or twice


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("\ufeff" + TASK.replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert Document.from_file(path).table("data").integer("length", 1, 8) == 2
    assert "a.toml" in Document.from_file(str(path)).where(("data",))
    assert "cannot be read: No such file" in refusal(lambda: Document.from_file(tmp_path / "b.toml"))
    assert "cannot be read" in refusal(lambda: Document.from_file(tmp_path))
    path.write_bytes(b"\xff\xfe\xff")
    assert "is no text in UTF-8" in refusal(lambda: Document.from_file(path))
    path.write_bytes(b"#" * 1_000_001)
    assert "at most 1000000 bytes" in refusal(lambda: Document.from_file(path))


# ---- lines ------------------------------------------------------------------------------------------------
def test_keys_are_found_in_every_notation() -> None:
    text = """\
a = 1
b.c = 2   # dotted = 3
"d e".'f' = [1, {g = 1}, [
  {h.i = 2}]]

[ j . "k" ]
l = {m = {n = "o = 1"}, p = [
 1, "[q]", ']'], r = 's'}
t = \"\"\"
[u]
v = 1\"\"\"
w = 1979-05-27T07:32:00
[[x]]
y = 1
[[x]]
"" = 2
"""
    tomllib.loads(text)
    assert key_lines(text) == {
        ("a",): 1,
        ("b",): 2, ("b", "c"): 2,
        ("d e",): 3, ("d e", "f"): 3, ("d e", "f", "g"): 3, ("d e", "f", "h"): 4, ("d e", "f", "h", "i"): 4,
        ("j",): 6, ("j", "k"): 6,
        ("j", "k", "l"): 7, ("j", "k", "l", "m"): 7, ("j", "k", "l", "m", "n"): 7,
        ("j", "k", "l", "p"): 7, ("j", "k", "l", "r"): 8,
        ("j", "k", "t"): 9,
        ("j", "k", "w"): 12,
        ("x",): 13, ("x", "y"): 14, ("x", ""): 16,
    }  # fmt: skip


keys = st.sampled_from(["a", "b", "length", "x1", "d e", "é", "a.b", "'", '"', "#", ""])
scalars = st.one_of(
    st.integers(-9, 9).map(str),
    st.sampled_from(
        ["true", "0.5", "1e3", '"x = 1"', "'[a]'", '"""\n[b]\nc = 1"""', "'''\n'''", '"\\"#"', "1979-05-27"]
    ),
)


def quoted(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return key if key.isascii() and key.isalnum() else f'"{escaped}"'


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: "[\n " + ",\n ".join(v) + "]"),
        st.dictionaries(keys, inner, max_size=3).map(
            lambda d: "{" + ", ".join(f"{quoted(k)} = {v}" for k, v in d.items()) + "}"
        ),
    ),
    max_leaves=6,
)
statements = st.lists(
    st.tuples(keys, st.dictionaries(keys, values, max_size=3)), max_size=4, unique_by=lambda pair: pair[0]
)


def paths(data: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if isinstance(data, list):
        return set().union(*(paths(item, path) for item in data), set())
    if not isinstance(data, dict):
        return set()
    return {(*path, k) for k in data}.union(*(paths(v, (*path, k)) for k, v in data.items()))


@settings(max_examples=150)
@given(statements)
def test_every_key_of_any_file_is_found_on_its_line(tables: list[tuple[str, dict[str, str]]]) -> None:
    text, expected = "# [x]\n", {}
    for name, entries in tables:
        expected[(name,)] = text.count("\n") + 1
        text += f"[{quoted(name)}] # comment = 1\n"
        for key, value in entries.items():
            expected[(name, key)] = text.count("\n") + 1
            text += f" {quoted(key)}={value}\n"
    found = key_lines(text)
    assert set(found) == paths(read_toml(text))
    assert {p: found[p] for p in expected} == expected


def test_errors_name_the_line_of_the_statement_around_a_key() -> None:
    document = task()
    assert document.where(("training", "start", "m")) == "training.start.m (line 27 of task.toml)"
    assert document.where(("data", "positions", "x")) == "data.positions.x (line 12 of task.toml)"
    assert document.where(("data", "length")) == "data.length (line 11 of task.toml)"
    assert document.where(("nowhere", "length")) == "nowhere.length (in task.toml)"


# ---- parameters -------------------------------------------------------------------------------------------
def test_parameters_have_domains_defaults_and_assumptions() -> None:
    document = task()
    omega = sp.Symbol("omega", real=True, nonnegative=True)
    a, gamma = (sp.Symbol(n, real=True, positive=True) for n in ("a", "gamma"))
    lam = sp.Symbol("lam", real=True)
    positive = sp.Interval.open(0, sp.oo)
    assert document.parameters(("m", "e")) == (
        Quantity(omega, "parameter", sp.Interval(0, 1)),
        Quantity(a, "parameter", positive, default=sp.S.One),
        Quantity(gamma, "learning rate", positive, default=sp.S.Half),
        Quantity(lam, "parameter", sp.S.Reals, default=sp.Rational(1, 10)),
    )
    assert document.values == {a: 1, gamma: sp.S.Half, lam: sp.Rational(1, 10)}


def declared(line: str) -> tuple[Quantity, ...]:
    return task(f"{HEAD}[parameters]\n{line}").parameters(("m", "tau", "lam0"))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("lam = 0.1", sp.Rational(1, 10)),  # A49
        ("lam = { default = 0.1 }", sp.Rational(1, 10)),
        ('lam = { default = "0.1" }', sp.Rational(1, 10)),
        ("lam = 1e-5", sp.Rational(1, 10**5)),
        ("lam = 1_0.2_5", sp.Rational(41, 4)),
        ("lam = 0x10", sp.Integer(16)),
        ('lam = "sqrt(2)"', sp.sqrt(2)),
        ("lam = -3", sp.Integer(-3)),
        ("lambda = 0.30000000000000004", sp.Rational(30000000000000004, 10**17)),
    ],
)
def test_numbers_are_exact(line: str, value: sp.Expr) -> None:
    (quantity,) = declared(line)
    assert (quantity.symbol.name, quantity.default) == ("lam", value)


@pytest.mark.parametrize(
    ("domain", "interval", "assumptions"),
    [
        ("[0,1]", sp.Interval(0, 1), {"nonnegative": True}),
        ("(0, inf)", sp.Interval.open(0, sp.oo), {"positive": True}),
        ("[0,inf)", sp.Interval(0, sp.oo), {"nonnegative": True}),
        ("(-1,1]", sp.Interval.Lopen(-1, 1), {}),
        ("[1/2,sqrt(2)]", sp.Interval(sp.S.Half, sp.sqrt(2)), {"positive": True}),
        ("(-inf,0)", sp.Interval.open(-sp.oo, 0), {}),
        ("R", sp.S.Reals, {}),
    ],
)
def test_domains(domain: str, interval: sp.Set, assumptions: dict[str, bool]) -> None:
    (quantity,) = declared(f'alpha = {{ domain = "{domain}" }}')
    assert quantity == Quantity(sp.Symbol("alpha", real=True, **assumptions), "parameter", interval)


@pytest.mark.parametrize("name", ["E", "I", "S", "N", "Q", "O", "beta", "gamma", "pi", "zeta", "delta"])
def test_names_of_sympy_are_ordinary_parameters(name: str) -> None:  # A30
    assert declared(f"{name} = {{}}")[0].symbol == sp.Symbol(name, real=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m = {}", "parameters.m (line 4 of task.toml): 'm' cannot name a parameter: it is a quantity of this theory"),
        ("relu = {}", "'relu' cannot name a parameter: it is a function"),
        ("z1 = {}", "'z1' cannot name a parameter: it names a token"),
        ("\"__import__('os')\" = {}", "cannot name a parameter; a name has up to 32 letters"),
        ("a.b = 1", "parameters.a (line 4 of task.toml): unknown key 'b'; allowed are domain, default, meaning."),
        ("a = { defualt = 1 }", "unknown key 'defualt'; the nearest is default"),
        ('a = { domain = "[0,1" }', "the domain '[0,1' is no interval; write \"[0,1]\", \"(0,inf)\", or \"R\"."),
        ('a = { domain = "[1,0]" }', "the domain '[1,0]' is no interval"),
        ('a = { domain = "[0,0]" }', "the domain '[0,0]' is no interval"),
        ('a = { domain = "[0,x]" }', "the domain '[0,x]' is no interval"),
        ("a = { domain = 3 }", "the domain 3 is no interval"),
        ('a = { default = 2, domain = "[0,1]" }', "the value 2 is outside the domain [0,1]"),
        ('a = { default = 0, domain = "(0,inf)" }', "the value 0 is outside the domain (0,inf)"),
        ('a = { default = "sqrt(2)", domain = "[0,sqrt(2))" }', "the value sqrt(2) is outside the domain [0,sqrt(2))"),
        ("a = inf", "parameters.a (line 4 of task.toml): 'inf' is no finite number"),
        ("a = nan", "'nan' is no finite number"),
        ("a = true", "True is no number and no constant formula"),
        ("a = [1]", "[1] is no number and no constant formula"),
        ("a = 1979-05-27", "is no number and no constant formula"),
        ('a = "b"\nb = 1', "'b' is not declared"),
        ("a = 1" + "0" * 30, "the integer must be below 1e30"),
        ('lam = 1\nlambda = 2', "parameters.lambda (line 5 of task.toml): lam is declared twice"),
    ],
)  # fmt: skip
def test_declarations_that_are_refused(line: str, message: str) -> None:
    assert message in refusal(lambda: declared(line))


def test_a_table_of_parameters_is_needed() -> None:
    assert "must be a table, [parameters]" in refusal(lambda: task(f"{HEAD}parameters = 3").parameters(()))
    assert task(HEAD).parameters(()) == ()
    assert task(HEAD).values == {}


# ---- changes ----------------------------------------------------------------------------------------------
def values_by_name(document: Document) -> dict[str, sp.Expr]:
    return {symbol.name: value for symbol, value in document.values.items()}


def test_a_parameter_is_set_exactly() -> None:
    changed = task().override({"omega": "0.3", "lambda": "1e-5", "parameters.gamma": "sqrt(2)"}, SHORT_FORMS)
    expected = {"omega": sp.Rational(3, 10), "a": 1, "gamma": sp.sqrt(2), "lam": sp.Rational(1, 10**5)}
    assert values_by_name(changed) == expected
    assert values_by_name(changed.override({"omega": "1/2"})) == {**expected, "omega": sp.S.Half}
    assert "omega" not in values_by_name(task())


def test_any_key_is_set_by_its_name_or_its_short_form() -> None:
    changed = task().override(
        {"L": "3", "data.positions": "[[1, 0], [0, 1], [0, 0]]", "training.start.m": "1/3", "training.reuse": "false",
         "student.kind": "tied", "student.activation": '"relu(x)"', "target.formula": "[[1,2],[3,4]]",
         "verify.dimensions": "[10, 20]", "solve.escape": "0.25", "extra.deep.key": "1"},
        SHORT_FORMS,
    )  # fmt: skip
    assert changed.table("data").integer("length", 1, 8) == 3
    assert changed.table("data").matrix("positions") == sp.ImmutableDenseMatrix([[1, 0], [0, 1], [0, 0]])
    assert changed.table("training").mapping("start") == {"m": "1/3", "e": 0}
    assert changed.table("training").boolean("reuse") is False
    assert changed.table("student").choice("kind", ["attention", "tied"]) == "tied"
    assert changed.table("student").text("activation") == "relu(x)"
    assert changed.table("target").formula("formula", {}) == sp.ImmutableDenseMatrix([[1, 2], [3, 4]])
    assert changed.table("verify").integers("dimensions", 4, 100) == (10, 20)
    assert changed.table("solve").constant("escape") == sp.Rational(1, 4)
    assert task().table("training").mapping("start")["m"] == "1/sqrt(d)"  # the first document stays as it was
    assert changed.settings["data.length"] == "3"


def test_a_table_can_be_set_as_a_whole() -> None:
    changed = task().override({"training.start": '{m = 0.1, e = "1/2"}', "student.reduction": "trace"})
    assert changed.table("training").mapping("start") == {"m": "0.1", "e": "1/2"}
    assert changed.table("student").raw("reduction") == "trace"
    assert changed.table("student").raw("kind") == "attention"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"omga": "1"}, "--set omga: no parameter and no short form of that name; the nearest is omega. There are"),
        ({"length": "1"}, "There are L, a, activation, gamma, lam, loss, omega; any key can be given as table.key."),
        ({"omega": "2"}, "--set omega: the value 2 is outside the domain [0,1]."),
        ({"a": "0"}, "--set a: the value 0 is outside the domain (0,inf)."),
        ({"omega": "inf"}, "--set omega: 'inf' is no finite number."),
        ({"omega": "a"}, "--set omega: 'a' is not declared (nothing is declared)."),
        ({"omega": "__import__('os')"}, "--set omega: '__import__' is no name that a formula may use."),
        ({"parameters.omga": "1"}, "the nearest is omega"),
        ({"data.length.x": "1"}, "--set data.length.x: length is no table."),
        ({".x": "1"}, "--set .x: no parameter"),
        ({"": "1"}, "no parameter and no short form"),
        ({"limitlaw": "2"}, "--set limitlaw: no parameter"),
    ],
)
def test_changes_that_are_refused(changes: dict[str, str], message: str) -> None:
    assert message in refusal(lambda: task().override(changes, SHORT_FORMS))


def test_a_change_is_named_in_later_errors() -> None:
    changed = task().override({"L": "x", "data.colour": "red"}, SHORT_FORMS)
    assert refusal(lambda: changed.table("data").integer("length", 1, 8)).startswith("data.length (--set): ")
    changed = task().override({"L": "9"}, SHORT_FORMS)
    expected = "data.length (--set): got '9'; allowed is an integer from 1 to 8."
    assert refusal(lambda: changed.table("data").integer("length", 1, 8)) == expected


def test_a_value_is_one_value() -> None:
    assert read_value("[1, 2]") == [1, 2]
    assert read_value("1\nother = 2") is None
    assert read_value("x") is None


# ---- readers ----------------------------------------------------------------------------------------------
def test_the_example_is_read() -> None:
    document = task()
    document.parameters(())
    data = document.table("data")
    assert data.integer("length", 1, 64) == 2
    assert data.matrix("positions") == sp.ImmutableDenseMatrix([[1], [-1]])
    formula = document.table("target").formula("formula", IN_TOKENS)
    omega, a = IN_TOKENS["omega"], IN_TOKENS["a"]
    assert formula[0, 0] == (1 - omega) * sigmoid(z[0] ** 2 - z[0] * z[1]) + omega * sigmoid(2 * a**2)
    student = document.table("student")
    assert student.choice("kind", ["tied", "attention"]) == "attention"
    assert student.mapping("reduction") == {"left": [1, 0], "right": [0, "1/3"]}
    training = document.table("training")
    assert training.text("loss") == "sum((f-y)**2)/2"
    assert training.formula("learning_rate", {"gamma": a}) == a
    assert training.boolean("reuse") is True
    assert training.has("start")
    assert not training.has("stop")
    solve = document.table("solve")
    assert solve.text("times", default="0:1:2") == "0:12:7"
    assert solve.constant("escape") == sp.S.Half
    assert document.table("verify").integers("dimensions", 4, 1000) == (100, 200, 400)
    assert document.table("erm", required=False).integer("seeds", 1, 9, default=3) == 3
    document.finish()


def test_defaults_stand_for_missing_keys() -> None:
    table = one_table("")
    assert table.integer("k", 1, 2, default=None) is None
    assert table.integers("k", 1, 2, default=(1,)) == (1,)
    assert table.constant("k", default=sp.S.Half) == sp.S.Half
    assert table.constants("k", default=()) == ()
    assert table.text("k", default="x") == "x"
    assert table.strings("k", default=()) == ()
    assert table.boolean("k", default=False) is False
    assert table.choice("k", ["a"], default="b") == "b"
    assert table.formula("k", {"x": z[0]}, default="x**2") == z[0] ** 2
    assert table.formula("k", {}, default=None) is None
    assert table.matrix("k", default=None) is None
    assert table.mapping("k", default={}) == {}
    assert table.raw("k", default=0) == 0


READERS: dict[str, Callable[[Table], object]] = {
    "integer": lambda t: t.integer("k", 1, 9),
    "integers": lambda t: t.integers("k", 1, 9),
    "constant": lambda t: t.constant("k"),
    "constants": lambda t: t.constants("k"),
    "text": lambda t: t.text("k"),
    "strings": lambda t: t.strings("k"),
    "boolean": lambda t: t.boolean("k"),
    "choice": lambda t: t.choice("k", ["tied", "untied"]),
    "formula": lambda t: t.formula("k", {"x": z[0]}),
    "matrix": lambda t: t.matrix("k", {"x": z[0]}),
    "mapping": lambda t: t.mapping("k"),
    "raw": lambda t: t.raw("k"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_required_key_is_missed_with_its_misspelling(reader: str) -> None:
    message = refusal(lambda: READERS[reader](one_table("kk = 1\n")))
    assert message.startswith(
        "t.k (line 3 of task.toml): is missing (did you mean this by t.kk (line 4 of task.toml)?)"
    )


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        ("integer", '"2*3"', 6),
        ("integers", '[1, "2", 9]', (1, 2, 9)),
        ("constant", "0.1", sp.Rational(1, 10)),
        ("constants", '[1, 0.5, "1/3"]', (1, sp.S.Half, sp.Rational(1, 3))),
        ("strings", '["a", "2*x", 3, 0.5]', ("a", "2*x", "3", "0.5")),
        ("formula", '"2*x"', 2 * z[0]),
        ("formula", "3", sp.Integer(3)),
        ("formula", "0.1", sp.Rational(1, 10)),
        ("formula", '"[x, 1]"', sp.ImmutableDenseMatrix([z[0], 1])),
        ("matrix", '[[1, "x"], [0.5, "x**2"]]', sp.ImmutableDenseMatrix([[1, z[0]], [sp.S.Half, z[0] ** 2]])),
        ("matrix", "[1, 2]", sp.ImmutableDenseMatrix([1, 2])),
        ("raw", "{a = [1, 0.5]}", {"a": [1, "0.5"]}),
        ("raw", "1979-05-27", datetime.date(1979, 5, 27)),
    ],
)
def test_a_reader_accepts(reader: str, text: str, value: object) -> None:
    assert READERS[reader](one_table(f"k = {text}")) == value


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        ("integer", "0", "got 0; allowed is an integer from 1 to 9"),
        ("integer", "2.5", "got '2.5'; allowed is an integer from 1 to 9"),
        ("integer", "true", "got True; allowed is an integer"),
        ("integer", "[1]", "got [1]; allowed is an integer"),
        ("integer", '"pi"', "got 'pi'; allowed is an integer"),
        ("integer", "1" * 40, "must be below 1e30"),
        ("integers", "[]", "allowed is a list of integers from 1 to 9"),
        ("integers", "[1, 10]", "allowed is a list of integers from 1 to 9"),
        ("integers", "[1, true]", "allowed is a list of integers"),
        ("integers", "3", "allowed is a list of integers"),
        ("constant", '"x"', "'x' is not declared"),
        ("constant", "inf", "'inf' is no finite number"),
        ("constant", "{a = 1}", "no number and no constant formula"),
        ("constants", "[[1]]", "no number and no constant formula"),
        ("constants", "1", "allowed is a list of constants"),
        ("text", "3", "allowed is a text in quotes"),
        ("text", "0.5", "allowed is a text in quotes"),
        ("strings", "[true]", "allowed is a list of texts"),
        ("boolean", "1", "allowed is true or false"),
        ("boolean", '"true"', "allowed is true or false"),
        ("choice", '"unteid"', "got 'unteid'; allowed is one of tied, untied; the nearest is untied"),
        ("choice", "3", "allowed is one of tied, untied"),
        ("formula", '"tahn(x)"', "calls 'tahn', which is no function here; the nearest is tanh"),
        ("formula", '"y"', "'y' is not declared (declared: x)"),
        ("formula", "[1]", "allowed is a formula in quotes"),
        ("formula", "true", "allowed is a formula in quotes"),
        ("matrix", "[[1], [1, 2]]", "allowed is a list of rows of one length"),
        ("matrix", "[[]]", "allowed is a list of rows of one length"),
        ("matrix", '[["[1,2]"]]', "allowed is a list of rows of one length"),
        ("matrix", "[[{a = 1}]]", "allowed is a list of rows of one length"),
        ("matrix", "[" + "1," * 5000 + "]", "a matrix has at most 4096 entries"),
        ("mapping", "3", "allowed is an inline table"),
    ],
)
def test_a_reader_refuses(reader: str, text: str, message: str) -> None:
    got = refusal(lambda: READERS[reader](one_table(f"k = {text}")))
    assert got.startswith("t.k (line 4 of task.toml): ")
    assert message in got


def test_a_missing_table_is_named_with_what_may_be_meant() -> None:
    document = task(f"{HEAD}[datas]\nlength = 2")
    expected = "task.toml: the table [data] is missing (did you mean this by [datas]?)."
    assert refusal(lambda: document.table("data")) == expected
    assert document.table("data", required=False).keys() == ()
    assert "must be a table, [data]" in refusal(lambda: task(f"{HEAD}data = 3").table("data"))


def test_tables_with_keys_of_the_user() -> None:
    table = task(f"{HEAD}[latent]\ns = {{values = [1, -1]}}\neps = {{normal = [0, 1]}}").table("latent")
    assert table.keys() == ("s", "eps")
    assert table.mapping("s") == {"values": [1, -1]}


# ---- unknown keys (A53) -----------------------------------------------------------------------------------
def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_key() -> None:
    document = task(f"{HEAD}[verify]\nseeds = 3\nmetrics_kwargs = {{a = 1}}\n")
    verify = document.table("verify")
    verify.integer("seeds", 1, 9)
    verify.mapping("metric_kwargs", default={})
    assert refusal(document.finish) == (
        "verify.metrics_kwargs (line 5 of task.toml): unknown key, or one without use here; "
        "the nearest is metric_kwargs. [verify] takes metric_kwargs, seeds."
    )


def test_a_key_in_the_wrong_table_is_sent_home() -> None:
    document = task(f"{HEAD}[student]\nloss = 'x'\n[training]\n")
    document.table("student").text("kind", default="")
    document.table("training").text("loss", default="")
    assert "it belongs to [training]" in refusal(document.finish)


def test_an_unknown_table_is_refused() -> None:
    document = task(f"{HEAD}[trainig]\nloss = 'x'\n")
    document.table("training", required=False)
    assert refusal(document.finish) == (
        "trainig (line 3 of task.toml): unknown table; the nearest is [training]. "
        "The tables of sequence-single-index are parameters, training."
    )
    assert "unknown key" in refusal(task(f"{HEAD}colour = 3").finish)


def test_the_first_unknown_key_is_named() -> None:
    document = task(f"{HEAD}[b]\ny = 1\n[a]\nx = 1\n")
    document.table("a")
    document.table("b")
    assert refusal(document.finish).startswith("b.y (line 4")


def test_an_unknown_key_on_the_command_line_is_refused() -> None:
    document = task(f"{HEAD}[data]\nlength = 2").override({"data.lenght": "3"})
    document.table("data").integer("length", 1, 9)
    assert refusal(document.finish).startswith("data.lenght (--set): unknown key, or one without use here; the nearest")


# ---- anything at all --------------------------------------------------------------------------------------
@settings(max_examples=150)
@given(st.text(max_size=60) | st.lists(st.sampled_from(list("a=.[]{},\"'\n# 1\\")), max_size=40).map("".join))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        data = read_toml(text)
    except SourceError:
        return
    assert set(key_lines(text)) == paths(data)
