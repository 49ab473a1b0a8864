"""Scores as people read them: bars with intervals and a dot for each seed, and the words around them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple, Protocol

from lmlab.pages import parts

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


class Score(NamedTuple):
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
    values: Mapping[str, Score]
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


def clamp(score: Score, metric: str) -> Score:
    """A score with an interval within the range of the metric: with few seeds it would reach beyond."""
    if metric not in FRACTIONS and metric not in CORRELATIONS:
        return score
    least = -1.0 if metric in CORRELATIONS else 0.0
    return Score(*(None if value is None else min(1.0, max(least, value)) for value in score))


def format_interval(score: Score) -> str:
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


def draw_score(row: ScoreRow, metric: str, axis: Axis) -> str:
    """A bar with its interval and seeds; the worst of several seeds is marked."""
    found, colour = row.values[metric], COLOURS.get(row.method, "#6b7a8f")
    value = found.value
    title = f"{format_learner(row)}: {format_metric(metric)} {format_score(value)}"
    if interval := format_interval(found):
        title += f", 95% interval {interval}"
    seeds = [seed for seed in row.seeds if seed is not None]
    if len(row.seeds) > 1:
        title += f"; each seed: {', '.join(map(format_score, row.seeds))}"
    drawn = "".join(f'<u style="left:{axis.position(tick):.2f}%"></u>' for tick in axis.ticks)
    if value is not None:
        zero, end = axis.position(0.0), axis.position(value)
        if axis.low > 0:
            drawn += f'<b style="left:{end:.2f}%;--c:{colour}"></b>'
        else:
            drawn += f'<span style="left:{min(zero, end):.2f}%;width:{abs(end - zero):.2f}%;--c:{colour}"></span>'
        if found.low is not None and found.high is not None:
            left, right = axis.position(found.low), axis.position(found.high)
            drawn += f'<i style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
    if len(row.seeds) > 1:
        for seed in seeds:
            kind = ' class="worst"' if seed == row.worst_seed and len(set(seeds)) > 1 else ""
            drawn += f'<em{kind} style="left:{axis.position(seed):.2f}%"></em>'
    return f'<div role="img" aria-label="{escape(title)}" title="{escape(title)}">{drawn}</div>'


def draw_scores(
    rows: Sequence[ScoreRow],
    metric: str,
    *,
    names: Sequence[str] = (),
    lead: ScoreRow | None = None,
    near: bool = False,
) -> str:
    """A table of rows with bars, scores, intervals and all metrics.

    `names` replace the default names of rows; the row `lead` is highlighted.
    """
    axis = choose_axis(rows, metric, near=near)
    others = [name for name in rows[0].values if name != metric] if rows else []
    several = any(len(row.seeds) > 1 for row in rows)
    tested = any(row.difference for row in rows)
    head = ["", "", f"{format_metric(metric)} <small>(95%)</small>", *["difference"] * tested]
    head += [escape(format_metric(name)) for name in others]
    lines = []
    for number, row in enumerate(rows):
        found = row.values[metric]
        tag = parts.name_tag(names[number] if names else row.name, COLOURS.get(row.method, "#6b7a8f"))
        cells = [
            f"<td class=what>{tag}<small>{escape('' if names else _about(row))}</small></td>",
            f'<td class="scale">{draw_score(row, metric, axis)}</td>',
            f"<td class=score><b>{format_score(found.value)}</b><small>{format_interval(found)}</small></td>",
            *([difference_cell(row.difference)] if tested else []),
            *(f"<td>{format_score(row.values[name].value if name in row.values else None)}</td>" for name in others),
        ]
        if several:
            cells.append(f"<td class=seeds>{_seeds(row)}</td>")
        lines.append(f"<tr{' class=lead' if row is lead else ''}>{''.join(cells)}</tr>")
    if several:
        head.append("each seed")
    marks = "".join(
        f'<span style="left:{axis.position(tick):.2f}%">{f"{100 * tick:g}".replace("-", "−")}</span>'
        for tick in axis.ticks
    )
    lines.append(
        f'<tr class="axis" aria-hidden="true"><td></td><td><div>{marks}</div></td>'
        f'<td colspan="{len(head) - 2}"></td></tr>'
    )
    return f'<div class="scroll">{parts.table(head, lines, kind="scores")}</div>'


def difference_cell(found: PairedDifference | None) -> str:
    """A table cell with a difference, its interval and its p-value."""
    if found is None:
        return "<td>–</td>"
    interval = f"{format_difference(found.low)} to {format_difference(found.high)}, " if found.low is not None else ""
    value = format_difference(found.value)
    value = f"<b>{value}</b>" if found.significant else value
    return f"<td class=score>{value}<small>{interval}{escape(format_p(found.p))}</small></td>"


def _about(row: ScoreRow) -> str:
    method = "" if row.is_baseline else row.method
    meaning = METHODS.get(row.method, "")
    layers = format_layers(row.layers) if row.method == "frozen" and row.layers != "last" else ""
    return ": ".join(
        each
        for each in (method, "; ".join(each for each in (meaning, layers, format_training(row), row.note) if each))
        if each
    )


def _seeds(row: ScoreRow) -> str:
    if len(row.seeds) < 2:
        return ""
    known = [seed for seed in row.seeds if seed is not None]
    shown = []
    for seed in row.seeds:
        worst = seed == row.worst_seed and len(set(known)) > 1
        shown.append(f'<span class="worst">{format_score(seed)}</span>' if worst else format_score(seed))
    return " · ".join(shown)
