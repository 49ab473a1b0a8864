"""ALBERT: BERT with small token vectors and one block for all layers; it orders sentences instead of guessing the next.

Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations" (on arXiv 2019).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.kernels.linear import Linear
from lmlab.models.bert import Bert, BertConfig, Encoder, EncoderConfig
from lmlab.models.gpt import initialise
from lmlab.models.model import ModelConfig, by_depth


class FactorisedConfig(EncoderConfig):
    """The size of an encoder with small token vectors."""

    embedding_width: int = Field(
        128, ge=1, description="embedding size: token vectors before they are projected to the hidden size"
    )


class FactorisedEncoder(Encoder):
    """x = W LN(token + position + segment) + b; then the blocks (section 3.1). ELECTRA has these embeddings, too.

    Small vectors for tokens, widened for the blocks, have V·E + E·D weights in place of V·D: the meaning of a token
    without context needs fewer dimensions than its meaning in context.
    """

    config: FactorisedConfig

    def __init__(self, config: FactorisedConfig) -> None:
        super().__init__(config)
        self.projection = self.widen()
        self.projection.apply(initialise)

    def widen(self) -> nn.Module:
        """What gives the token vectors the width of the blocks; nothing where they have it already."""
        if self.config.embedding_width == self.config.width:
            return nn.Identity()
        return Linear(self.config.embedding_width, self.config.width)

    @property
    def embedding_width(self) -> int:
        return self.config.embedding_width

    def embed(self, tokens: Tensor, segments: Tensor | None, positions: Tensor) -> Tensor:
        x: Tensor = self.projection(super().embed(tokens, segments, positions))
        return x

    def depths(self) -> list[list[nn.Parameter]]:
        tables, *above = super().depths()
        return by_depth(self, (*tables, self.projection), *above[:-1])

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        projection = sum(module.weight.numel() for module in self.projection.modules() if isinstance(module, nn.Linear))
        return super().body_flops(window, fraction=fraction) + 2.0 * projection


class AlbertConfig(FactorisedConfig, BertConfig):
    """The size of an ALBERT."""

    gelu: Literal["exact", "tanh"] = Field("tanh", description="GELU: exact, x Φ(x), or the tanh approximation")


class Albert(FactorisedEncoder, Bert):
    """x = W LN(token + position + segment) + b, then the same block again and again.

    Factorised embeddings (section 3.1), and shared layers: the weights, and their gradients, of one block.
    """

    Config: ClassVar[type[ModelConfig]] = AlbertConfig

    config: AlbertConfig

    def widen(self) -> nn.Module:
        """A product even where the widths are equal, as in the published models."""
        return Linear(self.config.embedding_width, self.config.width)

    @property
    def distinct_blocks(self) -> int:
        return 1
