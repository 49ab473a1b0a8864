"""Music Transformer: a Transformer decoder whose attention knows how far apart two tokens are, and not where they are.

Huang et al. 2018, "Music Transformer: Generating Music with Long-Term Structure". Motifs come back at other places of
a piece, so distances matter more than positions.

    x_t = √D E[w_t]
    z = x + Attention(LN(x));  h = z + FeedForward(LN(z))        in each block
    Attention = softmax((QKᵀ + Sʳᵉˡ)/√d)V,  Sʳᵉˡ_ij = q_i · E_{i−j}
    P(w_{t+1} | w_1 … w_t) = softmax(E LN(h_t))
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention.relative import SkewedAttention
from lmlab.layers.cache import LayerCache
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.softmax import Softmax
from lmlab.models.gpt import GPT, DecoderConfig, initialise
from lmlab.models.model import ModelConfig


class MusicTransformerConfig(DecoderConfig):
    """The size of a Music Transformer."""

    inner: int = Field(512, ge=1, description="width of the feed-forward layers (intermediate size)")
    distances: int = Field(128, ge=1, description="distances with a vector of their own; longer ones share the last")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="dropout probability, on embeddings, attention weights and each sublayer"
    )


class Block(nn.Module):
    """z = x + Attention(LN(x)); h = z + FeedForward(LN(z)), with relative attention."""

    def __init__(self, config: MusicTransformerConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = SkewedAttention(config.width, config.heads, distances=config.distances, dropout=config.dropout)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.inner, activation=torch.relu)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), layer_cache))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x


class MusicTransformer(GPT):
    """x = token; then the blocks; P(next) = softmax(E LN(h)). The forward pass and the cache are GPT's."""

    Config: ClassVar[type[ModelConfig]] = MusicTransformerConfig
    block: ClassVar[type[nn.Module]] = Block

    config: MusicTransformerConfig

    def __init__(self, config: MusicTransformerConfig) -> None:
        super(GPT, self).__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions = None  # only distances count
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self.block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.output = Softmax(config.width, config.vocabulary, bias=False, tied=self.embedding)
        self.apply(initialise)

    def embed(self, tokens: Tensor, start: int | Tensor) -> Tensor:
        x: Tensor = self.dropout(self.embedding(tokens) * math.sqrt(self.config.width))
        return x

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """GPT's, and 2·min(T, L)·D per layer for the products of queries and distances."""
        relative = 2.0 * min(window, self.config.distances) * self.config.width * self.config.layers
        return super().body_flops(window, fraction=fraction, memory_length=memory_length) + relative
