"""Views of probabilities that runs give to texts: surprisal, minimal pairs and bias."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, Text, respond_for_each, to_json
from lmlab.studio.run_store import RunStore
from lmlab.studio.sets import Sets
from lmlab.studio.workers import HeavyRoute
from lmlab.units import bits_per_byte

if TYPE_CHECKING:
    from lmlab.analysis.pair_sets import Pair, PairSet
    from lmlab.language_model import LanguageModel
    from lmlab.pages.views import View

MOST_PAIRS, MOST_SET_PAIRS = 500, 5000
"""Pairs of one request: typed by the user, and of a ready set."""
MOST_SENTENCES = 4000
"""Sentences about which one run is asked in the bias view."""
Word = Annotated[str, Field(min_length=1, max_length=100)]


class SurprisalRequest(Config):
    """A text, and the runs that read it."""

    runs: RunNames
    text: Text


class MinimalPairsRequest(Config):
    """Pairs, one per line: the good sentence, a tab (or |), the bad one; or a ready set."""

    runs: RunNames
    pairs: Text = ""
    region: Literal["full", "critical"] | None = Field(
        None, description="whole sentences, or the words that differ; by default as the authors of a set have it"
    )
    set: str = Field("", max_length=500, description="the name of a ready set, instead of pairs")
    limit: int = Field(10, ge=1, le=1000, description="pairs of each paradigm of a ready set, the first")


class TemplatesRequest(Config):
    """Sentences with {group} and {word} in them, and what is put there."""

    runs: RunNames
    groups: tuple[Word, Word] = Field(strict=False)
    templates: list[Annotated[str, Field(max_length=500)]] = Field(min_length=1, max_length=50)
    words: list[Word] = Field(min_length=1, max_length=200)


class BiasSetRequest(Config):
    """CrowS-Pairs (.csv), or the folder of Winogender."""

    runs: RunNames
    set: str = Field(min_length=1, max_length=500)
    limit: int = Field(300, ge=10, le=MOST_SENTENCES, description="items, the first")


class TranslationsRequest(Config):
    """A source, and translations of it whose probabilities are compared."""

    runs: RunNames
    source: Text
    targets: list[Text] = Field(max_length=20)


def make_router(run_store: RunStore, sets: Sets) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    def analyse(runs: list[str], look: Callable[[LanguageModel], View]) -> Response:
        return respond_for_each(runs, run_store, lambda _, model: {"analysis": to_json(look(model))})

    @router.post("/surprisal")
    def surprisal(request: SurprisalRequest) -> Response:
        return respond_for_each(request.runs, run_store, lambda _, model: read_surprisal(model, request.text))

    @router.post("/minimal-pairs")
    def minimal_pairs(request: MinimalPairsRequest) -> Response:
        from lmlab.analysis.minimal_pairs import compare_pairs
        from lmlab.analysis.pair_sets import PairSet

        if request.set:
            with sets.reading(request.set) as path:
                pairs = _read_pairs(path, path.stat().st_mtime_ns).first(request.limit)
            if len(pairs.pairs) > MOST_SET_PAIRS:
                raise ValueError(f"{len(pairs.pairs)} pairs: give a lower limit, or use lmlab inspect minimal-pairs")
        else:
            pairs = PairSet("", parse_pairs(request.pairs))

        def look(name: str, model: LanguageModel) -> dict[str, Any]:
            found = compare_pairs(model, pairs, region=request.region)
            return {"scored": found.scored, "accuracy": found.accuracy[0], "analysis": to_json(found)}

        return respond_for_each(request.runs, run_store, look)

    @router.post("/bias/templates")
    def templates(request: TemplatesRequest) -> Response:
        from lmlab.analysis.bias import check_templates, measure_bias

        given = {"groups": list(request.groups), "templates": request.templates, "words": {"word": request.words}}
        made = check_templates(given, where="templates")
        if 2 * len(made.templates) * len(request.words) > MOST_SENTENCES:
            raise ValueError(
                f"{len(made.templates)} templates and {len(request.words)} words: at most {MOST_SENTENCES} sentences"
            )
        return analyse(request.runs, lambda model: measure_bias(model, made))

    @router.post("/bias/set")
    def bias_set(request: BiasSetRequest) -> Response:
        from lmlab.analysis.bias_sets import judge_crows, judge_winogender
        from lmlab.analysis.readers import read_crows_pairs, read_winogender

        with sets.reading(request.set) as path:
            if path.is_dir():
                schemas = read_winogender(path)[: request.limit]
                return analyse(request.runs, lambda model: judge_winogender(model, schemas))
            pairs = read_crows_pairs(path)[: request.limit]
        return analyse(request.runs, lambda model: judge_crows(model, pairs))

    @router.post("/bias/translations")
    def translations(request: TranslationsRequest) -> Response:
        from lmlab.analysis.bias import weigh_translations

        return analyse(request.runs, lambda model: weigh_translations(model, request.source, request.targets))

    return router


def read_surprisal(model: LanguageModel, text: str) -> dict[str, Any]:
    """Every token and every word with its bits, and its position in the text."""
    from lmlab.analysis.surprisal import read_surprisals
    from lmlab.tokenizers.inspecting import loses_text

    found = read_surprisals(model, text)
    (one,) = found.texts
    return {
        "tokens": one.tokens,
        "words": one.words,
        "bits": found.bits,
        "bits_per_byte": bits_per_byte(found.bits * math.log(2), len(text.encode())),
        "pseudo": found.pseudo,
        "lossy": loses_text(model.text_tokenizer, [text]),
    }


@lru_cache(maxsize=2)
def _read_pairs(path: Path, changed: int) -> PairSet:
    """The pairs of a file, cached until it is changed: reading BLiMP takes a second."""
    from lmlab.analysis.pair_sets import read_pairs

    return read_pairs(path)


def parse_pairs(text: str) -> list[Pair]:
    """The pairs that the user typed."""
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
    if not 1 <= len(found) <= MOST_PAIRS:
        raise ValueError(f"{len(found)} pairs: give 1 to {MOST_PAIRS}")
    return found
