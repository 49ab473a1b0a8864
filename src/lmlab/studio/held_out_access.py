"""The held-out text and pictures of runs, from the cache or from folders that the owner of the studio allowed.

A run may be copied from anywhere, and its `recipe.json` may name any file. So a file that it names is read only if it
lies in an allowed folder, and its text is shown only if its SHA-256 is the one of the text that the run was trained on.
Errors say neither where a file is nor whether it exists.
"""

from __future__ import annotations

import glob
import os
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.progress import check_cancelled
from lmlab.studio.run_files import is_inside
from lmlab.studio.run_store import RunStore

if TYPE_CHECKING:
    from lmlab.data.corpora.pictures.split import PictureSplit

LETTERS = 12_000
"""Characters of a run's held-out text that are used."""
MOST_SOURCES = 200
"""Sources of a translator that are used."""
MOST_SPLITS = 4
"""Runs whose held-out pictures stay open."""


class HeldOutReader:
    """Reads what the runs of a run_store did not learn from."""

    def __init__(self, run_store: RunStore, allowed: Sequence[Path] = ()) -> None:
        for path in allowed:
            if not path.exists():
                raise ValueError(f"--allow-data {path} does not exist; name a file or a folder that is there")
        self.run_store = run_store
        self.allowed = [run_store.folder, *(path.resolve() for path in allowed)]
        self._pictures: OrderedDict[tuple[str, str], PictureSplit] = OrderedDict()

    def text(self, name: str) -> str:
        """The start of the held-out text of a run; a ValueError if it may not be read."""
        found, size = list[str](), 0
        for text in self._documents(name):
            check_cancelled()
            found.append(text)
            size += len(text) + 1
            if size > LETTERS:
                break
        if not found:
            raise ValueError(f"{name} has no plain text that was held out; type or paste a text")
        return "\n".join(found)[:LETTERS]

    def source_text(self, name: str) -> str:
        """The same; of a translator the start of its held-out source text."""
        run, record = self._record(name)
        if not record.recipe.data.parallel:
            return self.text(name)
        self._check_allowed(name, record.recipe.data)
        split = self._open_split(name, run, record)
        sources = (pair[0] for pair in (split.texts() if split else ()) if isinstance(pair, tuple))
        return "\n".join(islice(sources, MOST_SOURCES))[:LETTERS]

    def fingerprint(self, name: str) -> str:
        """The SHA-256 of the text that a run was trained on."""
        return str(self._record(name)[1].text_sha256)

    def pictures(self, name: str) -> PictureSplit:
        """The pictures that a run did not learn from; a ValueError if it has none, or they may not be read."""
        from lmlab.data.corpora.pictures.images import PicturesConfig, find_files
        from lmlab.data.corpora.pictures.split import PictureSplit

        run, record = self._record(name)
        key, data = (name, record.text_sha256), record.recipe.data
        if key in self._pictures:
            self._pictures.move_to_end(key)
            return self._pictures[key]
        if not isinstance(data, PicturesConfig):
            raise ValueError(f"{name} was not trained on pictures, so it has no held-out pictures; choose a file")
        if data.on_disk():
            self._check_allowed(name, data)
            files = find_files(data, data.paths()[:1])
            for row in (row for part in (files.train, files.valid, files.test) for row in part or ()):
                path = getattr(row.picture, "path", None)
                if path is not None and not self._is_allowed(str(path)):
                    raise ValueError(f"the data of {name} name a picture outside of the folders that may be read")
        split = self._open_split(name, run, record)
        if not isinstance(split, PictureSplit):
            raise ValueError(f"{name} has no pictures that were held out; choose a file")
        self._pictures[key] = split
        while len(self._pictures) > MOST_SPLITS:
            self._pictures.popitem(last=False)
        return split

    def _documents(self, name: str) -> Iterator[str]:
        from lmlab.data.corpora.held_out_cache import read_cached

        run, record = self._record(name)
        cached = read_cached(record.text_sha256)
        if cached is not None:
            return cached
        data = record.recipe.data
        if data.parallel:
            return iter(())
        self._check_allowed(name, data)
        split = self._open_split(name, run, record)
        return (text for text in (split.texts() if split else ()) if isinstance(text, str))

    def _record(self, name: str) -> tuple[Path, Any]:
        """The folder of a run and its recipe, which says by a SHA-256 what the run has learnt from."""
        from lmlab.runs.recipe_record import read_record

        run = self.run_store.find_checked(name)
        try:
            record = read_record(run)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(
                f"the recipe.json of {name} is missing or damaged, so its held-out text is not known"
            ) from None
        if not isinstance(record.text_sha256, str):
            raise ValueError(f"{name} does not say which text it learnt from (text_sha256), so its text is not read")
        return run, record

    def _check_allowed(self, name: str, data: Any) -> None:
        if not all(map(self._may_read, data.on_disk())):
            raise ValueError(
                f"the held-out text of {name} is not in the cache, and the studio may not read its data; start the "
                "studio with --allow-data and the folder of the data"
            )

    def _open_split(self, name: str, run: Path, record: Any) -> Any:
        """The test split of a run, or its validation split."""
        from lmlab.runs.held_out import reopen_corpus
        from lmlab.runs.jobs import Silent

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                corpus = reopen_corpus(record, run, Silent())
            return corpus.test or corpus.valid
        except (ValueError, OSError):
            raise ValueError(
                f"the held-out text of {name} cannot be read: its data is missing, or is not the text that the run was "
                "trained on (another SHA-256)"
            ) from None

    def _may_read(self, named: str) -> bool:
        """Whether all that a path or a glob names, and all that lies in such a folder, are regular files in allowed
        folders; links between folders are refused."""
        from lmlab.data.config import expand

        if not self._is_allowed(_without_wildcards(named)):
            return False
        for path in expand(named):
            if not self._is_allowed(path):
                return False
            for where, folders, files in os.walk(path):
                check_cancelled()
                if any(os.path.islink(os.path.join(where, each)) for each in folders):
                    return False
                if not all(self._is_allowed(os.path.join(where, each)) for each in files):
                    return False
        return True

    def _is_allowed(self, path: str) -> bool:
        return any(is_inside(Path(path), folder) for folder in self.allowed)


def _without_wildcards(named: str) -> str:
    """A path; of a glob, the folder that it searches."""
    path = os.path.expanduser(named)
    while glob.has_magic(path) and not os.path.exists(path):
        path = os.path.dirname(path)
    return path
