"""Minimal pairs: sentences of which one is right, and which of the two each run finds more probable."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, Text, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.sets import Sets
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.pair_sets import Pair, PairSet

MOST, MOST_READY = 500, 5000
"""Pairs at once, of a user and of a ready set."""


class Asked(Config):
    """Pairs, one per line: the good sentence, a tab (or |), the bad one; or a ready set."""

    runs: RunNames
    pairs: Text = ""
    region: Literal["full", "critical"] | None = Field(
        None, description="whole sentences, or the words that differ; without it, as the authors of a set have it"
    )
    set: str = Field("", max_length=500, description="the name of a ready set, in place of pairs")
    limit: int = Field(10, ge=1, le=1000, description="pairs of each paradigm of a ready set, the first")


def make_router(run_store: RunStore, sets: Sets) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/pairs")
    def judge_pairs(asked: Asked) -> Response:
        from lmlab.analysis.minimal_pairs import judge
        from lmlab.analysis.pair_sets import PairSet

        if asked.set:
            with sets.reading(asked.set) as path:
                pairs = _read(path, path.stat().st_mtime_ns).first(asked.limit)
            if len(pairs.pairs) > MOST_READY:
                raise ValueError(
                    f"{len(pairs.pairs)} pairs: give a lower limit, or judge them by lmlab inspect minimal-pairs"
                )
        else:
            pairs = PairSet("", parse_pairs(asked.pairs))
        found = []
        for name in asked.runs:
            with run_store.using(name) as model:
                judged = judge(model, pairs, region=asked.region)
            found.append({"run": name, "judged": judged.judged, "accuracy": judged.accuracy[0], "shown": show(judged)})
        return answer({"runs": found})

    return router


@lru_cache(maxsize=2)
def _read(path: Path, changed: int) -> PairSet:
    """The pairs of a file as it was when it was last changed: BLiMP takes a second to read."""
    from lmlab.analysis.pair_sets import read_pairs

    return read_pairs(path)


def parse_pairs(text: str) -> list[Pair]:
    """The pairs of a text that was typed."""
    from lmlab.analysis.pair_sets import Pair

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
