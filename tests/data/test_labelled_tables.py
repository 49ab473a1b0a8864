"""Labelled examples in tables: TSV, CSV, JSON, with and without a header, and the messages when something is wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled import read_examples, read_labelled
from lmlab.data.readers.labelled.columns import parse_columns
from lmlab.data.readers.labelled.formats import find_reader
from lmlab.data.readers.labelled.labels import check_known, find_labels
from lmlab.data.readers.labelled.tables import parse_csv, parse_tsv

GOOD, BAD = "a moving film", "a dull film"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def pairs(labelled: Labelled) -> list[tuple[Any, ...]]:
    """The texts and the label of each training example, without what is None."""
    return [tuple(part for part in (one.a, one.b, one.label) if part is not None) for one in labelled.train]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.tsv", f"text\tlabel\n{GOOD}\tpos\n{BAD}\tneg\n"),
        ("x.tsv", f"{GOOD}\tpos\n{BAD}\tneg\n"),
        ("x.tsv", f"pos\t{GOOD}\nneg\t{BAD}"),
        ("x.txt", f"pos\t{GOOD}\nneg\t{BAD}"),
        ("x.tsv", f"\ufeffLabel\tReview\r\npos\t{GOOD}\r\nneg\t{BAD}\r\n"),
        ("x.tsv", f"text\tlabel\r{GOOD}\tpos\r{BAD}\tneg\r"),
        ("x.tsv", f"id\ttext\tlabel\n7\t{GOOD}\tpos\n8\t{BAD}\tneg\n\n"),
        ("x.csv", f"sentiment,review\npos,{GOOD}\nneg,{BAD}\n"),
        ("x.csv", f'"sentiment";"review"\n"pos";"{GOOD}"\n"neg";"{BAD}"\n'),
        ("x.csv", f",content,category\n0,{GOOD},pos\n1,{BAD},neg\n"),
        ("x.csv", f"{GOOD},pos\n{BAD},neg\n"),
        ("x.jsonl", f'{{"text": "{GOOD}", "label": "pos"}}\n{{"label": "neg", "text": "{BAD}"}}\n'),
        ("x.json", f'[{{"text": "{GOOD}", "label": "pos"}},\n {{"text": "{BAD}", "label": "neg"}}]'),
        ("x.json", f'{{"data": [{{"text": "{GOOD}", "label": "pos"}}, {{"text": "{BAD}", "label": "neg"}}]}}'),
        ("x.txt", f"__label__pos {GOOD}\n__label__neg {BAD}\n"),
        ("x.tsv", f"utterance\tdomain\n{GOOD}\tpos\n{BAD}\tneg\n"),
        ("x.tsv", f"sentence\tgold_label\tannotator\n{GOOD}\tpos\tx\n{BAD}\tneg\tx\n"),
    ],
)
def test_two_reviews_in_many_forms(tmp_path: Path, name: str, text: str) -> None:
    labelled = read_labelled(write(tmp_path / name, text))
    assert labelled.task == "classification"
    assert pairs(labelled) == [(GOOD, "pos"), (BAD, "neg")]
    assert find_labels(labelled.train) == ("neg", "pos")


def test_gzip(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv.gz", gzip.compress(f"text,label\n{GOOD},pos\n{BAD},neg\n".encode()))
    assert pairs(read_labelled(path)) == [(GOOD, "pos"), (BAD, "neg")]


def test_the_line_of_an_example_counts_lines_inside_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'text,label\n"one\ntwo, ""three""",pos\n\nfour,neg\n')
    first, second = read_labelled(path).train
    assert (first.a, first.line, second.line) == ('one\ntwo, "three"', 2, 5)
    assert second.where == f"{path}, line 5"


@pytest.mark.parametrize(
    ("header", "task"),
    [
        ("sentence1\tsentence2\tlabel", "classification"),
        ("premise\thypothesis\tgold_label", "classification"),
        ("text_a\ttext_b\tclass", "classification"),
        ("question\tanswer\tlabel", "classification"),
        (None, "classification"),
    ],
)
def test_pairs(tmp_path: Path, header: str | None, task: str) -> None:
    rows = (
        "it rains now\tit is wet outside\tyes\nthe sun shines\tit is cold here\tno\nshe is here\tshe has left us\tno\n"
    )
    labelled = read_labelled(write(tmp_path / "x.tsv", (f"{header}\n" if header else "") + rows))
    assert labelled.task == task
    assert pairs(labelled)[0] == ("it rains now", "it is wet outside", "yes")


def test_rows_without_agreement_or_without_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [("a b", "c d", "yes"), ("a b", "e f", "-"), ("", "e f", "no"), ("a c", "e f", "no"), ("a c", "e g", "")]
    lines = [json.dumps(dict(zip(("sentence1", "sentence2", "gold_label"), row, strict=True))) for row in rows]
    labelled = read_labelled(write(tmp_path / "snli.jsonl", "\n".join(lines)))
    assert len(labelled.train) == 2
    assert labelled.skipped == {"no label": 2, "no text": 1}


def test_numbers_are_classes_or_scores(tmp_path: Path) -> None:
    def read(labels: list[str], name: str = "label", task: Any = None) -> Labelled:
        text = f"text\t{name}\n" + "".join(f"a text {n}\t{label}\n" for n, label in enumerate(labels))
        return read_labelled(write(tmp_path / "x.tsv", text), task=task)

    stars = read(["1", "5", "3", "5"], "stars")
    assert (stars.task, stars.train[1].label) == ("classification", "5")
    assert "--task regression" in stars.notes[0]
    assert read(["1", "5", "3", "5"], "stars", "regression").train[1].label == 5.0
    assert read(["1.0", "5.0", "3.0"], "stars").train[1].label == "5"
    scores = read(["1.5", "5", "3", "5"], "score")
    assert (scores.task, scores.train[0].label) == ("regression", 1.5)
    assert "--task classification" in scores.notes[0]
    assert read(["1.5", "5", "3", "5"], "score", "classification").train[0].label == "1.5"
    assert read([str(n) for n in range(40)], "label").task == "regression"
    assert read(["0", "1", "1"]).notes == ()
    assert find_labels(read(["10", "9", "-1"]).train) == ("-1", "9", "10")
    with pytest.raises(ValueError, match=r"1 of 2 values in score are not numbers: line 3 'many'; correct them"):
        read(["1", "many"], "score", "regression")


def test_scores_of_pairs_without_a_header(tmp_path: Path) -> None:
    text = "a man plays here\ta man is playing\t4.5\na cat sleeps\ta dog runs fast\t0.25\n"
    labelled = read_labelled(write(tmp_path / "x.tsv", text))
    assert (labelled.task, labelled.train[1].b, labelled.train[1].label) == ("regression", "a dog runs fast", 0.25)


CHOICES = ("question", "choice0", "choice1", "choice2")


@pytest.mark.parametrize(
    ("names", "answers"),
    [
        ((*CHOICES, "answer"), ("0", "2")),
        ((*CHOICES, "label"), ("1", "3")),
        ((*CHOICES, "answer"), ("red", "no")),
        (("question", "choiceA", "choiceB", "choiceC", "answerKey"), ("A", "C")),
        (("sent1", "ending0", "ending1", "ending2", "label"), ("0", "2")),
        (("question", "A", "B", "C", "answer"), ("a", "c")),
    ],
)
def test_choices(tmp_path: Path, names: tuple[str, ...], answers: tuple[str, str]) -> None:
    rows = [
        ("which colour is it ?", "red", "blue", "green", answers[0]),
        ("is it so ?", "yes", "why", "no", answers[1]),
    ]
    text = "\n".join("\t".join(row) for row in (names, *rows))
    labelled = read_labelled(write(tmp_path / "x.tsv", text))
    assert labelled.task == "choice"
    assert [(one.choices, one.label) for one in labelled.train] == [
        (("red", "blue", "green"), 0),
        (("yes", "why", "no"), 2),
    ]


@pytest.mark.parametrize(
    "record",
    [
        {"question": "which ?", "choices": ["x y", "z"], "answer": 1},
        {"question": "which ?", "choices": ["x y", "z"], "answer": "z"},
        {
            "question": {"stem": "which ?", "choices": [{"label": "A", "text": "x y"}, {"label": "B", "text": "z"}]},
            "answerKey": "B",
        },
        {"question": "which ?", "choices": {"text": ["x y", "z"], "label": ["A", "B"]}, "answerKey": "B"},
        {"ctx": "which ?", "endings": ["x y", "z"], "label": 1},
        {"question": "which ?", "article": "some text", "options": ["x y", "z"], "answer": "B"},
    ],
)  # fmt: skip
def test_choices_of_published_sets_in_json(tmp_path: Path, record: dict[str, Any]) -> None:
    other = json.loads(json.dumps(record).replace("which", "who"))
    for name, value in other.items():  # the other answer is right here
        if name in ("answer", "answerKey", "label"):
            other[name] = {1: 0, "z": "x y", "B": "A"}[value]
    labelled = read_labelled(write(tmp_path / "x.jsonl", f"{json.dumps(record)}\n{json.dumps(other)}\n"))
    assert [(one.a, one.choices, one.label) for one in labelled.train] == [
        ("which ?", ("x y", "z"), 1),
        ("who ?", ("x y", "z"), 0),
    ]
    assert labelled.train[0].b == record.get("article")


def test_columns_are_named_or_numbered(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.tsv", f"who\tone\ttwo\tmark\nA\t{GOOD}\tx y z\tpos\nB\t{BAD}\tx y w\tneg\nA\tso so\tx\tneg\n"
    )
    with pytest.raises(ValueError, match=r"is not clear .*--columns text=\w+,label=\w+"):
        read_labelled(path)
    for columns in ({"text": "one", "label": "mark"}, {"a": 2, "label": 4}, {"a": "2", "label": "mark"}):
        assert pairs(read_labelled(path, columns=columns))[0] == (GOOD, "pos")
    both = read_labelled(path, columns={"a": "two", "b": "one", "label": "who"})
    assert pairs(both)[0] == ("x y z", GOOD, "A")
    assert both.columns == {"a": "two", "b": "one", "label": "who"}
    with pytest.raises(ValueError, match="no column 'mrk'; did you mean 'mark'"):
        read_labelled(path, columns={"a": "one", "label": "mrk"})
    with pytest.raises(ValueError, match="no column 9: it has 4"):
        read_labelled(path, columns={"a": 9, "label": 4})
    with pytest.raises(ValueError, match="one column is given twice"):
        read_labelled(path, columns={"a": "one", "label": 2})
    with pytest.raises(ValueError, match="unknown field 'lable'; did you mean 'label'"):
        read_labelled(path, columns={"lable": "mark"})
    bare = write(tmp_path / "y.tsv", f"{GOOD}\tpos\n{BAD}\tneg\n")
    with pytest.raises(ValueError, match="has no header, so no column is called 'text'; give its number"):
        read_labelled(bare, columns={"a": "text", "label": 2})


def test_columns_of_the_command_line() -> None:
    assert parse_columns("text=2, label=star rating") == {"text": "2", "label": "star rating"}
    assert parse_columns("question=q,choices=A+B,answer=k") == {"question": "q", "choices": "A+B", "answer": "k"}
    for wrong, said in (
        ("text", "is not FIELD=COLUMN"),
        ("text=,label=2", "is not FIELD=COLUMN"),
        ("lable=2", "mean 'label'"),
    ):
        with pytest.raises(ValueError, match=said):
            parse_columns(wrong)


PIECES = (
    "text", "label", "\t", ",", "\n", "\n\n", '"', "{", "}", "[", "]", ":", '"text"', '"label"', "1", "0.5", "B-X",
    "I-X", "O", " ", "__label__a", "question", "choice0", "choice1", "answer", '"data"', "-DOCSTART-", "\r", "é",
    "NUM:x w",
    ";", "a b\tx\n", "w O\n", '{"text": "a", "label": "b"}', '{"tokens": ["a"], "tags": ["O"]}',
    '{"question": "q", "choices": [], "answer": 1}',
)  # fmt: skip
pieces = st.sampled_from(PIECES)


@given(
    st.lists(pieces, max_size=30).map("".join),
    st.sampled_from(["tsv", "csv", "json", "jsonl", "txt", "conll", "conllu"]),
)
def test_whatever_is_in_a_file_is_read_or_refused_in_one_line(text: str, ending: str) -> None:
    assume(text.strip())  # an empty file is refused before
    said = ""
    try:
        reader = find_reader(f"x.{ending}", text)
        reader.read(f"x.{ending}", text)
    except ValueError as error:
        said = str(error)
    assert "\n" not in said


def test_a_header_can_be_said(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "text\tlabel\nsome more\tother\nand more\tlabel\n")
    assert len(read_labelled(path).train) == 2
    assert len(read_labelled(path, header=False).train) == 3
    bare = write(tmp_path / "y.tsv", "first text\tpos\nsome more\tneg\nand more\tpos\n")
    assert len(read_labelled(bare, header=True).train) == 2


def test_held_out_files_are_read_as_the_training_file(tmp_path: Path) -> None:
    train = write(tmp_path / "a.tsv", f"text\tlabel\n{GOOD}\tpos\n{BAD}\tneg\n")
    other = write(tmp_path / "b.csv", "label,text\npos,fine\n")
    labelled = read_labelled(train, valid=other, test=str(other))
    assert labelled.valid == labelled.test == [Example("fine", label="pos", source=str(other), line=2)]
    without = write(tmp_path / "c.tsv", "text\tlabl\nfine\tpos\n")
    with pytest.raises(ValueError, match=r"c.tsv has no column 'label'; did you mean 'labl'"):
        read_labelled(train, valid=without)
    headed = write(tmp_path / "d.tsv", f"{GOOD}\tpos\n{BAD}\tneg\n")
    with pytest.raises(ValueError, match=r"begins with a header .* the training file has none"):
        read_labelled(headed, valid=train)


def test_examples_to_score_need_not_be_fit_to_learn_from(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", f"text\tlabel\n{GOOD}\tpos\n{BAD}\tpos\n")
    assert len(read_examples(path, columns={"a": "text", "label": "label"}).train) == 2
    with pytest.raises(ValueError, match="one class only"):
        read_labelled(path)
    with pytest.raises(ValueError, match=r"line 2: the class 'pos' of test is not known from training"):
        check_known(read_examples(path).train, ("neg", "mixed"), split="test")


def test_literal_quotes_of_tsv(tmp_path: Path) -> None:
    """GLUE's quotation marks are characters: a field may begin with one, and one may never be closed."""
    rows = ['" he said .\tno', 'he said " no\tno', '"Great film."\tyes', '"so," he said, "no"\tno']
    table = parse_tsv("x", "\n".join(rows))
    assert [list(row) for row in table.rows] == [row.split("\t") for row in rows]
    assert parse_tsv("x", '"Great film."\tyes\nbad\tno\n').rows[0] == ['"Great film."', "yes"]


texts = st.lists(
    st.lists(st.text(st.sampled_from("ab \"\t,\n';é"), min_size=1, max_size=8), min_size=2, max_size=2),
    min_size=1,
    max_size=5,
)


@given(texts, st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]), st.sampled_from([",", ";", "\t"]))
def test_what_a_spreadsheet_writes_is_read_back(rows: list[list[str]], quoting: Any, sign: str) -> None:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=sign, quoting=quoting, lineterminator="\n")
    writer.writerow(["text", "label"])  # the separator is detected from this line
    writer.writerows(rows)
    table = parse_csv("x.csv", file.getvalue())
    kept = [row for row in rows if any(cell.strip() for cell in row)]
    assert [list(row) for row in table.rows] == [["text", "label"], *kept]
    if sign == "\t" and quoting == csv.QUOTE_ALL:
        assert [list(row) for row in parse_tsv("x.tsv", file.getvalue()).rows] == [["text", "label"], *kept]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.tsv", "", r"x.tsv is empty"),
        ("x.tsv", " \n\n", r"x.tsv is empty"),
        ("x.csv", ",,\n", r"x.csv is empty"),
        ("x.tsv", "text\tlabel\n", r"a header and no row after it"),
        ("x.tsv", "text\tlabel\na b\tpos\nc d\n", r"x.tsv, line 3: 1 columns where line 1 has 2"),
        ("x.tsv", "text\tlabel\na b\tpos\nc d\tneg\tmore\n", r"x.tsv, line 3: 3 columns where line 1 has 2"),
        ("x.csv", 'text,label\n"a b,pos\nc,neg\n', r"x.csv, line 2: a quotation mark is opened and never closed"),
        ("x.tsv", "text\tlabel\na b\tpos\nc d\tpos\n", r"x.tsv has one class only, 'pos', in all 2 examples"),
        ("x.tsv", "text\ttext\tlabel\na\tb\tc\n", r"two columns are called 'text'|is not clear"),
        ("x.tsv", "text\nsome text\n", r"one column only"),
        ("x.txt", "just a text\nand more of it\n", r"x.txt: its format is not known"),
        ("x.jsonl", '{"text": "a", "label": "b"}\n{"text": \n', r"x.jsonl, line 2: not JSON"),
        ("x.jsonl", '{"text": "a", "label": "b"}\n["x"]\n', r"x.jsonl, line 2: .* is not an object"),
        ("x.json", '[{"text": "a", "label": "b"},\n', r"x.json, line 2: not JSON"),
        ("x.json", "[]", r"its list has no items"),
        ("x.jsonl", '{"text": "a", "label": ["b", "c"]}\n{"text": "a", "label": ["b"]}', r"line 1: 2 labels"),
        ("x.txt", "__label__a text\nno label\n", r"x.txt, line 2: no labels"),
        ("x.txt", "__label__a text\n__label__a __label__b text\n", r"x.txt, line 2: 2 labels"),
        ("x.tsv", b"text\tlabel\ncaf\xe9\tpos\n", r"x.tsv, line 2: the byte 0xe9 is not UTF-8; convert .*iconv"),
        ("x.tsv", "text\tlabel\n".encode("utf-16"), r"x.tsv is UTF-16; convert it: iconv"),
        ("x.tsv", b"text\tlabel\na\0b\tpos\n", r"x.tsv, line 2: a NUL byte"),
        ("x.tsv", b"\x89PNG\r\n\x1a\n....", r"x.tsv is not text: it is a PNG image"),
        ("x.tsv.gz", b"\x1f\x8b\x08\x00broken", r"x.tsv.gz is a damaged gzip file"),
        ("x.tsv", "question\tchoice0\tchoice1\tanswer\nwho ?\ta\tb\t0\nwhy ?\tso\tno\t7\n", r"line 3: the answer '7'"),
    ],
)  # fmt: skip
def test_bad_files_are_one_line(tmp_path: Path, name: str, text: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        read_labelled(write(tmp_path / name, text))
    assert "\n" not in str(raised.value)
    assert str(tmp_path / name) in str(raised.value)


def test_other_mistakes(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", f"text\tlabel\n{GOOD}\tpos\n{BAD}\tneg\n")
    with pytest.raises(ValueError, match=r"trian.tsv does not exist; did you mean .*train.tsv\?"):
        read_labelled(tmp_path / "trian.tsv")
    with pytest.raises(ValueError, match="does not exist"):
        read_labelled(train, valid=tmp_path / "nowhere" / "x.tsv")
    strange = write(tmp_path / "dev.tsv", "text\tlabel\nfine\tpos\nwhat\tpso\n")
    with pytest.raises(
        ValueError, match=r"dev.tsv, line 3: the class 'pso' of valid is not known from training \(known: neg, pos\)"
    ):
        read_labelled(train, valid=strange)
    with pytest.raises(ValueError, match="unknown task 'taging'; did you mean 'tagging'"):
        read_labelled(train, task="taging")  # type: ignore[arg-type]
    each = write(tmp_path / "each.tsv", "text\tlabel\n" + "".join(f"text {n}\tlabel {n}\n" for n in range(30)))
    with pytest.raises(ValueError, match="each of its 30 examples has a different class, as 'label 0'"):
        read_labelled(each)
    with pytest.raises(ValueError, match="a table without questions with answers"):
        read_labelled(train, task="spans")


def test_a_header_in_any_language_is_one(tmp_path: Path) -> None:
    """A first row above a column of a few labels, and unlike them, names the columns."""
    rows = [
        f"Das war {word} {number};{'gut' if number % 2 else 'schlecht'}"
        for number, word in enumerate("abcdefghijklmnopqrstuvwxyz")
    ]
    path = tmp_path / "excel.csv"
    path.write_text("\n".join(["Kommentar;Bewertung", *rows]) + "\n", encoding="utf-8-sig")
    found = read_labelled(path)
    assert {example.label for example in found.train} == {"gut", "schlecht"}
    assert found.columns["label"] == "Bewertung"
