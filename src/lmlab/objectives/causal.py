"""The pure language model: predict each token from those before it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from lmlab.config import Config
from lmlab.data.batches.loaders import Loader, Streams, Windows
from lmlab.data.corpora.corpus import Split
from lmlab.models.abilities import State
from lmlab.models.model import Predictor
from lmlab.objectives.objective import Batch, Loss
from lmlab.tokenizers import Tokenizer


class CausalConfig(Config):
    """Nothing to set."""


class Causal:
    """Mean cross-entropy of P(w_i | w_1 .. w_i-1); every position is a blank."""

    Config: ClassVar[type[Config]] = CausalConfig
    roles: tuple[str, ...] = ()
    likelihood: bool = True

    def __init__(self, config: CausalConfig | None = None, tokenizer: Tokenizer | None = None) -> None: ...

    def loader(self, data: Split, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        """Contiguous streams for a model that carries its state, shuffled windows for others."""
        return (Streams if streams else Windows)(data.tokens, batch=batch, window=window, seed=seed)

    def batch(self, raw: Tensor, generator: np.random.Generator | None = None) -> Batch:
        """raw [B, T+1] -> the first T tokens, and the T tokens that follow them."""
        return Batch(inputs={"tokens": raw[:, :-1]}, targets=raw[:, 1:], tokens=raw[:, 1:].numel())

    def loss(self, model: Predictor, batch: Batch, state: State = None) -> tuple[Loss, State]:
        hidden, state = model(**batch.inputs, state=state)
        targets = batch.targets.flatten()
        return Loss(model.total_nll(hidden.flatten(0, 1), targets), targets.numel()), state

    def flops(self, model: Predictor, loader: Loader) -> float:
        return model.flops(loader.window) * loader.units_per_step["tokens"]


def training_pairs(tokens: list[str], *, start: str = "<s>") -> list[tuple[list[str], str]]:
    """The (context, next token) pairs that one text gives: its own labels, with nobody labelling."""
    text = [start, *tokens]
    return [(text[:i], text[i]) for i in range(1, len(text))]
