"""NLVR (Suhr et al. 2017): sentences that are true or false of three boxes with shapes, given as JSON.

A record has a `sentence`, a `label`, and in `structured_rep` for each box its shapes: `type`, `color`, `size`, `x_loc`
and `y_loc` in a box of 100 × 100. Each box and each shape becomes a region, whose vector says what it is, its colour,
its size, the number of its box, its place in the box, and how near it is to each wall of the box. That of a shape says
whether it is the lowest or the highest of its box, or the next; that of a box what is in it, as the vector that a
detector gives a large region would: how many shapes, and how many of each kind, colour and size. There are no pixels: a
model reads the regions alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.tables import ParsedTable
from lmlab.data.readers.media import Regions
from lmlab.data.readers.pictures.regions import check_regions
from lmlab.data.readers.pictures.sources import PictureRow, RegionSource

COLUMN = "structured_rep"
KINDS = ("box", "circle", "square", "triangle")
COLOURS: dict[str, int] = {"black": 0, "blue": 1, "#0099ff": 1, "yellow": 2}
COLOUR_NAMES = ("black", "blue", "yellow")
SIZES = (10, 20, 30)
SIZE_NAMES = ("small", "medium", "large")
BOXES = 3
SIDE, GAP = 100, 50
"""Pixels of a box, and between two boxes, in the published pictures of 400 × 100 pixels."""
NEAR = 5.0
"""Pixels from a wall at which nearness has fallen to 1 / e: a shape one pixel from a wall does not touch it."""
LOOKS = len(KINDS) + len(COLOUR_NAMES) + len(SIZES)
"""Numbers for what a shape is: one is 1 in each of three groups; of a box itself, none of colour and size."""
MOST, COUNTED = 7, 4
"""The largest number of shapes in a box, and of shapes of a kind, that a vector tells from larger ones."""
WIDTH = LOOKS + BOXES + 8 + 4 + (MOST + 1) + COUNTED * (LOOKS - 1)
"""Numbers of a region's vector: its look and its box; left, top, right and bottom as fractions of its box, and the
nearness to these four walls, 1 where it touches one; of a shape, whether none or one is lower, and none or one higher;
of a box, one is 1 for the number of its shapes, and 1 for each look of which it has at least 1, 2, 3 or 4."""


def read_scenes(table: ParsedTable) -> list[PictureRow]:
    """Return the rows of a file of NLVR; a ValueError names the line where something is missing or unknown."""
    names = {name: position for position, name in enumerate(table.names or ())}
    rows = []
    for cells, line in zip(table.rows, table.lines, strict=True):
        where = f"{table.source}, line {line}"
        record = {name: cells[position] for name, position in names.items()}
        sentence, label = str(record.get("sentence") or "").strip(), record.get("label")
        if not sentence:
            raise ValueError(f"{where}: there is no sentence")
        regions = check_regions(read_scene(record.get(COLUMN), where=where), where=where)
        source = RegionSource(str(record.get("identifier") or where), group=sentence.lower())
        truth = None if label is None else str(label).lower()
        rows.append(PictureRow(source, truth, {"sentence": sentence}, regions, where))
    if not rows:
        raise ValueError(f"{table.source} has no rows")
    return rows


def read_scene(boxes: Any, *, where: str) -> Regions:
    """The regions of a scene: each box, followed by its shapes."""
    if not isinstance(boxes, list) or len(boxes) != BOXES or not all(isinstance(box, list) for box in boxes):
        raise ValueError(f"{where}: {COLUMN} must be a list of {BOXES} boxes, each a list of shapes")
    edges, names, vectors = [], [], []
    width = BOXES * SIDE + (BOXES - 1) * GAP
    for number, shapes in enumerate(boxes):
        left = number * (SIDE + GAP)
        edges.append((left / width, 0.0, (left + SIDE) / width, 1.0))
        names.append(f"box {number + 1}")
        found = [_read_shape(shape, where=where) for shape in shapes]
        looks = [_vector(kind, colour, size, number) for kind, colour, size, _, _ in found]
        box = [*_vector("box", None, None, number), *_place((0.0, 0.0, SIDE, SIDE)), *[0.0] * 4]
        vectors.append([*box, *_contents(looks)])
        heights = [y for *_, y in found]
        for look, (kind, colour, size, x, y) in zip(looks, found, strict=True):
            ends = (x, y, min(SIDE, x + size), min(SIDE, y + size))
            edges.append(((left + ends[0]) / width, ends[1] / SIDE, (left + ends[2]) / width, ends[3] / SIDE))
            names.append(f"{SIZE_NAMES[SIZES.index(size)]} {COLOUR_NAMES[colour]} {kind}")
            vectors.append([*look, *_place(ends), *_order(y, heights), *_contents(None)])
    return Regions(np.array(edges, np.float32), tuple(names), np.array(vectors, np.float32))


def _read_shape(shape: Any, *, where: str) -> tuple[str, int, int, float, float]:
    """What a shape is, the number of its colour, its size, and its left and upper edge."""
    if not isinstance(shape, Mapping):
        raise ValueError(f"{where}: a shape must be an object, not {shorten(shape)}")
    kind, colour, size = shape.get("type"), COLOURS.get(str(shape.get("color")).lower()), shape.get("size")
    x, y = shape.get("x_loc"), shape.get("y_loc")
    known = kind in KINDS[1:] and colour is not None and size in SIZES
    if not known or not all(isinstance(at, (int, float)) and 0 <= at <= SIDE for at in (x, y)):
        raise ValueError(
            f"{where}: {shorten(shape)} is not a shape of NLVR: type {', '.join(KINDS[1:])}; color "
            f"{', '.join(COLOURS)}; size {', '.join(map(str, SIZES))}; x_loc and y_loc from 0 to {SIDE}"
        )
    return str(kind), int(colour or 0), int(size or 0), float(x or 0), float(y or 0)


def _vector(kind: str, colour: int | None, size: int | None, box: int) -> Sequence[float]:
    groups = (
        (len(KINDS), KINDS.index(kind)),
        (len(COLOUR_NAMES), colour),
        (len(SIZES), None if size is None else SIZES.index(size)),
        (BOXES, box),
    )
    return [float(position == one) for count, one in groups for position in range(count)]


def _place(ends: tuple[float, float, float, float]) -> list[float]:
    """Left, top, right and bottom in pixels of a box -> as fractions, and the nearness to the walls."""
    left, top, right, bottom = ends
    gaps = (left, top, SIDE - right, SIDE - bottom)
    return [*(end / SIDE for end in ends), *(math.exp(-gap / NEAR) for gap in gaps)]


def _order(y: float, heights: Sequence[float]) -> list[float]:
    """Whether no shape of the box is lower, or one, and whether none is higher, or one; y grows downwards."""
    lower, higher = sum(other > y for other in heights), sum(other < y for other in heights)
    return [float(found == wanted) for found in (lower, higher) for wanted in (0, 1)]


def _contents(looks: Sequence[Sequence[float]] | None) -> list[float]:
    """What is in a box, from the vectors of its shapes; zeros for a shape, in which nothing is."""
    if looks is None:
        return [0.0] * (MOST + 1 + COUNTED * (LOOKS - 1))
    number = [float(min(len(looks), MOST) == count) for count in range(MOST + 1)]
    totals = [sum(look[place] for look in looks) for place in range(1, LOOKS)]
    return [*number, *(float(total >= least) for least in range(1, COUNTED + 1) for total in totals)]
