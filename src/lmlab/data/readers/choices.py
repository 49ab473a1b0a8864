"""Questions with choices: which of them an answer means, by its number, its letter or its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lmlab.data.readers.column_types import clean
from lmlab.data.readers.columns import Roles
from lmlab.data.readers.strict_text import shorten
from lmlab.data.readers.tables import Table

LETTERS = "abcdefgh"


class AnswerKey(NamedTuple):
    """How the right choice is said: by its text, its letter, or its number from 0 or 1."""

    how: str
    first: int = 0

    @property
    def words(self) -> str:
        """In words."""
        return {"text": "the text of the right choice", "letter": "letters", "letters": "letters"}.get(
            self.how, f"numbers from {self.first}"
        )

    def find(self, answer: str, choices: Sequence[str]) -> int | None:
        """The place of the right choice, from 0; None where there is no such choice."""
        if self.how == "text":
            return choices.index(answer) if choices.count(answer) == 1 else None
        if self.how == "letter":
            place = LETTERS.find(answer.lower()) if len(answer) == 1 else -1
            place = int(answer) - 1 if answer.isdigit() else place  # ARC has both in one file
        else:
            place = int(answer) - self.first if answer.isdigit() else -1
        return place if 0 <= place < len(choices) else None

    def read(self, row: Sequence[Any], roles: Roles, *, where: str) -> tuple[tuple[str, ...], int]:
        """The choices of a row and the place of the right one."""
        assert roles.label is not None
        choices = read_choices(row, roles)
        if len(choices) < 2:
            raise ValueError(f"{where}: {len(choices)} choices; a question needs two or more")
        right = self.find(clean(row[roles.label]), choices)
        if right is None:
            raise ValueError(
                f"{where}: the answer {shorten(row[roles.label])} is none of the {len(choices)} choices, "
                f"which are told by {self.words}; mend that answer"
            )
        return choices, right


def read_choices(row: Sequence[Any], roles: Roles) -> tuple[str, ...]:
    """The choices of a row: its columns, or the list in one of them, of strings or of objects with a `text`."""
    if len(roles.choices) == 1 and isinstance(listed := row[roles.choices[0]], list):
        texts = [clean(one.get("text") if isinstance(one, dict) else one) for one in listed]
    else:
        texts = [clean(row[place]) for place in roles.choices]
        while texts and not texts[-1]:  # fewer choices than columns
            texts.pop()
    return tuple(texts)


def find_answer_key(table: Table, roles: Roles, *, name: str) -> AnswerKey:
    """How answers are said, told from all of them; a number that may be a text too is told by the column's name."""
    assert roles.label is not None
    rows = [(clean(row[roles.label]), read_choices(row, roles)) for row in table.rows]
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
