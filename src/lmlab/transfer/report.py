"""The page of a fine-tuned run, a learning curve or a comparison."""

from __future__ import annotations

from pathlib import Path

from lmlab.transfer.study import Study


def write_report(study: Study, folder: Path) -> Path:
    """Write `report.html` into a folder."""
    return folder / "report.html"
