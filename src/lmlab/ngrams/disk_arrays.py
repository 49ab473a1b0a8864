"""Arrays and sorting on disk, so that what is counted may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Keys = npt.NDArray[np.uint64]


class DiskArray:
    """A one-dimensional array in a file: it grows at its end, and slices of it are read."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path, self.dtype, self._size = path, np.dtype(dtype), 0
        self._file = path.open("wb")

    def __len__(self) -> int:
        return self._size

    def append(self, values: Array) -> None:
        np.ascontiguousarray(values, self.dtype).tofile(self._file)
        self._size += len(values)

    def read(self, start: int, stop: int) -> Array:
        """A copy in memory of the values from start to stop."""
        self._file.flush()
        return np.fromfile(self.path, self.dtype, max(stop - start, 0), offset=start * self.dtype.itemsize)

    def map(self) -> Array:
        """The whole array, mapped: the system reads the pages that are used."""
        self._file.flush()
        if not self._size:
            return np.empty(0, self.dtype)
        return np.memmap(self.path, self.dtype, "c", shape=(self._size,))

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)


class Buckets:
    """Rows distributed over files, so that each file fits into memory and is read back as a whole."""

    def __init__(self, folder: Path, name: str, dtype: npt.DTypeLike, buckets: int) -> None:
        self.files = [DiskArray(folder / f"{name}-{bucket}", dtype) for bucket in range(buckets)]

    def add(self, rows: Array, bucket: Array) -> None:
        """Append each row to the file of its bucket; rows of one bucket keep their order."""
        if len(self.files) == 1:
            self.files[0].append(rows)
            return
        order = np.argsort(bucket.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=len(self.files)))
        for file, part in zip(self.files, np.split(rows[order], ends[:-1]), strict=True):
            file.append(part)

    def drain(self) -> Iterator[Array]:
        """The rows of one bucket after the other; the files are removed as they are read."""
        for file in self.files:
            rows = file.read(0, len(file))
            file.remove()
            yield rows


class Packing(NamedTuple):
    """Sequences of tokens as 64-bit words that sort like the sequences; the value 0 marks their end."""

    bits: int  # per token
    length: int  # tokens of a whole sequence

    @classmethod
    def of(cls, vocabulary: int, length: int) -> Packing:
        return cls(int(vocabulary).bit_length(), length)

    @property
    def per_word(self) -> int:
        return 64 // self.bits

    @property
    def size(self) -> int:
        """How many words a sequence takes."""
        return -(-self.length // self.per_word)

    def pack(self, columns: Sequence[Array]) -> Keys:
        """Rows [R, W] from one column of values (token + 1, or 0) for each position."""
        packed = np.zeros((len(columns[0]), self.size), np.uint64)
        for position, column in enumerate(columns):
            word = packed[:, position // self.per_word]
            word <<= np.uint64(self.bits)
            word |= column.astype(np.uint64)
        return packed

    def unpack(self, packed: Keys) -> list[Array]:
        """The columns of packed rows."""
        columns = []
        for position in range(self.length):
            word, place = divmod(position, self.per_word)
            held = min(self.per_word, self.length - word * self.per_word)
            value = packed[:, word] >> np.uint64(self.bits * (held - 1 - place))
            columns.append((value & np.uint64((1 << self.bits) - 1)).astype(np.int64))
        return columns

    def word_bits(self, word: int) -> int:
        return self.bits * min(self.per_word, self.length - word * self.per_word)


def sort_order(packed: Keys, packing: Packing) -> npt.NDArray[np.int64]:
    """The order that sorts packed rows; a group of rows that are equal so far and their next word form one number."""
    permutation = np.argsort(packed[:, 0])
    for word in range(1, packing.size):
        before, column = packed[permutation, :word], packed[permutation, word]
        groups = np.cumsum(starts_of_groups(before)) - 1
        if len(groups) and int(groups[-1]).bit_length() + packing.word_bits(word) > 64:
            return np.lexsort(packed.T[::-1])
        permutation = permutation[np.argsort((groups.astype(np.uint64) << np.uint64(packing.word_bits(word))) | column)]
    return permutation


def starts_of_groups(rows: Keys) -> npt.NDArray[np.bool_]:
    """Whether each of the sorted rows [R, W] differs from the one before it."""
    new = np.ones(len(rows), np.bool_)
    np.any(rows[1:] != rows[:-1], axis=1, out=new[1:])
    return new
