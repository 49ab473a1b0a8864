"""The vectors of a picture's regions: given ones, the pixels of boxes, or those of a grid of patches.

Shapes: R regions, F width of a region's vector, H height, W width, C channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.media import Picture, Regions

if TYPE_CHECKING:
    from lmlab.tokenizers.processors.pictures import PictureProcessor

MOST = 100
"""Regions of a picture, at most."""
SIDE = 8
"""Pixels of a side to which a region without a vector is resized."""
GRID = 6
"""Rows and columns of patches, where a picture has no regions: 36, as many as VisualBERT reads."""


class RegionVectors(NamedTuple):
    """Regions as a model reads them."""

    vectors: NDArray[np.float32]  # [R, F]
    boxes: NDArray[np.float32]  # [R, 4], left, top, right, bottom as fractions of the picture


def width_of(regions: Regions | None, shape: tuple[int, int, int]) -> int:
    """F, for a picture of this shape [H, W, C]."""
    return SIDE * SIDE * shape[2] if regions is None or regions.features is None else regions.features.shape[1]


def make_vectors(picture: Picture, processor: PictureProcessor) -> RegionVectors:
    """The regions of a picture; their vectors are those that are given with it, else pixels of their boxes.

    A picture in which nothing was found is one region, without a vector if the others are given: all zeros.
    """
    regions = picture.regions
    boxes = grid_boxes(GRID) if regions is None else np.array(regions.boxes, np.float32)
    boxes = boxes if len(boxes) else grid_boxes(1)
    if regions is not None and regions.features is not None:
        found = np.array(regions.features, np.float32)
        return RegionVectors(found if len(found) else np.zeros((1, found.shape[1]), np.float32), boxes)
    crops = processor.normalise(crop(picture.pixels, boxes, SIDE)).numpy()
    return RegionVectors(crops.reshape(len(boxes), -1), boxes)


def grid_boxes(count: int) -> NDArray[np.float32]:
    """The boxes of `count` × `count` equal patches, row by row."""
    edges = np.linspace(0, 1, count + 1, dtype=np.float32)
    top, left = (each.flatten() for each in np.meshgrid(np.arange(count), np.arange(count), indexing="ij"))
    return np.stack([edges[left], edges[top], edges[left + 1], edges[top + 1]], axis=1)


def crop(pixels: NDArray[np.uint8], boxes: NDArray[np.float32], side: int) -> NDArray[np.uint8]:
    """The pixels [H, W, C] inside of boxes [R, 4], each resized to [side, side, C] by bilinear interpolation."""
    height, width = pixels.shape[:2]
    steps = (np.arange(side) + 0.5) / side
    columns = (boxes[:, :1] + steps * (boxes[:, 2:3] - boxes[:, :1])) * width - 0.5  # [R, side]
    rows = (boxes[:, 1:2] + steps * (boxes[:, 3:] - boxes[:, 1:2])) * height - 0.5
    (left, right, across), (above, below, down) = _neighbours(columns, width), _neighbours(rows, height)

    def read(row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.float64]:
        return pixels[row[:, :, None], column[:, None, :]].astype(np.float64)  # [R, side, side, C]

    across, down = across[:, None, :, None], down[:, :, None, None]
    upper = read(above, left) * (1 - across) + read(above, right) * across
    lower = read(below, left) * (1 - across) + read(below, right) * across
    mixed: NDArray[np.uint8] = np.rint(upper * (1 - down) + lower * down).astype(np.uint8)
    return mixed


def _neighbours(
    at: NDArray[np.floating], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.floating]]:
    """The pixels before and after each point, and how far it is from the first to the second."""
    at = np.clip(at, 0, size - 1)
    first = np.floor(at).astype(np.int64)
    return first, np.minimum(first + 1, size - 1), at - first


def check_regions(regions: Regions, *, where: str) -> Regions:
    """Regions that a model can read; a ValueError names the place where there are too many, or bad boxes."""
    boxes = regions.boxes
    if len(boxes) > MOST:
        raise ValueError(f"{where}: {len(boxes)} regions; give at most {MOST}, the largest or the most certain ones")
    if (boxes < 0).any() or (boxes > 1).any() or (boxes[:, 2:] < boxes[:, :2]).any():
        raise ValueError(
            f"{where}: a box is left, top, right, bottom as fractions of the picture, from 0 to 1: left ≤ right, "
            "top ≤ bottom"
        )
    return regions
