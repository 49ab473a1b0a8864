"""Decode one picture from the bytes of a file that is not trusted: PNG, JPEG, WebP, GIF, BMP, TIFF, PPM.

Of an animation the first frame is read. 16-bit pictures are scaled to 8 bits, CMYK becomes RGB, a palette its colours;
pictures that a camera has turned are turned back. What cannot be read is a `BadPictureError` in one line.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmlab.tokenizers.processors.pictures import NEEDS_PILLOW

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
MOST_BYTES = 256 << 20
"""Bytes of one file, at most."""
MOST_PIXELS = 64_000_000
"""Pixels of one picture, at most: a small file can unpack to more than the memory holds."""


class BadPictureError(ValueError):
    """A file is not a picture that can be read."""


def decode_picture(data: bytes, *, name: str) -> NDArray[np.uint8]:
    """Return the pixels [H, W, C] of a file: C is 1 (grey), 2 (grey, opacity), 3 (RGB) or 4 (RGB, opacity)."""
    with open_picture(data, name=name) as picture:
        try:
            picture.load()
            return _to_array(picture)
        except BadPictureError:
            raise
        except Exception as error:  # the decoders of Pillow raise errors of many kinds
            raise BadPictureError(f"{name} cannot be read: {_first_line(error)}") from None


def picture_size(data: bytes, *, name: str) -> tuple[int, int, int]:
    """Return height, width and channels (1 for grey, 3 for colour) of a picture by its header, without its pixels."""
    with open_picture(data, name=name) as picture:
        turned = picture.getexif().get(0x0112) in (5, 6, 7, 8) if picture.format == "JPEG" else False
        width, height = picture.size if not turned else picture.size[::-1]
        return height, width, 1 if picture.mode in ("1", "L", "LA", "I", "I;16", "I;16B", "F") else 3


def read_picture(path: str | Path) -> NDArray[np.uint8]:
    """Return the pixels [H, W, C] of a file on disk; a BadPictureError if it is no picture."""
    return decode_picture(read_bytes(Path(path)), name=str(path))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file of a picture; a BadPictureError if it is missing, empty or too large."""
    try:
        if not path.is_file():
            raise BadPictureError(f"{path} does not exist, or is not a file")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise BadPictureError(f"{path} has {size:,} bytes; a picture may have {MOST_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise BadPictureError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def open_picture(data: bytes, *, name: str) -> Image:
    """Return a picture whose header has been checked; a BadPictureError says what is wrong with it."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ValueError(f"reading pictures {NEEDS_PILLOW}") from None
    if not data:
        raise BadPictureError(f"{name} is empty")
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise BadPictureError(f"{name} is not a picture: use PNG, JPEG, WebP, GIF, BMP, TIFF or PPM") from None
    except Image.DecompressionBombError:
        raise BadPictureError(f"{name} has too many pixels; at most {MOST_PIXELS:,} are read") from None
    except Exception as error:
        raise BadPictureError(f"{name} cannot be read: {_first_line(error)}") from None
    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise BadPictureError(f"{name} has {width:,} × {height:,} pixels; at most {MOST_PIXELS:,} are read")
    if not width or not height:
        raise BadPictureError(f"{name} has no pixels")
    return picture


def _to_array(picture: Image) -> NDArray[np.uint8]:
    """Return the first frame of a picture as 8-bit pixels [H, W, C]."""
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(picture)
    if turned.mode in ("I;16", "I;16B", "I;16L", "I", "F"):
        return _scale_deep(np.asarray(turned), sixteen=turned.mode.startswith("I;16"))
    if turned.mode == "P" or "transparency" in turned.info:
        turned = turned.convert("RGBA" if "transparency" in turned.info else "RGB")
    kept = {"1": "L", "L": "L", "LA": "LA", "La": "LA", "RGBA": "RGBA", "RGBa": "RGBA", "PA": "RGBA"}
    pixels = np.asarray(turned.convert(kept.get(turned.mode, "RGB")), np.uint8)
    if pixels.ndim == 2:
        return pixels[..., None]
    opaque = pixels.shape[2] in (2, 4) and bool((pixels[..., -1] == 255).all())
    return np.ascontiguousarray(pixels[..., :-1]) if opaque else pixels


def _scale_deep(values: NDArray[Any], *, sixteen: bool) -> NDArray[np.uint8]:
    """Return grey values of more than 8 bits as bytes: of 16 bits by their range, others by the largest one."""
    numbers = np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0).clip(min=0)
    largest = float(numbers.max())
    top = max(65535.0, largest)
    if not sixteen and largest <= 255:
        top = 1.0 if largest <= 1 and values.dtype.kind == "f" else 255.0
    scaled: NDArray[np.uint8] = np.round(numbers * (255 / top)).astype(np.uint8)
    return scaled[..., None]


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
