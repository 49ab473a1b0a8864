"""The language model of the billion-word benchmark (Jozefowicz et al. 2016): words read by their letters, LSTMs with
projections, a softmax over a huge vocabulary that is trained on samples of it.

    x_t = CharacterCNN(letters of w_t)                         no word is unknown to the reader
    c_t, h_t = LSTMP(x_t, h_{t−1}, c_{t−1})                    h = P (o∘tanh(c)): many cells, a narrow state
    P(w_{t+1} | w_1 … w_t) = softmax(V h_t + b)                trained by sampled softmax, evaluated exactly

Tokens may be anything that has letters. With a `spelled` tokenizer the most frequent words are predicted, and all
others are read by their letters but predicted as unknown, so that bits per byte are lossy as with `words`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from lmlab.layers.characters import Activation, CharacterCNN, Spell, SpelledTokens
from lmlab.layers.dropout import Dropout
from lmlab.layers.recurrent import Connections, Kernel, ProjectedLSTMLayer, RecurrentStack
from lmlab.layers.softmax import SampledSoftmax, Softmax
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.model import NextTokenModel, Output, TokenModelConfig, by_depth
from lmlab.models.states import reset_rows

Filters = Annotated[list[Annotated[int, Field(ge=1, le=65536)]], Field(min_length=2, max_length=2)]


class SpelledConfig(TokenModelConfig):
    """Settings of a model that reads letters, runs LSTMs with projections over them and predicts words."""

    width: int = Field(
        default=128, ge=1, le=65536, description="embedding size: width of token vectors and of the LSTM's projection"
    )
    cells: int = Field(
        default=512,
        ge=2,
        le=65536,
        description="memory cells of each LSTM layer; more than the width of the projection",
    )
    layers: int = Field(default=1, ge=1, le=64, description="stacked LSTM layers")
    letter_width: int = Field(default=16, ge=1, le=4096, description="embedding size of a letter (a byte)")
    filters: list[Filters] = Field(
        default=[[1, 16], [2, 32], [3, 64], [4, 64], [5, 64]],
        min_length=1,
        description="filters over the letters: pairs of a width in letters and a number of filters",
    )
    highways: int = Field(default=1, ge=0, le=16, description="highway layers over the filters")
    activation: Activation = Field(default="relu", description="activation of the filters")
    letters: int = Field(
        default=50, ge=8, le=1000, description="the most letters of a word that are read, marks of its ends included"
    )
    once: bool = Field(
        default=True,
        description="compute each distinct word of a batch once, not again at each position (same numbers)",
    )
    clip: float | None = Field(
        default=None, gt=0, description="largest size of LSTM cells and outputs (ELMo: 3); none: fused kernels"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout probability, on all but recurrent connections")
    reset_probability: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="in training, probability that a row's carried state is reset before a segment",
    )
    connections: Connections = Field(
        default="none", description="connections around each layer from the second on (residual, highway, dense)"
    )
    softmax: Literal["sampled", "full"] = Field(
        default="sampled", description="how the output layer is trained; evaluation is always exact"
    )
    samples: int = Field(
        default=2048, ge=1, description="draws of a sampled softmax; from as many as the vocabulary has on it is full"
    )
    kernel: Kernel = Field(
        default="fused", description="fused kernels, or readable Python cells (slower, same numbers)"
    )
    unknown: int = Field(default=0, ge=0, description="token for words that cannot be predicted")

    OPEN: ClassVar[bool] = True

    @model_validator(mode="after")
    def _projects_and_reads(self) -> SpelledConfig:
        if self.cells <= self.width:
            raise ValueError(f"cells = {self.cells} are projected to width = {self.width}, which must be less")
        if (widest := max(wide for wide, _ in self.filters)) > self.letters:
            raise ValueError(f"a filter is {widest} letters wide, and of a word {self.letters} letters are read")
        return self

    @classmethod
    def from_corpus(cls, corpus: Any) -> dict[str, Any]:
        known = super().from_corpus(corpus)
        unknown = corpus.text_tokenizer.unknown
        return known if unknown is None else {**known, "unknown": unknown}


def make_token_layer(config: SpelledConfig) -> SpelledTokens:
    """The token layer of a model of letters."""
    network = CharacterCNN(
        config.width,
        filters=config.filters,
        letter_width=config.letter_width,
        highways=config.highways,
        activation=config.activation,
    )
    return SpelledTokens(network, once=config.once)


def make_recurrent_layers(config: SpelledConfig) -> RecurrentStack:
    """The LSTM layers of a model of letters."""
    return RecurrentStack(
        partial(ProjectedLSTMLayer, projection=config.width, clip=config.clip),
        width=config.width,
        hidden=config.cells,
        output=config.width,
        layers=config.layers,
        dropout=config.dropout,
        connections=config.connections,
        kernel=config.kernel,
    )


def make_output(config: SpelledConfig) -> Softmax:
    """The output layer of a model of letters."""
    if config.softmax == "full":
        return Softmax(config.width, config.vocabulary)
    return SampledSoftmax(config.width, config.vocabulary, samples=config.samples)


def predictable(targets: Tensor, config: SpelledConfig) -> Tensor:
    """Targets as they can be predicted: words beyond the vocabulary are the unknown one."""
    return targets.where(targets < config.vocabulary, config.unknown)


class LM1B(NextTokenModel):
    """Character CNN, LSTMs with projections, sampled softmax."""

    Config = SpelledConfig
    stateful: ClassVar[bool] = True

    config: SpelledConfig
    output: Softmax

    def __init__(self, config: SpelledConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = make_token_layer(config)
        self.dropout = Dropout(config.dropout)
        self.recurrent = make_recurrent_layers(config)
        self.output = make_output(config)

    def spell_by(self, spell: Spell) -> None:
        """Read tokens by these letters from now on."""
        self.embedding.spell_by(spell)

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
        outputs, state = self.recurrent(x, state)
        record_layer(*outputs)
        return Output(self.dropout(outputs[-1]), state)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return super().nll(hidden, predictable(targets, self.config))

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return super().total_nll(hidden, predictable(targets, self.config))

    def start(self, batch_size: int, **inputs: Any) -> State:
        return self.recurrent.start(batch_size)

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding,), *self.recurrent.stages())

    def embedding_flops(self) -> float:
        return self.embedding.flops()

    def embedding_flops_of(self, inputs: Mapping[str, Tensor]) -> float:
        return self.embedding.flops_of(inputs["tokens"])

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return self.recurrent.flops()
