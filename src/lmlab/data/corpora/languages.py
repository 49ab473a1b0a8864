"""Texts in several languages: one vocabulary for all, and small languages are sampled more often than their size.

The fraction of a language with n tokens is n^α / Σ n^α (Devlin's mBERT with α = 0.7, Conneau & Lample 2019 with 0.5,
XLM-R with 0.3): α = 1 leaves sizes as they are, 0 gives all languages the same fraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from lmlab.data.config import DataConfig, Paths, by_language
from lmlab.data.corpora.corpus import Corpus, Dataset, Processor, TextDataset, TextSplit
from lmlab.data.corpora.held_out_cache import remember_text
from lmlab.data.corpora.preparing import SAMPLE, ReportStage, as_tokenizer, digest
from lmlab.data.corpora.text import DocumentsAre, prepare_text
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.mixed import MixedLoader
from lmlab.data.readers.files import cache_folder
from lmlab.tokenizers import Tokenizer, resolve
from lmlab.tokenizers.files import with_words
from lmlab.tokenizers.training import MOST_COUNTED, is_path

PIECE = 1 << 16
"""The number of bytes of a language that are used, or left out, together when the tokenizer is trained."""


def sampling_fractions(sizes: Mapping[str, float], *, alpha: float) -> dict[str, float]:
    """Return n^α / Σ n^α for each language of size n."""
    smoothed = {name: size**alpha for name, size in sizes.items()}
    return {name: value / sum(smoothed.values()) for name, value in smoothed.items()}


@dataclass(frozen=True)
class LanguageSplit(Dataset):
    """A split of a corpus in several languages; `tokens` has them one after another."""

    languages: Mapping[str, TextSplit]
    alpha: float

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """All tokens, language by language, read into memory; `size` and `loader` do not need them."""
        first, *others = (part.tokens for part in self.languages.values())
        return np.concatenate([first, *(tokens[1:] for tokens in others)])  # one boundary between two languages

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """The position in `tokens` of each document's first token."""
        positions, before = [], 0
        for part in self.languages.values():
            positions.append(part.documents + before)
            before += len(part.tokens) - 1
        return np.concatenate(positions)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.languages.values())

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.languages.values())

    @property
    def words(self) -> int:
        return sum(part.words for part in self.languages.values())

    @property
    def fractions(self) -> dict[str, float]:
        """The fraction of the batches of each language."""
        return sampling_fractions({name: len(part.tokens) for name, part in self.languages.items()}, alpha=self.alpha)

    def texts(self) -> Iterator[str]:
        """Yield the text of each document, for valid and test."""
        for part in self.languages.values():
            yield from part.texts()

    def bytes_per_token(self, *, text_alone: bool = False) -> float:
        """Return the mean over the languages: validation gives each the same weight."""
        each = [part.bytes_per_token(text_alone=text_alone) for part in self.languages.values()]
        return sum(each) / len(each)

    def parts(self) -> Mapping[str, TextSplit]:
        return self.languages

    def sizes(self) -> dict[str, int]:
        return {"documents": len(self.documents), "bytes": self.bytes, "words": self.words}

    def describe(self) -> str:
        return f"{self.bytes:,} bytes"

    def as_text(self) -> TextDataset:
        return self

    def loader(self, make: Callable[[Any], Loader], *, seed: int) -> Loader:
        loaders = {name: make(part) for name, part in self.languages.items()}
        return MixedLoader(loaders, self.fractions, seed=seed)


class LanguagesConfig(DataConfig):
    """Plain text in several languages, by language."""

    PATHS: ClassVar[tuple[str, ...]] = ("text", "valid", "test")
    what: ClassVar[str] = "plain text in several languages"

    kind: Literal["languages"] = "languages"
    text: dict[str, Paths] = Field(
        min_length=1, description="texts by language, { en = …, de = … }; or en=FILE, de=FILE"
    )
    valid: dict[str, Paths] | None = Field(None, description="validation texts; by default a part of `text`")
    test: dict[str, Paths] | None = Field(None, description="test texts; by default a part of `text`")
    alpha: float = Field(
        0.7, ge=0, le=1, description="smoothed sampling: a language is sampled in proportion to size^alpha"
    )
    documents: DocumentsAre = Field("file", description="what counts as one document")

    @field_validator("text", "valid", "test", mode="before")
    @classmethod
    def _by_label(cls, value: Any) -> Any:
        """A list of `en=FILE` is a table, too."""
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list):
            return texts
        found = by_language(texts)
        if found is None:
            raise ValueError("give the language of each text, as in en=FILE, or { en = FILE, de = FILE }")
        return found

    @model_validator(mode="after")
    def _the_same_languages(self) -> LanguagesConfig:
        check_languages(self.text, valid=self.valid, test=self.test)
        return self


def prepare(
    config: LanguagesConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return the corpus of a recipe's texts."""
    return prepare_languages(
        config.text,
        tokenizer=as_tokenizer(processor),
        alpha=config.alpha,
        valid=config.valid,
        test=config.test,
        split=config.split,
        documents=config.documents,
        progress=progress,
    )


def check_languages(texts: Mapping[str, Any], **others: Mapping[str, Any] | None) -> None:
    """Raise a ValueError if the texts for validation or test are not in the languages of the text."""
    for what, given in others.items():
        if given is not None and given.keys() != texts.keys():
            raise ValueError(
                f"--{what} has {', '.join(given)}, the text has {', '.join(texts)}; give the same languages for both"
            )


def prepare_languages(
    texts: Mapping[str, Sequence[str]],
    *,
    tokenizer: str | Tokenizer,
    alpha: float,
    valid: Mapping[str, Sequence[str]] | None = None,
    test: Mapping[str, Sequence[str]] | None = None,
    split: Sequence[float] = (0.9, 0.05, 0.05),
    documents: str = "file",
    cache: Path | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return texts by language as one corpus, whose splits are `LanguageSplit`s; each language is split separately."""
    check_languages(texts, valid=valid, test=test)

    def report(name: str) -> ReportStage | None:
        return None if progress is None else lambda stage, done, total: progress(f"{name}: {stage}", done, total)

    def corpora(how: str | Tokenizer) -> dict[str, Corpus]:
        return {
            name: prepare_text(
                list(sources),
                tokenizer=how,
                valid=None if valid is None else list(valid[name]),
                test=None if test is None else list(test[name]),
                split=split,
                documents=documents,
                cache=cache,
                progress=report(name),
            )
            for name, sources in texts.items()
        }

    shared = tokenizer if isinstance(tokenizer, Tokenizer) else _shared_tokenizer(tokenizer, corpora, alpha, cache)
    parts = corpora(shared)
    if new := _new_words(shared, parts):  # which each language has numbered separately
        shared = with_words(shared, new)
        parts = corpora(shared)

    def joined(which: str) -> Any:
        found = {name: getattr(corpus, which) for name, corpus in parts.items()}
        return LanguageSplit(found, alpha) if all(part is not None for part in found.values()) else None

    fingerprint = digest("\n".join(_text_fingerprints(parts)))
    each = [corpus.text_fingerprint for corpus in parts.values()]
    remember_text(cache or cache_folder(), fingerprint, texts=each)
    return Corpus(
        processor=shared,
        train=joined("train"),
        valid=joined("valid"),
        test=joined("test"),
        fingerprint=digest(f"{shared.fingerprint}\n{fingerprint}"),
        text_fingerprint=fingerprint,
        folder=next(iter(parts.values())).folder,
    )


def _shared_tokenizer(spec: str, corpora: Any, alpha: float, cache: Path | None) -> Tokenizer:
    """Return one tokenizer for all languages, trained on a sample smoothed as training will be; kept in the cache."""
    if is_path(spec):
        return resolve(spec, lambda: ())
    raw: dict[str, Corpus] = corpora("bytes")
    key = digest("\n".join([spec, str(alpha), *_text_fingerprints(raw)]))
    kept = (cache or cache_folder()) / "corpora" / f"tokenizer-{key[:32]}.json"
    if kept.is_file():
        return Tokenizer.load(kept)
    sizes = {name: corpus.train.as_text().bytes for name, corpus in raw.items()}
    size = min(SAMPLE, sum(sizes.values()))
    fractions = sampling_fractions(sizes, alpha=alpha)
    sample = (text for name, corpus in raw.items() for text in _sample(corpus, size=round(fractions[name] * size)))
    trained = resolve(spec, lambda: sample)
    trained.save(kept, shared=True)
    return trained


def _sample(corpus: Corpus, *, size: int) -> Iterator[str]:
    """Yield about `size` bytes of the training text of a language, evenly; more than once if it is shorter."""
    tokens = corpus.train.as_text().tokens
    pieces = [tokens[start : start + PIECE] for start in range(0, len(tokens), PIECE)]
    times, rest = divmod(size, len(tokens))
    for _ in range(times):
        yield from (corpus.text_tokenizer.decode(piece.tolist()) for piece in pieces)
    wanted = math.ceil(len(pieces) * rest / len(tokens))
    for position in np.linspace(0, len(pieces) - 1, wanted).round().astype(int).tolist():
        yield corpus.text_tokenizer.decode(pieces[position][: max(1, rest)].tolist())


def _new_words(shared: Tokenizer, parts: Mapping[str, Corpus]) -> list[str]:
    """Return the `spelled` words that the languages add to a tokenizer; none if it has them all."""
    new: dict[str, None] = {}
    for corpus in parts.values():
        own = corpus.text_tokenizer
        new.update(dict.fromkeys(str(own.engine.id_to_token(i)) for i in range(shared.vocabulary, own.vocabulary)))
        if len(new) > MOST_COUNTED:
            raise ValueError(
                f"the texts of {', '.join(parts)} have more than {MOST_COUNTED:,} different words, too many for one "
                "tokenizer of spelled words: give less text, or take subwords (--tokenizer bpe:32000)"
            )
    return list(new)


def _text_fingerprints(corpora: Mapping[str, Corpus]) -> list[str]:
    return [f"{name}:{corpus.text_fingerprint}" for name, corpus in corpora.items()]
