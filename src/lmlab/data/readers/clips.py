"""Recordings with their texts: a table of paths and texts, with the files beside it or in a zip beside it.

`clips.tsv` has a header with the columns `path` and `text`. `builtin:tones` is a synthetic corpus: telephone tones of
one to four digits with noise, whose text is the digits in words.
"""

from __future__ import annotations

import csv
import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lmlab.data.readers.files import Unpacked, UnpackLimit, is_file, shorten
from lmlab.data.readers.media import Sound
from lmlab.data.readers.sounds import decode_sound

TONES = "builtin:tones"
LARGEST = 64 << 20
"""Bytes of the largest table."""
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LOW = (941, 697, 697, 697, 770, 770, 770, 852, 852, 852)
HIGH = (1336, 1209, 1336, 1477, 1209, 1336, 1477, 1209, 1336, 1477)
"""The two frequencies of each digit (ITU-T Q.23)."""
RATE = 8_000


class SpeechClip(NamedTuple):
    """A recording and its text."""

    name: str
    text: str
    digest: str  # of the recording's content
    read: Callable[[], Sound]


def read_clips(path: str) -> list[SpeechClip]:
    """The clips of a table, or of the built-in corpus; a ValueError says what is wrong with the table."""
    if path == TONES:
        return list(make_tones())
    if path.startswith("builtin"):
        raise ValueError(f"there are no built-in recordings {path!r}; the built-in ones are {TONES}")
    table = Path(path)
    rows = list(_rows(table))
    archives = sorted(table.parent.glob("*.zip"))
    clips = []
    for line, (name, text) in enumerate(rows, start=2):
        if ".." in Path(name).parts:
            raise ValueError(f"{table}, line {line}: {shorten(name)} leads out of the folder of the table")
        file = table.parent / name
        if is_file(file):
            content = file.read_bytes()
            clips.append(SpeechClip(name, text, _digest(content), partial(_read_file, file)))
            continue
        archive = next((each for each in archives if name in _names(each)), None)
        if archive is None:
            raise ValueError(f"{table}, line {line}: {file} does not exist, and no zip file beside {table.name} has it")
        content = _from_zip(archive, name)
        clips.append(SpeechClip(name, text, _digest(content), partial(_read_member, archive, name)))
    return clips


def _rows(table: Path) -> Iterator[tuple[str, str]]:
    """The path and text of each row."""
    try:
        if table.stat().st_size > LARGEST:
            raise ValueError(
                f"{table} is larger than {LARGEST >> 20} MiB; a table of clips has a path and a text a row"
            )
        lines = table.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ValueError(f"{table} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{table} is not a table of clips in UTF-8; give a TSV file with the columns path and text"
        ) from None
    delimiter = "," if table.suffix == ".csv" else "\t"
    rows = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE)
    header = [name.strip().lower() for name in next(rows, [])]
    if "path" not in header or "text" not in header:
        raise ValueError(f"{table} has the columns {', '.join(header) or 'none'}; a table of clips has path and text")
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise ValueError(f"{table}, line {line}: {len(row)} columns, and the header has {len(header)}")
        values = dict(zip(header, row, strict=True))
        if not values["path"].strip() or not values["text"].strip():
            raise ValueError(f"{table}, line {line}: the path or the text is empty")
        yield values["path"].strip(), " ".join(values["text"].split())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_file(file: Path) -> Sound:
    return decode_sound(file.read_bytes(), name=str(file))


def _read_member(archive: Path, name: str) -> Sound:
    return decode_sound(_from_zip(archive, name), name=f"{archive}:{name}")


_OPEN: dict[Path, frozenset[str]] = {}


def _names(archive: Path) -> frozenset[str]:
    if archive not in _OPEN:
        try:
            with zipfile.ZipFile(archive) as opened:
                _OPEN[archive] = frozenset(opened.namelist())
        except zipfile.BadZipFile as error:
            raise ValueError(f"{archive} is a damaged zip file ({error}); fetch it again") from None
    return _OPEN[archive]


def _from_zip(archive: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(archive) as opened:
            return Unpacked(opened.open(name), UnpackLimit(archive)).read()
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, KeyError) as error:
        raise ValueError(f"{archive} is a damaged zip file, or needs a password ({error}); fetch it again") from None


def make_tones(count: int = 500, *, seed: int = 0) -> Iterator[SpeechClip]:
    """Telephone tones: clips of one to four digits, all different in their lengths, pauses, loudness and noise."""
    for number in range(count):
        digits = np.random.default_rng([seed, number]).integers(0, 10, 1 + number % 4).tolist()
        text = " ".join(DIGITS[digit] for digit in digits)
        yield SpeechClip(f"tones-{number:03}", text, f"tones 1 {seed} {number}", partial(_sing, seed, number, digits))


def _sing(seed: int, number: int, digits: Sequence[int]) -> Sound:
    """The sound of digits: two sine waves each, with a pause after it, and noise."""
    generator = np.random.default_rng([seed, number, 1])
    parts = [np.zeros(int(generator.uniform(0.02, 0.1) * RATE))]
    for digit in digits:
        seconds, pause, loudness = (
            generator.uniform(0.1, 0.2),
            generator.uniform(0.05, 0.1),
            generator.uniform(0.1, 0.4),
        )
        times = np.arange(int(seconds * RATE)) / RATE
        tone = np.sin(2 * np.pi * LOW[digit] * times) + np.sin(2 * np.pi * HIGH[digit] * times + 1)
        parts += [loudness * tone * np.hanning(len(times)) ** 0.2, np.zeros(int(pause * RATE))]
    samples = np.concatenate(parts)
    return Sound((samples + generator.normal(0, 0.005, len(samples))).astype(np.float32), RATE)
