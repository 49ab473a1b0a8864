"""The pure language model: predict each token from those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.corpus import TokenDataset
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.streams import ItemWindows, Streams, Windows
from lmlab.layers.watching import watching_layers
from lmlab.metrics.metric import StreamingMetric, mean_nats
from lmlab.models.abilities import LearnsNext, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, Loss, PreTraining
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.processors.joined import JoinedTokenizer
from lmlab.tokenizers.processors.sequences import SequenceTokenizer


class CausalConfig(Config):
    """What is asked beside the next token, and from which end."""

    activation: float = Field(
        0.0, ge=0, description="activation regularisation: weight α of the mean square of the last layer's vectors"
    )
    temporal: float = Field(
        0.0,
        ge=0,
        description="temporal activation regularisation: weight β of the mean square of the change of these vectors",
    )
    backwards: bool = Field(
        False, description="read texts from their last token to the first: each token is predicted from those after it"
    )


class Causal(PreTraining):
    """Mean cross-entropy of P(w_i | w_1 .. w_i-1); every position is predicted.

    Between documents is a boundary, which is predicted too, but is no part of the text: evaluation watches the
    surprisal of the text alone (`nats`), from which bits per byte are computed, as `lmlab score` does it.

    Two further terms keep the vectors h_t of the last layer small and slow (Merity et al. 2017, "Revisiting activation
    regularization for language RNNs"), m being the dropout mask: α · mean (m∘h_t)² and β · mean (h_t − h_{t+1})².
    """

    Config: ClassVar[type[Config]] = CausalConfig
    reads: ClassVar[tuple[str, ...]] = ("text", "languages", "notes", "images", "episodes", "mixture")
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = True
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {"nats": mean_nats}

    def __init__(
        self,
        config: CausalConfig | None = None,
        tokenizer: Tokenizer | SequenceTokenizer | None = None,
        frame: Frame | None = None,
    ) -> None:
        self.config = config or CausalConfig()
        self.separators: tuple[int, ...] = ()
        if isinstance(tokenizer, JoinedTokenizer):
            self.separators = tokenizer.boundaries
        elif tokenizer is not None and not tokenizer.newline_is_boundary:  # where it is, it is part of the text, too
            self.separators = (tokenizer.boundary,)
        self.item = tokenizer.length if isinstance(tokenizer, SequenceTokenizer) else None
        self.separates = bool(self.separators)

    @classmethod
    def needs(cls, config: CausalConfig) -> tuple[type, ...]:
        return (LearnsNext,)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        further = {"activation": self.config.activation, "temporal": self.config.temporal}
        return {"next": 1.0, **{name: weight for name, weight in further.items() if weight}}

    def loader(self, data: TokenDataset, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        """Contiguous streams for a stateful model, shuffled windows for others, or items of equal length."""
        tokens = data.tokens[::-1] if self.config.backwards else data.tokens
        shuffled = Windows if self.item is None or window != self.item + 1 else ItemWindows
        return (Streams if streams else shuffled)(tokens, batch=batch, window=window, seed=seed)

    def batch(self, raw: Tensor, generator: np.random.Generator | None = None) -> Batch:
        """raw [B, T+1] -> the first T tokens, and the T tokens that follow them."""
        tokens, targets = raw[:, :-1], raw[:, 1:]
        count = targets.numel()
        counts = {"next": count, "activation": count, "temporal": count - len(targets)}
        counts = {name: counts[name] for name in self.loss_weights}
        return Batch({"tokens": tokens}, {"targets": targets}, counts, {"tokens": count})

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        reader = require(model, LearnsNext)
        with watching_layers(when=len(self.loss_weights) > 1) as layers:
            vectors, state = reader(**batch.inputs, state=state)
        further = self._regularise(vectors, layers[-1]) if layers else {}
        hidden, targets = vectors.flatten(0, 1), batch.labels["targets"].flatten()
        if model.training:
            return Loss({"next": reader.total_nll(hidden, targets), **further}, state)
        nats = reader.nll(hidden, targets)
        text = nats if not self.separators else nats[~torch.isin(targets, targets.new_tensor(self.separators))]
        return Loss({"next": nats.sum(), **further}, state, {"nats": text})

    def _regularise(self, dropped: Tensor, h: Tensor) -> dict[str, Tensor]:
        """The sums of both regularising terms over all positions [B, T, D], where they are asked for."""
        terms = {"activation": dropped, "temporal": h[:, 1:] - h[:, :-1]}
        return {name: terms[name].square().mean(-1).sum() for name in self.loss_weights if name in terms}

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        reader = require(model, LearnsNext)
        rows, window = batch.inputs["tokens"].shape
        body = reader.reading_flops(batch.inputs, memory_length=memory_length)
        around = model.embedding_flops_of(batch.inputs) + rows * window * reader.head_flops()
        return reader.training_passes(window) * body + PASSES * around


def training_pairs(tokens: list[str], *, start: str = "<s>") -> list[tuple[list[str], str]]:
    """The (context, next token) pairs that one text gives: its own labels, without manual labels."""
    text = [start, *tokens]
    return [(text[:i], text[i]) for i in range(1, len(text))]
