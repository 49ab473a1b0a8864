"""The choices of a multiple-choice question in a table, and which of them is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.column_types import clean
from lmlab.data.readers.labelled.columns import ColumnIndices
from lmlab.data.readers.labelled.tables import ParsedTable

LETTERS = "abcdefgh"


class AnswerKey(NamedTuple):
    """How answers give the right choice: by its text, its letter, or its number from 0 or 1."""

    how: str
    first: int = 0

    @property
    def words(self) -> str:
        """A description for messages."""
        return {"text": "the text of the right choice", "letter": "letters", "letters": "letters"}.get(
            self.how, f"numbers from {self.first}"
        )

    def find(self, answer: str, choices: Sequence[str]) -> int | None:
        """Return the index of the right choice, from 0; None if there is no such choice."""
        if self.how == "text":
            return choices.index(answer) if choices.count(answer) == 1 else None
        if self.how == "letter":
            index = LETTERS.find(answer.lower()) if len(answer) == 1 else -1
            index = int(answer) - 1 if answer.isdigit() else index  # ARC has both in one file
        else:
            index = int(answer) - self.first if answer.isdigit() else -1
        return index if 0 <= index < len(choices) else None

    def read(self, row: Sequence[Any], at: ColumnIndices, *, where: str) -> tuple[tuple[str, ...], int]:
        """Return the choices of a row and the index of the right one."""
        assert at.label is not None
        choices = read_choices(row, at)
        if len(choices) < 2:
            raise ValueError(f"{where}: {len(choices)} choices; a question needs two or more")
        right = self.find(clean(row[at.label]), choices)
        if right is None:
            raise ValueError(
                f"{where}: the answer {shorten(row[at.label])} is none of the {len(choices)} choices, "
                f"which are given by {self.words}; correct that answer"
            )
        return choices, right


def read_choices(row: Sequence[Any], at: ColumnIndices) -> tuple[str, ...]:
    """Return the choices of a row: columns, or a list in one column, of strings or of objects with a `text`."""
    if len(at.choices) == 1 and isinstance(listed := row[at.choices[0]], list):
        texts = [clean(one.get("text") if isinstance(one, dict) else one) for one in listed]
    else:
        texts = [clean(row[index]) for index in at.choices]
        while texts and not texts[-1]:  # fewer choices than columns
            texts.pop()
    return tuple(texts)


def find_answer_key(table: ParsedTable, at: ColumnIndices, *, name: str) -> AnswerKey:
    """Find how answers give the right choice, from all answers; the column's name decides if a number may be a text."""
    assert at.label is not None
    rows = [(clean(row[at.label]), read_choices(row, at)) for row in table.rows]
    rows = [(answer, choices) for answer, choices in rows if answer]
    text = AnswerKey("text")
    answers = {answer for answer, _ in rows}
    fits = all(text.find(answer, choices) is not None for answer, choices in rows)
    numbers = all(answer.isdigit() for answer in answers)
    if fits and not (numbers and name.lower() not in ("answer", "correct_answer", "solution")):
        return text
    if numbers:
        first = 0 if "0" in answers or not any(answer == str(len(choices)) for answer, choices in rows) else 1
        return AnswerKey("number", first)
    if all(len(answer) == 1 and (answer.lower() in LETTERS or answer.isdigit()) for answer in answers):
        return AnswerKey("letter")
    return text
