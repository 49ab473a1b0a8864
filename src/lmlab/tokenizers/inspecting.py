"""A text as a tokenizer cuts it: each token with its place in the text, and what the cutting costs and loses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lmlab.tokenizers.tokenizer import Tokenizer


class Token(NamedTuple):
    """One token of a text."""

    id: int
    piece: str  # as the vocabulary spells it, readable: control characters and lone bytes are escaped
    text: str  # the characters that it covers; tokens that are parts of one character all cover that character
    start: int  # in characters
    end: int


def loses_text(tokenizer: Tokenizer, texts: Iterable[str]) -> bool:
    """Whether any of these texts cannot be told from its ids, so that its bits per byte are too low.

    Only tokenizers that may lose something are tried: each text must come back from its ids, special tokens included.
    A space that a byte-level tokenizer adds before a text is no loss, unless the text begins with one of its own.
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
    """The text that comes back from its ids, with the special tokens that were read in it."""
    if tokenizer.split_special_tokens:
        return tokenizer.decode(ids)
    return str(tokenizer.engine.decode(list(ids), skip_special_tokens=False))


class TokenizedText:
    """A text and its tokens; the boundary and other special tokens around it are left out."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text, self.tokenizer = text, tokenizer
        self.ids = tokenizer.encode(text)

    @cached_property
    def tokens(self) -> list[Token]:
        """Each token with its place; where nothing is lost, they cover the whole text without gaps."""
        ids, offsets = self.tokenizer.encode_places(self.text)
        assert ids == self.ids, "the fast ways of encoding give what the library gives"
        tokens, before = [], 0
        for number, (start, end) in zip(self.ids, offsets, strict=True):
            if not self.tokenizer.lossy and self.lossless and start > before:
                start = before  # the files of some tokenizers trim a leading space off the place
            before = max(before, end)
            tokens.append(Token(number, self.tokenizer.show(number), self.text[start:end], start, end))
        return tokens

    @property
    def bytes(self) -> int:
        """In UTF-8."""
        return len(self.text.encode())

    @property
    def words(self) -> int:
        """Runs without white space."""
        return len(self.text.split())

    @property
    def bytes_per_token(self) -> float | None:
        """How much text a token holds on average: the higher, the shorter are the sequences that a model reads."""
        return self.bytes / len(self.ids) if self.ids else None

    @property
    def tokens_per_word(self) -> float | None:
        """Into how many tokens a word is cut on average (the tokenizer's fertility)."""
        return len(self.ids) / self.words if self.words else None

    @property
    def unknown(self) -> int:
        """How many tokens stand for what the vocabulary cannot spell."""
        return int(self.tokenizer.is_unknown(np.array(self.ids)).sum())

    @cached_property
    def decoded(self) -> str:
        """The text that comes back from the ids."""
        return restore(self.tokenizer, self.ids)

    @property
    def lossless(self) -> bool:
        """Whether this text comes back unchanged from ids that can all be predicted."""
        return self.decoded == self.text and not (self.tokenizer.is_open and self.unknown)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
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

    def is_unknown(self, token: Token) -> bool:
        """Whether a token only says that something unknown stands there."""
        return bool(self.tokenizer.is_unknown(np.array(token.id)))


def text_fingerprint(tokenizer: Tokenizer) -> str:
    """The SHA-256 of what a tokenizer does with text: special tokens, which no text has, and their places are left out.

    So what fills blanks has the one of what predicts the next token, where it has [MASK] and the like besides.
    """
    settings = json.loads(tokenizer.engine.to_str())
    settings["added_tokens"] = [each for each in settings["added_tokens"] if not each["special"]]
    settings["post_processor"] = None
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
