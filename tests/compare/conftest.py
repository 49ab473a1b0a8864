"""One small comparison that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare_texts import lines, small
from lmlab.compare.comparison import Published, compare


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(lines(900))
    return path


@pytest.fixture(scope="session")
def done(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("compared") / "first"
    return compare(small(book), folder, csv=True)
