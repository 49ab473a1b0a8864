"""The notebook for a lecture runs from top to bottom, and each of its last lines shows itself."""

from __future__ import annotations

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parents[1] / "docs" / "looking-inside.ipynb"


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "clear the outputs before you commit"
    client = nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            data = [output["data"] for output in cell.outputs if output.output_type == "execute_result"]
            assert len(data) == 1, cell.source
            shown.append(data[0].get("text/html", ""))
    assert sum("lmlab-view" in each or "<iframe" in each for each in shown) >= 9
    assert any("100.0% of 8 pairs are right" in each for each in shown)
