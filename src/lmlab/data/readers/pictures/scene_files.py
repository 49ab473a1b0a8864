"""The built-in scenes as data sets: with captions (`builtin:scenes`), questions, or true and false sentences."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.pictures.scene_texts import ask, state
from lmlab.data.readers.pictures.scenes import PARTS, VERSION, Part, Scene, describe, make_scene, paint, part_of
from lmlab.data.readers.pictures.sources import LazyRows, PictureFiles, PictureRow, Regions

SIDE = 64
"""Pixels of a side."""
COUNTS: dict[Part, int] = {"train": 5000, "valid": 500, "test": 500, "unseen": 500}
ASKED: dict[Part, int] = {**COUNTS, "train": 10_000}
"""Scenes with questions: an answer says less about a picture than a caption does."""


@dataclass(frozen=True)
class SceneSource:
    """The picture of a scene, which is painted when it is read."""

    part: Part
    index: int

    @property
    def name(self) -> str:
        return f"builtin:scenes/{self.part}/{self.index}"

    def digest(self) -> str:
        return hashlib.sha256(f"{VERSION} {SIDE} {self.name}".encode()).hexdigest()

    def size(self) -> tuple[int, int, int]:
        return SIDE, SIDE, 3

    def read(self) -> NDArray[np.uint8]:
        return paint(make_scene(self.part, self.index), SIDE)


@lru_cache
def find_scenes(name: str) -> PictureFiles:
    """Return the rows of a built-in data set: `scenes`, `scenes-unseen`, `scene-questions` or `scene-sentences`."""
    if name == "scenes-unseen":
        rows = LazyRows(partial(_rows, "unseen", _caption, COUNTS))
        return PictureFiles(train=rows, format="built-in scenes with unseen pairs")
    make = {"scenes": _caption, "scene-questions": _question, "scene-sentences": _sentence}[name]
    counts = ASKED if name == "scene-questions" else COUNTS
    train, valid, test = (LazyRows(partial(_rows, part, make, counts)) for part in PARTS[:3])
    return PictureFiles(train=train, valid=valid, test=test, format="built-in scenes")


def _rows(
    part: Part, make: Callable[[Scene, PictureRow], list[PictureRow]], counts: dict[Part, int]
) -> list[PictureRow]:
    rows: list[PictureRow] = []
    for index in range(counts[part]):
        source, scene = SceneSource(part, index), make_scene(part, index)
        boxes = np.array([thing.box for thing in scene.things], np.float32)
        regions = Regions(boxes, tuple(thing.label for thing in scene.things))
        rows += make(scene, PictureRow(source, regions=regions, where=source.name))
    return rows


def _caption(scene: Scene, row: PictureRow) -> list[PictureRow]:
    return [row._replace(texts={"caption": describe(scene.things)})]


def _question(scene: Scene, row: PictureRow) -> list[PictureRow]:
    questions = ask(scene, more=part_of(scene.things) == "train")
    return [row._replace(label=each.answer, texts={"question": each.text}) for each in questions]


def _sentence(scene: Scene, row: PictureRow) -> list[PictureRow]:
    sentence = state(scene)
    return [row._replace(label="true" if sentence.true else "false", texts={"sentence": sentence.text})]
