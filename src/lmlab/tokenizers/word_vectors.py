"""Words with a vector each, and the two text formats in which they are passed on.

word2vec's text format begins with a line "count width", GloVe's has no such line; then both have one word per line with
its numbers after it, separated by spaces. Words are in the order of falling frequency, as both tools write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmlab.files import writing

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class WordVectors:
    """Words, and a vector for each of them [V, D]."""

    words: Sequence[str]
    vectors: Floats

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.words) != len(self.vectors):
            raise ValueError(f"{len(self.words)} words and vectors of shape {self.vectors.shape}: give one for each")

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The row of each word; the first, if a word occurs twice."""
        return {word: number for number, word in reversed(list(enumerate(self.words)))}

    @cached_property
    def directions(self) -> Floats:
        """The vectors scaled to length one, so that a product of two is their cosine; a zero vector stays zero."""
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        return np.asarray(self.vectors / np.maximum(lengths, 1e-12), np.float32)

    def find(self, word: str) -> int | None:
        """The row of a word, or of its lower case where it is not there itself."""
        return self.numbers.get(word, self.numbers.get(word.lower()))


def read_word_vectors(path: str | Path, *, only: Iterable[str] | None = None) -> WordVectors:
    """The vectors of a file in word2vec's or GloVe's text format; with `only`, those of these words.

    A word may contain spaces (GloVe's 840B has some), so the numbers are counted from the end of a line. A ValueError
    names the line that has too few of them, or something else than numbers, and a file that has not as many lines as
    its first one says.
    """
    path, wanted = Path(path), None if only is None else set(only)
    if not path.is_file():
        raise ValueError(f"{path} is not a file: give word vectors in word2vec's or GloVe's text format")
    words: list[str] = []
    rows: list[Floats] = []
    width, promised, seen = None, None, 0
    with open(path, encoding="utf-8", errors="strict") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                parts = line.rstrip("\r\n ").split(" ")
                if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
                    promised, width = map(int, parts)
                    continue
                seen += 1
                width = len(parts) - 1 if width is None else width
                word = " ".join(parts[: max(0, len(parts) - width)])
                if width < 1 or not word:
                    if width and len(parts) == width + 1:
                        raise ValueError(
                            f"{path}, line {number} has no word before its numbers; correct or remove the line"
                        )
                    raise ValueError(
                        f"{path}, line {number}: {max(0, len(parts) - 1)} numbers after a word, and the vectors of "
                        f"this file have {width}; correct or remove the line"
                    )
                if wanted is not None and word not in wanted:
                    continue
                rows.append(_numbers(parts[-width:], path, number))
                words.append(word)
        except UnicodeDecodeError:
            raise ValueError(
                f"{path} is not UTF-8 text: word2vec's binary format is not read; write it as text first"
            ) from None
    if width is None:
        raise ValueError(f"{path} contains no word vectors: it is empty")
    if promised not in (None, seen):
        raise ValueError(
            f"{path} has {seen:,} vectors, and its first line says {promised:,}: it may have been cut off; get it "
            "again, or correct that line"
        )
    return WordVectors(words, np.stack(rows) if rows else np.zeros((0, width), np.float32))


def _numbers(parts: list[str], path: Path, line: int) -> Floats:
    try:
        found = np.array(parts, dtype=np.float32)
    except ValueError:
        wrong = next(part for part in parts if not _is_number(part))
        raise ValueError(f"{path}, line {line}: {wrong!r} is not a number; correct or remove the line") from None
    if not np.isfinite(found).all():
        raise ValueError(f"{path}, line {line}: a number of the vector is not finite; correct or remove the line")
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_word_vectors(vectors: WordVectors, path: str | Path, *, header: bool = True) -> None:
    """Write vectors as text: with a first line "count width" (word2vec) or without (GloVe).

    Each number is written with as many digits as it takes to read the very same float again.
    """
    path = Path(path)
    if wrong := [word for word in vectors.words if not word or any(letter.isspace() for letter in word)]:
        raise ValueError(f"{wrong[0]!r} cannot be written as a word: the format has spaces between word and numbers")
    with writing(path) as new, open(new, "w", encoding="utf-8", newline="\n") as file:
        if header:
            file.write(f"{len(vectors.words)} {vectors.width}\n")
        for word, row in zip(vectors.words, vectors.vectors, strict=True):
            file.write(f"{word} {' '.join(map(str, row.astype(np.float32)))}\n")
