"""Permutation language modelling: predict some tokens of a text one after another, in an order drawn for each row.

    max E_z Σ_{t > c} log P(x_{z_t} | x_{z_1} … x_{z_{t−1}})          Yang et al. 2019, equations 3 and 5

The first c tokens of the order z are given and see each other; only the last 1/K of it are predicted (partial
prediction, section 2.3), because the first ones, with little to see, are hard and teach little. The text itself is
never reordered: the order only says which tokens may attend to which. Documents in one row are its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders.framing import Integers
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.rows import Rows, TextRows
from lmlab.data.loaders.streams import HalfReversed, Streams
from lmlab.metrics.metric import StreamingMetric, accuracy
from lmlab.models.abilities import FillsInOrder, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.masked import MaskedRows, at_masks, count_chosen, is_right, number_units
from lmlab.objectives.objective import IGNORE, Batch, Loss
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.pieces import Pieces

LONGEST = 5
"""Words of a span, at most; shorter ones are more frequent, P(n) ∝ 1 / n (the authors' data_utils.py)."""


class PermutationConfig(Config):
    """Which tokens are predicted."""

    predicted: int = Field(
        6, ge=2, description="K: the last 1/K of the order is predicted, the tokens before it are given"
    )
    unit: Literal["token", "span"] = Field(
        "token", description="what is predicted: single tokens, or spans of 1 to 5 words in stretches K times as long"
    )

    directions: Literal["forward", "both"] = Field(
        "forward",
        description="how text is read: forwards, or half of the rows of each batch forwards and half backwards, each "
        "with its own memory (bidirectional data input; an odd batch has one row less, a batch of 1 one row more)",
    )

    @property
    def masking_rate(self) -> float:
        """The fraction of the tokens that are predicted, as in masked objectives."""
        return 1 / self.predicted


class Permutation(MaskedRows):
    """Cross-entropy of the last 1/K tokens of a random order, each given all before it in that order."""

    Config: ClassVar[type[Config]] = PermutationConfig
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {"accuracy": accuracy}
    loss_weights: ClassVar[Mapping[str, float]] = {"masked": 1.0}
    config: PermutationConfig  # type: ignore[assignment]

    def __init__(self, config: PermutationConfig, tokenizer: Tokenizer, frame: Frame) -> None:
        super().__init__(config, tokenizer, frame)  # type: ignore[arg-type]
        self.boundary = tokenizer.boundary

    @classmethod
    def needs(cls, config: PermutationConfig) -> tuple[type, ...]:
        return (FillsInOrder,)

    def loader(self, data: TextSplit, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        """Contiguous text for a model with a memory; otherwise shuffled rows in their frame."""
        if self.config.directions == "both":
            if not streams:
                raise ValueError(
                    "objective.directions = 'both' reads contiguous text from either end, which train.order = "
                    "'shuffled' does not give: leave it at 'auto', or set objective.directions=forward"
                )
            half = max(1, batch // 2)
            ways = (data.tokens, data.tokens[::-1])
            return HalfReversed(*(Streams(tokens, batch=half, window=window, seed=seed) for tokens in ways))
        if streams:
            return Streams(data.tokens, batch=batch, window=window, seed=seed)
        return TextRows(data.tokens, frame=self.frame, batch=batch, window=window, seed=seed, fixed=False)

    def batch(self, raw: Rows | Tensor | tuple[Tensor, Tensor], generator: np.random.Generator) -> Batch:
        """The tokens, the positions [B, K] that are predicted, and the order [B, T], 0 at what is given.

        Of two directions, which rows are read `backwards` [B], too.
        """
        both = not isinstance(raw, Rows | Tensor)
        if isinstance(raw, Rows):
            tokens = raw.tokens
        else:
            tokens = (raw if isinstance(raw, Tensor) else torch.cat(raw))[:, :-1].numpy()
        backwards = np.arange(len(tokens)) >= (len(tokens) // 2 if both else len(tokens))
        text = np.where(backwards[:, None], tokens[:, ::-1], tokens)  # words are found in the order of the text
        positions, targets = choose_targets(text, generator, pieces=self.pieces, config=self.config)
        positions = np.where(backwards[:, None] & (targets != IGNORE), tokens.shape[1] - 1 - positions, positions)
        inputs: dict[str, NDArray[Any]] = {"tokens": tokens, "order": draw_order(tokens, positions, targets, generator)}
        ends = tokens == self.boundary  # begins its document, which is where it ends when read backwards
        segments = np.cumsum(ends, axis=1) - np.where(backwards[:, None], ends, ends[:, :1])
        if segments.any():
            inputs["segments"] = segments
        if both:
            inputs["backwards"] = backwards
        labels = {"positions": positions, "targets": targets}
        kept = np.flatnonzero(targets != IGNORE)
        if len(kept) < targets.size:
            labels["kept"] = kept
        return Batch(
            {name: torch.from_numpy(value) for name, value in inputs.items()},
            {name: torch.from_numpy(value) for name, value in labels.items()},
            {"masked": len(kept)},
            {"tokens": tokens.size},
        )

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        """The surprisal of the predicted tokens; the state is the memory of the text before."""
        filler = require(model, FillsInOrder)
        hidden, state = filler.read_in_order(**batch.inputs, at=batch.labels["positions"], state=state)
        chosen, targets = at_masks(batch, hidden)
        watched = {} if model.training else {"accuracy": is_right(filler.logits(chosen), targets)}
        return Loss({"masked": filler.total_nll(chosen, targets)}, state, watched)

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        """Those of both streams, and those of the output layer at the predicted tokens."""
        return PASSES * self.filling_flops(require(model, FillsInOrder), batch, memory_length=memory_length)


def choose_targets(
    tokens: Integers, generator: np.random.Generator, *, pieces: Pieces, config: PermutationConfig
) -> tuple[Integers, Integers]:
    """The positions [B, K] of the tokens that are predicted, in the order of the text, and these; IGNORE beyond them.

    Special tokens are always given. Where a row has too few others, it has fewer targets.
    """
    most, window = count_chosen(config.masking_rate, tokens.shape[1]), tokens.shape[1]
    key = generator.random(tokens.shape)
    allowed = ~pieces.special[tokens]
    if config.unit == "span":
        inside, key = draw_spans(tokens, generator, pieces=pieces, stretch=config.predicted)
        allowed &= inside
    ranked = np.argsort(np.where(allowed, key, np.inf), axis=1, kind="stable")[:, :most]
    there = np.arange(most) < allowed.sum(axis=1)[:, None]
    positions = np.sort(np.where(there, ranked, window), axis=1)
    is_masked = positions < window
    positions[~is_masked] = 0
    return positions, np.where(is_masked, np.take_along_axis(tokens, positions, axis=1), IGNORE)


def draw_spans(
    tokens: Integers, generator: np.random.Generator, *, pieces: Pieces, stretch: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether each token [B, T] is in a span, and a random number of its own for each span.

    A row is cut into stretches of K·n words, with a new random n for each, and n words somewhere in it are a span.
    """
    words = number_units(tokens, np.empty(0), pieces, "word")
    rows, window = tokens.shape
    lengths = np.arange(1, LONGEST + 1)
    drawn = generator.choice(lengths, p=1 / lengths / (1 / lengths).sum(), size=(rows, window))
    ends = np.cumsum(stretch * drawn, axis=1)
    tile = (words[:, :, None] >= ends[:, None, : window // stretch + 1]).sum(axis=2)  # the stretch of each token
    size = np.take_along_axis(drawn, tile, axis=1)
    position = words - np.take_along_axis(ends - stretch * drawn, tile, axis=1)
    first = np.floor(generator.random((rows, window)) * ((stretch - 1) * drawn + 1)).astype(np.int64)
    begin = np.take_along_axis(first, tile, axis=1)
    key = np.take_along_axis(generator.random((rows, window)), tile, axis=1)
    return (position >= begin) & (position < begin + size), key


def draw_order(tokens: Integers, positions: Integers, targets: Integers, generator: np.random.Generator) -> Integers:
    """The order [B, T]: 0 at what is given, and 1, 2, … at the targets, shuffled in each row."""
    order = np.zeros_like(tokens)
    chance = np.where(targets != IGNORE, generator.random(positions.shape), np.inf)
    rank = np.argsort(np.argsort(chance, axis=1), axis=1) + 1
    row = np.broadcast_to(np.arange(len(tokens))[:, None], positions.shape)
    there = targets != IGNORE
    order[row[there], positions[there]] = rank[there]
    return order
