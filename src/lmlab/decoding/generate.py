"""The one decoding loop, over `step(tokens, state)`: it serves n-gram, recurrent net and Transformer alike.

It knows no tokenizer. Shapes: B texts at once, T tokens read, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from lmlab.layers.kernels.linear import prepare
from lmlab.models import name_of
from lmlab.models.abilities import PredictsNext, State, Steps
from lmlab.models.states import Decoding, reorder_state
from lmlab.progress import check_cancelled

MANY = 16
"""Steps from which on it is worth preparing a model for them."""

Ended = Literal["", "boundary", "length", "stop"]
"""Why a text ended: it goes on, the model ended it, it has all the tokens asked for, or it was told to stop."""


class Drawn(NamedTuple):
    """The next token of one text.

    Surprisals are those of the model's own distribution, softmax(scores): before any temperature, penalty or filter, so
    that they add up to what scoring the text gives. The log-probability of a token is -nats.
    """

    row: int
    token: int
    nats: float = math.nan  # the surprisal of the token, if asked for
    top: tuple[tuple[int, float], ...] = ()  # the most probable tokens with their surprisals, as many as asked for
    ended: Ended = ""


class Picker(Protocol):
    """How the next token is chosen from the scores: see sampling.py."""

    def begin(self, prompt: Tensor) -> None:
        """Begin B new texts with the tokens [B, T] that they start with."""

    def __call__(self, logits: Tensor) -> Tensor:
        """The next tokens [B], chosen by the scores [B, V]."""


class Reader:
    """A language model in the course of reading B texts, of any length.

    A model with a window holds at most that many tokens in one state. When the next ones do not fit, it forgets all
    and re-reads the last half window, so that a step costs the same on average and never sees less than that half.
    For many `steps` its weights are laid out anew, which takes as long as some of them.
    """

    def __init__(self, model: Steps, *, batch: int, state: State = None, steps: int = 1) -> None:
        if steps >= MANY:
            prepare(model)
        self.model = model
        self.window = model.window
        self.state = self._start(batch) if state is None else state
        self._held: list[Tensor] = []  # the tokens in the state, of a model with a window
        self._length = 0

    def read(self, tokens: Tensor) -> Tensor:
        """Read tokens [B, T]; give the scores [B, V] of the token after them."""
        check_cancelled()
        if self.window is not None:
            tokens = self._fit(tokens, self.window)
        logits, self.state = self.model.step(tokens, self.state)
        return logits

    def reorder(self, index: Tensor, *, sources: Tensor | None = None) -> None:
        """Let row i go on from what row index[i] has read; there may be more or fewer rows than before.

        Of an encoder-decoder only the decoder's rows move. Its memory has one row for each source, shared by equally
        many texts; `sources` are those that stay (by default all), and is given where texts leave.
        """
        if isinstance(self.state, Decoding):
            memory, decoder = self.state
            memory = memory if sources is None else reorder_state(memory, sources)
            self.state = Decoding(memory, reorder_state(decoder, index))
        else:
            self.state = reorder_state(self.state, index)
        if self._held:
            self._held = [torch.cat(self._held, dim=1).index_select(0, index)]

    def _fit(self, tokens: Tensor, window: int) -> Tensor:
        """The tokens to read so that the state holds at most `window`: the new ones, or more after a fresh start."""
        new = tokens.shape[1]
        if self._length + new > window:
            if isinstance(self.state, Decoding):
                raise ValueError(
                    f"{name_of(self.model)} has positions for {window} target tokens, not for "
                    f"{self._length + new}: ask for fewer tokens"
                )
            keep = max(window // 2, min(new, window))
            tokens = torch.cat([*self._held, tokens], dim=1)[:, -keep:]
            self.state = self._start(tokens.shape[0])
            self._held, self._length = [], 0
        self._held.append(tokens)
        self._length += tokens.shape[1]
        return tokens

    def _start(self, batch: int) -> State:
        if isinstance(self.model, PredictsNext):
            return self.model.start(batch)
        raise ValueError(f"{name_of(self.model)} begins from a source: give state = begin(encode(source))")


@torch.inference_mode()
def generate(
    model: Steps,
    prompt: Tensor,
    *,
    tokens: int,
    pick: Picker,
    samples: int = 1,
    boundary: int | None = None,
    state: State = None,
    top: int | None = None,
    stops: Callable[[int, int], bool] | None = None,
) -> Iterator[list[Drawn]]:
    """Continue prompts [B, T], each `samples` times, by at most `tokens` tokens; yield those of each step as they come.

    A prompt begins with the boundary and is read once, however many samples there are. With `boundary` given, a text
    ends where the model produces it; `stops` is asked with the row and its new token whether the text ends there. A row
    that has ended is yielded no more, and the loop ends when all have. Surprisals are computed only where asked for:
    `top` is 0 for those of the drawn tokens alone, or how many alternatives are wanted besides.
    `state` is where to begin, of an encoder-decoder: `model.begin(model.encode(source=source))`.
    """
    if prompt.ndim != 2 or prompt.shape[1] == 0:
        raise ValueError(
            f"a prompt of shape {list(prompt.shape)}: [B, T] with T >= 1 is needed, begin it with the boundary"
        )
    if tokens < 0 or samples < 1 or (top is not None and top < 0):
        raise ValueError(
            f"tokens = {tokens}, samples = {samples}, top = {top}: tokens and top must be at least 0 and samples at "
            f"least 1"
        )
    if tokens == 0:
        return
    reader = Reader(model, batch=prompt.shape[0], state=state, steps=tokens)
    logits = reader.read(prompt)
    if samples > 1:
        rows = torch.arange(prompt.shape[0], device=prompt.device).repeat_interleave(samples)
        reader.reorder(rows)
        logits, prompt = logits[rows], prompt[rows]
    pick.begin(prompt)
    going = list(range(len(prompt)))
    for left in range(tokens - 1, -1, -1):
        chosen = pick(logits)
        told = None if top is None else _surprisals(logits, chosen, top)
        ids = chosen.tolist()
        step, still = [], []
        for row in going:
            token, ended = ids[row], _ended(row, ids[row], left, boundary, stops)
            step.append(Drawn(row, token, ended=ended) if told is None else Drawn(row, token, *told[row], ended))
            if not ended:
                still.append(row)
        yield step
        going = still
        if not going:
            return
        logits = reader.read(chosen[:, None])


def _ended(row: int, token: int, left: int, boundary: int | None, stops: Callable[[int, int], bool] | None) -> Ended:
    if token == boundary:
        return "boundary"
    if stops is not None and stops(row, token):
        return "stop"
    return "" if left else "length"


def _surprisals(logits: Tensor, chosen: Tensor, top: int) -> list[tuple[float, tuple[tuple[int, float], ...]]]:
    """For each row the surprisal of the chosen token, and the `top` most probable ones with theirs."""
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    nats = -logits.to(exact).log_softmax(-1)
    own = nats.gather(1, chosen[:, None]).squeeze(1).tolist()
    best, token = nats.topk(min(top, nats.shape[1]), largest=False)
    pairs = [tuple(zip(*row, strict=True)) for row in zip(token.tolist(), best.tolist(), strict=True)]
    return list(zip(own, pairs, strict=True))
