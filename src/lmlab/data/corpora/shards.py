"""Encoding documents into a file of tokens, in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.documents import SEPARATORS, Documents
from lmlab.tokenizers import Tokenizer

BATCH = 2 << 20
"""The number of characters encoded together: enough to keep every core busy, few enough for little memory."""


class Shard(NamedTuple):
    """The entry of a split in the index."""

    tokens: int
    dtype: str
    documents: int
    bytes: int
    words: int
    names: list[str] | None
    text: bool  # whether the text is kept


def write_shard(
    documents: Documents,
    tokenizer: Tokenizer,
    stem: Path,
    *,
    how: str,
    keep_text: bool,
    report: Callable[[int], None],
) -> Shard:
    """Write `[b, document, b, document, b]` to `stem.tokens` and the positions of the documents to `stem.documents`.

    If a newline is the boundary, the newline that ends a document is the boundary after it, not a second one. So a file
    of lines has as many predicted tokens as the literature counts: its words and its lines.
    """
    dtype = np.dtype(np.uint16 if tokenizer.vocabulary <= 1 << 16 else np.uint32)
    boundary = np.array([tokenizer.boundary], dtype)
    positions = array("q")
    length, words = 1, 0
    within_word = False
    with stem.with_suffix(".tokens").open("wb") as file:
        boundary.tofile(file)
        begins = True
        for batch in _batches(documents):
            texts = [text for text, _ in batch]
            if tokenizer.newline_is_boundary:
                texts = [text.removesuffix("\n") if last else text for text, last in batch]
            pieces: list[NDArray[Any]] = []
            for (text, last), ids in zip(batch, tokenizer.encode_closed(texts), strict=True):
                if begins:
                    positions.append(length)
                words += len(text.split()) - (within_word and not text[:1].isspace())
                within_word = not last and not text[-1:].isspace()
                pieces.append(ids)
                length += len(ids)
                if last:
                    pieces.append(boundary)
                    length += 1
                begins = last
            np.concatenate(pieces).astype(dtype, copy=False).tofile(file)
            report(sum(len(text.encode()) for text, _ in batch))
    with stem.with_suffix(".documents").open("wb") as file:
        np.frombuffer(positions, np.int64).tofile(file)
    if keep_text:
        _keep_text(documents, stem, SEPARATORS[how].encode())
    size = documents.size + len(positions) * len(SEPARATORS[how])
    return Shard(length, dtype.name, len(positions), size, words, documents.names, keep_text)


def _batches(documents: Documents) -> Iterator[list[tuple[str, bool]]]:
    """Yield pieces of text, each with whether it ends a document, a few at a time."""
    batch: list[tuple[str, bool]] = []
    size = 0
    for last, text in documents.pieces():
        batch.append((text, last))
        size += len(text) + 64
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _keep_text(documents: Documents, stem: Path, separator: bytes) -> None:
    """Write the text to `stem.txt` and where each document starts and ends to `stem.places`."""
    positions = array("q")
    with stem.with_suffix(".txt").open("wb") as file:
        begins, position = True, 0
        for last, text in documents.pieces():
            if begins:
                positions.append(position)
            position += file.write(text.encode())
            if last:
                positions.append(position)
                position += file.write(separator)
            begins = last
    with stem.with_suffix(".places").open("wb") as file:
        np.frombuffer(positions, np.int64).tofile(file)
