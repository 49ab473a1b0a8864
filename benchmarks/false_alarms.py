"""How often `lmlab compare` finds a difference where there is none, and how often it finds one that is there.

    python benchmarks/false_alarms.py [--trials 2000] [--output docs/images]

Systems with known true scores are simulated, and `lmlab.metrics.statistics.Scores` judges them as in a comparison.

- Bits per byte: the score of a document is 1 + what makes it hard for all systems (standard deviation 15%) + what makes
  it hard for one system (2%) + what a random seed changes in all documents (1%) and in this one (1%), weighted by the
  size of the document.
- Accuracy: the probability of a right answer differs between questions (mean 78%) and, for a fifth of them, between
  systems; a seed changes all probabilities (standard deviation 1.2%) and decides each answer independently of the
  others.

Seed variances are what a seed changes in all units: "equal", "unequal" (the seeds of one system have a tenth of the
variance of the other's) or "none" (a seed changes only single units, independently of each other).

Of one seed the tests say something about the two trained models, not about the systems. So there are two rows for one
seed: "1, models" has no variance between seeds in all units, "1, systems" has it as all other rows do.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import Difference, Estimate, RatioOfSums, Scores
from lmlab.pages.figures import PALETTE, Chart, Point, Series, save_charts

HARD, OWN, SEED = 0.15, 0.02, 0.01
DIFFICULTY = (1.6, 0.4)
"""Beta distribution of the probability of a right answer over questions: its mean is 0.8."""
DIFFERENT = 0.2
"""Fraction of the questions whose difficulty is another one for each system."""
LOST = 0.02
"""Mean fraction of the right answers that a seed loses, between 0 and twice as many."""
ACCURACY = 0.8 * (1 - LOST)
SEEDS = (1, 2, 3, 5, 10)
DOCUMENTS = (20, 500)
RATIOS = {"none": (0.0, 0.0), "equal": (1.0, 1.0), "unequal": (1.0, 0.1)}
"""Variance between the seeds of the first and third, and of the second system, relative to the usual one."""
TRUE = (0.01, 0.02, 0.05)
RESAMPLES = {20: 1000, 500: 200}
COLUMNS = (
    *("metric", "units", "seeds", "seed variances", "false alarms: pair", "three systems, Holm", "pair, until 0.5"),
    *("coverage: score", "difference", "power: 1%", "2%", "5%"),
)


class Setting(NamedTuple):
    """One row of the table."""

    documents: int
    seeds: int
    variances: str = "equal"  # "none" for one seed: the trained models are equal, not only the systems
    metric: str = "bits per byte"

    @property
    def name(self) -> str:
        kind = "models" if self.variances == "none" else "systems"
        return f"{self.seeds}, {kind}" if self.seeds == 1 else str(self.seeds)

    def deviation(self, system: str) -> float:
        """Between the seeds of a system, relative to the usual one."""
        return math.sqrt(RATIOS[self.variances][system == "b"])


class Trial(NamedTuple):
    """What happened in one simulated comparison; as means over trials, the rates."""

    alarm: float  # two equal systems differ "significantly"
    family: float  # any two of three equal systems do, with Holm's correction
    naive: float  # two equal systems do, where seeds are resampled and the normal distribution is used
    covers: float  # the interval of a system has its true score
    covers_difference: float  # the interval of a difference has the true difference, 2%
    power_1: float  # a true difference of 1%, 2%, 5% is found
    power_2: float
    power_5: float


def simulate(setting: Setting, *, trials: int, seed: int = 0) -> Trial:
    """The mean over trials."""
    generator = np.random.default_rng([seed, *setting[:2], len(setting.variances), len(setting.metric)])
    return Trial(*np.mean([_trial(setting, generator) for _ in range(trials)], axis=0))


def _trial(setting: Setting, generator: np.random.Generator) -> Trial:
    scores = (_bits_per_byte if setting.metric == "bits per byte" else _accuracy)(setting, generator)
    (pair,) = scores.compare([("a", "b")])
    family = scores.compare([("a", "b"), ("a", "c"), ("b", "c")])
    found = [scores.compare([("a", f"b{true}")])[0] for true in TRUE]
    return Trial(
        pair.significant,
        any(each.significant for each in family),
        _resampled_seeds_differ(scores, generator),
        _covers(scores.estimate("a"), 1.0 if setting.metric == "bits per byte" else ACCURACY),
        _covers(found[1], TRUE[1] if found[1].better == "a" else -TRUE[1]),
        *(each.significant and each.better == "a" for each in found),
    )


def _bits_per_byte(setting: Setting, generator: np.random.Generator) -> Scores:
    """Three equal systems, and three that are worse than the second by known amounts."""
    sizes = 1000 * generator.lognormal(0.0, 0.5, size=setting.documents)
    hard = 1 + generator.normal(0.0, HARD, size=setting.documents)
    systems = {}
    for name in "abc":
        own = generator.normal(0.0, OWN, size=setting.documents)
        seeds = generator.normal(0.0, SEED * setting.deviation(name), size=(setting.seeds, 1))
        each = generator.normal(0.0, SEED, size=(setting.seeds, setting.documents))
        systems[name] = list(sizes * (hard + own + seeds + each))
    for true in TRUE:
        systems[f"b{true}"] = [(1 + true) * bits for bits in systems["b"]]
    return Scores(RatioOfSums("lower"), systems, sizes, sizes=sizes, **_resampling(setting, generator))


def _accuracy(setting: Setting, generator: np.random.Generator) -> Scores:
    """The same for answers that are right or wrong."""
    shared = generator.beta(*DIFFICULTY, size=setting.documents)
    shape = (setting.seeds, setting.documents)
    right = {}
    for name in "abc":
        own = generator.beta(*DIFFICULTY, size=setting.documents)
        probability = np.where(generator.random(setting.documents) < DIFFERENT, own, shared)
        lost = LOST * (1 + setting.deviation(name) * generator.uniform(-1, 1, size=(setting.seeds, 1)))
        right[name] = generator.random(shape) < probability * (1 - lost)
    for true in TRUE:
        right[f"b{true}"] = right["b"] & (generator.random(shape) < 1 - true / ACCURACY)
    answers = {name: [each.tolist() for each in found] for name, found in right.items()}
    return Scores(Accuracy(), answers, [True] * setting.documents, **_resampling(setting, generator))


def _resampling(setting: Setting, generator: np.random.Generator) -> dict[str, int]:
    return {"resamples": RESAMPLES[setting.documents], "seed": int(generator.integers(2**31))}


def _covers(found: Estimate | Difference, true: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= true <= found.high


def _resampled_seeds_differ(scores: Scores, generator: np.random.Generator) -> bool:
    """The test of "a" and "b" that lmlab had until version 0.5."""
    means = []
    for name in "ab":
        resampled = scores.resampled[name]
        chosen = generator.integers(0, resampled.shape[1], size=resampled.shape)
        means.append(np.take_along_axis(resampled, chosen, axis=1).mean(axis=1))
    return abs(scores.values["a"] - scores.values["b"]) > 1.96 * np.std(means[0] - means[1], ddof=1)


def settings() -> Iterator[Setting]:
    """The rows, in order."""
    for metric in ("bits per byte", "accuracy"):
        for documents in DOCUMENTS:
            for variances in RATIOS:
                for seeds in SEEDS[variances == "unequal" :]:
                    yield Setting(documents, seeds, variances, metric)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--output", type=Path, help="folder for the figures")
    given = parser.parse_args()
    start = time.perf_counter()
    error = math.sqrt(0.05 * 0.95 / given.trials)
    print(f"{given.trials} trials a row; the standard error of a rate of 5% is {error:.1%}\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    rates: dict[Setting, Trial] = {}
    for each in settings():
        rates[each] = found = simulate(each, trials=given.trials)
        cells = [each.metric, str(each.documents), each.name, each.variances, *(f"{rate:.1%}" for rate in found)]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")
    if given.output:
        save_charts(list(charts(rates)), given.output)


def charts(rates: dict[Setting, Trial]) -> Iterator[Chart]:
    """False alarms and power against the number of seeds."""
    of_systems = {each: found for each, found in rates.items() if each.metric == "bits per byte"}
    lines = {
        f"{documents}, {variances}": (documents, variances) for documents in DOCUMENTS for variances in list(RATIOS)[1:]
    }
    series = [
        Series(name, colour, [Point(each.seeds, 100 * found.alarm) for each, found in of_systems.items()
                              if each.seeds > 1 and (each.documents, each.variances) == line])
        for (name, line), colour in zip(lines.items(), PALETTE, strict=False)
    ]  # fmt: skip
    before = [Point(each.seeds, 100 * found.naive) for each, found in of_systems.items()
              if each.seeds > 1 and (each.documents, each.variances) == (500, "equal")]  # fmt: skip
    series += [
        Series("until 0.5", PALETTE[4], before),
        Series("5%", PALETTE[9], [Point(SEEDS[1], 5.0)], level=True),
    ]
    yield Chart(
        "false-alarms",
        "False alarms of equal systems",
        "seeds of each system",
        "% false alarms (documents, seed variances)",
        series,
    )
    power = [
        Series(f"{true:.0%}, {documents} docs", colour, [
            Point(each.seeds, 100 * found[-len(TRUE) + number]) for each, found in rates.items()
            if each == Setting(documents, each.seeds) and each.seeds > 1
        ])
        for (number, true, documents), colour in zip(
            ((number, true, documents) for number, true in enumerate(TRUE) for documents in DOCUMENTS),
            PALETTE, strict=False)
    ]  # fmt: skip
    yield Chart("power", "True differences that are found", "seeds of each system", "% found", power)


if __name__ == "__main__":
    main()
