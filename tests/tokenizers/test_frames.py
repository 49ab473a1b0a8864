"""What stands around a text, on examples worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lmlab.models import create, frame_of
from lmlab.tokenizers import train
from lmlab.tokenizers.frames import Frame, collate, pad_rows, parse_template
from lmlab.tokenizers.words import read_text, read_words
from standins import TEXT

CLS, SEP, BOUNDARY, START = 101, 102, 0, 7
BERT = Frame(templates={"tokens": "cls:0 a:0 sep:0 b:1 sep:1"}, specials={"tokens": {"cls": CLS, "sep": SEP}})
GPT = Frame(
    templates={"tokens": "boundary a [delimiter b] extract"},
    specials={"tokens": {"boundary": BOUNDARY, "delimiter": 50, "extract": 51}},
)
TRANSLATOR = Frame(
    templates={"source": "a boundary", "tokens": "start b boundary"},
    specials={"source": {"boundary": 9}, "tokens": {"start": START, "boundary": BOUNDARY}},
)


def changed(frame: Frame, **settings: object) -> Frame:
    return Frame(**{"templates": frame.templates, "specials": frame.specials, **settings})


def tokens_of(frame: Frame, **parts: list[int]) -> list[list[int]]:
    return [row.inputs["tokens"].pieces for row in frame.rows([parts])]


def test_two_sentences_as_bert_reads_them() -> None:
    (row,) = BERT.rows([{"a": [1, 2], "b": [3]}])
    framed = row.inputs["tokens"]
    assert framed.pieces == [CLS, 1, 2, SEP, 3, SEP]
    assert framed.segments == [0, 0, 0, 0, 1, 1]
    assert framed.parts == ["", "a", "a", "", "b", ""]
    assert framed.numbers == [-1, 0, 1, -1, 0, -1]
    assert framed.positions("a") == {0: 1, 1: 2}
    assert framed.positions("b") == {0: 4}


def test_a_missing_part_goes_with_its_special_tokens() -> None:
    (row,) = BERT.rows([{"a": [1, 2]}])
    assert row.inputs["tokens"].pieces == [CLS, 1, 2, SEP]
    assert row.inputs["tokens"].segments == [0, 0, 0, 0]
    assert tokens_of(BERT, a=[]) == [[CLS, SEP]]
    assert tokens_of(GPT, a=[1], b=[2]) == [[BOUNDARY, 1, 50, 2, 51]]
    assert tokens_of(GPT, a=[1]) == [[BOUNDARY, 1, 51]]


def test_a_target_that_is_yet_to_be_written_is_its_start() -> None:
    assert TRANSLATOR.row(a=[1, 2]) == {"source": [1, 2, 9], "tokens": [START]}
    assert TRANSLATOR.row(a=[1, 2], b=[3]) == {"source": [1, 2, 9], "tokens": [START, 3, BOUNDARY]}
    assert TRANSLATOR.reads == "source"
    assert BERT.reads == "tokens"
    assert BERT.has("cls")
    assert not TRANSLATOR.has("cls")


def test_a_source_that_is_read_backwards_remembers_where_its_pieces_were() -> None:
    (row,) = changed(TRANSLATOR, backwards=("source",)).rows([{"a": [4, 5, 6], "b": [1, 2]}])
    assert row.inputs["source"].pieces == [6, 5, 4, 9]
    assert row.inputs["source"].positions("a") == {2: 0, 1: 1, 0: 2}
    assert row.inputs["tokens"].pieces == [START, 1, 2, BOUNDARY]


@pytest.mark.parametrize(
    ("anchor", "expected"),
    [("first", [CLS, 1, 2, SEP, 11, 12, 13, SEP]), ("last", [CLS, 1, 2, SEP, 13, 14, 15, SEP])],
)
def test_what_is_too_long_is_cut_off_the_longest_part(anchor: str, expected: list[int]) -> None:
    frame = changed(BERT, window=8, anchor=anchor)
    assert tokens_of(frame, a=[1, 2], b=[11, 12, 13, 14, 15]) == [expected]
    assert tokens_of(frame, a=[1, 2], b=[11]) == [[CLS, 1, 2, SEP, 11, SEP]]


def test_two_long_parts_share_the_window() -> None:
    ((*row,),) = tokens_of(changed(BERT, window=8), a=[1] * 9, b=[2] * 9)
    assert (row.count(1), row.count(2)) == (2, 3)


def test_a_strided_part_is_read_in_windows_that_cover_it() -> None:
    question, context = [1, 2], list(range(20, 30))
    rows = changed(BERT, window=9, stride=2).rows([{"a": question, "b": context}, {"a": [3], "b": [4]}])
    assert [row.item for row in rows] == [0, 0, 0, 0, 1]
    assert [row.inputs["tokens"].pieces[4:-1] for row in rows[:4]] == [
        [20, 21, 22, 23], [22, 23, 24, 25], [24, 25, 26, 27], [26, 27, 28, 29],
    ]  # fmt: skip
    for row in rows[:4]:
        framed = row.inputs["tokens"]
        assert framed.pieces[:4] == [CLS, 1, 2, SEP]
        for number, place in framed.positions("b").items():
            assert framed.pieces[place] == context[number]
    long = changed(BERT, window=9, stride=50).rows([{"a": question, "b": context}])  # nothing is left out
    assert sorted({number for row in long for number in row.inputs["tokens"].positions("b")}) == list(range(10))


def test_both_orders_are_two_rows_of_one_item() -> None:
    rows = changed(BERT, orders=("ab", "ba")).rows([{"a": [1], "b": [2, 3]}, {"a": [4]}])
    assert [(row.item, row.order) for row in rows] == [(0, "ab"), (0, "ba"), (1, "a")]
    assert rows[1].inputs["tokens"].pieces == [CLS, 2, 3, SEP, 1, SEP]
    assert rows[1].inputs["tokens"].positions("b") == {0: 1, 1: 2}


def test_pieces_may_be_vectors() -> None:
    frame = Frame(templates={"spellings": "begin a end"}, specials={"spellings": {"begin": [1, 1], "end": [2, 2]}})
    rows = frame.rows([{"a": np.array([[3, 4], [5, 6]])}, {"a": np.array([[7, 8]])}])
    assert rows[0].inputs["spellings"].numbers == [-1, 0, 1, -1]
    found = collate(rows)
    assert found["spellings"].tolist() == [[[1, 1], [3, 4], [5, 6], [2, 2]], [[1, 1], [7, 8], [2, 2], [0, 0]]]
    assert found["lengths"].tolist() == [4, 3]


def test_rows_are_padded_into_what_a_model_takes() -> None:
    found = collate(BERT.rows([{"a": [1, 2], "b": [3]}, {"a": np.array([4], np.uint32)}]), pad=8)
    assert found["tokens"].tolist() == [[CLS, 1, 2, SEP, 3, SEP], [CLS, 4, SEP, 8, 8, 8]]
    assert found["segments"].tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6]
    assert found["lengths"].tolist() == [6, 3]
    found = collate(TRANSLATOR.rows([{"a": [1], "b": [2, 3]}, {"a": [1, 1, 1], "b": []}]))
    assert set(found) == {"source", "lengths", "tokens", "target_lengths"}
    assert found["lengths"].tolist() == [2, 4]
    assert found["target_lengths"].tolist() == [4, 2]
    padded, lengths = pad_rows([[], [1.5]])
    assert padded.shape == (2, 1)
    assert lengths.tolist() == [0, 1]


@pytest.mark.parametrize("frame", [changed(BERT, window=9, stride=2, orders=("ab", "ba"), anchor="last"), TRANSLATOR])
def test_a_frame_is_saved_with_a_run(frame: Frame, tmp_path: Path) -> None:
    frame.save(tmp_path)
    assert Frame.load(tmp_path) == frame
    (tmp_path / "frame.json").write_text('{"templates": {"tokens": "a a"}}')
    with pytest.raises(ValueError, match=r"is damaged.*each of them once"):
        Frame.load(tmp_path)


@pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
def test_the_frame_of_a_model_is_that_of_its_kind() -> None:
    tokenizer = train("wordpiece:120", [TEXT])
    small = {"vocabulary": tokenizer.vocabulary, "width": 8, "heads": 2, "layers": 1}
    bert = frame_of(create("bert", {**small, "window": 8}), tokenizer)
    assert bert.row(a=[5]) == {"tokens": [tokenizer.special("cls"), 5, tokenizer.special("sep")]}
    gpt = frame_of(create("gpt2", {**small, "window": 8}), tokenizer)
    assert gpt.row(a=[5]) == {"tokens": [tokenizer.boundary, 5]}
    source = train("bytes", [TEXT])
    both = {"vocabulary": tokenizer.vocabulary, "width": 8, "heads": 2}
    for start, first in ((None, tokenizer.boundary), (3, 3)):
        model = create("transformer", {**both, "start": start})
        frame = frame_of(model, tokenizer, source, backwards=True)
        assert frame.row(a=[5, 6]) == {"source": [6, 5, source.boundary], "tokens": [first]}


def test_a_token_that_the_tokenizer_has_not_got_is_named_when_it_is_needed() -> None:
    tokenizer = train("bytes", [TEXT])
    model = create("bert", {"vocabulary": 300, "width": 8, "heads": 2, "layers": 1, "window": 8})
    frame = frame_of(model, tokenizer)
    with pytest.raises(ValueError, match="no token for cls"):
        frame.row(a=[5])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("cls sep", "needs parts"),
        ("a sep a", "each of them once"),
        ("a [sep b", "bracket"),
        ("a [sep]", "brackets hold one part"),
        ("a <sep>", "is not understood"),
    ],
)
def test_templates_that_make_no_sense_are_refused(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_template(template)


def test_items_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"parts \['c'\]"):
        BERT.rows([{"a": [1], "c": [2]}])
    with pytest.raises(ValueError, match="no room"):
        changed(BERT, window=4).rows([{"a": [1], "b": [2]}])
    with pytest.raises(ValueError, match="no piece of b fits"):
        changed(BERT, window=6, stride=1).rows([{"a": [1, 2, 3], "b": [2]}])
    with pytest.raises(ValueError, match="stride = 0"):
        changed(BERT, window=6, stride=0)
    with pytest.raises(ValueError, match="order 'ac'"):
        changed(BERT, orders=("ac",))


# Words


@pytest.mark.parametrize("spec", ["wordpiece:120", "bpe:300", "characters", "unigram:300", "words"])
@pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
def test_pieces_know_their_words(spec: str) -> None:
    tokenizer = train(spec, [TEXT])
    words = ["the", "cat", "sat", "on", "the", "mat", "."]
    text = read_words(words, tokenizer)
    assert text.pieces == tokenizer.encode(" ".join(words)) == read_text(" ".join(words), tokenizer).pieces
    firsts = text.first_pieces()
    assert sorted(firsts) == list(range(len(words)))
    for number, word in enumerate(words):
        first, _ = text.offsets[firsts[number]]
        assert " ".join(words)[first:].lstrip().startswith(word)


@pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
def test_a_word_without_pieces_gets_the_unknown_token() -> None:
    tokenizer = train("wordpiece:120", [TEXT])
    words = ["\u200e", "the", "\u200d\u200e", "\u200e", "cat"]  # BERT's normaliser drops them
    text = read_words(words, tokenizer)
    unknown = tokenizer.unknown
    assert text.words == [0, 1, 2, 3, 4]
    assert text.pieces == [unknown, *tokenizer.encode("the"), unknown, unknown, *tokenizer.encode("cat")]
    joined = " ".join(words)
    assert [joined[first:end] for first, end in text.offsets] == words
    with pytest.raises(ValueError, match="is not a word"):
        read_words(["a b"], tokenizer)


def test_tags_of_a_strided_text_are_found_again() -> None:
    """A tagger: pieces -> rows in windows -> vectors -> one vector for each word."""
    tokenizer = train("characters", [TEXT])
    words = ["the", "cat", "sat", "on", "the", "mat"]
    text = read_words(words, tokenizer)
    frame = Frame(
        templates={"tokens": "boundary a"},
        specials={"tokens": {"boundary": tokenizer.boundary}},
        window=8,
        stride=4,
    )
    rows = frame.rows([{"a": text.pieces}])
    batch = collate(rows)["tokens"]
    vectors = torch.nn.functional.one_hot(batch, tokenizer.vocabulary)  # [rows, T, V]
    for word, piece in text.first_pieces().items():
        found = [
            int(vectors[number, row.inputs["tokens"].positions("a")[piece]].argmax())
            for number, row in enumerate(rows)
            if piece in row.inputs["tokens"].positions("a")
        ]
        assert found
        assert set(found) == {tokenizer.encode(words[word][0])[0]}
