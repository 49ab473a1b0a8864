"""Reading a file of labelled examples whole: UTF-8, and nothing in it is replaced.

A plain text survives a character that is replaced; a label, an answer's place or a tag does not. So what cannot be read
is an error here that names the line, where `text.py` warns and goes on.
"""

from __future__ import annotations

import codecs
import difflib
import os
from pathlib import Path

from lmlab.data.readers.files import find_binary_kind, open_unpacked

SHOWN = 60
"""Characters of a text that a message shows."""


def read_whole(path: Path) -> str:
    """The text of a file that must hold something, unpacked if it is gzip, without byte order mark, LF as line end."""
    text = read_text(path)
    if not text.strip():
        raise ValueError(f"{path} is empty; give a file of labelled examples")
    return text


def read_text(path: Path) -> str:
    """The text of a file, which may be empty; else as `read_whole`."""
    data = _unpack(path)
    if (kind := find_binary_kind(data[:65536])) is not None:
        raise ValueError(f"{path} is no text: it is {kind}")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path} is UTF-16; convert it: iconv -f utf-16 -t utf-8 {path} > new{path.suffix}")
    if (place := data.find(0)) >= 0:
        raise ValueError(f"{path}, line {_line(data, place)}: a NUL byte, so it is no text; give a text in UTF-8")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        place = error.start + len(data) - len(data.removeprefix(codecs.BOM_UTF8))
        raise ValueError(
            f"{path}, line {_line(data, place)}: the byte 0x{data[place]:02x} is not UTF-8; "
            f"convert the file, for instance: iconv -f latin1 -t utf-8 {path} > new{path.suffix}"
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        if "\n" not in text:
            text = text.replace("\r", "\n")
    return text


def shorten(text: object, most: int = SHOWN) -> str:
    """A text as messages show it."""
    shown = str(text)
    return repr(shown if len(shown) <= most else f"{shown[: most - 1]}…")


def list_folder(folder: Path) -> list[Path]:
    """What stands in a folder, in the order of names, without hidden files."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise ValueError(f"{folder} cannot be read: {(error.strerror or str(error)).lower()}") from None


def check_exists(path: Path) -> None:
    """A ValueError that names the nearest file where there is none of this name."""
    if not path.exists():
        near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1) if path.parent.is_dir() else []
        how = f"did you mean {path.parent / near[0]}?" if near else "give a file or a folder of labelled examples"
        raise ValueError(f"{path} does not exist; {how}")


def _unpack(path: Path) -> bytes:
    check_exists(path)
    with open_unpacked(path) as file:
        return file.read()


def _line(data: bytes, place: int) -> int:
    return data.count(b"\n", 0, place) + 1
