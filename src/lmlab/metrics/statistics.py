"""Confidence intervals and significance tests for scores: the one implementation that every report uses.

A score varies for two reasons: other test units (documents, examples) would have been easier or harder, and another
random seed would have trained another model. Both are estimated, and the half-widths of their 95% intervals add as
squares (Howe 1974; Zou & Donner 2008):

- Units: systems are scored on the same bootstrap resamples of the test units, so that what makes a unit hard for all of
  them cancels out in a difference (Efron & Tibshirani 1993; Koehn 2004). Student's t with N − 1 degrees of freedom,
  where N is the effective number of units: less than their number if some units are larger than others.
- Seeds: the variance of the scores of each system's S seeds, divided by S. Student's t with S − 1 degrees of freedom,
  and those of Welch (1947) for the seeds of two systems. A system with one seed has no such part: its interval covers
  other test units only.

A seed also changes single units independently of each other. That noise is in the variance of the seeds and in the
bootstrap of their mean; it is taken out of the bootstrap, so that it counts once. Still no interval is narrower, and no
p-value lower, than for the trained models alone, without the part of the seeds.

`benchmarks/false_alarms.py` shows by simulation how often this finds a difference where there is none.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmlab.metrics.metric import Direction, Floats, Metric, SummedMetric
from lmlab.metrics.student_t import find_root, log_student_tails, student_quantile, student_tails

LEVEL = 0.05
"""Differences with a corrected p-value below this are called significant; intervals cover 1 − LEVEL."""
RESAMPLES = 1000
FEWEST_UNITS = 5
CHUNK = 2_000_000
"""Numbers that are held at once: 16 MB in double precision."""
ROUNDING = 1e-12
"""Scores that differ by less are equal: absolute up to 1, relative to larger scores."""
NORMAL = 1.959964
"""Standard deviations within which 95% of the normal distribution lie."""


class Estimate(NamedTuple):
    """A score with its 95% interval; None where there are too few units."""

    value: float
    low: float | None
    high: float | None


class Difference(NamedTuple):
    """How far the score of `better` is ahead of that of `worse`; positive whatever the direction of the metric."""

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


class RatioOfSums(SummedMetric):
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
    that belong together: `groups` has one key per example, for example the paragraph that a question is about. `sizes`
    says how much each example counts in the score, if not all count the same.
    """

    def __init__(
        self,
        metric: Metric,
        predictions: Mapping[str, Sequence[Sequence[Any]]],
        true: Sequence[Any],
        *,
        groups: Sequence[Hashable] | None = None,
        sizes: Sequence[float] | None = None,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> None:
        self.metric = metric
        self.each_seed = {name: [metric.score(each, true) for each in runs] for name, runs in predictions.items()}
        self.values = {name: float(np.mean(scores)) for name, scores in self.each_seed.items()}
        self.sign = 1 if metric.better == "higher" else -1
        self.grouped = groups is not None
        unit_of = _number(groups if groups is not None else range(len(true)))
        self.units = len(set(unit_of))
        weights = np.ones(len(unit_of)) if sizes is None else np.asarray(sizes, np.float64)
        of_units: Floats = np.bincount(np.array(unit_of, np.int64), weights=weights).astype(np.float64)
        self.effective_units = _effective_number(of_units)
        self.resampled: dict[str, Floats] = {}  # [resamples, seeds] of each system; none where there are too few units
        if self.units >= FEWEST_UNITS:
            scorers = {name: [metric.resampler(each, true) for each in runs] for name, runs in predictions.items()}
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
        half, (lowest, highest) = self._half_width({name: 1}), self.metric.bounds
        if is_rounding(half, value):
            return Estimate(value, *self._interval_of_equal_scores(value))
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
        scores = self.values[better], self.values[worse]
        value = self.sign * (scores[0] - scores[1])
        if is_rounding(value, *scores):
            value = 0.0  # not −0.0
        weights = {better: 1, worse: -1}
        if not self.resampled or not math.isfinite(value) or not self._parts(weights):
            return Difference(better, worse, value, None, None, 1.0, significant=False)
        half = self._half_width(weights)
        if is_rounding(half, *scores):  # the same in every unit: only its sign can be tested
            p = sign_test(value, units=self.units)
            return Difference(better, worse, value, None, None, p, significant=p < LEVEL)
        p = max(p_value(value, parts) for parts in self._parts(weights))
        return Difference(better, worse, value, value - half, value + half, p, significant=p < LEVEL)

    def _half_width(self, weights: Mapping[str, int]) -> float:
        return max((half_width(parts) for parts in self._parts(weights)), default=0.0)

    def _parts(self, weights: Mapping[str, int]) -> list[list[Part]]:
        """The sources of variance of a weighted sum of scores: those of the trained models, and those of the systems.

        The trained models vary by the test units. Systems, if one has several seeds, vary by the seeds, which have the
        noise of single units in them, and by the test units without that noise. Without two resamples that have a
        score there is no list.
        """
        resampled = {name: self.resampled[name] for name in weights}
        known = ~np.isnan(np.concatenate(list(resampled.values()), axis=1)).any(axis=1)
        if known.sum() < 2:
            return []
        freedom = self.effective_units - 1
        # the variance over resamples of N units is (N - 1) / N times that over N new units
        scale = self.effective_units / freedom
        means = np.stack([weight * resampled[name][known].mean(axis=1) for name, weight in weights.items()])
        units = float(np.var(means.sum(axis=0), ddof=1)) * scale
        seeds = _seed_part([self.each_seed[name] for name in weights])
        if not seeds:
            return [[Part(units, freedom)]]
        noise = math.fsum(_noise_of_mean(each[known]) for each in resampled.values()) * scale
        return [[Part(units, freedom)], [Part(max(0.0, units - noise), freedom), *seeds]]

    def _interval_over_units(self, name: str) -> tuple[float | None, float | None]:
        """Wilson's interval for a proportion of single units, else percentiles of the resamples."""
        if self.metric.is_proportion and not self.grouped:
            return wilson(round(self.values[name] * self.units), self.units)[1:]
        low, high = percentile_interval(self.resampled[name][:, 0], units=self.effective_units)
        if low is None or high is None or is_rounding(high - low, low):
            return self._interval_of_equal_scores(self.values[name])
        return low, high

    def _interval_of_equal_scores(self, score: float) -> tuple[float | None, float | None]:
        """Where every resample has the same score: Wilson's interval for a proportion of 0 or 1, else none."""
        known = self.metric.is_proportion and score in (0, 1)
        return wilson(round(score) * self.units, self.units)[1:] if known else (None, None)


def estimate(
    metric: Metric,
    predicted: Sequence[Any],
    true: Sequence[Any],
    *,
    groups: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The score of one run, with its 95% interval over test units."""
    return Scores(metric, {"": [predicted]}, true, groups=groups, resamples=resamples, seed=seed).estimate("")


def shared_groups(keys: Sequence[Hashable]) -> Sequence[Hashable] | None:
    """The groups of examples by their keys; None if no two examples share one, so that each is a unit."""
    return keys if len(set(keys)) < len(keys) else None


def wilson(right: int, units: int) -> Estimate:
    """The proportion of units that are right, with the interval of Wilson (1927)."""
    if not units:
        return Estimate(math.nan, None, None)
    fraction, square = right / units, NORMAL**2
    center = fraction + square / (2 * units)
    half = NORMAL * math.sqrt(fraction * (1 - fraction) / units + square / (4 * units**2))
    scale = 1 + square / units
    low, high = (center - half) / scale, (center + half) / scale
    return Estimate(fraction, 0.0 if right == 0 else low, 1.0 if right == units else high)


def mean_interval(values: Sequence[float]) -> Estimate:
    """The mean of independent values with Student's 95% interval; None for one value, or if all are equal."""
    if not len(values):
        return Estimate(math.nan, None, None)
    mean = math.fsum(values) / len(values)
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return Estimate(mean, None, None)
    half = half_width([Part(_variance_of_mean(values), len(values) - 1)])
    if is_rounding(half, mean):
        return Estimate(mean, None, None)
    return Estimate(mean, mean - half, mean + half)


def is_rounding(amount: float, *scores: float) -> bool:
    """Whether a difference or a width of an interval is only a rounding error of these scores."""
    return abs(amount) < ROUNDING * max(1.0, *map(abs, scores))


def percentile_interval(resampled: Floats, *, units: float) -> tuple[float | None, float | None]:
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
    """The two-sided p-value: the level at which the interval of the difference ends at 0. Takes one or two parts."""
    difference = abs(difference)
    parts = [part for part in parts if part.variance > 0]
    if not difference:
        return 1.0
    if not parts:
        return 0.0
    if len(parts) == 1:
        return student_tails(difference / math.sqrt(parts[0].variance), freedom=parts[0].freedom)
    # the squares of the two half-widths add up to that of the difference, and both belong to the same level
    first, second = ((difference / math.sqrt(part.variance), part.freedom) for part in parts)

    def gap(angle: float) -> float:
        one = log_student_tails(first[0] * math.cos(angle), freedom=first[1])
        return one - log_student_tails(second[0] * math.sin(angle), freedom=second[1])

    angle = find_root(gap, 0.0, math.pi / 2, tolerance=1e-10)
    return student_tails(first[0] * math.cos(angle), freedom=first[1])


def sign_test(difference: float, *, units: int) -> float:
    """The two-sided p-value of a difference that has the same sign in every unit: 2 · (1/2)^units."""
    return 2.0 ** (1 - units) if difference else 1.0


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for their number: the probability of one false alarm among all of them (Holm 1979)."""
    corrected = [1.0] * len(p)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = highest
    return corrected


def tied_groups(order: Sequence[str], differences: Iterable[Difference]) -> list[list[str]]:
    """Groups of systems such that two systems share a group exactly if they do not differ significantly.

    Insert and absorb (Piepho 2004): for each significant pair, a group with both becomes two groups with one of them,
    and a group within another is dropped. Groups that add no pair are dropped at the end.
    """
    rank = {name: number for number, name in enumerate(order)}
    groups = [frozenset(rank.values())]
    for one, two in [(rank[each.better], rank[each.worse]) for each in differences if each.significant]:
        kept = [group for group in groups if not {one, two} <= group]
        split = [group - {number} for group in groups if {one, two} <= group for number in (one, two)]
        groups = kept + [part for part in split if not any(part <= group for group in kept)]
    for group in sorted(groups, key=len):
        others = [other for other in groups if other is not group]
        if all(any({one, two} <= other for other in others) for one in group for two in group):
            groups = others
    return [[order[number] for number in sorted(group)] for group in sorted(groups, key=sorted)]


def letter_display(order: Sequence[str], differences: Iterable[Difference]) -> dict[str, str]:
    """The letters of each system: two systems share a letter exactly if they do not differ significantly."""
    groups = tied_groups(order, differences)
    letters = string.ascii_letters
    names = [letters[i % len(letters)] + str(i // len(letters)) * (i >= len(letters)) for i in range(len(groups))]
    return {
        system: "".join(name for name, group in zip(names, groups, strict=True) if system in group) for system in order
    }


def _seed_part(systems: Sequence[Sequence[float]]) -> list[Part]:
    """The variance of a sum or difference of means over seeds, with the degrees of freedom of Welch (1947)."""
    means = [Part(_variance_of_mean(scores), len(scores) - 1) for scores in systems if len(scores) > 1]
    variance = math.fsum(part.variance for part in means)
    if variance == 0:
        return []
    return [Part(variance, variance**2 / math.fsum(part.variance**2 / part.freedom for part in means))]


def _noise_of_mean(resampled: Floats) -> float:
    """What seeds change in single units, as a variance of the mean over seeds: [resamples, seeds] -> scalar.

    With the mean M of the scores Y_s of S seeds, Σ_s var(Y_s − M) / (S − 1) is the noise of one seed, over resamples.
    """
    seeds: int = resampled.shape[1]
    if seeds < 2:
        return 0.0
    from_mean = resampled - resampled.mean(axis=1, keepdims=True)
    variance = float(np.sum(np.var(from_mean, axis=0, ddof=1)))
    return variance / (seeds - 1) / seeds


def _variance_of_mean(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)


def _effective_number(sizes: Floats) -> float:
    """How many units of equal size vary as much as these: (Σ size)² / Σ size² (Kish 1965); at least 2."""
    squares = float(np.sum(sizes**2))
    return max(2.0, float(np.sum(sizes)) ** 2 / squares) if squares else 2.0


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
