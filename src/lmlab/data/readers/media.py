"""Data that are not text: pictures, sound, notes and episodes, and the endings of files that hold them."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import zipfile
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
IDX = re.compile(r"idx\d[-_.]ubyte(\.gz)?$")
"""Names of the files in which MNIST is published: `train-images-idx3-ubyte.gz`."""
BUILTINS = {
    "builtin:tunes": "notes",
    "builtin:tones": "speech",
    "builtin:cart-pole": "episodes",
    "builtin:scenes": "images",
}
"""Built-in data that are not text, with their kinds."""


class BuiltIn(NamedTuple):
    """Built-in data: what they are, and the systems that learn from them."""

    what: str
    systems: tuple[str, ...]
    more: str = ""  # what else they are for


SCENES = "pictures of coloured shapes"
BUILT_IN = {
    "builtin:scenes": BuiltIn(
        f"{SCENES} with captions",
        ("captioner", "clip", "visualbert", "vilbert"),
        "systems that predict the next token, with --tokenizer pixels:4",
    ),
    "builtin:scenes-unseen": BuiltIn(
        f"{SCENES} with captions, in unseen pairs of colour and shape",
        ("captioner", "clip", "visualbert", "vilbert"),
        "lmlab evaluate",
    ),
    "builtin:scene-questions": BuiltIn(
        f"{SCENES} with questions and answers", ("vqa",), "lmlab finetune of visualbert and vilbert"
    ),
    "builtin:scene-sentences": BuiltIn(
        f"{SCENES} with sentences, true or false",
        ("visualbert", "vilbert"),
        "lmlab finetune of visualbert and vilbert",
    ),
    "builtin:signs": BuiltIn("pictures of shapes and written words, with classes and captions", ("clip", "vit")),
    "builtin:tones": BuiltIn("recordings of tones with their names", ("whisper",)),
    "builtin:tunes": BuiltIn("music for four voices", ("music-transformer",), "systems that predict the next token"),
    "builtin:cart-pole": BuiltIn(
        "episodes of a pole on a cart",
        ("decision-transformer",),
        "systems that predict the next token; lmlab act --env",
    ),
    "builtin:world": BuiltIn("pictures with commands and actions", ("policy",), "lmlab act --env"),
    "builtin:world-and-words": BuiltIn("the same with captions and questions", ("policy",)),
    "builtin:everything": BuiltIn(
        "text, scenes with captions, tunes and episodes in one model", ("gpt2",), "systems that predict the next token"
    ),
}
"""Built-in data that are not text, by name."""


def check_built_in(system: str, given: Iterable[object]) -> None:
    """Raise a ValueError where a system cannot learn from built-in data; it names the data that fit."""
    for path in given:
        found = BUILT_IN.get(path) if isinstance(path, str) else None
        if found is None or system in found.systems:
            continue
        fit = [name for name, each in BUILT_IN.items() if system in each.systems]
        own = f"{system} learns from {' or '.join(fit)}; " if fit else ""
        raise ValueError(f"{path} has {found.what}, for {', '.join(found.systems)}; {own}lmlab list data shows all")


ABOUT = re.compile(r"(readme|licen[cs]e|source|copying|citation|changelog)\b.*", re.IGNORECASE)
"""Files about a data set, which are not part of it."""


class Regions(NamedTuple):
    """Parts of a picture: objects, or boxes that a detector has found."""

    boxes: NDArray[np.float32]  # [R, 4], left, top, right, bottom as fractions of the picture
    names: tuple[str, ...] = ()  # of the objects, if known
    features: NDArray[np.float32] | None = None  # [R, F]


class Picture(NamedTuple):
    """The pixels of a picture, and its regions if they are known."""

    pixels: NDArray[np.uint8]  # [H, W, C]
    regions: Regions | None = None


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
    for value in _arrays(media):
        array = np.ascontiguousarray(value)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _arrays(media: Media) -> Iterator[Any]:
    """The arrays and numbers of media; of a picture its pixels, and those of its regions."""
    for value in media:
        if isinstance(value, Regions):
            yield from (each for each in (value.boxes, value.features) if each is not None)
        elif value is not None:
            yield value


def find_media_kind(given: Iterable[str | Path]) -> str | None:
    """Return the kind of data that files, folders and globs hold, if all files have its endings; else None."""
    found: str | None = None
    for path in _files(given):
        kind = BUILTINS.get(path) or next(
            (name for name, endings in ENDINGS.items() if path.lower().endswith(endings)), None
        )
        kind = kind or ("images" if IDX.search(path.lower()) else _look_inside(path))
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
            for folder, folders, files in os.walk(path):
                folders[:] = sorted(each for each in folders if not each.startswith("."))
                named = (file for file in files if not file.startswith(".") and not ABOUT.fullmatch(file))
                yield from (os.path.join(folder, file) for file in named)


def _look_inside(path: str) -> str | None:
    """Return the kind of data in a zip file by the endings of its files, and `notes` for a JSON file of piano rolls."""
    if not os.path.isfile(path):
        return None
    if path.lower().endswith(".zip") and zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
        except (OSError, zipfile.BadZipFile):
            return None
        return find_media_kind(name for name in names if not ABOUT.fullmatch(os.path.basename(name)))
    if path.lower().endswith(".json"):
        from lmlab.data.readers.music.rolls import SNIFFED, looks_like_rolls

        with open(path, "rb") as file:
            return "notes" if looks_like_rolls(file.read(SNIFFED)) else None
    return None


def missing_reader(kind: str, named: Iterable[str | Path]) -> ValueError:
    """Return the error for data of a kind that lmlab has no reader for."""
    return ValueError(
        f"{', '.join(map(str, named))}: these files are {kind}, and lmlab has no reader for {kind}; give text instead"
    )
