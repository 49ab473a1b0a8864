"""Readers of files that are not text, with damaged files: each is read, or refused with a ValueError of one line.

Valid files are changed at random: bits and bytes, whole numbers at their limits, parts removed, repeated or exchanged,
and values in JSON and tables. LMLAB_FUZZ is the number of files of each kind (120 by default); RELIABILITY.md says how
many were tried.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmlab.data.readers.episodes import read_episodes
from lmlab.data.readers.music.files import read_piece
from lmlab.data.readers.music.rolls import read_rolls
from lmlab.data.readers.pictures.idx import read_idx
from lmlab.data.readers.pictures.tables import read_table
from lmlab.data.readers.sounds import decode_sound, encode_wav

FILES = int(os.environ.get("LMLAB_FUZZ", "120"))
MEMORY = 600 << 20
"""Bytes by which the process may grow at most; the files have some thousand bytes."""
SECONDS = 120
"""After so long a reader hangs."""
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
VALUES = [
    "1e999",
    "-1e999",
    "NaN",
    "-1",
    "1e308",
    "null",
    "true",
    '"x"',
    "[]",
    "{}",
    "[[]]",
    "9" * 40,
    "0.5",
    "[[[1]]]",
]
Rng = np.random.Generator


def midi() -> bytes:
    notes = [(0, 0x90, pitch, 80) for pitch in (60, 64, 67)] + [(96, 0x80, pitch, 0) for pitch in (60, 64, 67)]
    tempo = b"\x00\xff\x51\x03\x07\xa1\x20"
    events = b"".join(bytes([wait, status, pitch, loud]) for wait, status, pitch, loud in notes)
    track = tempo + b"\x00\xc0\x05" + events + b"\x00\xff\x2f\x00"
    return b"MThd" + struct.pack(">IHHH", 6, 1, 2, 96) + 2 * (b"MTrk" + struct.pack(">I", len(track)) + track)


def wavs() -> list[bytes]:
    samples = np.sin(np.arange(400) / 5).astype(np.float32)
    plain = encode_wav(samples, 8000)
    floats = samples.tobytes()
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + len(floats), b"WAVE", b"fmt ", 16, 3, 1, 8000, 32000, 4, 32)
    wide = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + 600, b"WAVE", b"fmt ", 16, 1, 2, 44100, 264600, 6, 24)
    listed = plain[:12] + b"LIST" + struct.pack("<I", 8) + b"INFOabcd" + plain[12:]
    floating = head + struct.pack("<4sI", b"data", len(floats)) + floats
    return [plain, floating, wide + b"data" + struct.pack("<I", 600) + bytes(600), listed]


def rolls() -> list[bytes]:
    piece = [[67, 64, 60, 48], [67, 64, -1, 48], [69, 65, 60]]
    return [
        json.dumps({"train": [piece, piece], "valid": [piece], "test": [piece]}).encode(),
        json.dumps(piece).encode(),
    ]


def episode_lines() -> list[bytes]:
    one = {"states": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], "actions": [0, 1, 0], "rewards": [1.0, 1.0, 0.5]}
    other = {"observations": [[1, 2], [3, 4]], "actions": [[0.5], [-0.5]], "rewards": [0, -1]}
    return [b"\n".join(json.dumps(each).encode() for each in (one, one)), json.dumps(other).encode()]


def episode_archives() -> list[bytes]:
    found = []
    for extra in ({"indices": np.array([2])}, {"terminals": np.array([False, True, False, True])}):
        file = io.BytesIO()
        states = np.arange(8, dtype=np.float32).reshape(4, 2)
        np.savez(file, states=states, actions=np.array([0, 1, 1, 0]), rewards=np.ones(4), **extra)  # type: ignore[arg-type]
        found.append(file.getvalue())
    return found


def tables() -> list[bytes]:
    return [
        b"picture\tcaption\na.png\ta red circle\nb.png\ta blue star\n",
        b'picture,question,answer\na.png,how many?,two\nb.png,"is it, ""red""?",yes\n',
        b'{"picture": "a.png", "caption": "x", "regions": [[0, 0, 0.5, 1]]}\n'
        b'{"picture": "b.png", "caption": "y", "regions": [{"box": [0, 0, 1, 1], "name": "a", "features": [1, 2]}]}\n',
    ]


def idx() -> list[bytes]:
    pictures = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 4, 4) + bytes(range(48))
    return [pictures, struct.pack(">BBBBI", 0, 0, 8, 1, 5) + bytes(5)]


def change(data: bytes, others: list[bytes], rng: Rng) -> bytes:
    """One to four changes of the bytes of a file, or of the values in every other file of text."""
    made = bytearray(data)
    if data.isascii() and rng.integers(2):
        for _ in range(int(rng.integers(1, 4))):
            made = bytearray(change_values(bytes(made), rng))
        return bytes(made)
    for _ in range(int(rng.integers(1, 5))):
        size = max(1, len(made))
        at, length = int(rng.integers(size)), int(rng.integers(1, 17))
        how = int(rng.integers(9))
        if how == 0 and made:
            made[at % len(made)] ^= 1 << int(rng.integers(8))
        elif how == 1 and made:
            made[at % len(made)] = int(rng.integers(256))
        elif how == 2:
            made[at:at] = rng.bytes(length)
        elif how == 3:
            del made[at : at + length]
        elif how == 4:
            made[at:at] = made[at : at + length]
        elif how == 5:
            del made[at:]
        elif how == 6:
            number, width = NUMBERS[int(rng.integers(len(NUMBERS)))], int(rng.choice([1, 2, 4]))
            order = "big" if rng.integers(2) else "little"
            made[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, order)
        elif how == 7:
            other = others[int(rng.integers(len(others)))]
            made[at:] = other[min(at, len(other)) :]
        else:
            made = bytearray(change_values(bytes(made), rng))
    return bytes(made)


def change_values(data: bytes, rng: Rng) -> bytes:
    """Another value, key or cell in place of one of JSON or of a table."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?|\"[^\"]*\"|\[[^\[\]]*\]|[\t,\n:]", data))
    if not found:
        return data
    one = found[int(rng.integers(len(found)))]
    value = VALUES[int(rng.integers(len(VALUES)))].encode()
    return data[: one.start()] + value + data[one.end() :]


def read_file(reader: Callable[[Path], Any], name: str, folder: Path) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        path = folder / name
        path.write_bytes(data)
        return reader(path)

    return read


@contextmanager
def no_hang() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise SystemError(f"a reader hangs for more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def try_all(read: Callable[[bytes], Any], seeds: list[bytes], *, seed: int) -> dict[str, int]:
    """Read changed files; return how many were read and how many refused."""
    rng = np.random.default_rng(seed)
    counts = {"read": 0, "refused": 0}
    for data in seeds:
        read(data)
    scale = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    for number in range(FILES):
        data = change(seeds[number % len(seeds)], seeds, rng)
        try:
            with no_hang():
                read(data)
            counts["read"] += 1
        except ValueError as error:
            if not str(error) or "\n" in str(error):
                raise AssertionError(f"{error!r} is not one line; file {data!r}") from error
            counts["refused"] += 1
        except BaseException as error:
            raise AssertionError(f"{type(error).__name__}: {error}; file {data!r}") from error
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale - before < MEMORY
    return counts


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def all_pieces(data: bytes, name: str) -> None:
    from lmlab.tokenizers.processors.notes import Events, Grid

    for piece in read_piece(data, name=name):
        Events().encode(piece.music)
        Grid().encode(piece.music)


@pytest.mark.parametrize(
    "kind", ["wav", "midi", "rolls", "jsonl", "npz", "table.tsv", "table.csv", "table.jsonl", "idx"]
)
def test_damaged_files_are_read_or_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    if kind == "midi":
        pytest.importorskip("symusic")
    cases: dict[str, tuple[Callable[[bytes], Any], list[bytes]]] = {
        "wav": (lambda data: decode_sound(data, name="a.wav"), wavs()),
        "midi": (lambda data: all_pieces(data, "a.mid"), [midi()]),
        "rolls": (lambda data: list(read_rolls(data, name="a.json")), rolls()),
        "jsonl": (read_file(lambda path: list(read_episodes([path])), "a.jsonl", tmp_path), episode_lines()),
        "npz": (read_file(lambda path: list(read_episodes([path])), "a.npz", tmp_path), episode_archives()),
        "idx": (read_file(read_idx, "train-images-idx3-ubyte", tmp_path), idx()),
    }
    for number, ending in enumerate(("tsv", "csv", "jsonl")):
        cases[f"table.{ending}"] = (read_file(read_table, f"t.{ending}", tmp_path), [tables()[number]])
    counts = try_all(*cases[kind], seed=sum(map(ord, kind)))
    print(f"{kind}: {counts['read']:,} read, {counts['refused']:,} refused")
    assert counts["refused"] > 0
