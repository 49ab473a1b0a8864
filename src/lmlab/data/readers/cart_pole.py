"""Built-in episodes: a pole on a cart, kept upright by controllers from poor to good.

The dynamics are those of Barto, Sutton and Anderson 1983 with the constants of gymnasium's CartPole-v1: the agent
pushes the cart left (0) or right (1), gets a reward of 1 for each step, and fails when the pole leans by more than 12
degrees or the cart leaves the track. An episode has at most 500 steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.media import Episode

BUILTIN = "builtin:cart-pole"
EPISODES = 240
STEPS = 500
GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
LARGEST_ANGLE, LARGEST_POSITION = 12 * 2 * math.pi / 360, 2.4
BALANCE = np.array([0.2, 0.4, 8.0, 1.5])
"""Weights of position, speed, angle and angular speed of a controller that keeps the pole up."""


def move(state: NDArray[np.float64], action: int) -> NDArray[np.float64]:
    """Return the next position, speed, angle and angular speed, 0.02 seconds later (Euler's method)."""
    position, speed, angle, turning = state
    force = FORCE if action == 1 else -FORCE
    sine, cosine = math.sin(angle), math.cos(angle)
    total, moment = CART + POLE, POLE * HALF_LENGTH
    push = (force + moment * turning**2 * sine) / total
    twist = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4 / 3 - POLE * cosine**2 / total))
    change = push - moment * twist * cosine / total
    moved: NDArray[np.float64] = np.array(
        [position + SECONDS * speed, speed + SECONDS * change, angle + SECONDS * turning, turning + SECONDS * twist]
    )
    return moved


def failed(state: NDArray[np.float64]) -> bool:
    """Whether the pole fell or the cart left the track."""
    return bool(abs(state[0]) > LARGEST_POSITION or abs(state[2]) > LARGEST_ANGLE)


class Space(NamedTuple):
    """The states or actions of the environment, as gymnasium describes them."""

    shape: tuple[int, ...]
    n: int | None = None  # number of discrete actions


class CartPole:
    """The same dynamics as an environment, with the methods of gymnasium's that an actor calls."""

    observation_space, action_space = Space((4,)), Space((), 2)

    def __init__(self, *, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.state, self.steps = np.zeros(4), 0

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[np.float64], dict[str, object]]:
        """Begin an episode near the upright position; the state, and no further information."""
        self.state, self.steps = np.random.default_rng(seed).uniform(-0.05, 0.05, 4), 0
        return self.state, {}

    def step(self, action: int) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, object]]:
        """The next state, the reward, whether the pole fell, whether the time is over, and no further information."""
        self.state, self.steps = move(self.state, int(action)), self.steps + 1
        return self.state, 1.0, failed(self.state), self.steps >= STEPS, {}

    def render(self) -> NDArray[np.uint8]:
        """A picture [120, 180, 3] of the cart (dark) and the pole (orange)."""
        picture = np.full((120, 180, 3), 255, np.uint8)
        rows, columns = np.mgrid[:120, :180]
        centre = 90 + 75 * float(self.state[0]) / LARGEST_POSITION
        picture[90:92] = (150, 150, 150)
        picture[(abs(columns - centre) <= 14) & (abs(rows - 86) <= 6)] = (40, 40, 60)
        along = (columns - centre) * math.sin(self.state[2]) - (rows - 80) * math.cos(self.state[2])
        away = (columns - centre) * math.cos(self.state[2]) + (rows - 80) * math.sin(self.state[2])
        picture[(along >= 0) & (along <= 60) & (abs(away) <= 2)] = (217, 130, 43)
        return picture

    def close(self) -> None:
        """Nothing is open."""


def make_episodes(count: int = EPISODES, *, seed: int = 0) -> Iterator[Episode]:
    """Yield episodes; each controller pushes at random with its own probability, from always to never."""
    for number in range(count):
        numbers = np.random.default_rng([seed, number])
        yield run_controller(numbers, noise=1 - number / max(1, count - 1))


def run_controller(numbers: np.random.Generator, *, noise: float) -> Episode:
    """Return one episode of the balancing controller, which pushes at random with probability `noise`."""
    state = numbers.uniform(-0.05, 0.05, 4)
    states: list[NDArray[np.float64]] = []
    actions: list[int] = []
    while len(actions) < STEPS and not failed(state):
        action = int(numbers.integers(2)) if numbers.random() < noise else int(BALANCE @ state > 0)
        states.append(state)
        actions.append(action)
        state = move(state, action)
    return Episode(
        np.array(states, dtype=np.float32), np.array(actions, dtype=np.int64), np.ones(len(actions), dtype=np.float32)
    )
