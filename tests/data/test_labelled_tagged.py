"""Tagged sentences: CoNLL columns, CoNLL-U and JSON lists, and tags that are no legal sequence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmlab.data.readers.labelled import read_labelled
from lmlab.data.readers.labelled.labels import find_labels


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
calls NNS B-NP B-MISC

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
"""


@pytest.mark.parametrize("change", [("", ""), (" ", "\t"), ("\n", "\r\n"), (" ", "  ")])
def test_conll_2003(tmp_path: Path, change: tuple[str, str]) -> None:
    labelled = read_labelled(write(tmp_path / "eng.train", CONLL.replace(*change) if change[0] else CONLL))
    assert (labelled.task, labelled.scheme) == ("tagging", "IOB1")
    assert labelled.format == "CoNLL columns (word, …, tag), IOB1"
    assert [one.a for one in labelled.train] == [("EU", "rejects", "German", "calls"), ("Peter", "Blackburn")]
    assert labelled.train[0].label == ("B-ORG", "O", "B-MISC", "B-MISC")
    assert labelled.train[1].label == ("B-PER", "I-PER")
    assert [one.line for one in labelled.train] == [3, 8]


def test_a_header_above_words_is_none_of_them(tmp_path: Path) -> None:
    labelled = read_labelled(write(tmp_path / "x.tsv", "word\ttag\nEU\tB-ORG\nis\tO\n\nhe\tO\n"))
    assert [(one.a, one.label) for one in labelled.train] == [(("EU", "is"), ("B-ORG", "O")), (("he",), ("O",))]


def test_another_column(tmp_path: Path) -> None:
    path = write(tmp_path / "x.conll", CONLL)
    words = read_labelled(path, columns={"label": 2})
    assert (words.scheme, words.train[0].label) == (None, ("NNP", "VBZ", "JJ", "NNS"))
    chunks = read_labelled(path, columns={"label": "3"})
    assert chunks.train[0].label == ("B-NP", "B-VP", "B-NP", "B-NP")
    swapped = read_labelled(path, columns={"word": 2, "label": 4})
    assert swapped.train[1].a == ("NNP", "NNP")
    with pytest.raises(ValueError, match="has no column 5: it has 4"):
        read_labelled(path, columns={"label": 5})
    with pytest.raises(ValueError, match="cannot be the word and the tag"):
        read_labelled(path, columns={"label": 1})
    with pytest.raises(ValueError, match="no column is called 'ner'; give a number, 1 to 4"):
        read_labelled(path, columns={"label": "ner"})
    with pytest.raises(ValueError, match="tagged words have only word and label"):
        read_labelled(path, columns={"b": 2})


def test_other_schemes_become_iob2(tmp_path: Path) -> None:
    for number, (tags, scheme) in enumerate(
        [("B-A I-A O B-A", "IOB2"), ("B-A E-A O S-A", "IOBES"), ("B-A L-A O U-A", "BILOU"), ("I-A I-A O I-A", "IOB1")]
    ):
        text = "".join(f"w{place} {tag}\n" for place, tag in enumerate(tags.split()))
        labelled = read_labelled(write(tmp_path / f"{number}.txt", text + "\n" + text))
        assert labelled.scheme == scheme
        assert labelled.train[1].label == ("B-A", "I-A", "O", "B-A")


def test_held_out_files_may_have_another_scheme(tmp_path: Path) -> None:
    train = write(tmp_path / "a.iob", "x I-A\ny I-A\n\nz O\n")
    other = write(tmp_path / "b.iob", "x B-A\ny I-A\n\nz O\n")
    labelled = read_labelled(train, valid=other)
    assert labelled.valid is not None
    assert labelled.valid[0].label == labelled.train[0].label == ("B-A", "I-A")
    assert "IOB2 where the training file has IOB1" in labelled.notes[0]


def test_a_kind_of_span_has_both_tags(tmp_path: Path) -> None:
    """CoNLL-2000's test has I-LST; its training text only has B-LST."""
    train = write(tmp_path / "a.iob", "x B-LST\ny O\n\nz O\n")
    labelled = read_labelled(train, valid=write(tmp_path / "b.iob", "x B-LST\ny I-LST\n\nz O\n"))
    assert find_labels(labelled.train, scheme=labelled.scheme) == ("O", "B-LST", "I-LST")
    with pytest.raises(ValueError, match=r"line 1: the tag 'B-NP' of valid is not known from training"):
        read_labelled(train, valid=write(tmp_path / "c.iob", "x B-NP\ny O\n\nz O\n"))


CONLLU = """# text = I haven't
1\tI\tI\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2-3\thaven't\t_\t_\t_\t_\t_\t_\t_\t_
2\thave\thave\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgone\tgo\tVERB\tVBN\t_\t_\t_\t_\t_

# text = New York
1\tNew York\tNew York\tPROPN\tNNP\t_\t0\troot\t_\t_
"""


def test_conllu(tmp_path: Path) -> None:
    labelled = read_labelled(write(tmp_path / "x.conllu", CONLLU))
    assert [one.a for one in labelled.train] == [("I", "have", "n't"), ("New York",)]
    assert labelled.train[0].label == ("PRON", "AUX", "PART")
    assert (labelled.format, labelled.scheme) == ("CoNLL-U (UPOS)", None)
    for name in ("XPOS", "xpos", 5):
        assert read_labelled(tmp_path / "x.conllu", columns={"label": name}).train[0].label == ("PRP", "VBP", "RB")
    assert read_labelled(write(tmp_path / "x.txt", CONLLU)).format == "CoNLL-U (UPOS)"
    with pytest.raises(ValueError, match="there is no tag in column FEATS"):
        read_labelled(tmp_path / "x.conllu", columns={"label": "FEATS"})
    with pytest.raises(ValueError, match="CoNLL-U has no column 'UPSO'; did you mean 'UPOS'"):
        read_labelled(tmp_path / "x.conllu", columns={"label": "UPSO"})


def test_json_lists(tmp_path: Path) -> None:
    rows = [{"id": 1, "tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}, {"tokens": ["so"], "ner_tags": ["O"]}]
    labelled = read_labelled(write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows))))
    assert (labelled.task, labelled.train[0].a, labelled.train[0].label) == (
        "tagging",
        ("EU", "rejects"),
        ("B-ORG", "O"),
    )
    rows[1]["ner_tags"] = []
    with pytest.raises(ValueError, match=r"x.jsonl, line 2: 1 words, but 0 tags"):
        read_labelled(write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows))))
    numbers = json.dumps({"tokens": ["EU"], "ner_tags": [3]})
    with pytest.raises(ValueError, match=r"line 1: the tag 3 is a number; write the names"):
        read_labelled(write(tmp_path / "x.jsonl", numbers))
    late = '{"tokens": ["a", "b"], "tags": ["B-X", "O"]}\n{"tokens": ["a", "b"], "tags": ["O", "I-X"]}\n'
    with pytest.raises(ValueError, match=r"line 2: word 2: the tag 'I-X' is not legal in IOB2"):
        read_labelled(write(tmp_path / "x.jsonl", late))


@pytest.mark.parametrize(
    ("tags", "line", "said"),
    [
        ("B-A I-A O B-A O I-B", 6, "'I-B' is not legal in IOB2: after O"),
        ("B-A I-B B-A I-A B-B", 2, "'I-B' is not legal in IOB2: after B-A"),
        ("S-A O E-A O", 3, "'E-A' is not legal in IOBES: after O"),
        ("B-A O S-A", 2, "'O' is not legal in IOBES: after B-A, whose span has no end"),
        ("S-A O B-A", 3, "its span has no end"),
        ("B-A X-A O", 2, "'X-A' is not legal in IOB2: it begins with none of B-, I- and is not O"),
    ],
)
def test_tags_that_are_no_legal_sequence(tmp_path: Path, tags: str, line: int, said: str) -> None:
    text = "".join(f"w {tag}\n" for tag in tags.split())
    path = write(tmp_path / "x.txt", text + "\nv O\n")
    with pytest.raises(ValueError, match=rf"x.txt, line {line}: the tag .*{said}") as raised:
        read_labelled(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a B-X\nb\n\nc O\nd O\n" + "e O\n" * 20, r"line 2: 1 column where line 1 has 2"),
        ("a B-X\nb N I-X\n\nc O\nd O\n" + "e O\n" * 20, r"line 2: 3 columns where line 1 has 2"),
        ("a O\n\nb O\n", "one tag only, 'O'"),
        ("a B-X\n\nb B-X\n", "one tag only, 'B-X'"),
        ("Ann\nsees\n\nBob\n", r"line 1: there is no tag, only one column \('Ann'\); give a word and its tag"),
    ],
)
def test_bad_columns(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_labelled(write(tmp_path / "x.conll", text))
    with pytest.raises(ValueError, match=r"dev.conll, line 1: 3 columns where the training file has 2"):
        read_labelled(write(tmp_path / "y.conll", "a B-X\nb O\n"), valid=write(tmp_path / "dev.conll", "a N B-X\n"))


@pytest.mark.parametrize(
    ("tags", "like"),
    [("E-PER O", "E-PER"), ("b-per i-per o", "b-per"), ("B_PER O", "B_PER"), ("PER O", None), ("DET X-Y", None)],
)
def test_it_is_reported_that_spans_are_lost_where_no_scheme_is_known(
    tmp_path: Path, tags: str, like: str | None
) -> None:
    rows = "".join(f"w {tag}\n" for tag in tags.split())
    columns = read_labelled(write(tmp_path / "x.conll", f"{rows}\n{rows}"))
    row = {"words": ["w" for _ in tags.split()], "tags": tags.split()}
    lists = read_labelled(write(tmp_path / "x.jsonl", json.dumps(row)))
    for labelled in (columns, lists):
        assert labelled.scheme is None
        assert [like in note for note in labelled.notes] == [True] if like else not labelled.notes
