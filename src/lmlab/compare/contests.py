"""Contests: each question that systems are ranked by, with how it is measured and all that is said about it.

Systems meet in a contest if they have its ability (`System.does`); a system with several abilities enters several.
Another contest is one object here and one file with what it measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.compare import blanks, likelihood
from lmlab.compare.held_out import Tests, TestText
from lmlab.compare.records import Entry, Record
from lmlab.language_model import LanguageModel
from lmlab.models import LINEAGE, find
from lmlab.models.descriptions import DESCRIPTIONS
from lmlab.pages import samples
from lmlab.progress import ReportProgress


class Summarise(Protocol):
    """Turns the records of one system, one for each seed, into what its entry says besides the score."""

    def __call__(self, records: Sequence[Record], *, same_tokens: bool) -> Entry: ...


@dataclass(frozen=True, kw_only=True)
class Words:
    """What is said of a contest, in tables, sentences and on its part of the page (HTML)."""

    systems: str  # who takes part: " of …"; "" for those whom a reader expects
    do: str  # "they …"
    does: str  # "NAME … best"
    leading: str = ""  # "A and B lead …"
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
class Contest:
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
    cells: Mapping[str, Callable[[Entry], str]] = field(default_factory=dict)  # of the page, as HTML; "" for none
    one_tokenizer: str = ""  # why all must read the same; "" where they need not
    verdict: Callable[[Entry], str]  # what the best score means
    show: Callable[[Entry, Mapping[str, Any]], str]  # a sample as HTML, given the entry and the board
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
        """` of masked systems`, where there is something to tell apart."""
        return f" of {self.words.systems}" if self.words.systems else ""


NEXT_TOKEN = Contest(
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
    cells={"perplexity": lambda entry: f"{entry['perplexity']:,.1f}" if entry.get("perplexity") else ""},
    verdict=likelihood.tell_compression,
    show=lambda entry, board: samples.continued(board["prompt"], entry["sample"]),
    words=Words(
        systems="",
        do="predict the next token",
        does="predicts the held-out text",
        score="bits per byte",
        column="bits/byte",
        unit="bits per byte",
        curve="bits per byte",
        leaderboard="A language model tells how probable the next piece of text is. <b>Bits per byte</b> is how "
        "surprised it was by the held-out text, per byte: 8 is no idea at all, 0 is knowing it beforehand, and 2 would "
        "shrink the text to a quarter. The whisker is the 95% interval.",
        curves="Bits per byte on validation text while each system learns. The lower the line, the better; the further "
        "left it falls, the cheaper. A dashed line is a system that was counted or measured once.",
        costs="Each system where it ended.",
        shown="What they write",
        samples="Each goes on from the same words, drawn with temperature 0.8 from the best 95%.",
        surprising="What surprises them",
        passages="The same held-out passage, read by each. The stronger the colour, the more bits a token cost; point "
        "at one to see how many.",
        matrix="How many bits per byte the system on the left is better than the one above.",
    ),
)
BLANKS = Contest(
    name="blanks",
    key="blanks",
    group="masked",
    measure=blanks.measure_blanks,
    summarise=blanks.summarise_blanks,
    text="part",
    ranks_by="pseudo_bits_per_byte",
    curve="valid_loss",
    fields=("masked_perplexity", "masked_accuracy", *blanks.MEASURES),
    columns={
        "blanks right": ("masked_accuracy", "{:.1%}"),
        "per blank": ("masked_perplexity", "{:,.1f}"),
        "pairs right": ("pair_accuracy", "{:.0%}"),
        "detected": ("detection_accuracy", "{:.1%}"),
    },
    cells={"hidden tokens": blanks.hidden_cell, "besides": blanks.besides_cell},
    one_tokenizer="the finer the tokens, the more of a word still stands beside the one that is hidden, so a "
    "pseudo-log-likelihood says more about the tokenizer than about the model; give all masked systems the same one",
    verdict=lambda entry: f"It guesses {entry['masked_accuracy']:.0%} of the hidden tokens at the first try.",
    show=lambda entry, board: samples.filled(board["cloze"], entry["filled"], entry["sample"]),
    notes=blanks.tell_blanks,
    words=Words(
        systems="masked systems",
        do="fill blanks",
        does="fills blanks",
        leading=" in filling blanks",
        score="pseudo bits per byte",
        column="pseudo b/B",
        unit="bits per byte of pseudo-log-likelihood",
        curve="nats per blank",
        apart="filling blanks · ranked apart",
        why=blanks.WHY,
        not_with="Not comparable with left-to-right scores.",
        leaderboard="A masked system guesses a hidden token from the text on both sides. <b>Pseudo bits per byte</b> "
        "is how surprised it is by each token of held-out text when it knows all others; the whisker is the 95% "
        "interval. <b>Hidden tokens</b>: 15% of the test text is hidden at once, the same for all, and guessed. "
        "<b>Besides</b>: what else a system learns to tell, sentence pairs or replaced tokens, on validation text.",
        curves="Nats per blank on validation text while each system learns: how surprised it is by what was hidden, in "
        "rows and with blanks as it makes them in training. The lower the line, the better; the further left it falls, "
        "the cheaper.",
        costs="Each system where it ended, in pseudo bits per byte.",
        shown="What they fill in",
        samples="The same sentence of held-out text with the same blanks. In the blanks: what each finds likeliest, "
        "underlined where it is what stood there. Below: what stood there, and the likeliest tokens, each blank by "
        "itself.",
        surprising="What surprises them, though they know both sides",
        passages="The same held-out passage, each token hidden in turn. The stronger the colour, the more bits it "
        "cost; point at one to see how many.",
        matrix="How many pseudo bits per byte the system on the left is better than the one above.",
    ),
)
CONTESTS: dict[str, Contest] = {each.name: each for each in (NEXT_TOKEN, BLANKS)}


def contests_of(system: str) -> list[Contest]:
    """The contests that a system enters, the one that it is known for first; a ValueError where there is none."""
    does = find(system).does
    if found := [CONTESTS[name] for name in does if name in CONTESTS]:
        return found
    known = DESCRIPTIONS[does[0]]
    raise ValueError(
        f"{system} {known.does}, so it has no score on plain text and cannot be compared here; "
        + (known.instead.format(name=system) or f"what it is for: {known.uses}")
    )


def contest_of(system: str) -> Contest:
    """The contest of what a system is known for."""
    return contests_of(system)[0]


def systems_of(contest: Contest) -> list[str]:
    """Every system of the lineage that can enter."""
    return [name for name in LINEAGE if contest.has(name)]
