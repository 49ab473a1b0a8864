"""Surprisals of words against sums over the tokens of `score`, for tokenizers of every kind."""

from __future__ import annotations

import math

import pytest
import torch

from lmlab.analysis.surprisal import compare_surprisals, read_surprisals
from lmlab.runs.model_files import set_spellings
from lmlab.tokenizers import train
from standins import TEXT, random_model

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
TEXTS = ["the cat sat on the mat .", "  a dog,   ran\nto the naïve café "]


def model(spec: str, kind: str = "lstm"):
    torch.manual_seed(0)
    tokenizer = train(spec, [TEXT])
    return random_model(kind, tokenizer, width=12, hidden=12, layers=1)


@pytest.mark.parametrize("spec", ["words", "characters", "bpe:300", "bytes"])
def test_words_sum_to_the_text(spec: str) -> None:
    lm = model(spec)
    found = read_surprisals(lm, TEXTS)
    for text, each in zip(TEXTS, found.texts, strict=True):
        alone = lm.score(text)
        assert [word.word for word in each.words] == text.split()
        assert all(text[word.start : word.end] == word.word for word in each.words)
        assert math.fsum(word.bits for word in each.words) == pytest.approx(alone.bits, rel=1e-5)
        assert [token.bits for token in each.tokens] == pytest.approx([bits for _, bits in alone.surprisals], rel=1e-4)
    assert found.bits == pytest.approx(lm.score(TEXTS).bits, rel=1e-5)


def test_words_that_the_file_does_not_have_keep_their_letters() -> None:
    tokenizer = train("spelled:6", [TEXT])
    shape = {"vocabulary": tokenizer.predicted, "width": 6, "cells": 9, "filters": [[2, 6]], "letter_width": 4}
    torch.manual_seed(0)
    lm = random_model("lm-1b", tokenizer, **shape)
    set_spellings(lm.model, tokenizer)
    (found,) = read_surprisals(lm, "the quokka sat\non a wombat").texts
    assert [token.token for token in found.tokens] == ["the", "quokka", "sat", "<eos>", "on", "a", "wombat"]
    assert math.fsum(word.bits for word in found.words) == pytest.approx(lm.score("the quokka sat\non a wombat").bits)


def test_a_word_is_the_sum_of_its_letters_and_the_space_before_it() -> None:
    lm = model("characters")
    text = "the cat"
    (found,) = read_surprisals(lm, text).texts
    bits = [bits for _, bits in lm.score(text).surprisals]
    assert [word.bits for word in found.words] == pytest.approx([sum(bits[:3]), sum(bits[3:])], rel=1e-5)
    assert [word.tokens for word in found.words] == [3, 4]


def test_two_models_with_different_tokenizers_are_compared_by_word() -> None:
    first, second = read_surprisals(model("words"), TEXTS[0], run="a"), read_surprisals(model("bytes"), TEXTS[0])
    found = compare_surprisals(first, second)
    for word, a, b in zip(found.texts[0], first.texts[0].words, second.texts[0].words, strict=True):
        assert word.difference == pytest.approx(a.bits - b.bits)
    assert found.table().columns == ("text", "position", "word", "a", "second", "difference")
    with pytest.raises(ValueError, match="different texts"):
        compare_surprisals(first, read_surprisals(model("words"), "the cat"))


def test_what_is_shown_is_the_whole_text() -> None:
    for by_token in (False, True):
        found = read_surprisals(model("bpe:300"), TEXTS[1], by_token=by_token)
        (shown,) = found.figures()
        assert "".join(piece for piece, _ in shown.pieces) == TEXTS[1]
    hostile = read_surprisals(model("characters"), "<script>alert(1)</script> the")._repr_html_()
    assert "<script" not in hostile


def test_unknown_words_are_reported() -> None:
    """Their bits are those of the unknown token, so that a comparison with a run that reads them would mislead."""
    torch.manual_seed(0)
    closed, bytewise = train("words", [TEXT]), train("bytes", [TEXT])
    one, other = (random_model("gpt2", each, width=16, heads=2, layers=1, window=64) for each in (closed, bytewise))
    first, second = (read_surprisals(lm, "the Quaoar sat", run=run) for lm, run in ((one, "words"), (other, "bytes")))
    assert "1 unknown token:" in first.notes()[0]
    assert second.notes() == []
    assert [note.split(":")[0] for note in compare_surprisals(first, second).notes()] == ["words"]
