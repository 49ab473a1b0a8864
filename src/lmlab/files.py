"""Writing files and folders safely: after a crash there is either the complete old one or the complete new one.

Both are written under a temporary name, synced to disk and renamed; after an error the temporary one is removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class FullDiskError(ValueError):
    """A file could not be written because the disk is full; the old file is intact."""


NO_ROOM = {errno.ENOSPC: "no space left on device", errno.EDQUOT: "disk quota exceeded", errno.EFBIG: "file too large"}


def find_no_room(error: OSError) -> str | None:
    """The reason in words if an error means that the disk is full, else None."""
    return NO_ROOM.get(error.errno) if error.errno is not None else None


# Files


@contextmanager
def writing(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """A temporary name for writing a file, which is synced and renamed at the end, and removed after an error.

    If it is `shared`, several processes may write the file at the same time: each has a temporary name of its own.
    Pipes and devices are written to directly; links are followed.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve() if path.is_symlink() else path
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new" if shared else f".{path.name}.new")
    try:
        yield new
        _sync_file(new)
        os.replace(new, path)
    except BaseException as error:  # also on Ctrl-C
        new.unlink(missing_ok=True)
        if isinstance(error, OSError) and (reason := find_no_room(error)) is not None:
            named = path.with_name(path.name.removeprefix(".").removesuffix(".staged"))
            raise FullDiskError(f"{reason}: {named} could not be written") from None
        raise
    sync_folder(path.parent)


def write_bytes(path: Path, content: bytes, *, shared: bool = False) -> None:
    """Write a file safely."""
    with writing(path, shared=shared) as new:
        new.write_bytes(content)


def write_text(path: Path, content: str, *, shared: bool = False) -> None:
    """Write a text in UTF-8 safely."""
    write_bytes(path, content.encode(), shared=shared)


def digest_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_file(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


# Folders


@contextmanager
def writing_folder(
    path: Path, *, new: Path, previous: Path | None = None, wanted: Callable[[], bool] = lambda: True
) -> Iterator[Path]:
    """The folder `new` to fill, whose files are synced at the end and which then becomes `path`.

    What was at `path` becomes `previous`; without one it is removed. If the folder is not `wanted` any more when it is
    complete, or after an error, `new` is removed and `path` stays as it was.
    """
    if new.exists() and any(new.iterdir()):  # left by a process that was killed
        shutil.rmtree(new)
    new.mkdir(parents=True, exist_ok=True)
    try:
        yield new
        _sync_files(new)
        if wanted():
            _move(new, path, previous)
            sync_folder(path.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _move(new: Path, path: Path, previous: Path | None) -> None:
    try:
        new.rename(path)
        return
    except OSError:
        if not path.is_dir():
            raise
    old = previous or new.with_name(f"{new.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    try:
        with suppress(FileNotFoundError):  # another process has moved it
            path.rename(old)
        new.rename(path)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        elif previous is None:
            shutil.rmtree(old, ignore_errors=True)


def _sync_files(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            _sync_file(Path(root, name))
        sync_folder(Path(root))


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable, on systems that can."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Processes that write


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs; True where the system does not say (Windows)."""
    if process <= 0 or os.name == "nt":
        return process > 0
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True
