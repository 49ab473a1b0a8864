"""A track that is not about text: systems name colours, and are ranked by accuracy, where higher is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lmlab.comparison.entries import Entry
from lmlab.comparison.records import TrackScores
from lmlab.comparison.shared_test_data import Tests
from lmlab.comparison.tracks.track import Column, Curve, FigureTexts, RankingMetric, Separation, Track, Units, Words
from lmlab.language_model import LanguageModel
from lmlab.metrics.classification import Accuracy
from lmlab.pages.page import Cell
from lmlab.progress import ReportProgress

COLOURS = ["red", "green", "blue", "white"] * 10
"""What is true of 40 pictures."""


class NamingColours(Track):
    name = "colours"
    key = "colours"
    group = "painters"
    score = RankingMetric(metric=Accuracy(), field="accuracy", label="accuracy", column="accuracy", unit="accuracy")
    curve = Curve("valid_accuracy", "accuracy", better="higher")
    fields = ("tried",)
    columns = (Column("tried", "tried", "{}"),)
    words = Words(systems="painters", do="name colours", does="names colours")
    separation = Separation(
        banner="naming colours", summary="Not comparable with anything.", why="Colours are no text."
    )
    captions = FigureTexts(
        leaderboard="Who names colours best?",
        curves="Accuracy on validation pictures.",
        costs="Each painter at the end.",
        samples_title="What they paint",
        samples="One colour each.",
        passages_title="Surprisal of each colour",
        passages="The same picture for each.",
        matrix="How much more often the one on the left is right.",
    )

    def evaluate(self, model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> TrackScores:
        return TrackScores(measured={"named": list(COLOURS)}, lossy=False)

    def summarise(self, scores: Sequence[TrackScores], *, same_tokens: bool) -> dict[str, Any]:
        return {"tried": len(scores)}

    def predicted(self, scores: TrackScores) -> Sequence[str]:
        named: list[str] = scores.measured["named"]
        return named

    def true(self, tests: Tests) -> Sequence[str]:
        return COLOURS

    def units(self, tests: Tests) -> Units:
        return Units("pictures", len(COLOURS))

    def conclusion(self, entry: Entry) -> str:
        return f"It names {entry.score:.0%} of the colours."

    def sample(self, entry: Entry, board: Mapping[str, Any]) -> Markup:
        return Markup("<p>{}</p>").format(entry.sample)

    def cells(self, entry: Entry) -> dict[str, Cell]:
        return {"tried": Cell(str(entry.measured["tried"]))}


def named(right: int) -> list[str]:
    """The names of 40 colours; the first ones are right."""
    return COLOURS[:right] + ["black"] * (len(COLOURS) - right)
