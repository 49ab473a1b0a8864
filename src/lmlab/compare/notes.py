"""What has to be known to read the figures of a comparison, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lmlab.compare.arena import Results
from lmlab.compare.plan import SWEEP_SHARE, trains
from lmlab.compare.ranking import Ranking, tokenizers_of
from lmlab.compare.records import Entry, Record, choose_basis
from lmlab.compare.statistics import FEWEST_UNITS
from lmlab.training.budget import parse_budget

TOLERANCE = 0.02
FALLING = 0.005
DISTURBED = 1.3
"""Ratio of processor shares from which on a comparison in time is suspected of having been disturbed."""
SHORT_TEST = 20_000
ADDED = "† marks runs that were added: they were trained elsewhere, with a budget of their own."


def write_notes(results: Results, rankings: Sequence[Ranking], *, added: Sequence[Record]) -> list[str]:
    """All notes, those first that decide whether a figure may be believed."""
    conditions = results.description
    entries = [entry for ranking in rankings for entry in ranking.ranked]
    return [
        *_of_budget(conditions, entries),
        *(note for ranking in rankings for note in _of_heading(ranking)),
        *(note for ranking in rankings for note in ranking.contest.notes(results.tests, ranking.units, ranking.ranked)),
        *_of_intervals(results, rankings),
        *_of_costs(conditions, entries),
        *_of_equality(results, rankings, added),
        *([ADDED] if added else []),
        *_of_failures(results, entries),
        *overspent(entries, conditions["budget"]),
        *(f"{entry['name']}: {entry['added']}" for entry in entries if "added" in entry),
    ]


def _of_budget(conditions: dict[str, Any], entries: Sequence[Entry]) -> Iterator[str]:
    unit = parse_budget(conditions["budget"]).unit
    if unit == "seconds":
        yield (
            "A budget in time is noisy by nature: how many steps fit depends on the machine and on what else it does. "
            "Repeat it before you believe a close result, or give the budget in tokens or FLOPs."
        )
        yield from disturbed(entries)
    else:
        yield (
            f"With a budget in {unit} the same command with the same seed gives the same scores again, on the same "
            "machine."
        )
    if any(not trains(system) for system in conditions["systems"]):
        yield (
            "An n-gram counts. It reads the text once"
            + (", as much of it as the budget in tokens allows" if unit in ("tokens", "epochs") else "")
            + ", and then it is done: a larger budget gives it nothing more, while the networks go on learning. "
            "Its FLOPs are not counted (it adds up whole numbers), its parameters are the numbers that it stores."
        )


def _of_heading(ranking: Ranking) -> Iterator[str]:
    gains = [(entry["last_doubling"], entry["name"]) for entry in ranking.ranked if entry["last_doubling"]]
    falling = sorted((each for each in gains if each[0] > FALLING), reverse=True)
    if falling:
        falls = ", ".join(f"{name} by {gain:.2f}" for gain, name in falling[:4])
        what = "ranking" if len(ranking.ranked) > 1 else "score"
        yield (
            f"With a larger budget the {what}{ranking.contest.of_systems} may change. In the second half of the "
            f"budget the curves were still falling: {falls} {ranking.contest.words.curve} (part of that is the "
            "learning rate, which sinks towards the end)."
        )


def _of_intervals(results: Results, rankings: Sequence[Ranking]) -> Iterator[str]:
    seeds = results.description["seeds"]
    over = [(each.contest, f"{each.units['count']} {each.units['kind']}") for each in rankings]
    drawn = over[0][1] if over else "units"
    drawn += "".join(f" ({contest.words.systems}: {units})" for contest, units in over[1:] if units != over[0][1])
    yield (
        f"Intervals (95%) and ties come from a paired bootstrap over {drawn} of the test text"
        + (" (there are too few documents to draw from)" if "blocks" in drawn else "")
        + (f" and over {len(seeds)} seeds" if len(seeds) > 1 else "")
        + "; p-values are corrected for the number of pairs (Holm)."
        + (
            ""
            if len(seeds) > 1
            else " One seed each: the luck of a single training is not in the intervals (--seeds 3 would show it)."
        )
    )
    if any(len(ranking.ranked) > 1 and ranking.units["count"] < FEWEST_UNITS for ranking in rankings):
        yield "The test text has too few parts to say which differences are real."
    size = results.tests.whole.sizes.sum()
    if size < SHORT_TEST:
        yield f"The test text is short ({int(size):,} bytes), so intervals are wide."


def _of_costs(conditions: dict[str, Any], entries: Sequence[Entry]) -> Iterator[str]:
    yield (
        "Reading the text, training the tokenizer, validation, checkpoints and scoring are outside the budget for all "
        "alike. "
        + (
            "Compiling counts: it happens in the first step."
            if conditions["train"].get("compile")
            else "No system was compiled (torch.compile), so there is no compilation to count."
        )
    )
    methods = sorted({entry["energy_method"] for entry in entries if entry["energy_method"]})
    yield (
        f"Energy: {', '.join(methods) or 'not measured'}. {tell_basis(entries)} CO2e at {conditions['grid']}. FLOPs: "
        "matrix products of forward and backward passes, counted for each architecture."
    )


def tell_basis(entries: Sequence[Entry]) -> str:
    """What the seconds and joules of a table are of."""
    if choose_basis(entry["training"] for entry in entries).alone:
        return "Seconds and joules are those of training alone; validation and checkpoints come on top."
    return "Seconds and joules are those of everything that a run did, validation and checkpoints included."


def _of_equality(results: Results, rankings: Sequence[Ranking], added: Sequence[Record]) -> Iterator[str]:
    """Rates, tokenizers and sizes."""
    conditions = results.description
    if conditions["sweep"]:
        yield (
            f"{SWEEP_SHARE:.0%} of each budget went to three short runs with a third, all and three times the usual "
            "learning rate; the best rate had the rest. Costs are the sum of all four; curves show the last."
        )
    else:
        yield "Learning rates are each family's defaults (docs/guides/comparing.md); --sweep tries others."
    joined = {record["name"]: [record] for record in added}
    for ranking in rankings:
        names = [entry["name"] for entry in (*ranking.ranked, *ranking.apart)]
        runs = {name: joined.get(name, []) for name in names}
        if len(tokenizers_of(conditions, runs)) > 1:
            yield (
                "The systems do not all read the same tokens, so only bits per byte are compared; perplexities per "
                "token would mean different things."
            )
        elif any(entry["lossy"] for entry in ranking.ranked):
            yield (
                f"The tokenizer{ranking.contest.of_systems} loses part of the text. That "
                "flatters bits per byte, for all alike: compare them with each other only, and perplexities with those "
                "of the same tokenizer."
            )
    if conditions["matched_parameters"]:
        yield (
            f"Every network was made as wide as {conditions['matched_parameters']:,} parameters allow, within 5%; an "
            "n-gram cannot be sized so."
        )


def _of_failures(results: Results, entries: Sequence[Entry]) -> Iterator[str]:
    known = {entry["kind"] for entry in entries}
    yield from (
        f"{each.name} failed and is left out: {each.reason}" for each in results.failures if each.system in known
    )


def disturbed(entries: Sequence[Entry]) -> list[str]:
    """Whether the processor had as much time for one system as for another."""
    share = {
        entry["name"]: entry["training"]["cpu_seconds"] / entry["training"]["wall_seconds"]
        for entry in entries
        if "added" not in entry and trains(entry["kind"]) and entry["training"]["wall_seconds"] > 0
    }
    if not share or max(share.values()) < DISTURBED * min(share.values()):
        return []
    least, most = min(share, key=lambda name: share[name]), max(share, key=lambda name: share[name])
    return [
        f"The machine was not equally free for all: {most} had {share[most]:.2f} processors on average, {least} "
        f"{share[least]:.2f}. Some systems use more of them by nature; if other work was going on, repeat this."
    ]


def overspent(entries: Sequence[Entry], budget: str) -> list[str]:
    """Runs that took more than they were given: with a budget in time, the last step is finished."""
    amount, unit = parse_budget(budget)
    spent = {e["name"]: e["training"][unit] for e in entries if "added" not in e and unit in e["training"]}
    over = [e for e in entries if spent.get(e["name"], 0.0) > amount * (1 + TOLERANCE)]
    return [
        f"{e['name']} took {spent[e['name']]:.3g} {unit}, {spent[e['name']] / amount - 1:.0%} over the budget: "
        + ("one step takes too long for it." if trains(e["kind"]) else "counting the text once takes that long.")
        for e in over
    ]
