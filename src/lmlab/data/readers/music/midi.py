"""MIDI files: checked byte by byte, then read by symusic (the extra `music`); performances are written as MIDI.

The check comes first because files are not trusted: a chunk may be shorter than it says, times may overflow, and a
small file may describe a piece of years.
"""

from __future__ import annotations

import struct
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.text import TextWarning
from lmlab.files import write_bytes
from lmlab.tokenizers.processors.notes import Performance

LARGEST = 64 << 20
"""Bytes of a MIDI file, at most."""
MOST_TRACKS = 1_024
MOST_QUARTERS = 100_000
"""The longest piece, in quarter notes."""
MOST_SECONDS = 24 * 3600
USUAL_TEMPO = 500_000
"""Microseconds of a quarter note before the first tempo: 120 quarter notes a minute."""
RESOLUTION = 480
"""Ticks of a quarter note in the files that are written."""
HEADER = 14
DATA_BYTES = {0x8: 2, 0x9: 2, 0xA: 2, 0xB: 2, 0xC: 1, 0xD: 1, 0xE: 2}
"""Bytes after the status byte of a channel message, by its high half."""


def import_symusic() -> Any:
    """Return the module symusic; a ValueError names the extra to install."""
    try:
        import symusic
    except ImportError:
        raise ValueError("MIDI files need the package symusic: pip install 'lmlab[music]'") from None
    return symusic


def read_midi(data: bytes, *, name: str) -> Performance:
    """Return the notes of all tracks of a MIDI file, without drums; a ValueError says what is wrong with the file.

    Notes that never end are left out, with a warning.
    """
    symusic = import_symusic()
    hanging = check_midi(data, name=name)
    if hanging:
        notes = "1 note never ends and is" if hanging == 1 else f"{hanging:,} notes never end and are"
        warnings.warn(f"{name}: {notes} left out", TextWarning, stacklevel=2)
    try:
        score = symusic.Score.from_midi(data)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{name} is a damaged MIDI file ({_first_line(error)}); export it again") from None
    tables = [track.notes.numpy() for track in score.tracks if not track.is_drum and len(track.notes)]
    if not tables:
        raise ValueError(f"{name} has no notes; leave it out")
    columns = {key: np.concatenate([table[key] for table in tables]) for key in ("time", "duration", "pitch")}
    velocities = np.concatenate([table["velocity"] for table in tables]).astype(np.int64)
    ticks = np.stack([columns["time"], columns["time"] + columns["duration"]], axis=1).astype(np.int64)
    seconds = _to_seconds(ticks, score)
    if seconds.max() > MOST_SECONDS:
        raise ValueError(f"{name} lasts {seconds.max():,.0f} seconds; at most {MOST_SECONDS:,} are read")
    pitches = columns["pitch"].astype(np.int64)
    order = np.lexsort((pitches, ticks[:, 0]))
    beats = ticks[order] / score.ticks_per_quarter
    return Performance(seconds[order, 0], seconds[order, 1], pitches[order], velocities[order], beats)


def _to_seconds(ticks: NDArray[np.int64], score: Any) -> NDArray[np.float64]:
    """Return the seconds of times in ticks, by the tempos of a score."""
    tempos = sorted((int(each.time), int(each.mspq)) for each in score.tempos)
    times = np.array([0, *(time for time, _ in tempos)], dtype=np.float64)
    lengths = np.array([USUAL_TEMPO, *(length for _, length in tempos)]) / 1e6 / score.ticks_per_quarter
    begins = np.concatenate([[0.0], np.cumsum(np.diff(times) * lengths[:-1])])
    part = np.searchsorted(times, ticks, side="right") - 1
    seconds: NDArray[np.float64] = begins[part] + (ticks - times[part]) * lengths[part]
    return seconds


def write_midi(performance: Performance, path: Path) -> None:
    """Write a performance as a MIDI file with one track, at 120 quarter notes a minute."""
    symusic = import_symusic()
    scale = RESOLUTION * 1e6 / USUAL_TEMPO
    score, track = symusic.Score(RESOLUTION), symusic.Track(name="lmlab")
    rows = zip(performance.starts, performance.ends, performance.pitches, performance.velocities, strict=True)
    for start, end, pitch, velocity in rows:
        first, last = round(start * scale), round(end * scale)
        track.notes.append(symusic.Note(first, max(1, last - first), int(pitch), int(velocity)))
    score.tracks.append(track)
    score.tempos.append(symusic.Tempo(0, mspq=USUAL_TEMPO))
    write_bytes(path, score.dumps_midi())


def check_midi(data: bytes, *, name: str) -> int:
    """Return the number of notes that never end; a ValueError if the bytes are no well-formed MIDI file."""
    if len(data) > LARGEST:
        raise ValueError(f"{name} has {len(data):,} bytes; a MIDI file of at most {LARGEST:,} is read")
    if len(data) < HEADER or data[:4] != b"MThd":
        raise ValueError(f"{name} is not a MIDI file: it does not begin with MThd and a header of {HEADER} bytes")
    length, kind, tracks, division = struct.unpack(">IHHH", data[4:HEADER])
    if length < 6 or kind > 2:
        raise ValueError(f"{name} has a damaged MIDI header (length {length}, format {kind}); export it again")
    if not division or division & 0x8000:
        raise ValueError(f"{name} counts time in frames or not at all, not in parts of a quarter note; export it again")
    if tracks > MOST_TRACKS:
        raise ValueError(f"{name} says that it has {tracks:,} tracks; at most {MOST_TRACKS:,} are read")
    found = hanging = 0
    for chunk, start, end in _chunks(data, 8 + length, name):
        if chunk != b"MTrk":
            continue
        found += 1
        if found > MOST_TRACKS:
            raise ValueError(f"{name} has more than {MOST_TRACKS:,} tracks; that is not music")
        hanging += _check_track(data, start, end, division, name)
    if found < tracks:
        raise ValueError(f"{name} has {found} of the {tracks} tracks that its header names; copy it again")
    return hanging


def _chunks(data: bytes, position: int, name: str) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name, the start and the end of each chunk."""
    while position < len(data):
        if position + 8 > len(data):
            raise ValueError(f"{name} is cut off at byte {len(data):,}; copy it again")
        end = position + 8 + int.from_bytes(data[position + 4 : position + 8], "big")
        if end > len(data):
            raise ValueError(
                f"{name} is cut off, or lies about its length: a chunk at byte {position:,} ends at {end:,}"
            )
        yield data[position : position + 4], position + 8, end
        position = end


def _check_track(data: bytes, position: int, end: int, division: int, name: str) -> int:
    """Check the events of a track; return the number of notes that never end."""
    sounding: Counter[tuple[int, int]] = Counter()
    time, status = 0, 0
    try:
        while position < end:
            wait, position = _read_number(data, position, end)
            time += wait
            if time > MOST_QUARTERS * division:
                raise ValueError(f"{name} is longer than {MOST_QUARTERS:,} quarter notes; that is not music")
            if data[position] & 0x80:
                status, position = data[position], position + 1
            if status in (0xFF, 0xF0, 0xF7):
                meta = status == 0xFF
                size, position = _read_number(data, position + meta, end)
                position, status = position + size, 0
            else:
                size = DATA_BYTES[status >> 4]
                pitch, velocity = data[position], data[position + size - 1]
                if max(pitch, velocity) > 127:
                    raise ValueError(f"{name} is a damaged MIDI file (byte {position:,}); export it again")
                position += size
                if status >> 4 in (0x8, 0x9):
                    key = (status & 15, pitch)
                    sounding[key] += 1 if status >> 4 == 0x9 and velocity else -min(1, sounding[key])
    except (IndexError, KeyError):
        raise ValueError(f"{name} is a damaged MIDI file (byte {min(position, end):,}); export it again") from None
    if position != end:
        raise ValueError(f"{name} is a damaged MIDI file: an event reaches over the end of its track; export it again")
    return sum(sounding.values())


def _read_number(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the variable-length number at a place, and the place after it."""
    value = 0
    for _ in range(4):
        if position >= end:
            raise IndexError
        byte, position = data[position], position + 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, position
    raise IndexError


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
