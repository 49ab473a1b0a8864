"""What the readers of all formats share: an understanding that is won from one file and read others with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

from lmlab.data.readers.examples import Example, TaskName


class NoLabelsError(ValueError):
    """A file has texts, but no labels: the test file of a track."""


class Reader(ABC):
    """Reads files of one format as the first of them was understood, and keeps count of what it left out."""

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
        """The examples of a file, given its name and its text."""

    def note(self, message: str) -> None:
        """Keep what a user should know of how a file was understood; once."""
        if message not in self.notes:
            self.notes.append(message)
