"""Reading the files of runs: they may be copied from anywhere, so nothing in them is trusted.

Only regular files in the studio's folder are read: a pipe would hang, and a link could lead to any file of the
user. JSON that is too large, too deep or no table counts as damaged, so that one run cannot break the list of all.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

LARGEST = 2**22
"""Bytes of a JSON file; what is larger is no table."""
DEEPEST_JSON = 32
"""Levels of a JSON file; those of a run have six."""
READ_FOLDERS = ("last", "last.new", "previous", "states")
"""Folders of a run that are read when it is loaded."""


class UnreadableError(ValueError):
    """A file of a run is damaged, or is none that the studio reads."""


def open_inside(path: Path) -> BinaryIO:
    """Open a file of a run; an OSError if it is a link, which may lead out of the folder, or a pipe, which may hang."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(number, "rb")


def read(path: Path) -> dict[str, Any]:
    """The table in a JSON file; an empty one if the file is missing or damaged."""
    try:
        return read_strictly(path)
    except UnreadableError:
        return {}


def read_strictly(path: Path) -> dict[str, Any]:
    """The same; an `UnreadableError` where the file is there and damaged."""
    try:
        with open_inside(path) as file:
            raw = file.read(LARGEST + 1)
    except OSError:
        return {}
    if len(raw) > LARGEST:
        raise UnreadableError(f"{path.name} is damaged: it is larger than {LARGEST:,} bytes")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise UnreadableError(f"{path.name} is damaged: it is not JSON, or nested too deeply") from None
    if not isinstance(found, dict) or _is_deep(found):
        raise UnreadableError(f"{path.name} is damaged: it is not a table, or nested too deeply")
    return found


def _is_deep(value: Any) -> bool:
    """Whether a value has more levels than `DEEPEST_JSON`; without recursion, which is what deep values would break."""
    level = [value]
    for _ in range(DEEPEST_JSON):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def read_tail(path: Path, size: int = 65536) -> list[dict[str, Any]]:
    """The tables in the last whole lines of a file of JSON lines."""
    try:
        with open_inside(path) as file:
            file.seek(0, os.SEEK_END)
            start = max(0, file.tell() - size)
            file.seek(start)
            raw = file.read(size).split(b"\n")
    except OSError:
        return []
    return list(parse_lines(raw[1 if start else 0 : -1]))


def parse_lines(raw: list[bytes]) -> Iterator[dict[str, Any]]:
    """Lines of JSON that are tables; others are passed over."""
    for line in raw:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def is_number(value: Any) -> bool:
    """Whether a value of a JSON file is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, with all links followed, leads to a regular file or a folder inside `folder`."""
    real = Path(os.path.realpath(path))
    try:
        mode = os.stat(real).st_mode
    except OSError:
        return False
    return real.is_relative_to(folder) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_files(run: Path, folder: Path) -> None:
    """An `UnreadableError` names a file of a run that loading it would read and that is no regular file in `folder`."""
    for path in _files(run, depth=0):
        if not is_inside(path, folder):
            raise UnreadableError(
                f"{path.relative_to(run)} is a link that leads out of the folder, or not a regular file; copy the file "
                "itself into the run"
            )


def _files(folder: Path, *, depth: int) -> Iterator[Path]:
    """All files in a run and in those of its folders that are read; links are listed, not followed."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            if depth or entry.name in READ_FOLDERS:
                yield from _files(Path(entry.path), depth=depth + 1)
        else:
            yield Path(entry.path)
