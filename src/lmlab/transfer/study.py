"""A study: several ways of learning one task side by side, with the baselines that need no language model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from lmlab.baselines.baseline import BASELINES as ALL_BASELINES
from lmlab.baselines.baseline import make_baseline
from lmlab.config import Config
from lmlab.data.corpora.examples import draw
from lmlab.data.readers.examples import Example
from lmlab.metrics.metric import Metric
from lmlab.runs.jobs import Reporter
from lmlab.runs.run_files import BASELINES as OWN_BASELINES
from lmlab.runs.run_files import TRIALS
from lmlab.runs.storage import write_json
from lmlab.tasks.task import Prediction
from lmlab.transfer.commands import format_command
from lmlab.transfer.differences import Difference, compare_results
from lmlab.transfer.planning import labels_of, metrics_of
from lmlab.transfer.results import Result, Row, rows_of, score_predictions
from lmlab.transfer.study_settings import check_same_study, keeping_settings
from lmlab.transfer.trials import PREDICTIONS, TaskData, Trial, carry_out_all, plan, write_predictions

Kind = Literal["run", "curve", "layers", "comparison"]
SCORES = "scores.json"
DECK_LAYERS = ("first", "last", "second-to-last", "sum:all", "sum:-4:", "concat:-4:")
"""The choices of layers that BERT's authors compare (Devlin et al. 2019, table 7)."""
BASELINES = {"chance": "chance", "majority": "majority", "bag of words": "bag_of_words"}
"""Baselines that stand beside every score, as people and as the table of baselines call them; not all do all tasks."""


class Lead(Config):
    """How far the best way of learning is ahead of another, as folders of versions before 0.6.0 have it.

    Its p-value covers neither seeds nor the number of pairs, so it is not shown.
    """

    first: str
    second: str
    ahead: float
    low: float | None
    high: float | None
    p: float


class Study(Config):
    """What was learnt, and what it came to: all that a table or a page shows."""

    kind: Kind
    task: str
    data: str = Field(description="the examples, as they were named")
    scored: str = Field("", description="the file of the examples that scores are of, where it is another")
    format: str = Field(description="how they were understood")
    labels: list[str]
    counts: dict[str, int] = Field(description="examples for training, selection, validation and test")
    metric: str = Field(description="the metric that counts most")
    check: list[str] = Field([], description="what the data look like, line by line")
    results: list[Result]
    rows: list[Row] = Field([], description="each way of learning over its seeds; none in folders before 0.6.0")
    differences: list[Difference] = Field([], description="the pairs of rows that were tested")
    untested: list[str] = Field([], description="rows whose predictions are missing, so that nothing of them is tested")
    leads: list[Lead] = Field([], description="of a comparison before 0.6.0; not shown any more")
    pretraining: dict[str, dict[str, float]] = Field({}, description="the price of each run that was begun with")

    def write(self, folder: Path) -> None:
        """Write `scores.json`."""
        write_json(folder / SCORES, self.model_dump())

    @property
    def table(self) -> list[Row]:
        """Each way of learning over its seeds."""
        return self.rows or rows_of(self.results)

    def _repr_html_(self) -> str:
        """In a notebook: the scores, with the baselines beside them."""
        from lmlab.pages.scores import format_metric, tell_range, tell_score, tell_way
        from lmlab.pages.views import Table, to_html_table

        told = []
        for row in (each.model_dump() for each in self.table):
            score = row["values"][self.metric]
            told.append((tell_way(row), row["examples"], tell_score(score["value"]), tell_range(score) or "–"))
        columns = ("way", "examples", f"{format_metric(self.metric)} (times 100)", "95% interval")
        table = to_html_table(Table(columns, told, ("", ",d", "", "")))
        title = f"{self.task}: {self.data}, {self.counts.get('train', 0):,} examples for training"
        return f"<div class='lmlab-view'><b>{escape(title)}</b>{table}</div>"


class BaselineResult(NamedTuple):
    """The result of a baseline, with its predictions."""

    result: Result
    predictions: list[Prediction]
    file: str  # the name of the file that holds them


def measure_baselines(
    data: TaskData,
    metrics: Mapping[str, Metric],
    *,
    sizes: Sequence[int | None] = (None,),
    seeds: Sequence[int] = (0,),
) -> Iterator[BaselineResult]:
    """The baselines of a task, learnt from the same examples as the models, by the metrics of the task."""
    labelled = data.labelled
    names = {name: key for name, key in BASELINES.items() if labelled.task in ALL_BASELINES[key]}
    for size in sizes:
        for seed in seeds if size is not None else seeds[:1]:
            train = labelled.train if size is None else draw(labelled.train, size, seed=seed)
            for name, key in names.items():
                file = f"{key}-{'all' if size is None else size}-seed-{seed}.jsonl"
                yield measure_baseline(name, data, train, metrics, seed=seed)._replace(file=file)


def measure_baseline(
    name: str, data: TaskData, train: Sequence[Example], metrics: Mapping[str, Metric], *, seed: int = 0
) -> BaselineResult:
    """One baseline, learnt from training examples and scored on those that are held out."""
    split, held_out = data.held_out
    began = time.perf_counter()
    baseline = make_baseline(BASELINES[name], task=data.labelled.task)
    baseline.fit(train, valid=data.selecting or None)  # what is scored chooses nothing
    predictions = [Prediction(label) for label in baseline.predict(held_out).labels]
    values = score_predictions(metrics, predictions, held_out)
    if name == "chance":  # it is known, not estimated
        values = {key: found.model_copy(update={"low": None, "high": None}) for key, found in values.items()}
    result = Result(
        name=name,
        how="baseline",
        examples=len(train),
        seed=seed,
        split=split,
        count=len(held_out),
        values=values,
        seconds=time.perf_counter() - began,
    )
    return BaselineResult(result, predictions, "")


def keep_baselines(found: Sequence[BaselineResult], data: TaskData, folder: Path) -> list[tuple[Result, Path]]:
    """Write the predictions of baselines beside those of the trials; each result with its file."""
    _, held_out = data.held_out
    kept = []
    for result, predictions, file in found:
        path = folder / OWN_BASELINES / file
        path.parent.mkdir(parents=True, exist_ok=True)
        write_predictions(path, predictions, held_out)
        kept.append((result, path))
    return kept


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
    metrics = metrics_of(planned[0].objective)
    check_same_study(kind, trials, data, folder)
    baselines = []
    for each in measure_baselines(data, metrics, sizes=sizes, seeds=seeds):
        baselines.append(each)
        told(each.result)
        if interrupted():
            return None
    learnt = []
    with keeping_settings(kind, trials, data, folder):
        for trial, result in carry_out_all(trials, data, folder / TRIALS, reporter=reporter, interrupted=interrupted):
            result = result.model_copy(update={"command": format_command(trial, data)})
            learnt.append((result, folder / TRIALS / trial.name / PREDICTIONS))
            told(result)
    if len(learnt) < len(trials):
        return None
    kept = [*keep_baselines(baselines, data, folder / TRIALS), *learnt]
    study = describe(kind, data, kept, metrics, check=check)
    study.write(folder)
    return study


def describe(
    kind: Kind,
    data: TaskData,
    kept: Sequence[tuple[Result, Path]],
    metrics: Mapping[str, Metric],
    *,
    check: Sequence[str] = (),
) -> Study:
    """A study from its results and the files of their predictions."""
    labelled = data.labelled
    results = [result for result, _ in kept]
    compared = compare_results(kind, kept, metrics, task=labelled.task)
    parts = {
        "train": labelled.train,
        "selection": labelled.selection,
        "valid": labelled.valid,
        "test": labelled.test,
    }
    return Study(
        kind=kind,
        task=labelled.task,
        data=", ".join(data.config.named),
        scored=", ".join((data.config.test if labelled.test else data.config.valid) or ()),
        format=labelled.format,
        labels=list(labels_of(labelled)),
        counts={name: len(part or ()) for name, part in parts.items() if name != "selection" or part is not None},
        metric=next(iter(metrics)),
        check=list(check),
        results=results,
        rows=compared.rows,
        differences=compared.differences,
        untested=compared.untested,
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
