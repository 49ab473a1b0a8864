"""report.html: the comparison in one file that needs nothing else, for somebody who was not there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from lmlab.comparison.entries import Entry
from lmlab.comparison.leaderboard import Board, conclusion, describe_groups, headline, join, read_rankings
from lmlab.comparison.notes import write_caveats
from lmlab.comparison.plots import choose_colours, cost_charts, curve_charts
from lmlab.comparison.ranking import Ranking
from lmlab.comparison.records import EXTRAPOLATED, Basis, choose_basis, validation_seconds
from lmlab.comparison.tracks.track import Track
from lmlab.data import DATA
from lmlab.models import LINEAGE
from lmlab.pages.figures import Chart
from lmlab.pages.formats import duration, number, short, size
from lmlab.pages.page import Cell, render
from lmlab.training.budget import parse_budget

TABS = {"tokens": "Tokens", "seconds": "Time", "flops": "FLOPs", "joules": "Energy", "parameters": "Parameters"}
Passage = Sequence[tuple[str, float]]


class LeaderboardRow(NamedTuple):
    """A line of the leaderboard."""

    name: str
    colour: str
    mark: str
    what: str
    value: float
    low: float | None
    high: float | None
    letters: str
    cells: list[Cell]
    leads: bool


class LeftOut(NamedTuple):
    """A model that is not ranked, and why."""

    name: str
    what: str
    reason: str


class Leaderboard(NamedTuple):
    """The table of a ranking."""

    columns: list[str]
    rows: list[LeaderboardRow]
    left_out: list[LeftOut]
    letters: bool

    @property
    def widest(self) -> float:
        """The value whose bar is as wide as its column."""
        return max([row.high or row.value for row in self.rows], default=1.0)


class ShownPassage(NamedTuple):
    """A held-out passage with the bits of each piece."""

    pieces: Passage

    @property
    def bits_per_byte(self) -> float:
        return sum(bits for _, bits in self.pieces) / max(1, sum(len(text.encode()) for text, _ in self.pieces))


class RankingView(NamedTuple):
    """A ranking as the page shows it."""

    track: Track
    headline: str  # "" where it is the headline of the page
    conclusion: str
    leaderboard: Leaderboard
    groups: list[str]
    caveats: list[str]
    curves: dict[str, Chart]
    gains: list[tuple[float, str]]
    costs: dict[str, Chart]
    samples: list[tuple[LeaderboardRow, str]]
    passages: list[tuple[LeaderboardRow, ShownPassage]]
    differences: dict[tuple[str, str], dict[str, Any]]

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.leaderboard.rows]


def make_report(board: Board, passages: Mapping[tuple[str, str], Passage]) -> Markup:
    """The whole page; `passages` are the pieces of the held-out passage with the bits of each, by track and name."""
    rankings = read_rankings(board)
    conditions = board["conditions"]
    return render(
        "comparison.html",
        title=f"{sum(len(ranking.ranked) for ranking in rankings)} models compared",
        headline=headline(rankings[0]),
        conclusion=conclusion(rankings[0]),
        lead={
            "models": len(conditions["systems"]),
            "train": _describe_size(conditions["text"]["train"], rankings[0].track.tested.removeprefix("test ")),
            "test": _describe_size(conditions["text"]["test"], rankings[0].track.tested),
            "budget": _spaced(conditions["budget"]),
            "others": _describe_others(rankings),
        },
        rankings=[view_ranking(ranking, board, passages, first=ranking is rankings[0]) for ranking in rankings],
        extrapolated=EXTRAPOLATED,
        notes=board["notes"],
        use=rankings[0].track.use,
        conditions=_conditions(conditions, rankings),
        versions={**conditions["versions"], **conditions["machine"]},
    )


def _describe_others(rankings: Sequence[Ranking]) -> list[str]:
    """Why there are several rankings, if there are."""
    lines = [f"The first ranking is of those that {rankings[0].track.words.do}."] if len(rankings) > 1 else []
    for ranking in rankings[1:]:
        names = join([*(entry.name for entry in ranking.entries), *(each.name for each in ranking.apart)])
        lines.append(
            f"Others {ranking.track.words.do} ({names}): these scores are not comparable, so they are ranked "
            "separately, further below."
        )
    return lines


def _describe_size(split: Mapping[str, int], what: str) -> str:
    """The size of a split in words: `1.2 MB of text`, `77 test pieces`."""
    return f"{size(split['bytes'])} of {what}" if "bytes" in split else f"{next(iter(split.values())):,} {what}"


def _spaced(budget: str) -> str:
    return re.sub(r"(?<=[\dkKMGBTP])(?=(tokens?|steps?|epochs?|flops)$)", " ", budget)


def _conditions(conditions: Mapping[str, Any], rankings: Sequence[Ranking]) -> dict[str, Any]:
    data, text = conditions["data"], conditions["text"]
    specs = dict.fromkeys(conditions["tokenizers"].values())
    tokenizer = ", ".join(
        f"{spec} ({conditions['vocabularies'][spec]:,} types{', lossy' * conditions['lossy'][spec]})"
        if spec
        else "none"
        for spec in specs
    )
    if len(specs) > 1:
        tokenizer = ", ".join(f"{system}: {spec or 'none'}" for system, spec in conditions["tokenizers"].items())
    in_part = any(ranking.track.on_part for ranking in rankings)
    part = f"{conditions['part']['documents']:,} documents, {conditions['part']['bytes']:,} bytes of the test text"
    return {
        "data" if "text" not in data else "text": ", ".join(
            next(data[key] for kind in DATA.values() for key in kind.keys if data.get(key))
        ),
        **({"documents": data["documents"]} if "documents" in data else {}),
        **{
            f"{name} {rankings[0].track.tested.removeprefix('test ')}": ", ".join(
                f"{count:,} {unit}" for unit, count in part.items()
            )
            for name, part in text.items()
        },
        **({"pseudo-log-likelihood of": part} if in_part else {}),
        "split": "separate texts"
        if data.get("valid") or data.get("test")
        else ", ".join(f"{fraction:g}" for fraction in data["split"]),
        "tokenizer": tokenizer,
        "budget of each model": conditions["budget"],
        "size": conditions["size"] or "the default of each model",
        "parameters": f"matched to {conditions['matched_parameters']:,}"
        if conditions["matched_parameters"]
        else "those of the size",
        "seeds": ", ".join(map(str, conditions["seeds"])),
        "learning rates": "chosen by --sweep" if conditions["sweep"] else "defaults of each model",
        "other settings": ", ".join(f"train.{key}={value}" for key, value in conditions["train"].items()) or "none",
        "SHA-256 of the data" if "text" not in data else "SHA-256 of the text": conditions["text_sha256"],
    }


def view_ranking(
    ranking: Ranking, board: Board, passages: Mapping[tuple[str, str], Passage], *, first: bool
) -> RankingView:
    """Everything that the page shows of a ranking; one that is not the `first` has its own headline."""
    track, colours = ranking.track, choose_colours(ranking)
    unit = parse_budget(board["conditions"]["budget"]).unit
    curves = sorted(curve_charts(ranking, colours), key=lambda chart: not chart.name.endswith(f"curve-{unit}"))
    table = _leaderboard(ranking, colours)
    shown = list(zip(table.rows, ranking.ranked, strict=True))
    paired = ranking.paired_only
    gains = [(entry.last_doubling, entry.name) for entry in ranking.ranked if entry.last_doubling is not None]
    return RankingView(
        track=track,
        headline="" if first else headline(ranking),
        conclusion=conclusion(ranking),
        leaderboard=table,
        groups=describe_groups(ranking),
        caveats=write_caveats(ranking, board["conditions"]),
        curves=_tabs(curves, track),
        gains=sorted(gains, reverse=True),
        costs=_tabs(cost_charts(ranking, colours), track),
        samples=[(row, track.sample(entry, board)) for row, entry in shown],
        passages=[
            (row, ShownPassage(passages[track.name, row.name]))
            for row, _ in shown
            if (track.name, row.name) in passages
        ],
        differences={
            pair: {**each._asdict(), "paired_only": each in paired}
            for each in ranking.differences
            for pair in ((each.better, each.worse), (each.worse, each.better))
        },
    )


def _tabs(charts: Sequence[Chart], track: Track) -> dict[str, Chart]:
    names = {**TABS, "tokens": track.read_unit.capitalize()}
    return {names[chart.name.split("-")[-1]]: chart for chart in charts}


def _leaderboard(ranking: Ranking, colours: Mapping[str, str]) -> Leaderboard:
    ranked, track, letters = ranking.ranked, ranking.track, ranking.letters
    leading = ranking.leaders if ranked else []
    cells = {entry.name: track.cells(entry) for entry in ranked}
    own = list(dict.fromkeys(title for each in cells.values() for title, cell in each.items() if cell.value))
    basis = choose_basis(entry.training for entry in ranked)
    of = "(training)" if basis.alone else "(with validation)"
    rows = [
        LeaderboardRow(
            name=entry.name,
            colour=colours[entry.name],
            mark=" †" if entry.added is not None else "",
            what=_what(entry),
            value=ranking.score(entry),
            low=entry.low,
            high=entry.high,
            letters=letters.get(entry.name, ""),
            cells=[
                *(cell if (cell := cells[entry.name][title]).value else Cell("–") for title in own),
                Cell(short(entry.parameters)),
                Cell(number(entry.training.get("tokens"))),
                _time(entry.training, basis),
                _energy(entry.training, basis),
            ],
            leads=entry.name in leading,
        )
        for entry in ranked
    ]
    score = f"{track.score.label}: {track.score.metric.better} is better"
    costs = ["parameters", f"training {track.read_unit}", f"time {of}", f"energy {of}, CO2e"]
    columns = ["", "model", score, "", *["group"] * bool(letters), *own, *costs]
    left_out = [LeftOut(each.name, "not ranked", each.reason) for each in ranking.apart]
    failed = [LeftOut(entry.name, "failed", entry.error) for entry in ranking.entries if entry.status != "ok"]
    return Leaderboard(columns, rows, left_out + failed, bool(letters))


def _what(entry: Entry) -> str:
    kind = entry.kind
    what = f"{LINEAGE[kind].summary}, {LINEAGE[kind].year}" if kind in LINEAGE else kind
    return f"{what}; lossy" if entry.lossy else what


def _time(training: Mapping[str, float], basis: Basis) -> Cell:
    more = validation_seconds(training)
    note = f"training {duration(training['seconds'])} + validation {duration(more)}" if more else ""
    return Cell(duration(training.get(basis.seconds)), note)


def _energy(training: Mapping[str, float], basis: Basis) -> Cell:
    joules = training.get(basis.joules)
    if not joules:
        return Cell("–")
    grams = training["grams"] * joules / training["joules"] if training["joules"] else 0.0
    return Cell(f"{short(joules)} J", f"{short(1000 * grams)} mg")
