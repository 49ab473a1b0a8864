"""Prepared corpora on disk: a folder each, written under a temporary name and renamed when it is complete."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from lmlab.data.corpora.shards import Shard
from lmlab.files import FullDiskError, is_alive, writing_folder

FORMAT = 1
ABANDONED = 7 * 24 * 3600
"""Seconds after which an unfinished folder of another machine counts as abandoned."""


def open_home(cache: Path) -> Path:
    """Return the folder of all corpora in a cache, without what dead processes left unfinished."""
    home = cache / "corpora"
    try:
        home.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=home)
        os.close(handle)
        os.unlink(name)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ValueError(f"the cache {cache} cannot be written ({why}); set LMLAB_CACHE to a folder that can") from None
    for folder in home.glob(".*"):
        if _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    return home


def temporary(home: Path) -> Path:
    """Return a new folder whose name has the host and the process that writes it."""
    return Path(tempfile.mkdtemp(prefix=f".{socket.gethostname()}~{os.getpid()}~", dir=home))


def _abandoned(folder: Path) -> bool:
    host, _, rest = folder.name[1:].partition("~")
    process = rest.partition("~")[0]
    if not process.isdigit():
        return False
    if host != socket.gethostname():
        with suppress(OSError):
            return time.time() - folder.stat().st_mtime > ABANDONED
        return False
    return int(process) != os.getpid() and not is_alive(int(process))


@contextmanager
def building(folder: Path, key: str, *, read: Callable[[Path, str], object | None] | None = None) -> Iterator[Path]:
    """Give a folder to write into, which becomes `folder` at the end; after an error it is removed.

    If another process was faster, its folder stays: `read` returns its index, or None if it is not complete.
    """
    read = read or read_index
    try:
        with writing_folder(folder, new=temporary(folder.parent), wanted=lambda: read(folder, key) is None) as new:
            yield new
    except (OSError, FullDiskError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{folder.parent} cannot be written ({why}); make room or set LMLAB_CACHE") from None


def write_index(folder: Path, key: str, shards: Mapping[str, Shard], messages: list[list[str]]) -> None:
    """Write the index, which makes a folder a complete corpus."""
    index = {
        "format": FORMAT,
        "key": key,
        "splits": {name: shard._asdict() for name, shard in shards.items()},
        "warnings": messages,
    }
    (folder / "index.json").write_text(json.dumps(index, ensure_ascii=False, indent=1), encoding="utf-8")


def read_index(folder: Path, key: str) -> dict[str, Any] | None:
    """Return the index of a corpus; None if there is none, or a file is missing or has a wrong size."""
    try:
        index: dict[str, Any] = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        if index["format"] != FORMAT or index["key"] != key or not isinstance(index["warnings"], list):
            return None
        json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        for name, values in index["splits"].items():
            shard = Shard(**values)
            sizes = {".tokens": shard.tokens * np.dtype(shard.dtype).itemsize, ".documents": shard.documents * 8}
            if shard.text:
                sizes |= {".txt": shard.bytes, ".places": shard.documents * 16}
            if any((folder / f"{name}{suffix}").stat().st_size != size for suffix, size in sizes.items()):
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return index
