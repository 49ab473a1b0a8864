"""How well systems predict the next token of data that are not text: music and the pixels of pictures.

One track for each kind of tokenizer, because the scores have different units. They are ranked by the score of the
tokenizer on the test items, each scored by the chain rule after its boundary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from lmlab.comparison.entries import Entry
from lmlab.comparison.records import TrackScores
from lmlab.comparison.shared_test_data import Tests
from lmlab.comparison.tracks.track import Column, Curve, FigureTexts, RankingMetric, Track, Units, Words
from lmlab.comparison.variants import system_of
from lmlab.decoding.chain_rule import score_tokens
from lmlab.decoding.generate import continue_tokens
from lmlab.decoding.sampling import Sampling
from lmlab.language_model import LanguageModel
from lmlab.metrics.statistics import RatioOfSums
from lmlab.models import find
from lmlab.models.abilities import PredictsNext, require
from lmlab.pages.figures.piano_roll import PianoRoll, RollNote
from lmlab.pages.figures.picture_grid import join_grid
from lmlab.pages.figures.pictures import data_uri
from lmlab.progress import ReportProgress
from lmlab.tokenizers.processors.notes import MusicTokenizer
from lmlab.tokenizers.processors.pixels import Pixels
from lmlab.tokenizers.processors.sequences import SequenceTokenizer

SAMPLED = 256
"""Tokens of a sample of music."""
PICTURES = 6
"""Pictures of a sample."""


class Sequences(Track):
    """Systems that predict the next token, on items of one kind."""

    group = ""  # no word of --models: all systems that predict the next token take part
    words = Words(do="predict the next token", does="predicts the test data")

    def __init__(
        self,
        kind: str,
        *,
        unit: str,
        items: str,
        field: str,
        column: str,
        per_nat: float = 1.0,
        more: Column | None = None,
    ) -> None:
        """`field` is the main score of the tokenizer; `per_nat` of it are one nat; `more` is another of its scores."""
        self.name, self.key, self.items, self.per_nat = f"next token of {kind}", kind, items, per_nat
        self.tested = f"test {items}"
        label = field.replace("_", " ")
        self.score = RankingMetric(metric=RatioOfSums("lower"), field=field, label=label, column=column, unit=label)
        self.curve = Curve("valid_nats", f"nats per {unit}")
        self.columns = () if more is None else (more,)
        self.fields = tuple(each.field for each in self.columns)
        self.captions = FigureTexts(
            leaderboard=f"A model predicts how probable the next {unit} is. {label.capitalize()} is its cross-entropy "
            f"on the test {items}, without the boundaries between them; lower is better. The whisker is the 95% "
            "confidence interval.",
            curves=f"Validation loss in nats per {unit} during training. Lower is better; a curve that falls further "
            "left is cheaper. A dashed line is a model that was measured only once, such as an n-gram.",
            costs="Each model at the end of its training.",
            samples_title="What they generate",
            samples=f"Samples of each model (temperature 1) of the {items}.",
            passages_title="",
            passages="",
            matrix=f"How many {label} the model on the left is better than the one above.",
        )

    def evaluate(self, model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> TrackScores:
        """The nats of each test item, the scores of its tokenizer, and a sample."""
        held_out = tests.sequences
        assert held_out is not None, "a comparison of sequences has test items"
        reader, tokenizer = require(model.model, PredictsNext), held_out.tokenizer
        nats = [
            float(each.sum())
            for each in score_tokens(reader, held_out.items, boundary=tokenizer.boundary, progress=progress)
        ]
        if not math.isfinite(sum(nats)):
            raise ValueError(f"the model gives a token of the test {self.items} the probability 0, so it has no score")
        tokens = int(held_out.sizes.sum())
        measured = {"nats": nats, "tokens": tokens, "scores": tokenizer.scores(sum(nats) / tokens)}
        return TrackScores(measured={**measured, "generated": make_sample(model, tokenizer)}, lossy=False)

    def summarise(self, scores: Sequence[TrackScores], *, same_tokens: bool) -> dict[str, Any]:
        found = [each.measured for each in scores]
        means = {name: float(np.mean([each["scores"][name] for each in found])) for name in self.fields}
        return {**means, "generated": found[0]["generated"]}

    def predicted(self, scores: TrackScores) -> Sequence[float]:
        return [self.per_nat * nats for nats in scores.measured["nats"]]

    def true(self, tests: Tests) -> Sequence[float]:
        assert tests.sequences is not None
        sizes: list[float] = tests.sequences.sizes.tolist()
        return sizes

    def sizes(self, tests: Tests) -> Sequence[float]:
        return self.true(tests)

    def units(self, tests: Tests) -> Units:
        assert tests.sequences is not None
        return Units(self.items, len(tests.sequences.items))

    def conclusion(self, entry: Entry) -> str:
        nats = (entry.score or 0.0) / self.per_nat
        return f"That is a perplexity of {math.exp(nats):,.2f} per token."

    def sample(self, entry: Entry, board: Mapping[str, Any]) -> Markup:
        return show_sample(entry.measured["generated"])

    def has(self, system: str) -> bool:
        return "next token" in find(system_of(system)).does


SEQUENCES = {
    track.key: track
    for track in (
        Sequences("events", unit="event", items="pieces", field="nats_per_event", column="nats/event"),
        Sequences(
            "grid",
            unit="note",
            items="pieces",
            field="nats_per_note",
            column="nats/note",
            more=Column("nats/step", "nats_per_step", "{:.3f}"),
        ),
        Sequences(
            "pixels",
            unit="pixel",
            items="pictures",
            field="bits_per_dimension",
            column="bits/dim",
            per_nat=1 / math.log(2),
        ),
    )
}
"""The tracks of data that are not text, by the kind of their tokenizer."""


def make_sample(model: LanguageModel, tokenizer: SequenceTokenizer) -> dict[str, Any]:
    """A sample of a model as JSON: the pixels of some pictures, or the notes of a piece."""
    if isinstance(tokenizer, Pixels):
        drawn = model.painter.draw(count=PICTURES, sampling=Sampling(seed=0))
        return {"pictures": [picture.tolist() for picture in drawn]}
    assert isinstance(tokenizer, MusicTokenizer)
    reader = require(model.model, PredictsNext)
    (made,) = continue_tokens(reader, [], boundary=tokenizer.boundary, tokens=SAMPLED, sampling=Sampling(seed=0))
    piece = tokenizer.decode(made.ids)
    rows = zip(piece.starts.tolist(), piece.ends.tolist(), piece.pitches.tolist(), strict=True)
    return {"notes": [list(row) for row in rows]}


def show_sample(sample: Mapping[str, Any]) -> Markup:
    """A sample as HTML."""
    if "notes" in sample:
        return PianoRoll("Sample", [RollNote(*row) for row in sample["notes"]]).html()
    grid = join_grid([list(np.array(sample["pictures"], np.uint8))], scale=3)
    return Markup('<p><img src="{}" alt="samples"></p>').format(data_uri(grid))
