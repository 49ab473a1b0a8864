"""AWD-LSTM (Merity et al. 2018): the LSTM language model again, with dropout wherever there is something to drop.

    x_t = m_i ∘ (E∘m_e) w_t                     m_e drops words, m_i components of all x_t
    h¹_t = LSTM(x_t, h¹_{t−1}; U∘m_w)            m_w drops weights of the recurrent matrices
    hˡ_t = LSTM(m_h ∘ hˡ⁻¹_t, hˡ_{t−1}; U∘m_w)   m_h drops components between layers
    P(w_{t+1} | w_1 … w_t) = softmax(E (m_o ∘ h_t) + b)

Every mask m is drawn once for a segment and holds at all its times. The last layer is as wide as the embeddings, whose
matrix is that of the softmax, too. With segments of varied length (train.order), a loss on large and quickly changing
vectors (objective.activation, objective.temporal) and averaged SGD (train.average) it reached 57.3 on the Penn
Treebank and 65.8 on WikiText-2, without a pointer or a cache (table 1 and 2 there). It is the model of ULMFiT.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, cast

from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.dropout import VariationalDropout
from lmlab.layers.recurrent import EmbeddingDropout, Kernel, WeightDroppedLSTM
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.model import NextTokenModel, Output, TokenModelConfig, by_depth
from lmlab.models.states import reset_rows


class AWDLSTMConfig(TokenModelConfig):
    """Settings of an AWD-LSTM."""

    width: int = Field(default=400, ge=1, le=65536, description="embedding size: width of the token vectors")
    hidden: int = Field(default=1150, ge=1, le=65536, description="hidden size: width of each state but the last")
    layers: int = Field(default=3, ge=1, le=64, description="stacked recurrent layers")
    dropout: float = Field(default=0.4, ge=0, lt=1, description="dropout probability of the last layer's output")
    input_dropout: float = Field(default=0.4, ge=0, lt=1, description="dropout probability of the word vectors")
    hidden_dropout: float = Field(default=0.3, ge=0, lt=1, description="dropout probability between layers")
    embedding_dropout: float = Field(default=0.1, ge=0, lt=1, description="probability that a whole word is dropped")
    weight_dropout: float = Field(
        default=0.5, ge=0, lt=1, description="dropout probability of the weights of the recurrent matrices"
    )
    reset_probability: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="in training, probability that a row's carried state is reset before a segment",
    )
    tied: bool = Field(default=True, description="weight tying: the output layer shares the embedding matrix")
    kernel: Kernel = Field(
        default="fused", description="fused kernels, or readable Python cells (slower, same numbers)"
    )


class AWDLSTM(NextTokenModel):
    """Embedding, weight-dropped LSTM layers, tied softmax."""

    Config = AWDLSTMConfig
    stateful: ClassVar[bool] = True

    config: AWDLSTMConfig
    output: Softmax

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        top = config.width if config.tied else config.hidden
        widths = [config.width, *[config.hidden] * (config.layers - 1), top]
        self.recurrent = nn.ModuleList(
            WeightDroppedLSTM(below, own, dropout=config.weight_dropout) for below, own in itertools.pairwise(widths)
        )
        self.embedding_dropout = EmbeddingDropout(config.embedding_dropout)
        self.input_dropout = VariationalDropout(config.input_dropout)
        self.hidden_dropout = VariationalDropout(config.hidden_dropout)
        self.dropout = VariationalDropout(config.dropout)
        self.output = Softmax(top, config.vocabulary, tied=self.embedding if config.tied else None)

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        if state is None:
            state = self.start(len(tokens))
        elif self.training and self.config.reset_probability > 0:
            state = reset_rows(state, probability=self.config.reset_probability)
        h = self.input_dropout(self.embedding_dropout(tokens, self.embedding))  # [B, T, D]
        record_layer(h)
        ends = []
        for number, (layer, before) in enumerate(zip(self.stack(), state, strict=True)):
            x = self.hidden_dropout(h) if number else h
            fused = self.config.kernel == "fused" and not layer.watched
            h, end = (layer.run if fused else layer.unroll)(x, before)  # [B, T, H]
            record_layer(h)
            ends.append(end)
        return Output(self.dropout(h), tuple(ends))

    def stack(self) -> list[WeightDroppedLSTM]:
        """The layers, the lowest first."""
        return cast(list[WeightDroppedLSTM], list(self.recurrent))

    def start(self, batch_size: int, **inputs: Any) -> State:
        return tuple(layer.start(batch_size) for layer in self.stack())

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding,), *((layer,) for layer in self.recurrent))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return sum(2.0 * parameter.numel() for parameter in self.recurrent.parameters() if parameter.dim() == 2)
