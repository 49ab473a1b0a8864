"""Paired tests between rows of a study, over the same held-out examples, from the predictions in its folder.

Systems are compared on the same resamples of the examples (of contexts, where questions share one), the seeds of each
count as a further source of variance, and p-values are corrected for the number of pairs (Holm): `metrics.statistics`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from lmlab.config import Config
from lmlab.metrics.metric import Metric
from lmlab.metrics.statistics import Scores
from lmlab.pages.scores import PairedDifference
from lmlab.tasks import load_task
from lmlab.transfer.results import Interval, Result, Row, group_results, make_row, over_seeds, to_interval


class Difference(Config):
    """How far one row is ahead of another, on the same held-out examples."""

    better: str = Field(description="the label of the row with the better score")
    worse: str
    value: float = Field(description="the difference, never below 0")
    low: float | None = Field(description="its 95% interval: other examples, and of several seeds other seeds")
    high: float | None
    p: float = Field(description="two-sided, corrected for the number of tested pairs (Holm)")
    significant: bool


class SavedPredictions(NamedTuple):
    """The predictions behind a result."""

    predicted: list[Any]
    true: list[Any]
    contexts: list[Hashable]


class Compared(NamedTuple):
    """The rows of a study, and the differences between them that were tested."""

    rows: list[Row]
    differences: list[Difference]
    untested: list[str]  # the labels of rows whose predictions are missing


def read_predictions(path: Path) -> SavedPredictions | None:
    """The predictions of a file for labelled examples; None where it is missing or not one of predictions."""
    kept = SavedPredictions([], [], [])
    try:
        for text in path.read_text(encoding="utf-8").split("\n"):
            line = json.loads(text) if text else {}
            if line.get("true") is not None:
                kept.predicted.append(line["predicted"])
                kept.true.append(line["true"])
                kept.contexts.append(line.get("second"))
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return kept if kept.true else None


def compare_results(
    kind: str, results: Sequence[tuple[Result, Path]], metrics: Mapping[str, Metric], *, task: str
) -> Compared:
    """The rows of a study over their seeds, and the tested differences of the main metric."""
    groups = group_results([result for result, _ in results])
    paths = {id(result): path for result, path in results}
    read = {label: [read_predictions(paths[id(each)]) for each in group] for label, group in groups.items()}
    first = next((kept for each in read.values() for kept in each if kept is not None), None)
    known = {
        label: [kept.predicted for kept in each if kept is not None]
        for label, each in read.items()
        if first is not None and all(kept is not None and kept.true == first.true for kept in each)
    }
    contexts = first.contexts if first is not None and load_task(task).groups_by_context else None
    rows = [
        make_row(label, group, _values(group, known.get(label), first, metrics, contexts))
        for label, group in groups.items()
    ]
    differences: list[Difference] = []
    if first is not None:
        main = next(iter(metrics))
        differences = _test(kind, rows, Scores(metrics[main], known, first.true, groups=contexts))
    return Compared(rows, differences, [label for label in groups if label not in known])


def _values(
    group: Sequence[Result],
    predicted: Sequence[Sequence[Any]] | None,
    first: SavedPredictions | None,
    metrics: Mapping[str, Metric],
    contexts: Sequence[Hashable] | None,
) -> dict[str, Interval]:
    """The metrics of a row over its seeds; of one seed, as it was scored."""
    if len(group) == 1:
        return group[0].values
    if predicted is None or first is None:
        return {name: over_seeds([each.values[name] for each in group]) for name in group[0].values}
    return {
        name: to_interval(Scores(metric, {"": predicted}, first.true, groups=contexts).estimate(""), metric)
        for name, metric in metrics.items()
    }


def _test(kind: str, rows: Sequence[Row], scores: Scores) -> list[Difference]:
    finite = {label for label, value in scores.values.items() if math.isfinite(value)}
    pairs = [pair for pair in choose_pairs(kind, rows) if set(pair) <= finite]
    lowest, highest = scores.metric.bounds
    span = highest - lowest  # no two scores are farther apart
    return [
        Difference(
            **each._replace(
                low=None if each.low is None else max(-span, each.low),
                high=None if each.high is None else min(span, each.high),
            )._asdict()
        )
        for each in scores.compare(pairs)
    ]


def choose_pairs(kind: str, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The pairs of rows that are tested, by label.

    Of a run, the run against each of the others; of a learning curve, each number of examples against the baselines
    that learnt from as many; else all pairs, for which one is first is only known from the scores. Baselines are not
    tested against each other.
    """
    learnt = [row for row in rows if row.method != "baseline"]
    baselines = [row for row in rows if row.method == "baseline"]
    if kind == "run":
        return [(learnt[0].label, row.label) for row in rows if row is not learnt[0]] if learnt else []
    found = [(row.label, other.label) for row in learnt for other in baselines if row.examples == other.examples]
    if kind != "curve":
        found += [(one.label, other.label) for one, other in combinations(learnt, 2)]
    return found


def ahead_of(differences: Sequence[Difference], one: str, other: str) -> PairedDifference | None:
    """The tested difference between two rows as seen from `one`; None where they were not tested."""
    for each in differences:
        if (each.better, each.worse) == (one, other):
            return PairedDifference(each.value, each.low, each.high, each.p, each.significant)
        if (each.better, each.worse) == (other, one):
            low, high = (None if end is None else -end for end in (each.high, each.low))
            return PairedDifference(-each.value, low, high, each.p, each.significant)
    return None


def find_reference(kind: str, rows: Sequence[Row], row: Row, *, default: str) -> str:
    """The label of the row that another is compared with: what the study is about; of a curve, as many examples."""
    if kind != "curve":
        return default
    return next((each.label for each in rows if each.method != "baseline" and each.examples == row.examples), default)
