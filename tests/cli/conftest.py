"""Commands run as a user runs them, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from commands import lmlab_command


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
        code = lmlab_command(monkeypatch, *arguments)
        captured = capsys.readouterr()
        return Said(code, " ".join(captured.out.split()), " ".join(captured.err.split()))

    return run
