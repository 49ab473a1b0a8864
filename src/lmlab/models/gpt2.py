"""GPT-2: GPT with the normalisation moved to the input of each sublayer, and much larger.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

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

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        **{name: size for name, size in GPT.SIZES.items() if name != "117M"},
        "124M": {"width": 768, "heads": 12, "layers": 12, "window": 1024, "dropout": 0.1},
        "355M": {"width": 1024, "heads": 16, "layers": 24, "window": 1024, "dropout": 0.1},
        "774M": {"width": 1280, "heads": 20, "layers": 36, "window": 1024, "dropout": 0.1},
        "1.5B": {"width": 1600, "heads": 25, "layers": 48, "window": 1024, "dropout": 0.1},
    }
    TRAINING: ClassVar[dict[str, Any]] = {**GPT.TRAINING, "rate": 4e-3, "decay": 0.1}
    block: ClassVar[type[nn.Module]] = PreNormBlock

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.norm = nn.LayerNorm(config.width)
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.projection.weight", "feed_forward.contract.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.layers))
