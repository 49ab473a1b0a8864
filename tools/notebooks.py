"""The tutorials: notebooks with their outputs, and the pages of the site that are made from them.

`python -m tools.notebooks` runs every notebook of docs/tutorials, keeps the outputs in it, and writes the page of the
same name.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
NAMES = ("your-own-text", "pretrain-and-transfer", "look-inside")
MARK = "<!-- made from the notebook of the same name by python -m tools.notebooks -->"
ABOUT = """!!! note

    This page is the notebook [{0}.ipynb]({0}.ipynb) with its outputs. Download it and open it with `jupyter lab`."""


def run_notebook(notebook: Any) -> None:
    """Execute the cells in a temporary folder; an error in a cell is raised."""
    import nbclient

    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        if cell.cell_type == "code":
            cell.outputs = _join_streams(cell.outputs)


def _join_streams(outputs: list[Any]) -> list[Any]:
    """The outputs without what programs report on stderr; text that was printed piece by piece is one."""
    joined: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":
            continue
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def make_page(notebook: Any, name: str) -> str:
    """The notebook as Markdown: texts, code and outputs."""
    parts = [MARK]
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", cell.source))
        else:
            parts.append(f"```python\n{cell.source}\n```")
            parts += [shown for output in cell.outputs if (shown := _show(output))]
        if number == 0:
            parts.append(ABOUT.format(name))
    return "\n\n".join(parts) + "\n"


def _show(output: Any) -> str:
    """An output: a picture or HTML where there is one, else its text."""
    data = output.get("data", {})
    if output.output_type == "stream":
        return _as_text(output.text)
    if "image/png" in data:
        image = "".join(data["image/png"].split())
        return f'<div class="output"><img alt="The plot of this cell" src="data:image/png;base64,{image}"></div>'
    if "text/html" in data:
        lines = [line.strip() for line in data["text/html"].splitlines()]
        return f'<div class="output">\n{chr(10).join(line for line in lines if line)}\n</div>'
    return _as_text(data.get("text/plain", ""))


def _as_text(text: str) -> str:
    """A block that looks like what a program prints; the longest lines are broken by the page."""
    return f"```{{.text .output}}\n{text.rstrip()}\n```" if text.strip() else ""


def main() -> None:
    """Run the notebooks and keep their outputs."""
    for name in NAMES:
        path = TUTORIALS / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        run_notebook(notebook)
        nbformat.write(notebook, path)
        path.with_suffix(".md").write_text(make_page(notebook, name), encoding="utf-8")


if __name__ == "__main__":
    main()
