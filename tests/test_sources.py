"""No module of the theory knows a particular target, activation or loss: it derives for whatever it is given.

What may name them: the families (`derive/tasks/`), the rules of expectations, the modules that define functions and
losses, and the tables that read and print every function by its name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DERIVE = Path(__file__).parents[1] / "derive"
FOLDERS = {"tasks", "rules", "examples"}
DEFINE = {"functions.py", "losses.py"}
READ_AND_PRINT = {
    "arithmetic.py", "arrays.py", "constants.py", "erm.py", "latex.py", "letters.py", "lines.py", "mathml.py",
    "notation.py", "parse.py", "text.py",
}  # fmt: skip
NORMAL_LAW = {"sums.py", "scores.py", "oracle.py"}  # say Phi, which is no activation there but the law of their noise
MATRIX_ERROR = {"spectral_observables.py", "spectral_thresholds.py"}  # report the mse of a matrix, which is no loss
ACTIVATIONS = {"relu", "tanh", "sigmoid", "softplus", "erf", "erfc", "gelu", "silu", "elu", "phi"}
LOSSES = {"logistic", "hinge", "huber", "crossentropy", "logcosh"}
NAMES = ACTIVATIONS | LOSSES
POLYNOMIAL = re.compile(r"(?:he|h)[0-9]+", re.IGNORECASE)  # a Hermite polynomial of one degree: a target
SQUARED_LOSS = re.compile(r"squared?[_ ](?:hinge|loss|error)|mean[_ ]square|\bmse\b", re.IGNORECASE)


def words(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of every identifier and string of the code; docstrings explain and may give examples."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            yield line, node.id
        elif isinstance(node, ast.Attribute):
            yield line, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield line, node.name
        elif isinstance(node, ast.arg):
            yield line, node.arg
        elif isinstance(node, ast.alias):
            yield line, node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield line, node.value


def particular(text: str) -> list[str]:
    """The targets, activations and losses that the source text of a module names."""
    found = []
    for line, word in words(ast.parse(text)):
        parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+[0-9]*|[A-Za-z]+[0-9]+", word)
        named = [p for p in parts if p.lower() in NAMES or POLYNOMIAL.fullmatch(p)]
        named += SQUARED_LOSS.findall(word)
        found += [f"line {line}: {name} in {word[:60]!r}" for name in named]
    return found


MODULES = [
    path
    for path in sorted(DERIVE.rglob("*.py"))
    if not FOLDERS & set(path.relative_to(DERIVE).parts)
    and path.name not in DEFINE | READ_AND_PRINT | NORMAL_LAW | MATRIX_ERROR
]


def test_the_modules_are_found() -> None:
    names = {path.relative_to(DERIVE).as_posix() for path in MODULES}
    assert {"expectation.py", "hermite.py", "exponent.py", "mechanisms/spherical_sgd.py", "equations.py"} <= names
    assert all((DERIVE / name).is_file() for name in READ_AND_PRINT | {"functions.py"})


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(DERIVE).as_posix())
def test_a_module_names_no_particular_function(path: Path) -> None:
    assert not particular(path.read_text("utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "from derive.functions import relu",
        "x = sp.tanh(y)",
        "def softplus_risk(m): ...",
        "class SigmoidRule: ...",
        "if name == 'erf': ...",
        "target = 'h2(z1) + h2(z2)'",
        "y = He2(z)",
        "loss = 'hinge'",
        "loss = 'squared hinge'",
        "def f(logistic): ...",
        "loss = Losses.SQUARED_ERROR",
    ],
)
def test_what_is_found(text: str) -> None:
    assert particular(text)


@pytest.mark.parametrize(
    "text",
    [
        '"""E[relu(u) h2(v)] is an example."""',
        "meaning = 'squared gradient norm at zero overlap'",
        "he = He(n, x) * h(k, y)",
        "growth = hermite_basis(theta, halved)",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert not particular(text)
