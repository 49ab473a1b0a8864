"""ELMo (Peters et al. 2018): a language model in each direction, whose layers together are vectors of words in context.

    x_k        = CharacterCNN(letters of w_k)                              shared
    →h_{k,j}   = LSTMP_j(→h_{k,j−1}, →h_{k−1,j}) (+ →h_{k,j−1} from the second layer on)     →h_{k,0} = x_k
    ←h_{k,j}   = the same from right to left
    P(w_{k+1} | w_1 … w_k) = softmax(V →h_{k,L} + b),   P(w_{k−1} | w_k … w_N) = softmax(V ←h_{k,L} + b)    V shared
    loss       = the mean over both directions
    h_{k,j}    = [→h_{k,j}; ←h_{k,j}],  h_{k,0} = [x_k; x_k]                what `layers` gives

A task reads γ Σ_j s_j h_{k,j} with its own s and γ. The directions meet only in these vectors: neither sees a word that
it predicts. Published: 2 layers of 4096 cells, projected to 512, over 2048 filters (`original`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.characters import Spell
from lmlab.layers.dropout import Dropout
from lmlab.layers.padding import has_padding, reverse_rows
from lmlab.layers.recurrent import Connections, RecurrentStack
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.lm_1b import (
    SpelledConfig,
    make_output,
    make_recurrent_layers,
    make_token_layer,
    predictable,
)
from lmlab.models.model import Model, Output, by_depth
from lmlab.models.states import reset_rows


class ElmoConfig(SpelledConfig):
    """Settings of an ELMo."""

    layers: int = Field(default=2, ge=1, le=64, description="stacked LSTM layers in each direction")
    connections: Connections = Field(
        default="residual", description="connections around each layer from the second on (residual, highway, dense)"
    )
    softmax: Literal["sampled", "full", "none"] = Field(  # type: ignore[assignment]
        default="sampled",
        description="how the output layer is trained; none: there is none, as in the published weights",
    )


class Elmo(Model):
    """Two language models that share the token layer and the softmax; the state is a pair, forward and backward."""

    Config = ElmoConfig
    stateful: ClassVar[bool] = True

    config: ElmoConfig

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = make_token_layer(config)
        self.dropout = Dropout(config.dropout)
        self.recurrent = nn.ModuleList(make_recurrent_layers(config) for _ in ("forward", "backward"))
        self.output: Softmax | None = None if config.softmax == "none" else make_output(config)

    def spell_by(self, spell: Spell) -> None:
        """Read tokens by these letters from now on."""
        self.embedding.spell_by(spell)

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    def offers(self) -> Iterable[object]:
        return (self,) if self.output is None else (self, BothWays(self, self.output))

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        """tokens [B, T], where row i has lengths[i] -> the top vectors [B, T, 2D] of both directions, concatenated.

        The state is that after T tokens from either side, so rows whose state is carried have equal lengths.
        """
        padded = has_padding(lengths, *tokens.shape)
        forward, backward = state or (None, None)
        x = self.dropout(self.embedding(tokens))  # [B, T, D]
        ahead, forward = self.run(0, x, forward)
        turned = reverse_rows(x, lengths if padded else None)
        mirrored, backward = self.run(1, turned, backward)
        back = [reverse_rows(layer, lengths if padded else None) for layer in mirrored]
        layers = [torch.cat(pair, dim=-1) for pair in zip(ahead, back, strict=True)]
        record_layer(*layers)
        return Output(layers[-1], (forward, backward))

    def run(self, direction: int, x: Tensor, state: State) -> tuple[list[Tensor], State]:
        """One direction over token vectors [B, T, D] in its own order -> every layer's vectors, and the state."""
        stack = cast(RecurrentStack, self.recurrent[direction])
        if state is None:
            state = stack.start(len(x))
        elif self.training and self.config.reset_probability > 0:
            state = reset_rows(state, probability=self.config.reset_probability)
        outputs, state = stack(x, state)
        return outputs, state

    def start(self, batch_size: int) -> State:
        """The state of unread texts, from either side."""
        return tuple(cast(RecurrentStack, stack).start(batch_size) for stack in self.recurrent)

    def depths(self) -> list[list[nn.Parameter]]:
        stages = zip(*(cast(RecurrentStack, stack).stages() for stack in self.recurrent), strict=True)
        return by_depth(self, (self.embedding,), *([*forward, *backward] for forward, backward in stages))

    def embedding_flops(self) -> float:
        return self.embedding.flops()

    def embedding_flops_of(self, inputs: Mapping[str, Tensor]) -> float:
        read = [inputs[name] for name in ("tokens", "backwards") if name in inputs]
        return self.embedding.flops_of(torch.cat([tokens.flatten() for tokens in read]))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return sum(cast(RecurrentStack, stack).flops() for stack in self.recurrent)

    def head_flops(self) -> float:
        """Of both directions, which predict each token once."""
        return 0.0 if self.output is None else 2 * self.output.flops()


@dataclass(frozen=True)
class BothWays:
    """ELMo with its softmax: predicts from left to right and from right to left (`PredictsBothWays`)."""

    elmo: Elmo
    output: Softmax

    def directions(self) -> tuple[Direction, Direction]:
        return Direction(self, 0), Direction(self, 1)

    def read(self, tokens: Tensor, backwards: Tensor, state: State = None) -> tuple[Tensor, Tensor, State]:
        elmo, states = self.elmo, state or (None, None)
        both = elmo.dropout(elmo.embedding(torch.cat([tokens, backwards])))  # a word of both is computed once
        x, y = both.split(len(tokens))
        (*_, h), forward = elmo.run(0, x, states[0])
        (*_, g), backward = elmo.run(1, y, states[1])
        return elmo.dropout(h), elmo.dropout(g), (forward, backward)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return self.output.nll(hidden, predictable(targets, self.elmo.config))

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return self.output.total(hidden, predictable(targets, self.elmo.config))


@dataclass(frozen=True)
class Direction:
    """One direction of ELMo: predicts the next token of a text (`PredictsNext`), for the backward one from its end."""

    both: BothWays
    number: int

    @property
    def vocabulary(self) -> int:
        return self.both.elmo.vocabulary

    @property
    def window(self) -> int | None:
        return None

    @property
    def device(self) -> torch.device:
        return self.both.elmo.device

    def start(self, batch_size: int, **inputs: Any) -> State:
        return cast(RecurrentStack, self.both.elmo.recurrent[self.number]).start(batch_size)

    def __call__(self, tokens: Tensor, *, state: State = None) -> Output:
        elmo = self.both.elmo
        (*_, h), state = elmo.run(self.number, elmo.dropout(elmo.embedding(tokens)), state)
        return Output(h, state)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return self.both.nll(hidden, targets)

    def step(self, tokens: Tensor, state: State, **inputs: Any) -> tuple[Tensor, State]:
        h, state = self(tokens, state=state)
        return self.both.output.logits(h[:, -1]), state

    def score(self, tokens: Tensor, targets: Tensor, state: State) -> tuple[Tensor, State]:
        h, state = self(tokens, state=state)
        return self.nll(h.flatten(0, 1), targets.flatten()).view_as(targets), state
