"""Every command and every Python line of the README is run."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

import limitlaw

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[str]:
    lines = (part.strip() for block in blocks("sh") for line in block.splitlines() for part in line.split("&&"))
    return [line for line in lines if line.startswith("limitlaw ")]


def write_tasks(folder: Path) -> None:
    """The task files that the README shows, under the names that it gives them."""
    (folder / "task.toml").write_text(blocks("toml")[0], encoding="utf-8")
    robust = next(b for b in blocks("toml") if 'family = "convex-erm"' in b)
    (folder / "robust.toml").write_text(robust, encoding="utf-8")
    matrix = next(b for b in blocks("toml") if 'family = "attention-indexed"' in b)
    (folder / "matrix.toml").write_text(matrix, encoding="utf-8")


def test_the_readme_has_commands() -> None:
    assert len(commands()) >= 8


SLOW_TASKS = ("positional-semantic", "sparse-token-attention", "solve robust", "aim-softmax")  # half a minute to two
LONG = [c for c in commands() if any(t in c for t in SLOW_TASKS) and " verify " not in c]


@pytest.mark.slow
@pytest.mark.parametrize("command", LONG)
def test_long_commands(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path)
    with pytest.raises(SystemExit) as stop:
        limitlaw.main(shlex.split(command)[1:])
    assert stop.value.code == 0


@pytest.mark.parametrize("command", [c for c in commands() if " verify " not in c and c not in LONG])
def test_commands(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path)
    with pytest.raises(SystemExit) as stop:
        limitlaw.main(shlex.split(command)[1:])
    assert stop.value.code == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in commands() if " verify " in c])
def test_the_example_from_end_to_end(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path)
    with pytest.raises(SystemExit) as stop:
        limitlaw.main(shlex.split(command)[1:])
    assert stop.value.code == 0
    if "--report" in command:
        assert "agrees" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_python() -> None:
    results = doctest.testfile("../README.md", module_relative=True)
    assert results.attempted >= 5
    assert results.failed == 0


def test_pictures_exist() -> None:
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (Path(__file__).parents[1] / path).is_file()
