"""Views of vectors: neighbours of words, senses of a word, probes of layers, and the layer mix of fine-tuned runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.held_out_access import HeldOutReader
from lmlab.studio.responses import RunName, RunNames, Text, respond, respond_for_each, to_json
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.probing_sets import ProbedSentence
    from lmlab.analysis.readers import Occurrence
    from lmlab.language_model import LanguageModel

FEWEST_TAGGED = 4
"""Sentences for a probe, at least: half of them are for testing."""
MOST_OCCURRENCES = 400


class NeighboursRequest(Config):
    """One word, or three for an analogy: a is to b as c is to what?"""

    runs: RunNames
    words: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(min_length=1, max_length=3)
    top: int = Field(12, ge=1, le=100, description="number of neighbours")


class SensesRequest(Config):
    """A word, and lines that contain it; a line may start with a sense and a |. Without lines: the held-out text."""

    runs: RunNames
    word: str = Field(min_length=1, max_length=60)
    lines: Text = ""
    layer: int = Field(-1, ge=-200, le=200)
    projection: Literal["pca", "tsne"] = "pca"


class ProbesRequest(Config):
    """Sentences, one per line, with a tag after each word: The/DET cat/NOUN sat/VERB."""

    run: RunName
    lines: Text
    kind: Literal["linear", "mlp"] = Field("linear", description="a linear probe, or one with a hidden layer")
    seed: int = Field(0, ge=0, lt=2**31)


class LayerMixRequest(Config):
    """Fine-tuned runs that learnt a mix of layers."""

    runs: RunNames


def make_router(run_store: RunStore, held_out: HeldOutReader) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/neighbours")
    def neighbours(request: NeighboursRequest) -> Response:
        from lmlab.analysis.neighbours import find_neighbours

        if len(request.words) == 2:
            raise ValueError("2 words: give one, or three for an analogy (a is to b as c is to what?)")
        found: list[dict[str, Any]] = []
        for name in request.runs:
            with run_store.using(name) as model:
                try:
                    analysis = to_json(find_neighbours(model, request.words, top=request.top))
                    found.append({"run": name, "analysis": analysis, "why_not": None})
                except ValueError as error:  # other vocabularies may have the word
                    found.append({"run": name, "analysis": None, "why_not": str(error)})
        return respond({"runs": found})

    @router.post("/senses")
    def senses(request: SensesRequest) -> Response:
        from lmlab.analysis.senses import read_senses_of

        def look(name: str, model: LanguageModel) -> dict[str, Any]:
            text = request.lines if request.lines.strip() else held_out.text(name)
            occurrences = parse_lines(text, request.word)
            read = read_senses_of(model, request.word, occurrences, layer=request.layer, projection=request.projection)
            return {"layer": read.layer, "layers": len(read.layers), "analysis": to_json(read)}

        return respond_for_each(request.runs, run_store, look)

    @router.post("/probes")
    def probes(request: ProbesRequest) -> Response:
        from lmlab.analysis.probing import probe

        items = parse_tagged(request.lines)
        with run_store.using(request.run) as model:
            found = probe(model, items[::2], items[1::2], name="tag", kind=request.kind, seed=request.seed)
        return respond({"probes": found, "analysis": to_json(found)})

    @router.post("/layer-mix")
    def layer_mix(request: LayerMixRequest) -> Response:
        """The weights of the layers that a task reads (Peters et al. 2018, figure 2)."""
        from lmlab.analysis.layer_mix import TaskLayers, describe_mix
        from lmlab.runs.model_files import read_mix

        found = [describe_mix(name, *read_mix(run_store.find_checked(name), name=name)) for name in request.runs]
        return respond({"mixes": found, "analysis": to_json(TaskLayers(found))})

    return router


def parse_tagged(text: str) -> list[ProbedSentence]:
    """Sentences of words with their tags; the probe skips words without a tag."""
    from lmlab.analysis.probing_sets import ProbedSentence, ProbeLabel

    items = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = [each.rpartition("/") for each in line.split()]
        words = [word if slash else tag for word, slash, tag in parts]
        questions = [ProbeLabel((i,), tag) for i, (word, slash, tag) in enumerate(parts) if slash and word and tag]
        if not questions:
            raise ValueError(f"line {number}: no word has a tag; write it as The/DET cat/NOUN sat/VERB")
        items.append(ProbedSentence(words, questions))
    if len(items) < FEWEST_TAGGED:
        raise ValueError(f"{len(items)} sentences: give at least {FEWEST_TAGGED}; half of them are for testing")
    return items


def parse_lines(text: str, word: str) -> list[Occurrence]:
    """The occurrences of a word in lines, with their senses if every line names one."""
    from lmlab.analysis.readers import find_occurrences

    lines = [line for line in text.splitlines() if line.strip()]
    named = [line.partition("|") for line in lines]
    if not all(bar and sense.strip() and "|" not in rest for sense, bar, rest in named):
        return find_occurrences(lines, word)[:MOST_OCCURRENCES]
    found = []
    for sense, _, rest in named:
        found += [each._replace(sense=sense.strip()) for each in find_occurrences([rest], word)]
    return found[:MOST_OCCURRENCES]
