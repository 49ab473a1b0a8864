"""Labelled examples from a file or a folder of any format.

`formats` detects the format of a file. For TSV, CSV and JSON, `tables` parses the file, `columns` finds the columns of
the text and the label, and `rows` makes examples from the rows. `conll`, `squad` and `lines` read other formats.
`folders` finds the files in a folder, and `labels` checks that a model can be trained on the result.
"""

from __future__ import annotations

from pathlib import Path

from lmlab.config import suggest
from lmlab.data.readers.examples import TASKS, Example, ExampleReader, Labelled, NoLabelsError, TaskName
from lmlab.data.readers.files import check_exists, read_whole
from lmlab.data.readers.labelled.columns import Columns
from lmlab.data.readers.labelled.folders import find_classes, find_parts, read_classes
from lmlab.data.readers.labelled.formats import find_reader
from lmlab.data.readers.labelled.labels import check_labels
from lmlab.data.readers.media import find_media_kind, missing_reader


def read_labelled(
    path: str | Path,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    task: TaskName | None = None,
    columns: Columns | None = None,
    header: bool | None = None,
    drop_bad_labels: bool = False,
) -> Labelled:
    """Return the labelled examples of a file or a folder, and of others that are held out from training.

    `columns` says which column is what ({"a": "review", "label": "stars"}; numbers count from 1), `header` whether the
    first row names them, `task` the task; each is recognized from the files if it is not given. A folder may
    have its own valid and test. Tags that mark spans are converted to IOB2. A ValueError in one line says what is wrong
    with a file, or why it cannot be trained on. With `drop_bad_labels`, rows of scores that are not numbers are left
    out, and counted.
    """
    return check_labels(
        read_examples(
            path,
            valid=valid,
            test=test,
            task=task,
            columns=columns,
            header=header,
            drop_bad_labels=drop_bad_labels,
        )
    )


def read_examples(
    path: str | Path,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    task: TaskName | None = None,
    columns: Columns | None = None,
    header: bool | None = None,
    drop_bad_labels: bool = False,
) -> Labelled:
    """As `read_labelled`, for examples on which a trained model is only scored, so that one class is enough."""
    if task is not None and task not in TASKS:
        raise ValueError(f"unknown task {task!r}{suggest(task, TASKS)}")
    train = Path(path).expanduser()
    check_exists(train)
    if (kind := find_media_kind([train])) is not None:
        raise missing_reader(kind, [train])
    parts = find_parts(train) if train.is_dir() else None
    paths = dict(parts.paths) if parts is not None else {"train": train}
    given = {split: Path(one).expanduser() for split, one in (("valid", valid), ("test", test)) if one is not None}
    for split, one in given.items():
        check_exists(one)
        paths[split] = _find_file(one) if one.is_dir() and not paths["train"].is_dir() else one
    if paths["train"].is_dir():
        return _read_folders(paths, task)
    text = read_whole(paths["train"])
    reader = find_reader(
        str(paths["train"]), text, task=task, columns=columns, header=header, drop_bad_labels=drop_bad_labels
    )
    if task is not None and reader.task != task:
        raise ValueError(
            f"{paths['train']} is {reader.format}: its task is {reader.task}, not {task}; leave --task out"
        )
    for note in parts.notes if parts is not None else ():
        reader.note(note)
    splits: dict[str, list[Example]] = {"train": _read(reader, paths["train"], text)}
    for split in ("valid", "test"):
        if split in paths:
            try:
                splits[split] = _read(reader, paths[split], read_whole(paths[split]))
            except NoLabelsError:
                if split in given:
                    raise
                reader.note(f"{paths[split].name} has no labels, and is left out")
    return Labelled(
        task=reader.task,
        train=splits["train"],
        valid=splits.get("valid"),
        test=splits.get("test"),
        format=reader.format,
        columns=reader.columns,
        scheme=reader.scheme,
        metric=reader.metric,
        skipped=dict(reader.skipped),
        notes=tuple(reader.notes),
    )


def _read(reader: ExampleReader, path: Path, text: str) -> list[Example]:
    examples = reader.read(str(path), text)
    if not examples:
        raise ValueError(f"{path} contains no example with a text and a label; give a file that has some")
    return examples


def _find_file(folder: Path) -> Path:
    files = find_parts(folder).paths
    if len(files) != 1 or files["train"].is_dir():
        raise ValueError(f"{folder} is a folder with several files; give the file")
    return files["train"]


def _read_folders(paths: dict[str, Path], task: TaskName | None) -> Labelled:
    if task not in (None, "classification"):
        raise ValueError(f"{paths['train']} has a folder for each class: its task is classification, not {task}")
    for split, path in paths.items():
        if not path.is_dir():
            raise ValueError(
                f"{path}: {split} must be a folder with a folder for each class, as the training texts are"
            )
    read = {split: read_classes(path) for split, path in paths.items()}
    empty = sum(len(texts) for path in paths.values() for texts in find_classes(path).values())
    empty -= sum(map(len, read.values()))
    return Labelled(
        task="classification",
        train=read["train"],
        valid=read.get("valid"),
        test=read.get("test"),
        format="a folder for each class",
        columns={"label": "the folder's name"},
        skipped={"no text": empty} if empty else {},
    )
