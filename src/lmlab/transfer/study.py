"""A study: several ways of learning one task side by side, with the baselines that need no language model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from lmlab.config import Config
from lmlab.data.corpora.examples import draw
from lmlab.jobs import Reporter
from lmlab.metrics.intervals import compare
from lmlab.metrics.measure import Measure
from lmlab.own_files import TRIALS
from lmlab.storage import write_json
from lmlab.tasks.baseline import make_baseline
from lmlab.tasks.task import Prediction
from lmlab.transfer.planning import labels_of, measures_of
from lmlab.transfer.results import Result, rows_of, score_predictions
from lmlab.transfer.study_settings import check_same_study, keeping_settings
from lmlab.transfer.trials import PREDICTIONS, TaskData, Trial, carry_out_all, plan

Kind = Literal["run", "curve", "layers", "comparison"]
SCORES = "scores.json"
DECK_LAYERS = ("first", "last", "second-to-last", "sum:all", "sum:-4:", "concat:-4:")
"""The choices of layers that BERT's authors compare (Devlin et al. 2019, table 7)."""
BASELINES = {"majority": "majority", "bag of words": "bag_of_words"}
"""Baselines that stand beside every score, as people and as the table of baselines call them."""


class Lead(Config):
    """How far the best way of learning is ahead of another, on the same draws of the held-out examples."""

    first: str
    second: str
    ahead: float
    low: float | None
    high: float | None
    p: float = Field(description="how likely chance alone makes them differ so much, either way")


class Study(Config):
    """What was learnt, and what it came to: all that a table or a page shows."""

    kind: Kind
    task: str
    data: str = Field(description="the examples, as they were named")
    scored: str = Field("", description="the file of the examples that scores are of, where it is another")
    format: str = Field(description="how they were understood")
    labels: list[str]
    counts: dict[str, int] = Field(description="examples for training, validation and test")
    metric: str = Field(description="the measure that counts most")
    check: list[str] = Field([], description="what the data look like, line by line")
    results: list[Result]
    leads: list[Lead] = Field([], description="of a comparison: the best against each of the others")
    pretraining: dict[str, dict[str, float]] = Field({}, description="the price of each run that was begun with")

    def write(self, folder: Path) -> None:
        """Write `scores.json`."""
        write_json(folder / SCORES, self.model_dump())

    def _repr_html_(self) -> str:
        """In a notebook: the scores, with the baselines beside them."""
        from lmlab.pages.inspection import Table, to_html_table
        from lmlab.pages.scores import tell_measure, tell_range, tell_score, tell_way

        told = []
        for row in (each.model_dump() for each in rows_of(self.results)):
            score = row["values"][self.metric]
            told.append((tell_way(row), row["examples"], tell_score(score["value"]), tell_range(score) or "–"))
        columns = ("way", "examples", f"{tell_measure(self.metric)} (times 100)", "95% interval")
        table = to_html_table(Table(columns, told, ("", ",d", "", "")))
        title = f"{self.task}: {self.data}, {self.counts.get('train', 0):,} examples for training"
        return f"<div class='lmlab-view'><b>{escape(title)}</b>{table}</div>"


def measure_baselines(
    data: TaskData,
    measures: Mapping[str, Measure],
    *,
    sizes: Sequence[int | None] = (None,),
    seeds: Sequence[int] = (0,),
) -> Iterator[Result]:
    """Majority class and bag of words, learnt from the same examples as the models, by the measures of the task."""
    labelled = data.labelled
    split, held_out = data.held_out
    for size in sizes:
        for seed in seeds if size is not None else seeds[:1]:
            train = labelled.train if size is None else draw(labelled.train, size, seed=seed)
            for name, key in BASELINES.items():
                began = time.perf_counter()
                baseline = make_baseline(key, task=labelled.task)
                baseline.fit(train, valid=labelled.valid if split == "test" else None)  # what is scored chooses nothing
                predictions = [Prediction(label) for label in baseline.predict(held_out).labels]
                yield Result(
                    name=name,
                    how="baseline",
                    examples=len(train),
                    seed=seed,
                    split=split,
                    count=len(held_out),
                    values=score_predictions(measures, predictions, held_out),
                    seconds=time.perf_counter() - began,
                )


def carry_out_study(
    kind: Kind,
    trials: Sequence[Trial],
    data: TaskData,
    folder: Path,
    *,
    check: Sequence[str] = (),
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    told: Callable[[Result], None] = lambda result: None,
) -> Study | None:
    """Carry out trials and baselines in a folder, and write what they came to; None where it was interrupted."""
    sizes = list(dict.fromkeys(trial.take for trial in trials))
    seeds = sorted({trial.seed for trial in trials})
    planned = [plan(trial, data) for trial in trials]
    check_same_study(kind, trials, data, folder)
    results = []
    for result in measure_baselines(data, measures_of(planned[0].objective), sizes=sizes, seeds=seeds):
        results.append(result)
        told(result)
        if interrupted():
            return None
    learnt = []
    with keeping_settings(kind, trials, data, folder):
        for trial, result in carry_out_all(trials, data, folder / TRIALS, reporter=reporter, interrupted=interrupted):
            learnt.append((result, folder / TRIALS / trial.name / PREDICTIONS))
            told(result)
    if len(learnt) < len(trials):
        return None
    study = describe(kind, data, [*results, *(result for result, _ in learnt)], check=check)
    if kind == "comparison":
        measure = measures_of(planned[0].objective)[study.metric]
        study = study.model_copy(update={"leads": find_leads(learnt, measure)})
    study.write(folder)
    return study


def find_leads(learnt: Sequence[tuple[Result, Path]], measure: Measure) -> list[Lead]:
    """The way of learning with the best mean against each of the others, by the predictions that were kept of each."""
    ways: dict[str, list[Any]] = {}
    true: list[Any] = []
    for result, path in learnt:
        if not path.is_file():
            return []
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        known = [line for line in lines if line["true"] is not None]
        true = [line["true"] for line in known]
        ways.setdefault(f"{result.name} {result.how}", []).append([line["predicted"] for line in known])
    if len(ways) < 2 or len({len(seeds) for seeds in ways.values()}) > 1:
        return []
    sign = 1 if measure.better == "higher" else -1
    means = {way: sign * fmean(measure.score(each, true) for each in seeds) for way, seeds in ways.items()}
    best = max(means, key=lambda way: means[way])
    found = []
    for way in sorted(ways.keys() - {best}, key=lambda way: -means[way]):
        ahead, low, high, _, p = compare(measure, ways[best], ways[way], true)
        found.append(Lead(first=best, second=way, ahead=ahead, low=low, high=high, p=p))
    return found


def describe(kind: Kind, data: TaskData, results: Sequence[Result], *, check: Sequence[str] = ()) -> Study:
    """A study from its results."""
    labelled = data.labelled
    return Study(
        kind=kind,
        task=labelled.task,
        data=", ".join(data.config.named),
        scored=", ".join((data.config.test if labelled.test else data.config.valid) or ()),
        format=labelled.format,
        labels=list(labels_of(labelled)),
        counts={
            name: len(part or ())
            for name, part in (("train", labelled.train), ("valid", labelled.valid), ("test", labelled.test))
        },
        metric=results[0].main if results else "",
        check=list(check),
        results=list(results),
        pretraining=prices({result.run for result in results if result.run is not None}),
    )


def prices(runs: set[str]) -> dict[str, dict[str, float]]:
    """What each run cost that others began with, as far as it is known."""
    found = {}
    for run in sorted(runs):
        path = Path(run) / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if lines and "cost" in (last := json.loads(lines[-1])):
            cost = last["cost"]
            found[run] = {name: float(cost[name]) for name in ("seconds", "joules") if cost.get(name) is not None}
            found[run]["flops"] = float(last.get("flops") or 0.0)
    return found
