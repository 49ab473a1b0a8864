"""Labelled examples, and the contract of their readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lmlab.data.readers.media import Media

TaskName = Literal[
    "classification", "regression", "choice", "tagging", "spans", "picture_classification", "picture_texts"
]
TASKS: tuple[TaskName, ...] = ("classification", "regression", "choice", "tagging", "spans")


def task_name(name: str) -> TaskName:
    """A name as one of the tasks that readers give examples for; a ValueError names them."""
    for each in TASKS:
        if each == name:
            return each
    raise ValueError(f"no file format has examples for {name!r}; there are {', '.join(TASKS)}")


class Answer(NamedTuple):
    """An answer to a question, as a span of the context."""

    text: str
    start: int  # of its first character in the context


class Example(NamedTuple):
    """One labelled example of any task: a text, a pair of texts, a question, or a picture, a sound …"""

    a: str | tuple[str, ...] = ""  # a text; the words of a tagged sentence; a question with choices or a context
    b: str | None = None  # the second text of a pair; the context of a question
    choices: tuple[str, ...] = ()  # of a multiple-choice question
    label: Any = None
    """The name of a class (str), a score (float), the number of the right choice (int, from 0), the tags of the words
    (tuple[str, ...]), or the answers (tuple[Answer, ...], empty: the context has none); None without a label."""
    name: str = ""  # the id of a question
    source: str = ""  # the file it came from
    line: int = 0  # and the line there, from 1
    media: Media | None = None  # a picture, a sound, notes or an episode, with or without texts

    @property
    def where(self) -> str:
        """The file and the line of the example, for error messages."""
        return f"{self.source}, line {self.line}" if self.line else self.source


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The examples of files, by split, and how the files were read."""

    task: TaskName
    train: Sequence[Example]
    valid: Sequence[Example] | None = None
    """Held-out examples, from another file or from the same folder."""
    test: Sequence[Example] | None = None
    selection: Sequence[Example] | None = None
    """Examples held out from train to choose the checkpoint, so that valid is only scored. If empty, the last
    checkpoint is kept; if None, valid chooses."""
    format: str = ""
    """A description: `TSV with a header`, `CoNLL columns (word, …, tag), IOB1`, `SQuAD 1.1`, `GLUE: MRPC`."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of each field: {"a": "sentence1", "b": "sentence2", "label": "label"}."""
    scheme: str | None = None
    """The scheme in the file of tags that mark spans: `IOB1`, `IOB2`, `IOBES` or `BILOU`; examples have IOB2. None if
    tags do not mark spans (parts of speech)."""
    metric: str | None = None
    """The official metric, if the format has one (GLUE): `accuracy`, `f1`, `matthews`, `pearson`."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """The number of lines that were left out, by reason."""
    notes: Sequence[str] = ()
    """Choices that were made in reading, and the option to change each: one short sentence each."""


class NoLabelsError(ValueError):
    """A file has texts but no labels, as the test file of a shared task."""


class ExampleReader(ABC):
    """Reads files of one format, all in the way of the first one, and counts what is left out."""

    task: TaskName
    format: str
    metric: str | None = None
    scheme: str | None = None

    def __init__(self) -> None:
        self.columns: dict[str, str] = {}
        self.skipped: Counter[str] = Counter()
        self.notes: list[str] = []

    @abstractmethod
    def read(self, source: str, text: str) -> list[Example]:
        """Return the examples of a file, given its name and its text."""

    def note(self, message: str) -> None:
        """Add a note for the user on how a file was read, once."""
        if message not in self.notes:
            self.notes.append(message)
