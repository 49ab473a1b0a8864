"""One text in the writing, as the engine knows it, and what it tells of each of its tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from lmlab.decoding.generate import Ended
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.decoding.streaming import Decoder, TextStream
from lmlab.serve.prefill import Scored

Finish = Literal["", "stop", "length", "cancelled", "error"]


class Piece(NamedTuple):
    """What a text has to tell: a new token with the text that it settles, its end, or the scores of its prompt."""

    token: int | None = None
    text: str = ""
    scored: Scored | None = None  # of the token, where asked for
    finish: Finish = ""
    prompt: list[Scored] | None = None  # of every token of the prompt, told once, before any other piece
    error: str = ""


FINISH: dict[Ended, Finish] = {"": "", "boundary": "stop", "stop": "stop", "length": "length"}


@dataclass(kw_only=True, eq=False)
class Continuation:
    """A prompt to continue. `tell` is called in the engine's thread, and must not block."""

    prompt: Sequence[int]
    """As the model reads it: with the boundary before it, if it reads one."""
    tokens: int
    sampling: Sampling
    decoder: Decoder
    tell: Callable[[Piece], None]
    number: int = 0
    """Which of the texts with this seed it is."""
    boundary: int | None = None
    ends: frozenset[int] = frozenset()
    """Further tokens at which the text ends: of a chat, that which ends a message."""
    stop: Sequence[str] = ()
    top: int | None = None
    """How many of the most probable tokens are told with each token; None where not even its own surprisal is."""
    prompt_top: int | None = None
    """The same for the tokens of the prompt."""
    opening: int | None = None
    """The token after which the first token of the prompt is scored, where nothing was put before the prompt."""
    unknown: int | None = None
    """The token that stands for words which can be read but not predicted."""
    arrived: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    began: float = 0.0
    latest: float = 0.0
    written: int = 0
    finish: Finish = ""

    def __post_init__(self) -> None:
        import torch

        self.sampler = Sampler(self.sampling)
        seen = list(self.prompt) if self.sampling.repetition_penalty != 1.0 else []
        self.sampler.begin(torch.tensor([seen], dtype=torch.long), first=self.number)
        self.stream = TextStream(self.decoder, prompt=list(self.prompt), stop=self.stop)
        self.held = list(self.prompt)  # what the state of a model with a window holds, and the token to be read next

    def cancel(self) -> None:
        """Let the text end at the next step; may be called from any thread."""
        self.cancelled = True

    def add(self, token: int, scored: Scored | None) -> None:
        """Take the next token and tell it."""
        self.written += 1
        self.held.append(token)
        text, ended = "", _ended(self, token)
        if ended != "boundary":
            text = self.stream.add(token)
            if self.stream.stopped:
                ended = "stop"
        if ended:
            text += self.stream.finish()
        self.finish = FINISH[ended]
        self.tell(Piece(token=token, text=text, scored=scored, finish=self.finish))

    def end(self, finish: Finish, error: str = "") -> None:
        """End without a further token."""
        self.finish = finish
        self.tell(Piece(text=self.stream.finish(), finish=finish, error=error))


def _ended(text: Continuation, token: int) -> Ended:
    if token == text.boundary or token in text.ends:
        return "boundary"
    return "length" if text.written >= text.tokens else ""
