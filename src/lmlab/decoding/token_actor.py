"""Acting with a model that predicts tokens: returns and states are given as bins, and the action is predicted."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lmlab.decoding.generate import MANY, StatefulReader
from lmlab.models.abilities import PredictsNext
from lmlab.tokenizers.processors.steps import EpisodeTokens


class TokenPolicy:
    """A model of episodes as tokens, which chooses the most probable action (`Acts`)."""

    def __init__(self, model: PredictsNext, tokenizer: EpisodeTokens) -> None:
        self.model, self.tokenizer = model, tokenizer

    @property
    def device(self) -> torch.device:
        return self.model.device

    def start(self, batch_size: int) -> StatefulReader:
        return StatefulReader(self.model, batch=batch_size, steps=MANY)

    def step(
        self, states: Tensor, history: StatefulReader, *, returns: Tensor, actions: Tensor | None = None
    ) -> tuple[Tensor, StatefulReader]:
        """The scores [B, A] of the next action; the numbers of a continuous one are chosen in turn."""
        tokenizer, rows = self.tokenizer, len(states)
        before = np.full((rows, 1), tokenizer.boundary)
        if actions is not None:  # all numbers of a continuous action but the last were read when they were chosen
            before = tokenizer.encode_actions(actions.cpu().numpy())[:, -1:]
        seen = tokenizer.encode_observation(returns.cpu().numpy(), states.cpu().numpy())
        logits = history.read(torch.from_numpy(np.concatenate([before, seen], axis=1)).to(self.device))
        if tokenizer.scales.discrete:
            return logits[:, tokenizer.action_range(0)], history
        values: list[Tensor] = []
        for number in range(tokenizer.action_tokens):
            own = tokenizer.action_range(number)
            values.append(logits[:, own].argmax(1))
            if number < tokenizer.action_tokens - 1:
                logits = history.read(own.start + values[-1][:, None])
        return tokenizer.action_values(torch.stack(values, dim=1)), history
