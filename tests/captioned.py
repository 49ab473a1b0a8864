"""Toy captioned pictures, as a split and as files, and a tiny CLIP that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.models.clip import Clip, ClipConfig
from lmlab.objectives.contrastive import Contrastive
from lmlab.pages.figures.pictures import encode_png
from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.tokenizers.frames import Frame
from lmlab.training.learner import Learner

START, END, VOCABULARY = 28, 29, 30
FRAME = Frame(templates={"tokens": "cls a boundary"}, specials={"tokens": {"cls": START, "boundary": END}})
SETTINGS: dict[str, Any] = {
    **{"vocabulary": VOCABULARY, "window": 9, "image": [8, 12], "channels": 3, "patch": 4},
    **{"width": 16, "heads": 2, "layers": 2, "text_width": 12, "text_heads": 3, "text_layers": 3, "space": 10},
}


class Thirds:
    """A processor: pixels from 0 to 1, channels first."""

    def normalise(self, pixels: NDArray[np.uint8]) -> Tensor:
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


class ToyPictures:
    """Random pictures; each caption says how bright two of the corners are, so captions may be equal."""

    def __init__(self, size: int = 40, *, distinct: int | None = None, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.size = size
        self.pixels = generator.integers(0, 256, (distinct or size, 8, 12, 3)).astype(np.uint8)
        self.pixels[:, :4, :4] = generator.integers(0, 4, (len(self.pixels), 1, 1, 1)) * 80
        self.pixels[:, 4:, 8:] = generator.integers(0, 4, (len(self.pixels), 1, 1, 1)) * 80
        self.pictures = np.arange(size) % len(self.pixels)

    def caption(self, row: int) -> NDArray[np.int64]:
        picture = self.pixels[self.pictures[row]]
        corners = [picture[0, 0, 0] // 80, 4 + picture[7, 11, 0] // 80]
        return np.array([*corners, *[9] * (row % 3)], np.int64)


def make_objective() -> Contrastive:
    objective = Contrastive(None, None, FRAME)
    objective.process_by(Thirds())
    return objective


def make_model(**changes: Any) -> Clip:
    torch.manual_seed(0)
    return Clip(ClipConfig(**{**SETTINGS, **changes}))


def make_learner(**changes: Any) -> Learner:
    return Learner(make_model(**changes), make_objective())


COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "white": (230, 230, 230)}
SIZES = ("width=16", "heads=2", "layers=2", "text_width=16", "text_heads=2", "text_layers=1", "space=8", "patch=4")


def write_pictures(home: Path, *, colours: int = len(COLOURS), copies: int = 8) -> Iterator[tuple[str, str, str]]:
    """Write pictures with two colours, one above the other; yield the name of each, its upper and its lower colour."""
    numbers, used = np.random.default_rng(0), list(COLOURS)[:colours]
    for upper, lower in product(used, used):
        for copy in range(copies):
            pixels = numbers.integers(0, 25, (8, 8, 3)).astype(np.uint8)
            pixels[:4] += np.array(COLOURS[upper], np.uint8)
            pixels[4:] += np.array(COLOURS[lower], np.uint8)
            name = f"{upper}-{lower}-{copy}.png"
            (home / name).write_bytes(encode_png(pixels))
            yield name, upper, lower


def write_captions(home: Path, *, copies: int = 8) -> Path:
    """A table of pictures with two colours, one above the other; pictures of the same colours have one caption."""
    rows = [f"{name}\t{upper} above {lower}" for name, upper, lower in write_pictures(home, copies=copies)]
    (home / "captions.tsv").write_text("\n".join(["picture\tcaption", *rows]) + "\n")
    return home / "captions.tsv"


def caption_recipe(captions: Path, **train: Any) -> Recipe:
    """The recipe of a tiny CLIP over a table of captions."""
    model = {key: int(value) for key, value in (each.split("=") for each in SIZES)}
    settings = {"budget": "80steps", "batch": 24, "rate": 3e-3, "warmup": 5, "log_every": 10, **train}
    return make_recipe(
        {
            "data": {"text": str(captions)},
            "tokenizer": {"spec": "words"},
            "model": {"kind": "clip", **model},
            "train": settings,
        }
    )
