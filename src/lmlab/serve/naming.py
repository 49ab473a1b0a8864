"""How tokens are written in answers: as text where that tells them apart, so that none hides another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from lmlab.decoding.streaming import CONTEXT, REPLACEMENT, split_unfinished
from lmlab.tokenizers import Tokenizer


class TokenNames:
    """The name of each token: its text; bytes that are no whole character as `bytes:…`; else its piece or its number.

    No two tokens have the same name, because alternatives are told in an object by name.
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
    """Where each token begins in the text: after all that the tokens before it settle."""

    def __init__(self, tokenizer: Tokenizer, *, start: int = 0, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt)[-CONTEXT:]
        whole, unfinished = split_unfinished(tokenizer, self._ids)
        self._text = whole + unfinished
        self._start = start - len(whole)

    def add(self, token: int) -> int:
        """The place of the next token; the same for all that are bytes of one character."""
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
