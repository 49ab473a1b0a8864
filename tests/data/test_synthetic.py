"""Made-up text has the form of real text: documents, sentences, pairs, and words that follow Zipf's law."""

from __future__ import annotations

import numpy as np
import pytest

from lmlab.data.corpora.synthetic import synthetic_pairs, synthetic_text, synthetic_tokenizer, zipf_ranks
from lmlab.data.loaders.sentences import find_sentences
from lmlab.tokenizers.pieces import describe_pieces

ROLES = ("pad", "cls", "sep", "mask")


def test_the_vocabulary_has_the_size_asked_for() -> None:
    plain, blanks = synthetic_tokenizer(50), synthetic_tokenizer(50, specials=ROLES)
    assert plain.vocabulary == blanks.vocabulary == 50
    assert sorted(blanks.special(name) for name in ROLES) == [46, 47, 48, 49]
    assert describe_pieces(blanks).special[46:].all()
    assert synthetic_tokenizer(3).vocabulary == 3
    with pytest.raises(ValueError, match="6 tokens are special"):
        synthetic_tokenizer(6, specials=ROLES)


def test_documents_are_words_between_boundaries() -> None:
    tokenizer = synthetic_tokenizer(500, specials=ROLES)
    text = synthetic_text(tokenizer, tokens=20_000, seed=3, specials=ROLES)
    assert len(text.tokens) == 20_000 + 11
    places = np.flatnonzero(text.tokens == tokenizer.boundary)
    assert places.tolist() == [0, *(text.documents[1:] - 1), len(text.tokens) - 1]
    words = np.delete(text.tokens, places)
    assert (words.min(), words.max()) == (2, 495), "neither special tokens nor numbers beyond the vocabulary"
    sentences = find_sentences(text.tokens, text.documents, describe_pieces(tokenizer))
    assert 15 < (sentences.ends - sentences.starts).mean() < 30
    assert np.array_equal(text.tokens, synthetic_text(tokenizer, tokens=20_000, seed=3, specials=ROLES).tokens)


def test_pairs_are_sentences_of_like_lengths() -> None:
    tokenizer = synthetic_tokenizer(500)
    pairs = synthetic_pairs(tokenizer, source_vocabulary=900, tokens=60_000, mean=20, longest=64, seed=1)
    source, target = (lengths + 1 for lengths in pairs.lengths)  # with the boundary
    assert len(pairs) == 3000
    assert source.mean() == pytest.approx(20, rel=0.05)
    assert target.mean() == pytest.approx(20, rel=0.05)
    assert 2 <= min(source.min(), target.min()) < 8 < 50 < max(source.max(), target.max()) <= 64
    assert np.corrcoef(source, target)[0, 1] > 0.8
    assert (pairs.source.tokens.max(), pairs.target.tokens.max()) == (899, 499)
    for index in (0, 1, 2999):
        x, y = pairs.row(index)
        assert (tokenizer.boundary in x, tokenizer.boundary in y) == (False, False)
        assert (len(x) + 1, len(y) + 1) == (source[index], target[index])


def test_ranks_follow_zipf() -> None:
    ranks = zipf_ranks(1000, count=200_000, generator=np.random.default_rng(0))
    counts = np.bincount(ranks, minlength=1000)
    assert len(counts) == 1000
    for rank in (1, 2, 4, 9):
        assert counts[0] / counts[rank] == pytest.approx(rank + 1, rel=0.1)
