"""Probes: what can be read from each layer, by tags that the user writes behind words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, Text, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.probing_sets import Item

FEWEST = 4
"""Sentences: every other one judges."""


class Asked(Config):
    """Sentences, one per line, with a tag behind each word: The/DET cat/NOUN sat/VERB."""

    run: RunName
    lines: Text
    kind: Literal["linear", "mlp"] = Field("linear", description="a linear probe, or one with a hidden layer")
    seed: int = Field(0, ge=0, lt=2**31)


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/probes")
    def probes(asked: Asked) -> Response:
        from lmlab.analysis.probing import probe

        items = parse_tagged(asked.lines)
        with run_store.using(asked.run) as model:
            found = probe(model, items[::2], items[1::2], name="tag", kind=asked.kind, seed=asked.seed)
        return answer({"probes": found, "shown": show(found)})

    return router


def parse_tagged(text: str) -> list[Item]:
    """Sentences of words with their tags; a word without a tag is not asked about."""
    from lmlab.analysis.probing_sets import Item, Question

    items = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = [each.rpartition("/") for each in line.split()]
        words = [word if slash else tag for word, slash, tag in parts]
        questions = [Question((i,), tag) for i, (word, slash, tag) in enumerate(parts) if slash and word and tag]
        if not questions:
            raise ValueError(f"line {number}: no word has a tag; write it as The/DET cat/NOUN sat/VERB")
        items.append(Item(words, questions))
    if len(items) < FEWEST:
        raise ValueError(f"{len(items)} sentences: give at least {FEWEST}; every other one judges")
    return items
