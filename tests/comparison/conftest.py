"""One small comparison that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from comparison_texts import lines, small
from lmlab.comparison.folder import Published, run_comparison


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(lines(900))
    return path


@pytest.fixture(scope="session")
def done(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("compared") / "first"
    return run_comparison(small(book), folder, csv=True)
