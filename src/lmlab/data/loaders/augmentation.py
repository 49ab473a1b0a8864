"""Augmentation: random changes of training pictures that do not change their class. All pictures of a batch at once.

The random numbers are those of the batch's number, so a resumed run sees the same pictures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Augmentation(NamedTuple):
    """How much pictures are changed."""

    crop: int = 0  # shift by up to this many pixels in each direction
    flip: bool = False  # mirror half of the pictures
    colour: float = 0.0  # change brightness and contrast by up to this fraction

    @property
    def changes(self) -> bool:
        """Whether anything is changed."""
        return bool(self.crop or self.flip or self.colour)


def augment(pixels: NDArray[np.uint8], options: Augmentation, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Pixels [B, H, W, C], each picture changed in its own way."""
    if options.crop:
        pixels = shift(pixels, options.crop, generator)
    if options.flip:
        mirrored = generator.random(len(pixels)) < 0.5
        pixels = np.where(mirrored[:, None, None, None], pixels[:, :, ::-1], pixels)
    if options.colour:
        pixels = change_colours(pixels, options.colour, generator)
    return pixels


def shift(pixels: NDArray[np.uint8], most: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Each picture shifted by up to `most` pixels; its edge is repeated where nothing is left."""
    count, height, width, _ = pixels.shape
    padded = np.pad(pixels, ((0, 0), (most, most), (most, most), (0, 0)), mode="edge")
    down, right = generator.integers(0, 2 * most + 1, (2, count))
    rows = down[:, None] + np.arange(height)  # [B, H]
    columns = right[:, None] + np.arange(width)  # [B, W]
    shifted: NDArray[np.uint8] = padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return shifted


def change_colours(pixels: NDArray[np.uint8], most: float, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Brightness and contrast of each picture multiplied by factors from 1 − most to 1 + most."""
    brightness, contrast = generator.uniform(1 - most, 1 + most, (2, len(pixels), 1, 1, 1)).astype(np.float32)
    values = pixels.astype(np.float32) * brightness
    mean = values.mean(axis=(1, 2, 3), keepdims=True)
    changed: NDArray[np.uint8] = np.clip((values - mean) * contrast + mean, 0, 255).round().astype(np.uint8)
    return changed
