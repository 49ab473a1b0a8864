"""What is generated in docs/: `python -m tools.pages` writes it again, `python -m tools.notebooks` runs the tutorials.

The family tree, the picture of the architecture, the reference of commands, the pages of the results whose source is
in benchmarks/, and the pages of the notebooks.
"""

from __future__ import annotations

from pathlib import Path

from lmlab.cli.reference import make_reference
from tools.architecture import draw_architecture
from tools.family_tree import draw_tree

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def copy_results(name: str, links: dict[str, str]) -> str:
    """A page of benchmarks/ for docs/results/, with its links changed."""
    text = (ROOT / "benchmarks" / name).read_text(encoding="utf-8")
    for old, new in links.items():
        text = text.replace(f"]({old}", f"]({new}")
    return f"<!-- a copy of benchmarks/{name}, made by python -m tools.pages -->\n\n{text}"


def make_pages() -> dict[str, str]:
    """The generated files by their paths in docs/."""
    pages = {
        "images/family-tree.svg": draw_tree(),
        "images/architecture.svg": draw_architecture(),
        "reference/cli.md": make_reference(),
        "results/index.md": copy_results("RESULTS.md", {"../docs/results/": "", "RELIABILITY.md": "reliability.md"}),
        "results/reliability.md": copy_results("RELIABILITY.md", {"RESULTS.md": "index.md"}),
    }
    return pages | make_tutorials()


def make_tutorials() -> dict[str, str]:
    """The pages of the notebooks, from the outputs that are in them."""
    import nbformat

    from tools.notebooks import NAMES, TUTORIALS, make_page

    notebooks = {name: nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4) for name in NAMES}
    return {f"tutorials/{name}.md": make_page(notebook, name) for name, notebook in notebooks.items()}


def main() -> None:
    """Write all of them."""
    for path, text in make_pages().items():
        (DOCS / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
