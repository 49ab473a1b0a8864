"""BART: a Transformer pre-trained to write a text from a damaged copy of it.

Lewis et al. 2020, "BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, Translation, and
Comprehension" (arXiv 2019), section 2. Against the Transformer of 2017: learnt positions, GELU, first weights from
N(0, 0.02), and the sum of embedding and position, not scaled, normalised before the first block.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.padding import Padding
from lmlab.layers.positions import LearnedPositions, check_window
from lmlab.models.abilities import State
from lmlab.models.gpt import initialise
from lmlab.models.model import ModelConfig, Output
from lmlab.models.transformer import StacksConfig, Transformer, TransformerStack


class BartConfig(StacksConfig):
    """The size of a BART."""

    activation: Literal["relu", "gelu", "silu"] = Field(
        "gelu", description="activation function of the feed-forward layers"
    )
    scale: bool = Field(False, description="multiply embeddings by the square root of the width")
    window: int = Field(256, ge=2, description="context length: the most tokens of a source, and of a target")


class Bart(Transformer):
    """A Transformer whose stacks begin with LN(E(token) + position)."""

    Config: ClassVar[type[ModelConfig]] = BartConfig

    config: BartConfig

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.apply(initialise)

    @property
    def window(self) -> int:
        return self.config.window

    def stack(self, blocks: list[nn.Module]) -> TransformerStack:
        stack = TransformerStack(
            blocks, positions=LearnedPositions(self.config.window, self.config.width), config=self.config
        )
        stack.embedding_norm = nn.LayerNorm(self.config.width)
        return stack

    def _read(self, source: Tensor, padding: Padding) -> Tensor:
        check_window(0, source.shape[1], self.config.window)
        return super()._read(source, padding)

    def forward(
        self,
        tokens: Tensor,
        *,
        target_lengths: Tensor | None = None,
        state: State = None,
        **source: Any,
    ) -> Output:
        check_window(0 if state is None else state.decoder.length, tokens.shape[1], self.config.window)
        return super().forward(tokens, target_lengths=target_lengths, state=state, **source)
