"""From a stream of tokens to a stream of text: whole characters only, and nothing after the start of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CONTEXT = 8
"""Tokens before the new ones that are decoded with them, so that spaces and characters are those of the whole text."""
LONGEST = 4
"""Bytes of a character, at most."""


class Decoder(Protocol):
    """The part of a tokenizer that turns tokens into text; an optional `text_of` makes it faster."""

    def decode(self, ids: list[int]) -> str: ...

    def bytes_of(self, token: int) -> bytes | None: ...


def split_unfinished(decoder: Decoder, ids: Sequence[int]) -> tuple[str, str]:
    """The text of ids without an unfinished character at its end, and a replacement character if there is one.

    Tokens may be bytes: all of them (byte-level BPE), or those of rare characters (`<0xE2>`). For bytes that are not a
    whole character, some decoders write one replacement character, others one for each byte.
    """
    text = decoder.decode(list(ids)) if ids else ""
    if not text.endswith(REPLACEMENT):
        return text, ""
    parts: list[tuple[int, bytes]] = []  # position and bytes of the last tokens that have bytes
    for position in reversed(range(len(ids))):
        raw = decoder.bytes_of(ids[position])
        if raw is not None:
            parts.insert(0, (position, raw))
        elif decoder.decode([ids[position]]):  # text; special tokens have none, and may occur within a character
            break
        if len(parts) == LONGEST:
            break
    waiting = _count_unfinished(b"".join(raw for _, raw in parts))
    if not waiting:
        return text, ""
    if all(len(raw) == 1 for _, raw in parts[-waiting:]):
        return decoder.decode(list(ids[: parts[-waiting][0]])), REPLACEMENT
    return text[:-1], REPLACEMENT


def _count_unfinished(raw: bytes) -> int:
    """The number of bytes at the end that may become a character."""
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    reader.decode(raw)
    held = reader.getstate()[0]
    # Python also holds the first two bytes of a surrogate (ED A0), which can never become a character.
    return len(held) if held.decode(errors="replace") == REPLACEMENT else 0


class TextStream:
    """Turns the tokens that continue a prompt into pieces of text that can be shown immediately.

    Text is held back while it is uncertain: an unfinished character, and the start of a possible stop string.
    `ends` are tokens that end the text and are not part of it.
    """

    def __init__(
        self,
        tokenizer: Decoder,
        *,
        prompt: Sequence[int] = (),
        stop: Sequence[str] = (),
        ends: frozenset[int] = frozenset(),
    ) -> None:
        if any(not text for text in stop):
            raise ValueError("an empty stop string would stop every text before it starts; leave it out")
        self._tokenizer = tokenizer
        self._text_of: Callable[[int], str | None] = getattr(tokenizer, "text_of", lambda token: None)
        self._stop, self._ends = tuple(stop), ends
        self._ids = self._last(list(prompt))
        text, unfinished = split_unfinished(tokenizer, self._ids)
        self._said = len(text)  # characters of the decoded ids that were returned
        self._settled = not unfinished
        self._pending = ""  # decoded, but perhaps the start of a stop string
        self._ready = ""  # of the last token that `stops` was given
        self.stopped = False

    def stops(self, token: int) -> bool:
        """Add the next token; whether the text ends there. `take` returns the text."""
        if token in self._ends:
            return True
        self._ready += self.add(token)
        return self.stopped

    def take(self, *, ended: bool) -> str:
        """The new text since the last call; with the rest if the text has `ended`."""
        text, self._ready = self._ready, ""
        return text + self.finish() if ended else text

    def add(self, token: int) -> str:
        """Add the next token; return the new text that is certain, which may be empty."""
        if self.stopped:
            return ""
        self._ids.append(token)
        new = self._text_of(token) if self._settled else None
        if new is not None:  # the same without decoding the tokens before it
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
        """The rest of the text, after the last token."""
        if self.stopped:
            return ""
        text, unfinished = split_unfinished(self._tokenizer, self._ids)
        rest = self._until_stop((text + unfinished)[self._said :])
        rest += self._pending
        self._pending, self.stopped = "", True
        return rest

    def _last(self, ids: list[int]) -> list[int]:
        """The last few ids, from the start of a character on."""
        begin = max(0, len(ids) - CONTEXT)
        while begin and begin < len(ids) and _continues(self._tokenizer.bytes_of(ids[begin])):
            begin += 1
        return ids[begin:]

    def _until_stop(self, new: str) -> str:
        if not self._stop:
            return new
        text = self._pending + new
        found = [position for position in (text.find(stop) for stop in self._stop) if position >= 0]
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
