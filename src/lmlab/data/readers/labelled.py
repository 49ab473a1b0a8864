"""Read labelled examples from files of any format, which is recognized by the name and the content of the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lmlab.config import suggest
from lmlab.data.readers.columns import Columns
from lmlab.data.readers.examples import TASKS, Example, Labelled, NoLabelsError, Reader, TaskName
from lmlab.data.readers.folders import find_classes, find_parts, read_classes
from lmlab.data.readers.media import find_media_kind, missing_reader
from lmlab.data.readers.schemes import OUTSIDE, split_tag
from lmlab.data.readers.squad import SquadReader, is_squad
from lmlab.data.readers.strict_text import check_exists, read_whole, shorten
from lmlab.data.readers.table_reader import RowReader
from lmlab.data.readers.tables import parse_json
from lmlab.data.readers.tagged import ColumnReader, ListReader, has_lists, is_tagged

JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
FEWEST_ALL_DIFFERENT = 20
"""The number of examples from which on it is an error if each has a class of its own."""
COLUMN_ENDINGS = (".conll", ".conllu", ".conllx", ".iob", ".iob2", ".bio", ".bioes", ".iobes")


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


def find_reader(
    source: str,
    text: str,
    *,
    task: TaskName | None = None,
    columns: Columns | None = None,
    header: bool | None = None,
    drop_bad_labels: bool = False,
) -> Reader:
    """Return the reader of a file, by its name and its content; a ValueError if the format is unknown."""
    name = source.lower().removesuffix(".gz")
    if name.endswith(JSON_ENDINGS) or text.lstrip()[:2].rstrip() in ("{", "[{", '{"', "["):
        if is_squad(text):
            return SquadReader(source, text)
        if has_lists(parse_json(source, text)):
            return ListReader(source, text, columns=columns)
        return RowReader(source, text, kind="JSON", task=task, columns=columns, drop_bad_labels=drop_bad_labels)
    if is_fasttext(text):
        return FastTextReader()
    columns_of_words = name.endswith(COLUMN_ENDINGS) or (not name.endswith(".csv") and is_tagged(source, text))
    if task in (None, "tagging") and header is None and columns_of_words:
        return ColumnReader(source, text, columns=columns)
    if is_trec(text):
        return TrecReader(columns)
    lines = [line for line in text.split("\n", 200)[:200] if line.strip()]
    tabs = name.endswith((".tsv", ".tab")) or sum("\t" in line for line in lines) * 2 > len(lines)
    if name.endswith(".csv") or tabs:
        kind = "CSV" if name.endswith(".csv") else "TSV"
        return RowReader(
            source, text, kind=kind, task=task, columns=columns, header=header, drop_bad_labels=drop_bad_labels
        )
    raise ValueError(
        f"{source}: its format is not known (line 1 is {shorten(lines[0])}); give a text and a label in "
        f"each line, separated by a tab, or a .csv, .jsonl, CoNLL or SQuAD file"
    )


def check_labels(labelled: Labelled) -> Labelled:
    """Return the examples; a ValueError if they cannot be trained on: none, one class, or a class only held out."""
    if not labelled.train:
        raise ValueError(f"there is no example to learn from{_left_out(labelled)}; give a file that has some")
    if labelled.task not in ("classification", "tagging"):
        return labelled
    known = find_labels(labelled.train, scheme=labelled.scheme)
    what = "class" if labelled.task == "classification" else "tag"
    if len(there := find_labels(labelled.train)) < 2:
        first = labelled.train[0]
        raise ValueError(
            f"{first.source} has one {what} only, {there[0]!r}, in all {len(labelled.train):,} "
            f"examples{_left_out(labelled)}: there is nothing to tell apart; give a file with two or more, or name "
            f"another column with --columns label=…"
        )
    if labelled.task == "classification" and len(known) == len(labelled.train) >= FEWEST_ALL_DIFFERENT:
        raise ValueError(
            f"{labelled.train[0].source}: each of its {len(known):,} examples has a class of its own, as {known[0]!r}: "
            f"there is nothing to learn; name the right column with --columns label=…"
        )
    for split, examples in (("valid", labelled.valid), ("test", labelled.test)):
        check_known(examples or (), known, split=split)
    return labelled


def check_known(examples: Sequence[Example], known: Sequence[str], *, split: str) -> None:
    """Raise a ValueError that names the first held-out example with a class or a tag that training does not have."""
    names = set(known)
    for example in examples:
        strange = [name for name in _names(example) if name not in names]
        if strange:
            what = "tag" if isinstance(example.label, tuple) else "class"
            raise ValueError(
                f"{example.where}: the {what} {strange[0]!r} of {split} is not known from training (known: "
                f"{', '.join(known[:10])}{', …' * (len(known) > 10)}); leave it out, or train with some like it"
            )


def find_labels(examples: Sequence[Example], *, scheme: str | None = None) -> tuple[str, ...]:
    """Return the classes or tags of examples: numbers by size, names by alphabet, O before all other tags.

    If tags mark spans, each kind of span has its `B-` and its `I-`, though one of them may not occur: CoNLL-2000 has
    lists of one word in the training text, and of two in the test.
    """
    names = {name for example in examples for name in _names(example)}
    if scheme is not None:
        kinds = {split_tag(name)[1] for name in names - {OUTSIDE}}
        names |= {f"{letter}-{kind}" if kind else letter for kind in kinds for letter in "BI"}
    if all(name.lstrip("-").isdigit() for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names, key=lambda name: (name != "O", name)))


def _left_out(labelled: Labelled) -> str:
    why = ", ".join(f"{count:,} with {reason}" for reason, count in labelled.skipped.items())
    return f" (left out: {why})" if why else ""


def _names(example: Example) -> tuple[str, ...]:
    return example.label if isinstance(example.label, tuple) else (example.label,)


def _read(reader: Reader, path: Path, text: str) -> list[Example]:
    examples = reader.read(str(path), text)
    if not examples:
        raise ValueError(f"{path} holds no example with a text and a label; give a file that has some")
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


PREFIX = "__label__"
TREC = re.compile(r"([A-Z]{2,}):([a-z]\w*) \S")


class FastTextReader(Reader):
    """Reads lines of fastText, `__label__x text`: one label, then the text."""

    task = "classification"
    format = "fastText lines"

    def read(self, source: str, text: str) -> list[Example]:
        """Return the lines of a file; a ValueError names one without a label, or with two."""
        examples: list[Example] = []
        for number, line in enumerate(text.split("\n"), 1):
            words = line.split()
            if not words:
                continue
            labels = [word for word in words if word.startswith(PREFIX)]
            if len(labels) != 1 or len(labels[0]) == len(PREFIX):
                found = f"{len(labels) or 'no'} label{'s' * (len(labels) != 1)}"
                raise ValueError(f"{source}, line {number}: {found} ({shorten(line)}); one {PREFIX}… in each line")
            rest = " ".join(word for word in words if word != labels[0])
            if not rest:
                self.skipped["no text"] += 1
                continue
            examples.append(Example(rest, label=labels[0].removeprefix(PREFIX), source=source, line=number))
        return examples


class TrecReader(Reader):
    """Reads questions of TREC: `NUM:dist How far …`; the label is the coarse class, or the fine one on request."""

    task = "classification"

    def __init__(self, columns: Columns | None = None) -> None:
        super().__init__()
        which = str((columns or {}).get("label", "coarse"))
        which = {"1": "coarse", "2": "fine"}.get(which, which)
        if which not in ("coarse", "fine"):
            raise ValueError(f"--columns label={which}: lines of TREC have two{suggest(which, ('coarse', 'fine'))}")
        self.columns = {"label": which}
        self.format = f"TREC lines ({which} classes)"
        if which == "coarse":
            self.note("the classes before the colon are taken; --columns label=fine for those after it")

    def read(self, source: str, text: str) -> list[Example]:
        """Return the questions of a file."""
        examples: list[Example] = []
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            if TREC.match(line) is None:
                raise ValueError(f"{source}, line {number}: {shorten(line)} does not begin with COARSE:fine")
            label, _, rest = line.partition(" ")
            label = label if self.columns["label"] == "fine" else label.partition(":")[0]
            examples.append(Example(rest.strip(), label=label, source=source, line=number))
        return examples


def is_fasttext(text: str) -> bool:
    """Whether the first line begins with a label of fastText."""
    return text.lstrip().startswith(PREFIX)


def is_trec(text: str) -> bool:
    """Whether all of the first lines begin with two classes."""
    lines = [line for line in text.split("\n", 200)[:200] if line.strip()]
    return bool(lines) and all(TREC.match(line) for line in lines)
