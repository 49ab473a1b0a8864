"""What a track is: one question under which systems are compared, with the metric that ranks their answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from lmlab.comparison.entries import Entry
from lmlab.comparison.records import TrackScores
from lmlab.comparison.shared_test_data import Tests, TestText
from lmlab.comparison.variants import system_of
from lmlab.language_model import LanguageModel
from lmlab.metrics.metric import Direction, Metric
from lmlab.metrics.statistics import RatioOfSums, Scores
from lmlab.models import find
from lmlab.pages.page import Cell
from lmlab.progress import ReportProgress


@dataclass(frozen=True, kw_only=True)
class RankingMetric:
    """What ranks the systems of a track, and what it is called."""

    metric: Metric
    field: str  # its name in leaderboard.json
    label: str  # "bits per byte"
    column: str  # the same for a narrow column
    unit: str  # after a number in a sentence


class Curve(NamedTuple):
    """What the learning curves of a track show."""

    field: str  # of the lines of metrics.jsonl
    label: str
    better: Direction = "lower"
    bounds: tuple[float, float] = (0.0, math.inf)  # of its values


class Column(NamedTuple):
    """A column of the terminal that only one track has."""

    title: str
    field: str  # of an entry
    format: str


@dataclass(frozen=True)
class Units:
    """The units of the test data that rank the systems of a track, and that the bootstrap resamples."""

    kind: str  # "documents"
    count: int
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Words:
    """How sentences speak of the systems of a track and of what they do."""

    systems: str = ""  # "masked models"; "" for those that a reader expects
    do: str  # "they …"
    does: str  # "NAME … best"
    leading: str = ""  # "NAME has the best score …"


@dataclass(frozen=True, kw_only=True)
class Separation:
    """Why the scores of a track are not comparable with those of others."""

    banner: str  # above its part of the page
    summary: str
    why: str


@dataclass(frozen=True, kw_only=True)
class FigureTexts:
    """The texts above the figures and tables of a track."""

    leaderboard: str
    curves: str
    costs: str
    samples_title: str
    samples: str
    passages_title: str
    passages: str
    matrix: str


class Track(ABC):
    """One question. Systems with the ability `name` (`System.does`) take part."""

    name: str  # of the ability; `predicts` in leaderboard.json
    key: str  # of its entries in leaderboard.json and of its charts; "" for those at the top level
    group: str  # the word for all its systems in --models
    score: RankingMetric
    curve: Curve
    fields: tuple[str, ...] = ()  # that only its entries have: columns of the CSV
    columns: tuple[Column, ...] = ()
    one_tokenizer: str = ""  # why all systems must use the same one; "" if they need not
    read_unit: str = "tokens"  # what training counts
    by_tokens: bool = True  # whether the tokenizer affects the score
    on_part: bool = False  # whether systems are ranked on a part of the test text, because scoring takes long
    tested: str = "test text"  # what systems are scored on, in words
    use: str = 'lmlab generate FOLDER "…"'  # what to do with a folder of the comparison
    words: Words
    separation: Separation | None = None
    captions: FigureTexts

    @abstractmethod
    def evaluate(self, model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> TrackScores:
        """Score a run: what `predicted` returns, and what its entry and its samples show."""

    @abstractmethod
    def summarise(self, scores: Sequence[TrackScores], *, same_tokens: bool) -> dict[str, Any]:
        """What only this track measures of one system, from the scores of its seeds; names are of leaderboard.json."""

    @abstractmethod
    def predicted(self, scores: TrackScores) -> Sequence[Any]:
        """What the metric compares with `true`, for each unit or example."""

    @abstractmethod
    def true(self, tests: Tests) -> Sequence[Any]:
        """What is true, for each unit or example."""

    @abstractmethod
    def units(self, tests: Tests) -> Units:
        """The units that are resampled."""

    @abstractmethod
    def conclusion(self, entry: Entry) -> str:
        """What the best score means, in a sentence."""

    @abstractmethod
    def sample(self, entry: Entry, board: Mapping[str, Any]) -> Markup:
        """What a system writes or fills in."""

    def sizes(self, tests: Tests) -> Sequence[float] | None:
        """How much each unit counts; None if all count the same."""
        return None

    def cells(self, entry: Entry) -> dict[str, Cell]:
        """Cells of the page that only this track has, by the title of their column."""
        return {}

    def check(self) -> None:
        """Raise a ValueError where something is missing that scoring needs, before anything is trained."""
        return

    def notes(self, tests: Tests, units: Units, ranked: Sequence[Entry]) -> Iterable[str]:
        """What else must be known to read its scores."""
        return ()

    def scores(self, runs: Mapping[str, Sequence[TrackScores]], tests: Tests) -> Scores:
        """The scores of systems, each with those of its seeds, with intervals and differences."""
        predicted = {name: [self.predicted(each) for each in scores] for name, scores in runs.items()}
        return Scores(self.score.metric, predicted, self.true(tests), sizes=self.sizes(tests))

    def score_run(self, scores: TrackScores, tests: Tests) -> float:
        """The score of one run."""
        return self.score.metric.score(self.predicted(scores), self.true(tests))

    def has(self, system: str) -> bool:
        """Whether a system takes part: it has the ability, and learns from text."""
        found = find(system_of(system))
        return self.name in found.does and "text" in found.reads

    @property
    def of_systems(self) -> str:
        """` of masked models`, or nothing for the systems that a reader expects."""
        return f" of {self.words.systems}" if self.words.systems else ""


class TextTrack(Track):
    """A track that ranks by the bits of a test text, divided by its bytes."""

    def test(self, tests: Tests) -> TestText:
        """The text that ranks its systems."""
        return tests.part if self.on_part else tests.whole

    def predicted(self, scores: TrackScores) -> Sequence[float]:
        bits: list[float] = scores.measured["bits"]
        return bits

    def true(self, tests: Tests) -> Sequence[float]:
        sizes: list[float] = self.test(tests).sizes.tolist()
        return sizes

    def sizes(self, tests: Tests) -> Sequence[float]:
        return self.true(tests)

    def units(self, tests: Tests) -> Units:
        test = self.test(tests)
        return Units(test.unit, len(test.sizes), int(test.sizes.sum()))


BITS_PER_BYTE = RatioOfSums("lower")
