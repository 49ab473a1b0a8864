"""A corpus: data of any kind, texts as memory-mapped tokens, in the parts train, valid and test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.shards import Shard
from lmlab.data.loaders.loader import Loader
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.inspecting import loses_text

Tokens = NDArray[np.uint16] | NDArray[np.uint32]


class Dataset(Protocol):
    """One part of a corpus, of whatever kind."""

    @property
    def tokens(self) -> Tokens:
        """All tokens that are predicted, with the boundaries around them."""

    @property
    def documents(self) -> NDArray[np.int64]:
        """The place in `tokens` of each document's first token."""

    @property
    def size(self) -> int:
        """How many tokens are predicted (of what is no text: how many items there are); known without reading them."""

    @property
    def bytes(self) -> int:
        """Bytes of the text in UTF-8."""

    @property
    def words(self) -> int:
        """Words of the text, split at white space."""

    def bytes_per_token(self, *, text_alone: bool = False) -> float:
        """How many bytes a predicted token stands for, on average.

        With `text_alone` what separates documents counts neither as a token nor as bytes, as in `lmlab score`, where
        the text is kept (valid and test).
        """

    def texts(self) -> Iterator[Any]:
        """The text of each document, for valid and test; source and target, of pairs."""

    def parts(self) -> Mapping[str, Dataset]:
        """What is judged apart, by name: the languages, where there are several."""

    def loader(self, make: Callable[[Any], Loader], *, seed: int) -> Loader:
        """The loader that `make` gives of this; of several languages, one of each by turns."""


@dataclass(frozen=True)
class Split:
    """One part of a corpus of plain text."""

    tokens: Tokens
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
        """How many tokens are predicted: all but the first boundary."""
        return len(self.tokens) - 1

    def bytes_per_token(self, *, text_alone: bool = False) -> float:
        if text_alone and self.text_places is not None:
            bytes_ = int((self.text_places[:, 1] - self.text_places[:, 0]).sum())
            return bytes_ / max(1, self.size - len(self.documents))
        return self.bytes / max(1, self.size)

    def texts(self) -> Iterator[str]:
        """The text of each document, for valid and test."""
        if self.text_path is None or self.text_places is None:
            raise ValueError("the training text is not stored in the run; read it from its own files")
        with self.text_path.open("rb") as file:
            for start, end in self.text_places.tolist():
                file.seek(start)
                yield file.read(end - start).decode()

    def parts(self) -> Mapping[str, Split]:
        return {}

    def loader(self, make: Callable[[Any], Loader], *, seed: int) -> Loader:
        return make(self)


@dataclass(frozen=True)
class Corpus:
    """Data of any kind, ready to train on."""

    tokenizer: Tokenizer | None
    """Of the text, if there is any; of pairs, that of the targets, and of both sides where they share a vocabulary."""
    train: Dataset
    valid: Dataset | None
    test: Dataset | None
    fingerprint: str
    """A SHA-256 of the texts, the tokenizers and the options: equal for equal corpora."""
    text_fingerprint: str
    """The same without the tokenizers: equal for equal texts, split in the same way."""
    folder: Path
    source_tokenizer: Tokenizer | None = None
    """Of the sources of pairs, where they have a vocabulary of their own."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many pairs were left out, by reason: `empty`, `long`, `ratio`."""

    def with_roles(self, roles: Sequence[str]) -> Corpus:
        """The same with a tokenizer that has a special token for each role; they come last, so no token changes."""
        return self if self.tokenizer is None else replace(self, tokenizer=self.tokenizer.with_roles(roles))

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer; a ValueError where there is none."""
        if self.tokenizer is None:
            raise ValueError("these data have no text and so no tokenizer; give text to what needs one")
        return self.tokenizer

    def loses(self, split: Dataset | None) -> bool:
        """Whether the tokenizer loses part of the text of valid or test; of no text, whether it may."""
        tokenizer = self.tokenizer
        if tokenizer is None or split is None:
            return tokenizer is not None and tokenizer.lossy
        texts = (each if isinstance(each, str) else str(each[-1]) for each in split.texts())
        return loses_text(tokenizer, texts)

    @property
    def encoder(self) -> Tokenizer | None:
        """The tokenizer that encoded the text: `tokenizer` before it got any roles; None without text."""
        return None if self.tokenizer is None else Tokenizer.load(self.folder / "tokenizer.json")
