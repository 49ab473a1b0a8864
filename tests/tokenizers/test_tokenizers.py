"""Every kind of tokenizer: round trips, the same ids as the Hugging Face library, specs and errors."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tokenizers as hf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmlab.tokenizers import Tokenizer, TokenizerWarning, parse, resolve, train, training

TEXT = (
    "The king is dead, long live the king!\nWhat's in a name? That which we call a rose\n"
    "By any other name would smell as sweet; naïve café 東京 😀 e\u0301\n\n  Don't panic: 42 is the answer.\n"
) * 8
SPECS = ["characters", "bytes", "words", "words:30", "words:min=9", "bpe:300", "unigram:270", "wordpiece:120"]
LOSSLESS = ["bytes", "bpe:300", "unigram:270"]
TRICKY = (
    "a<|endoftext|>b <unk> <eos>\t\t\n\n \x0b\x0c\x1c\x1d\x85\u00a0\u2028\u3000 \r\n''s [MASK] ##x Ġ ▁ \ufffd\ufeff"
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module", params=SPECS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return trained(request.param)


_TRAINED: dict[str, Tokenizer] = {}


def trained(spec: str) -> Tokenizer:
    if spec not in _TRAINED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TokenizerWarning)
            _TRAINED[spec] = train(spec, [TEXT])
    return _TRAINED[spec]


@pytest.mark.parametrize("spec", LOSSLESS)
@settings(max_examples=150, deadline=None)
@example(text=TRICKY)
@example(text="")
@given(text=texts)
def test_any_text_comes_back(spec: str, text: str) -> None:
    tokenizer = trained(spec)
    assert not tokenizer.lossy
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.sampled_from(sorted(set(TEXT))), max_size=80))
def test_seen_characters_come_back(text: str) -> None:
    tokenizer = trained("characters")
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=60, deadline=None)
@example(text=TRICKY)
@example(text="a\x0bb \x1c!\x85 c\x1fd")
@given(text=texts)
def test_ids_are_the_librarys(spec: str, text: str) -> None:
    """A plain `tokenizers.Tokenizer` from the saved file, set to take special tokens as text, gives the same ids."""
    tokenizer = trained(spec)
    plain = hf.Tokenizer.from_str(tokenizer.engine.to_str())
    ids = tokenizer.encode(text)
    if not re.search(r"<\|endoftext\|>|\[(PAD|UNK|CLS|SEP|MASK)\]", text):
        assert plain.encode(text).ids == ids
    plain.encode_special_tokens = True
    assert plain.encode(text).ids == ids
    assert all(0 <= i < tokenizer.vocabulary for i in ids)


def test_saved_and_loaded_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    plain = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for name in ("spec", "kind", "vocabulary", "boundary", "lossy", "unknown", "newline_is_boundary", "fingerprint"):
        assert getattr(loaded, name) == getattr(tokenizer, name), name
    assert loaded.encode(TEXT) == tokenizer.encode(TEXT) == plain.encode(TEXT).ids
    assert pickle.loads(pickle.dumps(tokenizer)).encode(TEXT) == tokenizer.encode(TEXT)


def test_plain_text_never_becomes_the_boundary(tokenizer: Tokenizer) -> None:
    assert tokenizer.boundary not in tokenizer.encode("a <|endoftext|> [SEP] b")


def test_a_batch_is_its_texts_one_by_one(tokenizer: Tokenizer) -> None:
    batch = tokenizer.encode_batch([TEXT, "", "the king\n", "x\x1cy"])
    assert [ids.tolist() for ids in batch] == [tokenizer.encode(text) for text in (TEXT, "", "the king\n", "x\x1cy")]


@pytest.mark.parametrize("spec", [spec for spec in SPECS if not spec.startswith("unigram")])
def test_training_again_gives_the_same(spec: str) -> None:
    """All but unigram, whose trainer in the library adds up in an order of chance."""
    assert train(spec, [TEXT]).fingerprint == trained(spec).fingerprint


def test_sizes_are_as_asked() -> None:
    assert trained("characters").vocabulary == len(set(TEXT)) + 2
    assert trained("bytes").vocabulary == 257
    assert trained("words").vocabulary == len(set(TEXT.split())) + 2
    assert trained("words:min=9").vocabulary == sum(count >= 9 for count in Counter(TEXT.split()).values()) + 2
    for spec in ("words:30", "bpe:300", "unigram:270", "wordpiece:120"):
        assert trained(spec).vocabulary == int(spec.split(":")[1])
        assert trained(spec).spec == spec


def test_bytes_are_their_values() -> None:
    assert trained("bytes").encode("aé\n") == [0x61, 0xC3, 0xA9, 0x0A]
    assert trained("bytes").boundary == 256


def test_words_are_ptb_style() -> None:
    tokenizer = train("words", ["the cat sat\nthe cat\n\n<unk> the\n"])
    show = [tokenizer.show(i) for i in tokenizer.encode("the  dog\n\ncat <unk>\n")]
    assert show == ["the", "<unk>", "<eos>", "<eos>", "cat", "<unk>", "<eos>"]
    assert tokenizer.show(tokenizer.boundary) == "<eos>"
    assert tokenizer.newline_is_boundary
    assert tokenizer.decode(tokenizer.encode("the cat\n\nsat the\n")) == "the cat\n\nsat the\n"
    assert [tokenizer.show(i) for i in range(tokenizer.vocabulary)] == ["<unk>", "<eos>", "the", "cat", "sat"]


def test_wordpiece_continues_words() -> None:
    tokenizer = trained("wordpiece:120")
    assert tokenizer.lossy
    assert tokenizer.encode("CAFÉ") == tokenizer.encode("cafe")
    assert tokenizer.decode(tokenizer.encode("the king")) == "the king"
    assert [tokenizer.show(i) for i in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert any(tokenizer.show(i).startswith("##") for i in range(tokenizer.vocabulary))
    cased = train("wordpiece:130,cased", [TEXT])
    assert cased.encode("The") != cased.encode("the")


def test_tokens_can_be_read() -> None:
    tokenizer = trained("bytes")
    assert [tokenizer.show(i) for i in (0x61, 0x20, 0x0A, 0xC3, 256)] == ["a", " ", "\\n", "\\xc3", "<|endoftext|>"]
    assert tokenizer.show(257) == "[257]", "imported models may have rows without a token"
    with pytest.raises(ValueError, match="-1"):
        tokenizer.show(-1)


def test_pairs_merged_are_the_most_frequent() -> None:
    """The merges of a small text, against a brute-force byte-pair encoding."""
    text = "low low low low low lower lower newest newest newest newest newest newest widest widest widest"
    words = Counter(re.findall(r" ?\w+", text))
    symbols = {word: list(word) for word in words}
    merges = []
    for _ in range(4):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in zip(symbols[word], symbols[word][1:], strict=False):
                pairs[pair] += count
        best = max(pairs.values())
        ties = {pair for pair, count in pairs.items() if count == best}
        merges.append(ties)
        if len(ties) > 1:
            break
        (pair,) = ties
        for word, parts in symbols.items():
            i = 0
            while i + 1 < len(parts):
                if (parts[i], parts[i + 1]) == pair:
                    parts[i : i + 2] = ["".join(pair)]
                i += 1
            symbols[word] = parts
    learned = [tuple(pair) for pair in _merges(train(f"bpe:{257 + len(merges)}", [text]))]
    assert len(merges) >= 1
    for pair, ties in zip(learned, merges, strict=True):
        assert tuple(part.replace("Ġ", " ") for part in pair) in ties


def _merges(tokenizer: Tokenizer) -> list[list[str]]:
    merges: list[list[str]] = json.loads(tokenizer.engine.to_str())["model"]["merges"]
    return merges


@pytest.mark.parametrize("spec", ["words:100000", "bpe:100000", "wordpiece:100000", "unigram:100000"])
def test_a_vocabulary_larger_than_the_text_allows_is_reported(spec: str) -> None:
    with pytest.warns(TokenizerWarning, match="the text allows only"):
        tokenizer = train(spec, [TEXT])
    assert tokenizer.vocabulary < 100000
    assert tokenizer.encode("the king")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("bpe:256", "at least 257"),
        ("bpe", "needs the size"),
        ("unigram:12", "at least 257"),
        ("wordpiece:3", "at least 64"),
        ("words:1", "at least 3"),
        ("words:min=0", "at least 1"),
        ("bpe:min=3", "allowed: bpe:4096"),
        ("bpe:many", "allowed: bpe:4096"),
        ("bytes:12", "allowed: bytes"),
        ("byts", "did you mean 'bytes'"),
        ("", "allowed"),
    ],
)
def test_wrong_specs_say_what_is_allowed(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(spec)


@pytest.mark.parametrize("spec", ["characters", "words", "bytes", "bpe:4096", "words:100,min=3", "wordpiece:99,cased"])
def test_specs_are_written_as_they_are_read(spec: str) -> None:
    assert str(parse(spec)) == spec


def test_no_text_is_an_error() -> None:
    for spec in ("characters", "words"):
        with pytest.raises(ValueError, match=spec):
            train(spec, ["" if spec == "characters" else " \n"])


def test_half_a_surrogate_pair_is_an_error(tokenizer: Tokenizer) -> None:
    if tokenizer.kind != "words":
        with pytest.raises(ValueError, match="surrogate"):
            tokenizer.encode("a\ud800b")


def test_long_runs_do_not_stop_training() -> None:
    tokenizer = train("bpe:262", ["ab" * 50_000])
    assert len(tokenizer.encode("ab" * 1000)) < 500
    assert "ab" * 500 not in {train("words", ["x " + "ab" * 500]).show(i) for i in range(3)}


def test_learning_stops_where_words_hardly_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of new words in every text only a limited number is taken in; of words that repeat, all."""
    monkeypatch.setitem(training.MOST_DIFFERENT, "bpe", 600_000)
    taken: list[int] = []

    def texts(repeat: bool) -> Iterator[str]:
        for number in range(200):
            taken.append(number)
            start = 0 if repeat else number * 1_000
            yield " ".join(str(word) for word in range(10_000_000 + start, 10_001_000 + start))

    train("bpe:257", texts(repeat=True))
    assert len(taken) == 200
    taken.clear()
    train("bpe:257", texts(repeat=False))
    assert 60 < len(taken) < 100


def test_resolve_takes_specs_paths_and_tokenizers(tmp_path: Path) -> None:
    tokenizer = trained("bpe:300")
    tokenizer.save(tmp_path / "mine.json")

    def untouched() -> list[str]:
        raise AssertionError("no text is needed")

    assert resolve(tokenizer, untouched) is tokenizer
    assert resolve(str(tmp_path / "mine.json"), untouched).fingerprint == tokenizer.fingerprint
    assert resolve("characters", lambda: ["ab"]).vocabulary == 4


def test_encoding_remembers_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train("bpe:300", [TEXT])
    want = trained("bpe:300").encode(TEXT)
    monkeypatch.setattr("lmlab.tokenizers.word_cache.MOST", 5)
    assert tokenizer.encode(TEXT) == want
    assert tokenizer.encode(TEXT) == want
    assert tokenizer._memory is not None
    assert len(tokenizer._memory._ids) <= 5


def test_arrays_come_out(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode_batch(["the king"])
    assert isinstance(ids, np.ndarray)
    assert ids.dtype == np.uint32


def test_real_text_is_encoded_as_the_library_does(shared_data: Callable[[str], Path]) -> None:
    text = (shared_data("tinyshakespeare") / "input.txt").read_text(encoding="utf-8")[:300_000]
    for spec in ("bpe:1000", "wordpiece:1000", "words"):
        tokenizer = train(spec, [text])
        assert tokenizer.encode(text) == tokenizer.engine.encode(text, add_special_tokens=False).ids
