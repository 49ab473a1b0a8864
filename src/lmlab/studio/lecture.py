"""Lectures: views in order, a TOML file of links.

title = "What language models expect"

[[views]]
title = "Three models, one text"
link = "#/next?run=demo/ngram&run=demo/lstm&text=Return a new"
note = "Which one has seen this phrase?"
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter
from pydantic import Field, field_validator
from starlette.responses import Response

from lmlab.config import Config, build, read_toml
from lmlab.messages import suggest
from lmlab.studio.responses import respond
from lmlab.studio.run_store import RunStore

FILE = "lecture.toml"
"""The default file of the lecture in a folder of runs."""
VIEWS = tuple(
    sorted(path.stem for path in (Path(__file__).parent / "static" / "views").glob("*.js") if path.stem != "lecture")
)


OLD_VIEWS = {
    "surprise": "surprisal",
    "pairs": "minimal-pairs",
    "why": "attribution",
    "mix": "layer-mix",
    "blanks": "fill",
}
"""Names of views before version 0.6, which links may still have; the page knows them too (static/state.js)."""


class Slide(Config):
    """One view of a lecture."""

    title: str = Field(min_length=1, max_length=200, description="shown at the bottom of the page")
    link: str = Field(max_length=8000, description="the address of the view from # on")
    note: str = Field("", max_length=2000, description="notes for the speaker")

    @field_validator("link")
    @classmethod
    def _leads_to_a_view(cls, link: str) -> str:
        found = re.fullmatch(r"#/([a-z-]+)(\?.*)?", link, flags=re.DOTALL)
        if not found:
            raise ValueError("a link is that part of a view's address that begins with #/, as in #/next?text=Return")
        if OLD_VIEWS.get(found[1], found[1]) not in VIEWS:
            raise ValueError(f"there is no view {found[1]!r}{suggest(found[1], VIEWS)}")
        return link

    @property
    def runs(self) -> list[str]:
        """The runs that the link names."""
        return parse_qs(self.link.partition("?")[2]).get("run", [])


class Lecture(Config):
    """Views in their order."""

    title: str = Field("Lecture", max_length=200, description="the name of the lecture")
    views: list[Slide] = Field(min_length=1, max_length=500, description="the views in order")


def read_lecture(path: Path) -> Lecture:
    """Read the lecture in a TOML file; a ValueError says what is wrong with it."""
    return build(Lecture, read_toml(path), where=path.name)


def make_router(run_store: RunStore, path: Path | None = None) -> APIRouter:
    router = APIRouter()
    given = path or run_store.folder / FILE

    @router.get("/lecture")
    def lecture() -> Response:
        found: dict[str, Any] = {"lecture": None, "file": given.name, "missing": []}
        if given.is_file():
            content = read_lecture(given)
            known = run_store.paths()
            found["lecture"] = content.model_dump()
            found["missing"] = sorted({run for view in content.views for run in view.runs if run not in known})
        return respond(found)

    return router
