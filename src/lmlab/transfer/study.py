"""A study: trials of one task, with the baselines that need no language model, in one table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from lmlab.config import Config, build
from lmlab.data.corpora.examples import sample_examples
from lmlab.data.readers.examples import Example
from lmlab.metrics.metric import Metric
from lmlab.runs.jobs import Reporter
from lmlab.runs.run_files import BASELINES, TRIALS
from lmlab.runs.storage import read_json, write_json
from lmlab.runs.upgrade import upgrade_result
from lmlab.tasks.records import Prediction
from lmlab.transfer.commands import format_command
from lmlab.transfer.differences import Difference, compare_results
from lmlab.transfer.recipe import metrics_of
from lmlab.transfer.results import Result, Row, rows_of, score_predictions
from lmlab.transfer.study_settings import Kind, check_same_study, keeping_settings
from lmlab.transfer.task_data import TaskData
from lmlab.transfer.trials import PREDICTIONS, PlannedTrial, run_trials, write_predictions

SCORES = "scores.json"


class Lead(Config):
    """How far the best row is ahead of another, as in folders of versions before 0.6.0.

    Its p-value covers neither seeds nor the number of pairs, so it is not shown.
    """

    first: str
    second: str
    ahead: float
    low: float | None
    high: float | None
    p: float


class Study(Config):
    """The trials and baselines of one task with their scores: all that a table or a page shows."""

    kind: Kind
    task: str
    data: str = Field(description="files of the examples")
    scored: str = Field("", description="file of the scored examples, where it is another")
    format: str = Field(description="format of the examples")
    labels: list[str]
    counts: dict[str, int] = Field(description="examples for training, selection, validation and test")
    metric: str = Field(description="main metric")
    check: list[str] = Field([], description="check of the data, line by line")
    results: list[Result]
    rows: list[Row] = Field([], description="each row over its seeds; none in folders before 0.6.0")
    differences: list[Difference] = Field([], description="the pairs of rows that were tested")
    untested: list[str] = Field([], description="rows that were not tested: their predictions are missing")
    leads: list[Lead] = Field([], description="of a comparison before 0.6.0; not shown any more")
    pretraining: dict[str, dict[str, float]] = Field({}, description="cost of each run that trials started from")

    def write(self, folder: Path) -> None:
        """Write `scores.json`."""
        write_json(folder / SCORES, self.model_dump())

    @property
    def table(self) -> list[Row]:
        """Each row over its seeds."""
        return self.rows or rows_of(self.results)

    def _repr_html_(self) -> str:
        """In a notebook: the table of scores."""
        from lmlab.pages.scores import ShownScore, format_interval, format_learner, format_metric, format_score
        from lmlab.pages.views import Table, show_table

        cells = []
        for row in self.table:
            found = row.values[self.metric]
            interval = format_interval(ShownScore(found.value, found.low, found.high)) or "–"
            cells.append((format_learner(row), row.examples, format_score(found.value), interval))
        columns = ("model and method", "examples", f"{format_metric(self.metric)} (times 100)", "95% interval")
        title = f"{self.task}: {self.data}, {self.counts.get('train', 0):,} examples for training"
        return show_table(title, Table(columns, cells, ("", ",d", "", "")))


def read_study(folder: Path) -> Study:
    """The scores of a study or a fine-tuned run, of any version."""
    values = read_json(folder / SCORES)
    for name in ("results", "rows"):
        values[name] = [upgrade_result(each) for each in values.get(name, ())]
    return build(Study, values, where=str(folder / SCORES))


class BaselineResult(NamedTuple):
    """The result of a baseline, with its predictions."""

    result: Result
    predictions: list[Prediction]
    file: str  # the name of the file that holds them


def score_baselines(
    data: TaskData,
    metrics: Mapping[str, Metric],
    *,
    sizes: Sequence[int | None] = (None,),
    seeds: Sequence[int] = (0,),
) -> Iterator[BaselineResult]:
    """The baselines of a task, fitted to the same examples as the models."""
    for size in sizes:
        for seed in seeds if size is not None else seeds[:1]:
            train = data.labelled.train
            train = train if size is None else sample_examples(train, size, seed=seed)
            for name in data.task.baselines:
                file = f"{name.replace(' ', '_')}-{'all' if size is None else size}-seed-{seed}.jsonl"
                yield score_baseline(name, data, train, metrics, seed=seed)._replace(file=file)


def score_baseline(
    name: str, data: TaskData, train: Sequence[Example], metrics: Mapping[str, Metric], *, seed: int = 0
) -> BaselineResult:
    """One baseline, fitted to training examples and scored on those that are held out."""
    split, held_out = data.held_out
    began = time.perf_counter()
    baseline = data.task.make_baseline(name)
    baseline.fit(train, valid=data.selecting or None)
    predictions = [Prediction(label) for label in baseline.predict(held_out).labels]
    values = score_predictions(metrics, predictions, held_out)
    if name == "chance":  # it is known, not estimated
        values = {key: found.model_copy(update={"low": None, "high": None}) for key, found in values.items()}
    result = Result(
        name=name,
        method="baseline",
        examples=len(train),
        seed=seed,
        split=split,
        count=len(held_out),
        values=values,
        seconds=time.perf_counter() - began,
    )
    return BaselineResult(result, predictions, "")


def save_baselines(found: Sequence[BaselineResult], data: TaskData, folder: Path) -> list[tuple[Result, Path]]:
    """Write the predictions of baselines into a folder of trials; each result with its file."""
    _, held_out = data.held_out
    saved = []
    for result, predictions, file in found:
        path = folder / BASELINES / file
        path.parent.mkdir(parents=True, exist_ok=True)
        write_predictions(path, predictions, held_out)
        saved.append((result, path))
    return saved


def run_study(
    kind: Kind,
    trials: Sequence[PlannedTrial],
    data: TaskData,
    folder: Path,
    *,
    check: Sequence[str] = (),
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    on_result: Callable[[Result], None] = lambda result: None,
) -> Study | None:
    """Run trials and baselines in a folder, and write their scores; None where it was interrupted."""
    sizes = list(dict.fromkeys(planned.trial.limit for planned in trials))
    seeds = sorted({planned.trial.seed for planned in trials})
    metrics = metrics_of(trials[0].recipe.objective)
    check_same_study(kind, trials, data, folder)
    baselines = []
    for each in score_baselines(data, metrics, sizes=sizes, seeds=seeds):
        baselines.append(each)
        on_result(each.result)
        if interrupted():
            return None
    learnt = []
    with keeping_settings(kind, trials, data, folder):
        for trial, result in run_trials(trials, folder / TRIALS, reporter=reporter, interrupted=interrupted):
            result = result.model_copy(update={"command": format_command(trial, data)})
            learnt.append((result, folder / TRIALS / trial.name / PREDICTIONS))
            on_result(result)
    if len(learnt) < len(trials):
        return None
    saved = [*save_baselines(baselines, data, folder / TRIALS), *learnt]
    study = make_study(kind, data, saved, metrics, check=check)
    study.write(folder)
    return study


def make_study(
    kind: Kind,
    data: TaskData,
    saved: Sequence[tuple[Result, Path]],
    metrics: Mapping[str, Metric],
    *,
    check: Sequence[str] = (),
) -> Study:
    """A study from its results and the files of their predictions."""
    labelled = data.labelled
    results = [result for result, _ in saved]
    compared = compare_results(kind, saved, metrics, task=labelled.task)
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
        labels=list(data.task.labels_of(labelled)),
        counts={name: len(part or ()) for name, part in parts.items() if name != "selection" or part is not None},
        metric=next(iter(metrics)),
        check=list(check),
        results=results,
        rows=compared.rows,
        differences=compared.differences,
        untested=compared.untested,
        pretraining=costs_of({result.run for result in results if result.run is not None}),
    )


def costs_of(runs: set[str]) -> dict[str, dict[str, float]]:
    """The cost of each run, as far as it is known."""
    found = {}
    for run in sorted(runs):
        path = Path(run) / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if lines and "cost" in (last := json.loads(lines[-1])):
            cost = last["cost"]
            found[run] = {name: float(cost[name]) for name in ("seconds", "joules") if cost.get(name) is not None}
            found[run]["flops"] = float(last.get("flops") or 0.0)
    return found
