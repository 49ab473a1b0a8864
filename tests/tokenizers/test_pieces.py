"""The flags of a vocabulary, on tokenizers of every kind that were really trained."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tokenizers as hf
from tokenizers import models, pre_tokenizers

from lmlab.tokenizers import Tokenizer, train
from lmlab.tokenizers.engines import gpt_engine
from lmlab.tokenizers.pieces import describe_pieces, spell_pieces

TEXT = 'The unhappy café, home at last! "Yes," she said.\n\nUnhappily  two (2) spaces… naïve 日本語。\n'
KINDS = ["characters", "bytes", "words", "bpe:330", "unigram:330", "wordpiece:100", "wordpiece:100,cased"]
NAMES = ("pad", "cls", "sep", "mask")


def trained(spec: str) -> Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(spec, [TEXT] * 4).with_specials(NAMES)


@pytest.mark.parametrize("spec", ["characters", "bytes", "bpe:330", "unigram:330"])
def test_pieces_spell_the_text_with_its_white_space(spec: str) -> None:
    tokenizer = trained(spec)
    texts = spell_pieces(tokenizer)
    ascii_text = TEXT.encode("ascii", errors="ignore").decode()
    assert "".join(texts[token] or "?" for token in tokenizer.encode(ascii_text)) == ascii_text


@pytest.mark.parametrize("spec", KINDS)
def test_special_tokens_stand_for_no_text_and_all_others_for_some(spec: str) -> None:
    tokenizer = trained(spec)
    pieces = describe_pieces(tokenizer)
    named = {tokenizer.boundary, *(tokenizer.special(name) for name in NAMES)}
    if spec.startswith("wordpiece"):
        named.add(tokenizer.engine.token_to_id("[UNK]"))
    assert set(np.flatnonzero(pieces.special).tolist()) == named
    assert not (pieces.special & (pieces.opens | pieces.white | pieces.stop | pieces.closer)).any()


@pytest.mark.parametrize("spec", ["characters", "bytes", "bpe:330", "unigram:330", "words"])
def test_words_are_what_white_space_separates(spec: str) -> None:
    tokenizer = trained(spec)
    ids = np.array(tokenizer.encode(TEXT))
    starts = np.flatnonzero(describe_pieces(tokenizer).begins_word(ids))
    parts = [tokenizer.decode(part).strip() for part in np.split(ids, starts[1:])]
    assert [part for part in parts if part] == TEXT.split()


@pytest.mark.parametrize("spec", ["wordpiece:100", "wordpiece:100,cased"])
def test_words_of_wordpiece_begin_where_no_piece_is_continued(spec: str) -> None:
    tokenizer = trained(spec)
    ids = np.array(tokenizer.encode("a happy home, sadly"))
    begins = describe_pieces(tokenizer).begins_word(ids)
    shown = [tokenizer.show(int(token)) for token in ids]
    assert begins.tolist() == [not piece.startswith("##") for piece in shown]
    assert not begins.all(), "some word has several pieces"


def test_rows_are_looked_at_one_by_one() -> None:
    tokenizer = trained("bpe:330")
    pieces = describe_pieces(tokenizer)
    ids = np.array(tokenizer.encode(TEXT))[:27].reshape(3, 9)
    together = pieces.begins_word(ids)
    for row, begins in zip(ids, together, strict=True):
        assert pieces.begins_word(row).tolist() == begins.tolist()
    assert together[:, 0].all()


def test_a_special_token_is_a_word_and_ends_one() -> None:
    tokenizer = trained("characters")
    ids = np.array(
        [tokenizer.special("cls"), *tokenizer.encode("ab"), tokenizer.special("sep"), *tokenizer.encode("c d")]
    )
    assert describe_pieces(tokenizer).begins_word(ids).tolist() == [1, 1, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("spec", KINDS)
def test_what_can_end_a_sentence(spec: str) -> None:
    tokenizer = trained(spec)
    pieces = describe_pieces(tokenizer)
    texts = spell_pieces(tokenizer)
    stops = {(text or "").strip() for text, stop in zip(texts, pieces.stop, strict=True) if stop}
    assert stops, "the text has stops"
    assert all(set(text) & set(".!?…") for text in stops)
    assert {"home", "last", ",", "Yes,", "2", ")"}.isdisjoint(stops)
    newlines = {token for token in range(tokenizer.vocabulary) if pieces.newline[token]}
    assert bool(newlines) == (not spec.startswith("wordpiece")), "BERT's WordPiece drops newlines"


def test_pieces_of_published_kinds_of_tokenizer() -> None:
    """SentencePiece's ▁ before a word, and GPT's </w> after one."""
    pairs = hf.Tokenizer(
        models.Unigram([("<unk>", 0.0), ("▁the", -1.0), ("▁cat", -1.0), ("s", -1.0), (".", -1.0)], unk_id=0)
    )
    pairs.pre_tokenizer = pre_tokenizers.Metaspace()
    sentencepiece = Tokenizer(pairs)
    ids = np.array(sentencepiece.encode("the cats."))
    assert describe_pieces(sentencepiece).begins_word(ids).tolist() == [True, True, False, False]

    vocabulary = {piece: i for i, piece in enumerate(["<unk>", "the</w>", "cat", "s</w>", ".</w>", "t", "h", "e</w>"])}
    vocabulary |= {"c": 8, "a": 9, "t</w>": 10, "e": 11, "th": 12, "ca": 13}
    merges = [("t", "h"), ("th", "e</w>"), ("c", "a"), ("ca", "t")]
    gpt = Tokenizer(gpt_engine(models.BPE(vocabulary, merges, unk_token="<unk>", end_of_word_suffix="</w>")))
    ids = np.array(gpt.encode("the cats."))
    pieces = describe_pieces(gpt)
    assert [gpt.engine.id_to_token(int(token)) for token in ids] == ["the</w>", "cat", "s</w>", ".</w>"]
    assert pieces.begins_word(ids).tolist() == [True, True, False, True]
    assert pieces.stop[ids].tolist() == [False, False, False, True]
