"""GPT-2: GPT with the normalisation moved to the input of each sublayer, and much larger.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
"""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor, nn

from lmlab.layers.cache import Slot
from lmlab.models.gpt import GPT, Block, GPTConfig


class PreNormBlock(Block):
    """z = x + Attention(LN(x)); h = z + FeedForward(LN(z)): the sum itself is never normalised."""

    def forward(self, x: Tensor, slot: Slot | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), slot))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x


class GPT2(GPT):
    """GPT with pre-norm blocks, one more norm at the end, and smaller first weights into the sum."""

    block: ClassVar[type[nn.Module]] = PreNormBlock

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.norm = nn.LayerNorm(config.width)
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.projection.weight", "feed_forward.contract.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.layers))
