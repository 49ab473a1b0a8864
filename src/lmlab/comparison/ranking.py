"""A ranking: the systems of one track by their score on test data, and which of them differ significantly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmlab.comparison.entries import Entry, Unranked
from lmlab.comparison.records import ComparedRun, last_doubling, mean_costs, mean_curve
from lmlab.comparison.runner import Results
from lmlab.comparison.tracks import track_of
from lmlab.comparison.tracks.track import Track, Units
from lmlab.comparison.variants import system_of
from lmlab.metrics.statistics import FEWEST_UNITS, Difference, Scores, letter_display, tied_groups

APART_REASON = (
    "its tokenizer loses part of the test text, and the others read another tokenizer: the scores cannot be compared"
)


class Ranking(NamedTuple):
    """Systems in one track, which can therefore be compared."""

    track: Track
    entries: list[Entry]  # best first, failed ones last
    differences: list[Difference]  # of every pair
    apart: list[Unranked]  # those that cannot be ranked with the rest
    units: Units

    @property
    def ranked(self) -> list[Entry]:
        """Those that were scored, best first."""
        return [entry for entry in self.entries if entry.status == "ok"]

    @property
    def tested(self) -> bool:
        """Whether there were enough test units to test the differences."""
        return bool(self.differences) and self.units.count >= FEWEST_UNITS

    @property
    def letters(self) -> dict[str, str]:
        """Two systems share a letter exactly if they do not differ significantly; none where nothing was tested."""
        return letter_display(self._names, self.differences) if self.tested else {}

    @property
    def ties(self) -> list[list[str]]:
        """The groups of several systems that share a letter."""
        return [group for group in tied_groups(self._names, self.differences) if len(group) > 1] if self.tested else []

    @property
    def leaders(self) -> list[str]:
        """The best system, and those that do not differ significantly from it."""
        best, *others = self._names
        return [best, *(name for name in others if self.tested and not self.difference(best, name).significant)]

    @property
    def paired_only(self) -> list[Difference]:
        """Significant differences whose intervals overlap: only the paired test shows them."""
        entries = {entry.name: entry for entry in self.ranked}
        significant = [each for each in self.differences if each.significant]
        return [each for each in significant if _overlap(entries[each.better], entries[each.worse])]

    def difference(self, one: str, other: str) -> Difference:
        """The tested difference between two systems."""
        return next(each for each in self.differences if {each.better, each.worse} == {one, other})

    def score(self, entry: Entry) -> float:
        """What an entry that was scored is ranked by."""
        assert entry.score is not None
        return entry.score

    @property
    def _names(self) -> list[str]:
        return [entry.name for entry in self.ranked]


def rank(track: Track, every: Mapping[str, Sequence[ComparedRun]], results: Results) -> Ranking:
    """Rank the systems that take part in one track, on its test text."""
    runs = {name: records for name, records in every.items() if takes_part(records[0], track)}
    found = {name: [each.scores.in_track(track.name) for each in records] for name, records in runs.items()}
    one_tokenizer = len(tokenizers_of(results.description, runs)) == 1
    apart = [] if one_tokenizer else [name for name, own in found.items() if any(each.lossy for each in own)]
    scores = track.scores({name: found[name] for name in sorted(found) if name not in apart}, results.tests)
    entries = [_entry(track, name, runs[name], scores, one_tokenizer) for name in scores.order]
    failed = {each.system: each.reason for each in reversed(results.failures) if each.system not in every}
    failed = {system: reason for system, reason in reversed(failed.items()) if track.has(system)}
    return Ranking(
        track,
        [*entries, *(_failed(track, system, reason) for system, reason in failed.items())],
        scores.compare(),
        [
            Unranked(name, float(np.mean([track.score_run(each, results.tests) for each in found[name]])), APART_REASON)
            for name in apart
        ],
        track.units(results.tests),
    )


def takes_part(record: ComparedRun, track: Track) -> bool:
    """Whether a run was measured in a track."""
    return track is track_of(record.system, record.scores.data) or track.name in record.scores.also


def tokenizers_of(description: Mapping[str, Any], runs: Mapping[str, Sequence[ComparedRun]]) -> set[str]:
    """Fingerprints of the tokenizers in use."""
    own = {description["fingerprints"][name] for name in runs if name in description["fingerprints"]}
    return own | {record.tokenizer for records in runs.values() for record in records if record.tokenizer is not None}


def _overlap(one: Entry, other: Entry) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.low <= other.high and other.low <= one.high


def _entry(track: Track, name: str, records: Sequence[ComparedRun], scores: Scores, same_tokens: bool) -> Entry:
    first, estimate = records[0], scores.estimate(name)
    found = [each.scores.in_track(track.name) for each in records]
    curve = mean_curve([each.curve for each in found])
    return Entry(
        name=name,
        kind=system_of(first.system),
        predicts=track.name,
        run=first.run if first.run is not None else [each.name for each in records],
        seeds=[each.seed for each in records],
        score=estimate.value,
        low=estimate.low,
        high=estimate.high,
        measured=track.summarise(found, same_tokens=same_tokens),
        parameters=first.parameters,
        embedding_parameters=first.embedding_parameters,
        training=mean_costs([each.training for each in records]),
        energy_method=first.energy_method,
        rate=first.rate,
        sweep=first.sweep,
        lossy=any(each.lossy for each in found),
        unknown=found[0].unknown,
        sample=found[0].sample,
        curve=curve,
        last_doubling=last_doubling(curve, metric=track.curve.field, better=track.curve.better),
        each_seed=scores.each_seed[name] if len(records) > 1 else None,
        added=first.added,
    )


def _failed(track: Track, system: str, error: str) -> Entry:
    return Entry(name=system, kind=system_of(system), predicts=track.name, status="failed", error=error)
