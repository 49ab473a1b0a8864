"""Packed files are unpacked as a stream, and only so far: a small file may unpack to more than memory or disk can hold.

Text is packed to a tenth of its size, or a thirtieth. A file that unpacks to more than 100 times its size, and to more
than 64 MiB, is refused. What its header says of its size is not believed: the bytes that come out are counted.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

MOST_TIMES = 100
ALWAYS_ALLOWED = 64 << 20
"""Bytes to which any file may be unpacked."""
BLOCK = 1 << 20
GZIP = b"\x1f\x8b"


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """So many bytes, or all; none at the end."""


class Unpacked:
    """A stream of unpacked bytes; a ValueError names its file where more come out than are allowed.

    All members of an archive share one `Allowance`.
    """

    def __init__(self, inner: Readable, allowance: Allowance) -> None:
        self.inner, self.allowance = inner, allowance

    def read(self, size: int = -1, /) -> bytes:
        if size >= 0:
            return self.allowance.count(self.inner.read(size))
        return b"".join(iter(lambda: self.allowance.count(self.inner.read(BLOCK)), b""))


class Allowance:
    """How many bytes may come out of a packed file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.most = max(ALWAYS_ALLOWED, MOST_TIMES * path.stat().st_size)
        self.done = 0

    def count(self, data: bytes) -> bytes:
        self.done += len(data)
        if self.done > self.most:
            raise ValueError(
                f"{self.path} unpacks to more than {self.most:,} bytes, the limit for a file of its size; if that is "
                "right, unpack it yourself and give the unpacked file"
            )
        return data


@contextmanager
def open_unpacked(path: Path) -> Iterator[Readable]:
    """A file as bytes, unpacked if it is gzip; a ValueError where it is damaged or unpacks to too much."""
    try:
        with path.open("rb") as file:
            if file.peek(2)[:2] == GZIP:
                with gzip.open(file) as unpacked:
                    yield Unpacked(unpacked, Allowance(path))
            else:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is a damaged gzip file ({error}); pack it again") from None


@contextmanager
def open_zip(path: Path) -> Iterator[Iterator[tuple[str, Readable]]]:
    """The files in a zip file in the order of their names, each to be read before the next."""
    allowance = Allowance(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if not name.endswith("/"))
            yield ((name, Unpacked(archive.open(name), allowance)) for name in names)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise ValueError(f"{path} is a damaged zip file, or needs a password ({error}); fetch it again") from None
