"""Finding and reading music: MIDI files, JSON piano rolls, folders and zip files of them, and the built-in tunes."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from lmlab.data.config import expand
from lmlab.data.readers.files import open_unpacked, open_zip
from lmlab.data.readers.media import ABOUT, ENDINGS
from lmlab.data.readers.music.midi import LARGEST, read_midi
from lmlab.data.readers.music.rolls import read_rolls
from lmlab.data.readers.music.tunes import VERSION, make_tunes
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers.processors.notes import Music

TUNES = "builtin:tunes"
"""The name of the built-in tunes."""
HOW = f"give MIDI files (.mid), JSON piano rolls, folders or zip files of them, or {TUNES}"
Bad = Literal["skip", "refuse"]


class Piece(NamedTuple):
    """A piece of music."""

    name: str
    music: Music
    split: str | None = None  # "train", "valid" or "test", if its file says so


def read_prime(path: Path) -> Music:
    """Return the music of a MIDI file or the first piece of piano rolls, to be continued."""
    with open_unpacked(path) as file:
        return next(read_piece(file.read(LARGEST + 1), name=str(path))).music


def find_music(given: Sequence[str]) -> list[Path | None]:
    """Return the files that paths, folders and globs name, in order; None is the built-in tunes."""
    found: list[Path | None] = []
    for item in given:
        if item == TUNES:
            found.append(None)
            continue
        paths = sorted(expand(item))
        if not paths or not all(map(os.path.exists, paths)):
            raise ValueError(f"{item} does not exist; {HOW}")
        for path in map(Path, paths):
            files = sorted(_walk(path)) if path.is_dir() else [path]
            if not files:
                raise ValueError(f"{path} contains no music; {HOW}")
            found += files
    return list(dict.fromkeys(found))


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and not ABOUT.fullmatch(path.name) and _is_music(path.name):
            yield path


def _is_music(name: str) -> bool:
    return name.lower().endswith((*ENDINGS["notes"], ".json", ".zip"))


def identify_tunes() -> str:
    """Return what the built-in tunes depend on."""
    return f"{TUNES} {VERSION}"


def read_music(files: Sequence[Path | None], *, bad: Bad, report: Callable[[int], None]) -> Iterator[Piece]:
    """Yield the pieces of files; one that cannot be read is skipped with a warning, or refused with a ValueError."""
    for path in files:
        if path is None:
            yield from (Piece(f"tune {number}", tune) for number, tune in enumerate(make_tunes(), start=1))
            continue
        try:
            yield from _read_file(path, bad)
        except ValueError as error:
            refuse(error, bad)
        report(path.stat().st_size)


def refuse(error: ValueError, bad: Bad) -> None:
    """Raise the error, or warn of a file that is skipped."""
    if bad == "refuse":
        raise ValueError(f"{error} (or skip such files: --set data.bad=skip)") from None
    warnings.warn(f"skipped: {error}", TextWarning, stacklevel=3)


def _read_file(path: Path, bad: Bad) -> Iterator[Piece]:
    if zipfile.is_zipfile(path):
        with open_zip(path) as members:
            for name, member in members:
                if _is_music(name) and not name.lower().endswith(".zip") and not ABOUT.fullmatch(Path(name).name):
                    try:
                        yield from read_piece(member.read(), name=f"{path}: {name}")
                    except ValueError as error:
                        refuse(error, bad)
        return
    with open_unpacked(path) as file:
        data = file.read(LARGEST + 1)
    yield from read_piece(data, name=str(path))


def read_piece(data: bytes, *, name: str) -> Iterator[Piece]:
    """Yield the pieces of the bytes of a MIDI file, or of a JSON file of piano rolls."""
    if not data:
        raise ValueError(f"{name} is empty; leave it out")
    if data[:4] == b"MThd" or name.lower().endswith(ENDINGS["notes"]):
        yield Piece(name, read_midi(data, name=name))
        return
    yield from (Piece(roll.name, roll.pitches, roll.split) for roll in read_rolls(data, name=name))
