"""A comparison in the terminal: a table that lives while it runs, and the leaderboard at its end."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from lmlab.compare.arena import Record
from lmlab.compare.charts import short
from lmlab.compare.leaderboard import Board, headline, verdict
from lmlab.compare.plan import Entrant, Refusal
from lmlab.training.budget import parse_budget
from lmlab.training.loop import Progress

BAR = 18


class LiveTable:
    """A watcher that draws on standard error: a table where there is a screen, lines where there is none."""

    def __init__(self, budget: str) -> None:
        self.budget = parse_budget(budget)
        self.console = Console(file=sys.stderr, highlight=False)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.rows: dict[str, dict[str, str]] = {}
        self.preparing = ""

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

    def ready(self, entrants: list[Entrant], refusals: list[Refusal]) -> None:
        self.rows = {entrant.name: {"status": "waiting"} for entrant in entrants}
        self.rows |= {
            refusal.name: {"status": f"[red]cannot take part[/red]: {escape(refusal.reason)}"} for refusal in refusals
        }
        self._draw()

    def begin(self, entrant: Entrant, doing: str) -> None:
        self.rows[entrant.name]["status"] = doing
        self._draw()

    def log(self, entrant: Entrant, line: dict[str, Any], progress: Progress) -> None:
        row = self.rows[entrant.name]
        spent = {
            "seconds": progress.seconds,
            "tokens": progress.tokens,
            "steps": progress.step,
            "flops": progress.flops,
        }
        share = 1.0 if progress.ended else min(1.0, spent.get(self.budget.unit, 0.0) / self.budget.amount)
        done = round(share * BAR)
        row["bar"] = f"[cyan]{'━' * done}[/cyan][dim]{'━' * (BAR - done)}[/dim]"
        row["tokens"] = short(progress.tokens)
        if line.get("valid_bits_per_byte") is not None:
            row["valid"] = f"{line['valid_bits_per_byte']:.3f}"
        self._draw()

    def scored(self, entrant: Entrant, record: Record, bits_per_byte: float) -> None:
        row = self.rows[entrant.name]
        row |= {
            "status": "[green]done[/green]",
            "test": f"[bold]{bits_per_byte:.3f}[/bold]",
            "tokens": short(record["training"]["tokens"]),
        }
        self._draw()
        self._line(f"{entrant.name}: {bits_per_byte:.3f} bits per byte, {record['training']['tokens']:,} tokens")

    def failed(self, entrant: Entrant, error: str) -> None:
        self.rows[entrant.name]["status"] = f"[red]failed[/red]: {escape(error.splitlines()[0])}"
        self._draw()
        self._line(f"{entrant.name} failed: {escape(error)}")

    def _line(self, text: str) -> None:
        if not self.console.is_terminal:
            self.console.print(text, soft_wrap=True)

    def _draw(self) -> None:
        if not self.console.is_terminal:
            return
        table = Table("system", "budget spent", "tokens", "validation", "test", "", box=None, padding=(0, 2, 0, 0))
        for name, row in self.rows.items():
            cells = [row.get(key, "") for key in ("bar", "tokens", "valid", "test", "status")]
            table.add_row(f"[bold]{name}[/bold]", *cells)
        self.live.update(table if self.rows else f"preparing the text: {self.preparing}")


def show(board: Board, console: Console) -> None:
    """The leaderboard with what has to be known about it, for a reader without documentation."""
    ok = [entry for entry in board["entries"] if entry["status"] == "ok"]
    perplexities = any(entry["perplexity"] for entry in ok) and console.width >= 90
    bars = console.width >= 110
    table = Table(title="Bits per byte of held-out text: lower is better", title_justify="left", box=None)
    names = ["", "system", "bits/byte", *[""] * bars, "95% interval", *["perplexity"] * perplexities]
    for column in (*names, "params", "tokens", "seconds", "joules"):
        table.add_column(column, justify="left" if column in ("system", "") else "right", no_wrap=True)
    widest = max((entry["bits_per_byte"] for entry in ok), default=1.0)
    for rank, entry in enumerate(ok, start=1):
        training = entry["training"]
        table.add_row(
            str(rank),
            f"[bold]{escape(entry['name'])}[/bold]{' †' if 'added' in entry else ''}",
            f"[bold]{entry['bits_per_byte']:.3f}[/bold]",
            *[f"[cyan]{'━' * round(BAR * entry['bits_per_byte'] / widest)}[/cyan]"] * bars,
            f"{entry['low']:.3f}–{entry['high']:.3f}" if entry["low"] is not None else "",
            *([f"{entry['perplexity']:,.1f}"] if perplexities else []),
            short(entry["parameters"]),
            *(short(training[key]) if key in training else "" for key in ("tokens", "seconds", "joules")),
        )
    if ok:
        console.print(table)
    for entry in board["entries"]:
        if entry["status"] != "ok":
            console.print(f"[red]{escape(entry['name'])} failed:[/red] {escape(entry['error'])}", soft_wrap=True)
    for entry in board["apart"]:
        console.print(f"{escape(entry['name'])} is ranked apart: {escape(entry['reason'])}", soft_wrap=True)
    console.print(f"\n[bold]{escape(headline(board))}[/bold] {escape(verdict(board))}")
    if board["ties"]:
        groups = "; ".join(" = ".join(group) for group in board["ties"])
        console.print(f"Ties (the test text cannot tell which is better): {escape(groups)}")
    heading = [note for note in board["notes"] if note.startswith(("A budget in time", "With a larger budget"))]
    for note in heading:
        console.print(f"[dim]{escape(note)}[/dim]")
