"""Nearest words, analogies and similarities, against numbers worked out by hand and scipy's correlation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lmlab.analysis.neighbours import (
    Analogies,
    WordVectors,
    analogy,
    neighbours,
    read_analogies,
    read_pairs,
    score_analogies,
    similarity,
)
from lmlab.tokenizers.word_vectors import read_word_vectors, write_word_vectors

ROYAL = WordVectors(
    ["man", "woman", "king", "queen", "apple"],
    np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, 0, 0.1]], np.float32),
)


def test_neighbours_are_by_cosine_and_not_by_length() -> None:
    tokens = ["a", "b", "c", "d"]
    vectors = np.array([[1, 0], [9, 9], [0.1, 0.01], [-1, 0]])
    found = neighbours(vectors, tokens, "a", top=3)
    assert [each.word for each in found] == ["c", "b", "d"]
    assert [each.cosine for each in found] == pytest.approx([1 / np.sqrt(1.01), np.sqrt(0.5), -1])
    assert [each.word for each in neighbours(ROYAL, None, "KING", top=99)][-1] == "apple"
    assert len(neighbours(ROYAL, None, "king", top=99)) == 4


def test_an_unknown_word_is_reported_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="'quen' has no vector here; did you mean 'queen'"):
        neighbours(ROYAL, None, "quen")
    with pytest.raises(ValueError, match="top = 0"):
        neighbours(ROYAL, None, "king", top=0)


def test_the_queen_is_found_and_the_given_words_are_not() -> None:
    assert analogy(ROYAL, "man", "king", "woman")[0].word == "queen"
    found = analogy(ROYAL, "man", "king", "woman", top=9)
    assert {each.word for each in found} == {"queen", "apple"}


def test_analogies_are_scored_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "questions.txt"
    path.write_text(": royal\nman king woman queen\nman king woman apple\nman king woman prince\n: fruit\n")
    assert score_analogies(ROYAL, read_analogies(path)) == {"royal": Analogies(1, 2, 3), "fruit": Analogies(0, 0, 0)}
    path.write_text(": royal\nman king woman\n")
    with pytest.raises(ValueError, match="line 2"):
        read_analogies(path)


def test_similarity_is_spearmans() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(0)
    space = WordVectors([f"w{n}" for n in range(40)], generator.normal(size=(40, 5)).astype(np.float32))
    pairs = [(f"w{n}", f"w{39 - n}", float(n // 3)) for n in range(20)]
    cosines = [float(space.directions[n] @ space.directions[39 - n]) for n in range(20)]
    found = similarity(space, [*pairs, ("w1", "unknown", 3.0)])
    assert (found.asked, found.total) == (20, 21)
    assert found.spearman == pytest.approx(stats.spearmanr(cosines, [score for *_, score in pairs])[0], abs=1e-12)
    assert similarity(space, pairs[:1]).spearman is None


def test_the_real_questions_are_read(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("analogies")
    questions = read_analogies(folder / "questions-words.txt")
    assert len(questions) == 14
    assert sum(len(rows) for _, rows in questions) == 19_544
    assert len(read_pairs(folder / "simlex999.txt")) == 999
    assert len(read_pairs(folder / "wordsim353.tsv")) == 353


@pytest.mark.parametrize("header", [True, False])
def test_vectors_are_read_as_they_were_written(header: bool, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    vectors = np.random.default_rng(1).normal(size=(3, 7)).astype(np.float32)
    write_word_vectors(WordVectors(["the", "été", "3"], vectors), path, header=header)
    found = read_word_vectors(path)
    assert list(found.words) == ["the", "été", "3"]
    assert np.array_equal(found.vectors, vectors)
    assert (path.read_text().split("\n")[0] == "3 7") == header
    assert list(read_word_vectors(path, only=["été", "no"]).words) == ["été"]


def test_gensim_would_read_a_word_with_spaces_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2\n. . . 3 4\n")
    assert list(read_word_vectors(path).words) == ["a", ". . ."]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a 1 2 3\nb 1 2\n", "line 2: 2 numbers after a word, and the vectors of this file have 3"),
        ("a 1 2 3 4 5\nshort 1 2\n", "line 2: 2 numbers after a word, and the vectors of this file have 5"),
        ("2 2\na 1 2\nb 1\n", "line 3: 1 numbers"),
        ("a 1 2\nb 1 2\n 1 2\n", "line 3 has no word before its numbers"),
        ("a 1 x\n", "line 1: 'x' is not a number"),
        ("a 1 nan\n", "line 1: a number of the vector is not finite"),
        ("3 2\na 1 2\nb 1 2\n", "has 2 vectors, and its first line says 3: it may have been cut off"),
        ("", "is empty"),
    ],
)
def test_a_damaged_file_gets_one_line(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=said) as caught:
        read_word_vectors(path)
    assert "\n" not in str(caught.value)


def test_binary_vectors_get_one_line(tmp_path: Path) -> None:
    path = tmp_path / "vectors.bin"
    path.write_bytes(b"2 2\na \xff\xfe\x00\x00")
    with pytest.raises(ValueError, match="not UTF-8 text"):
        read_word_vectors(path)
    with pytest.raises(ValueError, match="is not a file"):
        read_word_vectors(tmp_path / "none.txt")


def test_a_word_with_a_space_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be written as a word"):
        write_word_vectors(WordVectors(["a b"], np.zeros((1, 2), np.float32)), tmp_path / "out.txt")
    assert not list(tmp_path.iterdir())
