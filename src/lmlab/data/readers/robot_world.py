"""A built-in world for a policy: a hand over a table with coloured shapes, and commands such as "go to the red star".

A mission is a scene of scenes.py, a shape in it as the goal, and a place at which the hand begins. In each step the
hand moves by up to `REACH` to the side and up or down. An action is written as two words, one of nine equal bins for
each direction: `x8 y4` moves right as far as it can, and `x4 y4` stays. A mission is a success if the hand stays on its
goal.

Missions of train, valid and test have different scenes; those of `unseen` have a goal whose colour and shape never
occur together in the other three.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.pictures.scene_texts import ask
from lmlab.data.readers.pictures.scenes import PARTS, UNSEEN, Part, Scene, Thing, describe, make_scene, paint
from lmlab.data.readers.pictures.sources import LazyRows, PictureFiles, PictureRow

NAME = "builtin:world"
VERSION = 1
SIDE = 48
"""Pixels of a side."""
REACH = 0.15
"""The farthest move in one step, in each direction, as a fraction of the picture."""
BINS = 9
LIMIT = 16
"""Steps of an episode, at most."""
HAND = 0.05
"""Radius of the hand, which is drawn as a white ring."""
WOBBLE = 0.3
"""Standard deviation of the moves of demonstrations, in units of the reach: they visit places beside the best path."""
VERBS = ("go to", "move to", "touch")
MISSIONS: dict[Part, int] = {"train": 8000, "valid": 50, "test": 100, "unseen": 100}
WORDS: dict[Part, int] = {"train": 4000, "valid": 0, "test": 0, "unseen": 0}
"""Scenes whose captions and questions are learnt beside the actions."""


class Mission(NamedTuple):
    """A command in a scene, and where the hand begins."""

    scene: Scene
    goal: Thing
    command: str
    start: tuple[float, float]


@lru_cache(maxsize=2**14)
def make_mission(part: Part, index: int) -> Mission:
    """Return mission number `index` of a split; a pure function of both."""
    rng = np.random.default_rng([VERSION, sum(map(ord, part)), index])
    while True:
        scene = make_scene(part, int(rng.integers(1 << 30)))
        goals = [thing for thing in scene.things if part != "unseen" or (thing.colour, thing.shape) in UNSEEN]
        goal = goals[int(rng.integers(len(goals)))]
        start = tuple(rng.uniform(HAND, 1 - HAND, 2).tolist())
        if math.hypot(start[0] - goal.x, start[1] - goal.y) > 2 * goal.radius:
            break
    pairs = [(thing.colour, thing.shape) for thing in scene.things]
    size = f"{goal.size} " if pairs.count((goal.colour, goal.shape)) > 1 else ""
    verb = VERBS[int(rng.integers(len(VERBS)))]
    return Mission(scene, goal, f"{verb} the {size}{goal.colour} {goal.shape}", (start[0], start[1]))


def paint_world(scene: Scene, hand: tuple[float, float]) -> NDArray[np.uint8]:
    """Return the picture of a scene with the hand [SIDE, SIDE, 3]."""
    picture = _paint_scene(scene).copy()
    places = (np.arange(SIDE) + 0.5) / SIDE
    distance = np.hypot(places[None, :] - hand[0], places[:, None] - hand[1])
    picture[abs(distance - HAND) < 0.018] = 255
    return picture


@lru_cache(maxsize=2**13)
def _paint_scene(scene: Scene) -> NDArray[np.uint8]:
    return paint(scene, SIDE)


def best_action(mission: Mission, hand: tuple[float, float]) -> str:
    """Return the action of the expert: straight to the goal, as far as it can."""
    return write_action((mission.goal.x - hand[0]) / REACH, (mission.goal.y - hand[1]) / REACH)


def write_action(across: float, down: float) -> str:
    """Return the words of a move, from -1 to 1 in each direction."""
    bins = [round((np.clip(move, -1, 1) + 1) / 2 * (BINS - 1)) for move in (across, down)]
    return f"x{bins[0]} y{bins[1]}"


def read_action(text: str) -> tuple[float, float] | None:
    """Return the move that words stand for; None if they are no action."""
    words = text.split()
    if len(words) != 2 or any(word[:1] != letter for word, letter in zip(words, "xy", strict=True)):
        return None
    numbers = [int(word[1:]) if word[1:].isdecimal() else BINS for word in words]
    if max(numbers) >= BINS:
        return None
    return 2 * numbers[0] / (BINS - 1) - 1, 2 * numbers[1] / (BINS - 1) - 1


def move_hand(hand: tuple[float, float], move: tuple[float, float]) -> tuple[float, float]:
    """Return where the hand is after a move; it stays in the picture."""
    x, y = (float(np.clip(at + REACH * step, 0, 1)) for at, step in zip(hand, move, strict=True))
    return x, y


def is_on(thing: Thing, hand: tuple[float, float]) -> bool:
    """Whether the hand is on a shape."""
    return math.hypot(hand[0] - thing.x, hand[1] - thing.y) <= thing.radius


def demonstrate(mission: Mission, index: int) -> Iterator[tuple[tuple[float, float], str]]:
    """Yield the places of the hand and the expert's action at each; its own moves wobble."""
    rng = np.random.default_rng([VERSION, 7, index])
    hand = mission.start
    for _ in range(LIMIT):
        action = best_action(mission, hand)
        yield hand, action
        if action == write_action(0, 0):
            return
        move = read_action(action)
        assert move is not None, "an action of the expert can be read"
        wobble = np.zeros(2) if is_on(mission.goal, hand) else rng.normal(0, WOBBLE, 2)
        hand = move_hand(hand, (move[0] + wobble[0], move[1] + wobble[1]))


@dataclass(frozen=True)
class WorldSource:
    """A picture of the world, which is painted when it is read; without a hand it is the scene alone."""

    part: Part
    index: int
    hand: tuple[float, float] | None

    @property
    def name(self) -> str:
        where = "" if self.hand is None else f"/{self.hand[0]:.6f},{self.hand[1]:.6f}"
        return f"{NAME}/{self.part}/{self.index}{where}"

    def digest(self) -> str:
        return hashlib.sha256(f"{VERSION} {SIDE} {self.name}".encode()).hexdigest()

    def size(self) -> tuple[int, int, int]:
        return SIDE, SIDE, 3

    def read(self) -> NDArray[np.uint8]:
        if self.hand is None:
            return _paint_scene(make_scene(self.part, self.index)).copy()
        return paint_world(make_mission(self.part, self.index).scene, self.hand)


@lru_cache
def find_world(name: str) -> PictureFiles:
    """Return the rows of `world`, demonstrations alone, or of `world-and-words`, with captions and questions, too."""
    train, valid, test = (LazyRows(partial(_rows, part, words=name == "world-and-words")) for part in PARTS[:3])
    return PictureFiles(train=train, valid=valid, test=test, format="built-in world")


def _rows(part: Part, *, words: bool) -> list[PictureRow]:
    return _demonstrations(part) + (_words(part) if words else [])


def _demonstrations(part: Part) -> list[PictureRow]:
    rows = []
    for index in range(MISSIONS[part]):
        mission = make_mission(part, index)
        for hand, action in demonstrate(mission, index):
            source = WorldSource(part, index, hand)
            rows.append(PictureRow(source, texts={"command": mission.command, "action": action}, where=source.name))
    return rows


def _words(part: Part) -> list[PictureRow]:
    """Scenes without a hand: half of them with their caption, half with a question and its answer."""
    rows = []
    for index in range(WORDS[part]):
        scene, source = make_scene(part, index), WorldSource(part, index, None)
        texts = {"command": "describe the picture", "action": describe(scene.things)}
        if index % 2:
            questions = ask(scene)
            question = questions[index // 2 % len(questions)]
            texts = {"command": question.text, "action": question.answer}
        rows.append(PictureRow(source, texts=texts, where=source.name))
    return rows
