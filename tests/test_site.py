"""The documentation builds into a site: its generated pages are up to date, and every link has a target."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lmlab.language_model import LanguageModel
from lmlab.models import LINEAGE
from patience import PATIENCE
from studio_page import CHROMIUM, NO_CHROMIUM

yaml = pytest.importorskip("yaml", reason="needs the extra docs: pip install 'lmlab[docs]'")
pytest.importorskip("zensical", reason="needs the extra docs: pip install 'lmlab[docs]'")

pytest.importorskip("nbformat")

from tools.family_tree import place_systems  # noqa: E402
from tools.pages import make_pages  # noqa: E402

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GPT2 = """(() => {
  const tree = document.querySelector("object"), link = tree.contentDocument?.querySelector("a[href$='#gpt2']");
  if (!link) return undefined;
  link.scrollIntoView({ block: "center" });
  const [outer, inner] = [tree.getBoundingClientRect(), link.getBoundingClientRect()];
  return [outer.x + inner.x + inner.width / 2, outer.y + inner.y + inner.height / 2];
})()"""
"""The middle of a system of the family tree, which is a document in the page."""


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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. In strict mode a link or an anchor without a target ends the build."""
    tmp_path = tmp_path_factory.mktemp("docs")
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
    return tmp_path / "site"


def test_the_site_builds_without_a_warning(site: Path):
    for page in ("index.html", "guides/pictures.html", "reference/cli.html"):
        assert (site / page).is_file()
    reference = (site / "reference/python.html").read_text(encoding="utf-8")
    assert 'id="lmlab.LanguageModel.attention"' in reference
    assert "blockquote" not in reference, "examples in docstrings are code"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_the_site_is_searched_and_the_family_tree_is_clicked(site: Path):
    """In a real Chromium: the menu, the search, a system of the family tree; nothing from outside, no error."""
    sync_api = pytest.importorskip("playwright.sync_api")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address, wrong = f"http://127.0.0.1:{server.server_port}/", list[str]()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda each: wrong.append(each.text) if each.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda each: None if each.url.startswith((address, "data:", "blob:")) else wrong.append(each.url),
        )
        page.goto(address)
        page.get_by_role("link", name="Explanation", exact=True).first.click()
        page.wait_for_url("**/lineage.html")
        page.locator("object").scroll_into_view_if_needed()
        page.wait_for_function(f"{GPT2} !== undefined")
        page.mouse.click(*page.evaluate(GPT2))
        page.wait_for_url("**/lineage.html#gpt2")
        assert page.locator("#gpt2").bounding_box()["y"] < 300
        page.get_by_role("button", name="Search").first.click()
        page.keyboard.type("perplexity")
        page.locator("a[href*='h=perplexity']").first.wait_for()
        assert page.locator("a[href*='h=perplexity']").count() >= 5
        page.keyboard.press("Enter")
        page.wait_for_function("before => location.pathname !== before", arg="/lineage.html")
        assert "perplexity" in page.locator("main").inner_text().lower()
        for width in (420, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            for name in ("index", "lineage", "tutorials/look-inside", "guides/studio", "reference/cli"):
                page.goto(f"{address}{name}.html")
                assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        browser.close()
    server.shutdown()
    assert wrong == []


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
