"""Built-in pictures without a download: scenes of coloured shapes, drawn from a seed.

A scene has one to three shapes on a gray background. Scene `index` of a split is a pure function of the seed, the split
and the index, so any number of scenes is drawn in bounded memory and in any order.

The splits do not overlap in content: the caption of a scene (sizes, colours, shapes and places) decides to which of
train, valid and test it belongs, whatever the seed. The pairs of colour and shape in `UNSEEN` occur in none of these
three; each scene of the split `unseen` has at least one of them. It tests whether a system combines what it has learnt.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

VERSION = 1
"""Of the drawing: it is part of the identity of the pictures."""

Part = Literal["train", "valid", "test", "unseen"]
PARTS: tuple[Part, ...] = get_args(Part)
HELD_OUT = 10
"""One in this many captions belongs to valid, and as many to test."""

COLOURS = {
    "red": (214, 45, 45),
    "green": (50, 170, 70),
    "blue": (60, 100, 225),
    "yellow": (235, 210, 60),
    "purple": (150, 70, 190),
    "orange": (240, 135, 40),
}
SIZES = {"small": 0.11, "large": 0.18}
"""Radius as a fraction of the picture's width."""
COUNTS = (0.2, 0.4, 0.4)
"""The probabilities of one, two and three shapes."""
UNSEEN = frozenset({("yellow", "square"), ("blue", "star"), ("green", "triangle"), ("purple", "cross")})
"""Pairs of colour and shape that only the split `unseen` has."""

GAP = 0.03
"""The least distance between two shapes, and from the edge."""
CLEAR = 0.12
"""The least difference between two centres in the direction that a text names."""
SAMPLES = 4
"""Samples of a pixel in each direction: edges are smooth."""
BACKGROUND = (25, 95)
"""The gray of the background."""
NOISE = 10.0
"""The largest standard deviation of the noise on the background."""
TINT = 14
"""The most by which a shape differs from its colour, in each channel."""

TRIES = 40
"""Places are sampled this many times before other shapes are."""

Look = tuple[str, str, str]
"""Size, colour and shape."""
Grid = NDArray[np.float64]
"""Coordinates of points in units of a shape's radius; the centre is 0, and v grows downwards."""


class Thing(NamedTuple):
    """One shape of a scene; lengths are fractions of the picture's width."""

    shape: str
    colour: str
    size: str
    x: float
    y: float  # from the top
    radius: float

    @property
    def label(self) -> str:
        """Size, colour and shape: `small red circle`; no two things of a scene have the same."""
        return f"{self.size} {self.colour} {self.shape}"

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom."""
        return self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius


class Scene(NamedTuple):
    """Shapes from left to right, and what the rest of the picture and the questions are drawn from."""

    things: tuple[Thing, ...]
    seed: tuple[int, ...]


def _circle(u: Grid, v: Grid) -> NDArray[np.bool_]:
    return u**2 + v**2 <= 0.95


def _square(u: Grid, v: Grid) -> NDArray[np.bool_]:
    return np.maximum(abs(u), abs(v)) <= 0.85


def _triangle(u: Grid, v: Grid) -> NDArray[np.bool_]:
    return (v <= 0.8) & (abs(u) <= 0.55 * (v + 1.0))


def _star(u: Grid, v: Grid) -> NDArray[np.bool_]:
    """Five points: the angle is folded into one of ten equal sectors, in which the edge is one line."""
    angle = np.abs((np.arctan2(u, -v) + np.pi / 5) % (2 * np.pi / 5) - np.pi / 5)
    x, y = np.hypot(u, v) * np.cos(angle), np.hypot(u, v) * np.sin(angle)
    inner = 0.45 * np.array([np.cos(np.pi / 5), np.sin(np.pi / 5)])
    inside: NDArray[np.bool_] = y * (1.0 - inner[0]) <= inner[1] * (1.0 - x)
    return inside


def _cross(u: Grid, v: Grid) -> NDArray[np.bool_]:
    return (np.minimum(abs(u), abs(v)) <= 0.32) & (np.maximum(abs(u), abs(v)) <= 0.95)


SHAPES: dict[str, Callable[[Grid, Grid], NDArray[np.bool_]]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
}


def make_scene(part: Part, index: int, *, seed: int = 0) -> Scene:
    """Return scene number `index` of a split."""
    if part not in PARTS or index < 0 or seed < 0:
        raise ValueError(f"scene {index} of {part!r} with the seed {seed}: give 0 or more, of {', '.join(PARTS)}")
    source = (seed, PARTS.index(part), index)
    rng = np.random.default_rng([VERSION, *source])
    count = int(np.searchsorted(np.cumsum(COUNTS), rng.random())) + 1
    while True:
        looks = {_sample_look(rng, unseen=part == "unseen" and number == 0) for number in range(count)}
        if len(looks) < count:
            continue
        for _ in range(TRIES):
            things = _place(sorted(looks), rng)
            if things is not None and part_of(things) == part:
                return Scene(things, source)


def part_of(things: tuple[Thing, ...]) -> Part:
    """Return the split that these shapes belong to, by their caption alone."""
    if any((thing.colour, thing.shape) in UNSEEN for thing in things):
        return "unseen"
    digest = hashlib.sha256(describe(things).encode()).digest()
    position = int.from_bytes(digest[:4], "big") % HELD_OUT
    return "test" if position == 0 else "valid" if position == 1 else "train"


def _place(looks: list[Look], rng: np.random.Generator) -> tuple[Thing, ...] | None:
    """Return shapes from left to right at sampled places; None if they touch or a caption cannot name the places."""
    things: list[Thing] = []
    for (size, colour, shape), (across, down, scale) in zip(looks, rng.random((len(looks), 3)).tolist(), strict=True):
        radius = SIZES[size] * (0.93 + 0.14 * scale)
        edge = radius + GAP
        x, y = edge + across * (1 - 2 * edge), edge + down * (1 - 2 * edge)
        things.append(Thing(shape, colour, size, x, y, radius))
    things.sort(key=lambda thing: thing.x)
    return tuple(things) if _is_clear(things) else None


def _sample_look(rng: np.random.Generator, *, unseen: bool) -> Look:
    pairs = sorted(UNSEEN) if unseen else [(colour, shape) for colour in COLOURS for shape in SHAPES]
    colour, shape = pairs[int(rng.integers(len(pairs)))]
    return list(SIZES)[int(rng.integers(len(SIZES)))], colour, shape


def _is_clear(things: list[Thing]) -> bool:
    """Whether shapes do not touch, and are at places that have a name without doubt."""
    for number, one in enumerate(things):
        for two in things[number + 1 :]:
            if math.hypot(one.x - two.x, one.y - two.y) < one.radius + two.radius + GAP:
                return False
    if len(things) == 1:
        return all(min(abs(at - 1 / 3), abs(at - 2 / 3)) >= CLEAR / 3 for at in (things[0].x, things[0].y))
    across, down = abs(things[0].x - things[1].x), abs(things[0].y - things[1].y)
    if len(things) == 2:
        return abs(across - down) >= CLEAR
    return all(two.x - one.x >= CLEAR for one, two in pairwise(things))


def describe(things: tuple[Thing, ...]) -> str:
    """Return the caption of shapes that are sorted from left to right: every scene has exactly one.

    One shape has a place; of two, the left or upper one comes first; three are listed from left to right.
    """
    first, *others = (f"a {thing.label}" for thing in things)
    if not others:
        return f"{first} {_name_place(things[0])}"
    if len(others) == 2:
        return f"{first}, {others[0]} and {others[1]}"
    one, two = things
    if abs(one.x - two.x) > abs(one.y - two.y):
        return f"{first} left of {others[0]}"
    upper, lower = sorted(things, key=lambda thing: thing.y)
    return f"a {upper.label} above a {lower.label}"


def _name_place(thing: Thing) -> str:
    across = ("left", "", "right")[int(3 * thing.x)]
    down = ("top", "", "bottom")[int(3 * thing.y)]
    return f"at the {down} {across}".replace("  ", " ").strip() if across or down else "in the centre"


def paint(scene: Scene, size: int) -> NDArray[np.uint8]:
    """Return the picture of a scene, [size, size, 3]."""
    rng = np.random.default_rng([VERSION, *scene.seed, 1])
    gray, noise = rng.uniform(*BACKGROUND), rng.uniform(0, NOISE)
    picture = gray + noise * rng.standard_normal((size, size, 1)) + np.zeros(3)
    for thing in scene.things:
        colour = np.array(COLOURS[thing.colour]) + rng.uniform(-TINT, TINT, 3)
        left, top, right, bottom = (int(np.clip(edge * size, 0, size)) for edge in thing.box)
        rows, columns = slice(top, bottom + 1), slice(left, right + 1)
        covered = _cover(thing, rows, columns, size)
        picture[rows, columns] += covered[..., None] * (colour - picture[rows, columns])
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def _cover(thing: Thing, rows: slice, columns: slice, size: int) -> Grid:
    """Return the fraction of each pixel that a shape covers, by samples on a finer grid."""
    radius = thing.radius * size

    def points(pixels: slice, centre: float) -> Grid:
        stop = min(pixels.stop, size)
        fine = np.arange(pixels.start * SAMPLES, stop * SAMPLES) / SAMPLES + 0.5 / SAMPLES
        return (fine - centre * size) / radius

    u, v = points(columns, thing.x)[None, :], points(rows, thing.y)[:, None]
    inside = SHAPES[thing.shape](*np.broadcast_arrays(u, v))
    height, width = inside.shape
    covered: Grid = inside.reshape(height // SAMPLES, SAMPLES, width // SAMPLES, SAMPLES).mean((1, 3))
    return covered
