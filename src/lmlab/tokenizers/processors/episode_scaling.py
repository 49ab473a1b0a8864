"""Episodes as the inputs of a model: states normalised, returns scaled, actions as vectors."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lmlab.files import write_text

MOST_ACTIONS = 10_000
LEAST_STD = 1e-6


@dataclass(frozen=True, kw_only=True)
class EpisodeProcessor:
    """The scales of the episodes that a run has learnt from."""

    kind: ClassVar[str] = "episodes"
    item: ClassVar[str] = "episode"

    state_mean: Sequence[float]
    state_std: Sequence[float]
    actions: int
    """How many discrete actions there are, or how many numbers a continuous action has."""
    discrete: bool
    action_low: Sequence[float] = ()
    """The smallest of each number of a continuous action; these are scaled to -1 … 1."""
    action_high: Sequence[float] = ()
    return_scale: float
    """Returns are divided by this number."""
    longest: int
    """The most steps of an episode."""
    best: float
    """The largest return of the training episodes."""
    mean: float
    """The mean return of the training episodes."""

    def __post_init__(self) -> None:
        numbers = [*self.state_mean, *self.state_std, *self.action_low, *self.action_high, self.best, self.mean]
        if not all(isinstance(each, (int, float)) and math.isfinite(each) for each in numbers):
            raise ValueError("the scales of episodes must be finite numbers")
        if not self.state_mean or len(self.state_mean) != len(self.state_std):
            raise ValueError("state_mean and state_std need one number each for each number of a state")
        if not 1 <= self.actions <= MOST_ACTIONS or not self.return_scale > 0 or self.longest < 1:
            raise ValueError("actions, return_scale and longest of episodes must be above 0")
        if not self.discrete and not len(self.action_low) == len(self.action_high) == self.actions:
            raise ValueError("action_low and action_high need one number each for each number of an action")

    @property
    def state_width(self) -> int:
        """The numbers of a state."""
        return len(self.state_mean)

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of all settings."""
        return hashlib.sha256(json.dumps([self.kind, 1, asdict(self)]).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write `processor.json`."""
        write_text(path, json.dumps({"kind": self.kind, **asdict(self)}, indent=2) + "\n")

    def states(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """States [..., S] with mean 0 and standard deviation 1."""
        mean, std = np.array(self.state_mean, np.float32), np.array(self.state_std, np.float32)
        scaled: NDArray[np.float32] = ((states - mean) / std).astype(np.float32)
        return scaled

    def returns_to_go(self, rewards: NDArray[Any]) -> NDArray[np.float64]:
        """The return from each step to the end of an episode with rewards [T], divided by the scale of returns."""
        returns: NDArray[np.float64] = np.cumsum(np.asarray(rewards, np.float64)[::-1])[::-1] / self.return_scale
        return returns

    def action_vectors(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Discrete actions [...] as vectors with a single one [..., A]; continuous ones [..., A] scaled to -1 … 1."""
        if self.discrete:
            ones: NDArray[np.float32] = np.eye(self.actions, dtype=np.float32)[actions]
            return ones
        low, high = np.array(self.action_low, np.float32), np.array(self.action_high, np.float32)
        scaled: NDArray[np.float32] = (2 * (actions - low) / np.maximum(high - low, LEAST_STD) - 1).astype(np.float32)
        return scaled

    def decode_action(self, scores: NDArray[Any]) -> Any:
        """The action of a model's scores [A]: the best discrete one, or the vector in its own scale."""
        if self.discrete:
            return int(scores.argmax())
        low, high = np.array(self.action_low, np.float32), np.array(self.action_high, np.float32)
        return (low + (np.clip(scores, -1, 1) + 1) / 2 * (high - low)).astype(np.float32)
