"""Spelled words: every word keeps its letters, the frequent ones can be predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lmlab.data.corpora.text import prepare_text
from lmlab.models import load_class
from lmlab.tokenizers import Tokenizer, train
from lmlab.tokenizers.files import with_words
from lmlab.tokenizers.spellings import (
    BEGIN_TEXT,
    BEGIN_WORD,
    END_TEXT,
    END_WORD,
    PADDING,
    NewWords,
    Spellings,
    spell,
)
from lmlab.tokenizers.words import read_words

TEXT = "the cat and the dog and the bird\nsee the zebra once\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train("spelled:4", [TEXT])


def letters_of(row: torch.Tensor) -> bytes | list[int]:
    inside = row[row != PADDING].tolist()
    assert inside[0] == BEGIN_WORD
    assert inside[-1] == END_WORD
    return bytes(inside[1:-1]) if max(inside[1:-1], default=0) < 256 else inside[1:-1]


def test_rows_as_elmo_writes_them() -> None:
    """Worked out by hand: the marks around the bytes, padding, and the first 48 bytes of a long word."""
    cat, accent, long = spell([b"cat", "é".encode(), b"x" * 60])
    assert cat[:6].tolist() == [258, 99, 97, 116, 259, 260]
    assert accent[:5].tolist() == [258, 0xC3, 0xA9, 259, 260]
    assert len(long) == 50
    assert long.tolist() == [258, *[ord("x")] * 48, 259]
    assert spell([END_TEXT])[0, :4].tolist() == [258, 257, 259, 260]


def test_only_the_frequent_words_are_predicted(tokenizer: Tokenizer) -> None:
    assert (tokenizer.kind, tokenizer.spec, tokenizer.predicted) == ("spelled", "spelled:4", 4)
    ids = np.array(tokenizer.encode("the cat and the zebra"))
    assert (ids < tokenizer.vocabulary).all()
    assert tokenizer.is_unknown(ids).tolist() == [False, True, False, False, True]
    assert len(set(ids[[1, 4]])) == 2, "they are different words to the reader"
    assert tokenizer.lossy
    assert tokenizer.newline_is_boundary


def test_new_words_keep_their_letters(tokenizer: Tokenizer) -> None:
    text = "the quokka saw a quokka\nin Übersee"
    ids = tokenizer.encode(text)
    assert ids[1] == ids[4] >= tokenizer.vocabulary
    assert ids[1] == tokenizer.encode("quokka")[0], "the same number wherever it is met"
    assert tokenizer.decode(ids) == text
    assert tokenizer.show(ids[1]) == "quokka"
    assert tokenizer.new_words(ids) == ["quokka", "saw", "a", "quokka", "in", "Übersee"]
    rows = Spellings(tokenizer)(torch.tensor(ids))
    assert letters_of(rows[1]) == b"quokka"
    assert letters_of(rows[-1]) == "Übersee".encode()
    assert letters_of(rows[0]) == b"the"
    assert letters_of(rows[5]) == [END_TEXT]


def test_places_of_words(tokenizer: Tokenizer) -> None:
    text = "the  quokka\nsees"
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert [text[first:end] for first, end in offsets] == ["the", "quokka", "\n", "sees"]
    assert read_words(["the", "wombat"], tokenizer).pieces == tokenizer.encode("the wombat")
    with pytest.raises(ValueError, match="is not a word"):
        read_words(["the", ""], tokenizer)


def test_what_is_stored_holds_no_number_of_this_process(tokenizer: Tokenizer) -> None:
    (closed,) = tokenizer.encode_closed(["the quokka"])
    assert closed[1] == tokenizer.unknown
    extended = with_words(tokenizer, ["quokka", "the"])
    assert extended.encode("the cat quokka")[:2] == tokenizer.encode("the cat")
    assert extended.encode_closed(["quokka"])[0][0] == tokenizer.vocabulary
    assert extended.predicted == tokenizer.predicted


def test_a_corpus_knows_the_letters_of_all_its_words(tmp_path: Path) -> None:
    train_text, valid_text = tmp_path / "train.txt", tmp_path / "valid.txt"
    train_text.write_text(TEXT * 3)
    valid_text.write_text("an aardvark and the cat\n" * 3)
    corpus = prepare_text([train_text], valid=[valid_text], tokenizer="spelled:4", cache=tmp_path)
    own = corpus.text_tokenizer
    assert corpus.valid is not None
    assert own.decode(corpus.valid.tokens[1:5].tolist()) == "an aardvark and the"
    assert int(corpus.valid.tokens.max()) < own.vocabulary
    assert Tokenizer.load(corpus.folder / "tokenizer.json").encode("aardvark") == own.encode("aardvark")


@pytest.mark.parametrize("spec", ["bytes", "characters", "words:6", "bpe:270", "wordpiece:70"])
def test_tokens_of_every_kind_have_letters(spec: str) -> None:
    own = train(spec, [TEXT * 4])
    rows = Spellings(own, letters=20)(torch.arange(own.vocabulary))
    assert rows.shape == (own.vocabulary, 20)
    known = rows[own.encode("cat and")]
    read = b"".join(bytes(letters_of(row)) for row in known if not isinstance(letters_of(row), list))
    assert read.replace(b" ", b"").startswith(b"cat" if spec != "words:6" else b"<unk>") or spec == "words:6"
    assert letters_of(rows[own.boundary]) == [END_TEXT]


def test_begin_and_end_of_a_text_may_differ() -> None:
    from lmlab.interop.elmo import open_tokenizer

    own = open_tokenizer()
    rows = Spellings(own)(torch.tensor([own.start, own.boundary]))
    assert [letters_of(row) for row in rows] == [[BEGIN_TEXT], [END_TEXT]]
    assert own.encode("<S>")[0] != own.start, "plain text never becomes a special token"


def test_models_with_a_table_refuse_open_words(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    corpus = prepare_text([text], tokenizer="spelled:4", split=(0.9, 0, 0.1), cache=tmp_path)
    with pytest.raises(ValueError, match="leaves rare words to their letters"):
        load_class("gpt2").Config.from_corpus(corpus)
    assert load_class("elmo").Config.from_corpus(corpus) == {"vocabulary": 4, "unknown": 0}


def test_new_words_are_forgotten_when_there_are_too_many() -> None:
    words = NewWords(room=1000)
    first = words.number("first")
    assert words.number("first") == first
    assert words.word(first) == "first"
    numbers = [words.number(f"word {number}") for number in range(1000)]
    assert len(words._words) == len(words._numbers) < 6
    assert words.words(numbers[-2:]) == ["word 998", "word 999"]
    with pytest.raises(ValueError, match="forgotten"):
        words.word(first)
    assert words.number("first") not in (first, *numbers), "no number is given to another word"
