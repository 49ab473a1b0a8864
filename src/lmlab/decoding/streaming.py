"""From a stream of tokens to a stream of text: whole characters only, and nothing from a stop string on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CONTEXT = 8
"""Tokens before the new ones that are decoded with them, so that spaces and characters join as in the whole text."""


class Decoder(Protocol):
    """What turning tokens into text needs of a tokenizer; `text_of`, where it is there, makes it quicker."""

    def decode(self, ids: list[int]) -> str: ...


class TextStream:
    """Turns the tokens that continue a prompt into pieces of text which can be shown at once.

    A token may end in the middle of a character (byte-level BPE): the incomplete bytes decode as one replacement
    character at the end, which is held back until it is settled. So is the beginning of a possible stop string.
    """

    def __init__(self, tokenizer: Decoder, *, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        if any(not text for text in stop):
            raise ValueError("an empty stop string would stop every text before it begins; leave it out")
        self._tokenizer = tokenizer
        self._text_of: Callable[[int], str | None] = getattr(tokenizer, "text_of", lambda token: None)
        self._stop = tuple(stop)
        self._ids = list(prompt)[-CONTEXT:]
        text = self._text(self._ids)
        self._said = len(text)  # characters of the decoded ids that have left the decoder
        self._settled = not text.endswith(REPLACEMENT)
        self._pending = ""  # decoded, but perhaps the beginning of a stop string
        self.stopped = False

    def add(self, token: int) -> str:
        """Take the next token; give the text that is settled by it, perhaps none."""
        if self.stopped:
            return ""
        self._ids.append(token)
        new = self._text_of(token) if self._settled else None
        if new is not None:  # the same without decoding what stands before it
            self._said += len(new)
        else:
            text = self._text(self._ids)
            self._settled = not text.endswith(REPLACEMENT)
            settled = text if self._settled else text[:-1]
            new = settled[self._said :]
            self._said = max(self._said, len(settled))
        if len(self._ids) >= 4 * CONTEXT and self._settled:
            self._ids = self._ids[-CONTEXT:]
            self._said = len(self._text(self._ids))
        return self._until_stop(new)

    def finish(self) -> str:
        """The rest of the text, when no more tokens come."""
        if self.stopped:
            return ""
        rest = self._until_stop(self._text(self._ids)[self._said :])
        rest += self._pending
        self._pending, self.stopped = "", True
        return rest

    def _text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids) if ids else ""

    def _until_stop(self, new: str) -> str:
        if not self._stop:
            return new
        text = self._pending + new
        found = [place for place in (text.find(stop) for stop in self._stop) if place >= 0]
        if found:
            self.stopped, self._pending = True, ""
            return text[: min(found)]
        longest = max(
            (n for stop in self._stop for n in range(1, len(stop)) if text.endswith(stop[:n])),
            default=0,
        )
        self._pending = text[len(text) - longest :]
        return text[: len(text) - longest]
