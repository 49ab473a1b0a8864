"""The leaderboard: systems ranked on held-out text with those that predict the same, ties, and the result in words."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from lmlab.compare.arena import Results
from lmlab.compare.blanks import WHY
from lmlab.compare.notes import write_notes
from lmlab.compare.ranking import COSTS, SCORES, Ranking, rank
from lmlab.compare.records import MEASURES, Record
from lmlab.models import LINEAGE

Board = dict[str, Any]
COLUMNS = ("rank", "name", "kind", "predicts", "status", *SCORES.values(), "low", "high", "perplexity",
           "masked_perplexity", "masked_accuracy", *MEASURES, "parameters", "embedding_parameters", "lossy",
           "error")  # fmt: skip


def make_board(results: Results, *, added: Sequence[Record] = ()) -> Board:
    """leaderboard.json: left-to-right systems in `entries`, masked ones in `blanks`, each list ranked, best first."""
    runs: dict[str, list[Record]] = {}
    for record in results.records.values():
        runs.setdefault(record["system"], []).append(record)
    runs |= {record["name"]: [record] for record in added}
    first, second = (rank(predicts, runs, results) for predicts in SCORES)
    return {
        "conditions": results.description,
        "entries": first.entries,
        **_besides(first),
        "blanks": second.entries,
        "blanks_ranking": {**_besides(second), "why": WHY},
        "prompt": results.tests.whole.prompt,
        "cloze": results.tests.whole.cloze._asdict(),
        "notes": write_notes(results, [each for each in (first, second) if each.entries or each.apart], added=added),
    }


def _besides(ranking: Ranking) -> dict[str, Any]:
    return {name: value for name, value in ranking._asdict().items() if name not in ("predicts", "entries")}


def read_rankings(board: Board) -> list[Ranking]:
    """The rankings of a board that hold any system: left-to-right systems first, unless all of them failed."""
    blanks = {**board["blanks_ranking"], "entries": board["blanks"]}
    rankings = [
        Ranking(predicts, *(part[name] for name in Ranking._fields[1:]))
        for predicts, part in zip(SCORES, (board, blanks), strict=True)
    ]
    return sorted((each for each in rankings if each.entries or each.apart), key=lambda each: not each.ranked)


def headline(ranking: Ranking) -> str:
    """The result in one sentence."""
    if not ranking.ranked:
        return "No system could be trained and scored."
    best = f"{ranking.score(ranking.ranked[0]):.3f}"
    masked = ranking.predicts == "blanks"
    measure = f"{best} bits per byte" + (" of pseudo-log-likelihood" if masked else "")
    if len(ranking.leaders) > 1:
        names = join([ranking.ranked[0]["name"], *(n for n in ranking.leaders if n != ranking.ranked[0]["name"])])
        return f"{names} lead{' in filling blanks' if masked else ''}: {measure}."
    does = "fills blanks" if masked else "predicts the held-out text"
    return f"{ranking.ranked[0]['name']} {does} best: {measure}."


def verdict(ranking: Ranking) -> str:
    """What the result means, and how sure it is."""
    if not ranking.ranked:
        return ""
    best, leaders = ranking.ranked[0], ranking.leaders
    said = []
    if ranking.predicts == "next token":
        said.append(f"With it, the text could be shrunk to {best['bits_per_byte'] / 8:.0%} of its size.")
    else:
        said.append(f"It guesses {best['masked_accuracy']:.0%} of the hidden tokens at the first try.")
    rest = [entry for entry in ranking.ranked if entry["name"] not in leaders]
    if len(leaders) > 1:
        said.append("Between the leaders the test text cannot tell.")
    if rest:
        margin = ranking.score(rest[0]) - ranking.score(best)
        said.append(f"{rest[0]['name']} comes next, {margin:.3f} behind {best['name']}: more than chance explains.")
    return " ".join(said)


def join(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def to_csv(board: Board) -> str:
    """The leaderboard as comma-separated values, one system per line; ranks are among those that predict the same."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*COLUMNS, *COSTS, "year"])
    for ranking in read_rankings(board):
        for place, entry in enumerate(ranking.entries, start=1):
            ok = entry["status"] == "ok"
            values = {**entry, "rank": place if ok else None}
            costs = [entry["training"].get(name) if ok else None for name in COSTS]
            year = LINEAGE[entry["kind"]].year if entry["kind"] in LINEAGE else None
            writer.writerow([*(values.get(name) for name in COLUMNS), *costs, year])
    return table.getvalue()
