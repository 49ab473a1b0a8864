"""The documentation builds into a site: every page is in its menu, and every link has a target."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="needs the extra docs: pip install 'lmlab[docs]'")
pytest.importorskip("zensical", reason="needs the extra docs: pip install 'lmlab[docs]'")

ROOT = Path(__file__).parents[1]


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
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ, "NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index.html", "guides/pictures.html", "reference/cli.html"):
        assert (tmp_path / "site" / page).is_file()
    assert "lmlab.LanguageModel" in (tmp_path / "site/reference/python.html").read_text(encoding="utf-8")
