"""A corpus: data of any kind in the splits train, valid and test; text is kept as memory-mapped tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from lmlab.tokenizers.processors.sequences import SequenceTokenizer

Tokens = NDArray[np.uint16] | NDArray[np.uint32]


class Processor(Protocol):
    """Turns the items of a kind of data into arrays: a tokenizer for text, others for pictures, sound or notes."""

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of all settings: equal processors give equal arrays."""

    def save(self, path: Path) -> None:
        """Write the settings to a file."""


class Dataset(ABC):
    """One split of a corpus (train, valid or test), of any kind of data."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of items, known without reading them; for text, the number of predicted tokens."""

    def parts(self) -> Mapping[str, Dataset]:
        """The parts that are also evaluated separately, by name: the languages, if there are several."""
        return {}

    def loader(self, make: Callable[[Any], Loader], *, seed: int) -> Loader:
        """Return the loader that `make` gives for this split; for several parts, one that mixes theirs."""
        return make(self)

    def texts(self) -> Iterator[Any]:
        """Yield the text of each item, if it has one and it is kept; for pairs, source and target."""
        return iter(())

    def items(self) -> Iterator[NDArray[np.int64]]:
        """Yield the tokens of each item, without boundaries; a ValueError if the items are not tokens."""
        data = self.as_tokens()
        ends = [*(data.documents[1:] - 1).tolist(), len(data.tokens) - 1]
        for start, end in zip(data.documents.tolist(), ends, strict=True):
            yield np.asarray(data.tokens[start:end], dtype=np.int64)

    def sizes(self) -> dict[str, int]:
        """Return how many items there are, and what they are made of, as a comparison records it."""
        return {"items": self.size}

    def describe(self) -> str:
        """Return the size in words, for progress displays."""
        return f"{self.size:,} items"

    def as_tokens(self) -> TokenDataset:
        """Return this split as one sequence of tokens; a ValueError if it has none."""
        return self.as_text()

    def as_text(self) -> TextDataset:
        """Return this split as text; a ValueError if it is another kind of data."""
        raise ValueError("these data are not plain text; give text, or choose an objective for this kind of data")


class TokenDataset(Protocol):
    """A split that is one sequence of tokens: of text, of music, of the pixels of pictures."""

    @property
    def tokens(self) -> Tokens:
        """All predicted tokens, with the boundaries around them."""

    @property
    def documents(self) -> NDArray[np.int64]:
        """The position in `tokens` of each document's first token."""

    @property
    def size(self) -> int:
        """The number of predicted tokens."""

    def parts(self) -> Mapping[str, Dataset]:
        """The languages, if there are several."""


class TextDataset(TokenDataset, Protocol):
    """A split of text. Only text has bytes and words."""

    @property
    def bytes(self) -> int:
        """The number of bytes of the text in UTF-8."""

    @property
    def words(self) -> int:
        """The number of words, split at white space."""

    def bytes_per_token(self, *, text_alone: bool = False) -> float:
        """Return the mean number of bytes of a predicted token.

        With `text_alone` the separators of documents count neither as tokens nor as bytes, as in `lmlab score`. That
        needs the text itself, which is kept for valid and test.
        """

    def texts(self) -> Iterator[Any]:
        """Yield the text of each document, for valid and test; for pairs, source and target."""


@dataclass(frozen=True)
class TextSplit(Dataset):
    """A split of plain text."""

    tokens: Tokens
    """`[b, document, b, document, b]`, memory-mapped, where b is the tokenizer's boundary."""
    documents: NDArray[np.int64]
    """The position in `tokens` of each document's first token."""
    bytes: int
    """The number of bytes of the text in UTF-8."""
    words: int
    """The number of words, split at white space."""
    names: list[str] | None
    """The name of each document, if each is a file."""
    text_path: Path | None
    """The file of the text itself, kept for valid and test."""
    text_places: NDArray[np.int64] | None
    """Where in that file each document starts and ends, in bytes, [documents, 2]."""

    @classmethod
    def open(cls, stem: Path, shard: Shard) -> TextSplit:
        """Open the split that `write_shard` wrote to files named `stem`."""

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
        """The number of predicted tokens: all but the first boundary."""
        return len(self.tokens) - 1

    def bytes_per_token(self, *, text_alone: bool = False) -> float:
        if text_alone and self.text_places is not None:
            bytes_ = int((self.text_places[:, 1] - self.text_places[:, 0]).sum())
            return bytes_ / max(1, self.size - len(self.documents))
        return self.bytes / max(1, self.size)

    def texts(self) -> Iterator[str]:
        """Yield the text of each document, for valid and test."""
        if self.text_path is None or self.text_places is None:
            raise ValueError("the training text is not stored in the run; read it from its own files")
        with self.text_path.open("rb") as file:
            for start, end in self.text_places.tolist():
                file.seek(start)
                yield file.read(end - start).decode()

    def sizes(self) -> dict[str, int]:
        return {"documents": len(self.documents), "bytes": self.bytes, "words": self.words}

    def describe(self) -> str:
        return f"{self.bytes:,} bytes"

    def as_text(self) -> TextDataset:
        return self


@dataclass(frozen=True)
class Corpus:
    """Data of any kind, ready to train on."""

    processor: Processor | None
    """For text the tokenizer; for pairs that of the targets, and of both sides if they share a vocabulary."""
    train: Dataset
    valid: Dataset | None
    test: Dataset | None
    fingerprint: str
    """A SHA-256 of the data, the processors and the options: equal for equal corpora."""
    text_fingerprint: str
    """The same without the processors: equal for equal data with equal splits."""
    folder: Path
    source_tokenizer: Tokenizer | None = None
    """For the sources of pairs, if they have a vocabulary of their own."""
    media: Processor | None = None
    """The processor of the pictures or sounds, if there are any; `processor` is the tokenizer if they have texts."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many pairs were left out, by reason: `empty`, `long`, `ratio`."""
    checked: Sequence[str] = ()
    """What a check of the data found, in lines: of pictures."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The processor, if it is a tokenizer."""
        return self.processor if isinstance(self.processor, Tokenizer) else None

    @property
    def token_processor(self) -> Tokenizer | SequenceTokenizer | None:
        """The processor, if it gives tokens: a tokenizer of text, or of a sequence of another kind."""
        return self.processor if isinstance(self.processor, (Tokenizer, SequenceTokenizer)) else None

    @property
    def sequence_tokenizer(self) -> SequenceTokenizer | None:
        """The processor, if it gives tokens of data that are not text: music, pixels, episodes, or several kinds."""
        return self.processor if isinstance(self.processor, SequenceTokenizer) else None

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer; a ValueError if there is none."""
        if self.tokenizer is None:
            raise ValueError("these data have no text and so no tokenizer; give text to what needs one")
        return self.tokenizer

    @property
    def encoder(self) -> Tokenizer | None:
        """The tokenizer that encoded the text, before special tokens were added; None without text."""
        return None if self.tokenizer is None else Tokenizer.load(self.folder / "tokenizer.json")

    def with_specials(self, specials: Sequence[str]) -> Corpus:
        """Return the corpus with these special tokens in its tokenizer; they come last, so no id changes."""
        return self if self.tokenizer is None else replace(self, processor=self.tokenizer.with_specials(specials))

    def loses(self, split: Dataset | None) -> bool:
        """Whether the tokenizer loses part of the text of valid or test; without text, whether it may."""
        tokenizer = self.tokenizer
        if tokenizer is None or split is None:
            return tokenizer is not None and tokenizer.lossy
        texts = (each if isinstance(each, str) else str(each[-1]) for each in split.texts())
        return loses_text(tokenizer, texts)
