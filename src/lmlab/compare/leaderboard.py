"""The leaderboard: the rankings of all contests, and the result in words."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from lmlab.compare.arena import Results
from lmlab.compare.contests import CONTESTS, Contest
from lmlab.compare.notes import write_notes
from lmlab.compare.ranking import Ranking, rank
from lmlab.compare.records import COSTS, Entry, Record
from lmlab.models import LINEAGE

Board = dict[str, Any]


def make_board(results: Results, *, added: Sequence[Record] = ()) -> Board:
    """leaderboard.json: left-to-right systems in `entries`, others under the key of their contest; each best first."""
    runs: dict[str, list[Record]] = {}
    for record in results.records.values():
        runs.setdefault(record["system"], []).append(record)
    runs |= {record["name"]: [record] for record in added}
    rankings = [rank(contest, runs, results) for contest in CONTESTS.values()]
    board: Board = {"conditions": results.description}
    for ranking in rankings:
        board |= _written(ranking)
    return {
        **board,
        "prompt": results.tests.whole.prompt,
        "cloze": results.tests.whole.cloze._asdict(),
        "notes": write_notes(results, [each for each in rankings if each.entries or each.apart], added=added),
    }


def _written(ranking: Ranking) -> Board:
    contest = ranking.contest
    besides = {name: value for name, value in ranking._asdict().items() if name not in ("contest", "entries")}
    if not contest.key:
        return {"entries": ranking.entries, **besides}
    return {contest.key: ranking.entries, f"{contest.key}_ranking": {**besides, "why": contest.words.why}}


def read_entries(board: Board) -> list[Entry]:
    """The entries of all contests."""
    return [entry for contest in CONTESTS.values() for entry in board.get(contest.key or "entries", [])]


def read_rankings(board: Board) -> list[Ranking]:
    """The rankings of a board that hold any system, in the order of the contests, unless all systems of one failed."""
    rankings = [_read(contest, board) for contest in CONTESTS.values() if (contest.key or "entries") in board]
    return sorted((each for each in rankings if each.entries or each.apart), key=lambda each: not each.ranked)


def _read(contest: Contest, board: Board) -> Ranking:
    part = {**board[f"{contest.key}_ranking"], "entries": board[contest.key]} if contest.key else board
    return Ranking(contest, *(part[name] for name in Ranking._fields[1:]))


def headline(ranking: Ranking) -> str:
    """The result in one sentence; of one system alone it does not say that it is the best."""
    if not ranking.ranked:
        return "No model could be trained and scored."
    first, words = ranking.ranked[0], ranking.contest.words
    measure = f"{ranking.score(first):.3f} {words.unit}"
    if len(ranking.ranked) == 1:
        return f"{first['name']} {words.does}: {measure}."
    if len(ranking.leaders) > 1:
        names = join([first["name"], *(name for name in ranking.leaders if name != first["name"])])
        return f"{names} lead{words.leading}: {measure}."
    return f"{first['name']} {words.does} best: {measure}."


def verdict(ranking: Ranking) -> str:
    """What the result means, and how sure it is."""
    if not ranking.ranked:
        return ""
    best, leaders = ranking.ranked[0], ranking.leaders
    said = [ranking.contest.verdict(best)]
    rest = [entry for entry in ranking.ranked if entry["name"] not in leaders]
    if len(leaders) > 1:
        said.append("The difference between the leaders is not statistically significant.")
    if rest:
        margin = abs(ranking.score(rest[0]) - ranking.score(best))
        said.append(f"{rest[0]['name']} comes next, {margin:.3f} behind {best['name']}: a significant difference.")
    return " ".join(said)


def join(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def to_csv(board: Board) -> str:
    """The leaderboard as comma-separated values, one system per line; ranks are those in its contest."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    contests = CONTESTS.values()
    columns = (
        *("rank", "name", "kind", "predicts", "status", *(contest.ranks_by for contest in contests), "low", "high"),
        *(field for contest in contests for field in contest.fields),
        *("parameters", "embedding_parameters", "lossy", "error"),
    )
    writer.writerow([*columns, *COSTS, "year"])
    for ranking in read_rankings(board):
        for place, entry in enumerate(ranking.entries, start=1):
            ok = entry["status"] == "ok"
            values = {**entry, "rank": place if ok else None}
            costs = [entry["training"].get(name) if ok else None for name in COSTS]
            year = LINEAGE[entry["kind"]].year if entry["kind"] in LINEAGE else None
            writer.writerow([*(values.get(name) for name in columns), *costs, year])
    return table.getvalue()
