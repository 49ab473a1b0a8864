"""Files of the IDX format, in which MNIST is published: a short header, then bytes; packed with gzip or not."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.files import open_unpacked

NAME = re.compile(r"(?P<part>.*?)[-_.]?(?P<what>images|labels)[-_.]idx(?P<dimensions>\d)[-_.]ubyte(\.gz)?")
"""Names of such files: `train-images-idx3-ubyte.gz`."""
BYTES = 0x08
"""The type of all files of pictures and classes: unsigned bytes."""
MOST = 1 << 32
"""Bytes of a file, at most."""


def is_idx(path: str | Path) -> bool:
    """Whether a file has the name of an IDX file of pictures or of classes."""
    return NAME.fullmatch(Path(path).name.lower()) is not None


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of an IDX file of bytes; a ValueError if its header does not fit its content."""
    with open_unpacked(path) as file:
        magic = file.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != BYTES or not 1 <= magic[3] <= 4:
            raise ValueError(f"{path} is not an IDX file of bytes: it begins with {magic.hex() or 'nothing'}")
        header = file.read(4 * magic[3])
        if len(header) < 4 * magic[3]:
            raise ValueError(f"{path} ends within its header; fetch it again")
        shape = struct.unpack(f">{magic[3]}I", header)
        size = int(np.prod([int(each) for each in shape], dtype=object))
        if size > MOST:
            raise ValueError(f"{path}: its header names {size:,} bytes, more than the {MOST:,} that are read")
        content = file.read(size)
        if len(content) < size or file.read(1):
            found = f"{len(content):,}" if len(content) < size else "more"
            raise ValueError(f"{path}: its header names {size:,} bytes, and it has {found}; fetch it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def find_labels_file(images: Path) -> Path | None:
    """Return the file of classes that belongs to a file of pictures: the same name with `labels-idx1`."""
    match = NAME.fullmatch(images.name.lower())
    if match is None:
        return None
    for path in sorted(images.parent.iterdir()):
        other = NAME.fullmatch(path.name.lower())
        if other is not None and other["what"] == "labels" and other["part"] == match["part"]:
            return path
    return None
