"""The pictures of a data set and where each is read from: a file, an entry of a zip file, an array, or regions.

A row names its picture as a `PictureSource`, which decodes it when it is needed.
"""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.files import ALWAYS_ALLOWED, MOST_TIMES
from lmlab.data.readers.media import Regions as Regions
from lmlab.data.readers.pictures.decoding import MOST_BYTES, BadPictureError, decode_picture, picture_size, read_bytes


class PictureSource(Protocol):
    """Where a picture is read from; hashable, and equal for the same place."""

    @property
    def name(self) -> str:
        """The path of the picture, for messages."""

    def digest(self) -> str:
        """A hash that changes when the picture changes; equal for equal content."""

    def size(self) -> tuple[int, int, int]:
        """Height, width and channels (1 or 3), without decoding where possible; a BadPictureError if unreadable."""

    def read(self) -> NDArray[np.uint8]:
        """The pixels [H, W, C]; a BadPictureError if it cannot be read."""


@dataclass(frozen=True)
class FileSource:
    """A picture in a file of its own."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def digest(self) -> str:
        return hashlib.sha256(read_bytes(self.path)).hexdigest()

    def size(self) -> tuple[int, int, int]:
        return picture_size(read_bytes(self.path), name=self.name)

    def read(self) -> NDArray[np.uint8]:
        return decode_picture(read_bytes(self.path), name=self.name)


@dataclass(frozen=True)
class ZipSource:
    """A picture in a zip file."""

    archive: Archive
    entry: str

    @property
    def name(self) -> str:
        return f"{self.archive.path}/{self.entry}"

    def digest(self) -> str:
        return hashlib.sha256(self.archive.read(self.entry)).hexdigest()

    def size(self) -> tuple[int, int, int]:
        return picture_size(self.archive.read(self.entry), name=self.name)

    def read(self) -> NDArray[np.uint8]:
        return decode_picture(self.archive.read(self.entry), name=self.name)


@dataclass(frozen=True, eq=False)
class ArraySource:
    """A picture of an array that was read at once."""

    pixels: NDArray[np.uint8]  # [N, H, W] or [N, H, W, C]
    number: int
    path: str

    @property
    def name(self) -> str:
        return f"{self.path}#{self.number}"

    def digest(self) -> str:
        return hashlib.sha256(f"{self.pixels.shape[1:]}".encode() + self.pixels[self.number].tobytes()).hexdigest()

    def size(self) -> tuple[int, int, int]:
        return self.read().shape[0], self.read().shape[1], self.read().shape[2]

    def read(self) -> NDArray[np.uint8]:
        picture: NDArray[np.uint8] = self.pixels[self.number]
        return picture[..., None] if picture.ndim == 2 else picture


@dataclass(frozen=True)
class RegionSource:
    """A picture that is known by the vectors of its regions alone: it has no pixels. A group stays in one split."""

    name: str
    group: str

    def digest(self) -> str:
        return hashlib.sha256(f"regions {self.group}".encode()).hexdigest()

    def size(self) -> tuple[int, int, int]:
        return self.read().shape[0], self.read().shape[1], self.read().shape[2]

    def read(self) -> NDArray[np.uint8]:
        return np.zeros((4, 4, 1), np.uint8)


@dataclass(frozen=True)
class Archive:
    """A zip file of pictures; entries are read into memory, and never written to disk."""

    path: Path

    @cached_property
    def entries(self) -> dict[str, int]:
        """The names of its files with their sizes; a ValueError if it is damaged or would unpack to too much."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                found = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
        except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
            raise ValueError(f"{self.path} is a damaged zip file ({error}); fetch it again") from None
        limit = max(ALWAYS_ALLOWED, MOST_TIMES * self.path.stat().st_size)
        if sum(found.values()) > limit:
            raise ValueError(
                f"{self.path} unpacks to more than {limit:,} bytes, the limit for a file of its size; if that is "
                "right, unpack it yourself and give the folder"
            )
        return found

    def read(self, entry: str) -> bytes:
        """Return the bytes of an entry; a BadPictureError if it is damaged or larger than its header says."""
        limit = min(MOST_BYTES, self.entries[entry])
        try:
            with self._opened().open(entry) as file:
                data = file.read(limit + 1)
        except Exception as error:  # damaged entries raise errors of several modules
            raise BadPictureError(f"{self.path}/{entry} cannot be unpacked: {error}") from None
        if len(data) > limit:
            raise BadPictureError(f"{self.path}/{entry} unpacks to more than {limit:,} bytes")
        return data

    def _opened(self) -> zipfile.ZipFile:
        """The file, opened once by each thread: its directory is long to read, and a handle is not shared."""
        if not hasattr(self._handles, "file"):
            self._handles.file = zipfile.ZipFile(self.path)
        found: zipfile.ZipFile = self._handles.file
        return found

    @cached_property
    def _handles(self) -> threading.local:
        return threading.local()


class PictureRow(NamedTuple):
    """A row of a data set: a picture with its class or its texts."""

    picture: PictureSource
    label: str | None = None
    texts: Mapping[str, str] = {}  # by field: caption, question, sentence
    regions: Regions | None = None
    where: str = ""  # file and line, for messages


class LazyRows(Sequence[PictureRow]):
    """The rows of a built-in split; they are made when the first of them is read, or their number is asked for."""

    def __init__(self, make: Callable[[], list[PictureRow]]) -> None:
        self._make = make

    @cached_property
    def _rows(self) -> list[PictureRow]:
        return self._make()

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, number: int) -> PictureRow: ...

    @overload
    def __getitem__(self, number: slice) -> list[PictureRow]: ...

    def __getitem__(self, number: int | slice) -> PictureRow | list[PictureRow]:
        return self._rows[number]


@dataclass(frozen=True, kw_only=True)
class PictureFiles:
    """The rows of a data set by split; None for a split that it does not have."""

    train: Sequence[PictureRow]
    valid: Sequence[PictureRow] | None = None
    test: Sequence[PictureRow] | None = None
    format: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
