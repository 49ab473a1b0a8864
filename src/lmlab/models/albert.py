"""ALBERT: BERT with small token vectors and one block for all layers; it orders sentences instead of guessing the next.

Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations" (on arXiv 2019).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from lmlab.layers.kernels.linear import Linear
from lmlab.models.bert import Bert, BertConfig
from lmlab.models.factorised import FactorisedConfig, FactorisedEncoder
from lmlab.models.model import ModelConfig


class AlbertConfig(FactorisedConfig, BertConfig):
    """The size of an ALBERT."""

    gelu: Literal["exact", "tanh"] = Field("tanh", description="GELU: exact, x Φ(x), or the tanh approximation")


class Albert(FactorisedEncoder, Bert):
    """x = W LN(token + position + segment) + b, then the same block again and again.

    Factorised embeddings (section 3.1, see factorised.py). Shared layers: the weights, and their gradients, of one
    block.
    """

    Config: ClassVar[type[ModelConfig]] = AlbertConfig

    config: AlbertConfig

    def widen(self) -> nn.Module:
        """A product even where the widths are equal, as in the published models."""
        return Linear(self.config.embedding_width, self.config.width)

    @property
    def distinct_blocks(self) -> int:
        return 1
