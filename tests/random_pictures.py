"""Random pictures, and the bytes of their files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray


def picture(seed: int, *shape: int) -> NDArray[np.uint8]:
    """Random pixels, [8, 8, 3] unless another shape is given."""
    return np.random.default_rng(seed).integers(0, 256, shape or (8, 8, 3)).astype(np.uint8)


def encode(pixels: NDArray[Any], kind: str = "PNG", **options: Any) -> bytes:
    """The content of a file, written by Pillow."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()
