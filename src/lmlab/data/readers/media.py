"""Data that are not text: pictures, sound, notes and episodes, and the endings of files that hold them."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENDINGS = {
    "images": (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"),
    "sounds": (".wav", ".flac", ".ogg", ".mp3", ".m4a"),
    "notes": (".mid", ".midi"),
    "episodes": (".npz",),
}
"""The endings of files by kind of data; `lmlab.data.DATA` has a row for each kind that lmlab can read."""
ABOUT = re.compile(r"(readme|licen[cs]e|source|copying|citation|changelog)\b.*", re.IGNORECASE)
"""Files about a data set, which are not part of it."""


class Picture(NamedTuple):
    """The pixels of a picture."""

    pixels: NDArray[np.uint8]  # [H, W, C]


class Sound(NamedTuple):
    """A recording."""

    samples: NDArray[np.float32]  # [T]
    rate: int  # samples per second


class Notes(NamedTuple):
    """A piece of music on a grid of equal steps."""

    pitches: NDArray[np.int64]  # [T, voices], as MIDI numbers


class Episode(NamedTuple):
    """What an agent saw, did and was given, step by step."""

    states: NDArray[np.float32]  # [T, ...]
    actions: NDArray[Any]  # [T, ...]
    rewards: NDArray[np.float32]  # [T]


Media = Picture | Sound | Notes | Episode


def digest_media(media: Media) -> str:
    """Return the SHA-256 of the content, shapes included: equal for equal pictures, sounds, notes or episodes."""
    import numpy as np

    digest = hashlib.sha256(type(media).__name__.encode())
    for value in media:
        array = np.ascontiguousarray(value)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def find_media_kind(given: Iterable[str | Path]) -> str | None:
    """Return the kind of data that files, folders and globs hold, if all files have its endings; else None."""
    found: str | None = None
    for path in _files(given):
        kind = next((name for name, endings in ENDINGS.items() if path.lower().endswith(endings)), None)
        if kind is None or found not in (None, kind):
            return None
        found = kind
    return found


def _files(given: Iterable[str | Path]) -> Iterator[str]:
    for item in given:
        name = os.path.expanduser(item)
        for path in [name] if os.path.exists(name) else glob.glob(name, recursive=True) or [name]:
            if not os.path.isdir(path):
                yield path
            for _, folders, files in os.walk(path):
                folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
                yield from (file for file in files if not file.startswith(".") and not ABOUT.fullmatch(file))


def missing_reader(kind: str, named: Iterable[str | Path]) -> ValueError:
    """Return the error for data of a kind that lmlab has no reader for."""
    return ValueError(
        f"{', '.join(map(str, named))}: these files are {kind}, and lmlab has no reader for {kind}; give text instead"
    )
