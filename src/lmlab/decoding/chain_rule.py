"""Exact scores by the chain rule: the surprisal of every token given the tokens before it.

A document is scored after the boundary: its first token is predicted too, the boundary after its end is not. The state
of a recurrent network is carried from segment to segment. A model with a window reads overlapping windows: each token
after the first window has at least half a window of context.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lmlab.decoding.interpolation import InterpolatedModel
from lmlab.models.abilities import PredictsNext, State
from lmlab.models.states import reorder_state
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers.frames import pad_rows

Nats = NDArray[np.float64]

SEGMENT = 256
"""Tokens that a network without a window reads at once; a Transformer-XL has more context in a longer segment."""
LOGITS_AT_ONCE = 2**26
"""Bounds the memory of one batch: rows x tokens x vocabulary."""


class TokenScore(NamedTuple):
    """The surprisal of one token in nats, and the most probable tokens in its place with theirs."""

    nats: float
    top: tuple[tuple[int, float], ...] = ()


def score_next(logits: Tensor, tokens: Sequence[int], *, top: int) -> list[TokenScore]:
    """The score of one next token for each row of logits [N, V], with the `top` most probable tokens."""
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    nats = -logits.to(exact).log_softmax(-1)
    own = nats.gather(1, torch.tensor(tokens, device=logits.device)[:, None]).squeeze(1).tolist()
    best, ids = nats.topk(min(top, nats.shape[1]), largest=False)
    pairs = [tuple(zip(*row, strict=True)) for row in zip(ids.tolist(), best.tolist(), strict=True)]
    return [TokenScore(*each) for each in zip(own, pairs, strict=True)]


@runtime_checkable
class ScoresVectors(Protocol):
    """A network that computes losses from hidden vectors, so only those of chosen positions."""

    def __call__(self, tokens: Tensor) -> tuple[Tensor, State]: ...

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor: ...


@runtime_checkable
class ScoresEveryToken(Protocol):
    """A network whose logits at every position come from one pass."""

    def __call__(self, tokens: Tensor, *, state: State) -> tuple[Tensor, State]: ...

    def logits(self, hidden: Tensor) -> Tensor: ...


@torch.inference_mode()
def score_tokens(
    model: PredictsNext,
    documents: Sequence[ArrayLike | Tensor],
    *,
    boundary: int,
    batch: int = 16,
    segment: int | None = None,
    progress: ReportProgress | None = None,
) -> list[Nats]:
    """The surprisal in nats of each token of each document (given without boundaries); `batch` changes only the speed.

    The parts of a mixture are scored one after another, each with its own context, and then mixed.
    `segment` is the number of tokens that a model without a window reads at once (256; more for n-grams).
    """
    if batch < 1 or (segment is not None and segment < 1):
        raise ValueError(f"batch = {batch}, segment = {segment}: both must be at least 1")
    texts = _tensors(documents)
    count = _Counter(sum(map(len, texts)) * _parts(model), progress)
    return _score(model, [_after(boundary, text) for text in texts], batch, segment, count)


@torch.inference_mode()
def score_without_boundary(
    model: PredictsNext,
    documents: Sequence[ArrayLike | Tensor],
    *,
    boundary: int,
    batch: int = 16,
    progress: ReportProgress | None = None,
) -> list[Nats]:
    """The same for a model that reads no boundary before a text: only the first token is predicted from it.

    So every token counts, and all but the first have the probability that `transformers` computes.
    """
    texts = _tensors(documents)
    count = _Counter(sum(map(len, texts)) * _parts(model), progress)
    firsts = sorted({int(text[0]) for text in texts if len(text)})
    alone = _score(model, [torch.tensor([boundary, token]) for token in firsts], batch, None, _Counter(0, None))
    nats_of = dict(zip(firsts, (float(nats[0]) for nats in alone), strict=True))
    rest = _score(model, [text if len(text) else _after(boundary, text) for text in texts], batch, None, count)
    return [
        np.concatenate([[nats_of[int(text[0])]], nats]) if len(text) else nats
        for text, nats in zip(texts, rest, strict=True)
    ]


def _tensors(documents: Sequence[ArrayLike | Tensor]) -> list[Tensor]:
    return [torch.from_numpy(np.array(document, dtype=np.int64)) for document in documents]


def _after(boundary: int, text: Tensor) -> Tensor:
    return torch.cat([text.new_tensor([boundary]), text])


class _Counter:
    """Counts the scored tokens and reports progress."""

    def __init__(self, total: int, progress: ReportProgress | None) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, tokens: int) -> None:
        check_cancelled()
        self.done += tokens
        if self.progress is not None:
            self.progress(self.done, self.total)


def _parts(model: PredictsNext) -> int:
    return sum(map(_parts, model.models)) if isinstance(model, InterpolatedModel) else 1


def _score(model: PredictsNext, rows: list[Tensor], batch: int, segment: int | None, count: _Counter) -> list[Nats]:
    """The surprisals of all tokens of each row except the first."""
    if isinstance(model, InterpolatedModel):
        parts = [_score(part, rows, batch, segment, count) for part in model.models]
        return [model.mix_nats(nats) for nats in zip(*parts, strict=True)]
    results = [np.zeros(len(row) - 1) for row in rows]
    if model.window is None:
        segment = segment or (SEGMENT if isinstance(model, ScoresVectors) else 16384)
        _score_segments(model, rows, results, batch, segment, count)
    else:
        _score_windows(model, model.window, rows, results, batch, count)
    return results


def _rows_at_once(model: PredictsNext, batch: int, length: int) -> int:
    """The number of rows of `length` tokens to score at once: `batch`, or fewer if their logits need much memory."""
    if not isinstance(model, ScoresVectors):
        return batch
    return max(1, min(batch, LOGITS_AT_ONCE // (length * model.vocabulary)))


def _score_segments(
    model: PredictsNext, rows: list[Tensor], results: list[Nats], batch: int, segment: int, count: _Counter
) -> None:
    """Score documents in batches, longest first, segment by segment with the state; a row leaves where its text ends.

    Segments start at the same positions for every batch size, so that results do not depend on it.
    """
    device, size = model.device, _rows_at_once(model, batch, segment)
    order = sorted((i for i, nats in enumerate(results) if len(nats)), key=lambda i: -len(results[i]))
    for group in (order[i : i + size] for i in range(0, len(order), size)):
        state = model.start(len(group))
        for start in range(0, len(results[group[0]]), segment):
            active = [i for i in group if len(results[i]) > start]
            if len(active) < len(group):
                group = active
                state = reorder_state(state, torch.arange(len(active), device=device))
            text, _ = pad_rows([rows[i][start : start + segment + 1] for i in group], device=device)
            nats, state = model.score(text[:, :-1], text[:, 1:], state)
            for i, scored in zip(group, nats.double().cpu().numpy(), strict=True):
                part = results[i][start : start + segment]
                part[:] = scored[: len(part)]
                count.add(len(part))


class ScoredWindow(NamedTuple):
    """A part of a document that is read from an empty state, to score the new tokens in it."""

    document: int
    start: int  # position of the first token in the document
    first: int  # the first position in the window whose target is scored here
    length: int


def _score_windows(
    model: PredictsNext, window: int, rows: list[Tensor], results: list[Nats], batch: int, count: _Counter
) -> None:
    """Score the windows of all documents in batches, longest first; each starts half a window after the previous."""
    device, size = model.device, _rows_at_once(model, batch, window)
    every = [w for i, nats in enumerate(results) for w in windows(len(nats), window, document=i)]
    every.sort(key=lambda w: -w.length)
    for group in (every[i : i + size] for i in range(0, len(every), size)):
        text, _ = pad_rows([rows[w.document][w.start : w.start + w.length + 1] for w in group], device=device)
        position = torch.arange(text.shape[1] - 1, device=device)
        first = torch.tensor([w.first for w in group], device=device)[:, None]
        length = torch.tensor([w.length for w in group], device=device)[:, None]
        wanted = (position >= first) & (position < length)
        scored = _nats_where(wanted, model, text[:, :-1], text[:, 1:]).double().cpu().numpy()
        done = 0
        for w in group:
            new = w.length - w.first
            results[w.document][w.start + w.first : w.start + w.length] = scored[done : done + new]
            done += new
        count.add(done)


def windows(length: int, window: int, *, document: int = 0) -> Iterable[ScoredWindow]:
    """Windows over `length` tokens that score each token once: the first all of its tokens, the others the new ones."""
    stride = max(1, window // 2)
    start, scored = 0, 0
    while scored < length:
        end = min(start + window, length)
        yield ScoredWindow(document, start, scored - start, end - start)
        scored, start = end, start + stride


def _nats_where(wanted: Tensor, model: PredictsNext, tokens: Tensor, targets: Tensor) -> Tensor:
    """The surprisal of the `wanted` targets, row by row; a network computes logits only for these."""
    if isinstance(model, ScoresVectors) and not getattr(model, "sees_ahead", False):
        hidden, _ = model(tokens)
        return model.nll(hidden[wanted], targets[wanted])
    nats, _ = model.score(tokens, targets, model.start(tokens.shape[0]))
    return nats[wanted]


def score_in_pieces(
    model: PredictsNext,
    tokens: Sequence[int],
    *,
    top: int,
    piece: int,
    unknown: int | None = None,
    keep: Callable[[int, Tensor, State], None] | None = None,
) -> Generator[int, None, list[TokenScore]]:
    """The score of each token after the first, with the `top` alternatives; the windows are those of `score_tokens`.

    Tokens are read in pieces; the generator yields the length of each, so that the caller can do other work between.
    Tokens outside the vocabulary (new words of an open one) have the score of the `unknown` token.
    `keep(length, logits, state)` is called after each whole piece of the first window.
    """
    scores: list[TokenScore] = []
    targets = [unknown if unknown is not None and token >= model.vocabulary else token for token in tokens]
    count = len(tokens) - 1
    for window in windows(count, model.window or max(count, 1)):
        state: State = None
        for start in range(0, window.length, piece):
            first = window.start + start
            ids = tokens[first : min(first + piece, window.start + window.length)]
            rows = torch.tensor([ids], device=model.device)
            logits, last, state = _read_every(model, rows, model.start(1) if state is None else state)
            if keep is not None and not window.start and len(ids) == piece:
                keep(start + piece, last, state)
            skip = max(0, window.first - start)
            if skip < len(ids):
                scores += score_next(logits[skip:], targets[first + skip + 1 : first + len(ids) + 1], top=top)
            yield len(ids)
    return scores


def _read_every(model: PredictsNext, tokens: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
    """Read tokens [1, T]: the logits after each [T, V], those after the last [1, V] and the state, as `step` does."""
    if isinstance(model, ScoresEveryToken):
        hidden, state = model(tokens, state=state)
        return model.logits(hidden[0]), model.logits(hidden[:, -1]), state
    rows = []
    for token in tokens.unbind(1):
        logits, state = model.step(token[:, None], state)
        rows.append(logits)
    return torch.cat(rows), logits, state
