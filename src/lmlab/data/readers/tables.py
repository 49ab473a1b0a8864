"""Files of rows and columns: TSV, CSV, JSON lines and JSON lists, each row with the line it came from.

TSV comes in two kinds that no name tells apart: GLUE's, in which a quotation mark is a character like any other, and
that of spreadsheets, in which it encloses a field. A TSV is taken for the second only where all of it parses so, and
something in it (a doubled mark, a newline inside a field, a column of enclosed fields) shows that it was written so.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lmlab.data.readers.strict_text import shorten

LIST_KEYS = ("data", "examples", "rows")
"""Under which of them a JSON object may hold its records."""
Cell = Any
"""A string; in JSON whatever stands there. None where there is nothing."""


class Table(NamedTuple):
    """Rows of cells; `names` are those of the columns, where they are known: of JSON, or taken from a header."""

    source: str
    kind: str
    rows: Sequence[Sequence[Cell]]
    lines: Sequence[int]
    names: tuple[str, ...] | None = None
    blank: int = 0  # rows without anything in them that stood before the last, and were left out

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.rows[0]) if self.names is None else len(self.names)

    def column(self, place: int) -> list[Cell]:
        """The cells of a column, counted from 0."""
        return [row[place] for row in self.rows]

    def take_header(self) -> Table:
        """The same table, its first row taken for the names of the columns."""
        names = tuple(str(cell).strip() for cell in self.rows[0])
        if len(self.rows) == 1:
            raise ValueError(f"{self.source} has a header and no row after it; give a file of labelled examples")
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"{self.source}, line {self.lines[0]}: two columns are called {twice[0]!r}; rename one")
        return self._replace(rows=self.rows[1:], lines=self.lines[1:], names=names)

    def drop_uneven(self) -> tuple[Table, int]:
        """The table without rows that have more or fewer cells than the first, and how many those were."""
        width = len(self.rows[0])
        kept = [place for place, row in enumerate(self.rows) if len(row) == width]
        even = self._replace(rows=[self.rows[i] for i in kept], lines=[self.lines[i] for i in kept])
        return even, len(self.rows) - len(kept)

    def check_even(self) -> Table:
        """This table; a ValueError names a row that has more or fewer cells than the header, or the first row."""
        width = self.width if self.rows else 0
        first = "the header" if self.names is not None else f"line {self.lines[0] if self.lines else 1}"
        for row, line in zip(self.rows, self.lines, strict=True):
            if len(row) != width:
                sign = "tab" if self.kind == "TSV" else "comma"
                raise ValueError(
                    f"{self.source}, line {line}: {len(row)} columns where {first} has {width} "
                    f"({shorten(' | '.join(map(str, row)))}); a {sign} inside a text must go, or the text be quoted"
                )
        return self


def parse_tsv(source: str, text: str) -> Table:
    """The rows of tab-separated text, with quotation marks read as characters, or as a spreadsheet writes them."""
    if '"' in text:
        quoted = _read_quoted(source, text, "\t", "TSV")
        if isinstance(quoted, Table) and _is_even(quoted) and _shows_quoting(text, quoted):
            return quoted
    lines = [(line, number) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    numbers = [number for _, number in lines]
    blank = numbers[-1] - len(numbers) if numbers else 0
    return Table(source, "TSV", [line.split("\t") for line, _ in lines], numbers, blank=blank)


def parse_csv(source: str, text: str) -> Table:
    """The rows of comma-separated text; semicolons and tabs are told by the rows being even."""
    first = text.lstrip("\n").partition("\n")[0]
    signs = sorted(",;\t", key=lambda sign: -first.count(sign))
    tried = [_read_quoted(source, text, sign, "CSV") for sign in signs if sign in first] or [
        _read_quoted(source, text, ",", "CSV")
    ]
    for table in tried:
        if isinstance(table, Table) and _is_even(table):
            return table
    if isinstance(tried[0], ValueError):
        raise tried[0]
    return tried[0]


def parse_json(source: str, text: str) -> Table:
    """The objects of a JSON file: one in each line, a list of them, or a list under one of LIST_KEYS."""
    records = list(_read_records(source, text))
    names: dict[str, int] = {}
    for record, _ in records:
        for name in record:
            names.setdefault(name, len(names))
    rows = [[record.get(name) for name in names] for record, _ in records]
    kind = "JSON" if text.lstrip().startswith("[") or len({line for _, line in records}) < len(records) else "JSONL"
    return Table(source, kind, rows, [line for _, line in records], tuple(names))


def _read_records(source: str, text: str) -> Iterator[tuple[dict[str, Any], int]]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        whole = None
        if text.lstrip().startswith("["):
            raise ValueError(f"{source}, line {error.lineno}: not JSON ({error.msg}); correct it there") from None
    if (opened := _find_list(text, whole)) is not None:
        yield from _read_list(source, text, opened)
        return
    if isinstance(whole, dict):
        yield _flatten(whole), 1
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{source}, line {number}: not JSON ({error.msg} at column {error.colno})") from None
        if not isinstance(record, dict):
            raise ValueError(f"{source}, line {number}: {shorten(line)} is no object with named fields")
        yield _flatten(record), number


def _find_list(text: str, whole: Any) -> int | None:
    """Where the list of records begins, just after its bracket; None where each stands in a line of its own."""
    if isinstance(whole, list):
        return text.index("[") + 1
    for key in LIST_KEYS:
        if (
            isinstance(whole, dict)
            and isinstance(whole.get(key), list)
            and all(isinstance(r, dict) for r in whole[key])
        ):
            match = re.search(rf'"{key}"\s*:\s*\[', text)
            return None if match is None else match.end()
    return None


def _read_list(source: str, text: str, place: int) -> Iterator[tuple[dict[str, Any], int]]:
    decoder = json.JSONDecoder()
    line, counted = 1, 0
    found = False
    while (place := _AFTER_ITEM.match(text, place).end()) < len(text) and text[place] != "]":  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, place), place
        record, place = decoder.raw_decode(text, place)
        if not isinstance(record, dict):
            raise ValueError(f"{source}, line {line}: {shorten(record)} is no object with named fields")
        found = True
        yield _flatten(record), line
    if not found:
        raise ValueError(f"{source} is empty: its list holds nothing")


_AFTER_ITEM = re.compile(r"[\s,]*")


def _flatten(record: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Fields of objects in objects, under names with dots: `question.stem`."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{above}{name}.")
        else:
            flat[above + name] = value
    return flat


def _read_quoted(source: str, text: str, sign: str, kind: str) -> Table | ValueError:
    """The rows as the csv module reads them; the error where a quotation mark is not closed, or closed too early."""
    rows: list[list[str]] = []
    lines: list[int] = []
    cleaned = (line.replace("\r", " ") + "\n" for line in text.split("\n"))
    reader = csv.reader(cleaned, delimiter=sign, strict=True)
    limit = csv.field_size_limit(1 << 30)
    begun = 1
    blank = left = 0
    try:
        for row in reader:
            left += 1
            if any(cell.strip() for cell in row):
                rows.append(row)
                lines.append(begun)
                blank, left = blank + left - 1, 0
            begun = reader.line_num + 1
    except csv.Error as error:
        what = "a quotation mark is opened and never closed" if "unexpected end" in str(error) else str(error)
        return ValueError(f'{source}, line {begun}: {what}; inside a quoted text, write "" for each mark')
    finally:
        csv.field_size_limit(limit)
    return Table(source, kind, rows, lines, blank=blank)


def _is_even(table: Table) -> bool:
    return len(table.rows) > 0 and len({len(row) for row in table.rows}) == 1


def _shows_quoting(text: str, table: Table) -> bool:
    """Whether a TSV that parses with quoting was written with it."""
    literal = [line.split("\t") for line in text.split("\n") if line.strip()]
    if len(literal) != len(table.rows) or any(len(row) != table.width for row in literal):
        return True  # it is even only when a newline or a tab may stand inside quotation marks
    enclosed = [
        [len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in (row[place] for row in literal)]
        for place in range(table.width)
    ]
    if any(all(column[1:]) and len(column) > 1 for column in enclosed):
        return True
    return any(
        '""' in row[place][1:-1]
        for place, column in enumerate(enclosed)
        for row, yes in zip(literal, column, strict=True)
        if yes
    )
