"""Tokens as clients see them: their ids, their names and their offsets in a text."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from lmlab.decoding.streaming import CONTEXT, REPLACEMENT, split_unfinished
from lmlab.tokenizers import Tokenizer

HALF = 26
"""Bits of each half of an id: numbers in JSON are exact below 2^53."""
ROUNDS = 4
_KEY = secrets.token_bytes(32)
"""One key for the process, so that a run that is loaded again has the same ids."""


class ClientIds:
    """The ids of tokens for clients: those of the tokenizer's file are unchanged, those of new words are encrypted.

    New words of an open vocabulary get consecutive ids, so a client could count on and ask for the words of others.
    The ids below 2^52 are permuted by a Feistel network with a key of this process (Luby and Rackoff 1988): a word
    keeps its id while it is cached, and with a million words cached, one guess in four billion is one of them.
    """

    def __init__(self, known: int) -> None:
        self.known = known  # number of tokens in the file

    def encode(self, token: int) -> int:
        """The id of a token for clients."""
        if token < self.known:
            return token
        left, right = divmod(token - self.known, 1 << HALF)
        for turn in range(ROUNDS):
            left, right = right, left ^ self._mix(turn, right)
        return self.known + (left << HALF) + right

    def decode(self, number: int) -> int:
        """The token of a client's id."""
        if not self.known <= number < self.known + (1 << 2 * HALF):
            return number
        left, right = divmod(number - self.known, 1 << HALF)
        for turn in reversed(range(ROUNDS)):
            left, right = right ^ self._mix(turn, left), left
        return self.known + (left << HALF) + right

    def _mix(self, turn: int, half: int) -> int:
        digest = hashlib.blake2b(bytes((turn, *half.to_bytes(4, "big"))), key=_KEY, digest_size=4).digest()
        return int.from_bytes(digest, "big") % (1 << HALF)


class TokenNames:
    """The name of each token: its text; bytes that are not a whole character as `bytes:…`; else its piece or its id.

    No two tokens have the same name, because alternatives are sent as an object with names as keys.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __getitem__(self, token: int) -> str:
        if token < len(self._names):
            return self._names[token]
        return (self.tokenizer.is_open and self.tokenizer.decode([token])) or f"token_id:{token}"

    @cached_property
    def _names(self) -> list[str]:
        every = range(self.tokenizer.vocabulary)
        texts = [self.tokenizer.decode([token]) for token in every]
        shared = Counter(texts)
        first = [
            text if text and REPLACEMENT not in text and shared[text] == 1 else self._otherwise(token)
            for token, text in enumerate(texts)
        ]
        again = Counter(first)
        return [name if again[name] == 1 else f"token_id:{token}" for token, name in enumerate(first)]

    def _otherwise(self, token: int) -> str:
        if (raw := self.tokenizer.bytes_of(token)) is not None:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        return self.tokenizer.engine.id_to_token(token) or f"token_id:{token}"


class Offsets:
    """The offset of each token in the text: after the text of the tokens before it."""

    def __init__(self, tokenizer: Tokenizer, *, start: int = 0, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt)[-CONTEXT:]
        whole, unfinished = split_unfinished(tokenizer, self._ids)
        self._text = whole + unfinished
        self._start = start - len(whole)

    def add(self, token: int) -> int:
        """The offset of the next token; the same for all bytes of one character."""
        self._ids.append(token)
        before, self._text = self._text, self._tokenizer.decode(self._ids)
        pairs = enumerate(zip(before, self._text, strict=False))
        common = next((i for i, (a, b) in pairs if a != b), min(len(before), len(self._text)))
        if before == self._text and before.endswith(REPLACEMENT):
            common -= 1
        here = self._start + common
        if len(self._ids) >= 4 * CONTEXT and not self._text.endswith(REPLACEMENT):
            self._ids = self._ids[-CONTEXT:]
            shorter = self._tokenizer.decode(self._ids)
            self._start += len(self._text) - len(shorter)
            self._text = shorter
        return here
