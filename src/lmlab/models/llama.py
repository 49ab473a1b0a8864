"""LLaMA: GPT-2 with RMSNorm, RoPE, SwiGLU and grouped-query attention, and without biases.

RMSNorm replaces LayerNorm, rotary positions (RoPE) inside attention replace learnt ones at the input, a gated
feed-forward net (SwiGLU) replaces GELU, and groups of query heads share keys and values (grouped-query attention).

Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2; grouped keys and values:
Touvron et al. 2023, "Llama 2", section 2.2.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, ValidationInfo
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import GroupedAttention, check_groups
from lmlab.layers.cache import LayerCache
from lmlab.layers.feedforward import GatedFeedForward
from lmlab.layers.positions import Rotary, check_pairs
from lmlab.layers.softmax import Softmax
from lmlab.models.gpt import GPT, DecoderConfig, initialise
from lmlab.models.gpt2 import init_residual_projections
from lmlab.models.model import ModelConfig


def _divides_heads(groups: int, info: ValidationInfo) -> int:
    if {"width", "heads"} <= info.data.keys():
        check_groups(info.data["heads"], groups)
        check_pairs(info.data["width"] // info.data["heads"])
    return groups


class LlamaConfig(DecoderConfig):
    """The size of a LLaMA."""

    key_value_heads: Annotated[int, AfterValidator(_divides_heads)] = Field(
        2, ge=1, description="heads of keys and values, each shared by a group of query heads; must divide the heads"
    )
    inner: int = Field(352, ge=1, description="width of the gated feed-forward layers, usually 8/3 of the width")
    base: float = Field(10000.0, gt=1, description="base of the rotary angles; larger: slower turning, longer texts")
    bias: bool = Field(False, description="biases of queries, keys and values, as Qwen2 has them")
    tied: bool = Field(True, description="weight tying: the output layer uses the token embeddings")
    epsilon: float = Field(1e-5, gt=0, description="added to the mean square in RMS norms")


class Block(nn.Module):
    """z = x + Attention(RMS(x)); h = z + SwiGLU(RMS(z)): pre-norm, as GPT-2."""

    def __init__(self, config: LlamaConfig, rotary: Rotary) -> None:
        super().__init__()
        self.attention_norm: nn.Module = nn.RMSNorm(config.width, eps=config.epsilon)
        self.attention = GroupedAttention(
            config.width, config.heads, key_value_heads=config.key_value_heads, rotary=rotary, bias=config.bias
        )
        self.feed_forward_norm: nn.Module = nn.RMSNorm(config.width, eps=config.epsilon)
        self.feed_forward: nn.Module = GatedFeedForward(config.width, config.inner)

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), layer_cache)
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x


class Llama(GPT):
    """x = token; then the blocks; P(next) = softmax(W RMS(h)), with W the token embeddings or a matrix of its own.

    The forward pass and the cache are GPT's; all parts are made here.
    """

    Config: ClassVar[type[ModelConfig]] = LlamaConfig
    block: ClassVar[type[nn.Module]] = Block
    measured_in_bf16: ClassVar[bool] = True

    config: LlamaConfig

    def __init__(self, config: LlamaConfig) -> None:
        super(GPT, self).__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions = None  # they are inside attention
        rotary = Rotary(config.window, config.width // config.heads, base=config.base)
        self.blocks = nn.ModuleList(self.block(config, rotary) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=config.epsilon)
        tied = self.embedding if config.tied else None
        self.output = Softmax(config.width, config.vocabulary, bias=False, tied=tied)
        self.apply(initialise)
        init_residual_projections(self, layers=config.layers)

    @property
    def key_value_heads(self) -> int:
        return self.config.key_value_heads

    def embed(self, tokens: Tensor, start: int | Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        return x
