"""ARPA files: KenLM reads ours and agrees; foreign habits are understood; damage is named with its line."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from lmlab.data.readers import files
from lmlab.interop.arpa import escape, is_arpa, read_arpa, unescape, write_arpa
from lmlab.models.ngram import NGram

SMOOTHINGS = ["modified-kneser-ney", "kneser-ney", "jelinek-mercer", "add-k", "backoff"]
WORDS = ["the", "<unk>", "</s>", "a b", "\n", "\\u0020", "1\\/2", "é", "<s>", "", *(f"w{i}" for i in range(40))]

BY_HAND = """made by hand
and some noise

\\data\\
ngram  1 = 5
ngram 2=3
ngram 3=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.5
-0.7 </s>
-0.4\ta\t-0.3
-0.6 b -0.2

\\2-grams:
-0.2\t<s> a\t-0.1
-0.3 a b -0.05
-0.25\tb </s>

\\3-grams:
-0.1\t<s> a b
-0.15 a b </s>

\\end\\
"""


def text(length: int, vocabulary: int, *, boundary: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    tokens = random.zipf(1.4, length) % vocabulary
    tokens[::9] = boundary
    return np.concatenate([[boundary], tokens, [boundary]])


@pytest.fixture
def model() -> NGram:
    config = NGram.Config(vocabulary=len(WORDS), order=4, boundary=2, smoothing="jelinek-mercer")
    return NGram.fit(text(3000, len(WORDS) - 5, boundary=2), config=config)


def surprisal(model: NGram, tokens: np.ndarray) -> torch.Tensor:
    stream = torch.from_numpy(tokens)[None]
    return model.score(stream[:, :-1], stream[:, 1:], model.start(1))[0][0]


@pytest.mark.filterwarnings("ignore:too few n-grams")
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [2, 5])  # KenLM reads no models of order 1
def test_kenlm_reads_ours_and_agrees(tmp_path, smoothing: str, order: int) -> None:
    kenlm = pytest.importorskip("kenlm")
    config = NGram.Config(vocabulary=len(WORDS), order=order, boundary=2, smoothing=smoothing)
    ours = NGram.fit(text(3000, len(WORDS) - 5, boundary=2), config=config)
    path = tmp_path / "model.arpa"
    write_arpa(ours, path, words=WORDS)
    theirs = kenlm.Model(str(path))
    tokens = text(800, len(WORDS), boundary=2, seed=1)
    nats = surprisal(ours, tokens).tolist()
    at = 0
    for sentence in np.split(tokens[1:], np.flatnonzero(tokens[1:] == 2) + 1)[:-1]:
        line = " ".join(escape(WORDS[token]) for token in sentence[:-1])
        for logarithm, _, _ in theirs.full_scores(line):
            assert -nats[at] / math.log(10) == pytest.approx(logarithm, abs=1e-4)
            at += 1
    assert at == len(nats)


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_round_trip(tmp_path, model: NGram, name: str) -> None:
    path = tmp_path / name
    write_arpa(model, path, words=WORDS, digits=12)
    again, words = read_arpa(path)
    assert words == WORDS
    assert (again.config.boundary, again.config.order, again.vocabulary) == (2, 4, len(WORDS))
    for before, after in zip(model.levels, again.levels, strict=True):
        assert np.array_equal(before.keys, after.keys)
        np.testing.assert_allclose(after.log_probabilities, before.log_probabilities, atol=1e-9)
        np.testing.assert_allclose(after.log_backoffs, before.log_backoffs, atol=1e-9)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_written_by_hand(tmp_path, ending: str, packed: bool) -> None:
    """Spaces or tabs, missing back-off columns, noise before the header; every value follows from the back-off rule."""
    path = tmp_path / "hand.arpa"
    content = BY_HAND.replace("\n", ending).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    model, words = read_arpa(path)
    assert words == ["<unk>", "</s>", "a", "b"]
    assert model.config.boundary == 1
    tokens = np.array([1, 2, 3, 1, 3, 2, 2, 0, 1, 1])
    expected = [-0.2, -0.1, -0.15]  # <s> a; <s> a b; a b </s>
    expected += [-0.5 - 0.6, -0.2 - 0.4, -0.3 - 0.4]  # <s>→b; b→a; a→a
    expected += [-0.3 - 1.0, -0.7]  # a→<unk>; <unk>→</s>
    expected += [-0.5 - 0.7]  # <s>→</s>
    nats = surprisal(model, tokens)
    np.testing.assert_allclose(nats.numpy() / -math.log(10), expected, atol=1e-6)
    logits, _ = model.step(torch.tensor([[1, 2]]), model.start(1))
    back = -0.1
    np.testing.assert_allclose(
        logits[0].numpy() / math.log(10), [back - 0.3 - 1.0, back - 0.3 - 0.7, back - 0.3 - 0.4, -0.1], atol=1e-6
    )


def test_prefixes_that_a_file_leaves_out_are_filled_in(tmp_path) -> None:
    """Without "a b", the trigram "a b </s>" still counts, and p(b|a) is still the backed-off one."""
    path = tmp_path / "pruned.arpa"
    path.write_text(BY_HAND.replace("-0.3 a b -0.05\n", "").replace("ngram 2=3", "ngram 2=2"))
    model, _ = read_arpa(path)
    nats = surprisal(model, np.array([1, 3, 2, 3, 1])).numpy() / -math.log(10)
    np.testing.assert_allclose(nats, [-0.5 - 0.6, -0.2 - 0.4, -0.3 - 0.6, -0.15], atol=1e-6)


def test_a_file_without_sentence_marks(tmp_path) -> None:
    path = tmp_path / "plain.arpa"
    path.write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-0.3\ta\n-0.3\tb\n\n\\end\\\n")
    with pytest.warns(UserWarning, match="no </s>"):
        model, words = read_arpa(path)
    assert words == ["a", "b", "</s>"]
    assert surprisal(model, np.array([2, 0])).item() == pytest.approx(0.3 * math.log(10))


def test_ngrams_that_no_sentence_contains_are_left_out(tmp_path) -> None:
    path = tmp_path / "odd.arpa"
    path.write_text(BY_HAND.replace("ngram 2=3", "ngram 2=4").replace("\\2-grams:\n", "\\2-grams:\n-0.1\t</s> b\n"))
    with pytest.warns(UserWarning, match="1 n-grams of order 2"):
        model, _ = read_arpa(path)
    assert surprisal(model, np.array([1, 3])).item() == pytest.approx(1.1 * math.log(10))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\\data\\", "data", "not an ARPA file"),
        ("ngram 3=2", "ngram 3=x", "line 7: expected 'ngram 3=COUNT'"),
        ("ngram 2=3", "ngram 4=3", "line 6: expected the count of order 2"),
        ("ngram 2=3", "ngram 2=4", "line 21: the header says 4 n-grams of order 2.*only 3"),
        ("ngram 2=3", "ngram 2=2", r"line 19: expected \\3-grams:.*b </s>"),
        ("-0.3 a b -0.05", "nan a b -0.05", "line 18.*not the logarithm"),
        ("-0.3 a b -0.05", "-0.3 a b nan", "line 18.*not the logarithm"),
        ("-0.3 a b -0.05", "0.3 a b -0.05", "line 18.*not the logarithm"),
        ("-0.3 a b -0.05", "x a b -0.05", "line 18.*number"),
        ("-0.3 a b -0.05", "-0.3 a", "line 18: expected a number, 2 words"),
        ("-0.3 a b -0.05", "-0.3 a c -0.05", "line 18: the word b'c' is not among"),
        ("-0.6 b -0.2", "-0.6 a -0.2", "line 14: the word b'a' appears twice"),
        ("-0.3 a b -0.05", "-0.3\t<s> a\t-0.05", "line 18: the n-gram appears twice"),
        ("\\end\\", "", r"ends before \\end\\"),
        ("-0.15 a b </s>\n\n\\end\\\n", "", "ends after 1 of 2 n-grams of order 3; it is truncated"),
        ("ngram 3=2", "", r"line 21: expected \\end\\"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path, old: str, new: str, problem: str) -> None:
    assert old in BY_HAND
    path = tmp_path / "damaged.arpa"
    path.write_text(BY_HAND.replace(old, new, 1))
    with pytest.raises(ValueError, match=problem):
        read_arpa(path)


def test_every_truncation_is_refused(tmp_path, model: NGram) -> None:
    path = tmp_path / "model.arpa.gz"
    write_arpa(model, path, words=WORDS)
    packed, plain = path.read_bytes(), gzip.decompress(path.read_bytes())
    for content in [
        *(packed[: len(packed) * part // 8] for part in range(8)),
        *(plain[: len(plain) * part // 8] for part in range(8)),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="line" if content else "is empty"):
            read_arpa(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_arpa(tmp_path / "absent.arpa")


@pytest.mark.parametrize("newlines", [False, True])
def test_a_packed_file_is_unpacked_only_so_far(tmp_path, monkeypatch: pytest.MonkeyPatch, newlines: bool) -> None:
    """The limit is that of texts; without newlines it holds, too, though nothing is a whole line before the end."""
    monkeypatch.setattr(files, "ALWAYS_ALLOWED", 1 << 20)
    path = tmp_path / "bomb.arpa.gz"
    path.write_bytes(gzip.compress(b"\\data\\\n" + (b"      \n" if newlines else b"       ") * (1 << 20)))
    assert is_arpa(path)
    with pytest.raises(ValueError, match=r"bomb\.arpa\.gz unpacks to more than [0-9,]+ bytes"):
        read_arpa(path)


def test_bytes_that_are_no_text(tmp_path) -> None:
    path = tmp_path / "latin.arpa"
    path.write_bytes(BY_HAND.encode().replace(b"\ta\t", b"\t\xe9\t"))
    with pytest.raises(ValueError, match=r"line 13.*not UTF-8"):
        read_arpa(path)


def test_writing_refuses_wrong_words_and_leaves_the_old_file(tmp_path, model: NGram) -> None:
    path = tmp_path / "model.arpa"
    path.write_text("precious")
    with pytest.raises(ValueError, match="49 words were given"):
        write_arpa(model, path, words=WORDS[:-1])
    with pytest.raises(ValueError, match="tokens 0 and 49 are both called 'the'"):
        write_arpa(model, path, words=[*WORDS[:-1], "the"])
    assert path.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["model.arpa"]


@given(st.text(st.characters() | st.sampled_from("\\u{}0020 \n\t<s/>")))
@example("\\u005cu0020")
@example("\\ ")
@example("")
def test_escapes_are_reversible_and_hold_no_space(word: str) -> None:
    written = escape(word)
    assert unescape(written) == word
    assert written.split() == [written]
    assert written not in ("<s>", "</s>")
    written.encode()
