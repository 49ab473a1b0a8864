"""A text and its tokens: the characters of each token, tokens per word, and whether the text is lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lmlab.tokenizers.tokenizer import Tokenizer


class InspectedToken(NamedTuple):
    """One token of a text."""

    id: int
    piece: str  # as the vocabulary spells it, readable: control characters and lone bytes are escaped
    text: str  # the characters that it covers; tokens that are parts of one character all cover that character
    start: int  # in characters
    end: int


def loses_text(tokenizer: Tokenizer, texts: Iterable[str]) -> bool:
    """Whether any of these texts cannot be decoded from its ids, so that its bits per byte are too low.

    Only tokenizers that may lose something are tried: each text must be decoded unchanged, special tokens included. A
    space that a byte-level tokenizer adds before a text is not a loss, unless the text begins with one of its own.
    """
    if not (tokenizer.lossy or tokenizer.may_drop_bytes) or tokenizer.kind == "characters":
        return False
    return any(not _comes_back(tokenizer, text) for text in texts)


def _comes_back(tokenizer: Tokenizer, text: str) -> bool:
    ids = tokenizer.encode(text)
    if text.startswith(" "):
        return restore(tokenizer, ids) == text and tokenizer.encode(text[1:]) != ids
    return restore(tokenizer, ids) in (text, f" {text}")


def restore(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text decoded from its ids, with the special tokens in it."""
    if tokenizer.split_special_tokens:
        return tokenizer.decode(ids)
    return str(tokenizer.engine.decode(list(ids), skip_special_tokens=False))


class TokenizedText:
    """A text and its tokens; the boundary and other special tokens around it are left out."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text, self.tokenizer = text, tokenizer
        self.ids = tokenizer.encode(text)

    @cached_property
    def tokens(self) -> list[InspectedToken]:
        """Each token with its characters; if nothing is lost, they cover the whole text without gaps."""
        ids, offsets = self.tokenizer.encode_with_offsets(self.text)
        assert ids == self.ids, "the fast ways of encoding give what the library gives"
        tokens, before = [], 0
        for number, (start, end) in zip(self.ids, offsets, strict=True):
            if not self.tokenizer.lossy and self.lossless and start > before:
                start = before  # the files of some tokenizers trim a leading space off the place
            before = max(before, end)
            tokens.append(InspectedToken(number, self.tokenizer.show(number), self.text[start:end], start, end))
        return tokens

    @property
    def bytes(self) -> int:
        """The number of bytes in UTF-8."""
        return len(self.text.encode())

    @property
    def words(self) -> int:
        """The number of words, split at white space."""
        return len(self.text.split())

    @property
    def bytes_per_token(self) -> float | None:
        """The mean number of bytes of a token: the more, the shorter the sequences that a model reads."""
        return self.bytes / len(self.ids) if self.ids else None

    @property
    def tokens_per_word(self) -> float | None:
        """The mean number of tokens of a word (the tokenizer's fertility)."""
        return len(self.ids) / self.words if self.words else None

    @property
    def unknown(self) -> int:
        """The number of unknown tokens."""
        return int(self.tokenizer.is_unknown(np.array(self.ids)).sum())

    @cached_property
    def decoded(self) -> str:
        """The text decoded from the ids."""
        return restore(self.tokenizer, self.ids)

    @property
    def lossless(self) -> bool:
        """Whether this text is decoded unchanged from ids that can all be predicted."""
        return self.decoded == self.text and not (self.tokenizer.is_open and self.unknown)

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "tokenizer": self.tokenizer.spec,
            "vocabulary": self.tokenizer.vocabulary,
            "tokens": [{**token._asdict(), "unknown": self.is_unknown(token)} for token in self.tokens],
            "count": len(self.ids),
            "bytes": self.bytes,
            "words": self.words,
            "bytes_per_token": self.bytes_per_token,
            "tokens_per_word": self.tokens_per_word,
            "unknown": self.unknown,
            "lossless": self.lossless,
            "decoded": self.decoded,
        }

    def is_unknown(self, token: InspectedToken) -> bool:
        """Whether a token is the unknown token."""
        return bool(self.tokenizer.is_unknown(np.array(token.id)))


def text_fingerprint(tokenizer: Tokenizer) -> str:
    """Return a SHA-256 of how a tokenizer encodes text, without special tokens, which no text has.

    So the tokenizer of a masked model has the same one as that of a next-token model, though it also has [MASK].
    """
    settings = json.loads(tokenizer.engine.to_str())
    settings["added_tokens"] = [each for each in settings["added_tokens"] if not each["special"]]
    settings["post_processor"] = None
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
