"""Senses: all occurrences of a word, by the vectors that runs give them in their contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.held_out import HeldOutReader
from lmlab.studio.responses import RunNames, Text, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.readers import Occurrence

MOST = 400
"""Occurrences that are shown."""


class Asked(Config):
    """Whose occurrences; lines may begin with a sense and a |. Where there are none, each run's held-out text is."""

    runs: RunNames
    word: str = Field(min_length=1, max_length=60)
    lines: Text = ""
    layer: int = Field(-1, ge=-200, le=200)
    projection: Literal["pca", "tsne"] = "pca"


def make_router(run_store: RunStore, held_out: HeldOutReader) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/senses")
    def senses(asked: Asked) -> Response:
        from lmlab.analysis.senses import read_senses_of

        found = []
        for name in asked.runs:
            text = asked.lines if asked.lines.strip() else held_out.text(name)
            given = parse_lines(text, asked.word)
            with run_store.using(name) as model:
                read = read_senses_of(model, asked.word, given, layer=asked.layer, projection=asked.projection)
            found.append({"run": name, "layer": read.layer, "layers": len(read.layers), "shown": show(read)})
        return answer({"runs": found})

    return router


def parse_lines(text: str, word: str) -> list[Occurrence]:
    """The occurrences of a word in lines, with their senses where every line names one."""
    from lmlab.analysis.readers import find_occurrences

    lines = [line for line in text.splitlines() if line.strip()]
    named = [line.partition("|") for line in lines]
    if not all(bar and sense.strip() and "|" not in rest for sense, bar, rest in named):
        return find_occurrences(lines, word)[:MOST]
    found = []
    for sense, _, rest in named:
        found += [each._replace(sense=sense.strip()) for each in find_occurrences([rest], word)]
    return found[:MOST]
