"""How well systems predict the next token: ranked by bits per byte of the whole test text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lmlab.comparison.entries import Entry
from lmlab.comparison.likelihood import evaluate, mean_perplexity
from lmlab.comparison.records import TrackScores
from lmlab.comparison.shared_test_data import Tests
from lmlab.comparison.tracks.track import BITS_PER_BYTE, Column, Curve, FigureTexts, RankingMetric, TextTrack, Words
from lmlab.language_model import LanguageModel
from lmlab.pages import samples
from lmlab.pages.page import Cell
from lmlab.progress import ReportProgress


class NextToken(TextTrack):
    """Left-to-right language models."""

    name = "next token"
    key = ""
    group = "all"
    score = RankingMetric(
        metric=BITS_PER_BYTE,
        field="bits_per_byte",
        label="bits per byte",
        column="bits/byte",
        unit="bits per byte",
    )
    curve = Curve("valid_bits_per_byte", "bits per byte")
    fields = ("perplexity",)
    columns = (Column("perplexity", "perplexity", "{:,.1f}"),)
    words = Words(do="predict the next token", does="predicts the test text")
    captions = FigureTexts(
        leaderboard="A language model predicts how probable the next token is. Bits per byte is its "
        "cross-entropy on the test text, per byte; lower is better: 8 is a uniform guess, 0 a perfect prediction; 2 "
        "would compress the text to a quarter. The whisker is the 95% confidence interval.",
        curves="Validation loss in bits per byte during training. Lower is better; a curve that falls further left "
        "is cheaper. A dashed line is a model that was measured only once, such as an n-gram.",
        costs="Each model at the end of its training.",
        samples_title="What they write",
        samples="Each model continues the same prompt (temperature 0.8, top-p 0.95).",
        passages_title="Surprisal of each token",
        passages="The same held-out passage for each model. The stronger the colour, the higher the surprisal, "
        "−log₂ P(token); point at a token to see it in bits.",
        matrix="How many bits per byte the model on the left is better than the one above.",
    )

    def evaluate(self, model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> TrackScores:
        return evaluate(model, self.test(tests), progress=progress)

    def summarise(self, scores: Sequence[TrackScores], *, same_tokens: bool) -> dict[str, Any]:
        return {"perplexity": mean_perplexity(scores) if same_tokens else None}

    def conclusion(self, entry: Entry) -> str:
        """Bits per byte are the length of a code for the text, unless the tokenizer has lost part of it."""
        if entry.lossy:
            return "Its tokenizer is lossy: part of the text is lost, so the score is too good, not a compression rate."
        return f"With an arithmetic coder it would compress the text to {(entry.score or 0.0) / 8:.0%} of its size."

    def sample(self, entry: Entry, board: Mapping[str, Any]) -> Markup:
        return samples.continued(board["prompt"], entry.sample)

    def cells(self, entry: Entry) -> dict[str, Cell]:
        return {"perplexity": Cell(f"{entry.measured['perplexity']:,.1f}" if entry.measured.get("perplexity") else "")}
