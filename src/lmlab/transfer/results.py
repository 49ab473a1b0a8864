"""What a way of learning a task came to: its measures with intervals, over one seed or several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from lmlab.config import Config
from lmlab.data.reading.examples import Example
from lmlab.metrics.intervals import Estimate, estimate, mean_interval
from lmlab.metrics.measure import Measure
from lmlab.tasks.predicting import answers
from lmlab.tasks.task import Prediction


class Interval(Config):
    """A value with its 95% interval over draws of the test examples, or over seeds; none where there are too few."""

    value: float | None
    low: float | None = None
    high: float | None = None
    better: Literal["higher", "lower"] = "higher"


class Result(Config):
    """How well one way of learning does on held-out examples."""

    name: str = Field(description="what learnt, in words: bert, majority, bag of words")
    how: str = Field(description="full, frozen, mix, gradual, ulmfit, scratch, or baseline")
    run: str | None = Field(None, description="the run that it began with")
    layers: str = Field("last", description="of frozen: the layers that were read")
    examples: int = Field(description="training examples")
    seed: int = 0
    split: str = Field(description="test, or valid where no test was held out")
    count: int = Field(description="held-out examples")
    values: dict[str, Interval]
    seconds: float = 0.0
    joules: float = 0.0
    flops: float = 0.0
    steps: int = 0
    mix: list[float] | None = Field(None, description="what each layer weighs, the embeddings first")
    gamma: float | None = None
    note: str = ""

    @property
    def main(self) -> str:
        """The measure that counts most."""
        return next(iter(self.values))


def score_predictions(
    measures: Mapping[str, Measure], predictions: Sequence[Prediction], examples: Sequence[Example]
) -> dict[str, Interval]:
    """The measures of predictions, by name, each with its bootstrap interval."""
    predicted, true = answers(predictions, examples)
    found = {}
    for name, measure in measures.items():
        found[name] = _interval(estimate(measure, predicted, true), measure.better)
    return found


def _interval(found: Estimate, better: Literal["higher", "lower"]) -> Interval:
    """An estimate as it is written; what is no number is none."""
    value = found.value if math.isfinite(found.value) else None
    return Interval(value=value, low=found.low, high=found.high, better=better)


class Row(Config):
    """One line of a table: a way of learning, over all its seeds."""

    name: str
    how: str
    examples: int
    layers: str
    seeds: list[float] = Field(description="the main measure of each seed, in their order")
    values: dict[str, Interval]
    seconds: float
    note: str = ""


def rows_of(results: Iterable[Result]) -> list[Row]:
    """Results gathered over seeds: the mean with its interval; of one seed, that of the test examples."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        groups.setdefault((result.name, result.how, result.examples, result.layers), []).append(result)
    return [_row(group) for group in groups.values()]


def _number(result: Result, name: str) -> float:
    value = result.values[name].value
    return math.nan if value is None else value


def over_seeds(values: Sequence[Interval]) -> Interval:
    """The mean over seeds, with an interval for what both other seeds and other test examples would change.

    The two are independent, so their squares add up: Student's interval over the seeds, and the mean of the
    bootstrap intervals over the examples. Seeds that happen to agree do not make a small test set large.
    """
    mean, low, high = mean_interval([math.nan if each.value is None else each.value for each in values])
    reaches = [(each.high - each.low) / 2 for each in values if each.low is not None and each.high is not None]
    if not math.isfinite(mean) or low is None or high is None or len(reaches) < len(values):
        return _interval(Estimate(mean, low, high), values[0].better)
    reach = math.hypot((high - low) / 2, math.fsum(reaches) / len(reaches))
    return Interval(value=mean, low=mean - reach, high=mean + reach, better=values[0].better)


def _row(group: Sequence[Result]) -> Row:
    first, main = group[0], group[0].main
    values = first.values
    if len(group) > 1:
        values = {}
        for name in first.values:
            values[name] = over_seeds([each.values[name] for each in group])
    return Row(
        name=first.name,
        how=first.how,
        examples=first.examples,
        layers=first.layers,
        seeds=[_number(each, main) for each in group],
        values=values,
        seconds=sum(each.seconds for each in group) / len(group),
        note=first.note,
    )
