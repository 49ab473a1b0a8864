"""Reading prompts: each alone, in pieces, and what several have in common only once.

A piece begins at the same places of a prompt whether its beginning was found or read, so the numbers are the same.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from lmlab.decoding.chain_rule import SEGMENT, windows
from lmlab.models.abilities import PredictsNext, State
from lmlab.models.states import map_state, reorder_state
from lmlab.serve.errors import NotANumberError
from lmlab.serve.metrics import Metrics

PIECE = 64
"""Tokens of a prompt that a model with a window reads at once, so that others need not wait for long."""


PREFIX_BYTES = 2**28
"""Of the prefix cache of a run, unless another size is given."""


def piece_of(model: PredictsNext) -> int:
    """How many tokens are read at once; without a window as many as scoring does, since an XL sees more in more."""
    return SEGMENT if model.window is None else PIECE


class Scored(NamedTuple):
    """How probable one token of a prompt was: its surprisal in nats, and the most probable tokens with theirs."""

    nats: float
    top: tuple[tuple[int, float], ...]


class Read(NamedTuple):
    """A model that has read a prompt: the scores [1, V] of the next token, and the state of one row."""

    logits: Tensor
    state: State


class Prefixes:
    """The prefix cache: what was read lately, up to the end of each piece; the oldest is forgotten."""

    def __init__(self, piece: int, *, room: int = PREFIX_BYTES, metrics: Metrics | None = None) -> None:
        self.piece, self.room = piece, room  # tokens, bytes
        self.bytes = 0  # in use
        self._metrics = metrics
        self._known: OrderedDict[bytes, tuple[Read, int]] = OrderedDict()

    def find(self, tokens: Sequence[int]) -> tuple[int, Read | None]:
        """The longest known beginning that ends with a piece: how many tokens, and what was read of them."""
        end, read = self._find(tokens) if self.room else (0, None)
        if self._metrics is not None and self.room:
            self._metrics.prefix_cache_queries.inc(len(tokens))
            self._metrics.prefix_cache_hits.inc(end)
        return end, read

    def _find(self, tokens: Sequence[int]) -> tuple[int, Read | None]:
        every = array("q", tokens).tobytes()
        for end in dict.fromkeys((len(tokens), *range(len(tokens) // self.piece * self.piece, 0, -self.piece))):
            if (found := self._known.get(every[: 8 * end])) is not None:
                self._known.move_to_end(every[: 8 * end])
                return end, _copy(found[0])
        return 0, None

    def keep(self, tokens: Sequence[int], read: Read) -> None:
        """Remember what was read of these tokens."""
        key = array("q", tokens).tobytes()
        if key in self._known or not self.room:
            return
        copy = _copy(read)
        size = len(key) + _bytes_of(copy)
        if size > self.room // 4:
            return
        self._known[key] = copy, size
        self.bytes += size
        while self.bytes > self.room:
            self.bytes -= self._known.popitem(last=False)[1][1]


def read_prompt(model: PredictsNext, tokens: Sequence[int], prefixes: Prefixes) -> Generator[int, None, Read]:
    """Read a prompt, as much of its end as the model can hold; yields the number of tokens after each piece."""
    if model.window is not None:
        tokens = tokens[-model.window :]
    done, read = prefixes.find(tokens)
    size = prefixes.piece
    for start in range(done, len(tokens), size):
        piece = torch.tensor([tokens[start : start + size]], device=model.device)
        read = Read(*model.step(piece, model.start(1) if read is None else read.state))
        prefixes.keep(tokens[: start + size], read)
        yield piece.shape[1]
    assert read is not None
    return read


def next_of(reading: Generator[int, None, Read | None]) -> tuple[int | None, Read | None]:
    """How many tokens of a prompt the next piece has; None and what was read, when it is through."""
    try:
        return next(reading), None
    except StopIteration as end:
        return None, end.value


@runtime_checkable
class ScoresEvery(Protocol):
    """A network, whose scores at every token come from one pass."""

    def __call__(self, tokens: Tensor, *, state: State) -> Any: ...

    def logits(self, hidden: Tensor) -> Tensor: ...


def score_prompt(
    model: PredictsNext, tokens: Sequence[int], top: int, prefixes: Prefixes, unknown: int | None = None
) -> Generator[int, None, list[Scored]]:
    """How probable each token after the first is, as `lmlab score` reckons it: a long text in overlapping windows.

    A word that an open vocabulary reads but cannot predict is as probable as the `unknown` token.
    """
    scored: list[Scored] = []
    targets = [unknown if unknown is not None and token >= model.vocabulary else token for token in tokens]
    count, size = len(tokens) - 1, prefixes.piece
    for window in windows(count, model.window or max(count, 1)):
        state: State = None
        for start in range(0, window.length, size):
            first = window.start + start
            ids = tokens[first : min(first + size, window.start + window.length)]
            piece = torch.tensor([ids], device=model.device)
            logits, (last, state) = _read_all(model, piece, model.start(1) if state is None else state)
            if not window.start and len(ids) == size:
                prefixes.keep(tokens[: start + size], Read(last, state))
            skip = max(0, window.first - start)
            if skip < len(ids):
                scored += surprisals(logits[skip:], targets[first + skip + 1 : first + len(ids) + 1], top)
            yield len(ids)
    return scored


def surprisals(logits: Tensor, targets: Sequence[int], top: int) -> list[Scored]:
    """The surprisal of each target by the scores [N, V], and of the `top` most probable tokens."""
    nats = -logits.double().log_softmax(-1)
    if nats.isnan().any():
        raise NotANumberError("the model")
    own = nats.gather(1, torch.tensor(targets, device=logits.device)[:, None]).squeeze(1).tolist()
    best, ids = nats.topk(min(top, nats.shape[1]), largest=False)
    pairs = [tuple(zip(*row, strict=True)) for row in zip(ids.tolist(), best.tolist(), strict=True)]
    return [Scored(*each) for each in zip(own, pairs, strict=True)]


def _read_all(model: PredictsNext, tokens: Tensor, state: State) -> tuple[Tensor, Read]:
    """Read tokens [1, T]; the scores [T, V] of the token after each, and what `step` would have given."""
    if isinstance(model, ScoresEvery):
        hidden, state = model(tokens, state=state)
        return model.logits(hidden[0]), Read(model.logits(hidden[:, -1]), state)
    rows = []
    for token in tokens.unbind(1):
        logits, state = model.step(token[:, None], state)
        rows.append(logits)
    return torch.cat(rows), Read(logits, state)


def _copy(read: Read) -> Read:
    """A copy that can be used up."""
    index = torch.zeros(1, dtype=torch.long, device=read.logits.device)
    return Read(read.logits, reorder_state(read.state, index))


def _bytes_of(read: Read) -> int:
    sizes = [read.logits.nbytes]
    map_state(lambda tensor: sizes.append(tensor.nbytes) or tensor, read.state)  # type: ignore[func-returns-value]
    return sum(sizes)
