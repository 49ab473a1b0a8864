"""Detect the format of a file of labelled examples, by its name and its content."""

from __future__ import annotations

from lmlab.data.readers.examples import ExampleReader, TaskName
from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.columns import Columns
from lmlab.data.readers.labelled.conll import ConllReader, TaggedJsonReader, has_lists, is_tagged
from lmlab.data.readers.labelled.lines import FastTextReader, TrecReader, is_fasttext, is_trec
from lmlab.data.readers.labelled.rows import RowReader
from lmlab.data.readers.labelled.squad import SquadReader, is_squad
from lmlab.data.readers.labelled.tables import parse_json

JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
COLUMN_ENDINGS = (".conll", ".conllu", ".conllx", ".iob", ".iob2", ".bio", ".bioes", ".iobes")


def find_reader(
    source: str,
    text: str,
    *,
    task: TaskName | None = None,
    columns: Columns | None = None,
    header: bool | None = None,
    drop_bad_labels: bool = False,
) -> ExampleReader:
    """Return the reader of a file, by its name and its content; a ValueError if the format is unknown."""
    name = source.lower().removesuffix(".gz")
    if name.endswith(JSON_ENDINGS) or text.lstrip()[:2].rstrip() in ("{", "[{", '{"', "["):
        if is_squad(text):
            return SquadReader(source, text)
        if has_lists(parse_json(source, text)):
            return TaggedJsonReader(source, text, columns=columns)
        return RowReader(source, text, kind="JSON", task=task, columns=columns, drop_bad_labels=drop_bad_labels)
    if is_fasttext(text):
        return FastTextReader()
    columns_of_words = name.endswith(COLUMN_ENDINGS) or (not name.endswith(".csv") and is_tagged(source, text))
    if task in (None, "tagging") and header is None and columns_of_words:
        return ConllReader(source, text, columns=columns)
    if is_trec(text):
        return TrecReader(columns)
    lines = [line for line in text.split("\n", 200)[:200] if line.strip()]
    tabs = name.endswith((".tsv", ".tab")) or sum("\t" in line for line in lines) * 2 > len(lines)
    if name.endswith(".csv") or tabs:
        kind = "CSV" if name.endswith(".csv") else "TSV"
        return RowReader(
            source, text, kind=kind, task=task, columns=columns, header=header, drop_bad_labels=drop_bad_labels
        )
    raise ValueError(
        f"{source}: its format is not known (line 1 is {shorten(lines[0])}); give a text and a label in "
        f"each line, separated by a tab, or a .csv, .jsonl, CoNLL or SQuAD file"
    )
