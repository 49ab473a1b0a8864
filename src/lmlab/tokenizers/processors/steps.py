"""Episodes as tokens: at each step the return to go, the numbers of the state and the action, each as one bin.

Reed et al. 2022 ("A Generalist Agent", section 2.1) discretise all continuous values in this way, so that one model
reads them beside text. The order of a step is that of Chen et al. 2021 (decision_transformer.py): return, state,
action. Each number has bins of its own, so a token says what it is, too.
Shapes: T steps, S numbers of a state, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lmlab.tokenizers.processors.episode_scaling import EpisodeProcessor
from lmlab.tokenizers.processors.sequences import SequenceTokenizer

if TYPE_CHECKING:
    from torch import Tensor

BINS = 64
MOST_BINS = 1024
MOST_TOKENS = 1 << 16
WIDEST = 4.0
"""Standard deviations from the mean that the bins of a state cover; the outermost bins hold values beyond, too."""

Ids = NDArray[np.int64]


class EpisodeTokens(SequenceTokenizer):
    """Encodes episodes as the bins of their returns to go, states and actions."""

    kind: ClassVar[str] = "steps"
    reads: ClassVar[str] = "episodes"
    unit: ClassVar[str] = "token"
    item: ClassVar[str] = "episode"
    forms: ClassVar[str] = "steps, steps:64 (the number of bins)"
    commands: ClassVar[tuple[str, ...]] = ("lmlab act {run} --env ENVIRONMENT",)

    def __init__(self, bins: int = BINS, scales: EpisodeProcessor | Mapping[str, Any] | None = None) -> None:
        """`scales` are those of the training episodes; `fit` gives them to a tokenizer that was made from a spec."""
        if not isinstance(bins, int) or not 2 <= bins <= MOST_BINS:
            raise ValueError(f"steps:{bins}: give 2 to {MOST_BINS} bins")
        self.bins = bins
        self.scales = scales if isinstance(scales, EpisodeProcessor) else EpisodeProcessor(**(scales or UNFITTED))
        self.first_action = bins * (1 + self.scales.state_width)
        if self.vocabulary > MOST_TOKENS:
            raise ValueError(
                f"steps:{bins}: states of {self.scales.state_width:,} numbers need {self.vocabulary:,} tokens, and at "
                f"most {MOST_TOKENS:,} are allowed; give fewer bins"
            )

    @classmethod
    def from_spec(cls, options: str) -> Self:
        if options and not options.isdecimal():
            raise ValueError(f"tokenizer 'steps:{options}': {options!r} is not understood; allowed: {cls.forms}")
        return cls(int(options)) if options else cls()

    def fit(self, scales: EpisodeProcessor) -> EpisodeTokens:
        """Return the tokenizer for episodes of other scales."""
        return EpisodeTokens(self.bins, scales)

    @property
    def spec(self) -> str:
        return f"steps:{self.bins}"

    def settings(self) -> Mapping[str, Any]:
        return {"bins": self.bins, "scales": asdict(self.scales)}

    @property
    def vocabulary(self) -> int:
        return (
            self.first_action + (self.scales.actions if self.scales.discrete else self.bins * self.scales.actions) + 1
        )

    @property
    def action_tokens(self) -> int:
        """The number of tokens of an action: one if it is discrete, else one for each of its numbers."""
        return 1 if self.scales.discrete else self.scales.actions

    @property
    def step_tokens(self) -> int:
        """The number of tokens of a step."""
        return 1 + self.scales.state_width + self.action_tokens

    def encode(self, states: NDArray[Any], actions: NDArray[Any], rewards: NDArray[Any]) -> Ids:
        """Return the ids of an episode with states [T, S], actions [T] or [T, A] and rewards [T]."""
        vectors = self.scales.action_vectors(actions)
        seen = self.encode_observation(self.scales.returns_to_go(rewards), self.scales.states(states))
        return np.concatenate([seen, self.encode_actions(vectors)], axis=1).ravel()

    def encode_observation(self, returns: NDArray[Any], states: NDArray[Any]) -> Ids:
        """Return the ids [T, 1 + S] of scaled returns to go [T] and normalised states [T, S]."""
        values = np.concatenate([returns[:, None], states / WIDEST], axis=1)
        return to_bins(values, self.bins) + self.bins * np.arange(values.shape[1])

    def encode_actions(self, actions: NDArray[Any]) -> Ids:
        """Return the ids [T, 1] or [T, A] of actions that are vectors [T, A]: with a single one, or scaled."""
        if self.scales.discrete:
            chosen: Ids = actions.argmax(1)[:, None]
            return self.first_action + chosen
        return self.first_action + to_bins(actions, self.bins) + self.bins * np.arange(actions.shape[1])

    def action_range(self, number: int) -> slice:
        """Return the ids of a number of an action; of a discrete action, which has one token, all."""
        size = self.scales.actions if self.scales.discrete else self.bins
        return slice(self.first_action + number * size, self.first_action + (number + 1) * size)

    def action_values(self, numbers: Tensor) -> Tensor:
        """Return the middles of bins of a continuous action, from -1 to 1."""
        return (2 * numbers + 1) / self.bins - 1

    def show(self, token: int) -> str:
        number, position = divmod(token, self.bins)
        if token < self.first_action:
            return f"state {number}: {position}" if number else f"return: {position}"
        if token >= self.vocabulary - 1:
            return "boundary"
        number, position = divmod(token - self.first_action, self.bins)
        return f"action {token - self.first_action}" if self.scales.discrete else f"action {number + 1}: {position}"

    def scores(self, nats: float) -> dict[str, float]:
        return {"nats_per_token": nats, "nats_per_step": nats * self.step_tokens}

    def totals(self, ids: Ids, nats: NDArray[np.float64]) -> dict[str, tuple[float, float]]:
        """Nats of actions, given the returns, states and actions before them; and nats of whole steps."""
        chosen = ids >= self.first_action
        actions = float(chosen.sum() / self.action_tokens)
        return {
            "nats_per_action": (float(nats[chosen].sum()), actions),
            "nats_per_step": (float(nats.sum()), len(ids) / self.step_tokens),
        }


UNFITTED: Mapping[str, Any] = {
    **{"state_mean": (0.0,), "state_std": (1.0,), "actions": 2, "discrete": True},
    **{"return_scale": 1.0, "longest": 1, "best": 1.0, "mean": 1.0},
}
"""The scales of a tokenizer that was made from a spec, before it is fitted."""


def to_bins(values: NDArray[Any], bins: int) -> Ids:
    """Return the number of the bin of each value from -1 to 1; values outside are in the outermost bins."""
    return np.clip(np.floor((np.asarray(values, np.float64) + 1) / 2 * bins), 0, bins - 1).astype(np.int64)
