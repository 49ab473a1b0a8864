"""A ranking: systems that predict the same thing, by their score on held-out text, and which of them are tied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lmlab.compare.arena import Results
from lmlab.compare.curves import CURVE, last_doubling, mean, mean_curve
from lmlab.compare.evaluation import TestText
from lmlab.compare.records import MEASURES, Record
from lmlab.compare.statistics import Bootstrap, tied_groups
from lmlab.models import find

Entry = dict[str, Any]
SCORES = {"next token": "bits_per_byte", "blanks": "pseudo_bits_per_byte"}
"""What systems are ranked by, under two names, because the two cannot be compared."""
COSTS = ("tokens", "steps", "flops", "seconds", "wall_seconds", "cpu_seconds", "gpu_seconds", "joules", "grams")
APART_REASON = (
    "its tokenizer loses part of the test text, and the others read another tokenizer: the scores cannot be compared"
)


class Ranking(NamedTuple):
    """Systems that predict the same thing, and can therefore be compared."""

    predicts: str
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
        return float(entry[SCORES[self.predicts]])


def rank(predicts: str, every: dict[str, list[Record]], results: Results) -> Ranking:
    """Rank the systems that predict one thing, on their test text."""
    runs = {name: records for name, records in every.items() if find(records[0]["system"]).predicts == predicts}
    test = results.tests.of(predicts)
    one_tokenizer = len(tokenizers_of(results.description, runs)) == 1
    apart = [] if one_tokenizer else [name for name, records in runs.items() if any(each["lossy"] for each in records)]
    ranked = {name: records for name, records in runs.items() if name not in apart}
    bootstrap = Bootstrap(
        {name: [np.array(each["bits"]) for each in records] for name, records in ranked.items()}, test.sizes
    )
    entries = [_entry(name, records, bootstrap, comparable=one_tokenizer) for name, records in ranked.items()]
    entries.sort(key=lambda entry: (entry[SCORES[predicts]], entry["name"]))
    differences = bootstrap.differences()
    failed = {each.system: each.reason for each in reversed(results.failures) if each.system not in every}
    failed = {system: reason for system, reason in reversed(failed.items()) if find(system).predicts == predicts}
    return Ranking(
        predicts,
        [*entries, *(_failed(system, reason) for system, reason in failed.items())],
        tied_groups([entry["name"] for entry in entries], differences),
        [each._asdict() for each in differences],
        [{"name": name, SCORES[predicts]: _bits(runs[name], test), "reason": APART_REASON} for name in apart],
        {"kind": test.unit, "count": len(test.sizes), "bytes": int(test.sizes.sum())},
    )


def tokenizers_of(description: dict[str, Any], runs: dict[str, list[Record]]) -> set[str]:
    """Fingerprints of the tokenizers in use."""
    own = {description["fingerprints"][name] for name in runs if name in description["fingerprints"]}
    return own | {record["tokenizer"] for records in runs.values() for record in records if "tokenizer" in record}


def _bits(records: Sequence[Record], test: TestText) -> float:
    return float(np.mean([sum(each["bits"]) / test.sizes.sum() for each in records]))


def _entry(name: str, records: Sequence[Record], bootstrap: Bootstrap, *, comparable: bool) -> Entry:
    first, estimate = records[0], bootstrap.estimate(name)
    predicts = find(first["system"]).predicts
    training = {key: mean([each["training"][key] for each in records]) for key in COSTS if first["training"]}
    curve = mean_curve([each["curve"] for each in records])
    entry: Entry = {
        "name": name,
        "kind": first["system"],
        "predicts": predicts,
        "run": first["run"] if "run" in first else [each["name"] for each in records],
        "seeds": [each["seed"] for each in records],
        SCORES[predicts]: estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        **(_of_blanks(records) if predicts == "blanks" else _of_tokens(records, comparable=comparable)),
        "parameters": first["parameters"],
        "embedding_parameters": first["embedding_parameters"],
        "training": training,
        "energy_method": first["energy_method"],
        "rate": first["rate"],
        "sweep": first["sweep"],
        "lossy": any(each["lossy"] for each in records),
        "unknown": first["unknown"],
        "sample": first["sample"],
        "curve": curve,
        "last_doubling": last_doubling(curve, measure=CURVE[predicts]),
        "status": "ok",
    }
    if len(records) > 1:
        entry["each_seed"] = [sum(each["bits"]) / float(bootstrap.bytes) for each in records]
    if "added" in first:
        entry["added"] = first["added"]
    return entry


def _of_tokens(records: Sequence[Record], *, comparable: bool) -> Entry:
    """Perplexity per token, where all have the same tokens."""
    nats = float(np.mean([sum(each["bits"]) / each["tokens"] for each in records])) * math.log(2)
    return {"perplexity": _exp(nats) if comparable else None}


def _of_blanks(records: Sequence[Record]) -> Entry:
    """Perplexity and accuracy of the hidden tokens, and what else the objective measures."""
    nats = float(np.mean([each["masked_nats"] / each["blanks"] for each in records]))
    measured = {name: float(np.mean([each[name] for each in records])) for name in MEASURES if name in records[0]}
    return {
        "masked_perplexity": _exp(nats),
        "masked_accuracy": float(np.mean([each["masked_right"] / each["blanks"] for each in records])),
        "blanks": records[0]["blanks"],
        **measured,
        "filled": records[0]["filled"],
    }


def _exp(nats: float) -> float | None:
    return math.exp(nats) if nats < 700 else None


def _failed(system: str, error: str) -> Entry:
    predicts = find(system).predicts
    return {
        "name": system,
        "kind": system,
        "predicts": predicts,
        SCORES[predicts]: None,
        "status": "failed",
        "error": error,
    }
