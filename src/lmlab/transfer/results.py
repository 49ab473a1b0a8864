"""Results of trials: metrics with intervals, over one seed or several."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from lmlab.config import Config, build
from lmlab.data.readers.examples import Answer, Example
from lmlab.metrics.metric import Metric
from lmlab.metrics.statistics import Estimate, estimate, mean_interval
from lmlab.runs.storage import read_json
from lmlab.runs.upgrade import upgrade_result
from lmlab.tasks.predicting import answers
from lmlab.tasks.records import Prediction


class Interval(Config):
    """A value with its 95% interval: other test examples, and of several seeds other seeds; None where there are too
    few."""

    value: float | None
    low: float | None = None
    high: float | None = None
    better: Literal["higher", "lower"] = "higher"


class Result(Config):
    """The scores of one trial or baseline on held-out examples."""

    name: str = Field(description="the model or baseline: bert, majority, bag of words")
    method: str = Field(description="full, frozen, mix, gradual, ulmfit, scratch, or baseline")
    run: str | None = Field(None, description="the run that it started from")
    layers: str = Field("last", description="of frozen: layers that were read")
    examples: int = Field(description="training examples")
    seed: int = 0
    split: str = Field(description="test, or valid where no test was held out")
    count: int = Field(description="held-out examples")
    values: dict[str, Interval]
    seconds: float = 0.0
    joules: float = 0.0
    flops: float = 0.0
    steps: int = 0
    rate: float | None = Field(None, description="the peak learning rate")
    mix: list[float] | None = Field(None, description="weight of each layer, the embeddings first")
    gamma: float | None = None
    note: str = ""
    command: str = Field("", description="command that trains it again, as a run")

    @property
    def main(self) -> str:
        """The metric that counts most."""
        return next(iter(self.values))


class Row(Config):
    """One row of a table: a model and a method, over all seeds."""

    label: str = Field(description="its name in `differences`")
    name: str
    method: str
    examples: int
    layers: str
    seeds: list[float | None] = Field(description="the main metric of each seed, in their order")
    values: dict[str, Interval]
    seconds: float
    steps: int = Field(0, description="training steps, the mean over seeds")
    rate: float | None = None
    note: str = ""


class Key(NamedTuple):
    """What all seeds of a row have in common."""

    name: str
    method: str
    examples: int
    layers: str


def key_of(result: Result | Row) -> Key:
    """The key of a result or a row."""
    return Key(result.name, result.method, result.examples, result.layers)


def read_result(path: Path) -> Result:
    """The result in the file of a trial, of any version."""
    return build(Result, upgrade_result(read_json(path)["result"]), where=str(path))


def label_of(rows: Iterable[Row], result: Result | None) -> str:
    """The label of the row that a result belongs to; empty where there is none."""
    return next((row.label for row in rows if result is not None and key_of(row) == key_of(result)), "")


def score_predictions(
    metrics: Mapping[str, Metric], predictions: Sequence[Prediction], examples: Sequence[Example]
) -> dict[str, Interval]:
    """The metrics of predictions, by name, each with its interval over test examples (of questions, over contexts)."""
    predicted, true = answers(predictions, examples)
    groups = contexts_of([example for example in examples if example.label is not None])
    return {
        name: to_interval(estimate(metric, predicted, true, groups=groups), metric) for name, metric in metrics.items()
    }


def contexts_of(examples: Sequence[Example]) -> list[Hashable] | None:
    """The context of each question, as one is hard or easy for all its questions; None for other tasks."""
    questions = [
        example.b is not None
        and isinstance(label := example.label, tuple)
        and all(isinstance(a, Answer) for a in label)
        for example in examples
    ]
    return [example.b for example in examples] if examples and all(questions) else None


def to_interval(found: Estimate, metric: Metric) -> Interval:
    """An estimate as an Interval: None for values that are no numbers, and for an interval of no width."""
    value = found.value if math.isfinite(found.value) else None
    low, high = (None, None) if found.low == found.high else (found.low, found.high)
    return Interval(value=value, low=low, high=high, better=metric.better)


def group_results(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The results of all seeds of a row by its label: `bert full`, `bag of words`, `bert frozen sum:all`.

    The number of examples is added where a study has several.
    """
    groups: dict[Key, list[Result]] = {}
    for result in results:
        groups.setdefault(key_of(result), []).append(result)
    several = len({key.examples for key in groups}) > 1
    found = {}
    for (name, method, examples, layers), group in groups.items():
        words = [name] if method == "baseline" else [name, method]
        words += [layers] if layers != "last" else []
        words += [f"with {examples:,} examples"] if several else []
        found[" ".join(words)] = group
    return found


def make_row(label: str, group: Sequence[Result], values: Mapping[str, Interval]) -> Row:
    """A row from the results of all seeds, with its scores over them."""
    first, main = group[0], group[0].main
    return Row(
        label=label,
        name=first.name,
        method=first.method,
        examples=first.examples,
        layers=first.layers,
        seeds=[each.values[main].value for each in group],
        values=dict(values),
        seconds=sum(each.seconds for each in group) / len(group),
        steps=round(sum(each.steps for each in group) / len(group)),
        rate=first.rate,
        note=first.note,
    )


def rows_of(results: Iterable[Result]) -> list[Row]:
    """Rows over seeds without predictions, as in folders of versions before 0.6.0."""
    rows = []
    for label, group in group_results(results).items():
        values = {name: over_seeds([each.values[name] for each in group]) for name in group[0].values}
        rows.append(make_row(label, group, values))
    return rows


def over_seeds(values: Sequence[Interval]) -> Interval:
    """The mean over seeds, its interval from those of the seeds: half-widths over seeds and examples add as squares."""
    if len(values) == 1:
        return values[0]
    mean, low, high = mean_interval([math.nan if each.value is None else each.value for each in values])
    halves = [(each.high - each.low) / 2 for each in values if each.low is not None and each.high is not None]
    if not math.isfinite(mean) or len(halves) < len(values):
        return Interval(value=mean if math.isfinite(mean) else None, better=values[0].better)
    seeds = (high - low) / 2 if low is not None and high is not None else 0.0
    half = math.hypot(seeds, math.fsum(halves) / len(halves))
    return Interval(value=mean, low=mean - half, high=mean + half, better=values[0].better)
