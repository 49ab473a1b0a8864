"""Read examples to predict, from the same formats as labelled ones; labels in the file are ignored.

Each row, line or sentence is one example, in the order of the file; those without a text are left out, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmlab.data.readers.examples import Example, TaskName
from lmlab.data.readers.labelled.choices import read_choices
from lmlab.data.readers.labelled.column_types import are_numbers, are_row_numbers, clean, look_like_text
from lmlab.data.readers.labelled.columns import (
    ANSWERS,
    CONTEXTS,
    LABELS,
    SCORES,
    STEMS,
    TEXTS,
    ColumnIndices,
    Columns,
    by_field,
    find_choices,
    find_index,
    find_indices,
    find_texts,
    guess_label,
    is_id,
    normalize,
    show_row,
)
from lmlab.data.readers.labelled.conll import WORDS, has_lists, has_tabs, is_conllu, is_tagged, read_sentences
from lmlab.data.readers.labelled.formats import COLUMN_ENDINGS, JSON_ENDINGS
from lmlab.data.readers.labelled.glue import find_glue
from lmlab.data.readers.labelled.lines import PREFIX, TREC, is_fasttext, is_trec
from lmlab.data.readers.labelled.rows import has_header
from lmlab.data.readers.labelled.squad import read_questions
from lmlab.data.readers.labelled.tables import ParsedTable, parse_csv, parse_json, parse_tsv
from lmlab.data.readers.labelled.tag_schemes import find_scheme

TABLE_ENDINGS = (*JSON_ENDINGS, *COLUMN_ENDINGS, ".csv", ".tsv", ".tab")
"""Endings of files that are not just lines of text."""


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Examples without labels, and the number of rows that were left out."""

    examples: Sequence[Example]
    left_out: Counter[str] = field(default_factory=Counter)
    """The number of rows, by reason."""
    notes: Sequence[str] = ()
    """Which columns were read, if there are others."""


def read_unlabelled(
    source: str, text: str, *, task: TaskName, pair: bool | None = None, columns: Columns | None = None
) -> Unlabelled:
    """Return the examples of a file of any format of `read_labelled`, or with one per line, its parts between tabs.

    `source` is the name of the file, whose ending is that of the format. `pair` says whether an example is two texts,
    if that is known. A ValueError says what is wrong with the file, or that its columns are not clear.
    """
    name = source.lower().removesuffix(".gz")
    if not text.strip():
        raise ValueError(f"{source} is empty: give a file with one text per line, or a table of texts")
    pair = {"spans": True, "tagging": False}.get(task, pair)
    found: Unlabelled
    if name.endswith(JSON_ENDINGS) or text.lstrip().startswith(('{"', "[{")):
        found = _read_json(source, text, task, pair, columns)
    elif task == "tagging" and (name.endswith(COLUMN_ENDINGS) or _are_columns(name, text)):
        found = _read_columns(source, text, columns)
    elif name.endswith(".csv"):
        found = _read_table(parse_csv(source, text), task, pair, columns)
    elif name.endswith((".tsv", ".tab")) or columns or (task != "choice" and _has_tabs(text)):
        found = _read_table(parse_tsv(source, text), task, pair, columns)
    else:
        found = _read_lines(source, text, task, pair)
    if not found.examples:
        raise ValueError(f"{source} has no row with a text in it; give a file that has some")
    return found


def _read_json(source: str, text: str, task: TaskName, pair: bool | None, columns: Columns | None) -> Unlabelled:
    table = parse_json(source, text)
    if task == "spans" and "paragraphs" in (table.names or ()):
        left_out: Counter[str] = Counter()
        examples = []
        for question in read_questions(source, text):
            if question.text.strip() and question.context.strip():
                examples.append(Example(question.text.strip(), question.context, name=question.name, source=source))
            else:
                left_out["no text"] += 1
        return Unlabelled(examples=examples, left_out=left_out)
    if task == "tagging" and has_lists(table) and not columns:
        names = [name.strip().lower() for name in table.names or ()]
        columns = {"a": (table.names or ())[next(names.index(name) for name in WORDS if name in names)]}
    return _read_table(table, task, pair, columns)


def _read_table(table: ParsedTable, task: TaskName, pair: bool | None, columns: Columns | None) -> Unlabelled:
    if not table.rows:
        raise ValueError(f"{table.source} is empty: all its lines are blank")
    left_out = Counter({"nothing in them": table.blank}) if table.blank else Counter[str]()
    glue = find_glue(table.source, table) if table.names is None and not columns and task != "choice" else None
    if glue is not None and glue.task == task:
        columns = {field: column for field, column in glue.columns.items() if field != "label"}
        if not glue.whole_rows:
            table, uneven = table.drop_uneven()
            left_out += Counter({"unequal columns": uneven})
    named = table.names is not None
    if not named and has_header(table, columns, glue if glue is not None and glue.task == task else None):
        table, named = table.check_even().take_header(), True
    elif task != "choice":
        table = table.check_even()
    if task == "choice" and not named and not columns:
        return _with_examples(_read_bare_choices(table), left_out)
    at = find_text_columns(table, task=task, pair=pair, columns=columns)
    examples = [_read_row(table, row, line, at, task) for row, line in zip(table.rows, table.lines, strict=True)]
    return _with_examples(examples, left_out, notes=_note_columns(table, at))


def _with_examples(examples: Sequence[Example | None], left_out: Counter[str], notes: Sequence[str] = ()) -> Unlabelled:
    kept = [example for example in examples if example is not None]
    left_out += Counter({"no text": len(examples) - len(kept)})
    return Unlabelled(examples=kept, left_out=left_out, notes=notes)


def _read_row(table: ParsedTable, row: Sequence[Any], line: int, at: ColumnIndices, task: TaskName) -> Example | None:
    """Return the example of a row; None if a text is missing."""
    value, a = row[at.a], clean(row[at.a])
    b = None if at.b is None else clean(row[at.b])
    if task == "tagging":
        words = tuple(map(str, value)) if isinstance(value, list) else tuple(a.split())
        return Example(words, source=table.source, line=line) if words else None
    if not a or (b == "" and task != "choice"):
        return None
    if task == "choice":
        return _with_choices(a, b or None, read_choices(row, at), table.source, line)
    if task == "spans" and at.b is not None:
        b = str(row[at.b])  # answers are given by their positions in it
    return Example(a, b, source=table.source, line=line)


def _read_bare_choices(table: ParsedTable) -> list[Example | None]:
    """Return the examples of rows with a question and its choices, whose number may differ."""
    found: list[Example | None] = []
    for row, line in zip(table.rows, table.lines, strict=True):
        cells = [clean(cell) for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        found.append(_with_choices(cells[0], None, tuple(cells[1:]), table.source, line) if cells[0] else None)
    return found


def _with_choices(a: str, b: str | None, choices: tuple[str, ...], source: str, line: int) -> Example:
    if len(choices) < 2:
        raise ValueError(f"{source}, line {line}: {len(choices)} choices; a question needs two or more")
    return Example(a, b, choices, source=source, line=line)


def _note_columns(table: ParsedTable, at: ColumnIndices) -> list[str]:
    """Return a note on the columns that are read, if there are others."""
    used = [index for index in (at.a, at.b, *at.choices) if index is not None]
    names = table.names or [str(index + 1) for index in range(table.width)]
    if len(used) == len(names):
        return []
    read = " and ".join(names[index] for index in used)
    rest = ", ".join(name for index, name in enumerate(names) if index not in used)
    return [f"{table.source}: column{'s' * (len(used) > 1)} {read} read; not read: {rest}"]


def _are_columns(name: str, text: str) -> bool:
    return not name.endswith(".csv") and is_tagged(name, text)


def _read_columns(source: str, text: str, columns: Columns | None) -> Unlabelled:
    """Return the sentences of a file with one word per line, with or without tags."""
    conllu, tabs = is_conllu(source, text), has_tabs(text)
    sentences = list(read_sentences(source, text, tabs=tabs, comments=conllu, tagged=False))
    if not sentences:
        raise ValueError(
            f"{source} contains no words; give lines with a word in each, and a blank line between sentences"
        )
    rows = [row for sentence in sentences for row in sentence.rows]
    numbered = all(row[0] == str(index) for one in sentences for index, row in enumerate(one.rows, 1))
    width = len(rows[0])
    tagged = width == 2 and find_scheme([row[1] for row in one.rows] for one in sentences) is not None
    index = 1 if conllu or (numbered and width > 1 and not tagged) else 0
    for name, value in (columns or {}).items():
        if name in ("a", "word", "text"):
            index = find_index(
                ParsedTable(source, "TSV", rows, [line for one in sentences for line in one.lines]), value
            )
    examples = [
        Example(tuple(row[index] for row in sentence.rows), source=source, line=sentence.lines[0])
        for sentence in sentences
    ]
    return Unlabelled(examples=examples)


def _has_tabs(text: str) -> bool:
    """Whether lines are rows of a table, by the rule of `find_reader`."""
    lines = [line for line in text.split("\n", 200)[:200] if line.strip()]
    return sum("\t" in line.strip() for line in lines) * 2 > len(lines)


def _read_lines(source: str, text: str, task: TaskName, pair: bool | None) -> Unlabelled:
    """Return one example per line; a label at its beginning, as in fastText and TREC, is cut off."""
    lines = list(_cut_labels(text) if task == "classification" else text.split("\n"))
    while lines and not lines[-1].strip():
        lines.pop()
    examples: list[Example | None] = []
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.split("\t")]
        if task == "choice" and line.strip():
            examples.append(_with_choices(cells[0], None, tuple(cells[1:]), source, number))
            continue
        if task == "tagging" or pair is False or len(cells) == 1:
            cells = [line.strip()]
        if pair and len(cells) != 2 and line.strip():
            raise ValueError(
                f"{source}, line {number}: {len(cells)} text{'s' * (len(cells) != 1)}; give the two of a pair in each "
                f"line, with a tab between them"
            )
        if len(cells) > 2:
            raise ValueError(f"{source}, line {number}: {len(cells)} texts with tabs between them; give one or two")
        if not all(cells):
            examples.append(None)
        elif task == "tagging":
            examples.append(Example(tuple(cells[0].split()), source=source, line=number))
        else:
            examples.append(Example(cells[0], cells[1] if len(cells) > 1 else None, source=source, line=number))
    return _with_examples(examples, Counter())


def _cut_labels(text: str) -> Iterator[str]:
    fasttext, trec = is_fasttext(text), is_trec(text)
    for line in text.split("\n"):
        if fasttext:
            yield " ".join(word for word in line.split() if not word.startswith(PREFIX))
        else:
            yield line.partition(" ")[2] if trec and TREC.match(line) else line


def find_text_columns(
    table: ParsedTable, *, task: TaskName, pair: bool | None, columns: Columns | None
) -> ColumnIndices:
    """Return the columns of one text or two, or of a question and its choices: as given, by names, or by values."""
    given = {field: find_indices(table, value) for field, value in by_field(columns or {}).items()}
    names = [normalize(name) for name in table.names or ()]
    taken = {index for indices in given.values() for index in indices}
    free = {name: index for index, name in reversed([*enumerate(names)]) if index not in taken}
    a, b = given.get("a", [None])[0], given.get("b", [None])[0]
    if task == "choice":
        return _find_question(table, a, b, tuple(given.get("choices", ())), free)
    if pair is False and b is not None:
        raise ValueError(f"{table.source}: this run reads one text; leave the second out of --columns")
    if a is not None and (b is not None or pair is not True):
        return ColumnIndices(a, None, b)
    if a is None and b is None:
        a, b = _find_by_name(free, pair)
    if a is None or (b is None and pair):
        found = _find_by_values(table, pair, taken, first=a)
        a, b = found if b is None or a is not None else (found[0], b)
    return ColumnIndices(a, None, b)


def _find_by_name(free: Mapping[str, int], pair: bool | None) -> tuple[int | None, int | None]:
    a, b = find_texts(free, has_label=True)
    if pair is False:
        return next((free[name] for name in TEXTS if name in free), None), None
    return (None, None) if pair and b is None else (a, b)


def _find_by_values(
    table: ParsedTable, pair: bool | None, taken: set[int], first: int | None
) -> tuple[int, int | None]:
    """Return the columns that are neither numbers nor labels."""
    columns = {index: table.column(index) for index in range(table.width)}
    wanted = 2 if pair and first is None else 1
    most = 2 if pair is None else wanted
    indices = [index for index in columns if index not in taken and index != first]
    if table.names is not None:
        known = {*LABELS, *SCORES}
        names = [normalize(name) for name in table.names]
        indices = [index for index in indices if not is_id(names[index]) and names[index] not in known]
    for leave in (are_row_numbers, are_numbers):
        if len(indices) > wanted:
            indices = [index for index in indices if not leave(columns[index])] or indices
    if len(indices) > wanted and (label := guess_label(columns, indices)) is not None:
        indices = [index for index in indices if index != label]
    if len(indices) > most:
        indices = [index for index in indices if look_like_text(columns[index])]
    if not wanted <= len(indices) <= most:
        raise ValueError(_ask(table, pair))
    if first is not None:
        return first, indices[0]
    return indices[0], indices[1] if len(indices) == 2 else None


def _find_question(
    table: ParsedTable, a: int | None, b: int | None, choices: tuple[int, ...], free: Mapping[str, int]
) -> ColumnIndices:
    choices = choices or find_choices(table, free, answered=False)
    rest = {name: index for name, index in free.items() if index not in choices and name not in ANSWERS}
    if a is None:
        a = next((rest[name] for name in STEMS if name in rest), None)
    if a is None or not choices:
        missing = "question" if a is None else "choices"
        raise ValueError(
            f"{table.source}: which column holds the {missing} is not clear ({show_row(table)}); say it, for "
            f"instance --columns question=NAME,choices=FIRST+SECOND"
        )
    if b is None:
        b = next((rest[name] for name in CONTEXTS if name in rest and rest[name] != a), None)
    return ColumnIndices(a, None, b, choices)


def _ask(table: ParsedTable, pair: bool | None) -> str:
    """Return the error for a table whose text columns are not clear."""
    if pair and table.width < 2:
        return f"{table.source} has one column ({show_row(table)}), and this run reads two texts: give both in each row"
    what = "columns hold the two texts" if pair else "column holds the text"
    how = "a=1,b=2" if pair else "text=1"
    return f"{table.source}: which {what} is not clear ({show_row(table)}); say it, for instance --columns {how}"
