"""The documentation builds into a site: its generated pages are up to date, and every link has a target."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmlab.language_model import LanguageModel
from lmlab.models import LINEAGE

yaml = pytest.importorskip("yaml", reason="needs the extra docs: pip install 'lmlab[docs]'")
pytest.importorskip("zensical", reason="needs the extra docs: pip install 'lmlab[docs]'")

pytest.importorskip("nbformat")

from tools.family_tree import place_systems  # noqa: E402
from tools.pages import make_pages  # noqa: E402

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def pages_of(menu: Any) -> Iterator[str]:
    """The pages of a menu, which has entries and further menus."""
    if isinstance(menu, str):
        yield menu
    else:
        for each in menu.values() if isinstance(menu, dict) else menu:
            yield from pages_of(each)


def test_every_page_is_in_the_menu_once():
    menu = sorted(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert menu == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def test_the_site_builds_without_a_warning(tmp_path: Path):
    """In strict mode a link or an anchor without a target ends the build."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["strict"] is True
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for folder in ("src", "tools"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ, "NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index.html", "guides/pictures.html", "reference/cli.html"):
        assert (tmp_path / "site" / page).is_file()
    reference = (tmp_path / "site/reference/python.html").read_text(encoding="utf-8")
    assert 'id="lmlab.LanguageModel.attention"' in reference
    assert "blockquote" not in reference, "examples in docstrings are code"


def test_generated_pages_are_up_to_date():
    old = [path for path, text in make_pages().items() if (DOCS / path).read_text(encoding="utf-8") != text]
    assert old == [], "write them again: python -m tools.pages"


def test_the_family_tree_grows_from_the_n_gram():
    """Every system but the first builds on others; they are not younger, and stand above it."""
    places = place_systems()
    assert len(set(places.values())) == len(LINEAGE)
    assert [system.name for system in LINEAGE.values() if not system.builds_on] == ["ngram"]
    for system in LINEAGE.values():
        for parent in system.builds_on:
            assert LINEAGE[parent].year <= system.year, f"{system.name} builds on {parent}, which is younger"
            assert places[parent].row < places[system.name].row


def test_the_family_tree_links_to_a_section_for_every_system():
    links = re.findall(
        r'href="\.\./lineage\.html#([\w-]+)"', (DOCS / "images/family-tree.svg").read_text(encoding="utf-8")
    )
    assert sorted(links) == sorted(LINEAGE)
    headings = re.findall(r"^### `([\w-]+)`", (DOCS / "lineage.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(links) <= set(headings)


def test_the_table_of_models_is_complete():
    rows = re.findall(r"^\| `([\w-]+)` \| (\d+)", (DOCS / "lineage.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(name, str(system.year)) for name, system in LINEAGE.items()]


def messages_of_the_code() -> list[str]:
    """Every text in the code; what is put into a text is `…`."""
    found = []
    for path in sorted((ROOT / "src/lmlab").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                values = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(str(value) for value in values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_the_messages_in_troubleshooting_are_those_of_the_code():
    """Each clause of a message is in a text of the code; `…` is what a message puts in."""
    code = messages_of_the_code()
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = [line for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(quoted) > 20
    clauses = [(line, part.strip(" :;,()'.")) for line in quoted for part in re.split(r"…|[;:,] ", line)]
    wrong = [(line, clause) for line, clause in clauses if not any(clause in text for text in code)]
    assert wrong == []


def test_the_reference_of_python_has_every_method():
    page = (DOCS / "reference/python.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^::: lmlab\.LanguageModel\.(\w+)$", page, re.MULTILINE))
    methods = {
        name
        for name in dir(LanguageModel)
        if not name.startswith("_") and callable(getattr(LanguageModel, name)) and name != "as_kind"
    }
    assert named == methods
