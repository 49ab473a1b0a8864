"""GPT-2: GPT with the normalisation moved to the input of each sublayer and, as published, much larger.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3. The forward pass of GPT-2
is `GPT.forward` in gpt.py, as are embedding and cache; the block here is the difference.
"""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor, nn

from lmlab.layers.cache import LayerCache
from lmlab.models.gpt import GPT, Block, GPTConfig


class PreNormBlock(Block):
    """z = x + Attention(LN(x)); h = z + FeedForward(LN(z)): the sum itself is never normalised."""

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), layer_cache))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x


class GPT2(GPT):
    """GPT with pre-norm blocks, a last norm, and smaller initial weights of the layers that write into the residual."""

    block: ClassVar[type[nn.Module]] = PreNormBlock
    measured_in_bf16: ClassVar[bool] = True

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.norm = nn.LayerNorm(config.width)
        init_residual_projections(self, layers=config.layers)


def init_residual_projections(model: nn.Module, *, layers: int) -> None:
    """Draw the last matrix of each sublayer from N(0, 0.02² / 2L), L = `layers`.

    2L sublayers add their outputs to the residual, whose variance would otherwise grow with L.
    """
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.projection.weight", "feed_forward.contract.weight")):
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers))
