"""Actors act in environments: they choose actions step by step, so as to reach a return that is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.data.readers.cart_pole import BUILTIN as CART_POLE
from lmlab.data.readers.cart_pole import CartPole
from lmlab.data.readers.robot_world import NAME as WORLD
from lmlab.tokenizers.processors.episode_scaling import EpisodeProcessor

LONGEST_FILM = 1000
"""Frames of a film, at most."""


class Played(NamedTuple):
    """An episode that was acted."""

    rewards: list[float]
    frames: list[NDArray[np.uint8]]  # pictures [H, W, 3] of each step, where the environment draws them


class Acts(Protocol):
    """What chooses actions: a model (`ChoosesActions`), or one that predicts episodes as tokens (token_actor.py)."""

    @property
    def device(self) -> torch.device: ...

    def start(self, batch_size: int) -> Any: ...

    def step(
        self, states: Tensor, history: Any, *, returns: Tensor, actions: Tensor | None = None
    ) -> tuple[Tensor, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Actor:
    """A model that chooses actions, with the scales of the episodes that it has learnt from."""

    model: Acts
    processor: EpisodeProcessor

    def play(self, environment: Any, *, target: float, seed: int | None = None) -> Played:
        """Act one episode in a gymnasium environment; `target` is the return that is asked for.

        After each step the reward is subtracted from what is still asked for (Chen et al. 2021, algorithm 1).
        """
        scales, device = self.processor, self.model.device
        observed, _ = environment.reset(seed=seed)
        history, before = self.model.start(1), None
        rewards: list[float] = []
        frames: list[NDArray[np.uint8]] = []
        remaining, ended = target, False
        with torch.inference_mode():
            while not ended:
                if environment.render_mode == "rgb_array" and len(frames) < LONGEST_FILM:
                    frames.append(np.asarray(environment.render(), np.uint8))
                state = torch.from_numpy(scales.states(np.asarray(observed, np.float64).reshape(1, -1))).to(device)
                asked = torch.tensor([remaining / scales.return_scale], dtype=torch.float32, device=device)
                found, history = self.model.step(state, history, returns=asked, actions=before)
                action = scales.decode_action(found[0].float().cpu().numpy())
                before = torch.from_numpy(scales.action_vectors(np.asarray(action))[None]).to(device)
                observed, reward, terminated, truncated, _ = environment.step(action)
                rewards.append(float(reward))
                remaining, ended = remaining - float(reward), bool(terminated or truncated)
        return Played(rewards, frames)

    def play_all(
        self,
        environment: Any,
        *,
        targets: Sequence[float],
        episodes: int,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[float, list[Played]]:
        """Act `episodes` episodes for each return that is asked for; episode k begins with the seed `seed` + k."""
        played: dict[float, list[Played]] = {target: [] for target in targets}
        for number in range(episodes * len(played)):
            target = list(played)[number // episodes]
            played[target].append(self.play(environment, target=target, seed=seed + number % episodes))
            if progress is not None:
                progress(number + 1, episodes * len(played))
        return played


def _make(name: str, render_mode: str | None) -> Any:
    if name == CART_POLE:
        return CartPole(render_mode=render_mode)
    if name.startswith("builtin:"):
        raise ValueError(f"environment {name!r} is not built in: {CART_POLE}, or {WORLD} for runs of policy")
    try:
        import gymnasium
    except ImportError:
        raise ValueError(
            f"{name} needs gymnasium: pip install 'lmlab[rl]'; {CART_POLE} is the pole on a cart without it"
        ) from None
    if render_mode is not None:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # films are drawn in memory, and need no screen
    try:
        return gymnasium.make(name, render_mode=render_mode)
    except (gymnasium.error.Error, ModuleNotFoundError, ImportError) as error:
        raise ValueError(f"environment {name!r} cannot be opened: {str(error).splitlines()[0]}") from None


def open_environment(name: str, processor: EpisodeProcessor, *, film: bool = False) -> Any:
    """Open an environment of gymnasium, or the built-in one.

    A ValueError if it is unknown, or if its states or actions are of other sizes than those of the run.
    """
    environment = _make(name, "rgb_array" if film else None)
    shape = environment.observation_space.shape
    if shape is None or int(np.prod(shape)) != processor.state_width:
        environment.close()
        raise ValueError(
            f"{name} has states of shape {shape}, and this run has learnt states of {processor.state_width} numbers; "
            "choose the environment of its episodes"
        )
    space = environment.action_space
    count = getattr(space, "n", None)
    size = count if processor.discrete else None if space.shape is None else int(np.prod(space.shape))
    if (count is not None) != processor.discrete or size != processor.actions:
        environment.close()
        learnt = f"{processor.actions} {'discrete actions' if processor.discrete else 'continuous numbers'}"
        raise ValueError(f"{name} has the actions {space}, and this run has learnt {learnt}")
    return environment


def write_film(frames: Sequence[NDArray[np.uint8]], path: Path, *, frames_per_second: int = 30) -> None:
    """Write pictures as an animated GIF."""
    try:
        from PIL import Image
    except ImportError:
        raise ValueError("films need Pillow: pip install 'lmlab[rl]'") from None
    enlarged = max(1, 240 // frames[0].shape[0])
    pictures = [Image.fromarray(frame.repeat(enlarged, 0).repeat(enlarged, 1)) for frame in frames]
    milliseconds = max(20, round(1000 / frames_per_second))
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=milliseconds, loop=0)
