"""The recurrent language model (Elman 1990, Mikolov et al. 2010): a state that has read everything before.

    x_t = E w_t
    h_t = tanh(Wx x_t + Wh h_{t−1} + b)          (stacked: layer l reads the h_t of layer l−1)
    P(w_{t+1} | w_1 … w_t) = softmax(V h_t + c)

Trained by truncated back-propagation through time: the state is carried from one segment to the next, gradients are
not. `gru` and `lstm` differ in the cell only.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from lmlab.layers.dropout import Dropout
from lmlab.layers.recurrent import Connections, ElmanLayer, Kernel, Layer, RecurrentStack
from lmlab.layers.softmax import AdaptiveSoftmax, Softmax
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.model import NextTokenModel, Output, TokenModelConfig, by_depth
from lmlab.models.states import reset_rows


class RNNConfig(TokenModelConfig):
    """Settings of a recurrent language model."""

    width: int = Field(default=256, ge=1, le=65536, description="embedding size: width of the token vectors")
    hidden: int = Field(default=256, ge=1, le=65536, description="hidden size: width of each layer's state")
    layers: int = Field(default=2, ge=1, le=64, description="stacked recurrent layers")
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="dropout probability, on all connections except the recurrent ones"
    )
    reset_probability: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="in training, probability that a row's carried state is reset before a segment",
    )
    tied: bool = Field(default=False, description="weight tying: the output layer shares the embedding matrix")
    softmax: Literal["full", "adaptive"] = Field(
        default="full", description="output layer; adaptive softmax is for large vocabularies sorted by frequency"
    )
    cutoffs: list[int] | None = Field(
        default=None, description="token ids at which the adaptive softmax starts a new cluster; None: automatic"
    )
    initial: float | None = Field(
        default=None,
        gt=0,
        le=10,
        description="all weights and biases start uniformly between -initial and initial; None: each by its own rule",
    )
    connections: Connections = Field(
        default="none", description="connections around each layer from the second on (residual, highway, dense)"
    )
    kernel: Kernel = Field(
        default="fused", description="fused kernels, or readable Python cells (slower, same numbers)"
    )

    @model_validator(mode="after")
    def _output_is_possible(self) -> RNNConfig:
        if self.tied and self.softmax == "adaptive":
            raise ValueError(
                "an adaptive softmax cannot share the embedding matrix; set tied = false or softmax = 'full'"
            )
        if self.cutoffs and self.softmax == "full":
            raise ValueError("cutoffs are for the adaptive softmax; set softmax = 'adaptive' or leave them out")
        return self


class RNN(NextTokenModel):
    """Embedding, recurrent stack, softmax."""

    Config = RNNConfig
    stateful: ClassVar[bool] = True
    layer: ClassVar[type[Layer]] = ElmanLayer

    config: RNNConfig
    output: Softmax | AdaptiveSoftmax

    def __init__(self, config: RNNConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.dropout = Dropout(config.dropout)
        self.recurrent = RecurrentStack(
            self.layer,
            width=config.width,
            hidden=config.hidden,
            layers=config.layers,
            dropout=config.dropout,
            connections=config.connections,
            kernel=config.kernel,
        )
        self.projection: nn.Module = nn.Identity()
        if config.softmax == "adaptive":
            self.output = AdaptiveSoftmax(config.hidden, config.vocabulary, cutoffs=config.cutoffs)
        elif config.tied:
            if config.hidden != config.width:
                self.projection = nn.Linear(config.hidden, config.width, bias=False)
            self.output = Softmax(config.width, config.vocabulary, tied=self.embedding)
        else:
            self.output = Softmax(config.hidden, config.vocabulary)
        if config.initial is not None:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -config.initial, config.initial)

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
        x = self.dropout(self.embedding(tokens))  # [B, T, D]
        (*below, h), state = self.recurrent(x, state)
        h = self.projection(self.dropout(h))
        record_layer(*below, h)
        return Output(h, state)

    def start(self, batch_size: int, **inputs: Any) -> State:
        return self.recurrent.start(batch_size)

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding,), *self.recurrent.stages())

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        projection = sum(2.0 * parameter.numel() for parameter in self.projection.parameters())
        return self.recurrent.flops() + projection
