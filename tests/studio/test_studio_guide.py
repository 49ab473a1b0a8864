"""The lecture in the guide can be read, its views and settings exist, and the demo makes its runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import parse_qs

from lmlab.cli.demo import MODELS
from lmlab.config import build
from lmlab.studio.lecture import VIEWS, Lecture

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src/lmlab/studio/static"


def lecture_of_the_guide() -> Lecture:
    text = (ROOT / "docs/guides/studio.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"^```toml\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return build(Lecture, tomllib.loads(toml), where="the guide")


def test_the_lecture_of_the_guide_names_runs_of_the_demo() -> None:
    named = {run for slide in lecture_of_the_guide().views for run in slide.runs}
    assert named <= set(MODELS.split(","))


def test_every_link_of_the_guide_sets_what_its_view_has() -> None:
    for slide in lecture_of_the_guide().views:
        view, _, query = slide.link.removeprefix("#/").partition("?")
        source = (STATIC / "views" / f"{view}.js").read_text(encoding="utf-8")
        found = re.search(r"^  defaults: \{(.*?)\},$", source, flags=re.MULTILINE | re.DOTALL)
        assert found is not None, view
        known = set(re.findall(r"(?:^|, |\n)\s*(\w+):", found[1]))
        assert set(parse_qs(query)) <= known, slide.link


def test_the_guide_explains_every_view_and_the_page_offers_it() -> None:
    guide = (ROOT / "docs/guides/studio.md").read_text(encoding="utf-8")
    shell = (STATIC / "main.js").read_text(encoding="utf-8")
    offered = dict(re.findall(r'\["([\w-]+)", "([\w ]+)"\]', shell))
    assert set(offered) == {*VIEWS, "lecture"}
    assert [title for name, title in offered.items() if name != "lecture" and f"| {title} |" not in guide] == []
