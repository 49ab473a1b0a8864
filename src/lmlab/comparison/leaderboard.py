"""The leaderboard: the rankings of all tracks, and the result in words."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from lmlab.comparison.entries import Entry, Unranked
from lmlab.comparison.notes import write_caveats, write_notes
from lmlab.comparison.ranking import Ranking, rank
from lmlab.comparison.records import COSTS, ComparedRun
from lmlab.comparison.runner import Results
from lmlab.comparison.tracks import TRACKS, all_tracks, track_of
from lmlab.comparison.tracks.sequences import SEQUENCES
from lmlab.comparison.tracks.track import Track, Units
from lmlab.metrics.statistics import Difference
from lmlab.models import LINEAGE

Board = dict[str, Any]


def make_board(results: Results, *, added: Sequence[ComparedRun] = ()) -> Board:
    """leaderboard.json: left-to-right systems in `entries`, others under the key of their track; each best first."""
    runs: dict[str, list[ComparedRun]] = {}
    for record in results.records.values():
        runs.setdefault(record.system, []).append(record)
    runs |= {record.name: [record] for record in added}
    sequences = results.tests.sequences
    tracks: list[Track] = [*TRACKS.values()] if sequences is None else [SEQUENCES[sequences.tokenizer.kind]]
    if results.tests.media is not None:
        tracks = list(dict.fromkeys(track_of(name) for name in results.description["systems"]))
    rankings = [rank(track, runs, results) for track in tracks]
    board: Board = {"conditions": results.description}
    for ranking in rankings:
        board |= _written(ranking, results.description)
    return {
        **board,
        "prompt": results.tests.whole.prompt,
        "cloze": results.tests.whole.cloze._asdict(),
        "notes": write_notes(results, [each for each in rankings if each.entries or each.apart], added=added),
    }


def _written(ranking: Ranking, conditions: dict[str, Any]) -> Board:
    track, letters, score = ranking.track, ranking.letters, ranking.track.score.field
    entries = [replace(entry, letters=letters.get(entry.name, "")).to_json(score) for entry in ranking.entries]
    besides = {
        "ties": ranking.ties,
        "differences": [each._asdict() for each in ranking.differences],
        "apart": [each.to_json(score) for each in ranking.apart],
        "units": asdict(ranking.units),
        "caveats": write_caveats(ranking, conditions),
    }
    if not track.key:
        return {"entries": entries, **besides}
    why = track.separation.why if track.separation else ""
    return {track.key: entries, f"{track.key}_ranking": {**besides, "why": why}}


def read_entries(board: Board) -> list[Entry]:
    """Return the entries of all tracks."""
    board = _with_new_keys(board)
    return [
        Entry.from_json(entry, track.score.field)
        for track in all_tracks()
        for entry in board.get(track.key or "entries", [])
    ]


def read_rankings(board: Board) -> list[Ranking]:
    """The rankings of a board that hold any system, in the order of the tracks, unless all systems of one failed."""
    board = _with_new_keys(board)
    rankings = [_read(track, board) for track in all_tracks() if (track.key or "entries") in board]
    return sorted((each for each in rankings if each.entries or each.apart), key=lambda each: not each.ranked)


def _with_new_keys(board: Board) -> Board:
    """Return a board with the present keys; until version 0.6 the key of masked models was `blanks`."""
    renamed = {"blanks": "masked", "blanks_ranking": "masked_ranking"}
    return {renamed.get(key, key): value for key, value in board.items()}


def _read(track: Track, board: Board) -> Ranking:
    part = {**board[f"{track.key}_ranking"], "entries": board[track.key]} if track.key else board
    differences = [_read_difference(each) for each in part["differences"]]
    entries = [Entry.from_json(each, track.score.field) for each in part["entries"]]
    apart = [Unranked.from_json(each, track.score.field) for each in part["apart"]]
    return Ranking(track, entries, differences, apart, Units(**part["units"]))


def _read_difference(written: dict[str, Any]) -> Difference:
    """A difference from leaderboard.json; until version 0.5 its fields were called `bits` and `real`."""
    renamed = {"bits": "value", "real": "significant"}
    return Difference(**{renamed.get(name, name): value for name, value in written.items()})


def headline(ranking: Ranking) -> str:
    """The result in one sentence; of one system alone it does not say that it is the best."""
    if not ranking.ranked:
        return "No model could be trained and scored."
    first, words = ranking.ranked[0], ranking.track.words
    score = f"{ranking.score(first):.3f} {ranking.track.score.unit}"
    if len(ranking.ranked) == 1:
        return f"{first.name} {words.does}: {score}."
    if len(equal := [each.name for each in ranking.ranked if ranking.score(each) == ranking.score(first)]) > 1:
        return f"{join(equal)} have the same score{words.leading}: {score}."
    if len(ranking.leaders) > 1:
        best, *others = ranking.leaders
        return f"{best} has the best score{words.leading}, not significantly better than {join(others)}: {score}."
    return f"{first.name} {words.does} best: {score}."


def conclusion(ranking: Ranking) -> str:
    """What the result means, and which differences from the best are significant."""
    if not ranking.ranked:
        return ""
    best, parts = ranking.leaders[0], [ranking.track.conclusion(ranking.ranked[0])]
    if len(ranking.ranked) > 1 and not ranking.tested:
        parts.append("The test text has too few parts to test whether the models differ.")
        return " ".join(parts)
    behind = [entry.name for entry in ranking.ranked if entry.name not in ranking.leaders]
    if behind:
        found = ranking.difference(best, behind[0])
        paired = " (paired test; the intervals overlap)" if found in ranking.paired_only else ""
        parts.append(f"{behind[0]} is {found.value:.3f} behind {best}: a significant difference{paired}.")
    return " ".join(parts)


def describe_groups(ranking: Ranking) -> list[str]:
    """What the letters of a ranking mean, and which differences are significant although the intervals overlap."""
    if not ranking.tested:
        return []
    if ranking.ties:
        parts = ["Models that share a letter do not differ significantly; all other pairs do (corrected p < 0.05)."]
    else:
        parts = ["Every difference in this ranking is statistically significant (corrected p < 0.05)."]
    if pairs := [f"{each.better} and {each.worse}" for each in ranking.paired_only]:
        parts.append(f"Significant by the paired test, although the intervals overlap: {'; '.join(pairs)}.")
    return parts


def join(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def to_csv(board: Board) -> str:
    """The leaderboard as comma-separated values, one system per line; ranks are those in its track."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    tracks = [track for track in all_tracks() if track.name in TRACKS or track.key in board]
    columns = (
        *(
            "rank",
            "name",
            "kind",
            "predicts",
            "status",
            *(track.score.field for track in tracks),
            "low",
            "high",
            "letters",
        ),
        *(field for track in tracks for field in track.fields),
        *("parameters", "embedding_parameters", "lossy", "error"),
    )
    writer.writerow([*columns, *COSTS, "year"])
    for ranking in read_rankings(board):
        for position, entry in enumerate(ranking.entries, start=1):
            rank_shown = position if entry.status == "ok" else None
            values = {**entry.to_json(ranking.track.score.field), "rank": rank_shown}
            costs = [entry.training.get(name) for name in COSTS]
            year = LINEAGE[entry.kind].year if entry.kind in LINEAGE else None
            writer.writerow([*(values.get(name) for name in columns), *costs, year])
    return table.getvalue()
