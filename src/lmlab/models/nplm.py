"""The neural probabilistic language model (Bengio et al. 2003, eq. 1): a net over the embeddings of n−1 words.

    x = [C(w_{t−n+2}); …; C(w_t)]                 the concatenated embeddings of the last n−1 words
    y = b + W x + U tanh(d + H x)                 W x, the direct connections, may be left out
    P(w_{t+1} | w_{t−n+2} … w_t) = softmax(y)

U and W together are one softmax over the vector [tanh(d + H x); x]. Before the first word the context is filled with
the boundary token.
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


class NPLMConfig(TokenModelConfig):
    """Settings of the net; in the paper's letters n, m, h."""

    boundary: int = Field(default=0, ge=0, description="padding token of contexts before the first word")
    order: int = Field(default=5, ge=2, le=1024, description="n: context of n-1 words, and the next one")
    width: int = Field(default=60, ge=1, le=65536, description="m: embedding size, width of the word vectors")
    hidden: int = Field(default=100, ge=1, le=65536, description="h: hidden size, number of tanh units")
    direct: bool = Field(
        default=False, description="direct connections from the embeddings to the output scores (logits)"
    )
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="dropout probability, on the embeddings and on the tanh units"
    )


class NPLM(NextTokenModel):
    """Concatenated embeddings, one tanh layer, softmax; the state is the last n−1 tokens."""

    Config = NPLMConfig
    stateful: ClassVar[bool] = True
    expands: ClassVar[str] = "hidden"

    config: NPLMConfig
    output: Softmax

    def __init__(self, config: NPLMConfig) -> None:
        super().__init__()
        if config.boundary >= config.vocabulary:
            raise ValueError(
                f"boundary = {config.boundary}: give a token id below the vocabulary size, {config.vocabulary}"
            )
        self.config = config
        inputs = (config.order - 1) * config.width
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.hidden = nn.Linear(inputs, config.hidden)
        self.dropout = Dropout(config.dropout)
        self.output = Softmax(config.hidden + (inputs if config.direct else 0), config.vocabulary)

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        before = self.start(len(tokens)) if state is None else state
        words = torch.cat([before, tokens], dim=1)  # [B, n-1+T]
        C = self.embedding(words)
        n, T = self.config.order, tokens.shape[1]
        x = self.dropout(torch.cat([C[:, first : first + T] for first in range(1, n)], dim=-1))  # [B, T, (n-1)m]
        h = self.dropout(self.units(self.hidden(x)))
        h = torch.cat([h, x], dim=-1) if self.config.direct else h
        record_layer(C[:, n - 1 :], h)
        return Output(h, words[:, -(n - 1) :])

    def units(self, expanded: Tensor) -> Tensor:
        return torch.tanh(expanded)

    def start(self, batch_size: int, **inputs: Any) -> State:
        shape = (batch_size, self.config.order - 1)
        return torch.full(shape, self.config.boundary, dtype=torch.long, device=self.device)

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding,), (self.hidden,))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return 2.0 * self.hidden.weight.numel()
