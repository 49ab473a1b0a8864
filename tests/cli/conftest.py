"""Commands run as a user runs them, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from lmlab.cli import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Said]:
    """A function that runs `lmlab` with arguments in an empty folder; white space in what it says is folded."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["lmlab", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Said(code, " ".join(captured.out.split()), " ".join(captured.err.split()))

    return run
