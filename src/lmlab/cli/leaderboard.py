"""A comparison in the terminal: a table that lives while it runs, and the leaderboard at its end."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from lmlab.cli.console import Console
from lmlab.comparison.entries import Entry
from lmlab.comparison.leaderboard import Board, conclusion, describe_groups, headline, read_rankings
from lmlab.comparison.notes import ADDED, describe_basis, write_caveats
from lmlab.comparison.plan import PlannedRun, Skipped
from lmlab.comparison.ranking import Ranking
from lmlab.comparison.records import ComparedRun, choose_basis, validation_seconds
from lmlab.comparison.tracks import track_of
from lmlab.comparison.tracks.track import Column
from lmlab.pages.formats import short
from lmlab.training.progress import TrainingProgress
from lmlab.units import main_unit

BAR = 18


class LiveTable:
    """A watcher that draws on standard error: a table where there is a screen, lines where there is none."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr, highlight=False)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.rows: dict[str, dict[str, str]] = {}
        self.preparing = ""
        self.idle = True  # whether no run was trained or scored

    def __enter__(self) -> LiveTable:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def stage(self, name: str, done: int, total: int) -> None:
        self.preparing = f"{name} {done / max(1, total):.0%}"
        self._draw()

    def ready(self, planned_runs: list[PlannedRun], skipped: list[Skipped]) -> None:
        self.rows = {planned.name: {"status": "waiting"} for planned in planned_runs}
        self.rows |= {each.name: {"status": f"[red]cannot take part[/red]: {escape(each.reason)}"} for each in skipped}
        self._draw()

    def begin(self, planned: PlannedRun, doing: str) -> None:
        self.idle = False
        self.rows[planned.name]["status"] = doing
        self._draw()

    def log(self, planned: PlannedRun, line: dict[str, Any], progress: TrainingProgress) -> None:
        row = self.rows[planned.name]
        done = BAR if progress.ended else round(progress.fraction * BAR)
        row["bar"] = f"[cyan]{'━' * done}[/cyan][dim]{'━' * (BAR - done)}[/dim]"
        row["tokens"] = short(progress.units.get(main_unit(progress.units), 0))
        track = track_of(planned.system, planned.tokenizer)
        if line.get(track.curve.field) is not None:
            row["valid"] = f"{line[track.curve.field]:.3f} {track.curve.label}"
        self._draw()

    def scored(self, planned: PlannedRun, record: ComparedRun, score: float) -> None:
        row, metric = self.rows[planned.name], track_of(planned.system, planned.tokenizer).score
        row |= {
            "status": "[green]done[/green]",
            "test": f"[bold]{score:.3f}[/bold] {metric.column}",
            "tokens": short(record.training["tokens"]),
        }
        self._draw()
        tokens = f"{record.training['tokens']:,} {track_of(planned.system, planned.tokenizer).read_unit}"
        self._line(f"{planned.name}: {score:.3f} {metric.label}, {tokens}")

    def failed(self, planned: PlannedRun, error: str) -> None:
        self.rows[planned.name]["status"] = f"[red]failed[/red]: {escape(error.splitlines()[0])}"
        self._draw()
        self._line(f"{planned.name} failed: {escape(error)}")

    def _line(self, text: str) -> None:
        if not self.console.is_terminal:
            self.console.print(text, soft_wrap=True)

    def _draw(self) -> None:
        if not self.console.is_terminal:
            return
        table = Table("model", "budget spent", "tokens", "validation", "test", "", box=None, padding=(0, 2, 0, 0))
        for name, row in self.rows.items():
            cells = [row.get(key, "") for key in ("bar", "tokens", "valid", "test", "status")]
            table.add_row(f"[bold]{name}[/bold]", *cells)
        self.live.update(table if self.rows else f"preparing the text: {self.preparing}")


def show(board: Board, console: Console) -> None:
    """The leaderboard with what has to be known about it, for a reader without documentation."""
    for number, ranking in enumerate(read_rankings(board)):
        if number:
            console.print()
        if (separation := ranking.track.separation) is not None:
            console.print(f"[bold]{escape(separation.summary)}[/bold] [dim]{escape(separation.why)}[/dim]\n")
        _show(ranking, console, caveats=write_caveats(ranking, board["conditions"]))
    for note in board["notes"]:
        if note.startswith(("A time budget", "With a larger budget")):
            console.print(f"[dim]{escape(note)}[/dim]")


def _show(ranking: Ranking, console: Console, *, caveats: list[str]) -> None:
    """One table, and its result in words."""
    if ranking.ranked:
        console.print(_table(ranking, console.width))
        for line in _below(ranking):
            console.print(f"[dim]{escape(line)}[/dim]")
    for entry in ranking.entries:
        if entry.status != "ok":
            console.print(f"[red]{escape(entry.name)} failed:[/red] {escape(entry.error)}", soft_wrap=True)
    for each in ranking.apart:
        console.print(f"{escape(each.name)} is ranked separately: {escape(each.reason)}", soft_wrap=True)
    console.print(f"\n[bold]{escape(headline(ranking))}[/bold] {escape(conclusion(ranking))}")
    for line in describe_groups(ranking):
        console.print(escape(line))
    for caveat in caveats:
        console.print(f"[yellow]{escape(caveat)}[/yellow]")


def _below(ranking: Ranking) -> list[str]:
    """What has to be known to read the table: signs, and what the costs are of."""
    lines = []
    if any(entry.added is not None for entry in ranking.ranked):
        lines.append(ADDED)
    if any(entry.lossy for entry in ranking.ranked):
        lines.append("lossy: the tokenizer loses part of the text, so the score looks better than it is.")
    apart = {entry.name: (entry.training["seconds"], more) for entry in ranking.ranked
             if (more := validation_seconds(entry.training))}  # fmt: skip
    if apart:
        times = "; ".join(f"{name} {short(own)} s + {short(more)} s" for name, (own, more) in apart.items())
        lines.append(f"{describe_basis(ranking.ranked)} Training + validation: {times}.")
    return lines


def _table(ranking: Ranking, width: int) -> Table:
    score = ranking.track.score
    title = f"{score.label[0].upper()}{score.label[1:]} on the {ranking.track.tested}: {score.metric.better} is better"
    table = Table(title=title, title_justify="left", box=None)
    letters = ranking.letters
    own = _own_columns(ranking) if width >= 90 else []
    bars = width >= 103 + 7 * (len(own) + bool(letters))
    names = ["", "model", score.column, *[""] * bars, "95% interval", *["group"] * bool(letters)]
    names += [column.title for column in own]
    for column in (*names, "params", ranking.track.read_unit, "seconds", "joules"):
        left, name = column in ("model", "", "group"), column == "model"
        table.add_column(
            column, justify="left" if left else "right", no_wrap=not name, overflow="fold" if name else "ellipsis"
        )
    widest = max(map(ranking.score, ranking.ranked)) or 1.0
    basis = choose_basis(entry.training for entry in ranking.ranked)
    for rank, entry in enumerate(ranking.ranked, start=1):
        training, value = entry.training, ranking.score(entry)
        table.add_row(
            str(rank),
            f"[bold]{escape(entry.name)}[/bold]{' †' * (entry.added is not None)}{' lossy' * entry.lossy}",
            f"[bold]{value:.3f}[/bold]",
            *[f"[cyan]{'━' * round(BAR * value / widest)}[/cyan]"] * bars,
            f"{entry.low:.3f}–{entry.high:.3f}" if entry.low is not None else "",
            *[letters.get(entry.name, "")] * bool(letters),
            *(_format(entry, column) for column in own),
            short(entry.parameters),
            *(short(training[key]) if key in training else "" for key in ("tokens", basis.seconds, basis.joules)),
        )
    return table


def _own_columns(ranking: Ranking) -> list[Column]:
    """The columns that only this track has, without empty ones."""
    return [
        column
        for column in ranking.track.columns
        if any(entry.measured.get(column.field) is not None for entry in ranking.ranked)
    ]


def _format(entry: Entry, column: Column) -> str:
    value = entry.measured.get(column.field)
    return "" if value is None else column.format.format(value)
