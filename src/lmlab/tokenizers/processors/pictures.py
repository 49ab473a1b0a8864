"""The processor of pictures: one size, one number of channels, and normalised pixels for a model.

Pictures are resized when a corpus is prepared and kept as bytes, uint8 [H, W, C]. A batch of them becomes
float32 [B, C, H, W], (x / 255 − mean) / std for each channel. Shapes: B pictures, H height, W width, C channels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from lmlab.config import Config, build
from lmlab.files import write_text

PixelArray = NDArray[np.uint8]
"""The bytes of a picture [height, width, channels], or of several."""
LARGEST = 4096
"""Pixels of a side, at most."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a grey picture (ITU-R 601, as in Pillow)."""
NEEDS_PILLOW = "needs Pillow: pip install 'lmlab[vision]'"


class PictureProcessor(Config):
    """Settings of a processor of pictures, and what it does."""

    kind: ClassVar[str] = "pictures"
    item: ClassVar[str] = "picture"

    height: int = Field(ge=1, le=LARGEST, description="pixels from top to bottom")
    width: int = Field(ge=1, le=LARGEST, description="pixels from left to right")
    channels: Literal[1, 3] = Field(3, description="1 for grey, 3 for red, green and blue")
    resize: Literal["stretch", "crop", "pad"] = Field(
        "stretch", description="to another shape: stretch, crop the centre, or pad with the background"
    )
    interpolation: Literal["nearest", "bilinear", "bicubic"] = Field("bilinear", description="how pixels are resampled")
    background: int = Field(255, ge=0, le=255, description="grey level under transparent pixels, and of padding")
    mean: list[float] = Field([0.5], description="mean of each channel, from 0 to 1; one number for all")
    std: list[float] = Field([0.5], description="standard deviation of each channel; one number for all")

    @model_validator(mode="after")
    def _check(self) -> PictureProcessor:
        for name in ("mean", "std"):
            given = getattr(self, name)
            if len(given) not in (1, self.channels):
                raise ValueError(f"{name} = {given}: give one number, or {self.channels}, one for each channel")
        if any(not 0 < value <= 100 for value in self.std) or any(not -100 <= value <= 100 for value in self.mean):
            raise ValueError(f"std = {self.std}: each must be above 0")
        return self

    @classmethod
    def from_settings(cls, values: Mapping[str, Any], *, where: str = "processor") -> PictureProcessor:
        """Return the processor with these settings, as `save` wrote them."""
        return build(cls, values, where=where)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.height, self.width, self.channels

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of all settings."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()

    @property
    def storage_fingerprint(self) -> str:
        """A SHA-256 of the settings that the stored bytes depend on: all but mean and std."""
        values = self.model_dump(exclude={"mean", "std"})
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write the settings to a JSON file."""
        write_text(path, json.dumps({"kind": self.kind, **self.model_dump()}, indent=1))

    def process(self, pixels: PixelArray) -> PixelArray:
        """Pixels [h, w, 1, 2, 3 or 4] -> [H, W, C]: without transparency, with the channels and the size of all."""
        plain = set_channels(flatten_alpha(pixels, self.background), self.channels)
        return self._resize(plain) if plain.shape[:2] != (self.height, self.width) else plain

    def normalise(self, pixels: PixelArray) -> Tensor:
        """Pixels [B, H, W, C] -> float32 [B, C, H, W], (x / 255 − mean) / std."""
        mean, std = torch.tensor(self.mean), torch.tensor(self.std)
        writable = np.require(pixels, requirements="W")  # torch warns of others
        return (torch.from_numpy(writable).float() * (1 / (255 * std)) - mean / std).permute(0, 3, 1, 2).contiguous()

    def _resize(self, pixels: PixelArray) -> PixelArray:
        """Pixels [h, w, C] -> [H, W, C], by the rule of `resize`."""
        height, width = pixels.shape[:2]
        if self.resize == "stretch":
            return resize(pixels, self.height, self.width, self.interpolation)
        by_height = (self.height * width > self.width * height) == (self.resize == "crop")
        if by_height:  # the height fits, the width follows, cut to a whole number as in torchvision
            inner = self.height, max(1, self.height * width // height)
        else:
            inner = max(1, self.width * height // width), self.width
        return fit_centre(resize(pixels, *inner, self.interpolation), self.height, self.width, fill=self.background)


def flatten_alpha(pixels: PixelArray, background: int) -> PixelArray:
    """Pixels with 2 or 4 channels (the last is opacity) over a grey background; others as they are."""
    if pixels.shape[2] in (1, 3):
        return pixels
    alpha = pixels[..., -1:].astype(np.float32) / 255
    mixed = pixels[..., :-1] * alpha + background * (1 - alpha)
    return np.round(mixed).astype(np.uint8)


def set_channels(pixels: PixelArray, channels: int) -> PixelArray:
    """Pixels [H, W, 1 or 3] with the given number of channels: grey by luma, colour by repetition."""
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    return np.round(pixels @ np.array(LUMA, np.float32)).astype(np.uint8)[..., None]


def resize(pixels: PixelArray, height: int, width: int, interpolation: str) -> PixelArray:
    """Pixels [h, w, C] resampled to [height, width, C], smoothed where the picture becomes smaller."""
    try:
        from PIL import Image
    except ImportError:
        raise ValueError(f"resizing pictures {NEEDS_PILLOW}") from None
    method = {"nearest": 0, "bilinear": 2, "bicubic": 3}[interpolation]  # Pillow's numbers, the same in all versions
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    found = np.asarray(picture.resize((width, height), Image.Resampling(method)), np.uint8)
    return found.reshape(height, width, pixels.shape[2])


def make_thumbnail(pixels: PixelArray, longest: int) -> PixelArray:
    """A picture [h, w, 1 to 4] without transparency, whose longer side has at most `longest` pixels."""
    plain = flatten_alpha(pixels, 255)
    height, width = plain.shape[:2]
    scale = longest / max(height, width)
    if scale >= 1:
        return plain
    return resize(plain, max(1, round(height * scale)), max(1, round(width * scale)), "bilinear")


def fit_centre(pixels: PixelArray, height: int, width: int, *, fill: int) -> PixelArray:
    """Pixels cut or padded to a size, around their centre."""
    result = np.full((height, width, pixels.shape[2]), fill, np.uint8)
    own_rows, rows = _overlap(pixels.shape[0], height)
    own_columns, columns = _overlap(pixels.shape[1], width)
    result[rows, columns] = pixels[own_rows, own_columns]
    return result


def _overlap(have: int, want: int) -> tuple[slice, slice]:
    """Where the centre of `have` pixels is read, and where it is written among `want` pixels."""
    count, first, position = min(have, want), max(0, have - want) // 2, max(0, want - have) // 2
    return slice(first, first + count), slice(position, position + count)
