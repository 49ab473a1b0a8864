"""Built-in episodes: a pole on a cart, kept upright by controllers from poor to good.

The dynamics are those of Barto, Sutton and Anderson 1983 with the constants of gymnasium's CartPole-v1: the agent
pushes the cart left (0) or right (1), gets a reward of 1 for each step, and fails when the pole leans by more than 12
degrees or the cart leaves the track. An episode has at most 500 steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

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
