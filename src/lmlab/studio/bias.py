"""Bias: which of two groups runs find more probable, by templates of the user, a ready set, or translations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, Text, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.sets import Sets
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute

MOST = 4000
"""Sentences that one run is asked about."""
Word = Annotated[str, Field(min_length=1, max_length=100)]


class Templates(Config):
    """Sentences with {group} and {word} in them, and what is put there."""

    runs: RunNames
    groups: tuple[Word, Word] = Field(strict=False)
    templates: list[Annotated[str, Field(max_length=500)]] = Field(min_length=1, max_length=50)
    words: list[Word] = Field(min_length=1, max_length=200)


class Ready(Config):
    """CrowS-Pairs (.csv), or the folder of Winogender."""

    runs: RunNames
    set: str = Field(min_length=1, max_length=500)
    limit: int = Field(300, ge=10, le=MOST, description="items, the first")


class Translations(Config):
    """A source, and translations of it that are weighed against each other."""

    runs: RunNames
    source: Text
    targets: list[Text] = Field(max_length=20)


def make_router(run_store: RunStore, sets: Sets) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    def each(runs: list[str], look: Any) -> Response:
        found = []
        for name in runs:
            with run_store.using(name) as model:
                found.append({"run": name, "shown": show(look(model))})
        return answer({"runs": found})

    @router.post("/bias/templates")
    def templates(asked: Templates) -> Response:
        from lmlab.analysis.bias import check_templates, measure_bias

        given = {"groups": list(asked.groups), "templates": asked.templates, "words": {"word": asked.words}}
        made = check_templates(given, where="templates")
        if 2 * len(made.templates) * len(asked.words) > MOST:
            raise ValueError(f"{len(made.templates)} templates and {len(asked.words)} words: at most {MOST} sentences")
        return each(asked.runs, lambda model: measure_bias(model, made))

    @router.post("/bias/set")
    def ready(asked: Ready) -> Response:
        from lmlab.analysis.bias_sets import judge_crows, judge_winogender
        from lmlab.analysis.readers import read_crows_pairs, read_winogender

        with sets.reading(asked.set) as path:
            if path.is_dir():
                schemas = read_winogender(path)[: asked.limit]
                return each(asked.runs, lambda model: judge_winogender(model, schemas))
            pairs = read_crows_pairs(path)[: asked.limit]
        return each(asked.runs, lambda model: judge_crows(model, pairs))

    @router.post("/bias/translations")
    def translations(asked: Translations) -> Response:
        from lmlab.analysis.bias import weigh_translations

        return each(asked.runs, lambda model: weigh_translations(model, asked.source, asked.targets))

    return router
