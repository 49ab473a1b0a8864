"""Commands run as a user types them, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmlab.cli import main


def lmlab_command(monkeypatch: pytest.MonkeyPatch, *words: str | Path | int) -> int:
    """Run `lmlab` with these words; returns its exit code."""
    monkeypatch.setattr("sys.argv", ["lmlab", *map(str, words)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
