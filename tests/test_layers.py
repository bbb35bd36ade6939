"""The architecture, read from the source text: who imports whom, and what must not be called.

Each rule is a function from a file to the sentences that say what breaks it; the tests at the end give each
rule something to find.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("derive", "solve", "verify")  # each imports those before it, never those after it
FACADE = "limitlaw"
BESIDES_THE_STANDARD_LIBRARY = {"derive": {"derive", "sympy", "networkx", "mpmath"}}
FORBIDDEN = {"solve": {"torch"}}
NAMES_WITHOUT_A_CONCEPT = {"utils", "helpers", "common", "misc", "core"}
RUNS_TEXT_AS_CODE = {"eval", "exec", "sympify", "parse_expr", "srepr"}
HIDES_WORK = {"simplify", "integrate"}
GLOBAL_STREAMS = ("numpy.random", "torch.manual_seed", "torch.cuda.manual_seed", "torch.random.manual_seed")
OWN_STREAMS = {"Generator", "BitGenerator", "PCG64", "Philox", "SFC64", "SeedSequence", "default_rng"}


@dataclass(frozen=True)
class Source:
    """One Python file: its dotted module name and its syntax tree."""

    module: str
    tree: ast.Module
    is_package: bool = False

    @property
    def layer(self) -> str:
        return self.module.partition(".")[0]

    @property
    def package(self) -> str:
        return self.module if self.is_package else self.module.rpartition(".")[0]

    def imports(self) -> Iterator[tuple[str, str, str | None]]:
        """(alias or "", module, member or None) of every import, wherever it stands in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for a in node.names:
                    yield (a.asname or ""), a.name, None
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                if node.level:
                    parents = self.package.split(".")
                    module = ".".join(parents[: len(parents) - node.level + 1] + ([module] if module else []))
                for a in node.names:
                    yield a.asname or a.name, module, a.name
            elif isinstance(node, ast.Call) and _tail(node.func) in {"import_module", "__import__"}:
                name = node.args[0] if node.args else None
                start = name.values[0] if isinstance(name, ast.JoinedStr) else name  # a module of a named package
                constant = isinstance(start, ast.Constant) and isinstance(start.value, str)
                yield "", start.value.rstrip(".") if constant else "<a module named at run time>", None

    def imported(self) -> set[str]:
        """Every module the file may import: `from a import b` counts as a and as a.b."""
        return {name for _, m, member in self.imports() for name in ((m, f"{m}.{member}") if member else (m,))}

    @cached_property
    def aliases(self) -> dict[str, str]:
        """local name -> what it stands for; `import a.b` without `as` binds a to itself: no entry."""
        return {local: f"{m}.{member}" if member else m for local, m, member in self.imports() if local}

    def origin(self, node: ast.AST) -> str:
        """The dotted name a Name or Attribute stands for, import aliases resolved: sp.diff -> sympy.diff."""
        if isinstance(node, ast.Attribute):
            return f"{self.origin(node.value)}.{node.attr}"
        return self.aliases.get(node.id, node.id) if isinstance(node, ast.Name) else "<expression>"


Rule = Callable[[Source], list[str]]


def _tail(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _top(module: str) -> str:
    return module.partition(".")[0]


# ----------------------------------------------------------------------------- the rules


def imports_point_down(source: Source) -> list[str]:
    above = {*LAYERS[LAYERS.index(source.layer) + 1 :], FACADE}
    return [f"imports {m} from a layer above" for m in source.imported() if _top(m) in above]


def imports_are_allowed(source: Source) -> list[str]:
    allowed = BESIDES_THE_STANDARD_LIBRARY.get(source.layer)
    forbidden = FORBIDDEN.get(source.layer, set())
    return [
        f"imports {m}"
        for m in source.imported()
        if _top(m) in forbidden or (allowed is not None and _top(m) not in allowed | sys.stdlib_module_names)
    ]


def tasks_are_independent(source: Source) -> list[str]:
    is_task = source.package == "derive.tasks" and not source.is_package
    return [f"imports {m}, of another task" for m in source.imported() if is_task and m.startswith("derive.tasks.")]


def names_say_a_concept(source: Source) -> list[str]:
    return [f"{part} is no concept" for part in source.module.split(".") if part in NAMES_WITHOUT_A_CONCEPT]


def no_text_is_run_and_no_work_hidden(source: Source) -> list[str]:
    """A method of the same name on an object of ours (`compiled.integrate(...)`) is not what is meant."""
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        top, _, name = source.origin(node.func).rpartition(".")
        from_sympy, builtin = _top(top) == "sympy", top in {"", "builtins"}
        if (
            (name in RUNS_TEXT_AS_CODE and (from_sympy or builtin))
            or (name in HIDES_WORK and from_sympy)
            or (name == "simplify" and isinstance(node.func, ast.Attribute))
        ):
            found.append(f"line {node.lineno} calls {ast.unparse(node.func)}")
    return found


def nothing_is_printed(source: Source) -> list[str]:
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    return [f"line {c.lineno} prints" for c in calls if source.origin(c.func) in {"print", "builtins.print"}]


def randomness_is_passed_in(source: Source) -> list[str]:
    """No global stream anywhere, and no stream of its own made while a module is being imported."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            origin = source.origin(node)
            if origin.startswith(GLOBAL_STREAMS) and not (
                origin == "numpy.random" or OWN_STREAMS & set(origin.split("."))
            ):
                found.append(f"line {node.lineno} uses the global stream {origin}")
    for call in _calls_at_import(source.tree):
        if source.origin(call.func).startswith((*GLOBAL_STREAMS, "torch.Generator")):
            found.append(f"line {call.lineno} draws or seeds at import: {ast.unparse(call)}")
    return found


def _calls_at_import(node: ast.AST) -> Iterator[ast.Call]:
    """Calls outside function bodies: module and class level, decorators, default values."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Lambda):
            continue
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in (*child.decorator_list, child.args):
                yield from _calls_at_import(ast.Module([part], []))
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls_at_import(child)


RULES: tuple[Rule, ...] = (
    imports_point_down,
    imports_are_allowed,
    tasks_are_independent,
    names_say_a_concept,
    no_text_is_run_and_no_work_hidden,
    nothing_is_printed,
    randomness_is_passed_in,
)

# ----------------------------------------------------------------------------- the packages


def sources() -> dict[str, Source]:
    found = {}
    for path in sorted(p for layer in LAYERS for p in (ROOT / layer).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        found[module] = Source(module, ast.parse(path.read_text("utf-8"), str(path)), is_package)
    return found


SOURCES = sources()


def test_all_three_layers_are_read():
    assert {source.layer for source in SOURCES.values()} == set(LAYERS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_packages(rule: Rule):
    broken = {module: found for module, source in SOURCES.items() if (found := rule(source))}
    assert not broken


def test_the_rest_of_the_project_is_named_by_concept():
    paths = [*(ROOT / "tests").rglob("*.py"), *ROOT.glob("*.py")]
    assert not [p for p in paths if p.stem in NAMES_WITHOUT_A_CONCEPT]


@pytest.mark.parametrize(("layer", "absent"), [("derive", "numpy torch scipy"), ("solve", "torch")])
def test_importing_a_whole_layer_leaves_out(layer: str, absent: str):
    code = f"""
import importlib, pkgutil, sys, {layer}
for module in pkgutil.walk_packages({layer}.__path__, "{layer}."):
    importlib.import_module(module.name)
loaded = [name for name in {absent.split()!r} if name in sys.modules]
sys.exit(f"{{loaded}} came in with {layer}" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ----------------------------------------------------------------------------- controls


def offences(rule: Rule, module: str, text: str) -> list[str]:
    return rule(Source(module, ast.parse(text)))


@pytest.mark.parametrize(
    ("rule", "module", "text"),
    [
        (imports_point_down, "derive.task", "import solve.flow"),
        (imports_point_down, "solve.flow", "def f():\n    from verify import check"),
        (imports_point_down, "derive.tasks.a", "from ...solve import flow"),
        (imports_point_down, "verify.check", "from limitlaw import load"),
        (imports_are_allowed, "derive.task", "import numpy as np"),
        (imports_are_allowed, "derive.task", "if True:\n    from scipy.special import erf"),
        (imports_are_allowed, "derive.task", "import importlib\nimportlib.import_module('flint')"),
        (imports_are_allowed, "derive.task", "__import__(name)"),
        (imports_are_allowed, "solve.flow", "from torch import nn"),
        (tasks_are_independent, "derive.tasks.a", "from derive.tasks.b import m"),
        (tasks_are_independent, "derive.tasks.a", "from derive.tasks import b"),
        (tasks_are_independent, "derive.tasks.a", "from . import b"),
        (names_say_a_concept, "solve.utils", ""),
        (no_text_is_run_and_no_work_hidden, "derive.task", "eval('1')"),
        (no_text_is_run_and_no_work_hidden, "derive.task", "import sympy as sp\nsp.sympify('1')"),
        (no_text_is_run_and_no_work_hidden, "derive.task", "from sympy import simplify as s\ns(x)"),
        (no_text_is_run_and_no_work_hidden, "derive.task", "import sympy\nsympy.integrate(x, x)"),
        (no_text_is_run_and_no_work_hidden, "derive.task", "(x + y).simplify()"),
        (
            no_text_is_run_and_no_work_hidden,
            "derive.task",
            "from sympy.parsing.sympy_parser import parse_expr as p\np(t)",
        ),
        (nothing_is_printed, "solve.flow", "def f():\n    print(1)"),
        (randomness_is_passed_in, "verify.check", "import torch\ndef f():\n    torch.manual_seed(0)"),
        (randomness_is_passed_in, "solve.flow", "import numpy as np\ndef f():\n    np.random.normal()"),
        (randomness_is_passed_in, "solve.flow", "import numpy as np\nrng = np.random.default_rng(0)"),
        (
            randomness_is_passed_in,
            "solve.flow",
            "from numpy.random import default_rng as r\ndef f(x=r(0)): ...",
        ),
        (randomness_is_passed_in, "solve.flow", "import numpy.random\nx = numpy.random.normal()"),
        (randomness_is_passed_in, "verify.check", "import torch\nclass A:\n    rng = torch.Generator()"),
    ],
)
def test_a_rule_finds(rule: Rule, module: str, text: str):
    assert offences(rule, module, text)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("verify.check", "import torch, solve.flow\nfrom derive import task"),
        (
            "solve.flow",
            "import numpy as np\nRng = np.random.Generator\ndef f(seed): return np.random.default_rng(seed)",
        ),
        ("solve.flow", "def f(compiled): return compiled.integrate(1)"),
        ("derive.functions", "import sympy as sp\nfrom sympy.polys.rings import ring\nF.eval(1)"),
        ("derive.tasks.a", "import fractions, mpmath\nfrom derive.mechanisms import b"),
    ],
)
def test_rules_leave_alone(module: str, text: str):
    assert not [found for rule in RULES for found in offences(rule, module, text)]
