"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lmlab.checkpoint import sync_folder


def check_target(path: Path, *, overwrite: bool) -> None:
    """A ValueError where something stands at `path` that may not be replaced."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if path.is_dir() and not (path / "config.json").is_file():
        raise ValueError(f"{path} exists and is neither a run nor a Hugging Face directory; choose another name")
    if not overwrite:
        raise ValueError(f"{path} exists already; choose another name, or replace it with --overwrite")


@contextmanager
def staged(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new folder to fill, which takes its place at `path` when all has gone well, and is gone otherwise."""
    check_target(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    new, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("new", "old"))
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new
        if path.exists():
            path.rename(old)
        new.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if old.exists() and path.exists():
            shutil.rmtree(old)
