"""Pictures as tokens: each pixel is one of a few grey levels or colours, row by row from the top left.

A model that predicts the next token then generates pictures pixel by pixel (van den Oord et al. 2016, "Pixel recurrent
neural networks"; Parmar et al. 2018, "Image Transformer"). Grey levels are equally spaced. Colours are a palette, which
k-means finds in the training pictures, as in Image GPT (Chen et al. 2020). Shapes: H height, W width, C channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lmlab.tokenizers.processors.pictures import LUMA, PictureProcessor, PixelArray
from lmlab.tokenizers.processors.sequences import SequenceTokenizer

LEVELS = 16
MOST_LEVELS = 1024
GREYS = 256
LARGEST = 32
"""Pixels of a side, at most, where the data name no size: the sequences of larger pictures are very long."""
SAMPLED = 1 << 16
"""Training pixels from which a palette is made, at most."""
ROUNDS = 20
"""Iterations of k-means."""


class Pixels(SequenceTokenizer):
    """Encodes pictures of one size as the numbers of their grey levels or colours."""

    kind: ClassVar[str] = "pixels"
    reads: ClassVar[str] = "images"
    unit: ClassVar[str] = "pixel"
    item: ClassVar[str] = "picture"
    forms: ClassVar[str] = "pixels, pixels:16 (the number of grey levels or colours)"
    commands: ClassVar[tuple[str, ...]] = (
        "lmlab draw {run} -o samples.png",
        "lmlab draw {run} --held-out -o completions.png",
    )

    def __init__(
        self,
        levels: int = LEVELS,
        pictures: PictureProcessor | Mapping[str, Any] | None = None,
        palette: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`pictures` gives the size; `palette` [levels, C] is needed for colour, and made by `fit`."""
        if not isinstance(levels, int) or not 2 <= levels <= MOST_LEVELS:
            raise ValueError(f"pixels:{levels}: give 2 to {MOST_LEVELS} grey levels or colours")
        size = {"height": 28, "width": 28, "channels": 1} if pictures is None else pictures
        self.pictures = size if isinstance(size, PictureProcessor) else PictureProcessor.from_settings(size)
        self.levels = levels
        self.palette = spread_greys(levels) if palette is None else np.array(palette, np.uint8)
        if self.palette.ndim != 2 or self.palette.shape[1] != self.pictures.channels or len(self.palette) > levels:
            raise ValueError(f"a palette of shape {self.palette.shape} does not fit {self.pictures.channels} channels")
        self._numbers = nearest(np.arange(GREYS)[:, None], self.palette) if self.pictures.channels == 1 else None

    @classmethod
    def from_spec(cls, options: str) -> Self:
        if options and not options.isdecimal():
            raise ValueError(f"tokenizer 'pixels:{options}': {options!r} is not understood; allowed: {cls.forms}")
        return cls(int(options)) if options else cls()

    def fit(self, pictures: PictureProcessor, pixels: PixelArray) -> Pixels:
        """Return the tokenizer for pictures of another size; a palette is made from training pictures [N, H, W, C]."""
        if pictures.channels == 1:
            return Pixels(self.levels, pictures)
        return Pixels(self.levels, pictures, make_palette(pixels, self.levels).tolist())

    @property
    def spec(self) -> str:
        return f"pixels:{self.levels}"

    def settings(self) -> Mapping[str, Any]:
        return {
            "levels": self.levels,
            "pictures": self.pictures.model_dump(),
            "palette": None if self.pictures.channels == 1 else self.palette.tolist(),
        }

    @property
    def vocabulary(self) -> int:
        return len(self.palette) + 1

    @property
    def length(self) -> int:
        return self.pictures.height * self.pictures.width

    def encode(self, picture: PixelArray) -> NDArray[np.int64]:
        """Return the ids [H·W] of a picture [h, w, c] of any size, without boundaries."""
        pixels = picture if picture.shape == self.pictures.shape else self.pictures.process(picture)
        if self._numbers is not None:
            return self._numbers[pixels.ravel()]
        colours, position = np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0, return_inverse=True)
        return nearest(colours, self.palette)[position.ravel()]

    def decode(self, ids: Iterable[int]) -> PixelArray:
        """Return the picture [H, W, C] of ids; pixels that are missing have the background's grey."""
        found = np.array([token for token in map(int, ids) if token < self.boundary][: self.length], np.int64)
        pixels = np.full((self.length, self.pictures.channels), self.pictures.background, np.uint8)
        pixels[: len(found)] = self.palette[found]
        return pixels.reshape(self.pictures.shape)

    @property
    def size_in_words(self) -> str:
        """The size and the number of levels of the pictures."""
        height, width, channels = self.pictures.shape
        return f"{height} × {width} pixels, {len(self.palette)} {'grey levels' if channels == 1 else 'colours'}"

    def show(self, token: int) -> str:
        if token >= self.boundary:
            return "boundary"
        colour = self.palette[token].tolist()
        return f"grey {colour[0]}" if len(colour) == 1 else "#" + "".join(f"{value:02x}" for value in colour)

    def scores(self, nats: float) -> dict[str, float]:
        """Bits per dimension: −log₂ P(picture) / (H·W), of the picture in its grey levels or colours."""
        return {"bits_per_dimension": nats / math.log(2)}


def spread_greys(levels: int) -> PixelArray:
    """Return equally spaced grey levels from black to white, [levels, 1]."""
    if levels > GREYS:
        raise ValueError(f"pixels:{levels}: there are {GREYS} grey levels; give at most as many")
    return np.round(np.linspace(0, 255, levels)).astype(np.uint8)[:, None]


def nearest(colours: NDArray[Any], palette: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of the nearest colour of a palette [P, C] for each of the colours [N, C]."""
    found = np.empty(len(colours), np.int64)
    for start in range(0, len(colours), 4096):
        part = colours[start : start + 4096].astype(np.float64)
        found[start : start + 4096] = ((part[:, None] - palette.astype(np.float64)) ** 2).sum(-1).argmin(1)
    return found


def make_palette(pixels: PixelArray, levels: int) -> PixelArray:
    """Return at most `levels` colours [P, C] that are near the colours of pictures [N, H, W, C], dark ones first.

    If the sampled pixels have no more colours than that, these are the palette. Otherwise k-means finds it.
    """
    pictures = max(1, SAMPLED // int(np.prod(pixels.shape[1:3])))
    chosen = pixels[np.unique(np.linspace(0, len(pixels) - 1, min(len(pixels), pictures)).astype(np.int64))]
    colours, counts = np.unique(chosen.reshape(-1, pixels.shape[3]), axis=0, return_counts=True)
    centres = colours.astype(np.float64)
    if len(centres) > levels:
        centres = _cluster(centres, counts, levels)
    order = np.lexsort((*centres.T, centres @ np.array(LUMA)))
    return np.ascontiguousarray(centres[order], np.uint8)


def _cluster(colours: NDArray[np.float64], counts: NDArray[np.int64], levels: int) -> NDArray[np.float64]:
    """Return the different centres of k-means, rounded; the first centres are far from each other (k-means++)."""
    generator = np.random.default_rng(0)
    centres = colours[[int(counts.argmax())]]
    distance = np.full(len(colours), np.inf)
    while len(centres) < levels:
        distance = np.minimum(distance, ((colours - centres[-1]) ** 2).sum(1))
        weights = distance * counts
        if not weights.any():
            break
        centres = np.vstack([centres, colours[generator.choice(len(colours), p=weights / weights.sum())]])
    for _ in range(ROUNDS):
        own = nearest(colours, centres)
        sizes = np.bincount(own, counts, minlength=len(centres))
        sums = np.stack([np.bincount(own, counts * part, minlength=len(centres)) for part in colours.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return np.unique(np.round(centres), axis=0)
