"""Count the n-grams of texts larger than memory, in passes over files that are read and written in order.

1. All windows of n tokens are distributed over buckets that fit into memory, and sorted.
2. The distinct prefixes of the sorted windows are the n-grams of all orders, in the order of a trie: n-grams with the
   same context are neighbours.
3. The n-grams of each order are sorted without their first token. The size of each group is how many different tokens
   precede the shorter n-gram, its adjusted count (Kneser & Ney 1995).

KenLM estimates by sorting on disk, too (Heafield et al. 2013); there each order is sorted by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lmlab.ngrams.counting import Integers
from lmlab.ngrams.disk_arrays import Array, Buckets, DiskArray, Keys, Packing, sort_order, starts_of_groups

Report = Callable[[float], None]
ROW_BYTES = 224
"""Memory that a row takes while a bucket is sorted: the row, its order, and the copies between."""
MOST_BUCKETS = 128
SAMPLES = 4096
"""Places in the text from which windows are taken, to find buckets of about equal size."""


class NGramFiles:
    """The n-grams of all orders in files, in the order of a trie, with their counts.

    Each mapping has one array per order. An n-gram is its place in that order (its rank), as in `levels.py`.

    - `last_tokens`: the last token of each n-gram.
    - `starts`: the first of the longer n-grams that begin with it (its children), and the end of the last one's.
    - `seen`: how often all n-grams before it were seen; the difference of two neighbours is a count.
    - `after_boundary`: the range of n-grams that begin with the boundary. Nothing precedes these.
    - `preceding`: how many different tokens precede each of the other n-grams, in their order.
    - `by_suffix`: the ranks of the n-grams, sorted by their tokens without the first.
    """

    def __init__(self, folder: Path, *, vocabulary: int, order: int, tokens: int, memory: int) -> None:
        self.folder, self.vocabulary, self.order = folder, vocabulary, order
        self.rows = max(memory // ROW_BYTES, 1024)  # how many are in memory at a time
        self.buckets = -(-tokens // self.rows)
        if self.buckets > MOST_BUCKETS:
            least = -(-tokens * ROW_BYTES // (MOST_BUCKETS * 10**6))
            raise ValueError(
                f"{memory // 10**6} MB of memory are too little to sort {tokens:,} tokens; give at least {least}M"
            )
        self.index: npt.DTypeLike = np.uint32 if tokens < 2**32 else np.uint64
        token = np.uint16 if vocabulary <= 2**16 else np.uint32
        self.unigrams = np.zeros(vocabulary, np.int64)
        self.preceding_unigrams = self.unigrams
        self.after_boundary = dict.fromkeys(range(1, order + 1), (0, 0))
        self.last_tokens = {n: self.file(f"last-tokens-{n}", token) for n in range(2, order + 1)}
        self.seen = {n: self.file(f"seen-{n}", self.index) for n in range(2, order + 1)}
        self.starts = {n: self.file(f"starts-{n}", self.index) for n in range(1, order)}
        self.preceding = {n: self.file(f"preceding-{n}", self.index) for n in range(2, order)}
        self.by_suffix = {n: self.file(f"by-suffix-{n}", self.index) for n in range(3, order + 1)}

    def file(self, name: str, dtype: npt.DTypeLike) -> DiskArray:
        return DiskArray(self.folder / name, dtype)

    def size(self, n: int) -> int:
        """How many n-grams there are of an order."""
        return self.vocabulary if n == 1 else len(self.last_tokens[n])

    def counts(self, n: int, start: int, stop: int) -> Integers:
        """How often each n-gram from start to stop was seen."""
        if n == 1:
            return self.unigrams[start:stop]
        seen: Integers = self.seen[n].read(start, stop + 1).astype(np.int64)
        return seen[1:] - seen[:-1]

    def adjusted_counts(self, n: int, start: int, stop: int) -> Integers:
        """How many tokens precede each n-gram; its count in the highest order and where it begins with the boundary."""
        if n == self.order:
            return self.counts(n, start, stop)
        if n == 1:
            return self.preceding_unigrams[start:stop]
        first, last = (min(max(at, start), stop) for at in self.after_boundary[n])
        without_preceding = self.after_boundary[n][1] - self.after_boundary[n][0]  # they are left out of `preceding`
        parts = [self.counts(n, first, last)]
        if start < first:
            parts.insert(0, self.preceding[n].read(start, first))
        if last < stop:
            parts.append(self.preceding[n].read(last - without_preceding, stop - without_preceding))
        counts: Integers = np.concatenate(parts).astype(np.int64)
        return counts

    def chunks(self, n: int) -> Iterator[tuple[int, int]]:
        """Ranges of n-grams of one order, as many as fit into memory."""
        size = self.size(n)
        return ((start, min(start + self.rows, size)) for start in range(0, size, self.rows))

    def families(self, n: int) -> Iterator[tuple[int, Integers, int, int]]:
        """Order n in parts that hold all n-grams of their contexts.

        Each part is the rank of its first context, how many n-grams each context has, its first n-gram and its end.
        """
        for start, stop in self.chunks(n - 1):
            starts = self.starts[n - 1].read(start, stop + 1).astype(np.int64)
            for low, high in cut_groups(starts[1:] - starts[:-1], self.rows):
                yield start + low, starts[low + 1 : high + 1] - starts[low:high], int(starts[low]), int(starts[high])


def cut_groups(sizes: Integers, limit: int) -> Iterator[tuple[int, int]]:
    """Cut consecutive groups of these sizes into runs with at most `limit` members together, or of one group."""
    ends, low = np.cumsum(sizes), 0
    while low < len(sizes):
        before = int(ends[low - 1]) if low else 0
        high = max(int(np.searchsorted(ends, before + limit, side="right")), low + 1)
        yield low, high
        low = high


class NGramCounter:
    """From a stream of tokens to the files of its n-grams."""

    def __init__(self, files: NGramFiles, tokens: npt.NDArray[np.integer], *, boundary: int) -> None:
        self.files, self.boundary, self.tokens = files, boundary, tokens
        self.added = 0 if len(tokens) and tokens[0] == boundary else 1  # a boundary in front
        self.size = len(tokens) + self.added
        if self.size < 2:
            raise ValueError("the text has no token after its boundary; an n-gram needs at least one to count")
        self.packing = Packing.of(files.vocabulary, files.order)
        self.splitters = self._find_splitters()
        self.windows = Buckets(files.folder, "windows", self._row(self.packing, "count"), files.buckets)
        self.suffixes = {
            n: Buckets(
                files.folder, f"suffixes-{n}", self._row(Packing(self.packing.bits, n - 1), "rank"), files.buckets
            )
            for n in range(3, files.order + 1)
        }

    def _row(self, packing: Packing, value: str) -> np.dtype[np.void]:
        return np.dtype([("key", np.uint64, (packing.size,)), (value, self.files.index)])

    def _stream(self, start: int, stop: int) -> Integers:
        """The tokens from start to stop, checked; the stream begins with a boundary."""
        chunk = np.asarray(self.tokens[max(start - self.added, 0) : stop - self.added]).astype(np.int64)
        if len(chunk) and (chunk.min() < 0 or chunk.max() >= self.files.vocabulary):
            wrong = chunk.min() if chunk.min() < 0 else chunk.max()
            raise ValueError(
                f"token {wrong} is outside the vocabulary of {self.files.vocabulary}; encode with the model's tokenizer"
            )
        return np.concatenate([[self.boundary], chunk]) if start < self.added else chunk

    def _read_windows(self, start: int, stop: int) -> list[Integers]:
        """From each position on the tokens, plus 1, up to the order, a boundary or the end of the text; then zeros."""
        stream = self._stream(start, min(stop + self.files.order - 1, self.size))
        columns, inside = [], np.ones(stop - start, np.bool_)
        for ahead in range(self.files.order):
            column = np.zeros(stop - start, np.int64)
            present = stream[ahead : ahead + stop - start]
            column[: len(present)] = present + 1
            columns.append(np.where(inside, column, 0))
            if ahead:
                inside &= column != self.boundary + 1
        return columns

    def _find_splitters(self) -> Keys:
        """The first words of windows, taken at random, that divide all windows into buckets of about equal size."""
        places = np.random.default_rng(0).integers(0, self.size, min(SAMPLES, self.size))
        windows = [self.packing.pack(self._read_windows(at, min(at + 64, self.size))) for at in places.tolist()]
        ranked = np.sort(np.concatenate(windows)[:, 0])
        return ranked[np.linspace(0, len(ranked), self.files.buckets, endpoint=False)[1:].astype(np.int64)]

    def _bucket(self, keys: Keys, packing: Packing) -> Array:
        """The bucket of each key: where its first 64-bit word is among the splitters, which are those of windows.

        A key of fewer tokens is shifted to where these tokens are in a window.
        """
        shift = self.packing.word_bits(0) - packing.word_bits(0)
        return np.searchsorted(self.splitters, keys[:, 0] << np.uint64(shift), side="right")

    def sort_windows(self, report: Report) -> None:
        """Count single tokens, and distribute the windows of two tokens or more."""
        for start in range(0, self.size, self.files.rows):
            report(start / self.size)
            columns = self._read_windows(start, min(start + self.files.rows, self.size))
            predicted = columns[0] if start else columns[0][1:]
            self.files.unigrams += np.bincount(predicted - 1, minlength=self.files.vocabulary)
            if self.files.order > 1:
                packed = self.packing.pack(columns)[columns[1] > 0]
                rows = self._unique(packed, np.ones(len(packed), np.int64))
                self.windows.add(rows, self._bucket(rows["key"], self.packing))

    def _unique(self, packed: Keys, counts: Integers) -> Array:
        """The distinct windows, sorted, each with the sum of its counts."""
        permutation = sort_order(packed, self.packing)
        packed = packed[permutation]
        first = np.flatnonzero(starts_of_groups(packed))
        rows = np.empty(len(first), self._row(self.packing, "count"))
        rows["key"], rows["count"] = packed[first], np.add.reduceat(counts[permutation], first) if len(first) else 0
        return rows

    def split_orders(self, report: Report) -> None:
        """The n-grams of all orders, their counts and their first children, from the sorted windows."""
        files, last = self.files, [np.full(1, -1)] * self.files.order
        totals = dict.fromkeys(files.seen, 0)
        children = np.zeros(files.vocabulary, np.int64)
        for done, rows in enumerate(self.windows.drain()):
            report(done / files.buckets)
            if len(rows):
                rows = self._unique(rows["key"], rows["count"].astype(np.int64))
                columns = self.packing.unpack(rows["key"])
                children += self._split(columns, rows["count"].astype(np.int64), last, totals)
                last = [column[-1:] for column in columns]
        if files.order > 1:
            files.starts[1].append(np.concatenate([[0], np.cumsum(children)]))
        for n in range(2, files.order + 1):
            files.seen[n].append(np.array([totals[n]]))
            if n < files.order:
                files.starts[n].append(np.array([files.size(n + 1)]))

    def _split(
        self, columns: list[Integers], counts: Integers, last: list[Integers], totals: dict[int, int]
    ) -> Integers:
        """The n-grams of one bucket, whose first rows may continue the last n-grams of the one before.

        Where the first n tokens of a window differ from those of the row before, a new n-gram begins. For order 3, and
        with · where a window has ended:

            row  window  seen   new 2-grams   new 3-grams   starts (the 3-grams before each new 2-gram)
            0    a b a   2      a b           a b a         0
            1    a b c   1                    a b c
            2    a c ·   1      a c                         2
            3    b a b   1      b a           b a b         2

        Returns how many different tokens follow each single token.
        """
        files = self.files
        same = _continues(columns[0], last[0])
        shorter = children = np.empty(0, np.int64)
        for n in range(2, files.order + 1):
            same &= _continues(columns[n - 1], last[n - 1])
            present = columns[n - 1] > 0
            new = np.flatnonzero(present & ~same)
            if n == 2:
                children = np.bincount(columns[0][new] - 1, minlength=files.vocabulary)
            else:
                files.starts[n - 1].append(np.searchsorted(new, shorter) + files.size(n))
            seen = np.cumsum(np.where(present, counts, 0))
            files.seen[n].append(seen[new] - counts[new] + totals[n])
            totals[n] += int(seen[-1])
            first = columns[0][new] - 1
            begin, end = files.after_boundary[n]
            before, within = int((first < self.boundary).sum()), int((first == self.boundary).sum())
            files.after_boundary[n] = (begin + before, end + before + within)
            if n > 2:
                self._send_suffixes(n, columns, new)
            files.last_tokens[n].append(columns[n - 1][new] - 1)
            shorter = new
        return children

    def _send_suffixes(self, n: int, columns: list[Integers], new: Integers) -> None:
        """Distribute the new n-grams by their tokens without the first, with their ranks."""
        packing = Packing(self.packing.bits, n - 1)
        rows = np.empty(len(new), self._row(packing, "rank"))
        rows["key"] = packing.pack([column[new] for column in columns[1:n]])
        rows["rank"] = np.arange(len(new)) + self.files.size(n)
        self.suffixes[n].add(rows, self._bucket(rows["key"], packing))

    def count_preceding(self, report: Report) -> None:
        """Sort the n-grams of each order without their first token; the sizes of the groups are the adjusted counts."""
        files = self.files
        if files.order > 1:
            parts = (
                np.bincount(files.last_tokens[2].read(*each), minlength=files.vocabulary) for each in files.chunks(2)
            )
            files.preceding_unigrams = sum(parts, np.zeros_like(files.unigrams))
        for n, buckets in self.suffixes.items():
            packing = Packing(self.packing.bits, n - 1)
            for done, rows in enumerate(buckets.drain()):
                report((n - 3 + done / files.buckets) / (files.order - 2))
                permutation = sort_order(rows["key"], packing)
                first = np.flatnonzero(starts_of_groups(rows["key"][permutation]))
                files.preceding[n - 1].append(np.diff(first, append=len(rows)))
                files.by_suffix[n].append(rows["rank"][permutation])


def _continues(column: Integers, last: Integers) -> npt.NDArray[np.bool_]:
    """Whether each value equals the one before it; the first is compared with the last of the bucket before."""
    same: npt.NDArray[np.bool_] = np.concatenate([last, column[:-1]]) == column
    return same
