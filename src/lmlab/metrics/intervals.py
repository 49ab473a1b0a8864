"""How far a score may be trusted: intervals over examples by the bootstrap, and over seeds by Student's t.

Examples are drawn again with replacement and scored again (Efron & Tibshirani 1993); two systems are compared on the
same draws, so that what makes an example hard for both cancels out (Koehn 2004). A seed is a whole run: there are few,
so their mean has an interval by the law of Student (1908).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmlab.metrics.measure import Floats, Measure

RESAMPLES = 1000
NORMAL = 1.959964
"""Standard deviations within which 95% of the normal law lie."""
FEWEST_UNITS = 5
AT_ONCE = 2_000_000
"""Numbers that are held at once: 16 MB in double precision."""


class Interval(NamedTuple):
    """Where a score lies, with 95% confidence; None where there is too little to tell."""

    low: float | None
    high: float | None


class Estimate(NamedTuple):
    """A score with its 95% interval; None where there are too few units to tell."""

    value: float
    low: float | None
    high: float | None


class Comparison(NamedTuple):
    """How far a first system is ahead of a second on the same examples; below 0 where it is behind."""

    ahead: float
    low: float | None
    high: float | None
    share: float  # of the draws in which the first is better; ties count half
    p: float  # that chance alone makes them differ so much, either way


def drawn_counts(generator: np.random.Generator, *, units: int, draws: int) -> Iterator[Floats]:
    """How often each unit is in each draw with replacement, a few draws at a time: [R, N]."""
    at_once = max(1, min(draws, AT_ONCE // units))
    even = np.full(units, 1 / units)
    for start in range(0, draws, at_once):
        yield generator.multinomial(units, even, size=min(at_once, draws - start)).astype(np.float64)


def middle(draws: Floats) -> Interval:
    """The middle 95% of draws, without those that have no score."""
    draws = draws[~np.isnan(draws)]
    if not len(draws):
        return Interval(None, None)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Interval(float(low), float(high))


def two_sided_p(difference: float, spread: float) -> float:
    """How likely the normal law makes a difference at least as large, of such a standard error."""
    if math.isnan(difference) or abs(difference) <= 1e-12:
        return 1.0
    return math.erfc(abs(difference) / spread / math.sqrt(2)) if spread > 0 else 0.0


def bootstrap(
    measure: Measure, predicted: Sequence[Any], true: Sequence[Any], *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The interval of a measure over draws of the examples."""
    if len(true) < FEWEST_UNITS:
        return Interval(None, None)
    again = measure.resampler(predicted, true)
    drawn = drawn_counts(np.random.default_rng(seed), units=len(true), draws=resamples)
    found = middle(np.concatenate([again(counts) for counts in drawn]))
    return of_all_or_none(found.low, len(true)) if found.low == found.high and found.low in (0.0, 1.0) else found


def of_all_or_none(share: float, units: int) -> Interval:
    """The interval of a share of 0 or 1, where every draw is the same and the bootstrap says nothing (Wilson 1927)."""
    beyond = NORMAL**2 / (units + NORMAL**2)
    return Interval(1 - beyond, 1.0) if share else Interval(0.0, beyond)


def wilson(right: int, units: int) -> Estimate:
    """The share of units that are right, with the interval of Wilson 1927: no draws are needed for a mere count."""
    if not units:
        return Estimate(float("nan"), None, None)
    share, square = right / units, NORMAL**2
    middle = share + square / (2 * units)
    reach = NORMAL * math.sqrt(share * (1 - share) / units + square / (4 * units**2))
    scale = 1 + square / units
    return Estimate(share, max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale))


def estimate(
    measure: Measure, predicted: Sequence[Any], true: Sequence[Any], *, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """A measure with its interval over draws of the examples."""
    value = measure.score(predicted, true)
    return Estimate(value, *bootstrap(measure, predicted, true, resamples=resamples, seed=seed))


def compare(
    measure: Measure,
    first: Sequence[Sequence[Any]],
    second: Sequence[Sequence[Any]],
    true: Sequence[Any],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """How far a first system is ahead of a second, on the same draws of the examples.

    A system has the predictions of one seed or several, and the mean of their scores; examples are drawn, seeds not.
    """
    sign = 1 if measure.better == "higher" else -1
    scores = [np.mean([measure.score(each, true) for each in system]) for system in (first, second)]
    ahead = float(sign * (scores[0] - scores[1]))
    if len(true) < FEWEST_UNITS:
        return Comparison(ahead, None, None, share=float("nan"), p=1.0)
    again = [[measure.resampler(each, true) for each in system] for system in (first, second)]

    def draw(counts: Floats) -> Floats:
        one, other = (np.mean([score(counts) for score in seeds], axis=0) for seeds in again)
        return np.asarray(sign * (one - other))

    drawn = drawn_counts(np.random.default_rng(seed), units=len(true), draws=resamples)
    draws = np.concatenate([draw(counts) for counts in drawn])
    draws = draws[~np.isnan(draws)]
    if len(draws) < 2:
        return Comparison(ahead, None, None, share=float("nan"), p=1.0)
    share = float(np.mean(draws > 0) + np.mean(draws == 0) / 2)
    return Comparison(ahead, *middle(draws), share=share, p=two_sided_p(ahead, float(np.std(draws, ddof=1))))


def mean_interval(values: Sequence[float]) -> Estimate:
    """The mean of the scores of several seeds with its 95% interval; of one seed there is none."""
    if not len(values):
        return Estimate(float("nan"), None, None)
    mean = math.fsum(values) / len(values)
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return Estimate(mean, None, None)
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    reach = student_quantile(0.975, freedom=len(values) - 1) * error
    return Estimate(mean, mean - reach, mean + reach)


def student_quantile(share: float, *, freedom: int) -> float:
    """The number below which Student's t, with so many degrees of freedom, falls with a probability of `share`."""
    if not 0 < share < 1 or freedom < 1:
        raise ValueError(f"share={share} must lie between 0 and 1, and freedom={freedom} be 1 or more")
    if share < 0.5:
        return -student_quantile(1 - share, freedom=freedom)
    low, high = 0.0, math.pi / 2
    for _ in range(80):  # halving an angle so often leaves nothing of a double's 53 bits
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, freedom) < 2 * share - 1 else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """P(|t| < √freedom tan(angle)), a finite sum (Abramowitz & Stegun 1964, 26.7.3 and 26.7.4)."""
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for step in range(2 if odd else 1, freedom, 2):
        total += term
        term *= step / (step + 1) * cosine * cosine
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
