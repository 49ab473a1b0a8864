"""RoBERTa: BERT with other training: no sentence pairs, new masks each epoch, full rows, large batches, byte-level BPE.

Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach".
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from lmlab.models.bert import Bert, BertConfig
from lmlab.models.model import ModelConfig


class RobertaConfig(BertConfig):
    """The size of a RoBERTa."""

    segments: int = Field(
        1, ge=1, description="number of segment types (token types); 1: segments are not distinguished"
    )
    epsilon: float = Field(1e-5, gt=0, description="epsilon of LayerNorm")
    pooler: bool = Field(False, description="pooler: a dense tanh layer on the first token, for the whole text")
    pairs: bool = Field(False, description="sentence-pair head (NSP/SOP); needs the pooler")
    offset: int = Field(
        2, ge=0, description="position number of the first token; earlier rows of the position table are unused"
    )


class Roberta(Bert):
    """BERT without segments and sentence pairs.

    The published models number positions from one after the padding token's number, 1, so two rows of their table are
    never used; keeping them makes the weights interchangeable.
    """

    Config: ClassVar[type[ModelConfig]] = RobertaConfig

    config: RobertaConfig

    @property
    def first_position(self) -> int:
        return self.config.offset
