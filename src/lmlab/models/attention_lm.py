"""The ladder from a bag of words to the Transformer: a self-attention language model, one rung at a time.

Where the bag of words gives each earlier token the same weight, here the latest token decides, by a query, how much to
take from each. Then come positions, heads, the tricks that make nets deep, and the stack (Vaswani et al. 2017).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import SelfAttention
from lmlab.layers.cache import KeyValueCache, LayerCache
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.positions import LearnedPositions, SinusoidalPositions, check_window
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.model import ModelConfig, NextTokenModel, Output, TokenModelConfig, by_depth


class AttentionLMConfig(TokenModelConfig):
    """The rung of the ladder."""

    width: int = Field(128, ge=1, description="hidden size: width of the token vectors")
    heads: int = Field(1, ge=1, description="attention heads; must divide the width")
    layers: int = Field(1, ge=1, description="Transformer blocks; more than one needs tricks = post or pre")
    window: int = Field(128, ge=2, description="context length: the most tokens that the model reads at once")
    positions: Literal["none", "learned", "sinusoidal"] = Field("none", description="positional encoding")
    tricks: Literal["none", "post", "pre"] = Field(
        "none",
        description="none: tanh only; post, pre: GELU, residual connections, LayerNorm after or before each sublayer",
    )
    inner: int = Field(256, ge=1, description="width of the feed-forward layer after attention")

    @field_validator("tricks")
    @classmethod
    def _stack_needs_tricks(cls, tricks: str, info: ValidationInfo) -> str:
        if tricks == "none" and info.data.get("layers", 1) > 1:
            raise ValueError(
                "several layers need residual connections and LayerNorm; set tricks = post or pre, or layers = 1"
            )
        return tricks


class Block(nn.Module):
    """z = [SelfAttn⁽¹⁾; …; SelfAttn⁽ᴴ⁾]; h = tanh(W'z + b'): the first rungs, with nothing to help the gradient."""

    expands: ClassVar[str] = "feed_forward"

    def __init__(self, config: AttentionLMConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, bias=False)
        self.feed_forward = nn.Sequential(Linear(config.width, config.inner), nn.Tanh())

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        h: Tensor = self.feed_forward(self.attention(x, layer_cache))
        return h

    def units(self, expanded: Tensor) -> Tensor:
        return expanded  # the tanh is in it


class PostNormBlock(nn.Module):
    """z = LN(SelfAttn(x) + x); h = LN(W''GELU(W'z + b') + b'' + z)."""

    def __init__(self, config: AttentionLMConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, bias=False)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.inner, activation=nn.functional.gelu)
        self.feed_forward_norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        x = self.attention_norm(self.attention(x, layer_cache) + x)
        x = self.feed_forward_norm(self.feed_forward(x) + x)
        return x


class PreNormBlock(PostNormBlock):
    """z = SelfAttn(LN(x)) + x; h = W''GELU(W'LN(z) + b') + b'' + z."""

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        x = self.attention(self.attention_norm(x), layer_cache) + x
        x = self.feed_forward(self.feed_forward_norm(x)) + x
        return x


class AttentionLM(NextTokenModel):
    """x_j = φ(x_j) + φ_p(j); then the blocks; P(next) = softmax(W''h + b''), with the tricks softmax(Wᵛh)."""

    Config: ClassVar[type[ModelConfig]] = AttentionLMConfig
    BLOCKS: ClassVar[dict[str, type[nn.Module]]] = {"none": Block, "post": PostNormBlock, "pre": PreNormBlock}

    config: AttentionLMConfig

    def __init__(self, config: AttentionLMConfig) -> None:
        super().__init__()
        self.config = config
        plain = config.tricks == "none"
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions: LearnedPositions | SinusoidalPositions | None = None
        if config.positions == "learned":
            self.positions = LearnedPositions(config.window, config.width)
        elif config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(config.window, config.width)
        self.blocks = nn.ModuleList(self.BLOCKS[config.tricks](config) for _ in range(config.layers))
        self.output = Softmax(config.inner if plain else config.width, config.vocabulary, bias=plain)

    @property
    def window(self) -> int:
        return self.config.window

    def forward(self, tokens: Tensor, *, state: State = None, lengths: Tensor | None = None) -> Output:
        length, before = tokens.shape[1], 0 if state is None else state.length
        check_window(before, length, self.config.window)
        x = self.embedding(tokens)  # [B, T, D]
        if self.positions is not None:
            x = x + self.positions(0 if state is None else state.start, length)
        layer_caches: list[LayerCache] | list[None] = [None] * len(self.blocks)
        if state is not None:
            state, layer_caches = state.advance(length, window=self.config.window)
        record_layer(x)
        for block, layer_cache in zip(self.blocks, layer_caches, strict=True):
            x = block(x, layer_cache)
            record_layer(x)
        return Output(x, state)

    def start(self, batch_size: int, **inputs: Any) -> KeyValueCache:
        size = {"layers": self.config.layers, "heads": self.config.heads, "window": self.config.window}
        head_width = self.config.width // self.config.heads
        return KeyValueCache.empty(batch_size, **size, head_width=head_width, like=self.embedding.weight)

    def step(self, tokens: Tensor, state: State, **inputs: Any) -> tuple[Tensor, State]:
        return super().step(tokens, self.start(len(tokens)) if state is None else state, **inputs)

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding, self.positions), *((block,) for block in self.blocks))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """2 per weight of a product, and 4·T·D per layer for QKᵀ and its product with V."""
        weights = sum(module.weight.numel() for module in self.blocks.modules() if isinstance(module, nn.Linear))
        return 2.0 * weights + 4.0 * window * self.config.width * self.config.layers
