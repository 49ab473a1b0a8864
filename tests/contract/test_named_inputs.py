"""Models need not read tokens alone: an episode by names at each step, and an encoder–decoder over sound."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import LearnsNext, LearnsTarget, State, WritesTarget, ability
from lmlab.models.model import EncoderDecoder, NextTokenModel, Output, TokenModelConfig, by_depth
from lmlab.models.states import Decoding


class Episodes(NextTokenModel):
    """Predicts actions from earlier actions, and from the return to go and the state of the world at each step."""

    Config = TokenModelConfig

    def __init__(self, config: TokenModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, 6)
        self.returns, self.observations = nn.Linear(1, 6), nn.Linear(3, 6)
        self.recurrent = nn.GRU(6, 6, batch_first=True)
        self.output = Softmax(6, config.vocabulary)

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
        returns: Tensor | None = None,
        observations: Tensor | None = None,
    ) -> Output:
        x = self.embedding(tokens)
        if returns is not None and observations is not None:
            x = x + self.returns(returns[..., None]) + self.observations(observations)
        h, state = self.recurrent(x, None if state is None else state.transpose(0, 1).contiguous())
        record_layer(x, h)
        return Output(h, state.transpose(0, 1))

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding, self.returns, self.observations), (self.recurrent,))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return 2.0 * sum(parameter.numel() for parameter in self.recurrent.parameters())


class EncodedSound(NamedTuple):
    """The mean of the frames of each source [B, D]."""

    mean: Tensor


class Speech(EncoderDecoder):
    """Writes text from frames of sound; it takes more frames than tokens."""

    Config = TokenModelConfig
    main_input = "frames"

    def __init__(self, config: TokenModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = nn.Linear(4, 6)
        self.embedding = nn.Embedding(config.vocabulary, 6)
        self.output = Softmax(6, config.vocabulary)

    @property
    def window(self) -> int:
        return 8

    @property
    def source_window(self) -> int:
        return 3000

    def encode(self, *, frames: Tensor) -> EncodedSound:
        h = self.encoder(frames)
        record_layer(h)
        return EncodedSound(h.mean(1))

    def begin(self, encoded: EncodedSound, *, beams: int = 1) -> Decoding:
        return Decoding(encoded, torch.zeros(len(encoded.mean) * beams, 1))

    def forward(self, tokens: Tensor, *, state: State = None, frames: Tensor | None = None) -> Output:
        encoded = self.encode(frames=frames) if frames is not None else state.encoded
        rows = encoded.mean.repeat_interleave(len(tokens) // len(encoded.mean), 0)
        return Output(torch.tanh(self.embedding(tokens) + rows[:, None]), state)

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding,), (self.encoder,))

    def writing_flops(self, inputs: Any) -> float:
        return 2.0 * self.encoder.weight.numel() * float(inputs["frames"].shape[1])


def test_steps_of_an_episode_take_returns_and_observations_by_name() -> None:
    torch.manual_seed(0)
    model = Episodes(TokenModelConfig(vocabulary=7)).eval()
    assert ability(model, LearnsNext) is model
    actions, returns, observations = torch.randint(0, 7, (2, 5)), torch.randn(2, 5), torch.randn(2, 5, 3)
    with torch.no_grad():
        at_once = model.logits(model(actions, returns=returns, observations=observations).hidden)
        state = model.start(2)
        for t in range(5):
            now = slice(t, t + 1)
            scores, state = model.step(
                actions[:, now], state, returns=returns[:, now], observations=observations[:, now]
            )
            torch.testing.assert_close(scores, at_once[:, t])
        assert (model.step(actions[:, :1], None)[0] - at_once[:, 0]).abs().max() > 1e-3, "they matter"


def test_sources_may_be_sound_with_a_limit_of_their_own() -> None:
    torch.manual_seed(0)
    model = Speech(TokenModelConfig(vocabulary=7)).eval()
    assert ability(model, WritesTarget) is not None
    assert ability(model, LearnsTarget) is not None
    assert (model.window, model.source_window) == (8, 3000)
    frames, tokens = torch.randn(2, 100, 4), torch.randint(0, 7, (2, 5))
    with torch.no_grad():
        (layer,) = model.layers(frames=frames, tokens=tokens)
        assert layer.shape == (2, 100, 6)
        at_once = model.logits(model(tokens, frames=frames).hidden)
        state: State = model.begin(model.encode(frames=frames))
        for t in range(5):
            scores, state = model.step(tokens[:, t : t + 1], state)
            torch.testing.assert_close(scores, at_once[:, t])
