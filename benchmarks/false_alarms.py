"""How often `lmlab compare` finds a difference where there is none, and how often it finds one that is there.

    python benchmarks/false_alarms.py [--trials 2000] [--output docs/images]

Systems with known true scores are simulated, and `lmlab.metrics.statistics.Scores` judges them as in a comparison. The
score of a document is 1 + what makes it hard for all systems (standard deviation 15%) + what makes it hard for one
system (2%) + what a random seed changes in all documents (1%) and in this one (1%), weighted by the size of the
document. "Unequal": the seeds of one system have a tenth of the variance of the other's.

Of one seed the tests say something about the two trained models, not about the systems. So there are two rows for one
seed: "1, models" has no variance between seeds in all documents, "1, systems" has it as all other rows do.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from lmlab.pages.charts import PALETTE, Chart, Series, save

from lmlab.metrics.statistics import Difference, RatioOfSums, Scores

HARD, OWN, SEED = 0.15, 0.02, 0.01
SEEDS = (1, 2, 3, 5, 10)
DOCUMENTS = (20, 500)
RATIOS = {"equal": 1.0, "unequal": 0.1}
"""Variance between the seeds of the second system, by that of the others."""
TRUE = (0.01, 0.02, 0.05)
RESAMPLES = {20: 1000, 500: 200}
COLUMNS = (
    *("documents", "seeds", "seed variances", "false alarms: pair", "three systems, Holm", "pair, until 0.5"),
    *("coverage: score", "difference", "power: 1%", "2%", "5%"),
)


class Setting(NamedTuple):
    """One row of the table."""

    documents: int
    seeds: int
    variances: str = "equal"
    of_models: bool = False  # the trained models are equal, not only the systems

    @property
    def name(self) -> str:
        return f"{self.seeds}, {'models' if self.of_models else 'systems'}" if self.seeds == 1 else str(self.seeds)


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
    generator = np.random.default_rng([seed, *setting[:2], len(setting.variances)])
    return Trial(*np.mean([_trial(setting, generator) for _ in range(trials)], axis=0))


def _trial(setting: Setting, generator: np.random.Generator) -> Trial:
    sizes = 1000 * generator.lognormal(0.0, 0.5, size=setting.documents)
    hard = 1 + generator.normal(0.0, HARD, size=setting.documents)
    systems = {name: _system(setting, name, sizes, hard, generator) for name in "abc"}
    for true in TRUE:
        systems[f"b{true}"] = [(1 + true) * bits for bits in systems["b"]]
    drawn = {"resamples": RESAMPLES[setting.documents], "seed": int(generator.integers(2**31))}
    scores = Scores(RatioOfSums("lower"), systems, sizes, sizes=sizes, **drawn)
    (pair,) = scores.compare([("a", "b")])
    family = scores.compare([("a", "b"), ("a", "c"), ("b", "c")])
    found = [scores.compare([("a", f"b{true}")])[0] for true in TRUE]
    low, high = scores.estimate("a")[1:]
    return Trial(
        pair.significant,
        any(each.significant for each in family),
        _resampled_seeds_differ(scores, generator),
        low <= 1 <= high,
        _covers(found[1], TRUE[1]),
        *(each.significant and each.better == "a" for each in found),
    )


def _system(
    setting: Setting, name: str, sizes: np.ndarray, hard: np.ndarray, generator: np.random.Generator
) -> list[np.ndarray]:
    """The bits of every document, for each seed."""
    own = generator.normal(0.0, OWN, size=setting.documents)
    ratio = RATIOS[setting.variances] if name == "b" else 1.0
    deviation = 0.0 if setting.of_models else SEED * math.sqrt(ratio)
    seeds = generator.normal(0.0, deviation, size=(setting.seeds, 1))
    each = generator.normal(0.0, SEED, size=(setting.seeds, setting.documents))
    return list(sizes * (hard + own + seeds + each))


def _covers(found: Difference, true: float) -> bool:
    signed = true if found.better == "a" else -true
    return found.low is not None and found.high is not None and found.low <= signed <= found.high


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
    for documents in DOCUMENTS:
        yield Setting(documents, 1, of_models=True)
        for variances in RATIOS:
            yield from (Setting(documents, seeds, variances) for seeds in SEEDS if seeds > 1 or variances == "equal")


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
        cells = [str(each.documents), each.name, each.variances, *(f"{rate:.1%}" for rate in found)]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")
    if given.output:
        save(list(charts(rates)), given.output)


def charts(rates: dict[Setting, Trial]) -> Iterator[Chart]:
    """False alarms and power against the number of seeds."""
    of_systems = {each: found for each, found in rates.items() if not each.of_models}
    lines = {f"{documents}, {variances}": (documents, variances) for documents in DOCUMENTS for variances in RATIOS}
    series = [
        Series(name, colour, [(each.seeds, 100 * found.alarm) for each, found in of_systems.items()
                              if each.seeds > 1 and (each.documents, each.variances) == line])
        for (name, line), colour in zip(lines.items(), PALETTE, strict=False)
    ]  # fmt: skip
    before = [(each.seeds, 100 * found.naive) for each, found in of_systems.items()
              if each.seeds > 1 and (each.documents, each.variances) == (500, "equal")]  # fmt: skip
    series += [
        Series("until 0.5", PALETTE[4], before),
        Series("5%", PALETTE[9], [(SEEDS[1], 5.0)], level=True),
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
            (each.seeds, 100 * found[-len(TRUE) + number]) for each, found in rates.items()
            if (each.documents, each.variances) == (documents, "equal") and not each.of_models and each.seeds > 1
        ])
        for (number, true, documents), colour in zip(
            ((number, true, documents) for number, true in enumerate(TRUE) for documents in DOCUMENTS),
            PALETTE, strict=False)
    ]  # fmt: skip
    yield Chart("power", "True differences that are found", "seeds of each system", "% found", power)


if __name__ == "__main__":
    main()
