"""Labelled examples in SQuAD's JSON, in folders, and in the files of GLUE; and those of the published sets."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmlab.data.readers.examples import Answer
from lmlab.data.readers.labelled import read_labelled
from lmlab.metrics.tagging import spans

CONTEXT = "Ada wrote it in 1843. She wrote it in London."


def squad(*questions: dict[str, Any]) -> str:
    return json.dumps(
        {"version": "1.1", "data": [{"title": "x", "paragraphs": [{"context": CONTEXT, "qas": questions}]}]}
    )


def question(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"{name} ?", "answers": listed, **more}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_squad(tmp_path: Path) -> None:
    path = write(
        tmp_path / "train.json", squad(question("who", ("Ada", 0)), question("when", ("1843", 16), ("in 1843", 13)))
    )
    labelled = read_labelled(path)
    assert (labelled.task, labelled.format) == ("spans", "SQuAD 1.1")
    second = labelled.train[1]
    assert (second.a, second.b, second.name) == ("when ?", CONTEXT, "when")
    assert second.label == (Answer("1843", 16), Answer("in 1843", 13))
    new = squad(question("who", ("Ada", 0), is_impossible=False), question("why", is_impossible=True))
    newer = read_labelled(write(tmp_path / "new.json", new))
    assert (newer.format, newer.train[1].label) == ("SQuAD 2.0", ())
    with pytest.raises(ValueError, match=r"question why has no answer, but every training question has one"):
        read_labelled(path, valid=tmp_path / "new.json")


def test_flat_questions(tmp_path: Path) -> None:
    rows = [
        {"id": "q1", "question": "who ?", "context": CONTEXT, "answers": {"text": ["Ada"], "answer_start": [0]}},
        {"id": "q2", "question": "why ?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}},
    ]
    for name, text in (
        ("x.jsonl", "\n".join(map(json.dumps, rows))),
        ("x.json", json.dumps(rows)),
        ("y.json", json.dumps({"version": "0.1", "data": rows})),
    ):
        labelled = read_labelled(write(tmp_path / name, text))
        assert (labelled.task, labelled.format) == ("spans", "SQuAD 2.0")
        assert [one.label for one in labelled.train] == [(Answer("Ada", 0),), ()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            squad(question("q7", ("Bob", 0))),
            "question q7: the answer 'Bob' is not at character 0 .* it is not in it",
        ),
        (
            squad(question("q7", ("1843", 15))),
            "question q7: the answer '1843' is not at character 15 .* it is at 16",
        ),
        (squad(question("q7", ("Ada", -1))), "is not at character -1"),
        (squad(question("q7", ("", 3))), "the answer '' is not at character 3"),
        (squad(question("q7")), "question q7 has no answer, and does not say is_impossible"),
        (squad({"id": "q7", "question": "who ?", "answers": [{"text": "Ada"}]}), "a text and an answer_start"),
        (squad({"id": "q7", "answers": []}), "question q7: there is no question"),
        (
            json.dumps(json.loads(squad(question("q7", ("Bob", 0)))), indent=1),
            r"train.json, line \d\d, question q7: the answer",
        ),
        (
            json.dumps({"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": ["0"]}}),
            "must be a number",
        ),
        ('{"data": [{"paragraphs": []}]}', "contains no question"),
        ('{"data": [{"paragraphs": 3}]}', "paragraphs must be a list of objects"),
    ],
)
def test_bad_questions(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        read_labelled(write(tmp_path / "train.json", text))
    assert "\n" not in str(raised.value)
    assert "train.json" in str(raised.value)


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label, text in (("pos", "a moving\nfilm\n"), ("neg", "dull")):
            write(tmp_path / split / label / "0_9.txt", text)
    write(tmp_path / "train" / "unsup" / "0_0.txt", "who knows")
    write(tmp_path / "train" / "urls.txt", "http://…")
    write(tmp_path / "train" / "pos" / "1_9.txt", "\n")
    labelled = read_labelled(tmp_path)
    assert labelled.test is not None
    assert labelled.skipped == {"no text": 1}
    assert [(one.a, one.label) for one in labelled.train] == [("dull", "neg"), ("a moving\nfilm", "pos")]
    assert len(labelled.test) == 2
    assert labelled.valid is None
    assert read_labelled(tmp_path / "train", valid=tmp_path / "test").valid == labelled.test
    write(tmp_path / "test" / "mixed" / "1.txt", "so so")
    with pytest.raises(ValueError, match=r"1.txt: the class 'mixed' of test is not known from training"):
        read_labelled(tmp_path)
    write(tmp_path / "other" / "pos" / "1.txt", "so so")
    with pytest.raises(ValueError, match="neither a file named train nor a folder of texts for each class"):
        read_labelled(tmp_path / "other")


def test_a_folder_of_files_by_split(tmp_path: Path) -> None:
    rows = "text,label\na b,x\nc d,y\n"
    for name in ("train.csv", "validation.csv", "README.md", "test.csv"):
        write(tmp_path / name, rows)
    labelled = read_labelled(tmp_path)
    assert labelled.valid is not None
    assert labelled.test is not None
    write(tmp_path / "test.csv", "id,text\n1,a b\n")
    without = read_labelled(tmp_path)
    assert (without.test, without.notes) == (None, ("test.csv has no labels, and is left out",))
    with pytest.raises(ValueError, match="no column 'label'"):
        read_labelled(tmp_path, test=tmp_path / "test.csv")
    write(tmp_path / "train.tsv", rows)
    with pytest.raises(ValueError, match=r"several files for train \(train.csv and train.tsv\)"):
        read_labelled(tmp_path)


GLUE = {
    "CoLA": ("", ["gj04\t1\t\tIt rains.", "gj04\t0\t*\tIt rain."], "index\tsentence\n0\tIt rains."),
    "SST-2": ("sentence\tlabel", ["fine \t1", "dull \t0"], "index\tsentence\n0\tfine"),
    "QNLI": (
        "index\tquestion\tsentence\tlabel",
        ["0\twho ?\tAda did it\tentailment", "1\twhy ?\tAda did it\tnot_entailment"],
        "index\tquestion\tsentence\n0\twho ?\tAda did it",
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        ["0\t1\t2\twho ?\twho is it ?\t1", "1\t3\t4\tbroken line", "2\t5\t6\twho ?\twhy ?\t0"],
        "id\tquestion1\tquestion2\n0\twho ?\twho is it ?",
    ),
    "WNLI": (
        "index\tsentence1\tsentence2\tlabel",
        ["0\tit fell\tthe cup fell\t1", "1\tit fell\tthe cat fell\t0"],
        "index\tsentence1\tsentence2\n0\tit fell\tthe cup fell",
    ),
}


@pytest.mark.parametrize("name", GLUE)
def test_glue(tmp_path: Path, name: str) -> None:
    header, rows, test = GLUE[name]
    text = "\n".join([header, *rows] if header else rows) + "\n"
    for file in ("train.tsv", "dev.tsv"):
        write(tmp_path / name / file, text)
    write(tmp_path / name / "test.tsv", test + "\n")
    labelled = read_labelled(tmp_path / name)
    assert labelled.format == f"GLUE: {name}"
    assert labelled.metric == {"CoLA": "matthews", "QQP": "f1"}.get(name, "accuracy")
    assert len(labelled.train) == 2
    assert labelled.valid is not None
    assert labelled.test is None
    assert labelled.notes == ("test.tsv has no labels, and is left out",)
    assert labelled.skipped == ({"unequal columns": 2} if name == "QQP" else {})
    assert labelled.train[0].a in ("It rains.", "fine", "who ?", "it fell")


def test_mnli_is_chosen_by_its_matched_file(tmp_path: Path) -> None:
    header = "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label"
    rows = [
        "0\t1\t1n\tfiction\tit rains\tit is wet\tneutral\tentailment",
        "1\t1\t1n\tfiction\tso\tno\tneutral\tneutral",
    ]
    for name in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        write(tmp_path / "MNLI" / f"{name}.tsv", "\n".join([header, *rows]))
    labelled = read_labelled(tmp_path / "MNLI")
    assert (labelled.format, labelled.metric, labelled.train[0].label) == ("GLUE: MNLI", "accuracy", "entailment")
    assert labelled.valid is not None
    assert labelled.valid[0].source.endswith("dev_matched.tsv")


def test_anybodys_table_is_not_glue(tmp_path: Path) -> None:
    labelled = read_labelled(write(tmp_path / "mine.tsv", "sentence\tlabel\na b\tx\nc d\ty\n"))
    assert (labelled.format, labelled.metric) == ("TSV with a header", None)


@pytest.mark.parametrize(
    ("name", "train", "dev", "metric", "commonest"),
    [
        ("CoLA", 8551, 1043, "matthews", ("1", 6023)),
        ("SST-2", 67349, 872, "accuracy", ("1", 37569)),
        ("MRPC", 3667, 408, "f1", ("1", 2473)),
        ("RTE", 2490, 277, "accuracy", ("entailment", 1249)),
        ("STS-B", 5749, 1500, "pearson", None),
        ("SST2_sentences", 6920, 872, None, ("1", 3610)),
    ],
)
def test_real_glue(
    shared_data: Callable[[str], Path], name: str, train: int, dev: int, metric: str | None, commonest: Any
) -> None:
    folder = shared_data("glue") / name
    labelled = read_labelled(folder)
    assert labelled.valid is not None
    assert (len(labelled.train), len(labelled.valid), labelled.metric) == (train, dev, metric)
    if commonest is not None:
        assert Counter(one.label for one in labelled.train).most_common(1) == [commonest]
    else:
        assert (labelled.task, labelled.train[1].label) == ("regression", 3.8)
    alone = read_labelled(folder / "train.tsv", valid=folder / "dev.tsv")
    assert (alone.format, alone.train, alone.valid) == (labelled.format, labelled.train, labelled.valid)
    assert labelled.skipped == {}


def test_real_conll_2003(shared_data: Callable[[str], Path]) -> None:
    labelled = read_labelled(shared_data("conll2003"))
    assert labelled.valid is not None
    assert labelled.scheme == "IOB1"
    assert [len(labelled.train), len(labelled.valid)] == [14041, 3250]
    words = [sum(len(one.a) for one in split) for split in (labelled.train, labelled.valid)]
    assert words == [203621, 51362]
    found = Counter(span.type for one in labelled.train for span in spans(one.label))
    assert found == {"LOC": 7140, "PER": 6600, "ORG": 6321, "MISC": 3438}  # Tjong Kim Sang and De Meulder 2003, table 2


def test_real_conll_2000(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(shared_data("conll2000") / "conll2000.zip") as archive:
        archive.extractall(tmp_path)
    labelled = read_labelled(tmp_path / "conll2000")
    assert labelled.test is not None
    assert (len(labelled.train), len(labelled.test), labelled.scheme) == (8936, 2012, "IOB2")
    assert sum(len(one.a) for one in labelled.train) == 211727


def test_real_conllu(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("ud_english_ewt") / "en_ewt-ud-dev.conllu"
    text = path.read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.split("\n") if line[:1].isdigit()]
    labelled = read_labelled(path)
    assert len(labelled.train) == 2001
    assert [tag for one in labelled.train for tag in one.label] == [row[3] for row in rows if row[0].isdigit()]


def test_real_squad(shared_data: Callable[[str], Path]) -> None:
    labelled = read_labelled(shared_data("squad"))
    assert labelled.valid is not None
    assert (len(labelled.train), len(labelled.valid), labelled.format) == (4000, 500, "SQuAD 1.1")
    assert len({one.b for one in labelled.train}) == 800


def test_real_trec(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(shared_data("trec") / "qc.zip") as archive:
        archive.extractall(tmp_path)
    train = tmp_path / "qc" / "train.txt"
    with pytest.raises(ValueError, match=r"train.txt, line \d+: the byte 0x.. is not UTF-8; .*iconv -f latin1"):
        read_labelled(tmp_path / "qc")
    train.write_text(train.read_text(encoding="latin1"), encoding="utf-8")
    coarse = read_labelled(tmp_path / "qc")
    assert coarse.test is not None
    assert (len(coarse.train), len(coarse.test)) == (5452, 500)
    assert len({one.label for one in coarse.train}) == 6
    fine = read_labelled(tmp_path / "qc", columns={"label": "fine"})
    assert len({one.label for one in fine.train}) == 50


def test_real_movie_reviews(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(shared_data("movie_reviews") / "movie_reviews.zip") as archive:
        archive.extractall(tmp_path)
    labelled = read_labelled(tmp_path / "movie_reviews")
    assert labelled.format == "a folder for each class"
    assert Counter(one.label for one in labelled.train) == {"neg": 1000, "pos": 1000}


def test_reading_imports_no_torch() -> None:
    code = "import sys, lmlab.data.readers.labelled, lmlab.data.corpora.checking; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
