"""Examples from the rows of a table: one text or two and a class or a score, or a question and its choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lmlab.data.readers.column_types import (
    DECIMAL_COMMA,
    LARGEST_SCORE,
    MISSING,
    THOUSANDS,
    are_classes,
    are_mostly_numbers,
    as_number,
    clean,
    has_decimal_commas,
    name_class,
)
from lmlab.data.readers.columns import Columns, Roles, find_place, find_roles, is_header, is_id, normalize
from lmlab.data.readers.examples import Example, NoLabelsError, Reader, TaskName
from lmlab.data.readers.glue import Glue, find_glue
from lmlab.data.readers.strict_text import shorten
from lmlab.data.readers.tables import Table, parse_csv, parse_json, parse_tsv

PARSERS = {"TSV": parse_tsv, "CSV": parse_csv, "JSON": parse_json}
NO_GOLD = "-"
"""What SNLI and MNLI have for a label where the annotators did not agree."""
FEWEST_OF_NUMBERS = 3
SHOWN_BAD = 5
"""Rows with a wrong label that a message shows."""


class RowReader(Reader):
    """Reads tables whose rows are examples."""

    def __init__(
        self,
        source: str,
        text: str,
        *,
        kind: str,
        task: TaskName | None = None,
        columns: Columns | None = None,
        header: bool | None = None,
        drop_bad_labels: bool = False,
    ) -> None:
        super().__init__()
        self._kind = kind
        self._drop_bad_labels = drop_bad_labels
        self._comma = False
        table = _parse(kind, source, text)
        self._glue: Glue | None = None
        if table.names is None and columns is None and header is None:
            glue = find_glue(source, table)
            self._glue = glue if glue is not None and task in (None, glue.task) else None
        if self._glue is not None and not self._glue.whole_rows:
            table, uneven = table.drop_uneven()
            self._count("unequal columns", uneven)
        table = table.check_even()
        if table.names is None and (header if header is not None else has_header(table, columns, self._glue)):
            table = table.take_header()
        roles = find_roles(table, columns=columns if self._glue is None else self._glue.columns, task=task)
        self._header = table.names if kind != "JSON" else None
        named = table.names is not None
        self._named: dict[str, list[str]] = {
            role: [table.names[place] if table.names is not None else str(place + 1) for place in places]
            for role, places in _listed(roles).items()
        }
        self.columns = {role: "+".join(names) for role, names in self._named.items()}
        self.task = self._find_task(table, roles, task)
        header_words = " with a header" if named and kind != "JSON" else "" if named else " without a header"
        self.format = f"GLUE: {self._glue.name}" if self._glue is not None else f"{table.kind}{header_words}"
        self.metric = self._glue.metric if self._glue is not None else None
        self._key: AnswerKey | None = None
        self._first: Table | None = table
        if named and self._glue is None:
            self._note_unused(table, roles)

    def read(self, source: str, text: str) -> list[Example]:
        """The examples of a table, its columns found by the names or numbers that the first one told."""
        table, self._first = self._first, None
        if table is None or table.source != source:
            table = self._parse(source, text)
        roles = self._find_again(table)
        if roles.label is None or all(clean(row[roles.label]) in ("", "-1") for row in table.rows):
            raise NoLabelsError(f"{source} has no labels in it; give a file that has them")
        if self.task == "choice":
            return self._read_choices(table, roles)
        if self.task == "regression":
            return self._read_scores(table, roles)
        return self._read_classes(table, roles)

    def _parse(self, source: str, text: str) -> Table:
        kind = "CSV" if self._kind == "TSV" and source.lower().removesuffix(".gz").endswith(".csv") else self._kind
        table = _parse(kind, source, text)
        if self._glue is not None and not self._glue.whole_rows:
            table, uneven = table.drop_uneven()
            self._count("unequal columns", uneven)
        table = table.check_even()
        if table.names is None and self._header is not None:
            return table.take_header()
        if table.names is None and has_header(table, None, self._glue):
            raise ValueError(
                f"{source} begins with a header ({shorten(' | '.join(map(str, table.rows[0])))}), and the training "
                f"file has none; give both files one, or neither"
            )
        return table

    def _find_again(self, table: Table) -> Roles:
        places: dict[str, list[int]] = {}
        for role, names in self._named.items():
            try:
                places[role] = [find_place(table, name) for name in names]
            except ValueError as error:
                narrower = table.names is None  # CoLA's test has two columns, where the others have four
                raise (NoLabelsError(str(error)) if role == "label" or narrower else error) from None
        return Roles(
            places["a"][0],
            places["label"][0] if "label" in places else None,
            places["b"][0] if "b" in places else None,
            tuple(places.get("choices", ())),
        )

    def _find_task(self, table: Table, roles: Roles, task: TaskName | None) -> TaskName:
        assert roles.label is not None
        labels = table.column(roles.label)
        if roles.choices:
            if task not in (None, "choice"):
                raise ValueError(f"{table.source} holds questions with choices, so its task is choice, not {task}")
            return "choice"
        if task in ("tagging", "spans", "choice"):
            what = {"tagging": "tagged words", "spans": "questions with answers", "choice": "choices"}[task]
            raise ValueError(f"{table.source} is a table without {what}; leave --task out, or give another file")
        if task == "regression" or (self._glue is not None and self._glue.metric == "pearson"):
            return "regression"
        if task == "classification" or not are_mostly_numbers(labels):
            return "classification"
        name = self.columns["label"]
        different = len({clean(label) for label in labels} - {""})
        missing = [line for label, line in zip(labels, table.lines, strict=True) if clean(label).lower() in MISSING]
        similarity = normalize(name) in ("similarity", "similarity_score", "relatedness", "relatedness_score")
        if are_classes(labels) and not (similarity and different > FEWEST_OF_NUMBERS):
            if missing:
                value = shorten(clean(labels[table.lines.index(missing[0])]))
                self.note(f"{value} in {name} ({_list_lines(missing)}) is a class of its own; remove these rows if not")
            if different >= FEWEST_OF_NUMBERS:
                self.note(f"{different} whole numbers in {name} are taken for classes; --task regression for scores")
            return "classification"
        self.note(f"the numbers in {name} are taken for scores; --task classification for classes")
        return "regression"

    def _read_classes(self, table: Table, roles: Roles) -> list[Example]:
        assert roles.label is not None
        examples: list[Example] = []
        for row, line in zip(table.rows, table.lines, strict=True):
            value = row[roles.label]
            if isinstance(value, list):
                if len(value) != 1:
                    raise ValueError(
                        f"{table.source}, line {line}: {len(value)} labels ({shorten(value)}); a text has one here"
                    )
                value = value[0]
            label = name_class(value)
            if (texts := self._texts(row, roles)) is None:
                continue
            if not label or (label == NO_GOLD and roles.b is not None):
                self._count("no label")
                continue
            examples.append(Example(texts[0], texts[1], label=label, source=table.source, line=line))
        return examples

    def _read_scores(self, table: Table, roles: Roles) -> list[Example]:
        assert roles.label is not None
        if has_decimal_commas(table.column(roles.label)):
            self._comma = True
            self.note(f"the numbers in {self.columns['label']} are read with a decimal comma (3,5 is 3.5)")
        examples: list[Example] = []
        bad: list[tuple[int, str]] = []
        for row, line in zip(table.rows, table.lines, strict=True):
            if (texts := self._texts(row, roles)) is None:
                continue
            value = clean(row[roles.label])
            if not value:
                self._count("no label")
                continue
            score = as_number(value, comma=self._comma)
            if score is None or abs(score) > LARGEST_SCORE:
                bad.append((line, value))
                continue
            examples.append(Example(texts[0], texts[1], label=score, source=table.source, line=line))
        if bad and not self._drop_bad_labels:
            raise ValueError(self._explain_bad_labels(table.source, bad, len(bad) + len(examples)))
        self._count("a label that is not a number", len(bad))
        return examples

    def _explain_bad_labels(self, source: str, bad: Sequence[tuple[int, str]], total: int) -> str:
        """Which labels are not numbers, and what to do."""
        large = all(as_number(value, comma=self._comma) is not None for _, value in bad)
        what = f"larger than {LARGEST_SCORE:g}" if large else "not numbers"
        shown = ", ".join(f"line {line} {shorten(value, 20)}" for line, value in bad[:SHOWN_BAD])
        more = f" and {len(bad) - SHOWN_BAD} more" if len(bad) > SHOWN_BAD else ""
        comma = next((value for _, value in bad if DECIMAL_COMMA.fullmatch(value)), None)
        point = ""
        if comma is not None:
            other = f" or {comma.replace(',', '')}" if THOUSANDS.fullmatch(comma) else ""
            point = f" ({comma} may be {comma.replace(',', '.')}{other}: write it without a comma)"
        return (
            f"{source}: {len(bad):,} of {total:,} values in {self.columns['label']} are {what}: {shown}{more}; correct "
            f"them{point}, leave these rows out with --drop-bad-labels, or give --task classification"
        )

    def _read_choices(self, table: Table, roles: Roles) -> list[Example]:
        assert roles.label is not None
        if self._key is None:
            self._key = find_answer_key(table, roles, name=self.columns["label"])
            self.note(f"answers in {self.columns['label']} are {self._key.words}")
        examples: list[Example] = []
        for row, line in zip(table.rows, table.lines, strict=True):
            if (texts := self._texts(row, roles)) is None:
                continue
            if not clean(row[roles.label]):
                self._count("no label")
                continue
            choices, right = self._key.read(row, roles, where=f"{table.source}, line {line}")
            examples.append(Example(texts[0], texts[1], choices, right, source=table.source, line=line))
        return examples

    def _texts(self, row: Any, roles: Roles) -> tuple[str, str | None] | None:
        """The texts of a row; None, and counted, where one is empty."""
        a = clean(row[roles.a])
        b = clean(row[roles.b]) if roles.b is not None else None
        if not a or b == "":
            self._count("no text")
            return None
        return a, b

    def _count(self, why: str, number: int = 1) -> None:
        if number:
            self.skipped[why] += number

    def _note_unused(self, table: Table, roles: Roles) -> None:
        assert table.names is not None
        used = {place for places in _listed(roles).values() for place in places}
        left = [name for place, name in enumerate(table.names) if place not in used and not is_id(name)]
        if left:
            self.note(f"columns not used: {', '.join(left[:6])}{' …' if len(left) > 6 else ''}")


def _parse(kind: str, source: str, text: str) -> Table:
    table = PARSERS[kind](source, text)
    if not table.rows:
        raise ValueError(f"{source} is empty: none of its lines holds anything; give a file of labelled examples")
    return table


def _list_lines(lines: Sequence[int]) -> str:
    """The numbers of a few lines, as messages name them."""
    shown = ", ".join(map(str, lines[:SHOWN_BAD]))
    more = f" and {len(lines) - SHOWN_BAD} more" if len(lines) > SHOWN_BAD else ""
    return f"line{'s' * (len(lines) > 1)} {shown}{more}"


def _listed(roles: Roles) -> dict[str, list[int]]:
    single = {"a": roles.a, "b": roles.b, "label": roles.label}
    listed = {role: [place] for role, place in single.items() if place is not None}
    return listed | ({"choices": list(roles.choices)} if roles.choices else {})


def has_header(table: Table, columns: Columns | None, glue: Glue | None) -> bool:
    """Whether the first row of a table names its columns."""
    if glue is not None:
        return glue.header
    names = {clean(cell) for cell in table.rows[0]}
    said = [str(value) for value in (columns or {}).values() if not isinstance(value, (list, tuple))]
    if any(value in names and not value.isdigit() for value in said):
        return True
    return is_header(table.rows[0], table.rows[1:5001])


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
