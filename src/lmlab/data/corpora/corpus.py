"""A corpus: texts encoded once into memory-mapped tokens, split into train, valid and test, and kept in the cache."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.config import suggest
from lmlab.data.corpora.cache import cache_folder
from lmlab.data.corpora.preparing import (
    Counter,
    Progress,
    check_unchanged,
    digest,
    digest_file,
    learns_from_all,
    messages_of,
    name_of,
    settle,
    size_of,
    spooling,
    stamps_of,
    tell_again,
)
from lmlab.data.corpora.shards import Shard, write_shard
from lmlab.data.corpora.splitting import NAMES, main_shares, split_documents
from lmlab.data.corpora.store import FORMAT, building, open_home, read_index, write_index
from lmlab.data.reading.builtin import builtin_documents
from lmlab.data.reading.documents import SEPARATORS, gather
from lmlab.data.reading.text import Source, TextWarning, find
from lmlab.tokenizers import Tokenizer, resolve

SAMPLE = 24 << 20
"""Subword tokenizers are trained on at most so many bytes, taken evenly from all of the training text."""


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

    @classmethod
    def open(cls, stem: Path, shard: Shard) -> Split:
        """The part that `write_shard` wrote to files named `stem`."""

        def map_file(suffix: str, dtype: str) -> NDArray[Any]:
            return np.memmap(stem.with_suffix(suffix), dtype, "r")

        return cls(
            tokens=map_file(".tokens", shard.dtype),
            documents=map_file(".documents", "int64"),
            bytes=shard.bytes,
            words=shard.words,
            names=shard.names,
            text_path=stem.with_suffix(".txt") if shard.text else None,
            text_places=map_file(".places", "int64").reshape(-1, 2) if shard.text else None,
        )

    @property
    def size(self) -> int:
        return len(self.tokens) - 1

    @property
    def scored(self) -> int:
        return len(self.tokens) - 1 - len(self.documents)

    def parts(self) -> dict[str, Any]:
        return {}

    def loader(self, make: Any, *, seed: int) -> Any:
        return make(self)

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
    source_tokenizer: Any = None


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
    given = {name: texts for name, texts in zip(NAMES, (sources, valid, test), strict=True) if texts is not None}
    shares = main_shares(split, given)
    if documents not in SEPARATORS:
        raise ValueError(f"unknown way {documents!r} to tell documents apart{suggest(documents, SEPARATORS)}")
    settled = settle(tokenizer)
    report = progress or (lambda stage, done, total: None)
    home = open_home(cache or cache_folder())
    with spooling(home) as spool:
        roles = {name: find(texts, spool=spool) for name, texts in given.items()}
        paths = _files(roles)
        stamps = stamps_of(paths)
        hashes = _hash_sources(roles, report)
        text_fingerprint = digest([documents, shares, hashes])
        key = digest([FORMAT, name_of(settled), documents, shares, hashes])
        folder = home / key[:32]
        index = read_index(folder, key)
        if index is None:
            with building(folder, key) as new:
                _build(new, roles, settled, shares, documents, key, report)
                check_unchanged(paths, stamps)
            index = read_index(folder, key)
            assert index is not None, "a corpus that was just written can be read"
        else:
            tell_again(index["warnings"])
        return _open(folder, index, text_fingerprint)


def _open(folder: Path, index: dict[str, Any], text_fingerprint: str) -> Corpus:
    parts = {name: Split.open(folder / name, Shard(**shard)) for name, shard in index["splits"].items()}
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    return Corpus(
        tokenizer=tokenizer,
        train=parts["train"],
        valid=parts.get("valid"),
        test=parts.get("test"),
        fingerprint=digest([tokenizer.fingerprint, text_fingerprint]),
        text_fingerprint=text_fingerprint,
        folder=folder,
    )


def _hash_sources(roles: dict[str, list[Source]], report: Progress) -> dict[str, list[str]]:
    """The SHA-256 of each source; a text that is both in train and in valid or test is told of."""
    checking = Counter("checking", size_of(_files(roles)), report)
    hashes: dict[str, list[str]] = {}
    for role, sources in roles.items():
        hashes[role] = []
        for source in sources:
            if source.path is None:
                hashes[role].append(digest(builtin_documents()))
                continue
            hashes[role].append(digest_file(source.path))
            checking.add(source.path.stat().st_size)
    for role in hashes:
        if role != "train" and (both := set(hashes["train"]) & set(hashes[role])):
            name = next(s.name for s, h in zip(roles[role], hashes[role], strict=True) if h in both)
            warnings.warn(
                f"{name} is both in train and in {role}: scores on it will flatter", TextWarning, stacklevel=3
            )
    return hashes


def _files(roles: dict[str, list[Source]]) -> list[Path]:
    return [source.path for sources in roles.values() for source in sources if source.path]


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
    reading = Counter("reading", size_of(_files(roles)), report)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gathered = {
            role: gather(sources, folder / f"{role}.gathered", how=how, report=reading.add)
            for role, sources in roles.items()
        }
        parts = split_documents(*gathered["train"], shares)
        parts |= {role: documents for role, (documents, _) in gathered.items() if role != "train"}
        report("training the tokenizer", 0, 1)
        train = parts["train"]
        trained = resolve(tokenizer, lambda: train.sample(train.size if learns_from_all(tokenizer) else SAMPLE))
        report("training the tokenizer", 1, 1)
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=4)
    trained.save(folder / "tokenizer.json")
    shards = {}
    encoding = Counter("encoding", sum(part.size for part in parts.values()), report)
    for name, part in parts.items():
        keep_text = name != "train"
        shards[name] = write_shard(part, trained, folder / name, how=how, keep_text=keep_text, report=encoding.add)
    for role in roles:
        (folder / f"{role}.gathered").unlink()
    write_index(folder, key, shards, messages_of(caught))
