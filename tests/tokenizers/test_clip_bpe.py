"""CLIP's byte pairs: the ids are those of transformers' CLIPTokenizer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.files import CLIP_FILE

TEXTS = (
    "A photo of a cat, isn't it?  2021",
    "  The  WHITE\n\thouse's door — they'll see 3.14!",
    "ünïcödé 😀 日本語 \u0130stanbul",
    "",
)


@pytest.fixture(scope="module")
def path(shared_data: Callable[[str], Path]) -> Path:
    path = shared_data("clip") / CLIP_FILE
    if not path.is_file():
        pytest.skip("needs the vocabulary that was published with CLIP")
    return path


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return Tokenizer.load(path)


def test_it_has_the_published_vocabulary(tokenizer: Tokenizer) -> None:
    assert (tokenizer.vocabulary, tokenizer.special("cls"), tokenizer.boundary) == (49408, 49406, 49407)
    assert tokenizer.encode("a photo of a cat") == [320, 1125, 539, 320, 2368]  # as in CLIP's release
    assert tokenizer.decode(tokenizer.encode("A photo, of a CAT")) == "a photo , of a cat"


def test_ids_are_those_of_transformers(tokenizer: Tokenizer, path: Path, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    model = json.loads(tokenizer.engine.to_str())["model"]
    theirs = transformers.CLIPTokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])
    for text in TEXTS:
        assert tokenizer.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    theirs.save_pretrained(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in model["merges"]))
    (tmp_path / "tokenizer.json").unlink()
    again = Tokenizer.load(tmp_path)
    assert [again.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_it_is_saved_and_found_in_a_folder(tokenizer: Tokenizer, path: Path, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert Tokenizer.load(path.parent).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"#version\na b\n", mtime=0), gzip.compress(bytes(2**25), mtime=0)]
)
def test_other_files_are_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / CLIP_FILE
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not CLIP's list of merges") as caught:
        Tokenizer.load(path)
    assert "\n" not in str(caught.value)
