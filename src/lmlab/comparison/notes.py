"""What has to be known to read the figures of a comparison, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lmlab.comparison.entries import Entry
from lmlab.comparison.plan import SWEEP_FRACTION, trains
from lmlab.comparison.ranking import Ranking, tokenizers_of
from lmlab.comparison.records import ComparedRun, choose_basis
from lmlab.comparison.runner import Results
from lmlab.metrics.statistics import FEWEST_UNITS
from lmlab.models import LINEAGE
from lmlab.training.budget import parse_budget

TOLERANCE = 0.02
LEFT_OVER = 0.05
"""Fraction of a budget that too few whole steps may leave without being mentioned."""
IMPROVING = 0.005
ENOUGH_CPU = 0.9
"""Fraction of the requested cores below which a ranking by time gets a warning."""
FEW_SEEDS = 3
"""With fewer seeds, intervals that cover them are very wide."""
SHORT_TEST = 20_000
ADDED = "† marks runs that were added with --add: they were trained separately, with their own budget."


def write_notes(results: Results, rankings: Sequence[Ranking], *, added: Sequence[ComparedRun]) -> list[str]:
    """All notes, those first that decide whether a figure may be believed."""
    conditions = results.description
    entries = [entry for ranking in rankings for entry in ranking.ranked]
    return [
        *(note for ranking in rankings for note in write_caveats(ranking, conditions)),
        *_of_budget(conditions),
        *(note for ranking in rankings for note in _of_extrapolation(ranking)),
        *(note for ranking in rankings for note in ranking.track.notes(results.tests, ranking.units, ranking.ranked)),
        *_of_intervals(results, rankings),
        *_of_costs(conditions, entries),
        *_of_equality(results, rankings, added),
        *([ADDED] if added else []),
        *_of_failures(results, entries),
        *overspent(entries, conditions["budget"]),
        *unspent(entries, conditions["budget"]),
        *(f"{entry.name}: {entry.added}" for entry in entries if entry.added is not None),
    ]


def write_caveats(ranking: Ranking, conditions: dict[str, Any]) -> list[str]:
    """What a reader must know beside a ranking: whether the CPU was shared, and what the intervals cover."""
    timed = parse_budget(conditions["budget"]).unit == "seconds"
    cores = max(1, conditions.get("machine", {}).get("threads", 0) // conditions.get("processes", 1))
    shared = shared_cpu(ranking.ranked, cores=cores) if timed else []
    return [*shared, *_coverage(ranking)]


def _of_budget(conditions: dict[str, Any]) -> Iterator[str]:
    unit = parse_budget(conditions["budget"]).unit
    if unit == "seconds":
        yield (
            "A time budget is not reproducible: the number of steps depends on the machine and on its other load. "
            "Repeat a close result before you rely on it, or give the budget in tokens or FLOPs."
        )
    else:
        yield (
            f"With a budget in {unit}, the same command with the same seed gives the same scores on the same machine."
        )
    if (several := conditions.get("processes", 1)) > 1:
        shared = "; a budget in time bought each of them less than alone" if unit == "seconds" else ""
        yield (
            f"{several} systems were trained at the same time, each with its share of the threads, so that the "
            f"speeds are those of a shared machine{shared}."
        )
    if any(not trains(system) for system in conditions["systems"]):
        yield (
            "An n-gram model is counted in one pass over the text"
            + (" (as much of it as the token budget allows)" if unit in ("tokens", "epochs") else "")
            + ": a larger budget does not improve it further, while the neural networks keep learning. "
            "Its FLOPs are not counted (it only adds integers); its parameters are the numbers that it stores."
        )


def _of_extrapolation(ranking: Ranking) -> Iterator[str]:
    gains = [(entry.last_doubling, entry.name) for entry in ranking.ranked if entry.last_doubling]
    improving = sorted((each for each in gains if each[0] > IMPROVING), reverse=True)
    if improving:
        moving = "loss was still falling" if ranking.track.curve.better == "lower" else "score was still rising"
        gained = ", ".join(f"{name} by {gain:.2f}" for gain, name in improving[:4])
        what = "ranking" if len(ranking.ranked) > 1 else "score"
        yield (
            f"With a larger budget the {what}{ranking.track.of_systems} may change. In the second half of the "
            f"budget the validation {moving}: {gained} {ranking.track.curve.label} (partly because of the "
            "learning-rate decay)."
        )


def _coverage(ranking: Ranking) -> list[str]:
    """What the intervals and tests of a ranking cover: other test units, and other seeds where there are several."""
    units, systems = f"{ranking.units.count} {ranking.units.kind}", ranking.track.of_systems
    if not ranking.ranked:
        return []
    if ranking.units.count < FEWEST_UNITS:
        few = (
            f"The test text has only {units}"
            if ranking.track.tested == "test text"
            else f"There are only {units} to test on"
        )
        return [f"{few}: too few for intervals and tests."]
    # counting gives the same n-gram model with every seed
    seeds = {each.name: len(each.seeds) for each in ranking.ranked if each.kind not in LINEAGE or trains(each.kind)}
    single = [name for name, count in seeds.items() if count == 1]
    several = sorted({count for count in seeds.values() if count > 1})
    covered = f"ntervals and tests{systems} cover the choice of {ranking.track.tested} ({units})"
    if not seeds:
        return [f"I{covered}."]
    if not several:
        return [
            f"One random seed: i{covered}, but not the variation between training runs. Another seed can change the "
            "ranking; --seeds 3 to 5 cover that, too."
        ]
    parts = [f"I{covered} and of the random seed ({' or '.join(map(str, several))} seeds)."]
    if single:
        parts.append(f"Of {', '.join(single)} there is only one seed: other seeds are not covered.")
    if several[0] < FEW_SEEDS:
        parts.append("With two seeds, intervals are very wide: use three to five.")
    return [" ".join(parts)]


def _of_intervals(results: Results, rankings: Sequence[Ranking]) -> Iterator[str]:
    if any(ranking.tested for ranking in rankings):
        blocks = any(ranking.units.kind == "blocks of lines" for ranking in rankings)
        yield (
            f"Confidence intervals (95%) and p-values: paired bootstrap over the {rankings[0].track.tested}"
            + " (blocks of lines, because there are too few documents)" * blocks
            + ", Student's t over seeds where there are several (docs/guides/statistics.md). p-values are corrected "
            "for the number of pairs (Holm)."
        )
    size = results.tests.whole.sizes.sum()
    if size < SHORT_TEST and results.tests.sequences is None and results.tests.media is None:
        yield f"The test text is short ({int(size):,} bytes), so the confidence intervals are wide."


def _of_costs(conditions: dict[str, Any], entries: Sequence[Entry]) -> Iterator[str]:
    yield (
        "Reading the text, training the tokenizer, validation, checkpoints and scoring do not count towards the "
        "budget. "
        + (
            "Compilation (torch.compile) counts: it happens in the first step."
            if conditions["train"].get("compile")
            else "No model was compiled (torch.compile)."
        )
    )
    methods = sorted({entry.energy_method for entry in entries if entry.energy_method})
    yield (
        f"Energy: {', '.join(methods) or 'not measured'}. {describe_basis(entries)} CO2e at {conditions['grid']}. "
        "FLOPs: matrix products of forward and backward passes, counted for each architecture."
    )


def describe_basis(entries: Sequence[Entry]) -> str:
    """What the seconds and joules of a table are of."""
    if choose_basis(entry.training for entry in entries).alone:
        return "Seconds and joules are of training only, without validation and checkpoints."
    return "Seconds and joules are of the whole run, including validation and checkpoints."


def _of_equality(results: Results, rankings: Sequence[Ranking], added: Sequence[ComparedRun]) -> Iterator[str]:
    """Rates, tokenizers and sizes."""
    conditions = results.description
    if conditions["sweep"]:
        yield (
            f"Learning-rate sweep: {SWEEP_FRACTION:.0%} of each budget went to three short runs with 1/3, 1 and 3 "
            "times the default learning rate, the rest to the best of these rates. Costs are the sum of all four runs; "
            "curves show the last one."
        )
    else:
        yield "Learning rates are the tuned defaults of each model (docs/guides/comparing.md); --sweep tries others."
    joined = {record.name: [record] for record in added}
    for ranking in rankings:
        names = [*(entry.name for entry in ranking.ranked), *(each.name for each in ranking.apart)]
        runs = {name: joined.get(name, []) for name in names}
        if not ranking.track.by_tokens:
            continue
        if len(tokenizers_of(conditions, runs)) > 1:
            yield (
                "The models use different tokenizers, so only bits per byte are compared; perplexities per token "
                "would not be comparable."
            )
        elif any(entry.lossy for entry in ranking.ranked):
            yield (
                f"The tokenizer{ranking.track.of_systems} is lossy: part of the text is lost, so bits per byte are "
                "too low, for all alike. Compare them only with each other, and perplexities only with those of the "
                "same tokenizer."
            )
    if conditions["matched_parameters"]:
        yield (
            f"The width of every neural network was chosen to give {conditions['matched_parameters']:,} parameters, "
            "within 5%; this is not possible for an n-gram model."
        )


def _of_failures(results: Results, entries: Sequence[Entry]) -> Iterator[str]:
    known = {entry.kind for entry in entries}
    yield from (
        f"{each.name} failed and is not ranked: {each.reason}" for each in results.failures if each.system in known
    )


def shared_cpu(entries: Sequence[Entry], *, cores: int) -> list[str]:
    """A warning where models that train on the CPU used less than 90% of the requested cores."""
    used = {
        entry.name: entry.training["cpu_seconds"] / entry.training["wall_seconds"]
        for entry in entries
        if entry.added is None
        and trains(entry.kind)
        and entry.training["wall_seconds"] > 0
        and not entry.training.get("gpu_seconds")
    }
    low = sorted((name for name in used if used[name] < ENOUGH_CPU * cores), key=lambda name: used[name])
    if not low:
        return []
    named = ", ".join(f"{name} {used[name]:.2f}" for name in low[:4]) + f" and {len(low) - 4} more" * (len(low) > 4)
    most = max(used, key=lambda name: used[name])
    other = f" ({most}: {used[most]:.2f})" if most not in low[:4] else ""
    return [
        f"Warning: less than {ENOUGH_CPU:.0%} of the {cores} requested cores were used on average: {named}{other}. "
        "Other programs were running, or a model is too small to use all cores. With a time budget such a model trains "
        "for fewer steps, so the ranking may be due to the machine: repeat it on an idle machine, or give the budget "
        "in tokens or FLOPs."
    ]


def overspent(entries: Sequence[Entry], budget: str) -> list[str]:
    """Runs that took more than they were given: with a budget in time, the last step is finished."""
    amount, unit = parse_budget(budget)
    spent = {e.name: e.training[unit] for e in entries if e.added is None and unit in e.training}
    over = [e for e in entries if spent.get(e.name, 0.0) > amount * (1 + TOLERANCE)]
    return [
        f"{e.name} took {spent[e.name]:.3g} {unit}, {spent[e.name] / amount - 1:.0%} over the budget: "
        + ("a single step takes longer than that." if trains(e.kind) else "one pass of counting takes that long.")
        for e in over
    ]


def unspent(entries: Sequence[Entry], budget: str) -> list[str]:
    """Networks that took less than they were given: their next whole step would have been too much."""
    amount, unit = parse_budget(budget)
    if unit == "seconds":
        return []
    trained = [e for e in entries if e.added is None and e.training.get("flops")]  # what counts words has none
    used = {e.name: e.training.get(unit, amount) / amount for e in trained}
    under = {name: fraction for name, fraction in used.items() if fraction < 1 - LEFT_OVER}
    if not under:
        return []
    fractions = ", ".join(f"{name} {used:.0%}" for name, used in sorted(under.items(), key=lambda each: each[1]))
    return [
        f"A budget is spent in whole steps, whose size differs from model to model. Used of it: {fractions}. A larger "
        "budget evens that out."
    ]
