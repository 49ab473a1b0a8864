"""How good a fine-tuned run is on a file of labelled examples: the official metric, with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lmlab.data.corpora.examples import ExamplesConfig, read, texts_of
from lmlab.data.reading.examples import Example, Labelled, TaskName
from lmlab.data.reading.folders import find_parts, find_split
from lmlab.data.reading.labelled import find_labels, read_examples
from lmlab.data.reading.roles import Columns
from lmlab.recipe import read_record
from lmlab.tasks.predicting import Predicts
from lmlab.tasks.task import Prediction
from lmlab.transfer.results import Interval, score_predictions

NEEDED: dict[TaskName, tuple[str, str]] = {
    "tagging": ("tags words", "a CoNLL file, or JSON with lists of words and tags"),
    "classification": ("tells classes of texts apart", "a file with a text and its class in each line"),
    "regression": ("gives texts a score", "a file with a text and its score in each line"),
    "choice": ("chooses between answers", "a table of questions with their choices"),
    "spans": ("finds answers in a text", "a SQuAD file"),
}
"""What a run of each task does, and the files that it is evaluated on."""


class Evaluated(NamedTuple):
    """Predictions for examples, and what they are worth."""

    values: dict[str, Interval]
    predictions: list[Prediction]
    examples: Sequence[Example]
    split: str | None = None  # of a folder, the part that was taken: test, valid or train


def evaluate_file(predictor: Predicts, path: str | Path, *, columns: Mapping[str, str] | None = None) -> Evaluated:
    """The measures of a run's task on a file, or on the held-out part of a folder, by name, the main one first."""
    task = predictor.task
    found = _read(path, task.name, dict(columns) if columns else None)  # type: ignore[arg-type]
    split, chosen = choose_split(Path(path).expanduser(), found)
    examples = [example for example in chosen if example.label is not None]
    if not examples:
        raise ValueError(f"{path} has no labelled examples: there is nothing to evaluate")
    if task.config.labels:
        check_names(examples, task.config.labels, path=path)
    predictions = predictor.predict(examples)
    return Evaluated(score_predictions(task.measures, predictions, examples), predictions, examples, split)


def _read(path: str | Path, task: TaskName, columns: Columns | None) -> Labelled:
    """The examples of a file; a ValueError says what a run of this task needs, where they are for another one."""
    try:
        return read_examples(path, task=task, columns=columns)
    except ValueError:
        try:
            other = read_examples(path, columns=columns).task
        except ValueError:
            other = task
        if other == task:
            raise
    does, needed = NEEDED[task]
    raise ValueError(f"this run {does}, and {path} is for {other}; give {needed}")


def choose_split(path: Path, found: Labelled) -> tuple[str | None, Sequence[Example]]:
    """The part of a folder that was held out: test, else valid, else what there is; a file is itself."""
    if not path.is_dir():
        return None, found.train
    if found.test:
        return "test", found.test
    if found.valid:
        return "valid", found.valid
    train = find_parts(path).paths["train"]
    return (None if train == path else find_split(train.name)), found.train


def check_names(examples: Sequence[Example], known: Sequence[str], *, path: str | Path) -> None:
    """A ValueError names the classes or tags on both sides, where a file has others than a run predicts."""
    found = find_labels(examples)
    if strange := [name for name in found if name not in known]:
        what = "tags" if isinstance(examples[0].label, tuple) else "classes"
        where = next(each.where for each in examples if strange[0] in find_labels([each]))
        raise ValueError(
            f"{where}: {strange[0]!r} is not one of the {what} that this run predicts: {_some(known)}; {path} has "
            f"{_some(found)}. Rename them in the file, or for an imported run in id2label of its config.json"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + ", …" * (len(names) > 10)


def find_trained_on(run: Path, examples: Sequence[Example]) -> set[int]:
    """The places of the examples that a run was trained on, as far as the file is still where it was; else none.

    An imported run has no recipe, which would name the file.
    """
    if not (run / "recipe.json").is_file():
        return set()
    config = read_record(run).recipe.data
    if not isinstance(config, ExamplesConfig):
        return set()
    try:
        trained = {tuple(texts_of(example)) for example in read(config)[0].train}
    except (ValueError, OSError):
        return set()
    return {place for place, example in enumerate(examples) if tuple(texts_of(example)) in trained}


def tell_trained_on(run: Path, seen: int, examples: int) -> str:
    """The note beside a score on examples that a run was trained on."""
    return (
        f"note: {run} was trained on {seen:,} of these {examples:,} examples, so the score is too good; "
        f"that on held-out examples is in {run / 'report.html'}"
    )
