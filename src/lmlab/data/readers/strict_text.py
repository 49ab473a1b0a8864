"""Reading a whole file of labelled examples: UTF-8, and nothing in it is replaced.

A plain text survives a character that is replaced; a label, the position of an answer or a tag does not. So here a byte
that cannot be read is an error that names the line, while `text.py` warns and continues.
"""

from __future__ import annotations

import codecs
import difflib
import os
from pathlib import Path

from lmlab.data.readers.files import find_binary_kind, open_unpacked

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
