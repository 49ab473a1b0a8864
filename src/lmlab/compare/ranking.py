"""A ranking: systems in one contest by their score on held-out text, and which of them are tied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmlab.compare.arena import Results
from lmlab.compare.contests import Contest, contest_of
from lmlab.compare.records import Entry, Record, last_doubling, mean_costs, mean_curve
from lmlab.compare.statistics import Bootstrap, tied_groups

APART_REASON = (
    "its tokenizer loses part of the test text, and the others read another tokenizer: the scores cannot be compared"
)


class Ranking(NamedTuple):
    """Systems in one contest, which can therefore be compared."""

    contest: Contest
    entries: list[Entry]  # best first, failed ones last
    ties: list[list[str]]
    differences: list[dict[str, Any]]
    apart: list[dict[str, Any]]  # those that cannot be ranked with the rest
    units: dict[str, Any]  # of the test text that ranks them

    @property
    def ranked(self) -> list[Entry]:
        """Those that were scored, best first."""
        return [entry for entry in self.entries if entry["status"] == "ok"]

    @property
    def leaders(self) -> list[str]:
        """The best, with those that cannot be told from it."""
        first: str = self.ranked[0]["name"]
        return next((group for group in self.ties if first in group), [first])

    def score(self, entry: Entry) -> float:
        """What the entry is ranked by."""
        return float(entry[self.contest.ranks_by])


def rank(contest: Contest, every: Mapping[str, Sequence[Record]], results: Results) -> Ranking:
    """Rank the systems that take part in one contest, on its test text."""
    runs = {
        name: [answers(record, contest) for record in records]
        for name, records in every.items()
        if entered(records[0], contest)
    }
    test = contest.test(results.tests)
    sizes = contest.sizes(test)
    one_tokenizer = len(tokenizers_of(results.description, runs)) == 1
    apart = [] if one_tokenizer else [name for name, records in runs.items() if any(each["lossy"] for each in records)]
    ranked = {name: records for name, records in runs.items() if name not in apart}
    bootstrap = Bootstrap(
        {name: [np.array(each[contest.sums]) for each in records] for name, records in ranked.items()},
        sizes,
        better=contest.better,
    )
    entries = [_entry(contest, name, records, bootstrap, one_tokenizer) for name, records in ranked.items()]
    entries.sort(key=lambda entry: (bootstrap.sign * entry[contest.ranks_by], entry["name"]))
    differences = bootstrap.differences()
    failed = {each.system: each.reason for each in reversed(results.failures) if each.system not in every}
    failed = {system: reason for system, reason in reversed(failed.items()) if contest.has(system)}
    return Ranking(
        contest,
        [*entries, *(_failed(contest, system, reason) for system, reason in failed.items())],
        tied_groups([entry["name"] for entry in entries], differences),
        [each._asdict() for each in differences],
        [
            {
                "name": name,
                contest.ranks_by: float(np.mean([contest.score(each, results.tests) for each in runs[name]])),
                "reason": APART_REASON,
            }
            for name in apart
        ],
        {"kind": test.unit, "count": len(sizes), "bytes": int(test.sizes.sum())},
    )


def entered(record: Record, contest: Contest) -> bool:
    """Whether a run was measured in a contest."""
    return contest is contest_of(record["system"]) or contest.name in record.get("also", {})


def answers(record: Record, contest: Contest) -> Record:
    """A record with what was measured of it in this contest, which need not be the one that its system is known for."""
    return {**record, **record.get("also", {}).get(contest.name, {})}


def tokenizers_of(description: Mapping[str, Any], runs: Mapping[str, Sequence[Record]]) -> set[str]:
    """Fingerprints of the tokenizers in use."""
    own = {description["fingerprints"][name] for name in runs if name in description["fingerprints"]}
    return own | {record["tokenizer"] for records in runs.values() for record in records if "tokenizer" in record}


def _entry(contest: Contest, name: str, records: Sequence[Record], bootstrap: Bootstrap, same_tokens: bool) -> Entry:
    first, estimate = records[0], bootstrap.estimate(name)
    curve = mean_curve([each["curve"] for each in records])
    entry: Entry = {
        "name": name,
        "kind": first["system"],
        "predicts": contest.name,
        "run": first["run"] if "run" in first else [each["name"] for each in records],
        "seeds": [each["seed"] for each in records],
        contest.ranks_by: estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        **contest.summarise(records, same_tokens=same_tokens),
        "parameters": first["parameters"],
        "embedding_parameters": first["embedding_parameters"],
        "training": mean_costs([each["training"] for each in records]),
        "energy_method": first["energy_method"],
        "rate": first["rate"],
        "sweep": first["sweep"],
        "lossy": any(each["lossy"] for each in records),
        "unknown": first["unknown"],
        "sample": first["sample"],
        "curve": curve,
        "last_doubling": last_doubling(curve, measure=contest.curve),
        "status": "ok",
    }
    if len(records) > 1:
        entry["each_seed"] = [sum(each[contest.sums]) / bootstrap.bytes for each in records]
    if "added" in first:
        entry["added"] = first["added"]
    return entry


def _failed(contest: Contest, system: str, error: str) -> Entry:
    return {
        "name": system,
        "kind": system,
        "predicts": contest.name,
        contest.ranks_by: None,
        "status": "failed",
        "error": error,
    }
