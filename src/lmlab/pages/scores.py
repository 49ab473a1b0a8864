"""Scores as records, and as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

COLOURS = {
    "full": "#4c78a8",
    "gradual": "#8e6bbf",
    "ulmfit": "#b5548d",
    "mix": "#1b9e9e",
    "frozen": "#54a24b",
    "scratch": "#f58518",
    "baseline": "#8a929e",
}
METHODS = {
    "full": "all weights learn",
    "gradual": "all weights learn, unfrozen from the top",
    "ulmfit": "the language model learns the texts first, then all weights the task, unfrozen from the top",
    "mix": "a head over a learnt mix of the layers",
    "frozen": "only the head learns",
    "scratch": "the same net without pre-training",
    "baseline": "no language model",
}
LAYERS = {
    "first": "embedding layer",
    "last": "last layer",
    "second-to-last": "second-to-last layer",
    "sum:all": "sum of all layers",
    "sum:-4:": "sum of the last four",
    "concat:-4:": "last four, side by side",
    "concat:all": "all layers, side by side",
}
METRICS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "exact_match": "exact match",
}
FRACTIONS = ("accuracy", "f1", "macro_f1", "precision", "recall", "exact_match")
"""Metrics from 0 to 1."""
CORRELATIONS = ("matthews", "pearson", "spearman")
"""Metrics from -1 to 1."""


class ShownScore(NamedTuple):
    """A score with its 95% interval; None where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


class PairedDifference(NamedTuple):
    """How far one row is ahead of another in a paired test; negative where it is behind."""

    value: float
    low: float | None
    high: float | None
    p: float
    significant: bool


class Scored(Protocol):
    """What learnt a task, and by which method."""

    @property
    def name(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def layers(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One row of a table of scores: a model and a method over all its seeds, or a baseline."""

    label: str
    name: str
    method: str
    examples: int
    layers: str
    seeds: Sequence[float | None]
    """The main metric of each seed."""
    values: Mapping[str, ShownScore]
    better: str = "higher"
    seconds: float = 0.0
    joules: float = 0.0
    flops: float = 0.0
    """Costs of one seed, on average."""
    steps: int = 0
    rate: float | None = None
    note: str = ""
    difference: PairedDifference | None = None
    """From the row that this one is compared with."""

    @property
    def is_baseline(self) -> bool:
        return self.method == "baseline"

    @property
    def worst_seed(self) -> float | None:
        """The worst score of its seeds."""
        known = [seed for seed in self.seeds if seed is not None]
        return (max if self.better == "lower" else min)(known, default=None)

    def is_worst(self, seed: float | None) -> bool:
        """Whether a seed is the worst of several that differ."""
        return seed is not None and seed == self.worst_seed and len(set(self.seeds) - {None}) > 1

    def rank(self, metric: str) -> float:
        """The score by which rows are ordered: negative where lower is better, -inf where there is none."""
        value = self.values[metric].value
        return -math.inf if value is None else -value if self.better == "lower" else value


def format_score(value: float | None) -> str:
    """A score times 100, as papers print it, or a dash."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}".replace("-", "−")


def format_difference(value: float | None) -> str:
    """A difference of scores times 100, with its sign."""
    if value is None:
        return "–"
    points = round(100 * value, 1)
    return f"{points:+.1f}".replace("-", "−") if points else "0.0"


def format_p(p: float) -> str:
    """A p-value."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def format_training(row: ScoreRow) -> str:
    """Steps and learning rate of a row: `120 steps, learning rate 5e-05`."""
    rate = f"learning rate {row.rate:.3g}" if row.rate is not None else ""
    return ", ".join(filter(None, (f"{row.steps:,} steps" if row.steps else "", rate)))


def format_metric(name: str) -> str:
    """The usual name of a metric."""
    return METRICS.get(name, name.replace("_", " "))


def format_layers(layers: str) -> str:
    """A choice of layers in words."""
    return LAYERS.get(layers, layers)


def format_learner(row: Scored, *, always: bool = False) -> str:
    """Model and method: `bert, frozen`; of a baseline its name. The last layer is named only with `always`."""
    if row.method == "baseline":
        return row.name
    named = row.method == "frozen" and (always or row.layers != "last")
    return f"{row.name}, {row.method}{f', {format_layers(row.layers)}' if named else ''}"


def clamp(score: ShownScore, metric: str) -> ShownScore:
    """A score with an interval within the range of the metric: with few seeds it would reach beyond."""
    if metric not in FRACTIONS and metric not in CORRELATIONS:
        return score
    least = -1.0 if metric in CORRELATIONS else 0.0
    return ShownScore(*(None if value is None else min(1.0, max(least, value)) for value in score))


def format_interval(score: ShownScore) -> str:
    """The 95% interval, or nothing."""
    if score.low is None or score.high is None:
        return ""
    return f"{format_score(score.low)} to {format_score(score.high)}"


class Axis(NamedTuple):
    """The range of a bar chart; one that does not begin at zero shows points, never bars."""

    low: float
    high: float

    def position(self, value: float) -> float:
        """A score in percent of the width, never outside."""
        return 100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    @property
    def ticks(self) -> list[float]:
        """Four to six round scores."""
        step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.25, 0.5) if (self.high - self.low) / step <= 5.01)
        return [step * i for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


def choose_axis(rows: Sequence[ScoreRow], metric: str, *, near: bool = False) -> Axis:
    """From zero (or the lowest score below it) to a round score above all; `near`: only where the scores are."""
    seen = [
        min(1.0, max(-1.0, value)) for row in rows for value in (*row.values[metric], *row.seeds) if value is not None
    ]
    low, high = min(seen, default=0.0), max(seen, default=1.0)
    if near and low > 0:
        step = 0.05 if high - low > 0.05 else 0.01
        low, high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
        return Axis(low, high if high > low else low + step)
    return Axis(0.25 * math.floor(min(0.0, low) * 4), next(top for top in (0.25, 0.5, 0.75, 1.0) if high <= top + 1e-9))
