"""Every notebook is committed without outputs, ends with a check, and runs from top to bottom."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They see QUICK=1, the packages of this checkout, and a place of their own for what Jupyter keeps."""
    monkeypatch.setenv("QUICK", "1")
    search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(search))
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


@each_notebook
def test_no_outputs_are_committed(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert not [i for i, cell in enumerate(cells) if cell.outputs or cell.execution_count is not None]


@each_notebook
def test_last_code_cell_asserts(path: Path) -> None:
    assert "assert " in [cell for cell in read(path).cells if cell.cell_type == "code"][-1].source


@pytest.mark.slow
@each_notebook
def test_runs(path: Path) -> None:
    execute(read(path), path.parent)


@pytest.mark.slow
def test_a_false_assertion_in_a_cell_is_an_error(tmp_path: Path) -> None:
    v4 = nbformat.v4
    cells = ["import os, derive", "assert os.environ['QUICK'] == '1'", "assert derive is None, 'control'"]
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in cells])
    with pytest.raises(CellExecutionError) as raised:
        execute(notebook, tmp_path)
    assert (raised.value.ename, raised.value.evalue) == ("AssertionError", "control")
