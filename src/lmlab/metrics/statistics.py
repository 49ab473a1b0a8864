"""Confidence intervals and significance tests for scores: the one implementation that every report uses.

A score varies for two reasons: other test units (documents, examples) would have been easier or harder, and another
random seed would have trained another model. Both are estimated, and the half-widths of their 95% intervals add as
squares (Howe 1974; Zou & Donner 2008):

- Units: systems are scored on the same bootstrap resamples of the test units, so that what makes a unit hard for all of
  them cancels out in a difference (Efron & Tibshirani 1993; Koehn 2004). Student's t with N − 1 degrees of freedom.
- Seeds: the variance of the scores of each system's S seeds, divided by S. Student's t with S − 1 degrees of freedom,
  and those of Welch (1947) for the seeds of two systems. A system with one seed has no such part: its interval covers
  other test units only.

`benchmarks/false_alarms.py` shows by simulation how often this finds a difference where there is none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmlab.metrics.measure import Floats, Measure, SummedMeasure
from lmlab.metrics.metric import Direction

LEVEL = 0.05
"""Differences with a corrected p-value below this are called significant; intervals cover 1 − LEVEL."""
RESAMPLES = 1000
FEWEST_UNITS = 5
CHUNK = 2_000_000
"""Numbers that are held at once: 16 MB in double precision."""
NORMAL = 1.959964
"""Standard deviations within which 95% of the normal distribution lie."""


class Estimate(NamedTuple):
    """A score with its 95% interval; None where there are too few units."""

    value: float
    low: float | None
    high: float | None


class Difference(NamedTuple):
    """How far the score of `better` is ahead of that of `worse`; positive whatever the direction of the measure."""

    better: str
    worse: str
    value: float
    low: float | None
    high: float | None
    p: float  # two-sided; corrected for the number of pairs where there are several (Holm)
    significant: bool


class Part(NamedTuple):
    """One source of variance of a score or a difference."""

    variance: float
    freedom: float  # degrees of freedom of that variance


class RatioOfSums(SummedMeasure):
    """A sum over units divided by the sum of their sizes: bits per byte, from the bits and the bytes of each unit."""

    name = "ratio"
    bounds = (-math.inf, math.inf)

    def __init__(self, better: Direction) -> None:
        self.better = better

    def statistics(self, predicted: Sequence[float], true: Sequence[float]) -> Floats:
        return np.stack([np.asarray(predicted, np.float64), np.asarray(true, np.float64)], axis=1)

    def value(self, totals: Floats) -> Floats:
        ratio: Floats = totals[..., 0] / totals[..., 1]
        return ratio


class Scores:
    """The scores of systems on the same test units, with their intervals and differences.

    `predictions[system]` holds the predictions of each seed of a system. A unit is an example, or a group of examples
    that belong together: `groups` has one key per example, for example the paragraph that a question is about.
    """

    def __init__(
        self,
        measure: Measure,
        predictions: Mapping[str, Sequence[Sequence[Any]]],
        true: Sequence[Any],
        *,
        groups: Sequence[Hashable] | None = None,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> None:
        self.measure = measure
        self.each_seed = {name: [measure.score(each, true) for each in runs] for name, runs in predictions.items()}
        self.values = {name: float(np.mean(scores)) for name, scores in self.each_seed.items()}
        self.sign = 1 if measure.better == "higher" else -1
        self.grouped = groups is not None
        unit_of = _number(groups if groups is not None else range(len(true)))
        self.units = len(set(unit_of))
        self.resampled: dict[str, Floats] = {}  # [resamples, seeds] of each system; none where there are too few units
        if self.units >= FEWEST_UNITS:
            scorers = {name: [measure.resampler(each, true) for each in runs] for name, runs in predictions.items()}
            self.resampled = _resample(scorers, unit_of, self.units, resamples=resamples, seed=seed)

    @property
    def order(self) -> list[str]:
        """The systems, best first; those without a score last."""
        scores = {name: math.inf if math.isnan(value) else -self.sign * value for name, value in self.values.items()}
        return sorted(scores, key=lambda name: scores[name])

    def estimate(self, name: str) -> Estimate:
        """The mean score of a system over its seeds, with its 95% interval."""
        value = self.values[name]
        if not self.resampled or not math.isfinite(value):
            return Estimate(value, None, None)
        if len(self.each_seed[name]) == 1:
            return Estimate(value, *self._interval_over_units(name))
        parts = self._parts({name: 1})
        if not parts:
            return Estimate(value, None, None)
        half, (lowest, highest) = half_width(parts), self.measure.bounds
        return Estimate(value, max(lowest, value - half), min(highest, value + half))

    def compare(self, pairs: Iterable[tuple[str, str]] | None = None) -> list[Difference]:
        """The difference of each pair (of all pairs by default), p-values corrected for the number of pairs."""
        order = self.order
        if pairs is None:
            pairs = itertools.combinations(order, 2)
        found = []
        for first, second in pairs:
            ahead = order.index(first) < order.index(second)
            found.append(self._difference(*((first, second) if ahead else (second, first))))
        corrected = holm([each.p for each in found])
        return [each._replace(p=p, significant=p < LEVEL) for each, p in zip(found, corrected, strict=True)]

    def _difference(self, better: str, worse: str) -> Difference:
        value = self.sign * (self.values[better] - self.values[worse])
        parts = self._parts({better: 1, worse: -1}) if self.resampled and math.isfinite(value) else []
        if not parts:
            return Difference(better, worse, value, None, None, 1.0, significant=False)
        half, p = half_width(parts), p_value(value, parts)
        return Difference(better, worse, value, value - half, value + half, p, significant=p < LEVEL)

    def _parts(self, weights: Mapping[str, int]) -> list[Part]:
        """The sources of variance of a weighted sum of scores: test units, and seeds where a system has several."""
        means = [weight * self.resampled[name].mean(axis=1) for name, weight in weights.items()]
        resampled: Floats = np.sum(means, axis=0)
        resampled = resampled[~np.isnan(resampled)]
        if len(resampled) < 2:
            return []
        freedom = self.units - 1
        # the variance over resamples of N units is (N - 1) / N times that over N new units
        units = Part(float(np.var(resampled, ddof=1)) * self.units / freedom, freedom)
        return [units, *_seed_part([self.each_seed[name] for name in weights])]

    def _interval_over_units(self, name: str) -> tuple[float | None, float | None]:
        """Wilson's interval for a proportion of single units, else percentiles of the resamples."""
        if self.measure.is_proportion and not self.grouped:
            return wilson(round(self.values[name] * self.units), self.units)[1:]
        low, high = percentile_interval(self.resampled[name][:, 0], units=self.units)
        if low is not None and low == high:  # every resample has the same score
            known = self.measure.is_proportion and low in (0, 1)
            return wilson(round(low * self.units), self.units)[1:] if known else (None, None)
        return low, high


def estimate(
    measure: Measure,
    predicted: Sequence[Any],
    true: Sequence[Any],
    *,
    groups: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The score of one run, with its 95% interval over test units."""
    return Scores(measure, {"": [predicted]}, true, groups=groups, resamples=resamples, seed=seed).estimate("")


def wilson(right: int, units: int) -> Estimate:
    """The proportion of units that are right, with the interval of Wilson (1927)."""
    if not units:
        return Estimate(math.nan, None, None)
    share, square = right / units, NORMAL**2
    middle = share + square / (2 * units)
    half = NORMAL * math.sqrt(share * (1 - share) / units + square / (4 * units**2))
    scale = 1 + square / units
    low, high = (middle - half) / scale, (middle + half) / scale
    return Estimate(share, 0.0 if right == 0 else low, 1.0 if right == units else high)


def mean_interval(values: Sequence[float]) -> Estimate:
    """The mean of independent values with Student's 95% interval; of one value there is none."""
    if not len(values):
        return Estimate(math.nan, None, None)
    mean = math.fsum(values) / len(values)
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return Estimate(mean, None, None)
    half = half_width([Part(_variance_of_mean(values), len(values) - 1)])
    return Estimate(mean, mean - half, mean + half)


def percentile_interval(resampled: Floats, *, units: int) -> tuple[float | None, float | None]:
    """The 95% percentile interval, widened for few units (Hesterberg 2015, section 3.3: expanded percentiles)."""
    resampled = resampled[~np.isnan(resampled)]
    if not len(resampled):
        return None, None
    wide = math.sqrt(units / (units - 1)) * student_quantile(LEVEL, freedom=units - 1)
    outside = math.erfc(wide / math.sqrt(2)) / 2
    low, high = np.percentile(resampled, [100 * outside, 100 * (1 - outside)])
    return float(low), float(high)


def half_width(parts: Sequence[Part], *, level: float = LEVEL) -> float:
    """Half of the interval that a sum of independent parts leaves with a probability of `level`.

    The half-width of each part is Student's quantile times its standard error; they add as squares.
    """
    return math.sqrt(math.fsum(part.variance * student_quantile(level, freedom=part.freedom) ** 2 for part in parts))


def p_value(difference: float, parts: Sequence[Part]) -> float:
    """The two-sided p-value: the level at which the interval of the difference ends at 0."""
    difference = abs(difference)
    parts = [part for part in parts if part.variance > 0]
    if difference <= 1e-12:
        return 1.0
    if not parts:
        return 0.0
    if len(parts) == 1:
        return student_tails(difference / math.sqrt(parts[0].variance), freedom=parts[0].freedom)
    low, high = -300.0, 0.0  # powers of ten of the p-value
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if half_width(parts, level=10**middle) < difference else (middle, high)
    return float(10**high)


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for their number: the probability of one false alarm among all of them (Holm 1979)."""
    corrected = [1.0] * len(p)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = highest
    return corrected


def student_quantile(level: float, *, freedom: float) -> float:
    """The value that |T| exceeds with a probability of `level`, where T is Student's t."""
    if not 0 < level <= 1 or not freedom > 0:
        raise ValueError(f"level={level} must lie above 0 and at most at 1, and freedom={freedom} above 0")
    low, high = 0.0, 1.0
    while student_tails(high, freedom=freedom) > level:
        low, high = high, 2 * high
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tails(middle, freedom=freedom) > level else (low, middle)
    return (low + high) / 2


def student_tails(t: float, *, freedom: float) -> float:
    """P(|T| > t) of Student's t: I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t²)."""
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # convergents by the modified method of Lentz, 1 / (1 + d_1 / (1 + d_2 / …))
    above, below, fraction = 1.0, 0.0, 1.0
    for k in range(1000):
        m = k // 2
        if k == 0:
            d = 1.0
        elif k % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 / (1 + d * below)
        above = 1 + d / above
        fraction *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return front * (fraction - 1) / a


def _seed_part(systems: Sequence[Sequence[float]]) -> list[Part]:
    """The variance of a sum or difference of means over seeds, with the degrees of freedom of Welch (1947)."""
    means = [Part(_variance_of_mean(scores), len(scores) - 1) for scores in systems if len(scores) > 1]
    variance = math.fsum(part.variance for part in means)
    if variance == 0:
        return []
    return [Part(variance, variance**2 / math.fsum(part.variance**2 / part.freedom for part in means))]


def _variance_of_mean(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)


def _number(keys: Iterable[Hashable]) -> list[int]:
    """Each key as the number of its group, in order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _resample(
    scorers: Mapping[str, Sequence[Callable[[Floats], Floats]]],
    unit_of: Sequence[int],
    units: int,
    *,
    resamples: int,
    seed: int,
) -> dict[str, Floats]:
    """The scores of every seed of every system on the same resamples of the units: [resamples, seeds] each."""
    generator = np.random.default_rng(seed)
    even = np.full(units, 1 / units)
    chunk = max(1, min(resamples, CHUNK // len(unit_of)))
    found: dict[str, list[Floats]] = {name: [] for name in scorers}
    for start in range(0, resamples, chunk):
        drawn = generator.multinomial(units, even, size=min(chunk, resamples - start))
        counts = drawn[:, unit_of].astype(np.float64)
        for name, each_seed in scorers.items():
            found[name].append(np.stack([score(counts) for score in each_seed], axis=1))
    return {name: np.concatenate(parts) for name, parts in found.items()}
