"""Systems that are trained at the same time: the results of one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_runner import figures

from comparison_texts import small
from lmlab.comparison.folder import Published, run_comparison
from lmlab.comparison.plan import PlannedRun
from lmlab.comparison.runner import Interruption, Unwatched
from lmlab.comparison.side_by_side import check_processes


class Watching(Unwatched):
    """Records what is reported, and when to stop."""

    def __init__(self, *, stop_at: str = "") -> None:
        self.begun: list[tuple[str, str]] = []
        self.logged: set[str] = set()
        self.stop_at = stop_at

    def begin(self, planned: PlannedRun, doing: str) -> None:
        self.begun.append((planned.name, doing))

    def log(self, planned: PlannedRun, line: dict[str, Any], progress: Any) -> None:
        self.logged.add(planned.name)

    def stopped(self) -> bool:
        return self.stop_at in self.logged


def test_the_results_are_those_of_one_by_one(done: Published, book: Path, tmp_path: Path) -> None:
    watching, folder = Watching(stop_at="nplm"), tmp_path / "together"
    with pytest.raises(Interruption):
        run_comparison(small(book), folder, processes=2, watcher=watching, interrupted=watching.stopped)
    assert not (folder / "leaderboard.json").exists()

    before, watching = watching, Watching()  # a system may have ended before the interruption
    run_comparison(small(book), folder, processes=2, watcher=watching)
    assert figures(folder) == figures(done.report.parent)
    assert ("gpt2", "training") in [*before.begun, *watching.begun]
    assert "gpt2" in [*before.logged, *watching.logged]
    notes = json.loads((folder / "leaderboard.json").read_text())["notes"]
    assert any("2 systems were trained at the same time" in note for note in notes)


def test_the_number_of_processes_is_checked() -> None:
    with pytest.raises(ValueError, match="from 1 to"):
        check_processes(0)
