"""Finding and reading texts: files, folders, globs, `.gz`, standard input and the built-in corpus.

A text is read in pieces of bounded size and cleaned on the way: a byte order mark is dropped, CRLF becomes LF, bytes
that are not UTF-8 become U+FFFD and NUL bytes are dropped, the last two with a `TextWarning` that says how many.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
import shutil
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from lmlab.data.readers.files import find_binary_kind, open_unpacked

BUILTIN = "builtin"
STANDARD_INPUT = "-"
STANDARD_INPUTS = (STANDARD_INPUT, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
"""All names of standard input."""
BLOCK = 1 << 20
"""Bytes read at a time."""
SNIFFED = 1 << 16
"""The number of bytes by which a binary file is recognized."""
MOST_NULS = 0.05
MOST_STRANGE = 0.3
"""The fractions of NUL bytes, and of control characters and bytes that are not UTF-8, above which a file is binary."""

HOW = "give text files, folders, globs, .gz files, - for standard input, or builtin"


class TextWarning(UserWarning):
    """Something in a text was replaced, dropped or skipped."""


class Source(NamedTuple):
    """One text: a file, or the built-in corpus (path None)."""

    name: str
    path: Path | None


def find(given: Sequence[str | Path], *, spool: Callable[[IO[bytes], str], Path]) -> list[Source]:
    """Return the texts that paths, folders, globs, `-` and `builtin` name, in the order given.

    A folder is searched recursively, ordered by name; hidden files are skipped. Files that are not text are skipped
    with a warning, in folders and among the matches of a glob. `spool` writes a pipe to a file and returns its path.
    """
    if isinstance(given, (str, Path)):
        given = [given]
    if not given:
        raise ValueError(f"no text was given; {HOW}")
    found: list[Source] = []
    for item in given:
        found += _find(str(item), spool)
    unique = list(dict.fromkeys(found))
    if len(unique) < len(found):
        _warn(f"{len(found) - len(unique)} texts were given more than once; each is read once")
    return unique


def is_pipe(name: str | Path) -> bool:
    """Whether a name is that of standard input or of another pipe, which can be read only once."""
    if str(name) in STANDARD_INPUTS:
        return True
    try:
        return stat.S_ISFIFO(os.stat(os.path.expanduser(name)).st_mode)
    except (OSError, ValueError):  # not there, too long for a name, or with a NUL in it
        return False


def keep_stream(stream: IO[bytes], folder: Path, name: str) -> Path:
    """Write a stream that can be read only once to a file, and return its path."""
    path = folder / "stream"
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    if path.stat().st_size == 0:
        raise ValueError(f"{name} is empty; pipe a text into it")
    return path


def _find(item: str, spool: Callable[[IO[bytes], str], Path]) -> list[Source]:
    if item == BUILTIN:
        return [Source(BUILTIN, None)]
    if item in STANDARD_INPUTS:
        if sys.stdin is None:
            raise ValueError(f"there is no standard input here; {HOW}")
        return [Source("standard input", spool(sys.stdin.buffer, "standard input"))]
    path = Path(item).expanduser()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return _find_glob(item, spool)
    except (OSError, ValueError) as error:
        raise ValueError(_why(item, error)) from None
    if stat.S_ISDIR(mode):
        return _find_folder(path)
    if stat.S_ISFIFO(mode):
        with path.open("rb") as pipe:
            return [Source(item, spool(pipe, item))]
    if not stat.S_ISREG(mode):
        raise ValueError(f"{item} is neither a file nor a folder; {HOW}")
    if complaint := _unusable(path):
        raise ValueError(f"{item} cannot be used as a text: it is {complaint}")
    return [Source(item, path)]


def _find_glob(item: str, spool: Callable[[IO[bytes], str], Path]) -> list[Source]:
    if not glob.has_magic(item):
        raise ValueError(f"{item} does not exist; {HOW}")
    matches = sorted(glob.glob(os.path.expanduser(item), recursive=True))
    if not matches:
        raise ValueError(f"no file matches {item}; {HOW}")
    files = [Path(match) for match in matches if Path(match).is_file()]
    texts = dict(zip(map(str, files), _choose_texts(files, where=item), strict=True)) if len(matches) > 1 else {}
    found: list[Source] = []
    for match in matches:
        if match not in texts:
            found += _find(match, spool)
        elif (source := texts[match]) is not None:
            found.append(source)
    if not found:
        raise ValueError(f"no file that matches {item} is a text; {HOW}")
    return found


def _find_folder(folder: Path) -> list[Source]:
    skipped: list[str] = []
    chosen = _choose_texts(list(_walk(folder, set(), skipped)), where=str(folder))
    if skipped:
        _warn(f"{folder}: skipped {_first(skipped)}")
    found = [source for source in chosen if source is not None]
    if not found:
        raise ValueError(f"the folder {folder} contains no text; {HOW}")
    return found


def _choose_texts(files: Sequence[Path], *, where: str) -> list[Source | None]:
    """Return each file as a text, or None if it is not text; one warning counts and names those."""
    chosen: list[Source | None] = []
    skipped: list[str] = []
    for path in files:
        try:
            complaint = _unusable(path)
        except ValueError as error:
            complaint = str(error)
        if complaint:
            skipped.append(f"{path.name} ({complaint})")
        chosen.append(None if complaint else Source(str(path), path))
    if skipped:
        were = "1 file that is not text was" if len(skipped) == 1 else f"{len(skipped)} files that are not text were"
        _warn(f"{where}: {were} skipped: {_first(skipped)}")
    return chosen


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _walk(folder: Path, above: set[tuple[int, int]], skipped: list[str]) -> Iterator[Path]:
    """Yield the regular files under a folder, ordered by name; a link to a folder above is not followed."""
    try:
        status = folder.stat()
        here = (status.st_dev, status.st_ino)
        if here in above:
            skipped.append(f"{folder} (a link to a folder above it)")
            return
        names = sorted(os.listdir(folder))
    except OSError as error:
        skipped.append(_why(str(folder), error))
        return
    for name in names:
        path = folder / name
        if name.startswith("."):
            continue
        try:
            mode = path.stat().st_mode
        except OSError as error:
            skipped.append(_why(str(path), error))
            continue
        if stat.S_ISDIR(mode):
            yield from _walk(path, above | {here}, skipped)
        elif stat.S_ISREG(mode):
            yield path


def _why(item: str, error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{item} cannot be read: {error.strerror.lower()}"
    return f"{item!r} cannot be read: {error}"


def _warn(message: str) -> None:
    warnings.warn(message, TextWarning, stacklevel=3)


def _unusable(path: Path) -> str | None:
    """Return what a file is, by its first bytes, if it cannot be read as text; else None."""
    with open_unpacked(path) as file:
        head = file.read(SNIFFED)
    if not head:
        return "empty"
    if (kind := find_binary_kind(head)) is not None:
        return kind
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16; convert it to UTF-8, for instance with iconv"
    if any(part.count(0) > MOST_NULS * len(part) for part in (head, head[:512])):
        return "binary, or UTF-16 (full of NUL bytes); convert a text to UTF-8, for instance with iconv"
    strange = len(_STRANGE.findall(head.decode(errors="surrogateescape")))
    if strange > MOST_STRANGE * len(head):
        return "binary, or not in UTF-8; convert a text to UTF-8, for instance with iconv"
    return None


_STRANGE = re.compile("[\x01-\x08\x0e-\x1a\x1c-\x1f\udc80-\udcff]")
_UNDECODED = re.compile("[\udc80-\udcff]")


def read(source: Source) -> Iterator[str]:
    """Yield the cleaned text of a file in pieces of about a mebibyte; a final `TextWarning` says what was replaced."""
    assert source.path is not None
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    nuls = undecoded = 0
    held = b""  # a carriage return at the end of a block may be half of CRLF
    first = True
    with open_unpacked(source.path) as file:
        while True:
            block = file.read(BLOCK)
            last = not block
            if first:
                block, first = block.removeprefix(codecs.BOM_UTF8), False
            if 0 in block:
                nuls += block.count(0)
                block = block.replace(b"\0", b"")
            block = held + block
            held = b"\r" if block.endswith(b"\r") and not last else b""
            block = block[: len(block) - len(held)].replace(b"\r\n", b"\n")
            text = decode(block, final=last)
            if not text.isascii() and (bad := len(_UNDECODED.findall(text))):
                undecoded += bad
                text = _UNDECODED.sub("\ufffd", text)
            if text:
                yield text
            if last:
                break
    if undecoded:
        _warn(f"{source.name}: {undecoded:,} bytes that are not UTF-8 were replaced by U+FFFD")
    if nuls:
        _warn(f"{source.name}: {nuls:,} NUL bytes were dropped")


def read_lines(source: Source) -> Iterator[str]:
    """Yield the lines of a text without their newlines, blank ones too; only a newline ends a line."""
    held = ""
    for piece in read(source):
        *lines, rest = piece.split("\n")
        if lines:
            yield held + lines[0]
            yield from lines[1:]
            held = rest
        else:
            held += rest
    if held:
        yield held


def safe_cut(text: str) -> int:
    """Return where a text can be cut without changing its tokens: before the last white space after a word.

    The patterns of GPT-2 and BERT, and splitting at white space, all start a new piece there, and none looks back. If
    there is no such position, the text is cut at its end.
    """
    end = len(text)
    while (position := max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))) > 0:
        if not text[position - 1].isspace():
            return position
        end = position
    return len(text)
