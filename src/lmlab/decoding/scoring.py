"""Exact scores by the chain rule: the surprisal of every token given all that its model can see before it.

A document is scored after the boundary: its first token is predicted too, the boundary after its end is not. A
recurrent state or a memory is carried from segment to segment. A model with a window sees strided windows: each
token but those of the first window has at least half a window of context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lmlab.decoding.mixture import Mixture
from lmlab.models.abilities import PredictsNext, State
from lmlab.models.states import reorder_state
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers.frames import pad_rows
from lmlab.units import bits_per_byte

Nats = NDArray[np.float64]

SEGMENT = 256
"""Tokens that a network without a window reads at once; a Transformer-XL sees more in a longer one."""
LOGITS_AT_ONCE = 2**26
"""Bounds the memory of one batch: rows x tokens x vocabulary."""


@dataclass(frozen=True)
class Score:
    """How well a model predicts texts.

    `words` are those between white space. Published word perplexities of PTB, WikiText and Brown count line ends too:
    they are the `perplexity` per token of a `words` tokenizer, for which every line end is a token.
    """

    nats: float
    tokens: int
    words: int
    bytes: int
    lossy: bool = False  # part of this text is lost in its tokens, so bits per byte are too low
    unknown: int = 0  # tokens that stand for what the vocabulary lacks
    pseudo: bool = False  # each token was guessed from all others: not comparable with left-to-right scores
    approximation: str = ""  # what the probabilities are exact for, where attention is approximated: hashes, their seed
    directions: dict[str, float] = field(default_factory=dict)  # nats of each, where there are two; `nats` is the mean
    token_ids: list[NDArray[np.int64]] = field(default_factory=list, repr=False, compare=False)  # per document
    token_nats: list[Nats] = field(default_factory=list, repr=False, compare=False)
    show: Callable[[int], str] = field(default=str, repr=False, compare=False)

    @property
    def bits_per_byte(self) -> float:
        """nats / (ln 2 * bytes of UTF-8): comparable between tokenizers that lose nothing."""
        return bits_per_byte(self.nats, self.bytes) if self.bytes else math.nan

    @property
    def perplexity(self) -> float:
        """exp(nats / tokens): comparable between models with the same tokenizer."""
        return _exp(self.nats / self.tokens) if self.tokens else math.nan

    @property
    def word_perplexity(self) -> float:
        """exp(nats / words): comparable between tokenizers that lose nothing."""
        return _exp(self.nats / self.words) if self.words else math.nan

    @property
    def bits(self) -> float:
        """The surprisal of all the text, in bits."""
        return self.nats / math.log(2)

    @property
    def surprisals(self) -> list[tuple[str, float]]:
        """Each token as people can read it, with its surprisal in bits."""
        ids, nats = np.concatenate(self.token_ids), np.concatenate(self.token_nats)
        names = {index: self.show(index) for index in np.unique(ids).tolist()}
        return [(names[index], bits) for index, bits in zip(ids.tolist(), (nats / math.log(2)).tolist(), strict=True)]

    def in_direction(self, name: str) -> Score:
        """The score of one of the two directions."""
        return replace(self, nats=self.directions[name], directions={}, token_ids=[], token_nats=[])

    def _repr_html_(self) -> str:
        """In a notebook: the text in colour."""
        from lmlab.pages.views import show_surprisals

        if not self.token_ids:
            return f"<code>{self!r}</code>"
        pieces = self.surprisals
        told = f"{self.bits:,.1f} {'pseudo-' * self.pseudo}bits over {self.tokens:,} tokens, {self.bytes:,} bytes"
        return show_surprisals(pieces, told=told, spaced=not any(" " in token for token, _ in pieces))

    def as_dict(self) -> dict[str, Any]:
        """What `lmlab score --json` prints; null where a number is not finite."""
        numbers: dict[str, float | int | bool] = {
            "bits_per_byte": self.bits_per_byte,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            "nats": self.nats,
            "tokens": self.tokens,
            "words": self.words,
            "bytes": self.bytes,
            "lossy": self.lossy,
            "unknown": self.unknown,
            "pseudo": self.pseudo,
        }
        found: dict[str, Any] = _finite(numbers)
        each = {name: self.in_direction(name) for name in self.directions}
        found |= {name: _finite({"nats": one.nats, "perplexity": one.perplexity}) for name, one in each.items()}
        return {**found, "approximation": self.approximation} if self.approximation else found


def _finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def add_scores(scores: Sequence[Score]) -> Score:
    """The score of several groups of texts together."""
    return replace(
        scores[0],
        nats=sum(each.nats for each in scores),
        tokens=sum(each.tokens for each in scores),
        words=sum(each.words for each in scores),
        bytes=sum(each.bytes for each in scores),
        lossy=any(each.lossy for each in scores),
        unknown=sum(each.unknown for each in scores),
        directions={name: sum(each.directions[name] for each in scores) for name in scores[0].directions},
        token_ids=[ids for each in scores for ids in each.token_ids],
        token_nats=[nats for each in scores for nats in each.token_nats],
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


@runtime_checkable
class ScoresVectors(Protocol):
    """A network: its scores over the vocabulary are computed from vectors, and only where they are wanted."""

    def __call__(self, tokens: Tensor) -> tuple[Tensor, State]: ...

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor: ...


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
    """The surprisal in nats of each token of each document (given without boundaries); `batch` changes only speed.

    The parts of a mixture are scored one after another, each with all of its own context, and then mixed.
    `segment` is how many tokens a model without a window reads at once (256; counts look up more).
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
    """The same for a model that reads nothing before a text: only the first token is predicted from the boundary.

    So every token counts, and all but the first are as probable as `transformers` says.
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
    """Adds up the tokens that are scored and tells."""

    def __init__(self, total: int, progress: ReportProgress | None) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, tokens: int) -> None:
        check_cancelled()
        self.done += tokens
        if self.progress is not None:
            self.progress(self.done, self.total)


def _parts(model: PredictsNext) -> int:
    return sum(map(_parts, model.models)) if isinstance(model, Mixture) else 1


def _score(model: PredictsNext, rows: list[Tensor], batch: int, segment: int | None, count: _Counter) -> list[Nats]:
    """The surprisals of all tokens of each row but the first."""
    if isinstance(model, Mixture):
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
    """How many rows of `length` tokens to score at once: `batch`, or fewer where their logits would fill the memory."""
    if not isinstance(model, ScoresVectors):
        return batch
    return max(1, min(batch, LOGITS_AT_ONCE // (length * model.vocabulary)))


def _score_segments(
    model: PredictsNext, rows: list[Tensor], results: list[Nats], batch: int, segment: int, count: _Counter
) -> None:
    """Documents side by side, longest first, segment by segment with carried state; a row leaves where its text ends.

    Segments are cut at the same places whatever the batch, so that no result depends on it.
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


def tell_unknown(unknown: int, *, what: str = "bits") -> list[str]:
    """The note beside figures of texts with tokens that the vocabulary lacks; none where there are no such."""
    if not unknown:
        return []
    return [
        f"{unknown:,} unknown token{'s' * (unknown > 1)}: the {what} are those of the unknown token, "
        "not of the word that stands there"
    ]


class Window(NamedTuple):
    """A part of a document that is read afresh, to score what is new in it."""

    document: int
    start: int  # of the first token that is read
    first: int  # the first position in the window whose target is scored here
    length: int


def _score_windows(
    model: PredictsNext, window: int, rows: list[Tensor], results: list[Nats], batch: int, count: _Counter
) -> None:
    """Windows of all documents in batches, longest first; each begins half a window after the one before."""
    device, size = model.device, _rows_at_once(model, batch, window)
    every = [w for i, nats in enumerate(results) for w in windows(len(nats), window, document=i)]
    every.sort(key=lambda w: -w.length)
    for group in (every[i : i + size] for i in range(0, len(every), size)):
        text, _ = pad_rows([rows[w.document][w.start : w.start + w.length + 1] for w in group], device=device)
        place = torch.arange(text.shape[1] - 1, device=device)
        first = torch.tensor([w.first for w in group], device=device)[:, None]
        length = torch.tensor([w.length for w in group], device=device)[:, None]
        wanted = (place >= first) & (place < length)
        scored = _nats_where(wanted, model, text[:, :-1], text[:, 1:]).double().cpu().numpy()
        done = 0
        for w in group:
            new = w.length - w.first
            results[w.document][w.start + w.first : w.start + w.length] = scored[done : done + new]
            done += new
        count.add(done)


def windows(length: int, window: int, *, document: int = 0) -> Iterable[Window]:
    """Windows over `length` tokens that score each once: the first all its own, the others what is new in them."""
    stride = max(1, window // 2)
    start, scored = 0, 0
    while scored < length:
        end = min(start + window, length)
        yield Window(document, start, scored - start, end - start)
        scored, start = end, start + stride


def _nats_where(wanted: Tensor, model: PredictsNext, tokens: Tensor, targets: Tensor) -> Tensor:
    """The surprisal of the `wanted` targets, row by row; a neural model computes scores over V only for these."""
    if isinstance(model, ScoresVectors) and not getattr(model, "sees_ahead", False):
        hidden, _ = model(tokens)
        return model.nll(hidden[wanted], targets[wanted])
    nats, _ = model.score(tokens, targets, model.start(tokens.shape[0]))
    return nats[wanted]
