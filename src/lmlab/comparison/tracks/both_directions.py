"""How well systems predict a text from both ends, as ELMo does: ranked by the mean of both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from lmlab.comparison.entries import Entry
from lmlab.comparison.likelihood import evaluate, mean_perplexity
from lmlab.comparison.records import TrackScores
from lmlab.comparison.shared_test_data import Tests
from lmlab.comparison.tracks.track import (
    BITS_PER_BYTE,
    Column,
    Curve,
    FigureTexts,
    RankingMetric,
    Separation,
    TextTrack,
    Units,
    Words,
)
from lmlab.language_model import LanguageModel
from lmlab.pages import samples
from lmlab.pages.page import Cell
from lmlab.progress import ReportProgress


class BothDirections(TextTrack):
    """Language models from left to right and from right to left."""

    name = "both directions"
    key = "both_directions"
    group = "both-directions"
    score = RankingMetric(
        metric=BITS_PER_BYTE,
        field="mean_bits_per_byte",
        label="bits per byte, mean of both directions",
        column="mean b/B",
        unit="bits per byte (mean of both directions)",
    )
    curve = Curve("valid_bits_per_byte", "bits per byte (mean of both directions)")
    fields = ("perplexity", "forward", "backward")
    columns = (Column("forward", "forward", "{:.4f}"), Column("backward", "backward", "{:.4f}"))
    words = Words(
        systems="systems in both directions",
        do="predict the next and the previous token",
        does="predicts the test text from both ends",
        leading=" in predicting from both ends",
    )
    separation = Separation(
        banner="language models in both directions · ranked separately",
        summary="Not comparable with scores of one direction.",
        why="Systems in both directions predict each token twice, from the text before it and from the text after it. "
        "Their score is the mean of two likelihoods, and half of their training goes into each: they are ranked "
        "separately.",
    )
    captions = FigureTexts(
        leaderboard="Two language models with shared token vectors and softmax, one from left to right, one from "
        "right to left. Bits per byte is the mean of their cross-entropies on the test text; lower is better. "
        "The whisker is the 95% confidence interval.",
        curves="Validation loss in bits per byte during training, the mean of both directions. Lower is better; a "
        "curve that falls further left is cheaper.",
        costs="Each model at the end of its training.",
        samples_title="What the forward direction writes",
        samples="Each model continues the same prompt (temperature 0.8, top-p 0.95), from left to right.",
        passages_title="Surprisal of each token, mean of both directions",
        passages="The same held-out passage for each model. The stronger the colour, the higher the surprisal, the "
        "mean of both directions; point at a token to see it in bits.",
        matrix="How many bits per byte the model on the left is better than the one above.",
    )

    def evaluate(self, model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> TrackScores:
        return evaluate(model, self.test(tests), progress=progress)

    def summarise(self, scores: Sequence[TrackScores], *, same_tokens: bool) -> dict[str, Any]:
        """Bits per byte of each direction; perplexity per token if all systems have the same tokens."""
        found = [each.measured["directions"] for each in scores]
        ways = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
        return {"perplexity": mean_perplexity(scores) if same_tokens else None, **ways}

    def conclusion(self, entry: Entry) -> str:
        return f"From left to right alone it has {entry.measured['forward']:.4f} bits per byte."

    def sample(self, entry: Entry, board: Mapping[str, Any]) -> Markup:
        return samples.continued(board["prompt"], entry.sample)

    def cells(self, entry: Entry) -> dict[str, Cell]:
        forward, backward = entry.measured["forward"], entry.measured["backward"]
        return {"each direction": Cell(f"{forward:.3f} forward", f"{backward:.3f} backward")}

    def notes(self, tests: Tests, units: Units, ranked: Sequence[Entry]) -> Iterable[str]:
        yield self.separation.why
