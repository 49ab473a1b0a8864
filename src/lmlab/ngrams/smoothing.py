"""Smoothing: from n-gram counts to probabilities above zero for every token.

Every method gives the same form: p(w|c) is stored for the n-grams seen, and is backoff(c) · p(w|c') for all others,
where c' is the context c without its first token. Names follow Chen & Goodman 1998, "An empirical study of smoothing".
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmlab.ngrams.counting import Counts, Finder, Integers, Progress, adjusted_counts, look_up, open_stream, trace

Floats = npt.NDArray[np.float64]
FALLBACK = {False: (0.0, 0.5, 0.5, 0.5), True: (0.0, 0.5, 1.0, 1.5)}


class SmoothedOrder(NamedTuple):
    """The probabilities of one order's n-grams, and the back-off weight of each as a context."""

    probabilities: Floats
    backoffs: Floats
    counts: Integers
    """What the probabilities were estimated from: Kneser–Ney's continuation counts, else plain counts."""


def kneser_ney(
    levels: Sequence[Counts],
    *,
    kept: Sequence[npt.NDArray[np.bool_]],
    modified: bool,
    progress: Progress | None = None,
) -> list[SmoothedOrder]:
    """p(w|c) = (a(cw) - D) / a(c·) + γ(c) p(w|c') over adjusted counts a; unigrams are interpolated with 1/V.

    Chen & Goodman 1998, equations 24 to 26: one discount D per order, or, modified, three, for counts of 1, 2 and more.
    """
    counts = adjusted_counts(levels)
    tables = find_discounts(map(histogram, counts), modified=modified)
    withheld = [table[np.minimum(level, 3)] for table, level in zip(tables, counts, strict=True)]
    return interpolate(levels, counts, withheld, kept=kept, progress=progress)


def jelinek_mercer(
    levels: Sequence[Counts],
    *,
    kept: Sequence[npt.NDArray[np.bool_]],
    weights: Floats,
    progress: Progress | None = None,
) -> list[SmoothedOrder]:
    """p(w|c) = λ_n C(cw) / C(c) + (1 - λ_n) p(w|c') with one weight λ_n for each order n (Jelinek & Mercer 1980)."""
    counts = [level.counts for level in levels]
    withheld = [(1.0 - weight) * level for weight, level in zip(weights, counts, strict=True)]
    return interpolate(levels, counts, withheld, kept=kept, progress=progress)


def add_k(
    levels: Sequence[Counts], *, kept: Sequence[npt.NDArray[np.bool_]], k: float, progress: Progress | None = None
) -> list[SmoothedOrder]:
    """p(w|c) = (C(cw) + k) / (C(c) + kV) over full contexts: Lidstone's law, uniform after a context never seen.

    A context is full when it has n-1 tokens or reaches back to the boundary. Shorter ones get the uniform
    distribution, with which the full ones are interpolated by the weight kV / (C(c) + kV).
    """
    counts = [level.counts for level in levels]
    full = [level.opening | (level is levels[-1]) for level in levels]
    withheld = [np.where(here, 0.0, level) for here, level in zip(full, counts, strict=True)]
    return interpolate(levels, counts, withheld, kept=kept, prior=k * len(levels[0].keys), progress=progress)


def interpolate(
    levels: Sequence[Counts],
    counts: Sequence[Integers],
    withheld: Sequence[Floats],
    *,
    kept: Sequence[npt.NDArray[np.bool_]],
    prior: float = 0.0,
    progress: Progress | None = None,
) -> list[SmoothedOrder]:
    """p(w|c) = (a(cw) - d(cw)) / (a(c) + prior) + γ(c) p(w|c'), where γ(c) is the fraction that was withheld.

    An n-gram that is not kept has its whole count withheld.
    """
    vocabulary = len(levels[0].keys)
    lower, backoffs, contexts = np.array([1.0 / vocabulary]), [], 1
    probabilities = []
    for n, (level, a, d, keep) in enumerate(zip(levels, counts, withheld, kept, strict=True)):
        _report(progress, n, len(levels))
        parents = level.keys // vocabulary if n else level.suffixes
        d = np.where(keep, d, a)
        totals = np.bincount(parents, a, contexts) + prior
        gamma = ratio(np.bincount(parents, d, contexts) + prior, totals)
        lower = (a - d) / totals[parents] + gamma[parents] * lower[level.suffixes]
        probabilities.append(lower)
        backoffs.append(gamma)
        contexts = len(level.keys)
    backoffs = [*backoffs[1:], np.ones(contexts)]
    return [SmoothedOrder(*each) for each in zip(probabilities, backoffs, counts, strict=True)]


def back_off(
    levels: Sequence[Counts], *, kept: Sequence[npt.NDArray[np.bool_]], progress: Progress | None = None
) -> list[SmoothedOrder]:
    """p(w|c) = (C(cw) - D) / C(c) where cw was seen, else α(c) p(w|c'): Katz's back-off with absolute discounting.

    Katz 1987 and Ney, Essen & Kneser 1994. α(c) distributes the withheld mass over the tokens not seen after c, in
    proportion to p(w|c'); if every token was seen, nothing is withheld. Unseen unigrams get equal parts.
    """
    vocabulary = len(levels[0].keys)
    tables = find_discounts([histogram(level.counts) for level in levels], modified=False)
    lower, backoffs, contexts = np.array([1.0 / vocabulary]), [], 1
    probabilities = []
    for n, (level, table, keep) in enumerate(zip(levels, tables, kept, strict=True)):
        _report(progress, n, len(levels))
        parents = level.keys // vocabulary if n else level.suffixes
        seen = keep & (level.counts > 0)
        everything = np.bincount(parents, seen, contexts) == vocabulary
        d = np.where(seen, np.where(everything[parents], 0.0, table[np.minimum(level.counts, 3)]), level.counts)
        totals = np.bincount(parents, level.counts, contexts)
        left = ratio(np.bincount(parents, d, contexts), totals)
        open_mass = 1.0 - np.bincount(parents, seen * lower[level.suffixes], contexts)
        alpha = np.where(everything, 1.0, left / np.where(everything, 1.0, open_mass))
        lower = np.where(seen, (level.counts - d) / totals[parents], alpha[parents] * lower[level.suffixes])
        probabilities.append(lower)
        backoffs.append(alpha)
        contexts = len(level.keys)
    plain, backoffs = [level.counts for level in levels], [*backoffs[1:], np.ones(contexts)]
    return [SmoothedOrder(*each) for each in zip(probabilities, backoffs, plain, strict=True)]


def histogram(counts: Integers) -> Integers:
    """How many n-grams have the counts 0, 1, 2, 3, 4, and 5 or more."""
    return np.bincount(np.minimum(counts, 5), minlength=6)


def find_discounts(histograms: Iterable[Integers], *, modified: bool) -> list[Floats]:
    """For each order, the discounts of counts of 0, 1, 2, and 3 or more (Chen & Goodman 1998, equation 26).

    The histogram of an order has the numbers n_i of n-grams with count i: Y = n_1 / (n_1 + 2 n_2), and
    D_i = i - (i+1) Y n_{i+1} / n_i when modified, else D = Y. A text too small or too regular for that gets fixed
    discounts, with a warning.
    """
    tables, fixed = [], []
    for n, numbers in enumerate(histograms, start=1):
        n1, n2, n3, n4 = numbers[1:5].tolist()
        table = FALLBACK[modified]
        if n1 and n2 and (n3 or not modified):
            y = n1 / (n1 + 2 * n2)
            exact = (0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3) if modified else (0.0, y, y, y)
            table = exact if min(exact[1:]) > 0 else table
        if table is FALLBACK[modified]:
            fixed.append(n)
        tables.append(np.array(table))
    if fixed:
        orders = ", ".join(map(str, fixed))
        given = ", ".join(f"{d:g}" for d in FALLBACK[modified][1:])
        warnings.warn(
            f"too few n-grams of order {orders} are seen once, twice or three times to estimate discounts from them; "
            f"the fixed discounts {given} are used (more text, or a lower order, avoids this)",
            stacklevel=2,
        )
    return tables


def held_out_weights(
    levels: Sequence[Counts],
    tokens: npt.NDArray[np.integer],
    *,
    boundary: int,
    rounds: int = 50,
    progress: Progress | None = None,
) -> Floats:
    """The weight λ_n of each order that maximises the likelihood of held-out tokens, by expectation maximisation.

    Jelinek & Mercer 1980: going down from the longest context, the search stops at order n with probability λ_n, and
    skips it if its context was never seen; λ_n becomes the fraction of arrivals at n that stop there.
    """
    vocabulary = len(levels[0].keys)
    stream = open_stream(tokens, vocabulary=vocabulary, boundary=boundary)[None]
    ranks = trace((_finder(level, vocabulary) for level in levels[1:]), stream)
    likelihood = np.zeros((len(levels), stream.shape[1] - 1))
    seen = np.zeros(likelihood.shape, np.bool_)
    likelihood[0], seen[0] = levels[0].counts[stream[0, 1:]] / levels[0].counts.sum(), True
    for n in range(1, len(levels)):
        totals = np.bincount(levels[n].keys // vocabulary, levels[n].counts, len(levels[n - 1].keys))
        contexts, here = ranks[n - 1][0, :-1], ranks[n][0, 1:]
        total = np.append(totals, 0.0)[contexts]  # rank -1 (not seen) reads the appended 0
        seen[n] = total > 0
        likelihood[n] = np.append(levels[n].counts, 0)[here] / np.maximum(total, 1.0)
    weights = np.full(len(levels), 0.5)
    for done in range(rounds):
        if progress is not None:
            progress("weighing the orders", done / rounds)
        stop = weights[:, None] * seen
        arrive = np.ones_like(stop)
        arrive[:-1] = np.cumprod(1.0 - stop[:0:-1], axis=0)[::-1]
        joint = arrive * stop * likelihood
        uniform = arrive[0] * (1.0 - stop[0]) / vocabulary
        posterior = joint / (joint.sum(axis=0) + uniform)
        below = np.cumsum(np.concatenate([(1.0 - posterior.sum(axis=0))[None], posterior]), axis=0)[1:]
        arrivals = (below * seen).sum(axis=1)
        previous, weights = weights, np.where(arrivals > 0, posterior.sum(axis=1) / np.maximum(arrivals, 1e-9), weights)
        weights = np.clip(weights, 1e-4, 1.0 - 1e-4)
        if np.abs(weights - previous).max() < 1e-5:
            break
    return weights


def _finder(level: Counts, vocabulary: int) -> Finder:
    return lambda contexts, words: look_up(level.keys, contexts * vocabulary + words)


def _report(progress: Progress | None, done: int, orders: int) -> None:
    if progress is not None:
        progress("smoothing", done / orders)


def ratio(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> Floats:
    """part / whole; 1 if the whole is 0, as for a context that nothing follows."""
    ratio = np.ones(len(whole))
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio
