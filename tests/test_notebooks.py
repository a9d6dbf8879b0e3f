"""The notebooks run from their first cell to their last, and what they show is still so."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(path: Path) -> list[tuple[str, str]]:
    """The code cells in order, each with what it printed when the notebook was saved."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    return [
        ("".join(cell["source"]), "".join(line for output in cell["outputs"] for line in output.get("text", ())))
        for cell in cells
    ]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_prints_what_is_stored(path):
    names: dict[str, object] = {}
    for number, (source, stored) in enumerate(code_cells(path), 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, f"{path.name}, code cell {number}", "exec"), names)
        assert printed.getvalue() == stored, f"code cell {number}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_included_and_come_from_one_run(path):
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] for cell in cells)
