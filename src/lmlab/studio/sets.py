"""Ready sets for the views: files of --data, or in the folder `sets` next to the runs.

As with runs, a name is looked up among those that were found, and is never made into a path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from lmlab.messages import suggest
from lmlab.progress import check_cancelled
from lmlab.studio.responses import respond

if TYPE_CHECKING:
    from lmlab.data.readers.files import Readable

FOLDER = "sets"
MOST_BYTES, MOST_LINES, BLOCK = 64 << 20, 1_000_000, 1 << 20
"""Of a set, unpacked; BLiMP has 67,000 lines in 40 MB."""


class Sets:
    """The sets by name."""

    def __init__(self, folder: Path, given: Sequence[Path] = ()) -> None:
        self.folder = folder / FOLDER
        self.given: dict[str, Path] = {}
        for path in given:
            if not path.exists():
                raise ValueError(f"{path} does not exist; name a set that is there: pairs, BLiMP, CrowS-Pairs …")
            if path.resolve().name in self.given:
                raise ValueError(f"several sets are named {path.name}; rename one")
            self.given[path.resolve().name] = path.resolve()

    def paths(self) -> dict[str, Path]:
        """Every set by name; links are left out, because they may lead out of the folder."""
        try:
            entries = sorted(os.scandir(self.folder), key=lambda entry: entry.name)
        except OSError:
            entries = []
        in_folder = {
            entry.name: Path(entry.path)
            for entry in entries
            if not entry.name.startswith(".") and not entry.is_symlink() and (entry.is_file() or entry.is_dir())
        }
        return {**in_folder, **self.given}

    def find(self, name: str) -> Path:
        """The set of that name; a ValueError if there is none."""
        paths = self.paths()
        if name not in paths:
            raise ValueError(f"there is no set {name[:80]!r}{suggest(name[:200], paths)}")
        return paths[name]

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """The set of that name; errors about it do not contain its folder."""
        path = self.find(name)
        try:
            check_size(path)
            yield path
        except ValueError as error:
            raise ValueError(str(error).replace(f"{path.parent}{os.sep}", "")) from None


def check_size(path: Path) -> None:
    """Raise a ValueError if a set is too large for a view, or contains links or pipes."""
    size = lines = 0
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_dir() and not file.is_symlink():
            continue
        if file.is_symlink() or not file.is_file():
            raise ValueError(f"{file} is a link or a pipe; put the file itself into the set")
        for part in _parts(file):
            while block := part.read(BLOCK):
                check_cancelled()
                size, lines = size + len(block), lines + block.count(b"\n")
                if size > MOST_BYTES or lines > MOST_LINES:
                    raise ValueError(
                        f"{path} has more than {MOST_BYTES:,} bytes or {MOST_LINES:,} lines, too many for a view; use "
                        "a part of it, or lmlab inspect in a terminal"
                    )


def _parts(file: Path) -> Iterator[Readable]:
    """The content of a file, or of each file in a zip file."""
    from lmlab.data.readers.files import open_unpacked, open_zip

    if file.suffix == ".zip":
        with open_zip(file) as inner:
            yield from (part for _, part in inner)
    else:
        with open_unpacked(file) as part:
            yield part


def make_router(sets: Sets) -> APIRouter:
    router = APIRouter()

    @router.get("/sets")
    def list_sets() -> Response:
        return respond({"sets": list(sets.paths())})

    return router
