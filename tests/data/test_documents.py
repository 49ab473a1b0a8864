"""Documents in texts, pieces of documents, and their split into train, valid and test."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.data.corpora.splitting import check_fractions, split_documents
from lmlab.data.readers import documents as module
from lmlab.data.readers.documents import Documents, gather
from lmlab.data.readers.text import Source, TextWarning
from lmlab.tokenizers import train


def gathered(tmp_path: Path, texts: list[str], how: str = "file") -> tuple[Documents, np.ndarray]:
    sources = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number:05}.txt"
        path.write_bytes(text.encode())
        sources.append(Source(path.name, path))
    return gather(sources, tmp_path / "gathered", how=how, report=lambda size: None)


def texts_of(documents: Documents) -> list[str]:
    texts, parts = [], []
    for last, text in documents.pieces():
        parts.append(text)
        if last:
            texts.append("".join(parts))
            parts = []
    assert not parts
    return texts


@pytest.mark.parametrize("block", [3, 5, 1 << 20])
@pytest.mark.parametrize(
    ("how", "want"),
    [
        ("file", ["one\ntwo\n\n \nthree\nfour\n<|endoftext|>\n\nfive", "six\n"]),
        ("lines", ["one", "two", " ", "three", "four", "<|endoftext|>", "five", "six"]),
        ("blank", ["one\ntwo", "three\nfour\n<|endoftext|>", "five", "six"]),
        ("endoftext", ["one\ntwo\n\n \nthree\nfour", "\nfive", "six"]),
    ],
)
def test_ways_to_tell_documents_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, want: list[str], block: int
) -> None:
    monkeypatch.setattr("lmlab.data.readers.text.BLOCK", block)
    documents, _ = gathered(tmp_path, ["one\ntwo\n\n \nthree\nfour\n<|endoftext|>\n\nfive", "six\n"], how)
    assert texts_of(documents) == want


@pytest.mark.parametrize("how", ["file", "lines", "blank", "endoftext"])
def test_white_space_alone_is_no_text(tmp_path: Path, how: str) -> None:
    with pytest.raises(ValueError, match="nothing but white space"):
        gathered(tmp_path, [" \n\n \n", "\n"], how)


@settings(max_examples=80, deadline=None)
@given(
    text=st.text(st.sampled_from("ab c\n!'1é\t\u00a0"), min_size=1, max_size=60).filter(lambda t: not t.isspace()),
    size=st.integers(4, 24),
)
def test_tokens_of_pieces_are_the_tokens_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    """Where every piece has a safe place to be cut; without one, a piece is cut anywhere, so only the text is kept."""
    folder = tmp_path_factory.mktemp("pieces")
    documents, _ = gathered(folder, [text])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", size)
        pieces = [piece for _, piece in documents.pieces()]
    assert "".join(pieces) == text
    safe = all(later[0] in " \n" and not earlier[-1].isspace() for earlier, later in pairwise(pieces))
    if safe:
        for tokenizer in _TOKENIZERS:
            together = [i for ids in tokenizer.encode_batch(pieces) for i in ids.tolist()]
            assert together == tokenizer.encode(text)


_CORPUS = ["ab ab abc 'a b' c!! 11 é\nab\n\nabc  ab\t c\n" * 20]
_TOKENIZERS = [train(spec, _CORPUS) for spec in ("bytes", "words", "characters", "bpe:262")]


def test_a_document_without_white_space_is_cut_between_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, _ = gathered(tmp_path, ["é😀x" * 50])
    monkeypatch.setattr(module, "PIECE", 10)
    pieces = [text for _, text in documents.pieces()]
    assert "".join(pieces) == "é😀x" * 50
    assert max(len(piece.encode()) for piece in pieces) <= 13


def test_a_sample_is_bounded_and_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 100)
    text = "".join(f"word{i:05} " for i in range(2000))
    documents, _ = gathered(tmp_path, [text])
    sample = list(documents.sample(4000))
    assert 3000 <= sum(map(len, sample)) <= 4000
    places = [text.index(part) / len(text) for part in sample]
    assert max(np.diff([0, *sorted(places), 1])) < 0.1
    assert max(np.diff([0, *sorted(places[:10]), 1])) < 0.25, "the first of it are from everywhere too"
    assert "".join(documents.sample(10**9)) == text


def test_whole_documents_are_split_by_size_and_always_alike(tmp_path: Path) -> None:
    texts = [f"document {i} " * (1 + i % 7) for i in range(300)]
    documents, hashes = gathered(tmp_path, texts)
    parts = split_documents(documents, hashes, {"train": 0.8, "valid": 0.1, "test": 0.1})
    for name, fraction in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert parts[name].size / documents.size == pytest.approx(fraction, abs=0.01)
        assert [texts[int(n.split(".")[0])] for n in parts[name].names or []] == texts_of(parts[name])
    assert sorted(text for part in parts.values() for text in texts_of(part)) == sorted(texts)
    tested = set(texts_of(parts["test"]))
    reversed_documents, reversed_hashes = gathered(tmp_path, texts[::-1])
    again = split_documents(reversed_documents, reversed_hashes, {"train": 0.8, "valid": 0.1, "test": 0.1})
    assert set(texts_of(again["test"])) == tested, "the order of files does not matter"


def test_equal_documents_go_together(tmp_path: Path) -> None:
    texts = [f"text number {i % 50} with words" for i in range(200)]
    documents, hashes = gathered(tmp_path, texts)
    parts = split_documents(documents, hashes, {"train": 0.6, "valid": 0.2, "test": 0.2})
    sets = [set(texts_of(part)) for part in parts.values()]
    assert not sets[0] & sets[1]
    assert not sets[0] & sets[2]
    assert not sets[1] & sets[2]
    assert len(set.union(*sets)) == 50


def test_one_document_is_cut_by_position_at_line_ends(tmp_path: Path) -> None:
    lines = [f"line {i}\n" for i in range(1000)]
    documents, hashes = gathered(tmp_path, ["".join(lines)])
    parts = split_documents(documents, hashes, {"train": 0.9, "valid": 0.05, "test": 0.05})
    texts = ["".join(texts_of(parts[name])) for name in ("train", "valid", "test")]
    assert "".join(texts) == "".join(lines)
    assert all(text.endswith("\n") for text in texts)
    assert [len(text) / documents.size for text in texts] == pytest.approx([0.9, 0.05, 0.05], abs=0.002)


@pytest.mark.parametrize("text", ["word " * 400, "é" * 1000, "x" * 2000])
def test_without_lines_the_cut_is_at_a_word_or_a_character(tmp_path: Path, text: str) -> None:
    documents, hashes = gathered(tmp_path, [text])
    parts = split_documents(documents, hashes, {"train": 0.9, "valid": 0.05, "test": 0.05})
    texts = ["".join(texts_of(part)) for part in parts.values()]
    assert "".join(texts) == text
    assert all(texts)
    if " " in text:
        assert all(part.endswith(" ") for part in texts)


@pytest.mark.parametrize(("size", "parts"), [(10, ["train"]), (159, ["train"]), (200, ["train", "valid"])])
def test_a_short_text_is_held_out_from_as_far_as_it_goes(tmp_path: Path, size: int, parts: list[str]) -> None:
    documents, hashes = gathered(tmp_path, [("short text " * 20)[:size]])
    with pytest.warns(TextWarning, match=f"has {size} bytes, too few to split into train 0.9, valid 0.05, test 0.05"):
        found = split_documents(documents, hashes, {"train": 0.9, "valid": 0.05, "test": 0.05})
    assert list(found) == parts
    assert sum(part.size for part in found.values()) == size


@pytest.mark.parametrize("fractions", [(0.9, 0.2), (0, 1), (1.1, -0.1), (), (0.25,) * 4, (0.9,)])
def test_wrong_fractions_are_reported(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        check_fractions(fractions)


def test_shares_of_nothing_are_left_out() -> None:
    assert check_fractions((0.9, 0.1)) == {"train": 0.9, "valid": 0.1}
    assert check_fractions((1, 0, 0)) == {"train": 1.0}
