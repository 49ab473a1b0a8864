"""Published tokenizers are opened and give their published ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers as hf

from lmlab.tokenizers import Tokenizer, load, train

SENTENCES = ["Hello, World! It's 2024.", "The naïve café", "unaffable  tokens\n\nand\ttabs", "东京 😀 x"]


@pytest.mark.parametrize("name", ["", "encoder.json", "vocab.bpe"])
def test_gpt2_files_give_the_published_ids(shared_data: Callable[[str], Path], name: str) -> None:
    folder = shared_data("tokenizers") / "gpt2"
    tokenizer = load(folder / name)
    cases = json.loads((folder / "expected_gpt3encoder.json").read_text(encoding="utf-8"))["cases"]
    for case in cases:
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.decode(case["ids"]) == case["text"]
    assert (tokenizer.vocabulary, tokenizer.boundary, tokenizer.lossy) == (50257, 50256, False)


def test_gpt2_saved_as_one_file_is_the_same(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    tokenizer = load(shared_data("tokenizers") / "gpt2")
    tokenizer.save(tmp_path / "tokenizer.json")
    plain = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in SENTENCES:
        assert plain.encode(text).ids == tokenizer.encode(text) == load(tmp_path).encode(text)


def test_bert_vocabulary_agrees_with_a_published_file(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("tokenizers") / "bert"
    ours = load(folder / "bert-base-uncased-vocab.txt")
    published = load(folder / "all-MiniLM-L6-v2.tokenizer.json")
    assert ours.vocabulary == published.vocabulary == 30522
    assert ours.show(ours.boundary) == published.show(published.boundary) == "[SEP]"
    assert ours.encode("hello world") == published.encode("hello world") == [7592, 2088]
    for text in SENTENCES:
        assert ours.encode(text) == published.encode(text)
    assert len(published.encode("word " * 1000)) == 1000, "the file's own truncation to 128 is switched off"


def test_gpt_files_lower_and_end_words(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("tokenizers") / "gpt1"
    tokenizer = load(folder)
    assert tokenizer.lossy
    vocabulary = json.loads((folder / "encoder_bpe_40000.json").read_text(encoding="utf-8"))
    want = ["hello</w>", ",</w>", "world</w>", "!</w>"]
    assert tokenizer.encode("Hello, World!") == [vocabulary[piece] for piece in want]
    assert tokenizer.boundary == len(vocabulary), "a boundary is added where the file has none"


def test_what_is_not_a_tokenizer_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"version": "1.0"', encoding="utf-8")
    (tmp_path / "list.txt").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "encoder.json").write_text("{}", encoding="utf-8")
    for name, message in [
        ("missing.json", "does not exist"),
        ("broken.json", "not a tokenizer"),
        ("list.txt", r"\[UNK\]"),
        ("half", "contains no tokenizer"),
        ("half/encoder.json", "go together"),
    ]:
        with pytest.raises(ValueError, match=message):
            load(tmp_path / name)


def test_other_word_level_files_keep_their_own_rules(tmp_path: Path) -> None:
    """A word-level file of another make is not taken for ours."""
    engine = hf.Tokenizer(hf.models.WordLevel({"[UNK]": 0, "a": 1, "!": 2}, unk_token="[UNK]"))
    engine.pre_tokenizer = hf.pre_tokenizers.Whitespace()
    engine.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.kind == "words"
    assert not tokenizer.newline_is_boundary
    assert tokenizer.lossy
    assert tokenizer.encode("a! b\na") == [1, 2, 0, 1]
    assert tokenizer.vocabulary == 4
    assert tokenizer.unknown == 0


def test_byte_level_files_with_a_prefix_space_are_lossy() -> None:
    engine = train("bpe:258", ["aa bb aa bb"] * 9).engine
    engine.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert Tokenizer(engine).lossy
