"""Held-out text in the cache, found by the SHA-256 of the text that a run was trained on, without its files.

A run keeps that hash in its `recipe.json`. When a text is prepared, the cache stores under that hash which corpora have
its validation and test documents. So held-out text can be read after the files of a run have moved, and also by a
program that must not open files that a run names (the studio).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.corpora.shards import Shard
from lmlab.data.corpora.store import read_index
from lmlab.data.readers.files import cache_folder
from lmlab.files import FullDiskError, write_text

FOLDER = "texts"
"""The folder of the cache with one small file for each text."""


def remember_text(cache: Path, fingerprint: str, *, keys: Sequence[str] = (), texts: Sequence[str] = ()) -> None:
    """Store the `keys` of the corpora that hold a text, or the fingerprints of the `texts` in it."""
    path, content = cache / FOLDER / f"{fingerprint}.json", json.dumps({"keys": list(keys), "texts": list(texts)})
    try:
        if path.is_file() and path.read_text() == content:
            return
        path.parent.mkdir(exist_ok=True)
        write_text(path, content, shared=True)
    except (OSError, FullDiskError):  # a note that can be made again, so a full disk does not end a run for it
        return


def read_cached(fingerprint: str, *, cache: Path | None = None) -> Iterator[str] | None:
    """Return the test documents of a text (validation documents if it has no test split); None if none are cached."""
    cache = cache or cache_folder()
    folders = _find(cache, fingerprint)
    for name in ("test", "valid"):
        splits = [_open(folder, name, key) for folder, key in folders]
        found = [split for split in splits if split is not None]
        if found and len(found) == len(splits):
            return (text for split in found for text in split.texts())
    return None


def _find(cache: Path, fingerprint: str) -> list[tuple[Path, str]]:
    """Return the folders of the corpora that hold a text, with their keys."""
    if not re.fullmatch(r"[0-9a-f]{64}", fingerprint):
        return []
    try:
        note = json.loads((cache / FOLDER / f"{fingerprint}.json").read_text())
        found = [(cache / "corpora" / str(key)[:32], str(key)) for key in note["keys"]]
        return found + [each for text in note["texts"] for each in _find(cache, str(text))]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _open(folder: Path, name: str, key: str) -> TextSplit | None:
    index = read_index(folder, key)
    if index is None or name not in index["splits"]:
        return None
    shard = Shard(**index["splits"][name])
    return TextSplit.open(folder / name, shard) if shard.text else None
