"""Texts that are named on the command line, read whole and told apart into documents."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO


def read_documents(files: Sequence[str], *, documents: str) -> list[str]:
    """The documents of files, folders, globs, `.gz`, `-` and `builtin`, cleaned as for training."""
    from lmlab.config import suggest
    from lmlab.data.documents import SEPARATORS, gather
    from lmlab.data.text import find, keep_stream

    if documents not in SEPARATORS:
        raise ValueError(f"unknown way {documents!r} to tell documents apart{suggest(documents, SEPARATORS)}")
    with tempfile.TemporaryDirectory() as folder:

        def spool(stream: IO[bytes], name: str) -> Path:
            return keep_stream(stream, Path(tempfile.mkdtemp(dir=folder)), name)

        gathered, _ = gather(find(files, spool=spool), Path(folder) / "text", how=documents, report=lambda done: None)
        texts: list[str] = []
        parts: list[str] = []
        for ends, piece in gathered.pieces():
            parts.append(piece)
            if ends:
                texts.append("".join(parts))
                parts = []
    return texts


def documents_of(run: Path) -> str:
    """How documents were told apart when a run was trained; `file` where that is not known."""
    import json

    try:
        return str(json.loads((run / "recipe.json").read_text(encoding="utf-8"))["data"]["documents"])
    except (OSError, ValueError, KeyError, TypeError):
        return "file"
