"""Files: unpacking gzip and zip with a limit, recognizing binary formats, reading UTF-8 strictly, the cache folder.

Text compresses to a tenth or a thirtieth of its size, but a small file can unpack to more than memory or disk can hold.
So a file that unpacks to more than 100 times its size, and to more than 64 MiB, is an error. The unpacked bytes are
counted, because the size in a file's header may be wrong.

Labels, tags and the positions of answers must not change, so `read_text` raises an error that names the line if a byte
is not UTF-8. Plain text for training is read by `text.py`, which replaces such bytes and warns.
"""

from __future__ import annotations

import codecs
import difflib
import gzip
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

MOST_TIMES = 100
ALWAYS_ALLOWED = 64 << 20
"""Bytes to which any file may be unpacked."""
BLOCK = 1 << 20
GZIP = b"\x1f\x8b"


def cache_folder() -> Path:
    """Return the folder of the cache, which is safe to delete at any time: `LMLAB_CACHE`, or the platform's own."""
    if given := os.environ.get("LMLAB_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "lmlab"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "lmlab" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmlab"


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, or all; b"" at the end."""


class Unpacked:
    """A stream of unpacked bytes; a ValueError names the file when the limit is reached.

    All members of an archive share one `UnpackLimit`.
    """

    def __init__(self, inner: Readable, limit: UnpackLimit) -> None:
        self.inner, self.limit = inner, limit

    def read(self, size: int = -1, /) -> bytes:
        if size >= 0:
            return self.limit.count(self.inner.read(size))
        return b"".join(iter(lambda: self.limit.count(self.inner.read(BLOCK)), b""))


class UnpackLimit:
    """The number of bytes that a packed file may unpack to, in all, and for what was read of it so far."""

    def __init__(self, path: Path, *, position: Callable[[], int] | None = None) -> None:
        """`position` returns the number of packed bytes that were read."""
        self.path, self.size, self.done = path, path.stat().st_size, 0
        self.position = position or (lambda: self.size)

    def count(self, data: bytes) -> bytes:
        self.done += len(data)
        self.check(self.done, packed=self.position())
        return data

    def check(self, size: int, *, packed: int) -> None:
        """Raise a ValueError if so many packed bytes may not unpack to that size."""
        limit = max(ALWAYS_ALLOWED, MOST_TIMES * packed)
        if size > limit:
            raise ValueError(
                f"{self.path} unpacks to more than {limit:,} bytes, the limit for a file of its size; if that is "
                "right, unpack it yourself and give the unpacked file"
            )

    def check_entry(self, entry: zipfile.ZipInfo) -> None:
        """Raise a ValueError if an entry of a zip file unpacks to too much; it gives no more than its size says."""
        self.check(entry.file_size, packed=entry.compress_size)


@contextmanager
def open_unpacked(path: Path) -> Iterator[Readable]:
    """Open a file as bytes, unpacked if it is gzip.

    A ValueError names the file if it cannot be read, is damaged, or unpacks to too much.
    """
    try:
        with path.open("rb") as file:
            if file.peek(2)[:2] == GZIP:
                with gzip.open(file) as unpacked:
                    yield Unpacked(unpacked, UnpackLimit(path, position=file.tell))
            else:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is a damaged gzip file ({error}); pack it again") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def read_lines(file: Readable) -> Iterator[bytes]:
    """Yield the lines of a stream without their newlines."""
    held: list[bytes] = []
    while block := file.read(BLOCK):
        *lines, rest = block.split(b"\n")
        if lines:
            yield b"".join([*held, lines[0]])
            yield from lines[1:]
            held = []
        held.append(rest)
    if last := b"".join(held):
        yield last


@contextmanager
def open_zip(path: Path) -> Iterator[Iterator[tuple[str, Readable]]]:
    """Open the files in a zip file, ordered by name; read each before the next."""
    limit = UnpackLimit(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if not name.endswith("/"))
            for name in names:
                limit.check_entry(archive.getinfo(name))
            yield ((name, Unpacked(archive.open(name), limit)) for name in names)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise ValueError(f"{path} is a damaged zip file, or needs a password ({error}); fetch it again") from None


UNPACK = "; unpack it and give the folder"
SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (257, b"ustar", f"a tar archive{UNPACK}"),
    (0, b"PK\x03\x04", f"a zip archive (or an office document, an e-book …){UNPACK}, or save it as plain text"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z archive{UNPACK}"),
    (0, b"Rar!\x1a\x07", f"a rar archive{UNPACK}"),
    (0, b"\xfd7zXZ\x00", "packed with xz; unpack it, or pack it with gzip"),
    (0, b"BZh", "packed with bzip2; unpack it, or pack it with gzip"),
    (0, b"\x28\xb5\x2f\xfd", "packed with zstd; unpack it, or pack it with gzip"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF87a", "a GIF image"),
    (0, b"GIF89a", "a GIF image"),
    (8, b"WEBP", "a WebP image"),
    (0, b"II*\x00", "a TIFF image"),
    (0, b"MM\x00*", "a TIFF image"),
    (0, b"%PDF-", "a PDF document; save it as plain text"),
    (0, b"{\\rtf", "an RTF document; save it as plain text"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an office document; save it as plain text"),
    (0, b"\x7fELF", "a program"),
    (0, b"SQLite format 3\x00", "a SQLite database"),
    (0, b"PAR1", "a Parquet file; write its texts to a plain one"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"OggS", "an Ogg recording"),
    (0, b"ID3", "an MP3 recording"),
    (8, b"WAVE", "a WAV recording"),
    (4, b"ftyp", "a video or a recording"),
)
"""Formats by their signature: its offset, its bytes, and what such a file is."""
PRINTABLE = (b"BZh", b"ID3", b"PAR1", b"OggS", b"WEBP", b"WAVE", b"ftyp", b"GIF87a", b"GIF89a")
"""Signatures that a text may begin with by chance: they count only in a file with control bytes."""
CONTROL = bytes(range(9)) + bytes(range(14, 27))


def find_binary_kind(head: bytes) -> str | None:
    """Return what a file is, by its first bytes; None unless it has a known binary format."""
    for offset, signature, kind in SIGNATURES:
        if head[offset : offset + len(signature)] != signature:
            continue
        if signature not in PRINTABLE or any(byte in head[:512] for byte in CONTROL):
            return kind
    return None


SHOWN = 60
"""The number of characters of a text that a message shows."""


def read_whole(path: Path) -> str:
    """Return the text of a file that must not be empty: unpacked from gzip, without byte order mark, LF as line end."""
    text = read_text(path)
    if not text.strip():
        raise ValueError(f"{path} is empty; give a file of labelled examples")
    return text


def read_text(path: Path) -> str:
    """Return the text of a file as `read_whole` does; it may be empty."""
    data = _unpack(path)
    if (kind := find_binary_kind(data[:65536])) is not None:
        raise ValueError(f"{path} is not text: it is {kind}")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path} is UTF-16; convert it: iconv -f utf-16 -t utf-8 {path} > new{path.suffix}")
    if (position := data.find(0)) >= 0:
        raise ValueError(f"{path}, line {_line(data, position)}: a NUL byte, so it is not text; give a text in UTF-8")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        position = error.start + len(data) - len(data.removeprefix(codecs.BOM_UTF8))
        raise ValueError(
            f"{path}, line {_line(data, position)}: the byte 0x{data[position]:02x} is not UTF-8; "
            f"convert the file, for instance: iconv -f latin1 -t utf-8 {path} > new{path.suffix}"
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        if "\n" not in text:
            text = text.replace("\r", "\n")
    return text


def shorten(text: object, most: int = SHOWN) -> str:
    """Return a short form of a text for messages."""
    shown = str(text)
    return repr(shown if len(shown) <= most else f"{shown[: most - 1]}…")


def is_file(path: Path) -> bool:
    """Whether there is a file; False for a name that no file can have, such as one of thousands of letters."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def list_folder(folder: Path) -> list[Path]:
    """Return the files and folders in a folder, ordered by name, without hidden ones."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise ValueError(f"{folder} cannot be read: {(error.strerror or str(error)).lower()}") from None


def check_exists(path: Path) -> None:
    """Raise a ValueError that names the nearest file if a path does not exist."""
    if not path.exists():
        near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1) if path.parent.is_dir() else []
        how = f"did you mean {path.parent / near[0]}?" if near else "give a file or a folder of labelled examples"
        raise ValueError(f"{path} does not exist; {how}")


def _unpack(path: Path) -> bytes:
    check_exists(path)
    with open_unpacked(path) as file:
        return file.read()


def _line(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1
