"""What is measured adds up to the exact score, whatever the tokenizer and the units."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lmlab.comparison.likelihood import evaluate, read_passage
from lmlab.comparison.shared_test_data import (
    BLOCKS,
    FEWEST_DOCUMENTS,
    NO_CLOZE,
    TestText,
    block_starts,
    make_cloze,
    make_test_text,
    shorten,
)
from lmlab.language_model import LanguageModel
from lmlab.models.ngram import NGram
from lmlab.tokenizers import train

TEXT = "".join(f"Zeile {i}: größer als {i * 7 % 13} — und 😀 so fort, sagt sie.\n" for i in range(120))


def counted(spec: str) -> LanguageModel:
    tokenizer = train(spec, [TEXT])
    config = NGram.Config(order=2, vocabulary=tokenizer.vocabulary, boundary=tokenizer.boundary)
    stream = np.array([tokenizer.boundary, *tokenizer.encode(TEXT), tokenizer.boundary])
    return LanguageModel(model=NGram.fit(stream, config=config), tokenizer=tokenizer)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spec", ["bpe:320", "bytes", "characters", "unigram:300", "words"])
def test_units_add_up_to_the_exact_score(spec: str) -> None:
    model, test = counted(spec), make_test_text([TEXT, "Kurz.\n"], prompt="Zeile")
    scores = evaluate(model, test)
    score = model.score([TEXT, "Kurz.\n"])
    assert sum(scores.measured["bits"]) == pytest.approx(score.nats / math.log(2))
    assert test.sizes.sum() == score.bytes
    assert len(scores.measured["bits"]) == len(test.sizes) > 20
    assert scores.measured["tokens"] == score.tokens


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spec", ["bpe:320", "bytes", "characters", "unigram:300"])
def test_the_passage_is_the_text_with_the_bits_of_its_tokens(spec: str) -> None:
    model, test = counted(spec), make_test_text([TEXT], prompt="Zeile")
    (nats,) = model.score([TEXT]).token_nats
    document, first, last = test.passage
    pieces = read_passage(model.tokenizer, test, nats / math.log(2))
    assert document == 0
    assert "".join(text for text, _ in pieces) == TEXT[first:last]
    ids = model.tokenizer.encode(TEXT)
    before = next(i for i in range(len(ids)) if len(model.tokenizer.decode(ids[: i + 1])) > first)
    assert pieces[0][1] >= nats[before] / math.log(2) - 1e-9
    whole = make_test_text(["ä😀b"], prompt="")
    (nats,) = model.score(["ä😀b"]).token_nats
    assert sum(bits for _, bits in read_passage(model.tokenizer, whole, nats)) == pytest.approx(nats.sum())


def test_bits_of_a_block_are_those_of_its_tokens() -> None:
    """Bytes as tokens: a block's bits are a plain slice."""
    model, test = counted("bytes"), make_test_text([TEXT], prompt="")
    scores = evaluate(model, test)
    (nats,) = model.score([TEXT]).token_nats
    starts = [len(TEXT[:start].encode()) for start in test.starts[0]]
    expected = np.add.reduceat(nats / math.log(2), starts)
    assert scores.measured["bits"] == pytest.approx(expected.tolist())


def test_many_documents_are_the_units() -> None:
    texts = [f"Document {i}.\n" * (1 + i % 3) for i in range(25)]
    test = make_test_text(texts, prompt=None)
    assert test.unit == "documents"
    assert test.sizes.tolist() == [len(text) for text in texts]
    model = counted("bytes")
    expected = [model.score(text).nats / math.log(2) for text in texts]
    assert evaluate(model, test).measured["bits"] == pytest.approx(expected)


@pytest.mark.parametrize("text", [TEXT, "no line end " * 400, "x" * 5000, "a\n" * 3000, "short"])
def test_blocks_cover_the_text_at_line_ends(text: str) -> None:
    starts = block_starts(text, size=200)
    ends = [*starts[1:], len(text)]
    assert starts[0] == 0
    assert all(end - start >= 100 for start, end in zip(starts, ends, strict=True)) or len(starts) == 1
    assert len(starts) <= BLOCKS
    if "\n" in text and max(map(len, text.splitlines())) < 200:
        assert all(text[start - 1] == "\n" for start in starts[1:])


def test_the_prompt_is_plain_words_unless_given() -> None:
    assert make_test_text(["*** 12\nWe were very happy then.\n"], prompt=None).prompt == "We were very happy"
    assert make_test_text(["1 2\n3"], prompt=None).prompt == "1 2 3"
    assert make_test_text(["1 2 3"], prompt="So").prompt == "So"
    assert TestText(["a"], "b").unit == "blocks of lines"


def test_a_part_comes_from_all_over_the_text() -> None:
    many = make_test_text([f"{i} " * 50 + "end.\n" for i in range(100)], prompt="")
    part = shorten(many, characters=4000)
    assert sum(map(len, part.texts)) == pytest.approx(4000, rel=0.1)
    assert {int(text.split()[0]) // 20 for text in part.texts} == set(range(5))
    assert all(text in many.texts for text in part.texts), "short documents stay whole"
    assert len(part.texts) >= FEWEST_DOCUMENTS
    assert shorten(many, characters=10**6) is many


def test_a_part_of_few_long_documents_is_their_beginnings() -> None:
    few = make_test_text(["a b\n" * 5000, "c d\n" * 10, "e f\n" * 5000], prompt="")
    part = shorten(few, characters=2040)
    assert [len(text) for text in part.texts] == [1000, 40, 1000], "what a short one leaves goes to the others"
    assert all(long.startswith(text) for long, text in zip(few.texts, part.texts, strict=True))
    books = make_test_text([f"{i} word " * 3000 for i in range(30)], prompt="")
    part = shorten(books, characters=10_000)
    assert len(part.texts) == pytest.approx(FEWEST_DOCUMENTS, abs=1), "enough documents to draw from"
    assert sum(map(len, part.texts)) == pytest.approx(10_000, rel=0.1)


def test_a_cloze_hides_common_words_of_a_plain_sentence() -> None:
    text = "*** 12, 13\nThe old man went down to the sea and the boat was gone.\nNo man is an island.\n"
    cloze = make_cloze([text])
    sentence = cloze.text
    for answer in cloze.answers:
        sentence = sentence.replace("[MASK]", answer, 1)
    assert sentence == "The old man went down to the sea and the boat was gone"
    assert 2 <= len(cloze.answers) <= 3
    assert "the" in cloze.answers
    assert "[MASK] [MASK]" not in cloze.text
    assert make_cloze(["12 34"]) == NO_CLOZE
    assert make_cloze([""]) == NO_CLOZE
    given = make_test_text([text], prompt="My [MASK] is [MASK].")
    assert (given.prompt, given.cloze.text, given.cloze.answers) == ("My", "My [MASK] is [MASK].", ())
