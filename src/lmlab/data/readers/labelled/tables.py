"""Files of rows and columns: TSV, CSV, JSON lines and JSON lists, each row with the line it came from.

There are two kinds of TSV files with the same endings: in GLUE's a quotation mark is an ordinary character, in those of
spreadsheets it encloses a field. A file counts as the second kind only if all of it parses so and something in it (a
doubled mark, a newline inside a field, a column of enclosed fields) shows that it was written so.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lmlab.data.readers.files import shorten
from lmlab.parsing import load_json, load_json_at

LIST_KEYS = ("data", "examples", "rows")
"""The keys under which a JSON object may hold its records."""
Cell = Any
"""A string; in JSON, any value. None for a missing cell."""


class ParsedTable(NamedTuple):
    """Rows of cells; `names` are the names of the columns, from JSON or from a header, if there are any."""

    source: str
    kind: str
    rows: Sequence[Sequence[Cell]]
    lines: Sequence[int]
    names: tuple[str, ...] | None = None
    blank: int = 0  # empty rows before the last row, which were left out

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.rows[0]) if self.names is None else len(self.names)

    def column(self, position: int) -> list[Cell]:
        """Return the cells of a column, counted from 0."""
        return [row[position] for row in self.rows]

    def take_header(self) -> ParsedTable:
        """Return the table with its first row as the names of the columns."""
        names = tuple(str(cell).strip() for cell in self.rows[0])
        if len(self.rows) == 1:
            raise ValueError(f"{self.source} has a header and no row after it; give a file of labelled examples")
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"{self.source}, line {self.lines[0]}: two columns are called {twice[0]!r}; rename one")
        return self._replace(rows=self.rows[1:], lines=self.lines[1:], names=names)

    def drop_uneven(self) -> tuple[ParsedTable, int]:
        """Return the table without rows that have more or fewer cells than the first, and the number of those rows."""
        width = len(self.rows[0])
        kept = [position for position, row in enumerate(self.rows) if len(row) == width]
        even = self._replace(rows=[self.rows[i] for i in kept], lines=[self.lines[i] for i in kept])
        return even, len(self.rows) - len(kept)

    def check_even(self) -> ParsedTable:
        """Return this table; a ValueError names a row with more or fewer cells than the header or the first row."""
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


def parse_tsv(source: str, text: str) -> ParsedTable:
    """Parse tab-separated text, with quotation marks as characters, or as spreadsheets use them."""
    if '"' in text:
        quoted = _read_quoted(source, text, "\t", "TSV")
        if isinstance(quoted, ParsedTable) and _is_even(quoted) and _shows_quoting(text, quoted):
            return quoted
    lines = [(line, number) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    numbers = [number for _, number in lines]
    blank = numbers[-1] - len(numbers) if numbers else 0
    return ParsedTable(source, "TSV", [line.split("\t") for line, _ in lines], numbers, blank=blank)


def parse_csv(source: str, text: str) -> ParsedTable:
    """Parse comma-separated text; semicolons or tabs are recognized if they give rows of equal length."""
    first = text.lstrip("\n").partition("\n")[0]
    signs = sorted(",;\t", key=lambda sign: -first.count(sign))
    tried = [_read_quoted(source, text, sign, "CSV") for sign in signs if sign in first] or [
        _read_quoted(source, text, ",", "CSV")
    ]
    for table in tried:
        if isinstance(table, ParsedTable) and _is_even(table):
            return table
    if isinstance(tried[0], ValueError):
        raise tried[0]
    return tried[0]


def parse_json(source: str, text: str) -> ParsedTable:
    """Parse the objects of a JSON file: one in each line, a list of them, or a list under one of LIST_KEYS."""
    records = list(_read_records(source, text))
    names: dict[str, int] = {}
    for record, _ in records:
        for name in record:
            names.setdefault(name, len(names))
    rows = [[record.get(name) for name in names] for record, _ in records]
    kind = "JSON" if text.lstrip().startswith("[") or len({line for _, line in records}) < len(records) else "JSONL"
    return ParsedTable(source, kind, rows, [line for _, line in records], tuple(names))


def _read_records(source: str, text: str) -> Iterator[tuple[dict[str, Any], int]]:
    try:
        whole = load_json(text)
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
            record = load_json(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{source}, line {number}: not JSON ({error.msg} at column {error.colno})") from None
        if not isinstance(record, dict):
            raise ValueError(f"{source}, line {number}: {shorten(line)} is not an object with named fields")
        yield _flatten(record), number


def _find_list(text: str, whole: Any) -> int | None:
    """Return where the list of records begins, after its bracket; None if each record has its own line."""
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


def _read_list(source: str, text: str, position: int) -> Iterator[tuple[dict[str, Any], int]]:
    line, counted = 1, 0
    found = False
    while (position := _AFTER_ITEM.match(text, position).end()) < len(text) and text[position] != "]":  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, position), position
        record, position = load_json_at(text, position)
        if not isinstance(record, dict):
            raise ValueError(f"{source}, line {line}: {shorten(record)} is not an object with named fields")
        found = True
        yield _flatten(record), line
    if not found:
        raise ValueError(f"{source} is empty: its list has no items")


_AFTER_ITEM = re.compile(r"[\s,]*")


def _flatten(record: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return the fields of nested objects under names with dots: `question.stem`."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{above}{name}.")
        else:
            flat[above + name] = value
    return flat


def _read_quoted(source: str, text: str, sign: str, kind: str) -> ParsedTable | ValueError:
    """Return the rows that the csv module reads, or the error if a quotation mark is not closed as it should."""
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
    return ParsedTable(source, kind, rows, lines, blank=blank)


def _is_even(table: ParsedTable) -> bool:
    return len(table.rows) > 0 and len({len(row) for row in table.rows}) == 1


def _shows_quoting(text: str, table: ParsedTable) -> bool:
    """Whether a TSV that parses with quoting was written with it."""
    literal = [line.split("\t") for line in text.split("\n") if line.strip()]
    if len(literal) != len(table.rows) or any(len(row) != table.width for row in literal):
        return True  # rows are even only if newlines or tabs inside quotation marks belong to a field
    enclosed = [
        [len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in (row[position] for row in literal)]
        for position in range(table.width)
    ]
    if any(all(column[1:]) and len(column) > 1 for column in enclosed):
        return True
    return any(
        '""' in row[position][1:-1]
        for position, column in enumerate(enclosed)
        for row, yes in zip(literal, column, strict=True)
        if yes
    )
