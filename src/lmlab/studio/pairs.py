"""Minimal pairs: sentences of which one is right, and which of the two each run finds more probable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.answers import RunNames, Text, answer
from lmlab.studio.shelf import Shelf
from lmlab.studio.shown import show

if TYPE_CHECKING:
    from lmlab.data.reading.minimal_pairs import Pair

MOST = 500
"""Pairs at once."""


class Asked(Config):
    """Pairs, one per line: the good sentence, a tab (or |), the bad one."""

    runs: RunNames
    pairs: Text
    region: Literal["full", "critical"] = Field("full", description="whole sentences, or the words that differ")


def make_router(shelf: Shelf) -> APIRouter:
    router = APIRouter()

    @router.post("/pairs")
    def judge_pairs(asked: Asked) -> Response:
        from lmlab.analysis.minimal_pairs import judge

        pairs = parse_pairs(asked.pairs)
        found = []
        for name in asked.runs:
            with shelf.using(name) as model:
                judged = judge(model, pairs, region=asked.region)
            found.append({"run": name, "judged": judged.judged, "accuracy": judged.accuracy[0], "shown": show(judged)})
        return answer({"runs": found})

    return router


def parse_pairs(text: str) -> list[Pair]:
    """The pairs of a text that was typed."""
    from lmlab.data.reading.minimal_pairs import Pair

    found: list[Pair] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        good, _, bad = (part.strip() for part in line.partition("\t" if "\t" in line else "|"))
        if not good or not bad:
            raise ValueError(f"line {number}: write a good sentence, a tab or |, and a bad one")
        if good == bad:
            raise ValueError(f"line {number}: both sentences are the same; they must differ")
        found.append(Pair(good, bad))
    if not 1 <= len(found) <= MOST:
        raise ValueError(f"{len(found)} pairs: give 1 to {MOST}")
    return found
