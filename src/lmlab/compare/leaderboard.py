"""The leaderboard: entries ranked by bits per byte on held-out text, ties, and what may be said of the result."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmlab.compare.arena import Record, Results
from lmlab.compare.plan import SWEEP_SHARE, trains
from lmlab.compare.statistics import Bootstrap, Difference, tied_groups
from lmlab.models import LINEAGE
from lmlab.training.budget import parse_budget

Entry = dict[str, Any]
Board = dict[str, Any]
TOLERANCE = 0.02
AHEAD = 4
DISTURBED = 1.3
"""Ratio of processor shares from which on a comparison in time is suspected of having been disturbed."""
SHORT_TEST = 20_000
COLUMNS = ("rank", "name", "kind", "status", "bits_per_byte", "low", "high", "perplexity", "parameters",
           "embedding_parameters", "lossy", "error")  # fmt: skip
COSTS = ("tokens", "steps", "flops", "seconds", "wall_seconds", "cpu_seconds", "gpu_seconds", "joules", "grams")


def make_board(results: Results, *, added: Sequence[Record] = ()) -> Board:
    """Rank the systems: `entries` best first, `ties` among them, `apart` those that cannot be ranked with the rest."""
    runs: dict[str, list[Record]] = {}
    for record in results.records.values():
        runs.setdefault(record["system"], []).append(record)
    runs |= {record["name"]: [record] for record in added}
    one_tokenizer = len(tokenizers_of(results.description, runs)) == 1
    apart = [] if one_tokenizer else [name for name, records in runs.items() if any(each["lossy"] for each in records)]
    ranked = {name: records for name, records in runs.items() if name not in apart}
    bootstrap = Bootstrap(
        {name: [np.array(each["bits"]) for each in records] for name, records in ranked.items()}, results.test.sizes
    )
    entries = [_entry(name, records, bootstrap, perplexity=one_tokenizer) for name, records in ranked.items()]
    entries.sort(key=lambda entry: (entry["bits_per_byte"], entry["name"]))
    differences = bootstrap.differences()
    failed_systems = [failure for failure in results.failures if failure.system not in runs]
    return {
        "conditions": results.description,
        "entries": [*entries, *(_failed(f.system, f.system, f.reason) for f in _once(failed_systems))],
        "ties": tied_groups([entry["name"] for entry in entries], differences),
        "apart": [
            {"name": name, "bits_per_byte": _bits(runs[name], results), "reason": APART_REASON} for name in apart
        ],
        "differences": [each._asdict() for each in differences],
        "units": {"kind": results.test.unit, "count": len(results.test.sizes), "bytes": int(results.test.sizes.sum())},
        "prompt": results.test.prompt,
        "notes": _notes(results, entries, differences, added=len(added), one_tokenizer=one_tokenizer),
    }


APART_REASON = (
    "its tokenizer loses part of the test text, and the others read another tokenizer: the scores cannot be compared"
)


def tokenizers_of(description: dict[str, Any], runs: dict[str, list[Record]]) -> set[str]:
    """Fingerprints of the tokenizers in use."""
    prints: dict[str, str] = description["tokenizer_fingerprints"]
    own = {prints[description["tokenizers"][name]] for name in runs if name in description["tokenizers"]}
    return own | {record["tokenizer"] for records in runs.values() for record in records if "tokenizer" in record}


def _once(failures: Sequence[Any]) -> list[Any]:
    return list({failure.system: failure for failure in reversed(failures)}.values())[::-1]


def _bits(records: Sequence[Record], results: Results) -> float:
    return float(np.mean([sum(each["bits"]) / results.test.sizes.sum() for each in records]))


def _entry(name: str, records: Sequence[Record], bootstrap: Bootstrap, *, perplexity: bool) -> Entry:
    first, estimate = records[0], bootstrap.estimate(name)
    nats = float(np.mean([sum(each["bits"]) / each["tokens"] for each in records])) * math.log(2)
    training = {key: _mean([each["training"][key] for each in records]) for key in COSTS if first["training"]}
    entry: Entry = {
        "name": name,
        "kind": first["system"],
        "run": first["run"] if "run" in first else [each["name"] for each in records],
        "seeds": [each["seed"] for each in records],
        "bits_per_byte": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "perplexity": math.exp(nats) if perplexity and nats < 700 else None,
        "parameters": first["parameters"],
        "embedding_parameters": first["embedding_parameters"],
        "training": training,
        "energy_method": first["energy_method"],
        "rate": first["rate"],
        "sweep": first["sweep"],
        "lossy": any(each["lossy"] for each in records),
        "unknown": first["unknown"],
        "sample": first["sample"],
        "curve": mean_curve([each["curve"] for each in records]),
        "status": "ok",
    }
    entry["last_doubling"] = last_doubling(entry["curve"])
    if len(records) > 1:
        entry["each_seed"] = [sum(each["bits"]) / float(bootstrap.bytes) for each in records]
    if "added" in first:
        entry["added"] = first["added"]
    return entry


def _failed(name: str, system: str, error: str) -> Entry:
    return {"name": name, "kind": system, "bits_per_byte": None, "status": "failed", "error": error}


def _mean(values: Sequence[float]) -> float:
    return values[0] if len(set(values)) == 1 else float(np.mean(values))


def mean_curve(curves: Sequence[list[dict[str, float]]]) -> list[dict[str, float]]:
    """The mean over seeds, point by point; the first where their points do not correspond."""
    if len({len(curve) for curve in curves}) > 1 or not curves[0]:
        return curves[0]
    return [{key: _mean([point[key] for point in points]) for key in points[0]} for points in zip(*curves, strict=True)]


def last_doubling(curve: Sequence[dict[str, float]]) -> float | None:
    """How many bits per byte the second half of the training has gained: where the curve is heading."""
    if len(curve) < 3:
        return None
    tokens = np.log([point["tokens"] for point in curve])
    bits = [point["valid_bits_per_byte"] for point in curve]
    half = tokens[-1] - math.log(2)
    return float(np.interp(half, tokens, bits) - bits[-1]) if half >= tokens[0] else None


def heading(curve: Sequence[dict[str, float]], axis: str) -> tuple[float, float] | None:
    """Where a curve would come to with `AHEAD` times as much, if doublings went on gaining what the last two did."""
    if len(curve) < 3 or curve[-1][axis] <= 0 or curve[0][axis] <= 0:
        return None
    spent = np.log2([point[axis] for point in curve])
    bits = [point["valid_bits_per_byte"] for point in curve]
    earlier = max(spent[0], spent[-1] - 2)
    gain = (float(np.interp(earlier, spent, bits)) - bits[-1]) / (spent[-1] - earlier)
    return curve[-1][axis] * AHEAD, bits[-1] - max(0.0, gain) * math.log2(AHEAD)


def headline(board: Board) -> str:
    """The result in one sentence."""
    entries = [entry for entry in board["entries"] if entry["status"] == "ok"]
    if not entries:
        return "No system could be trained and scored."
    best = entries[0]["bits_per_byte"]
    others = [name for name in _leaders(board) if name != entries[0]["name"]]
    if others:
        return f"{join([entries[0]['name'], *others])} lead: {best:.3f} bits per byte."
    return f"{entries[0]['name']} predicts the held-out text best: {best:.3f} bits per byte."


def verdict(board: Board) -> str:
    """What the result means, and how sure it is."""
    entries = [entry for entry in board["entries"] if entry["status"] == "ok"]
    if not entries:
        return ""
    best = entries[0]
    text = f"With it, the text could be shrunk to {best['bits_per_byte'] / 8:.0%} of its size."
    rest = [entry for entry in entries if entry["name"] not in _leaders(board)]
    if len(_leaders(board)) > 1:
        text += " Between the leaders the test text cannot tell."
    if rest:
        margin = rest[0]["bits_per_byte"] - best["bits_per_byte"]
        text += f" {rest[0]['name']} comes next, {margin:.3f} behind {best['name']}: more than chance explains."
    return text


def _leaders(board: Board) -> list[str]:
    first: str = board["entries"][0]["name"]
    return next((group for group in board["ties"] if first in group), [first])


def join(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _notes(
    results: Results, entries: Sequence[Entry], differences: Sequence[Difference], *, added: int, one_tokenizer: bool
) -> list[str]:
    """What has to be known to read the figures, in plain words."""
    conditions = results.description
    budget = parse_budget(conditions["budget"])
    notes = [_budget_note(budget.unit)]
    if budget.unit == "seconds":
        notes += _disturbed(entries)
    if any(not trains(system) for system in conditions["systems"]):
        notes.append(
            "An n-gram counts. It reads the text once"
            + (", as much of it as the budget in tokens allows" if budget.unit in ("tokens", "epochs") else "")
            + ", and then it is done: a larger budget gives it nothing more, while the networks go on learning. "
            "Its FLOPs are not counted (it adds up whole numbers), its parameters are the numbers that it stores."
        )
    heading = [(e["last_doubling"], e["name"]) for e in entries if e["last_doubling"] and e["last_doubling"] > 0.005]
    if heading:
        falls = ", ".join(f"{name} by {gain:.2f}" for gain, name in sorted(heading, reverse=True)[:4])
        notes.append(
            f"With a larger budget the ranking may change. In the second half of the budget the curves were still "
            f"falling: {falls} bits per byte (part of that is the learning rate, which sinks towards the end)."
        )
    notes.append(
        f"Intervals (95%) and ties come from a paired bootstrap over {len(results.test.sizes)} {results.test.unit} of "
        "the test text"
        + ("" if results.test.unit == "documents" else " (there are too few documents to draw from)")
        + (
            f" and over {len(conditions['seeds'])} seeds; p-values are corrected for the number of pairs (Holm)."
            if len(conditions["seeds"]) > 1
            else "; p-values are corrected for the number of pairs (Holm). One seed each: the luck of a single "
            "training is not in the intervals (--seeds 3 would show it)."
        )
    )
    if results.test.sizes.sum() < SHORT_TEST:
        notes.append(f"The test text is short ({int(results.test.sizes.sum()):,} bytes), so intervals are wide.")
    notes.append(
        "Reading the text, training the tokenizer, validation, checkpoints and scoring are outside the budget for all "
        "alike. "
        + (
            "Compiling counts: it happens in the first step."
            if conditions["train"].get("compile")
            else "No system was compiled (torch.compile), so there is no compilation to count."
        )
    )
    methods = sorted({entry["energy_method"] for entry in entries if entry["energy_method"]})
    notes.append(
        f"Energy: {', '.join(methods) or 'not measured'}, validation included. CO2e at {conditions['grid']}. FLOPs: "
        "matrix products of forward and backward passes, counted for each architecture."
    )
    if conditions["sweep"]:
        notes.append(
            f"{SWEEP_SHARE:.0%} of each budget went to three short runs with a third, all and three times the usual "
            "learning rate; the best rate had the rest. Costs are the sum of all four; curves show the last."
        )
    else:
        notes.append("Learning rates are each family's defaults (docs/guides/comparing.md); --sweep tries others.")
    if not one_tokenizer:
        notes.append(
            "The systems do not all read the same tokens, so only bits per byte are compared; perplexities per token "
            "would mean different things."
        )
    elif conditions["lossy"]:
        notes.append(
            "The tokenizer loses part of the text. That flatters bits per byte, for all alike: compare them with each "
            "other only, and perplexities with those of the same tokenizer."
        )
    if conditions["matched_parameters"]:
        notes.append(
            f"Every network was made as wide as {conditions['matched_parameters']:,} parameters allow, within 5%; an "
            "n-gram cannot be sized so."
        )
    if added:
        notes.append("Runs marked † were added. They were trained elsewhere, with a budget of their own.")
    known = {entry["kind"] for entry in entries}
    notes += [f"{each.name} failed and is left out: {each.reason}" for each in results.failures if each.system in known]
    notes += _overspent(entries, budget.unit, budget.amount)
    notes += [f"{entry['name']}: {entry['added']}" for entry in entries if "added" in entry]
    if len(differences) and all(each.low is None for each in differences):
        notes.append("The test text has too few parts to say which differences are real.")
    return notes


def _budget_note(unit: str) -> str:
    if unit == "seconds":
        return (
            "A budget in time is noisy by nature: how many steps fit depends on the machine and on what else it does. "
            "Repeat it before you believe a close result, or give the budget in tokens or FLOPs."
        )
    return (
        f"With a budget in {unit} the same command with the same seed gives the same scores again, on the same machine."
    )


def _disturbed(entries: Sequence[Entry]) -> list[str]:
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


def _overspent(entries: Sequence[Entry], unit: str, amount: float) -> list[str]:
    """Runs that took more than they were given: with a budget in time, the last step is finished."""
    if unit not in COSTS:
        return []
    over = [e for e in entries if "added" not in e and e["training"][unit] > amount * (1 + TOLERANCE)]
    return [
        f"{e['name']} took {e['training'][unit]:.3g} {unit}, {e['training'][unit] / amount - 1:.0%} over the budget: "
        + ("one step takes too long for it." if trains(e["kind"]) else "counting the text once takes that long.")
        for e in over
    ]


def to_csv(board: Board) -> str:
    """The leaderboard as comma-separated values, one system per line."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*COLUMNS, *COSTS, "year"])
    for rank, entry in enumerate(board["entries"], start=1):
        ok = entry["status"] == "ok"
        values = {**entry, "rank": rank if ok else None}
        costs = [entry["training"].get(name) if ok else None for name in COSTS]
        year = LINEAGE[entry["kind"]].year if entry["kind"] in LINEAGE else None
        writer.writerow([*(values.get(name) for name in COLUMNS), *costs, year])
    return table.getvalue()
