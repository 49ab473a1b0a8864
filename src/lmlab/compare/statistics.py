"""Which differences are real: intervals and paired differences by the bootstrap, over test documents and over seeds.

A unit is a test document, or a block of lines where there are too few documents. The score is a ratio, sum of bits by
sum of bytes, so both are summed again for each draw of units (Efron & Tibshirani 1993, chapter 6). Two systems are
compared on the same draws: what makes a document hard for all of them cancels out (Koehn 2004).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from lmlab.metrics.intervals import FEWEST_UNITS, Estimate, drawn_counts, middle, two_sided_p
from lmlab.metrics.measure import Floats

DRAWS = 2000
LEVEL = 0.05


class Difference(NamedTuple):
    """How far the score of `worse`, in bits per byte say, is behind that of `better`."""

    better: str
    worse: str
    bits: float
    low: float | None
    high: float | None
    p: float  # corrected for the number of pairs (Holm)
    real: bool


class Bootstrap:
    """The scores of all systems under the same draws of units, and draws of its seeds for each."""

    def __init__(
        self,
        bits: Mapping[str, Sequence[Floats]],
        sizes: Floats,
        *,
        better: Literal["lower", "higher"] = "lower",
        draws: int = DRAWS,
        seed: int = 0,
    ) -> None:
        """`bits[system][seed]` are the bits of each unit, `sizes` the bytes of each unit (or sums and counts)."""
        self.sign = 1 if better == "lower" else -1
        self.values = {name: float(np.mean([each.sum() / sizes.sum() for each in runs])) for name, runs in bits.items()}
        self.bytes = float(sizes.sum())
        self.enough = len(sizes) >= FEWEST_UNITS
        generator = np.random.default_rng(seed)
        columns = {name: np.stack(list(runs), axis=1) for name, runs in bits.items()}  # [units, seeds]
        parts: dict[str, list[Floats]] = {name: [] for name in bits}
        for drawn in drawn_counts(generator, units=len(sizes), draws=draws):
            total = drawn @ sizes
            for name, column in columns.items():
                parts[name].append(drawn @ column / total[:, None])
        self.draws: dict[str, Floats] = {}
        for name in bits:
            scores = np.concatenate(parts[name])  # [draws, seeds]
            count = scores.shape[1]
            chosen = generator.integers(0, count, size=scores.shape)
            self.draws[name] = np.take_along_axis(scores, chosen, axis=1).mean(axis=1)

    def estimate(self, name: str) -> Estimate:
        """The score of a system and its interval."""
        return Estimate(self.values[name], *self._interval(self.draws[name]))

    def differences(self) -> list[Difference]:
        """Every pair, the better one first; p by the normal law over the bootstrap's standard error."""
        order = sorted(self.values, key=lambda name: self.sign * self.values[name])
        pairs = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :]]
        raw = []
        for a, b in pairs:
            bits = self._behind(a, b)
            spread = float(np.std(self.draws[b] - self.draws[a], ddof=1))
            raw.append(two_sided_p(bits, spread) if self.enough else 1.0)
        corrected = holm(raw)
        return [
            Difference(
                a, b, self._behind(a, b), *self._interval(self.sign * (self.draws[b] - self.draws[a])), p, p < LEVEL
            )
            for (a, b), p in zip(pairs, corrected, strict=True)
        ]

    def _behind(self, better: str, worse: str) -> float:
        return self.sign * (self.values[worse] - self.values[better])

    def _interval(self, draws: Floats) -> tuple[float | None, float | None]:
        return middle(draws) if self.enough else (None, None)


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for their number: the chance of one false alarm among all of them (Holm 1979)."""
    corrected = [1.0] * len(p)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = highest
    return corrected


def tied_groups(order: Sequence[str], differences: Sequence[Difference]) -> list[list[str]]:
    """Stretches of the ranking, as long as possible, in which no two systems really differ."""
    real = {frozenset((each.better, each.worse)) for each in differences if each.real}
    groups: list[list[str]] = []
    reached = 0
    for first in range(len(order)):
        last = first
        while last + 1 < len(order) and not any(
            frozenset((order[i], order[last + 1])) in real for i in range(first, last + 1)
        ):
            last += 1
        if last > first and last + 1 > reached:
            groups.append(list(order[first : last + 1]))
            reached = last + 1
    return groups
