"""Examples from the rows of a table: one text or two and a class or a score, or a question and its choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmlab.data.readers.examples import Example, ExampleReader, NoLabelsError, TaskName
from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.choices import AnswerKey, find_answer_key
from lmlab.data.readers.labelled.column_types import (
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
from lmlab.data.readers.labelled.columns import (
    ColumnIndices,
    Columns,
    find_columns,
    find_index,
    is_header,
    is_id,
    normalize,
)
from lmlab.data.readers.labelled.glue import Glue, find_glue
from lmlab.data.readers.labelled.tables import ParsedTable, parse_csv, parse_json, parse_tsv

PARSERS = {"TSV": parse_tsv, "CSV": parse_csv, "JSON": parse_json}
NO_GOLD = "-"
"""The label in SNLI and MNLI of examples on which the annotators did not agree."""
FEWEST_OF_NUMBERS = 3
SHOWN_BAD = 5
"""The number of rows with a wrong label that a message shows."""


class RowReader(ExampleReader):
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
        at = find_columns(table, columns=columns if self._glue is None else self._glue.columns, task=task)
        self._header = table.names if kind != "JSON" else None
        named = table.names is not None
        self._named: dict[str, list[str]] = {
            field: [table.names[index] if table.names is not None else str(index + 1) for index in indices]
            for field, indices in _listed(at).items()
        }
        self.columns = {field: "+".join(names) for field, names in self._named.items()}
        self.task = self._find_task(table, at, task)
        header_words = " with a header" if named and kind != "JSON" else "" if named else " without a header"
        self.format = f"GLUE: {self._glue.name}" if self._glue is not None else f"{table.kind}{header_words}"
        self.metric = self._glue.metric if self._glue is not None else None
        self._key: AnswerKey | None = None
        self._first: ParsedTable | None = table
        if named and self._glue is None:
            self._note_unused(table, at)

    def read(self, source: str, text: str) -> list[Example]:
        """Return the examples of a table, whose columns have the names or numbers of the first table."""
        table, self._first = self._first, None
        if table is None or table.source != source:
            table = self._parse(source, text)
        at = self._find_again(table)
        if at.label is None or all(clean(row[at.label]) in ("", "-1") for row in table.rows):
            raise NoLabelsError(f"{source} has no labels in it; give a file that has them")
        if self.task == "choice":
            return self._read_choices(table, at)
        if self.task == "regression":
            return self._read_scores(table, at)
        return self._read_classes(table, at)

    def _parse(self, source: str, text: str) -> ParsedTable:
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

    def _find_again(self, table: ParsedTable) -> ColumnIndices:
        indices: dict[str, list[int]] = {}
        for field, names in self._named.items():
            try:
                indices[field] = [find_index(table, name) for name in names]
            except ValueError as error:
                narrower = table.names is None  # CoLA's test has two columns, where the others have four
                raise (NoLabelsError(str(error)) if field == "label" or narrower else error) from None
        return ColumnIndices(
            indices["a"][0],
            indices["label"][0] if "label" in indices else None,
            indices["b"][0] if "b" in indices else None,
            tuple(indices.get("choices", ())),
        )

    def _find_task(self, table: ParsedTable, at: ColumnIndices, task: TaskName | None) -> TaskName:
        assert at.label is not None
        labels = table.column(at.label)
        if at.choices:
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
                self.note(
                    f"{value} in {name} ({_list_lines(missing)}) is read as a class; remove these rows if it is not one"
                )
            if different >= FEWEST_OF_NUMBERS:
                self.note(f"{different} whole numbers in {name} are read as classes; --task regression for scores")
            return "classification"
        self.note(f"the numbers in {name} are read as scores; --task classification for classes")
        return "regression"

    def _read_classes(self, table: ParsedTable, at: ColumnIndices) -> list[Example]:
        assert at.label is not None
        examples: list[Example] = []
        for row, line in zip(table.rows, table.lines, strict=True):
            value = row[at.label]
            if isinstance(value, list):
                if len(value) != 1:
                    raise ValueError(
                        f"{table.source}, line {line}: {len(value)} labels ({shorten(value)}); a text has one here"
                    )
                value = value[0]
            label = name_class(value)
            if (texts := self._texts(row, at)) is None:
                continue
            if not label or (label == NO_GOLD and at.b is not None):
                self._count("no label")
                continue
            examples.append(Example(texts[0], texts[1], label=label, source=table.source, line=line))
        return examples

    def _read_scores(self, table: ParsedTable, at: ColumnIndices) -> list[Example]:
        assert at.label is not None
        if has_decimal_commas(table.column(at.label)):
            self._comma = True
            self.note(f"the numbers in {self.columns['label']} are read with a decimal comma (3,5 is 3.5)")
        examples: list[Example] = []
        bad: list[tuple[int, str]] = []
        for row, line in zip(table.rows, table.lines, strict=True):
            if (texts := self._texts(row, at)) is None:
                continue
            value = clean(row[at.label])
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
        """Return the error for labels that are not numbers."""
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

    def _read_choices(self, table: ParsedTable, at: ColumnIndices) -> list[Example]:
        assert at.label is not None
        if self._key is None:
            self._key = find_answer_key(table, at, name=self.columns["label"])
            self.note(f"answers in {self.columns['label']} are {self._key.words}")
        examples: list[Example] = []
        for row, line in zip(table.rows, table.lines, strict=True):
            if (texts := self._texts(row, at)) is None:
                continue
            if not clean(row[at.label]):
                self._count("no label")
                continue
            choices, right = self._key.read(row, at, where=f"{table.source}, line {line}")
            examples.append(Example(texts[0], texts[1], choices, right, source=table.source, line=line))
        return examples

    def _texts(self, row: Any, at: ColumnIndices) -> tuple[str, str | None] | None:
        """Return the texts of a row; None if one is empty, which is counted."""
        a = clean(row[at.a])
        b = clean(row[at.b]) if at.b is not None else None
        if not a or b == "":
            self._count("no text")
            return None
        return a, b

    def _count(self, why: str, number: int = 1) -> None:
        if number:
            self.skipped[why] += number

    def _note_unused(self, table: ParsedTable, at: ColumnIndices) -> None:
        assert table.names is not None
        used = {index for indices in _listed(at).values() for index in indices}
        left = [name for index, name in enumerate(table.names) if index not in used and not is_id(name)]
        if left:
            self.note(f"columns not used: {', '.join(left[:6])}{' …' if len(left) > 6 else ''}")


def _parse(kind: str, source: str, text: str) -> ParsedTable:
    table = PARSERS[kind](source, text)
    if not table.rows:
        raise ValueError(f"{source} is empty: all its lines are blank; give a file of labelled examples")
    return table


def _list_lines(lines: Sequence[int]) -> str:
    """Return the numbers of a few lines for a message."""
    shown = ", ".join(map(str, lines[:SHOWN_BAD]))
    more = f" and {len(lines) - SHOWN_BAD} more" if len(lines) > SHOWN_BAD else ""
    return f"line{'s' * (len(lines) > 1)} {shown}{more}"


def _listed(at: ColumnIndices) -> dict[str, list[int]]:
    single = {"a": at.a, "b": at.b, "label": at.label}
    listed = {field: [index] for field, index in single.items() if index is not None}
    return listed | ({"choices": list(at.choices)} if at.choices else {})


def has_header(table: ParsedTable, columns: Columns | None, glue: Glue | None) -> bool:
    """Whether the first row of a table names its columns."""
    if glue is not None:
        return glue.header
    names = {clean(cell) for cell in table.rows[0]}
    given = [str(value) for value in (columns or {}).values() if not isinstance(value, (list, tuple))]
    if any(value in names and not value.isdigit() for value in given):
        return True
    return is_header(table.rows[0], table.rows[1:5001])
