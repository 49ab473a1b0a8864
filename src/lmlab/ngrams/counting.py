"""Count n-grams without a loop over tokens, and look them up.

An n-gram is identified by its rank among the distinct n-grams of its order, and found by its key: the rank of its first
n-1 tokens, times the vocabulary, plus its last token. Keys are sorted, so the continuations of a context are one
slice, and the rank of a key is its index. A boundary token ends a sentence when it comes last and opens one when it
comes first; n-grams never cross it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Finder = Callable[[Integers, Integers], Integers]
"""The rank of each context with this next token, -1 where it was not seen."""
Progress = Callable[[str, float], None]
"""Called with the name of the stage and the fraction done, 0 to 1; raising an error cancels the work."""


class Counts(NamedTuple):
    """The distinct n-grams of one order, sorted by key."""

    keys: Integers  # for order 1: every token of the vocabulary
    counts: Integers  # how often each was seen
    suffixes: Integers  # the rank, one order lower, of the n-gram without its first token
    opening: npt.NDArray[np.bool_]  # whether it begins with the boundary


def count_ngrams(
    tokens: npt.NDArray[np.integer], *, vocabulary: int, boundary: int, order: int, progress: Progress | None = None
) -> list[Counts]:
    """The counts of orders 1 to `order` of a token stream in which the boundary separates sentences."""
    stream = open_stream(tokens, vocabulary=vocabulary, boundary=boundary)
    time = np.arange(len(stream))
    last_boundary = np.maximum.accumulate(np.where(stream == boundary, time, 0))
    depth = np.zeros_like(time)  # how many tokens a context may hold: back to the nearest boundary, inclusive
    depth[1:] = time[1:] - last_boundary[:-1]
    counts = np.bincount(stream[1:], minlength=vocabulary)
    levels = [Counts(np.arange(vocabulary), counts, np.zeros(vocabulary, np.int64), np.zeros(vocabulary, np.bool_))]
    ranks, ends = stream, time[1:]
    for n in range(2, order + 1):
        if progress is not None:
            progress("counting", (n - 1) / order)
        ends = ends[depth[ends] >= n - 1]
        keys = ranks[ends - 1] * vocabulary + stream[ends]
        keys, positions = sort_with_positions(keys, bound=len(levels[-1].keys) * vocabulary)
        if progress is not None:
            progress("counting", (n - 0.5) / order)
        ends = ends[positions]
        new = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        first = np.flatnonzero(new)
        examples = ends[first]
        levels.append(Counts(keys[first], np.diff(first, append=len(keys)), ranks[examples], depth[examples] == n - 1))
        if n < order:
            longer = np.full_like(ranks, -1)
            longer[ends] = np.cumsum(new) - 1
            ranks, ends = longer, np.sort(ends)
    return levels


def open_stream(tokens: npt.NDArray[np.integer], *, vocabulary: int, boundary: int) -> Integers:
    """The tokens as int64, with a boundary in front; a ValueError where there is nothing to predict."""
    stream = np.asarray(tokens).astype(np.int64)
    if stream.ndim != 1:
        raise ValueError(f"tokens have shape {stream.shape}; an n-gram reads one stream, so give a 1-D array")
    if len(stream) == 0 or stream[0] != boundary:
        stream = np.concatenate([np.array([boundary]), stream])
    if len(stream) < 2:
        raise ValueError("the text has no token after its boundary; an n-gram needs at least one to count")
    if stream.min() < 0 or stream.max() >= vocabulary:
        wrong = stream.min() if stream.min() < 0 else stream.max()
        raise ValueError(f"token {wrong} is outside the vocabulary of {vocabulary}; encode with the model's tokenizer")
    return stream


def adjusted_counts(levels: Sequence[Counts]) -> list[Integers]:
    """Continuation counts: how many different tokens precede each n-gram.

    N-grams of the highest order and those that begin with the boundary keep their plain counts (Kneser & Ney 1995; Chen
    & Goodman 1998, section 3). A word that follows many different words is likely in a new context; a merely frequent
    one is not.
    """
    adjusted = [
        np.where(lower.opening, lower.counts, np.bincount(higher.suffixes, minlength=len(lower.keys)))
        for lower, higher in pairwise(levels)
    ]
    return [*adjusted, levels[-1].counts]


def sort_with_positions(keys: Integers, *, bound: int) -> tuple[Integers, Integers]:
    """The sorted keys (all in 0..bound-1) and the original index of each: a stable argsort.

    Key and index are sorted as one number if both fit into 63 bits, several times faster than an argsort.
    """
    bits = max(len(keys) - 1, 1).bit_length()
    if max(bound - 1, 1).bit_length() + bits > 63:
        positions = np.argsort(keys, kind="stable")
        return keys[positions], positions
    packed = (keys << bits) | np.arange(len(keys))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def look_up(keys: Integers, wanted: Integers) -> Integers:
    """The rank of each wanted key, -1 if it is missing."""
    if len(keys) == 0 or len(wanted) == 0:
        return np.full(len(wanted), -1)
    if len(wanted) < 256:
        positions = np.searchsorted(keys, wanted)
        positions[positions == len(keys)] = 0
        return np.where(keys[positions] == wanted, positions, -1)
    # Neighbouring keys are looked up one after the other, so that the search stays in the cache.
    wanted, order = sort_with_positions(wanted, bound=int(wanted.max()) + 1)
    positions = np.searchsorted(keys, wanted)
    positions[positions == len(keys)] = 0
    ranks = np.empty_like(positions)
    ranks[order] = np.where(keys[positions] == wanted, positions, -1)
    return ranks


def trace(finders: Iterable[Finder], tokens: Integers) -> list[Integers]:
    """For each order, the rank [B, T] of the n-gram that ends at each token [B, T], -1 if it was never seen.

    There is one finder for each order from 2.
    """
    ranks = [tokens]
    for find in finders:
        found = np.full_like(tokens, -1)
        before = ranks[-1][:, :-1]
        known = before >= 0
        found[:, 1:][known] = find(before[known], tokens[:, 1:][known])
        ranks.append(found)
    return ranks
