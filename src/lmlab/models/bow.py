"""The bag-of-words language model: the mean of all words so far, in no order.

    m_t = (1/t) Σ_{i≤t} E w_i
    h_t = tanh(W' m_t + b')
    P(w_{t+1} | w_1 … w_t) = softmax(V h_t + c)

Any length of text gives one vector, which the n−1 words of `nplm` do not; but "dog bites man" is "man bites dog". The
mean is a running one: a sum and a count are all that is kept. (Averages of embeddings as the meaning of a text:
Mitchell & Lapata 2008, Iyyer et al. 2015; attention makes the mean a weighted one.)
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.dropout import Dropout
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.model import NextTokenModel, Output, TokenModelConfig, by_depth


class BagOfWordsConfig(TokenModelConfig):
    """Settings of a bag-of-words model."""

    width: int = Field(default=256, ge=1, le=65536, description="embedding size: width of the word vectors")
    hidden: int = Field(default=256, ge=1, le=65536, description="hidden size: number of tanh units")
    window: int = Field(
        default=64, ge=1, description="context length: the most words in the bag, in training and scoring"
    )
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="dropout probability, on the mean and on the tanh units"
    )


class BagOfWords(NextTokenModel):
    """Running mean of embeddings, one tanh layer, softmax; the state is (sum [B, D], count [B])."""

    Config = BagOfWordsConfig
    expands: ClassVar[str] = "hidden"

    config: BagOfWordsConfig
    output: Softmax

    def __init__(self, config: BagOfWordsConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.hidden = nn.Linear(config.width, config.hidden)
        self.dropout = Dropout(config.dropout)
        self.output = Softmax(config.hidden, config.vocabulary)

    @property
    def window(self) -> int | None:
        return self.config.window

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        before, read = self.start(len(tokens)) if state is None else state
        x = self.embedding(tokens)  # [B, T, D]
        sums = before[:, None] + x.cumsum(dim=1)
        counts = read[:, None] + torch.arange(1, tokens.shape[1] + 1, device=tokens.device)  # [B, T]
        m = self.dropout(sums / counts[..., None])
        h = self.dropout(self.units(self.hidden(m)))
        record_layer(x, h)
        return Output(h, None if state is None else (sums[:, -1], counts[:, -1]))

    def units(self, expanded: Tensor) -> Tensor:
        return torch.tanh(expanded)

    def start(self, batch_size: int, **inputs: Any) -> State:
        weight = self.embedding.weight
        return weight.new_zeros(batch_size, weight.shape[1]), torch.zeros(
            batch_size, dtype=torch.long, device=self.device
        )

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding,), (self.hidden,))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return 2.0 * self.hidden.weight.numel()
