"""Language models in both directions: each token from those before it, and from those after it (Peters et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.streams import BothDirections, Streams, Windows
from lmlab.metrics.metric import StreamingMetric, mean_nats
from lmlab.models.abilities import PredictsBothWays, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, Loss, PreTraining
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame


class BidirectionalConfig(Config):
    """Nothing to set."""


class Bidirectional(PreTraining):
    """The mean of −log P(w_k | w_1 … w_{k−1}) and −log P(w_k | w_{k+1} … w_N), over all tokens.

    Each direction reads its own stream, the backward one from the end of the text, so that both keep their state from
    one batch to the next. The nats of either direction are recorded, too.
    """

    Config: ClassVar[type[Config]] = BidirectionalConfig
    reads: ClassVar[tuple[str, ...]] = ("text", "languages")
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = True
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {"nats": mean_nats}
    loss_weights: ClassVar[Mapping[str, float]] = {"both": 1.0, "forward": 0.0, "backward": 0.0}

    def __init__(
        self, config: BidirectionalConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        self.separator: int | None = None
        if tokenizer is not None and not tokenizer.newline_is_boundary:  # where it is, it is part of the text, too
            self.separator = tokenizer.boundary
        self.separates = self.separator is not None

    @classmethod
    def needs(cls, config: BidirectionalConfig) -> tuple[type, ...]:
        return (PredictsBothWays,)

    def loader(self, data: TextSplit, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        """Contiguous streams for a stateful model, shuffled windows for others; both ways round."""
        make = Streams if streams else Windows
        ways = [make(tokens, batch=batch, window=window, seed=seed) for tokens in (data.tokens, data.tokens[::-1])]
        return BothDirections(*ways)

    def batch(self, raw: tuple[Tensor, Tensor], generator: np.random.Generator | None = None) -> Batch:
        """raw [B, T+1] in either direction -> the first T tokens of each, and the T tokens that follow them."""
        forward, backward = raw
        inputs = {"tokens": forward[:, :-1], "backwards": backward[:, :-1]}
        labels = {"targets": forward[:, 1:], "backward_targets": backward[:, 1:]}
        count = labels["targets"].numel()
        return Batch(inputs, labels, {"both": 2 * count, "forward": count, "backward": count}, {"tokens": count})

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        both = require(model, PredictsBothWays)
        forward, backward, state = both.read(**batch.inputs, state=state)
        found = []
        for hidden, name in ((forward, "targets"), (backward, "backward_targets")):
            measure = both.total_nll if model.training else both.nll
            found.append(measure(hidden.flatten(0, 1), batch.labels[name].flatten()))
        sums = {"forward": found[0].sum().detach(), "backward": found[1].sum().detach()}
        sums = {"both": found[0].sum() + found[1].sum(), **sums}
        if model.training:
            return Loss(sums, state)
        targets = torch.cat([batch.labels["targets"].flatten(), batch.labels["backward_targets"].flatten()])
        nats = torch.cat(found)
        return Loss(sums, state, {"nats": nats if self.separator is None else nats[targets != self.separator]})

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        """Each direction reads its own text, and predicts each token of it."""
        heads = batch.labels["targets"].numel() * model.head_flops()
        return float(PASSES * (model.embedding_flops_of(batch.inputs) + model.reading_flops(batch.inputs) + heads))
