"""ALBERT: BERT with small token vectors and one block for all layers; it orders sentences instead of guessing the next.

Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations" (on arXiv 2019).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.kernels.linear import Linear
from lmlab.models.bert import Bert, BertConfig
from lmlab.models.gpt import initialise
from lmlab.models.model import ModelConfig


class AlbertConfig(BertConfig):
    """The size of an ALBERT."""

    embedding_width: int = Field(128, ge=1, description="size of the token vectors, before they get the blocks' width")
    gelu: Literal["exact", "tanh"] = Field("tanh", description="x Φ(x), or its approximation by tanh")


class Albert(Bert):
    """x = W LN(token + position + segment) + b, then the same block again and again.

    Factorised embeddings (section 3.1): V·E + E·D weights in place of V·D, because what a token means by itself needs
    fewer dimensions than what it means in its context. Shared layers: the weights, and their gradients, of one block.
    """

    Config: ClassVar[type[ModelConfig]] = AlbertConfig
    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {**Bert.SIZES["tiny"], "embedding_width": 32},
        "small": {**Bert.SIZES["small"], "embedding_width": 64},
        "medium": {**Bert.SIZES["medium"], "embedding_width": 128},
        "base": {"width": 768, "heads": 12, "layers": 12, "window": 512, "dropout": 0.1},
        "large": {"width": 1024, "heads": 16, "layers": 24, "window": 512, "dropout": 0.1},
        "xlarge": {"width": 2048, "heads": 16, "layers": 24, "window": 512, "dropout": 0.1},
        "xxlarge": {"width": 4096, "heads": 64, "layers": 12, "window": 512, "dropout": 0.0},
    }
    OBJECTIVE: ClassVar[dict[str, Any]] = {"kind": "masked", "pairs": "sentence-order"}
    TOKENIZER: ClassVar[str] = "unigram:4096"

    config: AlbertConfig

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        self.projection: nn.Module = Linear(config.embedding_width, config.width)
        self.projection.apply(initialise)

    @property
    def embedding_width(self) -> int:
        return self.config.embedding_width

    @property
    def distinct_blocks(self) -> int:
        return 1

    def embed(self, tokens: Tensor, segments: Tensor | None, positions: Tensor) -> Tensor:
        x: Tensor = self.projection(super().embed(tokens, segments, positions))
        return x

    def flops(self, window: int, share: float = 1.0) -> float:
        projection = sum(module.weight.numel() for module in self.projection.modules() if isinstance(module, nn.Linear))
        return super().flops(window, share) + 2.0 * projection
