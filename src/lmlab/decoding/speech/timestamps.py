"""Time tokens in a transcript: which may follow which, and the segments between them.

Radford et al. 2022, section 4.5. A segment is a time, text, and a time; the last segment of a window may lack the
second time. Shapes: N texts, T tokens written so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lmlab.tokenizers.speech_tokens import TIME_STEP, SpeechTokens

LATEST_START = 1.0
"""Seconds into a window at which the first segment begins at the latest."""


@dataclass(frozen=True, kw_only=True)
class TranscriptRules:
    """Tokens that may not come next, as `beam_search` asks for them.

    The tokens `never` are never written, and `first` not at the beginning. With `times`, a transcript begins with a
    time, times come in pairs (the end of a segment and the begin of the next) and never decrease, and where all times
    together are more probable than every word, a time comes next.
    """

    tokens: SpeechTokens
    never: Sequence[int] = ()
    first: Sequence[int] = ()
    times: bool = False

    def __call__(self, written: Tensor, logs: Tensor) -> Tensor:
        forbidden = torch.zeros_like(logs, dtype=torch.bool)
        forbidden[:, list(self.never)] = True
        if not written.shape[1]:
            forbidden[:, list(self.first)] = True
        if self.times and self.tokens.first_time is not None:
            self._time_rules(written, forbidden, self.tokens.first_time)
            log_times = logs.masked_fill(forbidden, -torch.inf)
            total = log_times[:, self.tokens.first_time :].logsumexp(1)
            best = log_times[:, : self.tokens.first_time].amax(1)
            forbidden[:, : self.tokens.first_time] |= (total > best)[:, None]
        elif self.tokens.first_time is not None:
            forbidden[:, self.tokens.first_time :] = True
        return forbidden

    def _time_rules(self, written: Tensor, forbidden: Tensor, first: int) -> None:
        if self.tokens.plain is not None:
            forbidden[:, self.tokens.plain] = True
        length = written.shape[1]
        if not length:
            forbidden[:, :first] = True
            forbidden[:, first + round(LATEST_START / TIME_STEP) + 1 :] = True
            return
        was_time = written[:, -1] >= first
        second = written[:, -2] >= first if length > 1 else torch.ones_like(was_time)
        forbidden[:, first:] |= (was_time & second)[:, None]  # a segment has begun: words
        forbidden[:, : self.tokens.end] |= (was_time & ~second)[:, None]  # a segment has ended: the next, or the end
        latest = written.masked_fill(written < first, first).amax(1)
        least = torch.where(was_time & ~second, latest, latest + 1)
        numbers = torch.arange(forbidden.shape[1], device=written.device)
        forbidden |= (numbers >= first) & (numbers < least[:, None])


class TimedText(NamedTuple):
    """A piece of a window between two times, in seconds from the begin of the window."""

    begin: float
    end: float
    tokens: list[int]


def split_segments(written: Sequence[int], tokens: SpeechTokens, *, seconds: float) -> tuple[list[TimedText], float]:
    """The segments of a window of `seconds`, and how far it has been transcribed: where the next one begins.

    After a segment without an end the next window begins at the begin of that segment, unless it is the only one.
    """
    first = tokens.first_time
    if first is None:
        return [TimedText(0.0, seconds, list(written))], seconds
    segments: list[TimedText] = []
    begin, text = 0.0, list[int]()
    for token in written:
        if token < first:
            text.append(token)
            continue
        time = (token - first) * TIME_STEP
        if text:
            segments.append(TimedText(begin, min(time, seconds), text))
        begin, text = time, []
    ended = not text
    if text and not segments:
        return [TimedText(min(begin, seconds), seconds, text)], seconds
    if ended and len(written) > 1 and written[-2] >= first:
        return segments, min(begin, seconds)  # two times at the end: a segment begins that did not fit
    if ended:
        return segments, seconds
    return segments, min(begin, seconds)
