"""Scores as people read them: bars with whiskers and a dot for each seed, under one axis, and the words around them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from lmlab.pages import parts

Row = Mapping[str, Any]
COLOURS = {
    "full": "#4c78a8",
    "gradual": "#8e6bbf",
    "ulmfit": "#b5548d",
    "mix": "#1b9e9e",
    "frozen": "#54a24b",
    "scratch": "#f58518",
    "baseline": "#8a929e",
}
WAYS = {
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
SHARES = ("accuracy", "f1", "macro_f1", "precision", "recall", "exact_match")
"""Metrics from 0 to 1."""
CORRELATIONS = ("matthews", "pearson", "spearman")
"""Metrics that may be below zero."""


def tell_score(value: float | None) -> str:
    """A share times 100, as papers print it, or a dash."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}".replace("-", "−")


def rank(row: Row, metric: str) -> float:
    """By what rows are ordered: the score, or its negative where lower is better; what has none comes last."""
    value = row["values"][metric]["value"]
    return -math.inf if value is None else -value if row.get("better") == "lower" else value


def format_difference(value: float | None) -> str:
    """A difference of scores times 100, with its sign."""
    if value is None:
        return "–"
    points = round(100 * value, 1)
    return f"{points:+.1f}".replace("-", "−") if points else "0.0"


def format_p(p: float) -> str:
    """A p-value."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def format_training(row: Row) -> str:
    """How long and how fast a row was trained: `120 steps, learning rate 5e-05`."""
    rate = f"learning rate {row['rate']:.3g}" if row.get("rate") is not None else ""
    return ", ".join(filter(None, (f"{row['steps']:,} steps" if row.get("steps") else "", rate)))


def format_metric(name: str) -> str:
    """A metric by the name that people know."""
    return METRICS.get(name, name.replace("_", " "))


def tell_layers(layers: str) -> str:
    """A choice of layers in words."""
    return LAYERS.get(layers, layers)


def tell_way(row: Row, *, always: bool = False) -> str:
    """What learnt, and how: `bert, frozen`; of a baseline its name. The last layer is named only if it is `always`."""
    if row["how"] == "baseline":
        return str(row["name"])
    layers = f", {tell_layers(row['layers'])}" if row["how"] == "frozen" and (always or row["layers"] != "last") else ""
    return f"{row['name']}, {row['how']}{layers}"


def within(found: Mapping[str, float | None], name: str) -> dict[str, float | None]:
    """A score whose interval keeps to what the metric can be: that of few seeds reaches beyond it."""
    if name not in SHARES and name not in CORRELATIONS:
        return dict(found)
    least = -1.0 if name in CORRELATIONS else 0.0
    return {part: None if value is None else min(1.0, max(least, value)) for part, value in found.items()}


def worst_of(row: Row) -> float | None:
    """The worst seed of a row."""
    known = [seed for seed in row["seeds"] if seed is not None]
    return (max if row.get("better") == "lower" else min)(known, default=None)


def tell_range(found: Mapping[str, float | None]) -> str:
    """The 95% interval, or nothing."""
    if found["low"] is None or found["high"] is None:
        return ""
    return f"{tell_score(found['low'])} to {tell_score(found['high'])}"


class Axis(NamedTuple):
    """From scores to places along a bar; one that does not begin at zero shows points, never bars."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """In percent of the width, never outside."""
        return 100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    @property
    def ticks(self) -> list[float]:
        """Four to six round scores."""
        step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.25, 0.5) if (self.high - self.low) / step <= 5.01)
        return [step * i for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


def choose_axis(rows: Sequence[Row], metric: str, *, near: bool = False) -> Axis:
    """From zero (or the lowest score below it) to a round score above all; `near`: only where the scores are."""
    seen = [
        min(1.0, max(-1.0, value))
        for row in rows
        for value in (*row["values"][metric].values(), *row["seeds"])
        if value is not None
    ]
    low, high = min(seen, default=0.0), max(seen, default=1.0)
    if near and low > 0:
        step = 0.05 if high - low > 0.05 else 0.01
        low, high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
        return Axis(low, high if high > low else low + step)
    return Axis(0.25 * math.floor(min(0.0, low) * 4), next(top for top in (0.25, 0.5, 0.75, 1.0) if high <= top + 1e-9))


def draw_score(row: Row, metric: str, axis: Axis) -> str:
    """One bar with its whisker and seeds; the worst of several seeds is ringed."""
    found, colour = row["values"][metric], COLOURS.get(row["how"], "#6b7a8f")
    value = found["value"]
    told = f"{tell_way(row)}: {format_metric(metric)} {tell_score(value)}"
    if interval := tell_range(found):
        told += f", 95% interval {interval}"
    seeds = [seed for seed in row["seeds"] if seed is not None]
    if len(row["seeds"]) > 1:
        told += f"; each seed: {', '.join(map(tell_score, row['seeds']))}"
    drawn = "".join(f'<u style="left:{axis.place(tick):.2f}%"></u>' for tick in axis.ticks)
    if value is not None:
        zero, end = axis.place(0.0), axis.place(value)
        if axis.low > 0:
            drawn += f'<b style="left:{end:.2f}%;--c:{colour}"></b>'
        else:
            drawn += f'<span style="left:{min(zero, end):.2f}%;width:{abs(end - zero):.2f}%;--c:{colour}"></span>'
        if found["low"] is not None and found["high"] is not None:
            left, right = axis.place(found["low"]), axis.place(found["high"])
            drawn += f'<i style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
    if len(row["seeds"]) > 1:
        for seed in seeds:
            kind = ' class="worst"' if seed == worst_of(row) and len(set(seeds)) > 1 else ""
            drawn += f'<em{kind} style="left:{axis.place(seed):.2f}%"></em>'
    return f'<div role="img" aria-label="{escape(told)}" title="{escape(told)}">{drawn}</div>'


def draw_scores(
    rows: Sequence[Row], metric: str, *, names: Sequence[str] = (), lead: Row | None = None, near: bool = False
) -> str:
    """A table of ways of learning with bars, scores, intervals and the metrics beside the main one.

    `names` stand for what a way is called by default; the row that is the `lead` stands out.
    """
    axis = choose_axis(rows, metric, near=near)
    others = [name for name in rows[0]["values"] if name != metric] if rows else []
    several = any(len(row["seeds"]) > 1 for row in rows)
    tested = any(row.get("difference") for row in rows)
    head = ["", "", f"{format_metric(metric)} <small>(95%)</small>", *["difference"] * tested]
    head += [escape(format_metric(name)) for name in others]
    lines = []
    for number, row in enumerate(rows):
        found = row["values"][metric]
        tag = parts.name_tag(names[number] if names else row["name"], COLOURS.get(row["how"], "#6b7a8f"))
        cells = [
            f"<td class=what>{tag}<small>{escape('' if names else _about(row))}</small></td>",
            f'<td class="scale">{draw_score(row, metric, axis)}</td>',
            f"<td class=score><b>{tell_score(found['value'])}</b><small>{tell_range(found)}</small></td>",
            *([difference_cell(row.get("difference"))] if tested else []),
            *(f"<td>{tell_score(row['values'].get(name, {}).get('value'))}</td>" for name in others),
        ]
        if several:
            cells.append(f"<td class=seeds>{_seeds(row)}</td>")
        lines.append(f"<tr{' class=lead' if row is lead else ''}>{''.join(cells)}</tr>")
    if several:
        head.append("each seed")
    marks = "".join(
        f'<span style="left:{axis.place(tick):.2f}%">{f"{100 * tick:g}".replace("-", "−")}</span>'
        for tick in axis.ticks
    )
    lines.append(
        f'<tr class="axis" aria-hidden="true"><td></td><td><div>{marks}</div></td>'
        f'<td colspan="{len(head) - 2}"></td></tr>'
    )
    return f'<div class="scroll">{parts.table(head, lines, kind="scores")}</div>'


def difference_cell(found: Mapping[str, Any] | None) -> str:
    """How far the row that stands out is ahead of this one, with its interval and p-value."""
    if found is None:
        return "<td>–</td>"
    ends = [format_difference(found[end]) for end in ("low", "high")]
    interval = f"{ends[0]} to {ends[1]}, " if found["low"] is not None else ""
    value = format_difference(found["value"])
    value = f"<b>{value}</b>" if found["significant"] else value
    return f"<td class=score>{value}<small>{interval}{escape(format_p(found['p']))}</small></td>"


def _about(row: Row) -> str:
    way = WAYS.get(row["how"], "")
    how = row["how"] if row["how"] != "baseline" else ""
    layers = tell_layers(row["layers"]) if row["how"] == "frozen" and row["layers"] != "last" else ""
    return ": ".join(
        each
        for each in (how, "; ".join(each for each in (way, layers, format_training(row), row["note"]) if each))
        if each
    )


def _seeds(row: Row) -> str:
    if len(row["seeds"]) < 2:
        return ""
    known = [seed for seed in row["seeds"] if seed is not None]
    shown = []
    for seed in row["seeds"]:
        worst = seed == worst_of(row) and len(set(known)) > 1
        shown.append(f'<span class="worst">{tell_score(seed)}</span>' if worst else tell_score(seed))
    return " · ".join(shown)
