"""Factorised embeddings: small vectors for tokens, widened for the blocks (Lan et al. 2020, section 3.1).

V·E + E·D weights in place of V·D, because what a token means by itself needs fewer dimensions than what it means in its
context. ALBERT and ELECTRA have them.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.kernels.linear import Linear
from lmlab.models.bert import Encoder, EncoderConfig
from lmlab.models.gpt import initialise
from lmlab.models.model import by_depth


class FactorisedConfig(EncoderConfig):
    """The size of an encoder with small token vectors."""

    embedding_width: int = Field(
        128, ge=1, description="embedding size: token vectors before they are projected to the hidden size"
    )


class FactorisedEncoder(Encoder):
    """x = W LN(token + position + segment) + b; then the blocks."""

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

    def body_flops(self, window: int, *, share: float = 1.0, remembered: int = 0) -> float:
        projection = sum(module.weight.numel() for module in self.projection.modules() if isinstance(module, nn.Linear))
        return super().body_flops(window, share=share) + 2.0 * projection
