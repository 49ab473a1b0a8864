"""Tokenizers with more or fewer tokens than another; the ids of all others stay."""

from __future__ import annotations

import json
from collections.abc import Iterable

from lmlab.tokenizers.tokenizer import Tokenizer


def with_words(tokenizer: Tokenizer, words: Iterable[str]) -> Tokenizer:
    """A tokenizer of `spelled` words with more words that are only read."""
    known = tokenizer.engine.get_vocab()
    new = [word for word in words if word not in known]
    if not new:
        return tokenizer
    settings = json.loads(tokenizer.engine.to_str())
    settings["model"]["vocab"] |= {word: number for number, word in enumerate(new, start=tokenizer.vocabulary)}
    return tokenizer.changed(json.dumps(settings))


def without_last(tokenizer: Tokenizer, count: int) -> Tokenizer:
    """A tokenizer without the last special tokens that were added to it, as `with_roles` adds them."""
    settings = json.loads(tokenizer.engine.to_str())
    last = sorted(settings["added_tokens"], key=lambda token: token["id"])[-count:] if count else []
    if not last or any(token["content"] in settings["model"]["vocab"] for token in last):
        return tokenizer
    settings["added_tokens"] = [token for token in settings["added_tokens"] if token not in last]
    return tokenizer.changed(json.dumps(settings))
