"""One sequence that is being generated: its prompt, its options, and the pieces of output that it sends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from lmlab.decoding.chain_rule import TokenScore
from lmlab.decoding.generate import Ended, why_ended
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.decoding.streaming import Decoder, TextStream

Finish = Literal["", "stop", "length", "cancelled", "error"]
FINISH: dict[Ended, Finish] = {"": "", "boundary": "stop", "stop": "stop", "length": "length"}


class OutputPiece(NamedTuple):
    """One piece of output: a token with its text, the end of the sequence, or the scores of its prompt."""

    token: int | None = None
    text: str = ""
    scored: TokenScore | None = None  # of the token, if asked for
    finish: Finish = ""
    prompt: list[TokenScore] | None = None  # of every token of the prompt, sent once, before any other piece
    error: str = ""


@dataclass(kw_only=True, eq=False)
class GeneratedSequence:
    """A prompt to continue. `send` is called in the engine's thread, and must not block."""

    prompt: Sequence[int]
    """In its frame: with the boundary before it, if the model reads one."""
    tokens: int
    """The maximum number of tokens to generate."""
    sampling: Sampling
    decoder: Decoder
    send: Callable[[OutputPiece], None]
    sample: int = 0
    """The index among the sequences with the same seed, each with its own random numbers."""
    boundary: int | None = None
    ends: frozenset[int] = frozenset()
    """Further tokens that end the sequence: in a chat, the token that ends a message."""
    stop: Sequence[str] = ()
    top: int | None = None
    """The number of alternatives sent with each token; None for no scores at all."""
    prompt_top: int | None = None
    """The same for the tokens of the prompt."""
    opening: int | None = None
    """The token after which the first token of the prompt is scored, if nothing was put before the prompt."""
    unknown: int | None = None
    """The token whose score is used for words that can be read but not predicted."""
    arrived: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    last_token_at: float = 0.0
    written: int = 0
    finish: Finish = ""

    def __post_init__(self) -> None:
        import torch

        self.sampler = Sampler(self.sampling)
        penalized = list(self.prompt) if self.sampling.repetition_penalty != 1.0 else []
        self.sampler.begin(torch.tensor([penalized], dtype=torch.long), first=self.sample)
        self.stream = TextStream(self.decoder, prompt=list(self.prompt), stop=self.stop)
        self.context = list(self.prompt)  # the tokens in the model's state, and the one to be read next

    def cancel(self) -> None:
        """End the sequence at the next step; may be called from any thread."""
        self.cancelled = True

    def add(self, token: int, scored: TokenScore | None) -> None:
        """Add the next token and send it."""
        self.written += 1
        self.context.append(token)
        boundary = token if token in self.ends else self.boundary
        ended = why_ended(token, left=self.tokens - self.written, boundary=boundary, stops=self.stream.stops)
        self.finish = FINISH[ended]
        self.send(OutputPiece(token=token, text=self.stream.take(ended=bool(ended)), scored=scored, finish=self.finish))

    def end(self, finish: Finish, error: str = "") -> None:
        """End without another token."""
        self.finish = finish
        self.send(OutputPiece(text=self.stream.finish(), finish=finish, error=error))
