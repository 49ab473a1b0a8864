"""Documents: where they begin and end, and the file in which their cleaned text is gathered."""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.builtin_corpus import builtin_documents
from lmlab.data.readers.text import Source, read, safe_cut
from lmlab.tokenizers.engines import BOUNDARY

SEPARATORS = {"file": "", "lines": "\n", "blank": "\n\n", "endoftext": f"\n{BOUNDARY}\n"}
"""What counts as a document, with the separator of two documents: a file, a line, the lines between blank lines, or the
lines between lines that are `<|endoftext|>`."""
PIECE = 1 << 20
"""The number of bytes of a document that are encoded at a time."""

Report = Callable[[int], None]


class Documents(NamedTuple):
    """Documents in a file: byte ranges, in order."""

    path: Path
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    names: list[str] | None  # of each document, where each is a file

    def part(self, chosen: NDArray[np.bool_]) -> Documents:
        """Return the chosen documents."""
        names = None if self.names is None else [self.names[i] for i in np.flatnonzero(chosen)]
        return Documents(self.path, self.starts[chosen], self.ends[chosen], names)

    def between(self, low: int, high: int) -> Documents:
        """Return the documents between two byte positions; documents across them are cut."""
        starts, ends = self.starts.clip(low, high), self.ends.clip(low, high)
        return Documents(self.path, starts, ends, self.names).part(ends > starts)

    @property
    def size(self) -> int:
        """The number of bytes of text."""
        return int((self.ends - self.starts).sum())

    def pieces(self) -> Iterator[tuple[bool, str]]:
        """Yield the text in pieces (whether it ends its document, text), cut where tokenizers start a new piece."""
        with self.path.open("rb") as file:
            for start, end in zip(self.starts, self.ends, strict=True):
                file.seek(start)
                yield from _read_range(file, int(end - start))

    def sample(self, most: int) -> Iterator[str]:
        """Yield at most about `most` bytes, taken evenly from all of the text; all of it if it is not longer.

        The order is such that the first half of a sample is taken evenly from all of the text, too.
        """
        fraction = most / max(1, self.size)
        if fraction >= 1:
            yield from (text for _, text in self.pieces())
            return
        seen = taken = 0
        chosen: list[tuple[int, int, bool]] = []
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            for position in range(start, end, PIECE):
                length = min(PIECE, end - position)
                seen += length
                if taken + length <= fraction * seen:
                    chosen.append((position, length, length == end - start))
                    taken += length
        with self.path.open("rb") as file:
            for position, length, whole in (part for first in range(8) for part in chosen[first::8]):
                file.seek(position)
                text = file.read(length).decode(errors="ignore")
                yield text if whole else text[: safe_cut(text)]


def _read_range(file: IO[bytes], length: int) -> Iterator[tuple[bool, str]]:
    """Yield the next `length` bytes of a file as pieces of text, with whether each is the last."""
    if length <= PIECE:
        yield True, file.read(length).decode()
        return
    decode = codecs.getincrementaldecoder("utf-8")().decode
    held = ""
    while length > 0:
        block = file.read(min(PIECE, length))
        length -= len(block)
        text = held + decode(block)
        cut = safe_cut(text) if length else len(text)
        held = text[cut:]
        yield not length, text[:cut]


class Gatherer:
    """Writes documents one after another to a file, and keeps their positions and hashes."""

    def __init__(self, path: Path, *, how: str) -> None:
        self.path = path
        self.how = how
        self._file = path.open("wb")
        self._starts, self._ends, self._hashes = array("q"), array("q"), array("Q")
        self._names: list[str] = []
        self._place = 0
        self._hash = blake2b(digest_size=8)

    def add(self, source: Source, report: Report) -> None:
        """Add the documents of a source."""
        if source.path is None:
            for name, text in builtin_documents():
                self._add(name, iter([text]), report)
        else:
            self._add(source.name, read(source), report)

    def _add(self, name: str, pieces: Iterator[str], report: Report) -> None:
        separator = SEPARATORS[self.how].encode()
        open_document = False
        for begins, text in _SPLITTERS[self.how](pieces):
            if begins:
                if open_document:
                    self._end(separator)
                self._starts.append(self._place)
                if self.how == "file":
                    self._names.append(name)
                open_document = True
            data = text.encode()
            self._file.write(data)
            self._hash.update(data)
            self._place += len(data)
            report(len(data))
        if open_document:
            self._end(separator)

    def _end(self, separator: bytes) -> None:
        self._ends.append(self._place)
        self._hashes.append(int.from_bytes(self._hash.digest(), "little"))
        self._hash = blake2b(digest_size=8)
        self._file.write(separator)
        self._place += len(separator)

    def close(self) -> tuple[Documents, NDArray[np.uint64]]:
        """Close the file; return the documents, and a hash of the text of each."""
        self._file.close()
        names = self._names if self.how == "file" else None
        starts, ends = (np.frombuffer(positions, np.int64) for positions in (self._starts, self._ends))
        return Documents(self.path, starts, ends, names), np.frombuffer(self._hashes, np.uint64)


def _whole(pieces: Iterator[str]) -> Iterator[tuple[bool, str]]:
    begins = True
    for piece in pieces:
        yield begins, piece
        begins = False


def _lines(pieces: Iterator[str]) -> Iterator[tuple[bool, str]]:
    """Yield lines in parts (whether a line begins, text without its newline); blank lines are left out."""
    begins = True
    for piece in pieces:
        head, *rest = piece.split("\n")
        if head:
            yield begins, head
            begins = False
        for line in rest:
            begins = True
            if line:
                yield True, line
                begins = False


def _paragraphs(pieces: Iterator[str]) -> Iterator[tuple[bool, str]]:
    return _between(pieces, lambda line: not line.strip())


def _marked(pieces: Iterator[str]) -> Iterator[tuple[bool, str]]:
    return _between(pieces, lambda line: line.strip() == BOUNDARY)


def _between(pieces: Iterator[str], separates: Callable[[str], bool]) -> Iterator[tuple[bool, str]]:
    """Yield the text between separating lines; the newlines inside a document belong to it."""
    within = False
    at_start = True  # of a line
    for part, ended in _line_parts(pieces):
        if at_start and ended and separates(part):
            within = False
        elif part or ended:
            yield not within, ("\n" if within and at_start else "") + part
            within = True
        at_start = ended


def _line_parts(pieces: Iterator[str]) -> Iterator[tuple[str, bool]]:
    """Yield lines without their newline and True; of a line longer than a piece, all parts but the last with False."""
    held = ""
    for piece in pieces:
        *lines, rest = piece.split("\n")
        if lines:
            lines[0] = held + lines[0]
            held = ""
            for line in lines:
                yield line, True
        held += rest
        if len(held) > PIECE:
            yield held, False
            held = ""
    if held:
        yield held, True


_SPLITTERS: dict[str, Callable[[Iterator[str]], Iterator[tuple[bool, str]]]] = {
    "file": _whole,
    "lines": _lines,
    "blank": _paragraphs,
    "endoftext": _marked,
}


def gather(sources: Sequence[Source], path: Path, *, how: str, report: Report) -> tuple[Documents, NDArray[np.uint64]]:
    """Write the cleaned documents of all sources to a file; a ValueError if there is only white space."""
    gatherer = Gatherer(path, how=how)
    for source in sources:
        gatherer.add(source, report)
    documents, hashes = gatherer.close()
    if not any(text.strip() for _, text in documents.pieces()):
        names = ", ".join(source.name for source in sources[:3])
        raise ValueError(f"{names}: there is nothing but white space in the text; give a text with words")
    return documents, hashes
