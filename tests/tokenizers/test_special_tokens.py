"""The special tokens of models that fill blanks."""

from __future__ import annotations

import pytest

from lmlab.tokenizers import Tokenizer, train

TEXT = ["the cat sat on the mat\nand saw [MASK] there", "a second text, with more words in it"]
NAMES = ("pad", "cls", "sep", "mask")


@pytest.mark.parametrize("spec", ["characters", "bytes", "words", "bpe:300", "unigram:300", "wordpiece:80"])
def test_roles_are_added_at_the_end_and_change_no_other_id(spec: str) -> None:
    plain = train(spec, TEXT)
    full = plain.with_specials(NAMES)
    ids = [full.special(name) for name in NAMES]
    assert len(set(ids)) == 4
    assert full.boundary == plain.boundary
    assert full.kind == plain.kind
    for text in TEXT:
        assert full.encode(text) == plain.encode(text), "a text that holds [MASK] is a text, not a blank"
    assert full.with_specials(NAMES) is full


def test_a_missing_role_is_named() -> None:
    with pytest.raises(ValueError, match=r"no token for mask.*\[MASK\] and <mask>"):
        train("bytes", TEXT).special("mask")


def test_roles_are_kept_in_the_file(tmp_path: object) -> None:
    full = train("bpe:300", TEXT).with_specials(["mask"])
    full.save(f"{tmp_path}/tokenizer.json")
    again = Tokenizer.load(f"{tmp_path}/tokenizer.json")
    assert again.special("mask") == full.special("mask")
    assert again.fingerprint == full.fingerprint
    assert again.encode(TEXT[0]) == full.encode(TEXT[0])
