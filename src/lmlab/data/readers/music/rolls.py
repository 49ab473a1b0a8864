"""Piano rolls in JSON: pieces as lists of steps, each a list of MIDI pitches; with splits of their own, or without.

The chorales of Boulanger-Lewandowski et al. 2012 are published so: `{"train": [[[74, 70, 65, 58], …], …], …}`. A pitch
of -1 (or NaN in other copies) is a rest. A file may also be one list of pieces, or a single piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.parsing import load_json
from lmlab.tokenizers.processors.notes import MOST_VOICES, PITCHES, REST

BEGINNING = re.compile(r'\s*(\{\s*"\w+"\s*:\s*)?\[\s*\[\s*(\[\s*(-?\d|\]|NaN)|-?\d)')
"""How a JSON file with piano rolls begins."""
SNIFFED = 4096
"""Bytes at the beginning of a file that are looked at."""
MOST_STEPS = 1_000_000
"""Steps of a piece, at most."""
SPLITS = {"train": "train", "valid": "valid", "validation": "valid", "dev": "valid", "test": "test"}
"""Names of splits in files, and what they are called here."""


class Roll(NamedTuple):
    """A piece in a file of piano rolls."""

    split: str | None  # "train", "valid" or "test", if the file says so
    name: str
    pitches: NDArray[np.int64]  # [T, voices]


def looks_like_rolls(head: bytes) -> bool:
    """Whether a JSON file that begins with these bytes holds piano rolls: nested lists of numbers."""
    return BEGINNING.match(head.decode("utf-8", errors="replace")) is not None


def read_rolls(data: bytes, *, name: str) -> Iterator[Roll]:
    """Yield the pieces of a JSON file; a ValueError names the piece and the step that is wrong."""
    try:
        found = load_json(data)
    except ValueError as error:
        raise ValueError(f"{name} is not valid JSON ({error}); write it again") from None
    if not isinstance(found, dict):
        yield from _read_list(found, None, name)
        return
    for split, pieces in found.items():
        if split not in SPLITS:
            raise ValueError(f"{name} has a split {split!r}; allowed: {', '.join(SPLITS)}")
        yield from _read_list(pieces, SPLITS[split], f"{name}: {split}")


def _read_list(found: Any, split: str | None, name: str) -> Iterator[Roll]:
    if not isinstance(found, list) or not found:
        raise ValueError(f"{name} has no pieces: give a list of pieces, each a list of steps with MIDI pitches")
    single = isinstance(found[0], list) and bool(found[0]) and not isinstance(found[0][0], list)
    for number, piece in enumerate([found] if single else found, start=1):
        yield Roll(split, f"{name} {number}", _to_pitches(piece, f"{name}, piece {number}"))


def _to_pitches(piece: Any, name: str) -> NDArray[np.int64]:
    """Return the pitches [T, voices] of a piece; steps with fewer notes than others end with rests."""
    if not isinstance(piece, list) or not piece or not all(isinstance(step, list) for step in piece):
        raise ValueError(f"{name} is not a list of steps, each a list of MIDI pitches")
    voices = max(map(len, piece))
    if len(piece) > MOST_STEPS or voices > MOST_VOICES:
        raise ValueError(
            f"{name} has {len(piece):,} steps of {voices} notes; at most {MOST_STEPS:,} of {MOST_VOICES} are read"
        )
    if not voices:
        raise ValueError(f"{name} has no notes; leave it out")
    pitches = np.full((len(piece), voices), REST, dtype=np.int64)
    for number, step in enumerate(piece):
        for voice, pitch in enumerate(step):
            if pitch is None or pitch != pitch or pitch == REST:
                continue
            if isinstance(pitch, bool) or not isinstance(pitch, (int, float)) or pitch % 1:
                raise ValueError(
                    f"{name}, step {number + 1}: {pitch!r} is not a MIDI pitch (0 to 127, or -1 for a rest)"
                )
            if not 0 <= pitch < PITCHES:
                raise ValueError(f"{name}, step {number + 1}: pitch {pitch} is not between 0 and 127 (-1 is a rest)")
            pitches[number, voice] = int(pitch)
    return pitches
