"""Files whose examples are to be predicted: with labels or without, each row is one example, in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmlab.data.readers.examples import Example
from lmlab.data.readers.unlabelled import Unlabelled, read_unlabelled

FILMS = ["a good film", "a bad film indeed", "nice", "the film was sad"]


def forms(found: Unlabelled) -> list[tuple[Any, ...]]:
    """What an example holds, without what is empty."""
    return [tuple(part for part in (each.a, each.b, each.choices) if part) for each in found.examples]


def read(name: str, text: str, *, task: Any = "classification", **options: Any) -> list[tuple[Any, ...]]:
    found = read_unlabelled(name, text, task=task, **options)
    assert all(each.label is None for each in found.examples)
    return forms(found)


ONE = [(film,) for film in FILMS]
JSON_TEXTS = "".join(json.dumps({"id": i, "text": film}) + "\n" for i, film in enumerate(FILMS))
SINGLE = {
    "lines": ("x.txt", "\n".join(FILMS)),
    "a column": ("x.tsv", "\n".join(FILMS)),
    "a column with a header": ("x.tsv", "text\n" + "\n".join(FILMS) + "\n"),
    "a column of a csv": ("x.csv", "review\n" + "\n".join(FILMS)),
    "quoted": ("x.csv", "".join(f'"{film}"\n' for film in FILMS)),
    "a test of GLUE": ("SST-2/test.tsv", "index\tsentence\n" + "".join(f"{i}\t{f}\n" for i, f in enumerate(FILMS))),
    "train of CoLA": ("CoLA/train.tsv", "".join(f"gj04\t{i % 2}\t\t{film}\n" for i, film in enumerate(FILMS))),
    "numbers of rows": ("x.tsv", "".join(f"{i}\t{film}\n" for i, film in enumerate(FILMS))),
    "labels": ("x.tsv", "".join(f"{film}\t{'pos' if i % 2 else 'neg'}\n" for i, film in enumerate(FILMS))),
    "labels before": ("x.txt", "".join(f"{i % 2}\t{film}\n" for i, film in enumerate(FILMS))),
    "some labels": ("x.csv", "text,label\n" + "".join(f"{f},{'' if i else 'pos'}\n" for i, f in enumerate(FILMS))),
    "no labels": ("x.csv", "text,label\n" + "".join(f"{film},\n" for film in FILMS)),
    "labels that are none": ("x.csv", "text,label\n" + "".join(f"{film},-\n" for film in FILMS)),
    "JSON lines": ("x.jsonl", JSON_TEXTS),
    "JSON lines of no file": ("standard input", JSON_TEXTS),
    "a JSON list": ("x.json", json.dumps([{"text": film, "label": None} for film in FILMS], indent=1)),
    "fastText": ("x.txt", "".join(f"__label__x {film}\n" for film in FILMS)),
    "TREC": ("x.label", "".join(f"NUM:dist {film}\n" for film in FILMS)),
}


@pytest.mark.parametrize("case", SINGLE)
def test_one_text(case: str) -> None:
    assert read(*SINGLE[case], pair=False) == ONE
    assert read(*SINGLE[case]) == ONE
    assert read(*SINGLE[case], task="tagging") == [(tuple(film.split()),) for film in FILMS] or case in (
        "fastText",
        "TREC",
    )


BOTH = [("a cat sat", "a dog sat"), ("it ran", "yes"), ("a cat sat", "yes"), ("who was it", "it was a dog")]
TABLE = "".join(f"{a}\t{b}\n" for a, b in BOTH)
NUMBERED = "".join(f"{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(BOTH))
PAIRS = {
    "two columns": ("pairs.tsv", TABLE),
    "lines": ("pairs.txt", TABLE),
    "names": ("pairs.tsv", "premise\thypothesis\n" + TABLE),
    "names of no pair": ("pairs.tsv", "id\tfirst_one\tother\n" + NUMBERED),
    "a question and an answer": ("pairs.tsv", "question\tanswer\n" + TABLE),
    "a test of GLUE": ("RTE/test.tsv", "index\tsentence1\tsentence2\n" + NUMBERED),
    "labels": ("pairs.tsv", "".join(f"{a}\t{b}\t{i % 2}\n" for i, (a, b) in enumerate(BOTH))),
    "JSON": ("x.jsonl", "".join(json.dumps({"text_a": a, "text_b": b}) + "\n" for a, b in BOTH)),
}  # fmt: skip


@pytest.mark.parametrize("case", PAIRS)
def test_two_texts(case: str) -> None:
    assert read(*PAIRS[case], pair=True) == BOTH
    assert read(*PAIRS[case], pair=True, task="regression") == BOTH


def test_a_column_may_be_named() -> None:
    text = "one\ttwo\tlabel\n" + "a b c\td e f\tg h i\nj k l\tm n o\tp q r\n"
    assert read("x.tsv", text, pair=True, columns={"a": "label", "b": "one"}) == [
        ("g h i", "a b c"),
        ("p q r", "j k l"),
    ]
    found = read_unlabelled("x.tsv", text, task="classification", pair=False, columns={"text": "2"})
    assert found.notes == ["x.tsv: column two read; not read: one, label"]
    assert forms(found) == [("d e f",), ("m n o",)]


def test_rows_without_a_text_are_counted() -> None:
    found = read_unlabelled(
        "x.tsv", "text\tlabel\na film\tpos\n\n\tneg\nno film\t\n\n\n", task="classification", pair=False
    )
    assert [(each.a, each.line) for each in found.examples] == [("a film", 2), ("no film", 5)]
    assert found.left_out == {"nothing in them": 1, "no text": 1}
    found = read_unlabelled("x.csv", 'text\n"a\n\nfilm"\n\nno film\n\n', task="classification", pair=False)
    assert (forms(found), found.left_out) == ([("a\n\nfilm",), ("no film",)], {"nothing in them": 1})
    found = read_unlabelled("x.txt", "a film\n\nno film\n\n", task="classification", pair=False)
    assert (forms(found), found.left_out) == ([("a film",), ("no film",)], {"no text": 1})
    found = read_unlabelled("x.jsonl", '{"text": ""}\n{"text": "a film"}\n', task="classification", pair=False)
    assert (forms(found), found.left_out) == ([("a film",)], {"no text": 1})


def test_words_with_tags_and_without() -> None:
    sentences = [(("Ada", "ran"),), (("in", "London"),)]
    for name, text in {
        "x.conll": "Ada B-PER\nran O\n\nin O\nLondon B-LOC\n",
        "x.txt": "Ada B-PER\nran O\n\nin O\nLondon B-LOC\n",
        "y.conll": "Ada _\nran _\n\nin _\nLondon _\n",
        "z.conll": "Ada\nran\n\nin\nLondon\n",
        "n.conll": "1\tAda\n2\tran\n\n1\tin\n2\tLondon\n",
        "x.jsonl": '{"tokens": ["Ada", "ran"]}\n{"tokens": ["in", "London"]}\n',
        "t.jsonl": '{"tokens": ["Ada", "ran"], "tags": [1, 0]}\n{"tokens": ["in", "London"], "tags": null}\n',
        "x.conllu": "# text\n" + "\n".join(
            "".join(f"{i}\t{word}\t" + "\t".join("_" * 8) + "\n" for i, word in enumerate(one, 1))
            for one in (("Ada", "ran"), ("in", "London"))
        ),
    }.items():  # fmt: skip
        assert read(name, text, task="tagging") == sentences, name


def test_questions() -> None:
    qas = [{"id": "1", "question": "who ?"}, {"id": "2", "question": "where ?", "answers": []}]
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": " Ada ran", "qas": qas}]}]}
    asked = [("who ?", " Ada ran"), ("where ?", " Ada ran")]
    assert read("x.json", json.dumps(squad), task="spans") == asked
    flat = [{"question": "who ?", "context": " Ada ran"}, {"question": "where ?", "context": " Ada ran", "answers": []}]
    assert read("x.jsonl", "".join(json.dumps(each) + "\n" for each in flat), task="spans") == asked
    chosen = [("who ?", ("Ada", "a cat")), ("where ?", ("here", "there"))]
    rows = "".join(f"{a}\t{b}\t{c}\n" for a, (b, c) in chosen)
    assert read("x.tsv", "question\tchoice1\tchoice2\n" + rows, task="choice") == chosen
    assert read("x.tsv", "question\tchoice1\tchoice2\tanswer\n" + rows.replace("\n", "\t1\n"), task="choice") == chosen
    assert read("x.txt", rows + "why ?\ta\tb\tc\n", task="choice") == [*chosen, ("why ?", ("a", "b", "c"))]
    assert read("x.tsv", rows + "why ?\ta\tb\tc\n", task="choice") == [*chosen, ("why ?", ("a", "b", "c"))]
    listed = "".join(json.dumps({"question": a, "choices": b}) + "\n" for a, b in chosen)
    assert read("x.jsonl", listed, task="choice") == chosen


BAD: list[tuple[str, str, dict[str, Any], str]] = [
    ("x.tsv", "a good film\tit was very bad\n" * 2 + TABLE, {"pair": False}, "which column holds the text .* text=1"),
    ("x.tsv", "text\na film\n", {"pair": True}, "one column .* reads two texts"),
    ("x.tsv", "text\tlabel\na film\tpos\nno film\tneg\n", {"pair": True}, "which columns hold the two texts"),
    ("x.txt", "a film\n", {"pair": True}, "x.txt, line 1: 1 text; give the two"),
    ("x.txt", "who ?\tAda\n", {"task": "choice"}, "line 1: 1 choices"),
    ("x.tsv", "a\tb\tc\td\ne\n", {"pair": True}, "x.tsv, line 2: 1 columns"),
    ("x.txt", " \n\n", {}, "x.txt is empty"),
    ("x.jsonl", '{"text": ""}\n', {"pair": False}, "no row with a text"),
    ("x.jsonl", '{"text": "a"}\n{\n', {"pair": False}, "line 2: not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "options", "words"), BAD)
def test_what_cannot_be_read(name: str, text: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(name, text, **options)


def test_a_place_is_kept() -> None:
    (found,) = read_unlabelled("x.txt", "\na film\n", task="classification").examples
    assert found == Example("a film", source="x.txt", line=2)
