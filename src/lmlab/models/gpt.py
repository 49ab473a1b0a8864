"""GPT: a stack of Transformer decoder blocks without cross-attention, trained to predict the next token.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training".

    x_t = E[w_t] + P[t]
    z = LN(x + Attention(x));  h = LN(z + FeedForward(z))        in each block
    P(w_{t+1} | w_1 … w_t) = softmax(E h_t)
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import MultiHeadAttention
from lmlab.layers.cache import KeyValueCache, LayerCache
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.gelu import gelu_tanh
from lmlab.layers.positions import LearnedPositions, check_window
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.model import Heads, ModelConfig, NextTokenModel, Output, TokenModelConfig, by_depth


class DecoderConfig(TokenModelConfig):
    """The size of a stack of decoder blocks."""

    width: int = Field(128, ge=1, description="hidden size: width of the token vectors")
    heads: Heads = 4
    layers: int = Field(4, ge=1, description="Transformer blocks")
    window: int = Field(128, ge=2, description="context length: the most tokens that the model reads at once")


class GPTConfig(DecoderConfig):
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

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; `layer_cache`: keys and values of earlier tokens."""
        x = self.attention_norm(x + self.dropout(self.attention(x, layer_cache)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class GPT(NextTokenModel):
    """x = token + position; then the blocks; P(next) = softmax(E h) with E the token embeddings themselves."""

    Config: ClassVar[type[ModelConfig]] = GPTConfig
    block: ClassVar[type[nn.Module]] = Block

    config: DecoderConfig

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions: nn.Module | None = LearnedPositions(config.window, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self.block(config) for _ in range(config.layers))
        self.output = Softmax(config.width, config.vocabulary, bias=False, tied=self.embedding)
        self.norm: nn.Module = nn.Identity()  # post-norm blocks need no last norm; GPT-2 has one
        self.apply(initialise)

    @property
    def window(self) -> int:
        return self.config.window

    def embed(self, tokens: Tensor, start: int | Tensor) -> Tensor:
        """The vectors [B, T, D] of tokens at the positions from `start`, or from `start[i]` in row i."""
        assert self.positions is not None  # LLaMA has none: its positions are inside attention
        x: Tensor = self.dropout(self.embedding(tokens) + self.positions(start, tokens.shape[1]))
        return x

    def forward(self, tokens: Tensor, *, state: State = None, lengths: Tensor | None = None) -> Output:
        """Tokens [B, T] -> hidden vectors [B, T, D], which `self.output` turns into logits, and the cache after them.

        `state` is the key-value cache of earlier tokens, first made by `self.start()`; None: there are none, and no
        cache is returned. `lengths` are not needed: causal attention never sees the padding at the end of a row.
        """
        length = tokens.shape[1]
        check_window(0 if state is None else state.length, length, self.config.window)
        x = self.embed(tokens, 0 if state is None else state.start)  # [B, T, D]
        layer_caches: list[LayerCache] | list[None] = [None] * len(self.blocks)
        if state is not None:
            state, layer_caches = state.advance(length, window=self.config.window)
        for block, layer_cache in zip(self.blocks, layer_caches, strict=True):
            record_layer(x)  # kept only where a caller asks for the vectors of every layer (layers/watching.py)
            x = block(x, layer_cache)
        x = self.norm(x)
        record_layer(x)
        return Output(x, state)

    def start(self, batch_size: int, **inputs: Any) -> KeyValueCache:
        """An empty key-value cache."""
        return KeyValueCache.empty(
            batch_size,
            layers=self.config.layers,
            heads=self.key_value_heads,
            head_width=self.config.width // self.config.heads,
            window=self.config.window,
            like=self.embedding.weight,
        )

    @property
    def key_value_heads(self) -> int:
        return self.config.heads

    def step(self, tokens: Tensor, state: State, **inputs: Any) -> tuple[Tensor, State]:
        return super().step(tokens, self.start(len(tokens)) if state is None else state, **inputs)

    def depths(self) -> list[list[nn.Parameter]]:
        """The parameters by depth, for learning rates by layer."""
        *below, last = self.blocks
        return by_depth(self, (self.embedding, self.positions), *((block,) for block in below), (last, self.norm))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """FLOPs per token: 2 per weight of a linear layer, and 4·T·D per layer for QKᵀ and its product with V.

        Attention is counted for all T keys, as profilers count it, though a causal kernel leaves out about half.
        """
        weights = sum(module.weight.numel() for module in self.modules() if isinstance(module, nn.Linear))
        return 2.0 * weights + 4.0 * window * self.config.width * self.config.layers


def initialise(module: nn.Module) -> None:
    """Weights from N(0, 0.02²), biases zero (section 4.1)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
