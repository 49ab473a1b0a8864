"""The decoding loop, over `step(tokens, state)`: the same for n-grams, recurrent networks and Transformers.

`generate` continues prompts of equal length in lockstep. The server (`lmlab.serve.engine`), where texts join and leave
at every step, is built from the same parts: `sample_each`, `score_next`, `why_ended`, `length_after_reread`.
It knows no tokenizer. Shapes: B texts at once, T tokens read, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from lmlab.decoding.chain_rule import score_next
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.layers.kernels.linear import prepare
from lmlab.models import name_of
from lmlab.models.abilities import PredictsNext, State, Steps
from lmlab.models.states import Decoding, reorder_state
from lmlab.progress import check_cancelled

MANY = 16
"""Number of steps from which preparing the weights pays off."""

Report = Callable[[int, int], None]
"""Called with the number of tokens that are generated, and of all."""
Ended = Literal["", "boundary", "length", "stop"]
"""Why a text ended: not yet, the model ended it, length limit reached, or stopped by the caller."""


class NextTokenResult(NamedTuple):
    """The next token of one text.

    Surprisals are those of the model's own distribution, softmax(logits): before any temperature, penalty or filter, so
    that their sum is the score of the text. The log-probability of a token is -nats.
    """

    row: int
    token: int
    nats: float = math.nan  # the surprisal of the token, if `top` was given
    top: tuple[tuple[int, float], ...] = ()  # the `top` most probable tokens with their surprisals
    ended: Ended = ""


class Picker(Protocol):
    """How the next token is chosen by the logits: see sampling.py."""

    def begin(self, prompt: Tensor) -> None:
        """Begin B new texts with the tokens [B, T] of their prompts."""

    def __call__(self, logits: Tensor) -> Tensor:
        """The next tokens [B], chosen by the logits [B, V]."""


class StatefulReader:
    """Reads B texts of any length with a language model, and keeps the state.

    A model with a window holds at most that many tokens in one state. When the next ones do not fit, the state is
    dropped and the last half window read again: a step costs the same on average and has at least that much context.
    For many `steps` the weights are prepared first (`layers.kernels.linear`), which takes as long as a few steps.
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
        """Read tokens [B, T]; return the logits [B, V] of the next token."""
        check_cancelled()
        if self.window is not None:
            tokens = self._fit(tokens, self.window)
        logits, self.state = self.model.step(tokens, self.state)
        return logits

    def reorder(self, index: Tensor, *, sources: Tensor | None = None) -> None:
        """Continue row i from the state of row index[i]; the number of rows may change.

        In an encoder-decoder only the decoder's rows move. `encoded` has one row for each source, shared by the same
        number of texts; `sources` are the sources to keep (all by default), needed when texts leave.
        """
        if isinstance(self.state, Decoding):
            encoded, decoder = self.state
            encoded = encoded if sources is None else reorder_state(encoded, sources)
            self.state = Decoding(encoded, reorder_state(decoder, index))
        else:
            self.state = reorder_state(self.state, index)
        if self._held:
            self._held = [torch.cat(self._held, dim=1).index_select(0, index)]

    def _fit(self, tokens: Tensor, window: int) -> Tensor:
        """The tokens to read so that the state holds at most `window`: the new ones, or more after a restart."""
        new = tokens.shape[1]
        if self._length + new > window:
            if isinstance(self.state, Decoding):
                raise ValueError(
                    f"{name_of(self.model)} has positions for {window} target tokens, not for "
                    f"{self._length + new}: ask for fewer tokens"
                )
            keep = length_after_reread(window, new=new)
            tokens = torch.cat([*self._held, tokens], dim=1)[:, -keep:]
            self.state = self._start(tokens.shape[0])
            self._held, self._length = [], 0
        self._held.append(tokens)
        self._length += tokens.shape[1]
        return tokens

    def _start(self, batch: int) -> State:
        if isinstance(self.model, PredictsNext):
            return self.model.start(batch)
        raise ValueError(f"{name_of(self.model)} starts from a source: give state = begin(encode(source))")


def length_after_reread(window: int, *, new: int = 1) -> int:
    """The number of last tokens that are read again when a full `window` is dropped, the `new` ones included."""
    return max(window // 2, min(new, window))


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
) -> Iterator[list[NextTokenResult]]:
    """Continue prompts [B, T], each `samples` times, by at most `tokens` tokens; yield the tokens of each step.

    A prompt starts with the boundary and is read once, for any number of samples. If `boundary` is given, a text ends
    where the model generates it; `stops(row, token)` says whether the caller ends the text there. A row that has ended
    is not yielded again, and the loop ends when all have. Surprisals are computed only if `top` is given: 0 for the
    chosen tokens alone, or the number of alternatives.
    `state` is the initial state of an encoder-decoder: `model.begin(model.encode(source=source))`.
    """
    if prompt.ndim != 2 or prompt.shape[1] == 0:
        raise ValueError(
            f"a prompt of shape {list(prompt.shape)}: [B, T] with T >= 1 is needed, start it with the boundary"
        )
    if tokens < 0 or samples < 1 or (top is not None and top < 0):
        raise ValueError(
            f"tokens = {tokens}, samples = {samples}, top = {top}: tokens and top must be at least 0 and samples at "
            f"least 1"
        )
    if tokens == 0:
        return
    reader = StatefulReader(model, batch=prompt.shape[0], state=state, steps=tokens)
    logits = reader.read(prompt)
    if samples > 1:
        rows = torch.arange(prompt.shape[0], device=prompt.device).repeat_interleave(samples)
        reader.reorder(rows)
        logits, prompt = logits[rows], prompt[rows]
    pick.begin(prompt)
    going = list(range(len(prompt)))
    for left in range(tokens - 1, -1, -1):
        chosen = pick(logits)
        ids = chosen.tolist()
        scores = None if top is None else score_next(logits, ids, top=top)
        step, still = [], []
        for row in going:
            token = ids[row]
            ended = why_ended(token, left=left, boundary=boundary, stops=stops and partial(stops, row))
            nats, best = (math.nan, ()) if scores is None else scores[row]
            step.append(NextTokenResult(row, token, nats, best, ended))
            if not ended:
                still.append(row)
        yield step
        going = still
        if not going:
            return
        logits = reader.read(chosen[:, None])


def why_ended(token: int, *, left: int, boundary: int | None, stops: Callable[[int], bool] | None = None) -> Ended:
    """Why a text ends with this token, or "" if it continues; `left` is the number of tokens still allowed after it."""
    if token == boundary:
        return "boundary"
    if stops is not None and stops(token):
        return "stop"
    return "" if left else "length"


class Continuation(NamedTuple):
    """A sequence that is not text (the notes of a piece, the pixels of a picture), continued by a model."""

    ids: tuple[int, ...]  # with those that were given, without boundaries
    given: int  # the number of tokens that were given
    ended: bool  # whether the model ended the item


def continue_tokens(
    model: PredictsNext,
    given: Sequence[int],
    *,
    boundary: int,
    tokens: int,
    sampling: Sampling,
    samples: int = 1,
    report: Report = lambda done, total: None,
) -> list[Continuation]:
    """Return `samples` continuations of the tokens after a boundary, each by at most `tokens` tokens.

    Each has its own random numbers, so the first is the same for any number of samples.
    """
    row = torch.tensor([[boundary, *given]], device=model.device)
    found, ended = [list(given) for _ in range(samples)], [False] * samples
    steps = generate(model, row, tokens=tokens, pick=Sampler(sampling), samples=samples, boundary=boundary)
    for done, step in enumerate(steps, start=1):
        for each in step:
            ended[each.row] = each.token == boundary
            if not ended[each.row]:
                found[each.row].append(each.token)
        report(done, tokens)
    return [Continuation(tuple(ids), len(given), end) for ids, end in zip(found, ended, strict=True)]
