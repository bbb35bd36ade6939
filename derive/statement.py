"""The task of one target formula, as `limitlaw sie` states it: no file, no choice of training but the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from derive.document import Document
from derive.parse import nearest_name
from derive.table import TaskError
from derive.task import load
from derive.tasks.sequence_single_index import SequenceSingleIndex
from derive.toml_source import Path

__all__ = ["statement"]

_LOSS = "training.loss"
_PLACES: dict[Path, str] = {
    ("target", "formula"): "the formula",
    ("student", "activation"): "--activation",
    ("student", "kind"): "--student",
    ("data", "length"): "--length",
}


def statement(
    formula: str,
    length: int,
    student: Mapping[str, str],
    changes: Mapping[str, str],
    parameters: Sequence[str] = (),
    positions: Sequence[Sequence[int]] | None = None,
) -> SequenceSingleIndex:
    """The task of a target formula; `parameters` declares names that it uses, `changes` gives some their values.

    student: the entries of the table [student]. positions: a matrix by rows. Raises `TaskError`, also for changes
    of what the other arguments say, and for parameters that nothing reads.
    """
    bare = [name.removeprefix("parameters.") for name in changes if not _is_key(name, parameters)]
    names = list(dict.fromkeys([*parameters, *bare]))
    tables: dict[str, dict[str, Any]] = {
        "parameters": {name: {} for name in names},
        "data": {"length": length} | ({} if positions is None else {"positions": [list(row) for row in positions]}),
        "target": {"formula": formula},
        "student": dict(student),
        "training": {"learning_rate": "1"},
    }
    places: dict[Path, str] = _PLACES | {
        ("parameters", n): f"--set {n}" if n in bare else f"--parameter {n}" for n in names
    }
    task = load(Document.stated("sequence-single-index", tables, places), changes)
    assert isinstance(task, SequenceSingleIndex)
    _check_used(task)
    return task


def _is_key(name: str, parameters: Sequence[str]) -> bool:
    """Whether a change is of a key, which can be the loss alone; else it is of a parameter."""
    key = name if name in parameters else SequenceSingleIndex.SHORT_FORMS.get(name, name)
    if "." not in key or key.startswith("parameters."):
        return False
    if key == _LOSS:
        return True
    near = nearest_name(name, ["loss", _LOSS])
    hint = f"; the nearest is {near}" if near else ""
    raise TaskError(
        f"--set {name[:60]}: the formula and the options say what {key[:60]} is, or no exponent depends on it{hint}. "
        "With sie, --set takes parameters of the formula, and training.loss."
    )


def _check_used(task: SequenceSingleIndex) -> None:
    read = set().union(*(f.free_symbols for f in (*task.target, *task.student.output)), task.loss.expr.free_symbols)
    idle = [q.symbol.name for q in task.parameters if q.symbol not in read]
    if idle:
        raise TaskError(f"Nothing reads the parameter {idle[0]}; leave it out, or use it in the formula.")
