"""A grid of small pictures in one PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmlab.files import write_bytes
from lmlab.pages.figures.pictures import encode_png

PixelArray = NDArray[np.uint8]
GAP = 2
"""Pixels between two pictures, before they are enlarged."""
PAPER = 255
SHORTEST = 84
"""The least height of an enlarged picture in pixels."""


def join_grid(rows: Sequence[Sequence[PixelArray]], *, scale: int | None = None) -> PixelArray:
    """Return pictures [H, W, C] of one size as one picture; each pixel becomes a square of `scale` pixels."""
    height, width, channels = rows[0][0].shape
    columns = max(map(len, rows))
    shape = (len(rows) * (height + GAP) + GAP, columns * (width + GAP) + GAP, channels)
    grid = np.full(shape, PAPER, np.uint8)
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            top, left = GAP + row * (height + GAP), GAP + column * (width + GAP)
            grid[top : top + height, left : left + width] = picture
    times = scale or max(1, -(-SHORTEST // height))
    return grid.repeat(times, axis=0).repeat(times, axis=1)


def save_grid(rows: Sequence[Sequence[PixelArray]], path: Path, *, scale: int | None = None) -> None:
    """Write a grid of pictures as a PNG file."""
    write_bytes(path, encode_png(join_grid(rows, scale=scale)))
