"""Tagged sentences: the columns of the CoNLL shared tasks, CoNLL-U, and JSON with lists of words and tags.

Tags that mark spans are converted to IOB2, whatever the scheme of the file, so that tasks learn one scheme. A tag that
the scheme of the file does not allow is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from lmlab.config import suggest
from lmlab.data.readers.examples import Example, ExampleReader, NoLabelsError
from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.columns import Columns, normalize
from lmlab.data.readers.labelled.tables import ParsedTable, parse_json
from lmlab.data.readers.labelled.tag_schemes import (
    OUTSIDE,
    SCHEMES,
    SchemeName,
    are_legal,
    convert,
    find_fault,
    find_scheme,
    resemble_spans,
)

CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
DOCUMENT = "-DOCSTART-"
WORD_ID = re.compile(r"\d+([-.]\d+)?")
WORDS = ("tokens", "words", "token", "word")
TAGS = ("ner_tags", "tags", "labels", "ner", "pos_tags", "chunk_tags", "upos", "pos", "label")
SNIFFED = 2000
"""The number of lines by which files of columns are recognized."""


class TaggedRows(NamedTuple):
    """Rows of cells, with the line of each."""

    rows: list[list[str]]
    lines: list[int]


class ConllReader(ExampleReader):
    """Reads files with a word and its tag in each line, and a blank line between sentences."""

    task = "tagging"

    def __init__(self, source: str, text: str, *, columns: Columns | None = None) -> None:
        super().__init__()
        self._tabs = has_tabs(text)
        self._conllu = is_conllu(source, text)
        sentences = list(read_sentences(source, text, tabs=self._tabs, comments=self._conllu))
        if not sentences:
            raise ValueError(f"{source} contains no words; give lines with a word and its tag")
        width = len(sentences[0].rows[0])
        self._width = width
        self._first: tuple[str, list[TaggedRows]] | None = source, sentences
        given = columns or {}
        given_columns = {"a" if field in ("a", "word", "text") else str(field): value for field, value in given.items()}
        if wrong := {*given_columns} - {"a", "label", "tag"}:
            raise ValueError(
                f"--columns {min(wrong)}=…: tagged words have only word and label, for instance --columns label={width}"
            )
        numbered = all(row[0] == str(position) for one in sentences for position, row in enumerate(one.rows, 1))
        word = 1 if self._conllu or (numbered and width > 2) else 0
        tag = CONLLU.index("UPOS") if self._conllu else width - 1
        self._word = self._column_index(source, given_columns["a"]) if "a" in given_columns else word
        self._tag = self._column_index(source, given_columns.get("label", given_columns.get("tag", tag + 1)))
        if self._tag == self._word:
            raise ValueError(
                f"{source}: column {self._word + 1} cannot be the word and the tag; give --columns label=N"
            )
        self.columns = {"a": self._name(self._word), "label": self._name(self._tag)}
        tags = [[row[self._tag] for row in one.rows] for one in sentences]
        self.scheme = find_scheme(tags)
        note_lost_spans(self, tags)
        between = ", …" if self._tag - self._word > 1 else ""
        layout = f"CoNLL columns (word{between}, tag)"
        self.format = (
            f"CoNLL-U ({self.columns['label']})" if self._conllu else f"{layout}, {self.scheme or 'plain tags'}"
        )

    def read(self, source: str, text: str) -> list[Example]:
        """Return the sentences of a file."""
        first, self._first = self._first, None
        if first is not None and first[0] == source:
            sentences = first[1]
        else:
            sentences = list(read_sentences(source, text, tabs=self._tabs, comments=self._conllu))
        examples: list[Example] = []
        for sentence in sentences:
            if len(sentence.rows[0]) != self._width:
                raise ValueError(
                    f"{source}, line {sentence.lines[0]}: {len(sentence.rows[0])} columns where the training file has "
                    f"{self._width}; give files of one layout"
                )
            words = tuple(row[self._word] for row in sentence.rows)
            tags = [row[self._tag] for row in sentence.rows]
            examples.append(Example(words, label=tags, source=source, line=sentence.lines[0]))
        return normalize_tags(self, examples, lines=[sentence.lines for sentence in sentences])

    def _column_index(self, source: str, value: Any) -> int:
        name = str(value).strip()
        if name.isdigit():
            if not 1 <= int(name) <= self._width:
                raise ValueError(f"{source} has no column {name}: it has {self._width}, counted from 1")
            return int(name) - 1
        if self._conllu:
            if name.upper() not in CONLLU:
                raise ValueError(f"{source}: CoNLL-U has no column {name!r}{suggest(name.upper(), CONLLU)}")
            return CONLLU.index(name.upper())
        raise ValueError(f"{source} has no header, so no column is called {name!r}; give a number, 1 to {self._width}")

    def _name(self, position: int) -> str:
        return CONLLU[position] if self._conllu else str(position + 1)


class TaggedJsonReader(ExampleReader):
    """Reads JSON objects with a list of words and a list of tags."""

    task = "tagging"

    def __init__(self, source: str, text: str, *, columns: Columns | None = None) -> None:
        super().__init__()
        table = parse_json(source, text)
        words, tags = _find_lists(table, columns)
        assert table.names is not None
        self.columns = {"a": table.names[words], "label": table.names[tags]}
        found = [[str(tag) for tag in row[tags] or ()] for row in table.rows]
        self.scheme = find_scheme(found)
        note_lost_spans(self, found)
        self.format = f"{table.kind} with words and tags, {self.scheme or 'plain tags'}"

    def read(self, source: str, text: str) -> list[Example]:
        """Return the sentences of a file."""
        table = parse_json(source, text)
        examples: list[Example] = []
        words, tags = (_index_of(table, self.columns[field]) for field in ("a", "label"))
        for row, line in zip(table.rows, table.lines, strict=True):
            if not isinstance(row[words], list) or not isinstance(row[tags], list):
                raise ValueError(
                    f"{source}, line {line}: {self.columns['a']} and {self.columns['label']} must be lists"
                )
            if len(row[words]) != len(row[tags]):
                raise ValueError(f"{source}, line {line}: {len(row[words])} words, but {len(row[tags])} tags")
            if not row[words]:
                self.skipped["no text"] += 1
                continue
            if not all(isinstance(tag, str) for tag in row[tags]):
                raise ValueError(
                    f"{source}, line {line}: the tag {row[tags][0]!r} is a number; write the names of the tags instead"
                )
            a, label = tuple(map(str, row[words])), list(row[tags])
            examples.append(Example(a, label=label, source=source, line=line))
        return normalize_tags(self, examples, lines=None)


def note_lost_spans(reader: ExampleReader, sentences: Sequence[Sequence[str]]) -> None:
    """Add a note if tags look as if they marked spans, but are read as plain tags."""
    if reader.scheme is None and (like := resemble_spans({tag for tags in sentences for tag in tags})) is not None:
        reader.note(
            f"tags such as {like} look like spans, but are in none of the schemes {', '.join(SCHEMES)} (capital "
            "letters, B-PER I-PER O), so single tags are trained and scored by accuracy, not spans by F1"
        )


def normalize_tags(
    reader: ExampleReader, examples: list[Example], *, lines: Sequence[Sequence[int]] | None
) -> list[Example]:
    """Return the examples with checked tags in IOB2; `lines` are those of the words, if each has its own."""
    if not examples:
        return []
    if all(tag in ("_", "-X-", "") for example in examples for tag in example.label):
        raise NoLabelsError(
            f"{examples[0].source}: there is no tag in column {reader.columns['label']}; name another column"
        )
    if reader.scheme is None:
        return [example._replace(label=tuple(example.label)) for example in examples]
    scheme = _choose_scheme(cast(SchemeName, reader.scheme), examples)
    if scheme != reader.scheme:
        reader.note(f"{examples[0].source} has {scheme} where the training file has {reader.scheme}; both become IOB2")
    legal = are_legal((example.label for example in examples), scheme)
    for index, example in enumerate(examples if not legal else ()):
        if (fault := find_fault(example.label, scheme)) is not None:
            line = example.line if lines is None else lines[index][fault.position]
            word = f"word {fault.position + 1}: " if lines is None else ""
            raise ValueError(
                f"{example.source}, line {line}: {word}the tag {example.label[fault.position]!r} is not legal in "
                f"{scheme}: {fault.why}; correct it"
            )
    return [example._replace(label=convert(example.label, source=scheme, target="IOB2")) for example in examples]


def read_sentences(source: str, text: str, *, tabs: bool, comments: bool, tagged: bool = True) -> Iterator[TaggedRows]:
    """Yield the sentences of a file of columns; a ValueError names a line with more or fewer columns than the first."""
    sentence = TaggedRows([], [])
    width = first = 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if not line.strip():
            if sentence.rows:
                yield sentence
                sentence = TaggedRows([], [])
            continue
        if comments and line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.rstrip("\n").split("\t")] if tabs else line.split()
        if cells[0] == DOCUMENT:
            continue
        if not width:
            width, first = len(cells), number
            if normalize(cells[0]) in WORDS and normalize(cells[-1]) in (*TAGS, "tag"):
                continue  # a header
        if tagged and width < 2:
            raise ValueError(
                f"{source}, line {number}: there is no tag, only one column ({shorten(line)}); give a word and its tag "
                "in each line, separated by white space or tabs, and an empty line after each sentence"
            )
        if len(cells) != width:
            raise ValueError(
                f"{source}, line {number}: {len(cells)} column{'s' * (len(cells) != 1)} where line {first} has {width} "
                f"({shorten(line)}); each line is a word … and its tag, and a blank line ends a sentence"
            )
        if comments and not cells[0].isdigit():  # a multiword range 1-2, or an empty node 1.1
            if WORD_ID.fullmatch(cells[0]) is None:
                raise ValueError(
                    f"{source}, line {number}: {cells[0]!r} is not the number of a word in CoNLL-U; correct it"
                )
            continue
        sentence.rows.append(cells)
        sentence.lines.append(number)


def is_conllu(source: str, text: str) -> bool:
    """Whether a file is CoNLL-U: ten columns, and the first one numbers the words."""
    if source.lower().removesuffix(".gz").endswith(".conllu"):
        return True
    rows = [line.split("\t") for line in text.split("\n", SNIFFED)[:SNIFFED] if line.strip() and line[0] != "#"]
    return bool(rows) and all(len(row) == len(CONLLU) and WORD_ID.fullmatch(row[0]) for row in rows)


def is_tagged(source: str, text: str) -> bool:
    """Whether a file has a word in each line: columns, with blank lines between sentences, or tags that mark spans."""
    if is_conllu(source, text):
        return True
    head = text.split("\n", SNIFFED)[:SNIFFED]
    tabs = has_tabs(text)
    rows = [line.split("\t") if tabs else line.split() for line in head if line.strip()]
    rows = [row for row in rows if row[0] != DOCUMENT]
    if not rows or any(" " in row[0].strip() for row in rows):
        return False
    widths = {len(row) for row in rows}
    marks = find_scheme([[row[-1] for row in rows]]) is not None
    if len(widths) > 1:
        common = max(widths, key=lambda width: sum(len(row) == width for row in rows))
        return marks and common > 1 and sum(len(row) == common for row in rows) > 0.9 * len(rows)
    blank = any(not line.strip() for line in "\n".join(head).strip("\n").split("\n"))
    return min(widths) > 1 and (blank or (marks and OUTSIDE in {row[-1] for row in rows}))


def has_tabs(text: str) -> bool:
    """Whether columns are separated by tabs, so that a word may contain a space."""
    lines = [line for line in text.split("\n", SNIFFED)[:SNIFFED] if line.strip() and line[0] != "#"]
    return bool(lines) and all("\t" in line.strip() or line.startswith(DOCUMENT) for line in lines)


def has_lists(table: ParsedTable) -> bool:
    """Whether JSON objects hold a list of words."""
    return any(
        normalize(name) in WORDS and isinstance(table.rows[0][position], list)
        for position, name in enumerate(table.names or ())
    )


def _find_lists(table: ParsedTable, columns: Columns | None) -> tuple[int, int]:
    names = [normalize(name) for name in table.names or ()]
    words = next((names.index(name) for name in WORDS if name in names), 0)
    tags = next(
        (names.index(name) for name in TAGS if name in names and isinstance(table.rows[0][names.index(name)], list)),
        None,
    )
    for field, name in (columns or {}).items():
        if field in ("a", "word", "text"):
            words = _index_of(table, name)
        else:
            tags = _index_of(table, name)
    if tags is None:
        raise ValueError(f"{table.source} has words and no list of tags; name it: --columns label=NAME")
    return words, tags


def _index_of(table: ParsedTable, name: Any) -> int:
    names: Sequence[str] = table.names or ()
    if str(name) not in names:
        raise ValueError(f"{table.source} has no field {str(name)!r}{suggest(str(name), names)}")
    return names.index(str(name))


def _choose_scheme(expected: SchemeName, examples: Sequence[Example]) -> SchemeName:
    """Return the scheme of a file: that of the training file if it fits, else its own."""
    fitting = (scheme for scheme in (expected, *SCHEMES) if are_legal((one.label for one in examples), scheme))
    return next(fitting, expected)
