"""GPT: a stack of Transformer decoder blocks without cross-attention, trained to predict the next token.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training".
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from lmlab.layers.attention import MultiHeadAttention, head_width
from lmlab.layers.cache import KeyValueCache
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.gelu import gelu_tanh
from lmlab.layers.positions import LearnedPositions, check_window
from lmlab.layers.softmax import Softmax
from lmlab.models.model import Model, ModelConfig, Output, State


class GPTConfig(ModelConfig):
    """The size of a GPT."""

    width: int = Field(128, ge=1, description="size of the vectors that the blocks pass on")
    heads: int = Field(4, ge=1, description="attention heads; they divide the width")
    layers: int = Field(4, ge=1, description="blocks")
    window: int = Field(128, ge=2, description="the most tokens that attention sees")
    dropout: float = Field(0.1, ge=0, lt=1, description="probability, on embeddings, attention and each sublayer")

    @field_validator("heads")
    @classmethod
    def _heads_divide_width(cls, heads: int, info: ValidationInfo) -> int:
        head_width(info.data.get("width", heads), heads)
        return heads


class Block(nn.Module):
    """z = LN(x + Attention(x)); h = LN(z + FeedForward(z)): normalised after the sum, as in the 2017 Transformer."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.width, config.heads, dropout=config.dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, 4 * config.width, activation=gelu_tanh)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, cache: Tensor | None = None, start: int = 0) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, cache, start)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class GPT(Model):
    """x = token + position; then the blocks; P(next) = softmax(E h) with E the token embeddings themselves."""

    Config: ClassVar[type[ModelConfig]] = GPTConfig
    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"width": 64, "heads": 2, "layers": 2, "window": 64, "dropout": 0.0},
        "small": {"width": 128, "heads": 4, "layers": 4, "window": 128, "dropout": 0.0},
        "base": {"width": 256, "heads": 8, "layers": 6, "window": 256, "dropout": 0.1},
        "117M": {"width": 768, "heads": 12, "layers": 12, "window": 512, "dropout": 0.1},
    }
    TRAINING: ClassVar[dict[str, Any]] = {
        "optimizer": "adamw",
        "rate": 1e-3,
        "schedule": "cosine",
        "warmup": 100,
        "batch": 16,
        "clip": 1.0,
        "decay": 0.01,
    }
    block: ClassVar[type[nn.Module]] = Block

    config: GPTConfig

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.window, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self.block(config) for _ in range(config.layers))
        self.output = Softmax(config.width, config.vocabulary, bias=False, tied=self.embedding)
        self.apply(initialise)

    @property
    def window(self) -> int:
        return self.config.window

    def start(self, batch_size: int) -> KeyValueCache:
        heads = self.config.heads
        return KeyValueCache.empty(
            batch_size,
            layers=self.config.layers,
            heads=heads,
            head_width=self.config.width // heads,
            window=self.config.window,
            like=self.embedding.weight,
        )

    def forward(self, tokens: Tensor, *, state: State = None) -> Output:
        """A fresh text (state None) is read without a cache; a state from `start` is read on from."""
        length = tokens.shape[1]
        start = 0 if state is None else state.length
        check_window(start, length, self.config.window)
        x = self.dropout(self.embedding(tokens) + self.positions(start, length))
        if state is None:
            for block in self.blocks:
                x = block(x)
            return Output(x, None)
        state = state.advance(length, window=self.config.window)
        for block, cache in zip(self.blocks, state.layers, strict=True):
            x = block(x, cache, start)
        return Output(x, state)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return super().step(tokens, self.start(len(tokens)) if state is None else state)

    def flops(self, window: int) -> float:
        """2 per weight of a product, the output layer's too, and 4·T·D per layer for QKᵀ and its product with V.

        Attention is counted for all T keys, as profilers count it, though a causal kernel leaves out about half.
        """
        width, layers = self.config.width, self.config.layers
        return layers * (2.0 * 12 * width**2 + 4.0 * window * width) + 2.0 * width * self.config.vocabulary


def initialise(module: nn.Module) -> None:
    """Weights from N(0, 0.02), biases zero (section 4.1)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
