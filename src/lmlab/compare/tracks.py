"""Contests: each question that systems are ranked by, with how it is measured and all that is said about it.

Systems meet in a track if they have its ability (`System.does`); a system with several abilities enters several.
Another track is one object here and one file with what it measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from lmlab.compare import blanks, both_ways, likelihood
from lmlab.compare.held_out import Tests, TestText
from lmlab.compare.records import Entry, Record
from lmlab.language_model import LanguageModel
from lmlab.models import LINEAGE, find
from lmlab.models.descriptions import DESCRIPTIONS
from lmlab.pages import samples
from lmlab.pages.page import Cell
from lmlab.progress import ReportProgress


class Summarise(Protocol):
    """Turns the records of one system, one for each seed, into what its entry says besides the score."""

    def __call__(self, records: Sequence[Record], *, same_tokens: bool) -> Entry: ...


@dataclass(frozen=True, kw_only=True)
class Words:
    """What is said of a track, in tables, sentences and on its part of the page (HTML)."""

    systems: str  # who takes part: " of …"; "" for those whom a reader expects
    do: str  # "they …"
    does: str  # "NAME … best"
    leading: str = ""  # "NAME has the best score …"
    score: str  # what ranks them: "bits per byte"
    column: str  # the same, as short as a column is narrow
    unit: str  # after a figure in a sentence
    curve: str  # what a learning curve shows
    apart: str = ""  # over its part of the page, if it stands below another
    why: str = ""  # it is not to be compared with others
    not_with: str = ""
    leaderboard: str
    curves: str
    costs: str
    shown: str  # the title over the samples
    samples: str
    surprising: str  # the title over the passages
    passages: str
    matrix: str


@dataclass(frozen=True, kw_only=True)
class Track:
    """One question, and how systems are ranked by their answers to it."""

    name: str  # of the ability that it needs; `predicts` in leaderboard.json
    key: str  # of its entries in leaderboard.json and of its charts; "" for those on top
    group: str  # the word for all its systems in --models
    measure: Callable[[LanguageModel, Path, Tests, ReportProgress | None], Record]
    summarise: Summarise
    text: Literal["whole", "part"]  # of the held-out text, what ranks them
    sums: str = "bits"  # of the record: a sum for each unit of the text …
    sizes: Callable[[TestText], NDArray[np.float64]] = field(default=lambda test: test.sizes)  # … divided by these
    ranks_by: str  # the score's name in leaderboard.json
    better: Literal["lower", "higher"] = "lower"
    curve: str  # the metric of learning curves, a loss
    fields: tuple[str, ...] = ()  # that only its entries have, as columns of the CSV
    columns: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # of the terminal: field and format
    cells: Mapping[str, Callable[[Entry], Cell]] = field(default_factory=dict)  # more columns of the page
    one_tokenizer: str = ""  # why all must read the same; "" where they need not
    verdict: Callable[[Entry], str]  # what the best score means
    show: Callable[[Entry, Mapping[str, Any]], Markup]  # a sample, given the entry and the board
    notes: Callable[[Tests, Mapping[str, Any], Sequence[Entry]], Iterable[str]] = field(default=lambda *_: ())
    words: Words

    def test(self, tests: Tests) -> TestText:
        """The text that ranks its systems."""
        return tests.part if self.text == "part" else tests.whole

    def score(self, record: Record, tests: Tests) -> float:
        """What a run is ranked by."""
        return float(sum(record[self.sums]) / self.sizes(self.test(tests)).sum())

    def has(self, system: str) -> bool:
        """Whether a system takes part."""
        return self.name in find(system).does

    @property
    def of_systems(self) -> str:
        """` of masked models`, where there is something to tell apart."""
        return f" of {self.words.systems}" if self.words.systems else ""


NEXT_TOKEN = Track(
    name="next token",
    key="",
    group="all",
    measure=likelihood.measure_next_token,
    summarise=likelihood.summarise_next_token,
    text="whole",
    ranks_by="bits_per_byte",
    curve="valid_bits_per_byte",
    fields=("perplexity",),
    columns={"perplexity": ("perplexity", "{:,.1f}")},
    cells={"perplexity": lambda entry: Cell(f"{entry['perplexity']:,.1f}" if entry.get("perplexity") else "")},
    verdict=likelihood.tell_compression,
    show=lambda entry, board: samples.continued(board["prompt"], entry["sample"]),
    words=Words(
        systems="",
        do="predict the next token",
        does="predicts the test text",
        score="bits per byte",
        column="bits/byte",
        unit="bits per byte",
        curve="bits per byte",
        leaderboard="A language model predicts how probable the next token is. Bits per byte is its "
        "cross-entropy on the test text, per byte; lower is better: 8 is a uniform guess, 0 a perfect prediction; 2 "
        "would compress the text to a quarter. The whisker is the 95% confidence interval.",
        curves="Validation loss in bits per byte during training. Lower is better; a curve that falls further left "
        "is cheaper. A dashed line is a model that was measured only once, such as an n-gram.",
        costs="Each model at the end of its training.",
        shown="What they write",
        samples="Each model continues the same prompt (temperature 0.8, top-p 0.95).",
        surprising="Surprisal of each token",
        passages="The same held-out passage for each model. The stronger the colour, the higher the surprisal, "
        "−log₂ P(token); point at a token to see it in bits.",
        matrix="How many bits per byte the model on the left is better than the one above.",
    ),
)
BLANKS = Track(
    name="blanks",
    key="blanks",
    group="masked",
    measure=blanks.measure_blanks,
    summarise=blanks.summarise_blanks,
    text="part",
    ranks_by="pseudo_bits_per_byte",
    curve="valid_loss",
    fields=("masked_perplexity", "masked_accuracy", *blanks.METRICS),
    columns={
        "accuracy": ("masked_accuracy", "{:.1%}"),
        "perplexity": ("masked_perplexity", "{:,.1f}"),
        "NSP/SOP": ("pair_accuracy", "{:.0%}"),
        "detected": ("detection_accuracy", "{:.1%}"),
    },
    cells={"masked tokens": blanks.hidden_cell, "auxiliary": blanks.besides_cell},
    one_tokenizer="the smaller the tokens, the more of a word is still visible beside the masked one, so a "
    "pseudo-log-likelihood depends more on the tokenizer than on the model; give all masked models the same one",
    verdict=lambda entry: f"It predicts {entry['masked_accuracy']:.0%} of the masked tokens correctly.",
    show=lambda entry, board: samples.filled(board["cloze"], entry["filled"], entry["sample"]),
    notes=blanks.tell_blanks,
    words=Words(
        systems="masked models",
        do="predict masked tokens",
        does="predicts masked tokens",
        leading=" in predicting masked tokens",
        score="pseudo bits per byte",
        column="pseudo b/B",
        unit="bits per byte of pseudo-log-likelihood",
        curve="nats per masked token",
        apart="masked language models · ranked separately",
        why=blanks.WHY,
        not_with="Not comparable with left-to-right scores.",
        leaderboard="A masked language model predicts a masked token from the text on both sides. Pseudo bits per "
        "byte is its pseudo-log-likelihood: the surprisal of each held-out token, given all others; the whisker is "
        "the 95% confidence interval. Masked tokens: accuracy and perplexity where 15% of the test text is "
        "masked at once, the same for all. Auxiliary: accuracy of the auxiliary objective (NSP/SOP, or "
        "replaced-token detection) on validation text.",
        curves="Validation cross-entropy (nats per masked token) during training, with masks as in training. Lower "
        "is better; a curve that falls further left is cheaper.",
        costs="Each model at the end of its training, in pseudo bits per byte.",
        shown="What they fill in",
        samples="The same held-out sentence with the same masks, filled with the most probable tokens (underlined "
        "where correct). Below: the original token, and the most probable ones, for each mask independently.",
        surprising="Surprisal of each token, given both sides",
        passages="The same held-out passage, each token masked in turn. The stronger the colour, the higher the "
        "surprisal; point at a token to see it in bits.",
        matrix="How many pseudo bits per byte the model on the left is better than the one above.",
    ),
)
BOTH_WAYS = Track(
    name="both directions",
    key="both_directions",
    group="both-directions",
    measure=both_ways.measure_both_ways,
    summarise=both_ways.summarise_both_ways,
    text="whole",
    ranks_by="mean_bits_per_byte",
    curve="valid_bits_per_byte",
    fields=("perplexity", "forward", "backward"),
    columns={"forward": ("forward", "{:.4f}"), "backward": ("backward", "{:.4f}")},
    cells={"each direction": both_ways.direction_cell},
    verdict=lambda entry: f"From left to right alone it has {entry['forward']:.4f} bits per byte.",
    show=lambda entry, board: samples.continued(board["prompt"], entry["sample"]),
    notes=lambda *_: (both_ways.WHY,),
    words=Words(
        systems="systems in both directions",
        do="predict the next and the previous token",
        does="predicts the test text from both ends",
        leading=" in predicting from both ends",
        score="bits per byte, mean of both directions",
        column="mean b/B",
        unit="bits per byte (mean of both directions)",
        curve="bits per byte (mean of both directions)",
        apart="language models in both directions · ranked separately",
        why=both_ways.WHY,
        not_with="Not comparable with scores of one direction.",
        leaderboard="Two language models with shared token vectors and softmax, one from left to right, one from "
        "right to left. Bits per byte is the mean of their cross-entropies on the test text; lower is better. "
        "The whisker is the 95% confidence interval.",
        curves="Validation loss in bits per byte during training, the mean of both directions. Lower is better; a "
        "curve that falls further left is cheaper.",
        costs="Each model at the end of its training.",
        shown="What the forward direction writes",
        samples="Each model continues the same prompt (temperature 0.8, top-p 0.95), from left to right.",
        surprising="Surprisal of each token, mean of both directions",
        passages="The same held-out passage for each model. The stronger the colour, the higher the surprisal, the "
        "mean of both directions; point at a token to see it in bits.",
        matrix="How many bits per byte the model on the left is better than the one above.",
    ),
)
TRACKS: dict[str, Track] = {each.name: each for each in (NEXT_TOKEN, BOTH_WAYS, BLANKS)}


def contests_of(system: str) -> list[Track]:
    """The tracks that a system enters, the one that it is known for first; a ValueError where there is none."""
    does = find(system).does
    if found := [TRACKS[name] for name in does if name in TRACKS]:
        return found
    known = DESCRIPTIONS[does[0]]
    raise ValueError(
        f"{system} {known.does}, so it has no score on plain text and lmlab compare cannot rank it; "
        + (known.instead.format(name=system) or f"use it with {known.uses}")
    )


def track_of(system: str) -> Track:
    """The track of what a system is known for."""
    return contests_of(system)[0]


def systems_of(track: Track) -> list[str]:
    """Every system of the lineage that can enter."""
    return [name for name in LINEAGE if track.has(name)]
