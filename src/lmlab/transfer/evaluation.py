"""How good a fine-tuned run is on a file of labelled examples: the official metric, with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lmlab.data.reading.examples import Example, Labelled
from lmlab.data.reading.folders import find_parts, find_split
from lmlab.data.reading.labelled import check_known, read_examples
from lmlab.tasks.predicting import Predictor
from lmlab.tasks.task import Prediction
from lmlab.transfer.results import Interval, score_predictions


class Evaluated(NamedTuple):
    """Predictions for examples, and what they are worth."""

    values: dict[str, Interval]
    predictions: list[Prediction]
    examples: Sequence[Example]
    split: str | None = None  # of a folder, the part that was taken: test, valid or train


def evaluate_file(predictor: Predictor, path: str | Path, *, columns: Mapping[str, str] | None = None) -> Evaluated:
    """The measures of a run's task on a file, or on the held-out part of a folder, by name, the main one first."""
    task = predictor.task
    found = read_examples(path, task=task.name, columns=dict(columns) if columns else None)  # type: ignore[arg-type]
    split, chosen = choose_split(Path(path).expanduser(), found)
    examples = [example for example in chosen if example.label is not None]
    if not examples:
        raise ValueError(f"{path} has no labelled examples: there is nothing to evaluate")
    if task.config.labels:
        check_known(examples, task.config.labels, split=str(path))
    predictions = predictor.predict(examples)
    return Evaluated(score_predictions(task.measures, predictions, examples), predictions, examples, split)


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
