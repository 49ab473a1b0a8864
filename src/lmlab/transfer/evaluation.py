"""How good a fine-tuned run is on a file of labelled examples: the official metric, with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.data.corpora.examples import ExamplesConfig, read, texts_of
from lmlab.data.readers.column_types import are_classes, are_mostly_numbers
from lmlab.data.readers.columns import Columns
from lmlab.data.readers.examples import Example, Labelled, TaskName
from lmlab.data.readers.folders import find_parts, find_split
from lmlab.data.readers.labelled import find_labels, read_examples
from lmlab.runs.recipe import read_record
from lmlab.tasks.predicting import Predicts
from lmlab.tasks.task import Prediction, Task
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
    notes: Sequence[str] = ()  # what the file holds, where a run may not have been made for it


class Chosen(NamedTuple):
    """The examples of a file, or of a part of a folder, that a run is scored with."""

    examples: Sequence[Example]
    split: str | None = None


def evaluate_file(
    predictor: Predicts,
    path: str | Path,
    *,
    run: Path | None = None,
    columns: Mapping[str, str] | None = None,
    drop_bad_labels: bool = False,
) -> Evaluated:
    """The metrics of a run's task on a file, or on the held-out part of a folder, by name, the main one first.

    `run` is the folder of the predictor: the file is read as the examples were that the run has learnt from, so that
    the scores of its own test file are those of its report. Where `columns` are given, these are read.
    """
    task = predictor.task
    name: TaskName = task.name  # type: ignore[assignment]
    chosen = None if run is None or columns else read_as_learnt(run, path)
    if chosen is None:
        chosen = choose_split(Path(path).expanduser(), _read(path, name, columns, drop_bad_labels))
    examples = [example for example in chosen.examples if example.label is not None]
    if not examples:
        raise ValueError(f"{path} has no labelled examples: there is nothing to evaluate")
    notes = _compare_labels(task, examples, path, columns)
    if task.config.labels:
        check_names(examples, task.config.labels, path=path)
    predictions = predictor.predict(examples)
    values = score_predictions(task.metrics, predictions, examples)
    return Evaluated(values, predictions, examples, chosen.split, notes)


def read_as_learnt(run: Path, path: str | Path) -> Chosen | None:
    """The examples of a file as a run's fine-tuning reads them; None where it cannot be told how that was.

    Of the run's own test or validation file, these are the very examples that were scored. Another file of the same
    kind is read with the columns and tags that were found in the training file.
    """
    config = _learnt_from(run)
    if config is None:
        return None
    given = Path(path).expanduser()
    try:
        for split, own in (("test", config.test), ("valid", config.valid)):
            if own is not None and _is_same(given, Path(own[0])):
                return Chosen(getattr(read(config)[0], split) or ())
        train = Path(config.examples[0])
        if _is_same(given, train) and given.is_dir():
            labelled = read(config)[0]
            split = "test" if labelled.test else "valid"
            return Chosen(getattr(labelled, split) or (), split)
        if given.is_dir() or train.is_dir() or given.suffixes[-1:] != train.suffixes[-1:] or _is_same(given, train):
            return None
        found = read_examples(
            train,
            test=given,
            task=config.task,
            columns=config.columns or None,
            drop_bad_labels=config.drop_bad_labels,
        )
        return Chosen(found.test or ())
    except (ValueError, OSError):  # it has moved, or the file has other columns
        return None


def _learnt_from(run: Path) -> ExamplesConfig | None:
    """What a run says of the examples that it has learnt from; None where it says nothing, as imported runs."""
    if not (run / "recipe.json").is_file():
        return None
    config = read_record(run).recipe.data
    return config if isinstance(config, ExamplesConfig) else None


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _compare_labels(task: Task, examples: Sequence[Example], path: str | Path, columns: Columns | None) -> list[str]:
    """What a file holds, where a run predicts something else that could be meant; a ValueError where it could not."""
    if task.name not in ("classification", "regression"):
        return []
    names = list(dict.fromkeys(f"{each:g}" if isinstance(each, float) else str(each) for each in _labels(examples)))
    shown = ", ".join(shorten_names(names))
    if task.name == "classification":
        known = list(task.config.labels)
        if not set(names) <= set(known) and are_mostly_numbers(names) and not are_mostly_numbers(known):
            raise ValueError(
                f"{path} holds the {'classes' if are_classes(names) else 'numbers'} {shown}, and this run tells apart "
                f"{', '.join(shorten_names(known))}; give {NEEDED['classification'][1]}, or name the column: "
                "--columns label=…"
            )
        return []
    if are_classes(names) and (whole := _is_of_classes(path, columns)) is not None:
        centre, spread = task.config.centre, task.config.spread  # type: ignore[attr-defined]
        return [
            f"{path} holds {whole} classes ({shown}), and this run predicts scores (in training {centre:.3g} on "
            f"average, ± {spread:.2g}): its predictions are compared with the classes as numbers"
        ]
    return []


def _labels(examples: Sequence[Example]) -> list[Any]:
    return [example.label for example in examples]


def _is_of_classes(path: str | Path, columns: Columns | None) -> int | None:
    """How many classes a file holds, by itself; None where it is for another task."""
    try:
        found = read_examples(path, columns=columns)
    except ValueError:
        return None
    return len(find_labels(found.train)) if found.task == "classification" else None


def shorten_names(names: Sequence[str], most: int = 5) -> list[str]:
    """A few of many names, as messages show them."""
    return [*names[:most], *["…"] * (len(names) > most)]


def _read(path: str | Path, task: TaskName, columns: Columns | None, drop_bad_labels: bool) -> Labelled:
    """The examples of a file; a ValueError says what a run of this task needs, where they are for another one."""
    try:
        return read_examples(path, task=task, columns=columns, drop_bad_labels=drop_bad_labels)
    except ValueError:
        try:
            other = read_examples(path, columns=columns, drop_bad_labels=True).task
        except ValueError:
            other = task
        if other == task:
            raise
    does, needed = NEEDED[task]
    raise ValueError(f"this run {does}, and {path} is for {other}; give {needed}")


def choose_split(path: Path, found: Labelled) -> Chosen:
    """The part of a folder that was held out: test, else valid, else what there is; a file is itself."""
    if not path.is_dir():
        return Chosen(found.train)
    if found.test:
        return Chosen(found.test, "test")
    if found.valid:
        return Chosen(found.valid, "valid")
    train = find_parts(path).paths["train"]
    return Chosen(found.train, None if train == path else find_split(train.name))


def check_names(examples: Sequence[Example], known: Sequence[str], *, path: str | Path) -> None:
    """A ValueError names the classes or tags on both sides, where a file has others than a run predicts."""
    found = find_labels(examples)
    if strange := [name for name in found if name not in known]:
        what = "tags" if isinstance(examples[0].label, tuple) else "classes"
        where = next(each.where for each in examples if strange[0] in find_labels([each]))
        own, given = (", ".join(shorten_names(names, 10)) for names in (known, found))
        raise ValueError(
            f"{where}: {strange[0]!r} is not one of the {what} that this run predicts: {own}; {path} has {given}. "
            "Rename them in the file, or for an imported run in id2label of its config.json"
        )


def find_trained_on(run: Path, examples: Sequence[Example]) -> set[int]:
    """The places of the examples that a run was trained on, as far as the file is still where it was; else none."""
    config = _learnt_from(run)
    if config is None:
        return set()
    try:
        trained = {tuple(texts_of(example)) for example in read(config)[0].train}
    except (ValueError, OSError):
        return set()
    return {place for place, example in enumerate(examples) if tuple(texts_of(example)) in trained}


def tell_trained_on(run: Path, seen: int, examples: int) -> str:
    """The note beside a score on examples that a run was trained on."""
    told = f"note: {run} was trained on {seen:,} of these {examples:,} examples, so the score is too good"
    report = run / "report.html"
    return f"{told}; that on held-out examples is in {report}" if seen * 2 > examples and report.is_file() else told
