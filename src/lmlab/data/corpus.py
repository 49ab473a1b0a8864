"""A corpus: texts encoded once into memory-mapped tokens, split into train, valid and test, and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lmlab.config import suggest
from lmlab.data.builtin import builtin_documents
from lmlab.data.cache import cache_folder
from lmlab.data.documents import SEPARATORS, gather
from lmlab.data.shards import Shard, write_shard
from lmlab.data.splitting import NAMES, check_shares, split_documents
from lmlab.data.store import FORMAT, building, open_home, read_index, temporary, write_index
from lmlab.data.text import Source, TextWarning, find, keep_stream
from lmlab.tokenizers import Tokenizer, TokenizerWarning, parse, resolve
from lmlab.tokenizers.training import is_path

SAMPLE = 24 << 20
"""Subword tokenizers are trained on at most so many bytes, taken evenly from all of the training text."""

Progress = Callable[[str, int, int], None]
"""Called with the stage, the bytes done and the bytes in all."""


@dataclass(frozen=True)
class Split:
    """One part of a corpus."""

    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    """`[b, document, b, document, b]`, memory-mapped, where b is the tokenizer's boundary."""
    documents: NDArray[np.int64]
    """The place in `tokens` of each document's first token."""
    bytes: int
    """Bytes of the text in UTF-8."""
    words: int
    """Words of the text, split at white space."""
    names: list[str] | None
    """The name of each document, where each is a file."""
    text_path: Path | None
    """The text itself, kept for valid and test."""
    text_places: NDArray[np.int64] | None
    """Where in it each document starts and ends, in bytes, [documents, 2]."""

    def texts(self) -> Iterator[str]:
        """The text of each document, for valid and test."""
        if self.text_path is None or self.text_places is None:
            raise ValueError("the training text is not kept; read it from its own files")
        with self.text_path.open("rb") as file:
            for start, end in self.text_places.tolist():
                file.seek(start)
                yield file.read(end - start).decode()


@dataclass(frozen=True)
class Corpus:
    """Texts as tokens, ready to train on."""

    tokenizer: Tokenizer
    train: Split
    valid: Split | None
    test: Split | None
    fingerprint: str
    """A SHA-256 of the texts, the tokenizer and the options: equal for equal corpora."""
    text_fingerprint: str
    """The same without the tokenizer: equal for equal texts, split in the same way."""
    folder: Path


def prepare(
    sources: Sequence[str | Path],
    *,
    tokenizer: str | Path | Tokenizer = "bpe:4096",
    valid: Sequence[str | Path] | None = None,
    test: Sequence[str | Path] | None = None,
    split: Sequence[float] = (0.9, 0.05, 0.05),
    documents: str = "file",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Find, read, split and encode texts, in bounded memory; a second call with the same texts finds them in the cache.

    `split` gives the shares of train, valid and test. Texts given as `valid` take the place of its second and third
    share, so that without `test` there is no test part; texts given as `test` take the place of the third, and valid is
    still split off. The tokenizer is trained on the training part alone. What had to be replaced in the texts is
    told by a `TextWarning`, also when it comes from the cache.
    """
    shares = _shares(split, valid=valid, test=test)
    if documents not in SEPARATORS:
        raise ValueError(f"unknown way {documents!r} to tell documents apart{suggest(documents, SEPARATORS)}")
    given = tokenizer
    if not isinstance(given, Tokenizer):
        given = resolve(given, lambda: ()) if is_path(given) else str(parse(str(given)))
    report = progress or (lambda stage, done, total: None)
    with ExitStack() as stack:
        home = open_home(cache or cache_folder())

        def spool(stream: IO[bytes], name: str) -> Path:
            folder = temporary(home)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            return keep_stream(stream, folder, name)

        roles = {
            name: find(texts, spool=spool)
            for name, texts in zip(NAMES, (sources, valid, test), strict=True)
            if texts is not None
        }
        stamps = _stamps(roles)
        hashes = _hash_sources(roles, report)
        text_fingerprint = _digest([documents, shares, hashes])
        how = given if isinstance(given, str) else given.fingerprint
        key = _digest([FORMAT, how, documents, shares, hashes])
        folder = home / key[:32]
        index = read_index(folder, key)
        if index is None:
            with building(folder, key) as new:
                _build(new, roles, given, shares, documents, key, report)
                if _stamps(roles) != stamps:
                    raise ValueError("a text was changed while it was being read; prepare it again")
            index = read_index(folder, key)
            assert index is not None, "a corpus that was just written can be read"
        else:
            for kind, message in index["warnings"]:
                warnings.warn(message, {"TextWarning": TextWarning}.get(kind, TokenizerWarning), stacklevel=2)
        return _open(folder, index, text_fingerprint)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _open(folder: Path, index: dict[str, Any], text_fingerprint: str) -> Corpus:
    parts = {name: _open_split(folder / name, Shard(**shard)) for name, shard in index["splits"].items()}
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    return Corpus(
        tokenizer=tokenizer,
        train=parts["train"],
        valid=parts.get("valid"),
        test=parts.get("test"),
        fingerprint=_digest([tokenizer.fingerprint, text_fingerprint]),
        text_fingerprint=text_fingerprint,
        folder=folder,
    )


def _open_split(stem: Path, shard: Shard) -> Split:
    def map_file(suffix: str, dtype: str) -> NDArray[Any]:
        return np.memmap(stem.with_suffix(suffix), dtype, "r")

    return Split(
        tokens=map_file(".tokens", shard.dtype),
        documents=map_file(".documents", "int64"),
        bytes=shard.bytes,
        words=shard.words,
        names=shard.names,
        text_path=stem.with_suffix(".txt") if shard.text else None,
        text_places=map_file(".places", "int64").reshape(-1, 2) if shard.text else None,
    )


def _shares(shares: Sequence[float], *, valid: object, test: object) -> dict[str, float]:
    """The shares of the parts that come from the main texts."""
    checked = check_shares(shares)
    if valid is not None:
        return {"train": 1.0}
    if test is not None and "test" in checked:
        checked["train"] += checked.pop("test")
    return checked


def _hash_sources(roles: dict[str, list[Source]], report: Progress) -> dict[str, list[str]]:
    """The SHA-256 of each source; a text that is both in train and in valid or test is told of."""
    checking = _Counter("checking", _size(roles), report)
    hashes: dict[str, list[str]] = {}
    for role, sources in roles.items():
        hashes[role] = []
        for source in sources:
            if source.path is None:
                hashes[role].append(_digest(builtin_documents()))
                continue
            with source.path.open("rb") as file:
                hashes[role].append(hashlib.file_digest(file, "sha256").hexdigest())
            checking.add(source.path.stat().st_size)
    for role in hashes:
        if role != "train" and (both := set(hashes["train"]) & set(hashes[role])):
            name = next(s.name for s, h in zip(roles[role], hashes[role], strict=True) if h in both)
            warnings.warn(
                f"{name} is both in train and in {role}: scores on it will flatter", TextWarning, stacklevel=3
            )
    return hashes


class _Counter:
    """Bytes done of one stage; the last report is that all are done."""

    def __init__(self, stage: str, total: int, report: Progress) -> None:
        self.stage, self.total, self.report = stage, total, report
        self.done = 0

    def add(self, size: int) -> None:
        self.done += size
        self.report(self.stage, min(self.done, self.total), self.total)


def _stamps(roles: dict[str, list[Source]]) -> list[tuple[int, int]]:
    """The size and time of change of each file."""
    found = [source.path.stat() for sources in roles.values() for source in sources if source.path]
    return [(status.st_size, status.st_mtime_ns) for status in found]


def _size(roles: dict[str, list[Source]]) -> int:
    return sum(source.path.stat().st_size for sources in roles.values() for source in sources if source.path)


def _build(
    folder: Path,
    roles: dict[str, list[Source]],
    tokenizer: str | Tokenizer,
    shares: dict[str, float],
    how: str,
    key: str,
    report: Progress,
) -> None:
    """Write a corpus into a folder: tokens and document places of each part, the tokenizer, and last the index."""
    reading = _Counter("reading", _size(roles), report)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gathered = {
            role: gather(sources, folder / f"{role}.gathered", how=how, report=reading.add)
            for role, sources in roles.items()
        }
        parts = split_documents(*gathered["train"], shares)
        parts |= {role: documents for role, (documents, _) in gathered.items() if role != "train"}
        report("training the tokenizer", 0, 1)
        whole = isinstance(tokenizer, str) and parse(tokenizer).kind in ("words", "characters")
        trained = resolve(tokenizer, lambda: parts["train"].sample(parts["train"].size if whole else SAMPLE))
        report("training the tokenizer", 1, 1)
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=4)
    trained.save(folder / "tokenizer.json")
    shards = {}
    encoding = _Counter("encoding", sum(part.size for part in parts.values()), report)
    for name, part in parts.items():
        keep_text = name != "train"
        shards[name] = write_shard(part, trained, folder / name, how=how, keep_text=keep_text, report=encoding.add)
    for role in roles:
        (folder / f"{role}.gathered").unlink()
    own = (TextWarning, TokenizerWarning)
    messages = [[w.category.__name__, str(w.message)] for w in caught if issubclass(w.category, own)]
    write_index(folder, key, shards, messages)
