"""From a stream of tokens to a stream of text: whole characters only, and nothing from a stop string on."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CONTEXT = 8
"""Tokens before the new ones that are decoded with them, so that spaces and characters join as in the whole text."""
LONGEST = 4
"""Bytes of a character, at most."""


class Decoder(Protocol):
    """What turning tokens into text needs of a tokenizer; `text_of`, where it is there, makes it quicker."""

    def decode(self, ids: list[int]) -> str: ...

    def bytes_of(self, token: int) -> bytes | None: ...


def split_unfinished(decoder: Decoder, ids: Sequence[int]) -> tuple[str, str]:
    """The text of ids without the character in whose middle they end; and a mark in its place, if they do.

    Tokens may be bytes: all of them (byte-level BPE), or those of rare characters (`<0xE2>`). Of bytes that are not a
    whole character some decoders make one replacement character, others one for each byte of the rare characters there.
    """
    text = decoder.decode(list(ids)) if ids else ""
    if not text.endswith(REPLACEMENT):
        return text, ""
    parts: list[bytes] = []
    for token in reversed(ids[-LONGEST:]):
        if (raw := decoder.bytes_of(token)) is None:
            break
        parts.insert(0, raw)
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    reader.decode(b"".join(parts))
    waiting = len(reader.getstate()[0])
    if not waiting:
        return text, ""
    if all(len(part) == 1 for part in parts[-waiting:]):
        return decoder.decode(list(ids[:-waiting])), REPLACEMENT
    return text[:-1], REPLACEMENT


class TextStream:
    """Turns the tokens that continue a prompt into pieces of text which can be shown at once.

    A token may end in the middle of a character, which is held back until it is finished; so is one that the prompt
    has begun. So is the beginning of a possible stop string.
    """

    def __init__(self, tokenizer: Decoder, *, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        if any(not text for text in stop):
            raise ValueError("an empty stop string would stop every text before it begins; leave it out")
        self._tokenizer = tokenizer
        self._text_of: Callable[[int], str | None] = getattr(tokenizer, "text_of", lambda token: None)
        self._stop = tuple(stop)
        self._ids = self._last(list(prompt))
        text, unfinished = split_unfinished(tokenizer, self._ids)
        self._said = len(text)  # characters of the decoded ids that have left the decoder
        self._settled = not unfinished
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
            text, unfinished = split_unfinished(self._tokenizer, self._ids)
            self._settled = not unfinished
            new = text[self._said :]
            self._said = max(self._said, len(text))
        if len(self._ids) >= 4 * CONTEXT and self._settled:
            self._ids = self._last(self._ids)
            self._said = len(self._tokenizer.decode(self._ids))
        return self._until_stop(new)

    def finish(self) -> str:
        """The rest of the text, when no more tokens come."""
        if self.stopped:
            return ""
        text, unfinished = split_unfinished(self._tokenizer, self._ids)
        rest = self._until_stop((text + unfinished)[self._said :])
        rest += self._pending
        self._pending, self.stopped = "", True
        return rest

    def _last(self, ids: list[int]) -> list[int]:
        """The last few ids, from the beginning of a character on."""
        begin = max(0, len(ids) - CONTEXT)
        while begin and begin < len(ids) and _continues(self._tokenizer.bytes_of(ids[begin])):
            begin += 1
        return ids[begin:]

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


def _continues(raw: bytes | None) -> bool:
    """Whether bytes begin in the middle of a character."""
    return bool(raw) and (raw or b"")[0] & 0xC0 == 0x80
