"""Texts that are named on the command line, read whole and told apart into documents."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from lmlab.data.reading.text import Source


MOST_TEXTS = 10_000
"""Texts written or searched side by side, at most: each takes memory."""


def read_documents(files: Sequence[str], *, documents: str) -> list[str]:
    """The documents of files, folders, globs, `.gz`, `-` and `builtin`, cleaned as for training."""
    from lmlab.config import suggest
    from lmlab.data.reading.documents import SEPARATORS, gather

    if documents not in SEPARATORS:
        raise ValueError(f"unknown way {documents!r} to tell documents apart{suggest(documents, SEPARATORS)}")
    with _found(files) as (sources, folder):
        gathered, _ = gather(sources, folder / "text", how=documents, report=lambda done: None)
        texts: list[str] = []
        parts: list[str] = []
        for ends, piece in gathered.pieces():
            parts.append(piece)
            if ends:
                texts.append("".join(parts))
                parts = []
    return texts


def read_lines(file: str) -> list[str]:
    """The lines of a file, a `.gz` file or standard input (`-`), cleaned as for training, without their ends."""
    from lmlab.data.reading.text import read_lines as lines_of

    with _found([file]) as (sources, _):
        if len(sources) > 1 or sources[0].path is None:
            raise ValueError(f"{file}: give one file whose lines are meant, or - for standard input")
        return list(lines_of(sources[0]))


def check_output(option: str, path: str | Path | None) -> None:
    """Refuse a place where nothing can be written, before any work is done."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {Path(path).absolute().parent}")
    if path is not None and Path(path).is_dir():
        raise ValueError(f"{option} {path} is a folder: give the name of a file")


@contextmanager
def _found(files: Sequence[str]) -> Iterator[tuple[list[Source], Path]]:
    """The texts that are meant, and a folder that is there as long as they are needed."""
    from lmlab.data.reading.text import find, keep_stream

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def spool(stream: IO[bytes], name: str) -> Path:
            return keep_stream(stream, Path(tempfile.mkdtemp(dir=folder)), name)

        yield find(files, spool=spool), folder


def documents_of(run: Path) -> str:
    """How documents were told apart when a run was trained; `file` where that is not known."""
    import json

    try:
        return str(json.loads((run / "recipe.json").read_text(encoding="utf-8"))["data"]["documents"])
    except (OSError, ValueError, KeyError, TypeError):
        return "file"
