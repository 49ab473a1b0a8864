"""GPT: a stack of Transformer decoder blocks without cross-attention, trained to predict the next token.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training".
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention import MultiHeadAttention
from lmlab.layers.cache import Slot
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.gelu import gelu_tanh
from lmlab.layers.positions import LearnedPositions
from lmlab.layers.softmax import Softmax
from lmlab.models.model import ModelConfig
from lmlab.models.windowed import WindowedConfig, WindowedTransformer


class GPTConfig(WindowedConfig):
    """The size of a GPT."""

    dropout: float = Field(
        0.1, ge=0, lt=1, description="dropout probability, on embeddings, attention weights and each sublayer"
    )


class Block(nn.Module):
    """z = LN(x + Attention(x)); h = LN(z + FeedForward(z)): normalised after the sum, as in the 2017 Transformer."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.width, config.heads, dropout=config.dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, 4 * config.width, activation=gelu_tanh)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, slot: Slot | None = None) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, slot)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class GPT(WindowedTransformer):
    """x = token + position; then the blocks; P(next) = softmax(E h) with E the token embeddings themselves."""

    Config: ClassVar[type[ModelConfig]] = GPTConfig
    block: ClassVar[type[nn.Module]] = Block

    config: GPTConfig
    positions: LearnedPositions

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.window, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self.block(config) for _ in range(config.layers))
        self.output = Softmax(config.width, config.vocabulary, bias=False, tied=self.embedding)
        self.norm: nn.Module = nn.Identity()
        self.apply(initialise)

    def embed(self, tokens: Tensor, start: int | Tensor) -> Tensor:
        x: Tensor = self.dropout(self.embedding(tokens) + self.positions(start, tokens.shape[1]))
        return x


def initialise(module: nn.Module) -> None:
    """Weights from N(0, 0.02), biases zero (section 4.1)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
