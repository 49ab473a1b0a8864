"""The tutorials are notebooks that run from top to bottom and show what their stored outputs show."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

from tools.notebooks import NAMES, TUTORIALS, run_notebook  # noqa: E402

SHOWN = {
    "your-own-text": ["bits per byte", "temperature 0.3", "Difference of surprisals"],
    "pretrain-and-transfer": ["bag of words", "lstm, frozen", "with probability"],
    "look-inside": ["100.0% of 8 pairs are right", "<iframe", "Heads that link two words", "Probes"],
}
"""What the outputs contain, on every machine."""


def kinds(notebook: Any) -> list[list[str]]:
    """For each cell of code, what its outputs are: printed text, or the richest form of a result."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown = [output.get("data", {}) for output in cell.outputs]
            found.append(
                [next((kind for kind in ("image/png", "text/html") if kind in each), "text") for each in shown]
            )
    return found


def text_of(notebook: Any) -> str:
    """All that the outputs show, except pictures."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    parts = [output.get("text", "") + "".join(output.get("data", {}).values()) for output in outputs]
    return "\n".join(parts)


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_runs_and_shows_what_is_stored(name: str) -> None:
    stored = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
    ran = copy.deepcopy(stored)
    run_notebook(ran)
    assert kinds(ran) == kinds(stored), "python -m tools.notebooks"
    for text in SHOWN[name]:
        assert text in text_of(stored)
        assert text in text_of(ran)
    if name == "pretrain-and-transfer":
        rows = dict(re.findall(r"lstm, (frozen|scratch)</td><td>\d+</td><td>([\d.]+)", text_of(ran)))
        assert float(rows["frozen"]) > float(rows["scratch"]) + 20
