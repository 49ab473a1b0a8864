"""Find which column of a table is the text and which is the label, by the names in its header or by its values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmlab.config import suggest
from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.column_types import (
    MISSING,
    are_classes,
    are_mostly_numbers,
    are_numbers,
    are_row_numbers,
    are_scores,
    clean,
    look_like_labels,
    look_like_text,
)
from lmlab.data.readers.labelled.tables import ParsedTable

Columns = Mapping[str, Any]
"""The columns that a user gives: {"a": "review", "label": 3}; a name, a number from 1, or several for choices."""

FIELDS = {
    "a": "a", "text": "a", "text_a": "a", "question": "a", "sentence": "a", "sentence1": "a", "premise": "a",
    "word": "a",
    "b": "b", "text_b": "b", "sentence2": "b", "hypothesis": "b", "context": "b",
    "label": "label", "score": "label", "answer": "label", "tag": "label",
    "choices": "choices", "choice": "choices",
}  # fmt: skip
"""The names of fields in `--columns`, and the fields that they mean."""

PAIRS = (
    ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("sentence_a", "sentence_b"), ("text_a", "text_b"),
    ("text1", "text2"), ("text_1", "text_2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("#1_string", "#2_string"), ("sent1", "sent2"), ("sent_1", "sent_2"), ("s1", "s2"), ("a", "b"), ("first", "second"),
    ("question", "sentence"), ("question", "passage"), ("question", "context"), ("query", "passage"),
    ("query", "document"), ("query", "text"), ("question", "answer"), ("context", "response"), ("claim", "evidence"),
)  # fmt: skip
TEXTS = (
    "text", "sentence", "review", "content", "comment", "comment_text", "review_text", "review_body", "reviewtext",
    "tweet", "tweet_text", "document", "body", "message", "utterance", "question", "query", "phrase", "sms",
    "headline", "post", "string", "description", "input", "abstract", "title", "premise", "sentence1", "text_a", "a",
    "words",
)  # fmt: skip
LABELS = (
    "label_text", "label_name", "gold_label", "label", "labels", "class", "class_name", "category", "sentiment",
    "stars", "star_rating", "rating", "target", "quality", "is_duplicate", "intent", "emotion", "topic", "polarity",
    "gold", "judgement", "judgment", "entailment_judgment", "entailment_label", "toxic", "spam", "tag", "y", "output",
)  # fmt: skip
SCORES = (
    "score", "similarity", "similarity_score", "relatedness", "relatedness_score", "gold_score", "value", "overall",
    "mark",
)  # fmt: skip
LAST_LABELS = ("answer", "answers")
"""Names of the label column if no other column can be it."""
STEMS = (
    "startphrase", "question", "question_stem", "question.stem", "stem", "query", "prompt", "ctx", "goal", "sentence",
    "sent1", "text", "premise", "context",
)  # fmt: skip
CONTEXTS = ("article", "passage", "context", "story", "premise", "paragraph", "document")
CHOICE_LISTS = ("choices", "options", "endings", "question.choices", "choices.text", "candidates", "answers")
ANSWERS = (
    "answer", "answerkey", "answer_key", "label", "correct", "correct_answer", "correct_option", "answer_idx",
    "answer_index", "gold", "gold_label", "solution", "target",
)  # fmt: skip
CHOICE = re.compile(r"(choice|option|opt|ending|alternative|answer)_?(\d+|[a-h])|()([a-h])")
MOST_ROWS_BY_WORDS = 20
"""The largest number of rows for which a column of single words counts as labels though no word is repeated."""
IDS = re.compile(r"(.*[\W_])?(id|ids|idx|index|guid|uid|uuid|no|number|row)|.*(pair|caption|prompt|q)id\d*|unnamed.*|")


class ColumnIndices(NamedTuple):
    """The columns of a table by their index, from 0; `choices` are several columns, or one that holds lists."""

    a: int
    label: int | None
    b: int | None = None
    choices: tuple[int, ...] = ()


def parse_columns(text: str) -> dict[str, str]:
    """Parse the option `--columns text=2,label=stars`; several choices are joined by +."""
    columns = split_columns(text)
    for field in columns:
        if field not in FIELDS:
            raise ValueError(f"--columns {field}=…: unknown field {field!r}{suggest(field, FIELDS)}")
    return columns


def split_columns(text: str) -> dict[str, str]:
    """Return the columns of `--columns FIELD=COLUMN,…` by field, whatever the fields are."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        field, sign, column = (piece.strip() for piece in part.partition("="))
        if not sign or not field or not column:
            raise ValueError(
                f"--columns {text}: {part!r} is not FIELD=COLUMN; write for instance --columns text=2,label=1"
            )
        columns[field] = column
    return columns


def normalize(name: str) -> str:
    """Return the name of a column in the form of the lists in this file."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def is_header(row: Sequence[Any], rows: Sequence[Sequence[Any]]) -> bool:
    """Whether the first row of a table holds the names of its columns; `rows` are those after it."""
    cells = [clean(cell) for cell in row]
    if len({*cells}) < len(cells) or any(len(cell) > 40 or as_cell_number(cell) for cell in cells):
        return False
    known = {normalize(cell) for cell in cells} & {*TEXTS, *LABELS, *SCORES, *LAST_LABELS, *sum(PAIRS, ())}
    if len(known) > 1:
        return True
    if any(
        cell and cell in {clean(other[index]) for other in rows if len(other) > index}
        for index, cell in enumerate(cells)
    ):
        return False  # it is repeated below, as a label is
    if known:
        return True
    if bool(rows) and any(
        cell.lower() not in MISSING and are_mostly_numbers(other[index] for other in rows if len(other) > index)
        for index, cell in enumerate(cells)
    ):
        return True
    return any(
        _names_labels(cell, [clean(other[index]) for other in rows if len(other) > index])
        for index, cell in enumerate(cells)
    )


def _names_labels(cell: str, below: Sequence[str]) -> bool:
    """Whether a cell is the name of a column of labels: each of a few labels is repeated, and the cell is not."""
    counts = Counter(below)
    return len(below) >= 20 and 2 <= len(counts) <= len(below) // 5 and cell not in counts and min(counts.values()) > 1


def as_cell_number(cell: str) -> bool:
    """Whether a cell that might be the name of a column is a number."""
    return are_numbers([cell])


def find_columns(table: ParsedTable, *, columns: Columns | None, task: str | None) -> ColumnIndices:
    """Return the column of each field: as given, else by its name, else by its values; or a ValueError."""
    given = {field: find_indices(table, value) for field, value in by_field(columns or {}).items()}
    names = [normalize(name) for name in table.names or ()]
    taken = {index for indices in given.values() for index in indices}
    free = {name: index for index, name in reversed([*enumerate(names)]) if index not in taken}
    choices = tuple(given.get("choices", ())) or (
        find_choices(table, free) if task in (None, "choice") and "b" not in given else ()
    )
    if choices:
        return _find_choice_columns(table, given, free, choices)
    if len(taken) < sum(map(len, given.values())):
        raise ValueError(f"{table.source}: one column is given twice by --columns; give each its own")
    label = given["label"][0] if "label" in given else None
    a, b = given.get("a", [None])[0], given.get("b", [None])[0]
    if a is None and b is None and task != "tagging":
        a, b = find_texts(free, has_label=label is not None)
    rest = {name: index for name, index in free.items() if index not in (a, b)}
    if label is None:
        order = (*SCORES, *LABELS) if task == "regression" else (*LABELS, *SCORES, *LAST_LABELS)
        label = next((rest[name] for name in order if name in rest), None)
    if a is None or label is None:
        a, b, label = _find_by_values(table, a, b, label)
    return ColumnIndices(a, label, b)


def is_id(name: str) -> bool:
    """Whether a column of this name only numbers the rows."""
    return IDS.fullmatch(normalize(name)) is not None


def by_field(columns: Columns) -> dict[str, Any]:
    """Return the given columns by field; a ValueError names an unknown field."""
    for field in columns:
        if str(field) not in FIELDS:
            raise ValueError(f"--columns {field}=…: unknown field {field!r}{suggest(str(field), FIELDS)}")
    return {FIELDS[str(field)]: value for field, value in columns.items()}


def find_indices(table: ParsedTable, value: Any) -> list[int]:
    """Return the indices, from 0, of one column, or of several joined by +."""
    several = value if isinstance(value, (list, tuple)) else str(value).split("+")
    return [find_index(table, one) for one in several]


def find_index(table: ParsedTable, value: Any) -> int:
    """Return the index, from 0, of a column given by its name, or by its number from 1."""
    name = str(value).strip()
    for form in (str, normalize):
        formed = [form(known) for known in table.names or ()]
        if form(name) in formed:
            return formed.index(form(name))
    if name.isdigit():
        if not 1 <= int(name) <= table.width:
            raise ValueError(f"{table.source} has no column {name}: it has {table.width}, counted from 1")
        return int(name) - 1
    if table.names is None:
        raise ValueError(
            f"{table.source} has no header, so no column is called {name!r}; give its number, from 1 to {table.width} "
            f"({show_row(table)})"
        )
    raise ValueError(f"{table.source} has no column {name!r}{suggest(name, table.names)}")


def show_row(table: ParsedTable) -> str:
    """The first row, as messages show it."""
    cells = " | ".join(f"{index}: {shorten(clean(cell), 30)}" for index, cell in enumerate(table.rows[0], 1))
    return f"line {table.lines[0]} is {cells}"


def find_choices(table: ParsedTable, free: Mapping[str, int], *, answered: bool = True) -> tuple[int, ...]:
    """The columns of choices, by their names; `answered`: another column must say which is right."""
    for name in CHOICE_LISTS:
        if name in free and isinstance(table.rows[0][free[name]], list):
            return (free[name],)
    families: dict[str, dict[str, int]] = {}
    for name, index in free.items():
        if match := CHOICE.fullmatch(name):
            families.setdefault(match[1] or "", {})[(match[2] or match[4]).rjust(4)] = index
    stem = any(name in free for name in STEMS)
    for family in families.values():
        if len(family) > 1 and stem and (not answered or any(name in free for name in ANSWERS)):
            return tuple(family[suffix] for suffix in sorted(family))
    return ()


def _find_choice_columns(
    table: ParsedTable, given: Mapping[str, list[int]], free: Mapping[str, int], choices: tuple[int, ...]
) -> ColumnIndices:
    rest = {name: index for name, index in free.items() if index not in choices}
    a = given["a"][0] if "a" in given else next((rest[name] for name in STEMS if name in rest), None)
    label = given["label"][0] if "label" in given else next((rest[name] for name in ANSWERS if name in rest), None)
    if a is None or label is None:
        missing = "question" if a is None else "answer"
        raise ValueError(
            f"{table.source}: which column holds the {missing} is not clear ({show_row(table)}); "
            f"choose with --columns {missing}=NAME"
        )
    b = given["b"][0] if "b" in given else next((rest[n] for n in CONTEXTS if n in rest and rest[n] != a), None)
    return ColumnIndices(a, label, b, choices)


def find_texts(free: Mapping[str, int], *, has_label: bool) -> tuple[int | None, int | None]:
    """Return the columns of one text or of two, by their names."""
    for first, second in PAIRS:
        if first in free and second in free:
            others = {*free} - {first, second}
            if second == "answer" and not has_label and not others & {*LABELS, *SCORES}:
                continue  # the answer is the label
            return free[first], free[second]
    return next((free[name] for name in TEXTS if name in free), None), None


def _find_by_values(table: ParsedTable, a: int | None, b: int | None, label: int | None) -> tuple[int, int | None, int]:
    columns = {index: table.column(index) for index in range(table.width)}
    free = [index for index in columns if index not in (a, b, label)]
    if table.names is not None:
        free = [index for index in free if not is_id(table.names[index])]
    if len(free) > 1:
        free = [index for index in free if not are_row_numbers(columns[index])] or free
    if label is None:
        label = guess_label(columns, free)
    if label is None:
        raise ValueError(_ask(table, columns, a))
    if a is None:
        texts = [index for index in free if index != label]
        if len(texts) > 1:
            texts = [index for index in texts if look_like_text(columns[index])]
        if not texts or len(texts) > 2 or (len(texts) == 2 and table.names is not None):
            raise ValueError(_ask(table, columns, None, label))
        a, b = texts[0], texts[1] if len(texts) == 2 else None
    return a, b, label


def guess_label(columns: Mapping[int, Sequence[Any]], free: Sequence[int]) -> int | None:
    """Return the column of labels, by its values; None if it is unclear."""
    likely = [
        index
        for index in free
        if are_scores(columns[index])
        or (look_like_labels(columns[index]) and (are_classes(columns[index]) or not are_numbers(columns[index])))
    ]
    if not likely:  # few rows: single words next to texts
        likely = [index for index in free if all(len(clean(cell).split()) == 1 for cell in columns[index])]
        return likely[0] if len(likely) == 1 and len(columns[likely[0]]) <= MOST_ROWS_BY_WORDS else None
    if len(likely) > 1:
        different = sorted((len({clean(cell) for cell in columns[index]}), index) for index in likely)
        if different[0][0] * 4 <= different[1][0]:
            return different[0][1]
        words = [index for index in likely if not look_like_text(columns[index])]
        return words[0] if len(words) == 1 else None
    return likely[0]


def _ask(table: ParsedTable, columns: Mapping[int, Sequence[Any]], a: int | None, label: int | None = None) -> str:
    """Return the error for a table whose columns are unclear, with an option that may be the right one."""
    if table.width < 2:
        return (
            f"{table.source} has one column only ({show_row(table)}); give a text and a label in each row, "
            f"in columns that a tab separates (in a .csv file a comma), or as fields of JSON"
        )
    sizes = {index: sum(len(clean(cell)) for cell in column) for index, column in columns.items() if index != label}
    if a is None:
        a = max(sizes, key=lambda index: sizes[index])
    if label is None:
        others = {index: len({*map(clean, column)}) for index, column in columns.items() if index != a}
        label = min(others, key=lambda index: others[index])
    name = table.names.__getitem__ if table.names is not None else lambda index: str(index + 1)
    return (
        f"{table.source}: which column is the text and which the label is not clear ({show_row(table)}); "
        f"say it, for instance --columns text={name(a)},label={name(label)}"
    )
