"""The tagger of 2016 (Lample et al. 2016, Ma & Hovy 2016): words and their letters, read in both directions.

    x_k = [E w_k; characters(w_k)]             the word, and a CNN or LSTM over its spelling
    h_{k,1} = [→h_{k,1}; ←h_{k,1}]              a bidirectional LSTM
    h_{k,2} = biLSTM([h_{k,1}; h^LM_k])         TagLM (Peters et al. 2017): with the states of a frozen language model

It is no language model: body and head are learnt from labelled sentences (`lmlab finetune tagger`), with a conditional
random field over the tags (layers/crf.py). States of language models may be added between the first two layers, as in
TagLM, at the bottom to x_k, or at bottom and top, as ELMo's authors found best for some tasks (Peters et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmlab.layers.characters import USUAL_LETTERS, CharacterWordCNN, CharacterWordLSTM
from lmlab.layers.dropout import Dropout
from lmlab.layers.layer_mix import Mix
from lmlab.layers.padding import gather_positions
from lmlab.layers.recurrent import LSTMLayer
from lmlab.layers.recurrent_encoder import RecurrentEncoder
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.flops import row_lengths
from lmlab.models.model import EncoderModel, Output, TokenModelConfig, by_depth


class TaggerConfig(TokenModelConfig):
    """Settings of a tagger."""

    width: int = Field(default=100, ge=1, le=65536, description="width of the word vectors")
    hidden: int = Field(default=200, ge=1, le=65536, description="width of each direction's state")
    layers: int = Field(default=1, ge=1, le=64, description="stacked bidirectional layers")
    characters: Literal["cnn", "lstm", "none"] = Field(
        default="cnn", description="what reads the letters of a word: a convolution, an LSTM, or nothing"
    )
    character_width: int = Field(default=30, ge=1, le=4096, description="width of the character vectors")
    filters: int = Field(default=50, ge=1, le=65536, description="width of a word's vector that its letters give")
    symbols: int = Field(default=259, ge=2, description="symbols of spellings; set by lmlab")
    states: int = Field(default=0, ge=0, description="width of the language models' states; set by lmlab")
    state_layers: int = Field(
        default=1, ge=1, description="number of layers of these states, which the tagger mixes; set by lmlab"
    )
    state_position: Literal["between", "bottom", "both"] = Field(
        default="between",
        description="where these states enter: after the first layer, at the bottom, or bottom and top",
    )
    dropout: float = Field(default=0.5, ge=0, lt=1, description="dropout probability of the inputs of each layer")

    @model_validator(mode="after")
    def _there_is_a_between(self) -> TaggerConfig:
        if self.states and self.state_position == "between" and self.layers < 2:
            raise ValueError("states between two layers need two: set model.layers=2, or model.state_position=bottom")
        return self


class Tagger(EncoderModel):
    """Word and character vectors, bidirectional LSTM layers."""

    Config = TaggerConfig
    RENAMED: ClassVar[Mapping[str, str]] = {"mix": "mix.scores", "gamma": "mix.gamma"}

    config: TaggerConfig

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        bound = (3 / config.width) ** 0.5
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        self.characters = make_characters(config)
        width = config.width + (0 if self.characters is None else self.characters.width)
        self.mix = Mix(config.state_layers) if config.state_layers > 1 else None
        bottom = config.states if config.state_position in ("bottom", "both") else 0
        between = config.states if config.state_position == "between" else 0

        def encoder(below: int, layers: int) -> RecurrentEncoder:
            return RecurrentEncoder(
                LSTMLayer,
                width=below,
                hidden=config.hidden,
                layers=layers,
                bidirectional=True,
                dropout=config.dropout,
            )

        self.lower = encoder(width + bottom, 1)
        self.upper = encoder(2 * config.hidden + between, config.layers - 1) if config.layers > 1 else None
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        tokens: Tensor,
        *,
        spellings: Tensor | None = None,
        states: Tensor | None = None,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        at: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """Words [B, T], their spellings [B, T, C] and states of language models [B, T, L·F] -> hidden [B, T, D].

        What is missing of the last two counts as zero.
        """
        where = self.config.state_position
        found = self._states(states, tokens)
        x = [self.embedding(tokens)]
        if self.characters is not None:
            x.append(self._letters(spellings, x[0]))
        x += [found] if found is not None and where != "between" else []
        layers, _ = self.lower(self.dropout(torch.cat(x, dim=-1)), lengths)  # the last: [B, T, 2H]
        if self.upper is not None:
            below = [layers[-1], found] if found is not None and where == "between" else layers[-1:]
            (_, *above), _ = self.upper(self.dropout(torch.cat(below, dim=-1)), lengths)
            layers += above
        if found is not None and where == "both":
            layers[-1] = torch.cat([layers[-1], found], dim=-1)
        record_layer(*layers)
        h = layers[-1]
        return Output(h if at is None else gather_positions(h, at))

    def layers(self, **inputs: Any) -> list[Tensor]:
        """As of any model, but only of words with all that comes with them: vectors without it would mean nothing."""
        needed = {"spellings": self.characters is not None, "states": self.config.states > 0}
        if missing := [name for name, needs in needed.items() if needs and inputs.get(name) is None]:
            raise ValueError(
                f"this tagger reads words with their {' and '.join(missing)}, which only its task gives: use what it "
                "says (lmlab predict), or take the vectors of a language model"
            )
        return super().layers(**inputs)

    def _letters(self, spellings: Tensor | None, words: Tensor) -> Tensor:
        assert self.characters is not None
        if spellings is None:
            return words.new_zeros(*words.shape[:2], self.characters.width)
        return cast(Tensor, self.characters(spellings))

    def _states(self, states: Tensor | None, tokens: Tensor) -> Tensor | None:
        """h^LM [B, T, F]; of several layers their mix γ Σ_j softmax(s)_j h_j (Peters et al. 2018, equation 1)."""
        config = self.config
        if not config.states:
            return None
        if states is None:
            return self.embedding.weight.new_zeros(*tokens.shape, config.states)
        if self.mix is None:
            return states
        return cast(Tensor, self.mix(states.view(*tokens.shape, config.state_layers, config.states)))

    def depths(self) -> list[list[nn.Parameter]]:
        inputs = (self.embedding, self.characters, self.mix)
        upper = [] if self.upper is None else self.upper.stages()
        return by_depth(self, inputs, *self.lower.stages(), *upper)

    def embedding_flops(self) -> float:
        return 0.0 if self.characters is None else self.characters.flops(USUAL_LETTERS)

    def embedding_flops_of(self, inputs: Mapping[str, Tensor]) -> float:
        """Of the network over the characters of the words."""
        spellings = inputs.get("spellings")
        return 0.0 if self.characters is None or spellings is None else self.characters.flops_of(spellings)

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return self.lower.flops() + (0.0 if self.upper is None else self.upper.flops())

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """The kernel for rows of unequal length computes no padding."""
        return sum(row_lengths(inputs)) * self.body_flops(1)


def make_characters(config: TaggerConfig) -> CharacterWordCNN | CharacterWordLSTM | None:
    """What reads the letters of words."""
    if config.characters == "none":
        return None
    if config.characters == "lstm":
        return CharacterWordLSTM(config.symbols, width=config.character_width, hidden=max(1, config.filters // 2))
    return CharacterWordCNN(config.symbols, width=config.character_width, filters=config.filters)
