"""Plain text: split into train, valid and test, and encoded once into memory-mapped tokens in the cache."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from lmlab.config import suggest
from lmlab.data.config import DataConfig, Paths
from lmlab.data.corpora.corpus import Corpus, Processor, TextSplit
from lmlab.data.corpora.held_out_cache import remember_text
from lmlab.data.corpora.preparing import (
    SAMPLE,
    Counter,
    ReportStage,
    as_tokenizer,
    check_tokenizer,
    check_unchanged,
    digest,
    learns_from_all,
    name_of,
    repeat_warnings,
    size_of,
    spooling,
    stamps_of,
    warnings_to_keep,
)
from lmlab.data.corpora.shards import Shard, write_shard
from lmlab.data.corpora.splitting import NAMES, main_fractions, split_documents
from lmlab.data.corpora.store import FORMAT, building, open_home, read_index, write_index
from lmlab.data.readers.builtin_corpus import builtin_documents
from lmlab.data.readers.documents import SEPARATORS, gather
from lmlab.data.readers.files import cache_folder
from lmlab.data.readers.text import Source, TextWarning, find
from lmlab.files import digest_file
from lmlab.tokenizers import Tokenizer, resolve
from lmlab.tokenizers.files import with_words
from lmlab.tokenizers.training import different_words

DocumentsAre = Literal["file", "lines", "blank", "endoftext"]


class TextConfig(DataConfig):
    """Plain text."""

    PATHS: ClassVar[tuple[str, ...]] = ("text", "valid", "test")
    what: ClassVar[str] = "plain text"

    kind: Literal["text"] = "text"
    text: Paths = Field(description="files, folders, globs, .gz, - for standard input, or builtin")
    valid: Paths | None = Field(None, description="validation text; by default a part of `text`")
    test: Paths | None = Field(None, description="test text; by default a part of `text`")
    documents: DocumentsAre = Field("file", description="what counts as one document")


def prepare(
    config: TextConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return the corpus of a recipe's text."""
    return prepare_text(
        config.text,
        tokenizer=as_tokenizer(processor),
        valid=config.valid,
        test=config.test,
        split=config.split,
        documents=config.documents,
        progress=progress,
    )


def prepare_text(
    sources: Sequence[str | Path],
    *,
    tokenizer: str | Path | Tokenizer = "bpe:4096",
    valid: Sequence[str | Path] | None = None,
    test: Sequence[str | Path] | None = None,
    split: Sequence[float] = (0.9, 0.05, 0.05),
    documents: str = "file",
    cache: Path | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Find, read, split and encode texts in bounded memory; a second call with the same texts uses the cache.

    `split` gives the fractions of train, valid and test. Texts given as `valid` replace the second and third fraction,
    so that without `test` there is no test split; texts given as `test` replace the third, and valid is still split
    off. The tokenizer is trained on the training split alone. A `TextWarning` says what was replaced in the texts, also
    when they come from the cache.
    """
    given = {name: texts for name, texts in zip(NAMES, (sources, valid, test), strict=True) if texts is not None}
    fractions = main_fractions(split, given)
    if documents not in SEPARATORS:
        raise ValueError(f"unknown kind of documents {documents!r}{suggest(documents, SEPARATORS)}")
    checked = check_tokenizer(tokenizer)
    report = progress or (lambda stage, done, total: None)
    home = open_home(cache or cache_folder())
    with spooling(home) as spool:
        roles = {name: find(texts, spool=spool) for name, texts in given.items()}
        paths = _files(roles)
        stamps = stamps_of(paths)
        hashes = _hash_sources(roles, report)
        text_fingerprint = digest([documents, fractions, hashes])
        key = digest([FORMAT, name_of(checked), documents, fractions, hashes])
        folder = home / key[:32]
        index = read_index(folder, key)
        if index is None:
            with building(folder, key) as new:
                _build(new, roles, tokenizer=checked, fractions=fractions, documents=documents, key=key, report=report)
                check_unchanged(paths, stamps)
            index = read_index(folder, key)
            assert index is not None, "a corpus that was just written can be read"
        else:
            repeat_warnings(index["warnings"])
        remember_text(home.parent, text_fingerprint, keys=[key])
        return _open(folder, index, text_fingerprint)


def _open(folder: Path, index: dict[str, Any], text_fingerprint: str) -> Corpus:
    parts = {name: TextSplit.open(folder / name, Shard(**shard)) for name, shard in index["splits"].items()}
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    return Corpus(
        processor=tokenizer,
        train=parts["train"],
        valid=parts.get("valid"),
        test=parts.get("test"),
        fingerprint=digest([tokenizer.fingerprint, text_fingerprint]),
        text_fingerprint=text_fingerprint,
        folder=folder,
    )


def _hash_sources(roles: dict[str, list[Source]], report: ReportStage) -> dict[str, list[str]]:
    """Return the SHA-256 of each source; warn of a text that is both in train and in valid or test."""
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
                f"{name} is in both the training and the {role} text, so scores on it will be too good",
                TextWarning,
                stacklevel=3,
            )
    return hashes


def _files(roles: dict[str, list[Source]]) -> list[Path]:
    return [source.path for sources in roles.values() for source in sources if source.path]


def _build(
    folder: Path,
    roles: dict[str, list[Source]],
    *,
    tokenizer: str | Tokenizer,
    fractions: dict[str, float],
    documents: str,
    key: str,
    report: ReportStage,
) -> None:
    """Write a corpus into a folder: tokens and document positions of each split, the tokenizer, and last the index."""
    reading = Counter("reading", size_of(_files(roles)), report)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gathered = {
            role: gather(sources, folder / f"{role}.gathered", how=documents, report=reading.add)
            for role, sources in roles.items()
        }
        parts = split_documents(*gathered["train"], fractions)
        parts |= {role: documents for role, (documents, _) in gathered.items() if role != "train"}
        report("training the tokenizer", 0, 1)
        train = parts["train"]
        trained = resolve(tokenizer, lambda: train.sample(train.size if learns_from_all(tokenizer) else SAMPLE))
        if trained.is_open:
            texts = (text for part in parts.values() for text in part.sample(part.size))
            trained = with_words(trained, different_words(texts))
        report("training the tokenizer", 1, 1)
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=4)
    trained.save(folder / "tokenizer.json")
    shards = {}
    encoding = Counter("encoding", sum(part.size for part in parts.values()), report)
    for name, part in parts.items():
        keep_text = name != "train"
        shards[name] = write_shard(
            part, trained, folder / name, how=documents, keep_text=keep_text, report=encoding.add
        )
    for role in roles:
        (folder / f"{role}.gathered").unlink()
    write_index(folder, key, shards, warnings_to_keep(caught))
