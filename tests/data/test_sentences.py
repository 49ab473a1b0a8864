"""The sentence splitter on hand-made texts, and pairs of segments checked against their texts by brute force."""

from __future__ import annotations

import re
import threading
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

from framed import encoder_frame
from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders import sentences as module
from lmlab.data.loaders.rows import Rows
from lmlab.data.loaders.sentence_pairs import SentencePairs
from lmlab.data.loaders.sentences import find_sentences
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers import Tokenizer, train
from lmlab.tokenizers.pieces import Pieces, describe_pieces

NAMES = ("pad", "cls", "sep", "mask")
SPACED = ["characters", "bytes", "bpe:330", "unigram:330", "words"]


def tokenizer_of(spec: str, texts: list[str]) -> Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(spec, texts * 3).with_specials(NAMES)


def split_of(tokenizer: Tokenizer, texts: list[str]) -> TextSplit:
    """The stream that a corpus of these documents has."""
    parts, places = [np.array([tokenizer.boundary])], []
    length = 1
    for text in texts:
        ids = np.array(tokenizer.encode(text), np.int64)
        places.append(length)
        parts += [ids, [tokenizer.boundary]]
        length += len(ids) + 1
    tokens = np.concatenate(parts).astype(np.uint16)
    return TextSplit(tokens, np.array(places), 0, 0, None, None, None)


def sentences_of(spec: str, texts: list[str]) -> list[list[str]]:
    tokenizer = tokenizer_of(spec, texts)
    data = split_of(tokenizer, texts)
    found = find_sentences(data.tokens, data.documents, describe_pieces(tokenizer))
    result: list[list[str]] = [[] for _ in texts]
    for start, end, document in zip(*found, strict=True):
        result[document].append(tokenizer.decode(data.tokens[start:end]).strip())
    return result


@pytest.mark.parametrize("spec", SPACED)
def test_sentences_end_at_stops_before_words_and_at_newlines(spec: str) -> None:
    texts = [
        'He went home. "Go away!" she said. It cost 3.14 dollars (or so.) Why?! No\n\nA heading\nThe text goes on.',
        "One sentence only",
        "At www.example.com they sell pies. Good.",
    ]
    first = ["He went home.", '"Go away!"', "she said.", "It cost 3.14 dollars (or so.)", "Why?!", "No", "A heading"]
    assert sentences_of(spec, texts) == [
        [*first, "The text goes on."],
        ["One sentence only"],
        ["At www.example.com they sell pies.", "Good."],
    ]


@pytest.mark.parametrize("spec", ["wordpiece:100", "wordpiece:100,cased"])
def test_sentences_of_wordpiece_end_at_stops(spec: str) -> None:
    texts = ["he went home. (she did not.) then\nthey met! at last", "one sentence only"]
    assert sentences_of(spec, texts) == [
        ["he went home .", "( she did not . )", "then they met !", "at last"],
        ["one sentence only"],
    ]


def test_sentences_of_scripts_without_spaces() -> None:
    assert sentences_of("characters", ["今日は。「元気？」はい！終"]) == [["今日は。", "「元気？」", "はい！", "終"]]


def test_white_space_at_the_end_is_no_sentence() -> None:
    assert sentences_of("bpe:330", ["The end.\n\n", "Next.\n"]) == [["The end."], ["Next."]]


@pytest.mark.parametrize("spec", ["bpe:330", "characters", "words", "wordpiece:80"])
def test_sentences_cover_every_document_and_blocks_make_no_difference(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    words = ["a", "b.", "c!", "d", "e\n", '."', "f)", "(g", "h?", "\n\n", "i…", "j"]
    texts = [" ".join(random.choice(words, size)) for size in (40, 1, 300, 2, 17)]
    tokenizer = tokenizer_of(spec, texts)
    data, pieces = split_of(tokenizer, texts), describe_pieces(tokenizer)
    whole = find_sentences(data.tokens, data.documents, pieces)
    ends = np.append(data.documents[1:], len(data.tokens)) - 1
    for document, (start, end) in enumerate(zip(data.documents, ends, strict=True)):
        mine = whole.document == document
        if start == end:
            assert not mine.any()
            continue
        assert whole.starts[mine][0] == start
        assert whole.ends[mine][-1] == end
        assert (whole.starts[mine][1:] == whole.ends[mine][:-1]).all()
        assert (whole.ends[mine] > whole.starts[mine]).all()
    monkeypatch.setattr(module, "BLOCK", 50)
    for one, other in zip(whole, find_sentences(data.tokens, data.documents, pieces), strict=True):
        assert one.tolist() == other.tolist()


# Pairs. Word `d7s12w3` is the fourth word of sentence 12 of document 7, so that every token tells where it is from.


def marked(sizes: list[list[int]]) -> list[str]:
    """Documents of sentences with these numbers of words."""
    return [
        " ".join(
            f"d{d}s{s}w{w}" + ("." if w == size - 1 else "") for s, size in enumerate(document) for w in range(size)
        )
        for d, document in enumerate(sizes)
    ]


def shapes(*, documents: int, words: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    result = []
    for _ in range(documents):
        sentences: list[int] = []
        while sum(sentences) < words:
            sentences.append(int(random.integers(2, 12)))
        result.append(sentences)
    return result


class Marked:
    """A text whose words are marked, and rows read back as (document, sentence, word)."""

    def __init__(self, sizes: list[list[int]]) -> None:
        texts = marked(sizes)
        self.tokenizer = tokenizer_of("words", texts)
        self.data = split_of(self.tokenizer, texts)
        self.cls, self.sep, self.pad = (self.tokenizer.special(name) for name in ("cls", "sep", "pad"))
        self.frame = encoder_frame(self.tokenizer)
        self.pieces: Pieces = describe_pieces(self.tokenizer)
        flat = [(d, s, w) for d, doc in enumerate(sizes) for s, size in enumerate(doc) for w in range(size)]
        self.rank = {word: place for place, word in enumerate(flat)}

    def loader(self, kind: Any, **settings: Any) -> SentencePairs:
        defaults = {"frame": self.frame, "pad": self.pad, "batch": 8, "window": 32, "seed": 3, "fixed": False}
        return SentencePairs(self.data, pieces=self.pieces, kind=kind, **{**defaults, **settings})

    def segments(self, row: np.ndarray) -> list[list[tuple[int, int, int]]]:
        """The two texts of a row, after a check of its special."""
        tokens = row.tolist()
        assert tokens[0] == self.cls
        while tokens[-1] == self.pad:
            tokens.pop()
        assert tokens[-1] == self.sep
        assert tokens.count(self.sep) == 2
        middle = tokens.index(self.sep)
        return [self._read(tokens[1:middle]), self._read(tokens[middle + 1 : -1])]

    def _read(self, tokens: list[int]) -> list[tuple[int, int, int]]:
        words = self.tokenizer.decode(tokens).split()
        found = [tuple(map(int, re.fullmatch(r"d(\d+)s(\d+)w(\d+)\.?", word).groups())) for word in words]  # type: ignore[union-attr]
        places = [self.rank[word] for word in found]
        assert places == list(range(places[0], places[0] + len(places))), "a segment is contiguous"
        assert len({document for document, _, _ in found}) == 1, "a segment is from one document"
        return found  # type: ignore[return-value]


@pytest.fixture(scope="module")
def long_text() -> Marked:
    return Marked(shapes(documents=12, words=200))


def rows_of(loader: SentencePairs, steps: int) -> list[Rows]:
    return [loader.batch(step) for step in range(steps)]


def test_next_sentence_pairs_follow_each_other_or_are_from_another_document(long_text: Marked) -> None:
    labels: Counter[int] = Counter()
    for rows in rows_of(long_text.loader("next-sentence"), 60):
        assert rows.tokens.shape == (8, 32)
        assert rows.lengths is None, "every document fills the window, so that nothing is padded"
        assert rows.pair is not None
        assert rows.segments is not None
        for row, segments, label in zip(rows.tokens, rows.segments, rows.pair, strict=True):
            a, b = long_text.segments(row)
            assert len(a) + len(b) == 29
            assert segments.tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
            labels[int(label)] += 1
            if label == 0:
                assert a[0][0] == b[0][0]
                gap = long_text.rank[b[0]] - long_text.rank[a[-1]]
                assert 1 <= gap <= 12, "B follows A, but for the words that were too many"
            else:
                assert a[0][0] != b[0][0]
    assert abs(labels[0] - 240) < 4.5 * (480 * 0.25) ** 0.5, "half of the pairs are true"


def test_the_cut_between_segments_is_between_sentences(long_text: Marked) -> None:
    for rows in rows_of(long_text.loader("next-sentence"), 40):
        assert rows.pair is not None
        for row in rows.tokens[rows.pair == 0]:
            a, b = long_text.segments(row)
            assert a[-1][1] < b[0][1], "A and B share no sentence"


def test_sentence_order_swaps_the_same_two_segments(long_text: Marked) -> None:
    labels: Counter[int] = Counter()
    for rows in rows_of(long_text.loader("sentence-order"), 60):
        assert rows.pair is not None
        for row, label in zip(rows.tokens, rows.pair, strict=True):
            first, second = long_text.segments(row)
            assert first[0][0] == second[0][0], "both are from one document"
            labels[int(label)] += 1
            gap = long_text.rank[second[0]] - long_text.rank[first[-1]]
            back = long_text.rank[first[0]] - long_text.rank[second[-1]]
            assert 1 <= (gap if label == 0 else back) <= 12
    assert abs(labels[0] - 240) < 4.5 * (480 * 0.25) ** 0.5


def test_the_length_of_b_says_nothing_about_the_label(long_text: Marked) -> None:
    lengths: dict[int, list[int]] = {0: [], 1: []}
    for rows in rows_of(long_text.loader("next-sentence"), 200):
        assert rows.pair is not None
        assert rows.segments is not None
        for segments, label in zip(rows.segments, rows.pair, strict=True):
            lengths[int(label)].append(int(segments.sum()))
    means = [np.mean(lengths[label]) for label in (0, 1)]
    error = (np.var(lengths[0]) / len(lengths[0]) + np.var(lengths[1]) / len(lengths[1])) ** 0.5
    assert abs(means[0] - means[1]) < 4 * error


def test_short_documents_give_padded_rows() -> None:
    text = Marked([[3, 4], [9], [2, 2, 2], [40, 30, 20], [5, 5, 5, 5]])
    for kind in ("next-sentence", "sentence-order"):
        loader = text.loader(kind, batch=5)
        rows = loader.batch(0)
        assert rows.lengths is not None
        for row, length in zip(rows.tokens, rows.lengths, strict=True):
            a, b = text.segments(row)
            assert len(a) + len(b) + 3 == length
            assert a
            assert b
            assert (row[length:] == text.pad).all()
        whole = {sum(map(len, text.segments(row))) for row in rows.tokens} if kind == "sentence-order" else set()
        assert whole <= {7, 9, 6, 29, 20}
    assert loader.units_per_step["tokens"] == pytest.approx(5 * np.mean([7, 9, 6, 20, *[29] * (loader.count - 4)]) + 15)


def test_a_document_of_one_sentence_is_cut_inside_it() -> None:
    text = Marked([[20], [25], [28]])
    for rows in rows_of(text.loader("sentence-order", batch=4), 5):
        for row in rows.tokens:
            first, second = text.segments(row)
            assert first[0][1] == second[0][1] == 0


def test_every_epoch_shows_every_document_and_rows_of_its_own(long_text: Marked) -> None:
    loader = long_text.loader("sentence-order", batch=4)
    epochs = []
    for epoch in range(3):
        numbers = range(epoch * loader.count, (epoch + 1) * loader.count)
        steps = sorted({number // 4 for number in numbers})
        rows = np.concatenate([loader.batch(step).tokens for step in steps])[-loader.count - 4 :]
        assert {document for row in rows for document, _, _ in long_text.segments(row)[0]} == set(range(12))
        epochs.append({tuple(row) for row in rows.tolist()})
    assert len(epochs[0] & epochs[1]) < 0.5 * loader.count


def test_fixed_pairs_are_the_same_in_every_epoch(long_text: Marked) -> None:
    for kind in ("next-sentence", "sentence-order"):
        probe = long_text.loader(kind, fixed=True)
        loader = long_text.loader(kind, fixed=True, batch=probe.count)
        first, second = loader.batch(0), loader.batch(1)
        assert first.tokens.tolist() != second.tokens.tolist(), "the order is new"
        by_identity = {tuple(i): row for i, row in zip(first.identity.tolist(), first.tokens.tolist(), strict=True)}
        assert len(by_identity) == loader.count
        assert all(
            by_identity[tuple(i)] == row
            for i, row in zip(second.identity.tolist(), second.tokens.tolist(), strict=True)
        )


def test_batches_are_a_pure_function_of_their_number(long_text: Marked) -> None:
    loader = long_text.loader("next-sentence")
    wanted = {step: loader.batch(step) for step in (0, 7, 40, 41, 12)}
    found: dict[int, Rows] = {}

    def work() -> None:
        other = long_text.loader("next-sentence")
        found.update({step: other.batch(step) for step in (41, 0, 12, 7, 40)})

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for step, rows in wanted.items():
        for one, again, other in zip(rows, loader.batch(step), found[step], strict=True):
            assert np.array_equal(one, again)
            assert np.array_equal(one, other)
    assert not np.array_equal(wanted[0].tokens, long_text.loader("next-sentence", seed=4).batch(0).tokens)


def test_a_text_of_one_document_is_cut_into_parts_with_a_warning() -> None:
    text = Marked(shapes(documents=1, words=600))
    with pytest.warns(TextWarning, match=r"one document.*--documents"):
        loader = text.loader("next-sentence", window=16)
    labels: set[int] = set()
    for rows in rows_of(loader, 5):
        assert rows.pair is not None
        labels |= set(rows.pair.tolist())
    assert labels == {0, 1}
    assert len(loader.document_starts) == 2
    text.loader("sentence-order", window=16)


def test_too_little_text_or_window_is_reported() -> None:
    single = Marked([[8]])
    with pytest.raises(ValueError, match=r"two documents.*single sentence.*sentence-order"):
        single.loader("next-sentence")
    with pytest.raises(ValueError, match=r"window of 4 tokens.*5 or more"):
        single.loader("sentence-order", window=4)
    with pytest.raises(ValueError, match="no document of the text has two tokens"):
        Marked([[1], [1]]).loader("sentence-order")
