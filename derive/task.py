"""What a task family provides, and the driver that turns a task into equations."""

from __future__ import annotations

import abc
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

import sympy as sp

from derive.decision import Decide, decide_symbolically
from derive.document import Document, TaskError
from derive.equations import EquationSystem, Quantity
from derive.exponent import Exponent
from derive.settings import SolveSettings, VerifySettings

__all__ = [
    "Caution",
    "Derivation",
    "Limit",
    "TaskSpec",
    "derive",
    "dimension",
    "example_names",
    "example_text",
    "families",
    "load",
    "load_document",
]


dimension = sp.Symbol("d", positive=True)
"""The size of a finite system, the same symbol in every family."""


@dataclass(frozen=True)
class Limit:
    """What a system tends to where `vanishing`, a formula of the parameters that is >= 0, becomes 0.

    scaled: unknowns of `system` that are limits of `vanishing` times the unknown of that name. direct: whether it is
    solved from its own start; the limit holds where its unknowns lie in their domains.
    """

    system: EquationSystem
    vanishing: sp.Expr
    scaled: frozenset[sp.Symbol]
    direct: bool = False


@dataclass(frozen=True)
class Caution:
    """What is to be said of a solution where `excess`, a formula of unknowns and parameters, is positive."""

    excess: sp.Expr
    text: str


class TaskSpec(abc.ABC):
    """A learning task. Final subclasses are frozen dataclasses in `derive/tasks/<family>.py`.

    `SHORT_FORMS`: short names of document keys (L -> data.length). `IMPLIED`: parameters that need no declaration,
    as they would stand under [parameters]. `values`: what the document gave to parameters, exactly.
    """

    SHORT_FORMS: ClassVar[Mapping[str, str]] = {}
    IMPLIED: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    parameters: tuple[Quantity, ...]
    values: Mapping[sp.Symbol, sp.Expr]
    solve: SolveSettings
    verify: VerifySettings

    @property
    def objective(self) -> sp.Symbol | None:
        """The unknown that training lowers, to be reported at fixed points; None where there is none."""
        return None

    @property
    def clock(self) -> sp.Expr | None:
        """Steps for one unit of a flow's time, in the parameters and d; None for families without a flow."""
        return None

    @property
    def left_out(self) -> frozenset[sp.Symbol]:
        """Unknowns that are derived and not evaluated along a flow, for their cost."""
        return frozenset()

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Limits of the theory that depend on the solution; those whose unknowns the system lacks do not count."""
        return ()

    @property
    def absent(self) -> Mapping[str, str]:
        """Names of values that this task does not have at its parameters, with the reason."""
        return {}

    @property
    def eased(self) -> tuple[EquationSystem, sp.Symbol] | None:
        """`equations` with one more parameter, >= 0: a solution at 1 is easily found and leads to that at 0."""
        return None

    @property
    def proxy(self) -> EquationSystem | None:
        """An easier system that has the unknowns to be solved for among its own: where to start from."""
        return None

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What is solved, tried in this order, where `equations` have no solution for a parameter at its end."""
        return ()

    @classmethod
    def short_forms(cls, document: Document) -> Mapping[str, str]:
        """`SHORT_FORMS`, with what depends on the tables that the document has."""
        return cls.SHORT_FORMS

    @classmethod
    @abc.abstractmethod
    def from_document(cls, document: Document) -> Self:
        """The task that a document states; raises `TaskError` for what it does not allow."""

    def check(self) -> None:
        """Raises `Unsupported` where what the document states is sound, but its equations cannot be derived."""
        return

    @abc.abstractmethod
    def equations(self) -> EquationSystem:
        """The closed system of the order parameters."""

    def exponents(self, order: int, decide: Decide) -> Mapping[str, Exponent]:
        """Information exponents by name, none where training is not online."""
        return {}

    def laws(self, exponents: Mapping[str, Exponent]) -> EquationSystem | None:
        """Explicit laws that need the exponents (escape times, critical learning rates), if there are any."""
        return None

    def thresholds(self) -> EquationSystem | None:
        """Critical values of a parameter as Root equations, None where the task has no such parameter."""
        return None


T = TypeVar("T", bound=TaskSpec)


@dataclass(frozen=True)
class Derivation(Generic[T]):
    """A task with its exponents, the equations of its order parameters, its explicit laws and critical values."""

    task: T
    exponents: Mapping[str, Exponent]
    system: EquationSystem
    laws: EquationSystem | None
    thresholds: EquationSystem | None = None


def derive(task: T, *, order: int = 8, decide: Decide = decide_symbolically) -> Derivation[T]:
    """Equations and exponents of a task. `decide` may add enclosures to what algebra decides."""
    exponents = task.exponents(order, decide)
    return Derivation(task, exponents, task.equations(), task.laws(exponents), task.thresholds())


def families() -> dict[str, type[TaskSpec]]:
    """The families found among the modules of `derive.tasks`, by name."""
    package = importlib.import_module("derive.tasks")
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    found: dict[str, type[TaskSpec]] = {}
    for name in names:
        found[name.replace("_", "-")] = importlib.import_module(f"derive.tasks.{name}").FAMILY
    return found


def example_names() -> tuple[str, ...]:
    """The shipped examples."""
    folder = resources.files("derive") / "examples"
    return tuple(sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")))


def example_text(name: str) -> str:
    """The task file of a shipped example."""
    return (resources.files("derive") / "examples" / f"{name}.toml").read_text(encoding="utf-8")


def load_document(source: str | Path) -> Document:
    """The document of a task file, or of a shipped example of that name."""
    if str(source) in example_names():
        return Document.read(example_text(str(source)), f"example {source}")
    path = Path(source)
    if not path.is_file():
        raise TaskError(
            f"No task file {str(source)!r}, and no example of that name; examples: {', '.join(example_names())}."
        )
    return Document.from_file(path)


def load(source: str | Path | Document, changes: Mapping[str, str] | None = None) -> TaskSpec:
    """The task of a file, example or document, with `changes` as of `--set` (NAME -> text of the value)."""
    document = source if isinstance(source, Document) else load_document(source)
    known = families()
    if document.family not in known:
        raise TaskError(f"Unknown family {document.family!r}; there are {', '.join(known)}.")
    family = known[document.family]
    if changes:
        document = _with_implied(document, family, changes).override(dict(changes), family.short_forms(document))
    return family.from_document(document)


def _with_implied(document: Document, family: type[TaskSpec], changes: Mapping[str, str]) -> Document:
    declared = document.data.get("parameters", {})
    implied = {name: entry for name, entry in family.IMPLIED.items() if name in changes and name not in declared}
    return replace(document, data={**document.data, "parameters": {**declared, **implied}}) if implied else document
