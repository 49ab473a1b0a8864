"""A picture with the weights of its regions, such as the attention of a word or of a head; and several pictures."""

from __future__ import annotations

import base64
import struct
import textwrap
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from lmlab.pages.figures.svg import SOFT, cut, drawing, element, label, tooltip

DARKEST = 0.82
"""Opacity of the layer over a region without weight."""
LAYER = (22, 40, 110)
"""Its colour: dark, and not that of a black background."""
ROOM = 22.0
"""Pixels below the picture for its title."""
GAP = 18.0
"""Pixels between two pictures of a grid."""


@dataclass(frozen=True)
class PictureHeatmap:
    """A picture on a grid of regions: the smaller the weight of a region, the darker it is."""

    title: str
    pixels: NDArray[np.uint8]
    """[H, W, C], with 1 channel (grey) or 3."""
    weights: Sequence[Sequence[float]] | None = None
    """For each row of regions, from left to right; None draws the picture alone."""
    most: float | None = None
    """The weight that leaves a region as it is; by default the largest one."""
    width: float = 144.0
    """Pixels of the drawing from left to right."""

    @property
    def inches(self) -> tuple[float, float]:
        return 3.0, 3.0 * self._height / self.width + 0.3

    @property
    def _height(self) -> float:
        return self.width * float(self.pixels.shape[0] / self.pixels.shape[1])

    @property
    def _largest(self) -> float:
        largest = max((value for row in self.weights or () for value in row), default=0.0)
        return (largest if self.most is None else self.most) or 1.0

    def html(self) -> Markup:
        return drawing(self._parts(), width=self.width, height=self._height + ROOM, title=self.title)

    def _parts(self) -> Iterator[Markup]:
        yield element(
            "image",
            href=data_uri(self.pixels),
            width=self.width,
            height=self._height,
            preserveAspectRatio="none",
            style="image-rendering:pixelated",
        )
        for row, values in enumerate(self.weights or ()):
            high, wide = self._height / len(self.weights or ()), self.width / len(values)
            for column, value in enumerate(values):
                dark = DARKEST * (1 - min(1.0, max(0.0, value / self._largest)))
                yield element(
                    "rect",
                    tooltip(f"{value:.1%}"),
                    x=column * wide,
                    y=row * high,
                    width=wide,
                    height=high,
                    style=f"fill:rgb{LAYER};fill-opacity:{dark:.3f}",
                )
        longest = max(4, int(self.width / 7))
        yield label(self.width / 2, self._height + 15, cut(self.title, longest), anchor="middle", fill=SOFT)

    def draw(self, axes: Any) -> None:
        shown = self.pixels if self.pixels.shape[2] == 3 else np.repeat(self.pixels, 3, axis=2)
        axes.imshow(shown, extent=(0, 1, 1, 0), aspect=self.pixels.shape[0] / self.pixels.shape[1])
        if self.weights is not None:
            dark = DARKEST * (1 - np.clip(np.asarray(self.weights, float) / self._largest, 0, 1))
            layer = np.concatenate([np.full((*dark.shape, 3), np.divide(LAYER, 255)), dark[..., None]], axis=2)
            axes.imshow(layer, extent=(0, 1, 1, 0), aspect=self.pixels.shape[0] / self.pixels.shape[1])
        axes.set_axis_off()


@dataclass(frozen=True)
class PictureGrid:
    """Pictures in rows, each with a line of text below it."""

    title: str
    pictures: Sequence[tuple[str, NDArray[np.uint8]]]
    """The text of each picture, and its pixels [H, W, C], with 1 channel (grey) or 3."""
    columns: int = 5
    width: float = 144.0
    """Pixels of one picture from left to right."""

    @property
    def inches(self) -> tuple[float, float]:
        return 1.8 * min(self.columns, max(1, len(self.pictures))), 2.0 * max(1, self._rows)

    @property
    def _rows(self) -> int:
        return -(-len(self.pictures) // self.columns)

    def html(self) -> Markup:
        across = min(self.columns, max(1, len(self.pictures)))
        step = self.width + 2 * ROOM
        return drawing(self._parts(), width=across * (self.width + GAP), height=self._rows * step, title=self.title)

    def _parts(self) -> Iterator[Markup]:
        for number, (text, pixels) in enumerate(self.pictures):
            row, column = divmod(number, self.columns)
            left, top = column * (self.width + GAP), row * (self.width + 2 * ROOM)
            tall, wide = pixels.shape[:2]
            scale = self.width / max(tall, wide)
            yield element(
                "image",
                tooltip(text),
                href=data_uri(pixels),
                x=left,
                y=top + self.width - tall * scale,
                width=wide * scale,
                height=tall * scale,
                style="image-rendering:pixelated",
            )
            for line, part in enumerate(textwrap.wrap(text, max(4, int(self.width / 6.5)))[:2]):
                yield label(left, top + self.width + 15 + 14 * line, part, fill=SOFT)

    def draw(self, axes: Any) -> None:
        for number, (text, pixels) in enumerate(self.pictures):
            row, column = divmod(number, self.columns)
            shown = pixels if pixels.shape[2] == 3 else np.repeat(pixels, 3, axis=2)
            axes.imshow(shown, extent=(column, column + 0.9, row + 0.8, row), aspect="auto")
            axes.text(column, row + 0.9, cut(text, 24), fontsize=7, va="center")
        axes.set_xlim(0, min(self.columns, max(1, len(self.pictures))))
        axes.set_ylim(max(1, self._rows), 0)
        axes.set_axis_off()


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """A picture [H, W, C] as the address of an image, without a file."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(pixels)).decode('ascii')}"


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels [H, W, C], with 1 channel (grey) or 3, as the bytes of a PNG file."""
    height, width, channels = pixels.shape
    if channels not in (1, 3) or pixels.dtype != np.uint8:
        raise ValueError(f"pixels of shape {list(pixels.shape)} and type {pixels.dtype}: give uint8 [H, W, 1 or 3]")
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each line begins with the number of its filter: none
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
