"""The n-grams of one order, as a model looks them up: exact in memory, or in a few bytes each, mapped from a file.

An n-gram is identified by its rank: n-grams are sorted by the rank of their context, one order lower, and then by their
last token. `Level` and `PackedLevel` have the same methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lmlab.ngrams.counting import Integers, look_up
from lmlab.ngrams.counting_on_disk import NGramFiles, Report
from lmlab.ngrams.disk_arrays import DiskArray
from lmlab.ngrams.smoothing import Floats
from lmlab.ngrams.smoothing_on_disk import Estimates

EXACT = ("keys", "log_probabilities", "log_backoffs")
PACKED = ("starts", "words", "probability_codes", "probability_values", "backoff_codes", "backoff_values")
CODES = 256
CELLS = 4096
SAMPLE_BLOCKS, SAMPLE_BLOCK = 64, 16_384


@dataclass(frozen=True)
class Level:
    """The n-grams of one order, sorted by key (see `counting.py`); natural logarithms."""

    keys: Integers
    log_probabilities: Floats
    log_backoffs: Floats  # all 0 in the highest order
    vocabulary: int
    counts: Integers | None = None  # what the probabilities were estimated from; None where they are not known

    @property
    def size(self) -> int:
        return len(self.keys)

    def find(self, contexts: Integers, words: Integers) -> Integers:
        """The rank of each context with this next token, -1 where it was not seen."""
        return look_up(self.keys, contexts * self.vocabulary + words)

    def children(self, contexts: Integers) -> tuple[Integers, Integers]:
        """The first n-gram of each context, and how many n-grams it has."""
        first = np.searchsorted(self.keys, contexts * self.vocabulary)
        return first, np.searchsorted(self.keys, (contexts + 1) * self.vocabulary) - first

    def last_tokens(self, ranks: Integers) -> Integers:
        return self.keys[ranks] % self.vocabulary

    def unpack(self) -> Level:
        return self

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything by name; `read_level` takes it back."""
        named = {"keys": self.keys, "log_probabilities": self.log_probabilities, "log_backoffs": self.log_backoffs}
        if self.counts is None:
            return named
        smallest = np.min_scalar_type(-1 - self.counts.max(initial=0))  # int8 where no count is above 127
        return {**named, "counts": self.counts.astype(smallest)}


@dataclass(frozen=True)
class Quantized:
    """Numbers that are stored as the index of one of 256 values."""

    codes: npt.NDArray[np.uint8]
    values: Floats  # 256

    def __getitem__(self, ranks: Integers) -> Floats:
        return self.values[self.codes[ranks]]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True)
class PackedLevel:
    """The n-grams of one order from 2 up: their last tokens in the order of their contexts, quantized logarithms."""

    starts: npt.NDArray[Any]  # the first n-gram of each context, and the end of the last one's
    words: npt.NDArray[Any]
    log_probabilities: Quantized
    log_backoffs: Quantized  # empty in the highest order
    vocabulary: int
    counts: None = None  # they are not stored

    @property
    def size(self) -> int:
        return len(self.words)

    def find(self, contexts: Integers, words: Integers) -> Integers:
        """The rank of each context with this next token, -1 where it was not seen: a binary search in each context."""
        low, many = self.children(contexts)
        end = high = low + many
        while (searching := low < high).any():
            middle = (low + high) // 2
            smaller = searching & (self.words[np.where(searching, middle, 0)] < words)
            low, high = np.where(smaller, middle + 1, low), np.where(searching & ~smaller, middle, high)
        found = np.flatnonzero(low < end)
        ranks = np.full(len(words), -1)
        found = found[self.words[low[found]] == words[found]]
        ranks[found] = low[found]
        return ranks

    def children(self, contexts: Integers) -> tuple[Integers, Integers]:
        """The first n-gram of each context, and how many n-grams it has."""
        first = self.starts[contexts].astype(np.int64)
        return first, self.starts[contexts + 1].astype(np.int64) - first

    def last_tokens(self, ranks: Integers) -> Integers:
        return self.words[ranks].astype(np.int64)

    def unpack(self) -> Level:
        """The same n-grams in memory."""
        contexts = np.repeat(np.arange(len(self.starts) - 1), self.children(np.arange(len(self.starts) - 1))[1])
        every = np.arange(self.size)
        backoffs = self.log_backoffs[every] if len(self.log_backoffs) else np.zeros(self.size)
        return Level(contexts * self.vocabulary + self.words, self.log_probabilities[every], backoffs, self.vocabulary)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything by name; `read_level` takes it back."""
        return {
            "starts": self.starts,
            "words": self.words,
            "probability_codes": self.log_probabilities.codes,
            "probability_values": self.log_probabilities.values,
            "backoff_codes": self.log_backoffs.codes,
            "backoff_values": self.log_backoffs.values,
        }


def read_level(
    arrays: Mapping[str, npt.NDArray[Any]], n: int, *, order: int, contexts: int, vocabulary: int
) -> Level | PackedLevel:
    """The level of order n with these `arrays()`, named `n.NAME`; a ValueError if they do not fit the order below."""
    packed = f"{n}.starts" in arrays and n > 1
    names = PACKED if packed else EXACT
    if missing := [f"{n}.{name}" for name in names if f"{n}.{name}" not in arrays]:
        raise ValueError(f"the tensors {missing} of an n-gram of order {order} are missing")
    found = [arrays[f"{n}.{name}"] for name in names]
    if not packed:
        level = Level(found[0], found[1], found[2], vocabulary, arrays.get(f"{n}.counts"))
        if not _is_whole(level, contexts, complete=n == 1):
            raise ValueError(
                f"the tensors {[f'{n}.{name}' for name in names]} do not form one order of an n-gram model with "
                f"{vocabulary} tokens: they need equal lengths, and increasing keys that point to n-grams one order "
                "lower"
            )
        return level
    starts, words, codes, values, backoff_codes, backoff_values = found
    result = PackedLevel(starts, words, Quantized(codes, values), Quantized(backoff_codes, backoff_values), vocabulary)
    if not _is_packed_whole(result, contexts, highest=n == order):
        raise ValueError(
            f"the tensors {n}.* do not form one order of a packed n-gram model with {vocabulary} tokens: they need as "
            "many starts as there are n-grams one order lower, and one more, equal lengths, and 256 values"
        )
    return result


def _is_whole(level: Level, contexts: int, *, complete: bool) -> bool:
    keys = level.keys
    equal = keys.shape == level.log_probabilities.shape == level.log_backoffs.shape
    equal = equal and (level.counts is None or level.counts.shape == keys.shape)
    increasing = bool(np.all(keys[1:] > keys[:-1]))
    within = len(keys) == 0 or 0 <= keys[0] <= keys[-1] < contexts * level.vocabulary
    return equal and increasing and bool(within) and (not complete or len(keys) == level.vocabulary)


def _is_packed_whole(level: PackedLevel, contexts: int, *, highest: bool) -> bool:
    """Lengths, types and bounds; the starts are read once, so that no look-up leaves the file."""
    sizes = len(level.log_probabilities) == level.size and len(level.log_backoffs) == (0 if highest else level.size)
    tables = (level.log_probabilities, level.log_backoffs)
    coded = all(each.codes.dtype == np.uint8 and each.values.shape == (CODES,) for each in tables)
    if not (sizes and coded and len(level.starts) == contexts + 1 and int(level.starts[0]) == 0):
        return False
    last = 0
    for at in range(0, len(level.starts), 2**20):
        part = level.starts[at : at + 2**20].astype(np.int64)
        if part[0] < last or bool((np.diff(part) < 0).any()):
            return False
        last = int(part[-1])
    return last == level.size


def pack(estimates: Estimates, *, minimum_counts: Sequence[int], report: Report) -> list[Level | PackedLevel]:
    """Levels of an estimate in files: single tokens exact, longer n-grams in 3 to 8 bytes each."""
    files = estimates.files
    every = np.arange(files.vocabulary)
    backoffs = estimates.backoffs[1].read(0, files.vocabulary) if files.order > 1 else np.ones(files.vocabulary)
    unigrams = np.minimum(np.log(estimates.probabilities[1].read(0, files.vocabulary)), 0.0)
    levels: list[Level | PackedLevel] = [Level(every, unigrams, np.log(backoffs), files.vocabulary)]
    for n in range(2, files.order + 1):
        report((n - 1) / files.order)
        levels.append(_pack_order(estimates, n, minimum_counts))
    return levels


def _pack_order(estimates: Estimates, n: int, minimum_counts: Sequence[int]) -> PackedLevel:
    files, highest = estimates.files, n == estimates.files.order
    tables = [estimates.probabilities[n]] if highest else [estimates.probabilities[n], estimates.backoffs[n]]
    values = [_choose_values(files, n, table, minimum_counts[n - 1]) for table in tables]
    words, starts = (
        files.file(f"packed-words-{n}", files.last_tokens[n].dtype),
        files.file(f"packed-starts-{n}", files.index),
    )
    codes = [files.file(f"packed-{name}-{n}", np.uint8) for name in ("probabilities", "backoffs")]
    for context, sizes, first, end in files.families(n):
        kept = files.counts(n, first, end) >= minimum_counts[n - 1]
        contexts_kept = files.counts(n - 1, context, context + len(sizes)) >= (minimum_counts[n - 2] if n > 2 else 0)
        before = np.concatenate([[0], np.cumsum(kept)])[np.cumsum(sizes) - sizes]
        starts.append(before[contexts_kept] + len(words))
        words.append(files.last_tokens[n].read(first, end)[kept])
        for table, chosen, code in zip(tables, values, codes, strict=False):
            code.append(_nearest(np.log(table.read(first, end)[kept]), chosen))
    starts.append(np.array([len(words)]))
    if highest:
        values.append(np.zeros(CODES))
    probabilities, backoffs = (Quantized(code.map(), chosen) for code, chosen in zip(codes, values, strict=True))
    return PackedLevel(starts.map(), words.map(), probabilities, backoffs, files.vocabulary)


def _choose_values(files: NGramFiles, n: int, table: DiskArray, least: int) -> Floats:
    """Zero and 255 values for the logarithms of an array, found from a sample.

    They are as dense as the cube root of the numbers' density, which makes the mean squared error smallest (Panter &
    Dite 1951). Each is then moved to the logarithm of the mean of the probabilities that it stands for, so that the
    probabilities of a context still sum to about one.
    """
    blocks = []
    for start in np.linspace(0, max(len(table) - SAMPLE_BLOCK, 0), SAMPLE_BLOCKS, dtype=np.int64).tolist():
        stop = min(start + SAMPLE_BLOCK, len(table))
        blocks.append(np.log(table.read(start, stop)[files.counts(n, start, stop) >= least]))
    sample = np.concatenate(blocks)
    numbers, edges = np.histogram(sample[sample != 0.0], bins=CELLS)
    density = np.concatenate([[0.0], np.cumsum(np.cbrt(numbers))])
    places = (np.arange(CODES - 1) + 0.5) / (CODES - 1) * density[-1]
    values = np.unique([0.0, *np.interp(places, density, edges)])
    nearest = _nearest(sample, values)
    members = np.bincount(nearest, minlength=len(values))
    sums = np.bincount(nearest, np.exp(sample), len(values))
    values = np.where(members > 0, np.log(np.maximum(sums, 1e-300) / np.maximum(members, 1)), values)
    return np.concatenate([values, np.full(CODES - len(values), values[-1])])


def _nearest(numbers: Floats, values: Floats) -> npt.NDArray[np.int64]:
    """The index of the value nearest to each number."""
    return np.searchsorted((values[1:] + values[:-1]) / 2, numbers)
