"""Modified Kneser–Ney for texts larger than memory: the estimates of `smoothing.py`, computed from files.

From the lowest order up, each n-gram needs the probability of the n-gram without its first token. The n-grams sorted
without their first token are read beside those shorter ones, and each is sent its probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmlab.ngrams.counting import Progress
from lmlab.ngrams.counting_on_disk import NGramCounter, NGramFiles, Report, cut_groups
from lmlab.ngrams.disk_arrays import Buckets, DiskArray
from lmlab.ngrams.smoothing import Floats, find_discounts, histogram, ratio


class Estimates(NamedTuple):
    """The probability of each n-gram and its back-off weight as a context, by order; nothing follows the highest."""

    files: NGramFiles
    probabilities: dict[int, DiskArray]
    backoffs: dict[int, DiskArray]


def estimate(
    tokens: npt.NDArray[np.integer],
    *,
    vocabulary: int,
    boundary: int,
    order: int,
    minimum_counts: Sequence[int],
    modified: bool,
    memory: int,
    folder: Path,
    progress: Progress | None = None,
) -> Estimates:
    """Count a stream and smooth the counts in about `memory` bytes; everything else is in files of `folder`.

    An n-gram of order n that was seen less often than minimum_counts[n-1] gives its whole count to shorter ones.
    """

    def part(stage: str, low: float, high: float) -> Report:
        return lambda done: progress(stage, low + (high - low) * done) if progress is not None else None

    files = NGramFiles(folder, vocabulary=vocabulary, order=order, tokens=len(tokens) + 1, memory=memory)
    counter = NGramCounter(files, tokens, boundary=boundary)
    counter.sort_windows(part("counting", 0.0, 0.25))
    counter.split_orders(part("counting", 0.25, 0.5))
    counter.count_preceding(part("counting", 0.5, 0.7))
    return smooth(files, minimum_counts, modified=modified, report=part("smoothing", 0.7, 0.9))


def smooth(files: NGramFiles, minimum_counts: Sequence[int], *, modified: bool, report: Report) -> Estimates:
    """p(w|c) = (a(cw) - D) / a(c·) + γ(c) p(w|c') for all orders, as `smoothing.kneser_ney` has it."""
    orders = range(1, files.order + 1)
    tables = find_discounts([_histogram(files, n) for n in orders], modified=modified)
    result = Estimates(
        files,
        {n: files.file(f"probabilities-{n}", np.float64) for n in orders},
        {n: files.file(f"backoffs-{n}", np.float64) for n in orders[:-1]},
    )
    counts = files.adjusted_counts(1, 0, files.vocabulary)
    held = tables[0][np.minimum(counts, 3)]
    lower = held.sum() / counts.sum() / files.vocabulary
    result.probabilities[1].append((counts - held) / counts.sum() + lower)
    for n in orders[1:]:
        report((n - 1) / files.order)
        sent = None if n == 2 else _send_down(result, n)
        for _, sizes, first, end in files.families(n):
            counts = files.adjusted_counts(n, first, end)
            kept = files.counts(n, first, end) >= minimum_counts[n - 1]
            held = np.where(kept, tables[n - 1][np.minimum(counts, 3)], counts)
            parents = np.repeat(np.arange(len(sizes)), sizes)
            totals = np.bincount(parents, counts, len(sizes))
            gamma = ratio(np.bincount(parents, held, len(sizes)), totals)
            shorter = _unigrams_of(result, first, end) if sent is None else sent.read(first, end)
            result.backoffs[n - 1].append(gamma)
            result.probabilities[n].append((counts - held) / totals[parents] + gamma[parents] * shorter)
        if sent is not None:
            sent.remove()
            files.by_suffix[n].remove()
    return result


def _histogram(files: NGramFiles, n: int) -> npt.NDArray[np.int64]:
    return sum((histogram(files.adjusted_counts(n, *each)) for each in files.chunks(n)), np.zeros(6, np.int64))


def _unigrams_of(result: Estimates, first: int, end: int) -> Floats:
    """The probability of the last token of each bigram from first to end."""
    unigrams: Floats = result.probabilities[1].read(0, result.files.vocabulary)
    return unigrams[result.files.last_tokens[2].read(first, end)]


def _send_down(result: Estimates, n: int) -> DiskArray:
    """For each n-gram the probability of the one without its first token, in the order of the n-grams."""
    files, size = result.files, result.files.size(n)
    row = np.dtype([("rank", files.index), ("probability", np.float64)])
    buckets = Buckets(files.folder, f"sent-{n}", row, -(-size // files.rows))
    done = 0
    for probabilities, sizes in _preceded(result, n - 1):
        for low, high in cut_groups(sizes, files.rows):
            rows = np.empty(int(sizes[low:high].sum()), row)
            rows["rank"] = files.by_suffix[n].read(done, done + len(rows))
            rows["probability"] = np.repeat(probabilities[low:high], sizes[low:high])
            buckets.add(rows, rows["rank"] // files.rows)
            done += len(rows)
    sent = files.file(f"sent-{n}", np.float64)
    for bucket, rows in enumerate(buckets.drain()):
        values = np.empty(len(rows))
        values[rows["rank"].astype(np.int64) - bucket * files.rows] = rows["probability"]
        sent.append(values)
    return sent


def _preceded(result: Estimates, n: int) -> Iterator[tuple[Floats, npt.NDArray[np.int64]]]:
    """The n-grams that a token may precede, in chunks: their probabilities, and how many tokens precede them."""
    files, (first, last) = result.files, result.files.after_boundary[n]
    for low, high in ((0, first), (last, files.size(n))):
        for start in range(low, high, files.rows):
            stop = min(start + files.rows, high)
            without_preceding = 0 if stop <= first else last - first
            sizes = files.preceding[n].read(start - without_preceding, stop - without_preceding).astype(np.int64)
            yield result.probabilities[n].read(start, stop), sizes
