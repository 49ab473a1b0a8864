"""Score a fine-tuned run on a file of labelled examples: the official metric, with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lmlab.data.corpora.examples import ExamplesConfig, parts_of, read, texts_of
from lmlab.data.corpora.pictures.captions import CaptionsConfig
from lmlab.data.corpora.pictures.images import PicturesConfig, open_pictures
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.readers.examples import Example, Labelled, task_name
from lmlab.data.readers.labelled import read_examples
from lmlab.data.readers.labelled.columns import Columns
from lmlab.data.readers.labelled.folders import find_parts, find_split
from lmlab.data.readers.labelled.labels import find_labels
from lmlab.data.readers.pictures.files import BUILTIN
from lmlab.runs.held_out import reopen_corpus
from lmlab.runs.jobs import Silent
from lmlab.runs.recipe_record import read_record
from lmlab.tasks.evidence import shorten_names
from lmlab.tasks.predicting import Predicts
from lmlab.tasks.records import Prediction
from lmlab.tasks.task import Task
from lmlab.tokenizers.processors.pictures import PictureProcessor
from lmlab.transfer.results import Interval, score_predictions


class Evaluated(NamedTuple):
    """Predictions for examples, with their scores."""

    values: dict[str, Interval]
    predictions: list[Prediction]
    examples: Sequence[Example]
    split: str | None = None  # of a folder, the part that was scored: test, valid or train
    notes: Sequence[str] = ()  # where the labels of the file may be for another task


class Chosen(NamedTuple):
    """The examples of a file, or of a part of a folder, that a run is scored with."""

    examples: Sequence[Example]
    split: str | None = None


class HeldOutPictures(NamedTuple):
    """Pictures with their texts that a run is scored with."""

    split: PictureSplit
    name: str | None  # of the split, where the data have several


def evaluate_file(
    predictor: Predicts,
    path: str | Path | None,
    *,
    run: Path | None = None,
    columns: Mapping[str, str] | None = None,
    drop_bad_labels: bool = False,
    limit: int | None = None,
) -> Evaluated:
    """The metrics of a run's task on a file, or on the held-out part of a folder, by name, the main one first.

    `run` is the folder of the predictor: the file is read as the examples were that the run has learnt from, so that
    the scores of its own test file are those of its report. Where `columns` are given, these are read. Without a path
    the examples are those that the run held out. `limit` is the maximum number of examples.
    """
    task = predictor.task
    if path is None:
        assert run is not None, "a path or a run is given"
        chosen, path = find_held_out_examples(run, ending=task.wording.ending), run
    else:
        chosen = _read_given(task, path, run=run, columns=columns, drop_bad_labels=drop_bad_labels)
    examples = [example for example in chosen.examples if example.label is not None][:limit]
    if not examples:
        raise ValueError(f"{path} has no labelled examples: there is nothing to evaluate")
    notes = task.check_labels(examples, path=str(path), detect=lambda: _detect(path, columns))
    if task.config.labels:
        check_names(examples, task.config.labels, path=path)
    predictions = predictor.predict(examples)
    values = score_predictions(task.metrics, predictions, examples)
    return Evaluated(values, predictions, examples, chosen.split, notes)


def _read_given(
    task: Task, path: str | Path, *, run: Path | None, columns: Columns | None, drop_bad_labels: bool
) -> Chosen:
    """The examples of a file, or of the held-out part of a folder."""
    if run is not None and not columns and (chosen := read_as_trained(run, path)) is not None:
        return chosen
    found = task.read_labelled(str(path), columns=columns) or _read(path, task, columns, drop_bad_labels)
    return choose_split(Path(path).expanduser(), found)


def find_held_out_examples(run: Path, *, ending: str) -> Chosen:
    """The examples of its own data that a run did not learn from: test, else validation; a ValueError if none."""
    if (pictures := find_held_out_pictures(run)) is not None:
        return pictures
    config = _training_data(run)
    if config is None:
        raise ValueError(
            f"on which examples? {run} does not say what it learnt from: lmlab evaluate {run} test.{ending}"
        )
    labelled = read(config)[0]
    for split in ("test", "valid"):
        if examples := getattr(labelled, split):
            return Chosen(examples, split)
    raise ValueError(f"{run} held out no examples: name a file, lmlab evaluate {run} test.{ending}")


def read_as_trained(run: Path, path: str | Path) -> Chosen | None:
    """The examples of a file, read as in the run's fine-tuning; None where that is not known.

    Of the run's own test or validation file, these are the very examples that were scored. Another file of the same
    kind is read with the columns and tags that were found in the training file.
    """
    config = _training_data(run)
    if config is None:
        return find_held_out_pictures(run, Path(path).expanduser())
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


def find_held_out_pictures(run: Path, path: Path | None = None) -> Chosen | None:
    """The held-out pictures of a run as examples; None where it has none, or `path` is other data than its own."""
    found = _held_out_split(run, path)
    return None if found is None else Chosen(found.split.examples, found.name)


def _held_out_split(run: Path, path: Path | None) -> HeldOutPictures | None:
    if not (run / "recipe.json").is_file():
        return None
    record = read_record(run)
    config = record.recipe.data
    if not isinstance(config, PicturesConfig) or (path is not None and not _is_same(path, Path(config.paths()[0]))):
        return None
    corpus = reopen_corpus(record, run, Silent())
    split = corpus.test or corpus.valid
    if not isinstance(split, PictureSplit):
        return None
    return HeldOutPictures(split, "test" if split is corpus.test else "valid")


def open_picture_texts(
    run: Path, path: str | None, *, processor: PictureProcessor, columns: Mapping[str, str] | None = None
) -> HeldOutPictures:
    """The pictures with texts of a table: those held out, if the run was trained on it; bad files are skipped."""
    held_out = None if columns else _held_out_split(run, None if path is None else Path(path).expanduser())
    if held_out is not None:
        return held_out
    if path is None:
        raise ValueError(f"on which pictures? {run} held out none: lmlab evaluate {run} captions.tsv")
    config = CaptionsConfig(captions=[path], split=[1.0], columns=dict(columns or {}), bad="skip")
    splits = open_pictures(config, config.captions, given=processor, progress=None).splits
    name = next(each for each in ("test", "valid", "train") if each in splits)
    return HeldOutPictures(splits[name], name if len(splits) > 1 else None)


def _training_data(run: Path) -> ExamplesConfig | None:
    """The settings of the examples that a run was trained on; None for imported runs."""
    if not (run / "recipe.json").is_file():
        return None
    config = read_record(run).recipe.data
    return config if isinstance(config, ExamplesConfig) else None


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, or are the name of the same built-in data."""
    if str(one).startswith(BUILTIN):
        return str(one) == str(other)
    return one.exists() and other.exists() and one.samefile(other)


def _detect(path: str | Path, columns: Columns | None) -> Labelled | None:
    """The examples of a file for whatever task it is; None where it cannot be read."""
    try:
        return read_examples(path, columns=columns)
    except ValueError:
        return None


def _read(path: str | Path, task: Task, columns: Columns | None, drop_bad_labels: bool) -> Labelled:
    """The examples of a file; a ValueError says which files are needed, where it is for another task."""
    name = task_name(task.name)
    try:
        return read_examples(path, task=name, columns=columns, drop_bad_labels=drop_bad_labels)
    except ValueError:
        try:
            other = read_examples(path, columns=columns, drop_bad_labels=True).task
        except ValueError:
            other = name
        if other == name:
            raise
    raise ValueError(f"this run {task.wording.action}, and {path} is for {other}; give {task.wording.files}")


def choose_split(path: Path, found: Labelled) -> Chosen:
    """The part of a folder that was held out: test, else valid, else what there is; a file is itself."""
    if not path.is_dir():
        return Chosen(found.train)
    if found.test:
        return Chosen(found.test, "test")
    if found.valid:
        return Chosen(found.valid, "valid")
    if found.task == "picture_classification":
        return Chosen(found.train)
    train = find_parts(path).paths["train"]
    return Chosen(found.train, None if train == path else find_split(train.name))


def check_names(examples: Sequence[Example], known: Sequence[str], *, path: str | Path) -> None:
    """A ValueError names the classes or tags on both sides, where a file has others than a run predicts."""
    found = find_labels(examples)
    if strange := [name for name in found if name not in known]:
        what = "tags" if isinstance(examples[0].label, tuple) else "classes"
        where = next(each.where for each in examples if strange[0] in find_labels([each]))
        own, given = (shorten_names(names, 10) for names in (known, found))
        raise ValueError(
            f"{where}: {strange[0]!r} is not one of the {what} that this run predicts: {own}; {path} has {given}. "
            "Rename them in the file, or for an imported run in id2label of its config.json"
        )


def find_trained_on(run: Path, examples: Sequence[Example]) -> set[int]:
    """The numbers of the examples that a run was trained on, or whose scores chose its checkpoint.

    None where its training file is no longer there.
    """
    config = _training_data(run)
    if config is None:
        return set()
    try:
        train, selection, _ = parts_of(read(config)[0])
    except (ValueError, OSError):
        return set()
    used = {tuple(texts_of(example)) for example in (*train, *(selection or ()))}
    return {number for number, example in enumerate(examples) if tuple(texts_of(example)) in used}


def format_trained_on(run: Path, seen: int, examples: int) -> str:
    """A note on a score of examples that a run was trained on."""
    note = (
        f"note: {run} was trained on {seen:,} of these {examples:,} examples, or its checkpoint was chosen by them, so "
        "the score is too good"
    )
    report = run / "report.html"
    return f"{note}; that on held-out examples is in {report}" if seen * 2 > examples and report.is_file() else note
