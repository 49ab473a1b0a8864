"""Several kinds of data as one corpus (`mixture`): text, pictures with captions, music and episodes in one vocabulary.

Each kind is read, split and encoded as it is alone; its tokens get their joined ids when a batch is made
(tokenizers/processors/joined.py). Batches have one kind each, in turn, as often as the weights say. Validation gives
the loss of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from lmlab.config import suggest
from lmlab.data import DATA, MIXED, by_kind, load_config, make_config
from lmlab.data import prepare as prepare_data
from lmlab.data.config import AnyData, DataConfig
from lmlab.data.corpora.corpus import Corpus, Dataset, Processor
from lmlab.data.corpora.pictures.captions import CaptionsConfig
from lmlab.data.corpora.pictures.captions import prepare as prepare_captions
from lmlab.data.corpora.pictures.images import ImagesConfig
from lmlab.data.corpora.pictures.pixels import prepare_pixels
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.corpora.preparing import ReportStage, digest
from lmlab.data.corpora.sequences import EncodedItem, EncodingSettings, open_sequences
from lmlab.data.corpora.store import open_home
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.mixed import Mapped, MixedLoader
from lmlab.data.readers.files import cache_folder
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors import is_processor
from lmlab.tokenizers.processors.captioned_pixels import CaptionedPixels
from lmlab.tokenizers.processors.joined import JoinedTokenizer, parse_specs
from lmlab.tokenizers.processors.pictures import PictureProcessor
from lmlab.tokenizers.processors.pixels import Pixels

SIDE = 16
"""Pixels of a side, at most, where the settings name no size: each pixel is one token."""
SHARED = ("split", "bad")
"""Settings of the mixture that each part has which knows them."""
TEXT = "bpe:4096"
"""The tokenizer of text, for a system whose usual one is not for text."""


class MixtureConfig(DataConfig):
    """Data of several kinds."""

    PATHS: ClassVar[tuple[str, ...]] = ("parts",)
    ALIASES: ClassVar[tuple[str, ...]] = ("bad",)
    what: ClassVar[str] = "several kinds of data"

    kind: Literal["mixture"] = "mixture"
    parts: dict[str, AnyData] = Field(
        min_length=1, description='data by kind, { text = "book.txt", notes = "tunes/" }; or text=FILE notes=FOLDER'
    )
    weights: dict[str, float] = Field(
        {}, description="weight of each kind, in proportion to which its batches are taken; 1 if not given"
    )
    split: list[float] = Field(
        [], description="fractions for training, validation and test, of each kind; empty: those usual for the kind"
    )

    @model_validator(mode="before")
    @classmethod
    def _make_parts(cls, values: Any) -> Any:
        """A part may be written as its path, its paths or a table of settings; `SHARED` settings are those of all."""
        if not isinstance(values, Mapping) or not isinstance(values.get("parts"), Mapping):
            return values
        shared = {name: values[name] for name in SHARED if values.get(name)}
        parts = {kind: _make_part(kind, part, shared) for kind, part in values["parts"].items()}
        if "bad" in shared and not any("bad" in type(part).model_fields for part in parts.values()):
            raise ValueError(f"bad is a setting of files, and {', '.join(parts)} have none that can be skipped")
        return {**{name: value for name, value in values.items() if name != "bad"}, "parts": parts}

    @field_validator("weights")
    @classmethod
    def _positive(cls, weights: dict[str, float]) -> dict[str, float]:
        if wrong := [name for name, weight in weights.items() if not 0 < weight < float("inf")]:
            raise ValueError(f"the weight of {wrong[0]} is {weights[wrong[0]]:g}; give numbers above 0")
        return weights

    @model_validator(mode="after")
    def _weights_of_parts(self) -> Self:
        if wrong := [name for name in self.weights if name not in self.parts]:
            raise ValueError(f"weights: there are no data of the kind {wrong[0]!r}{suggest(wrong[0], self.parts)}")
        return self

    @property
    def fractions(self) -> dict[str, float]:
        """The fraction of the batches of each kind."""
        total = sum(self.weights.get(name, 1.0) for name in self.parts)
        return {name: self.weights.get(name, 1.0) / total for name in MIXED if name in self.parts}

    def usual_tokenizer(self, of_system: str | None) -> str | None:
        """That of the system, for the text; the other kinds have their usual ones."""
        usual = TEXT if of_system is None or is_processor(of_system) else of_system
        first = next((self.parts[name] for name in ("text", "captions") if name in self.parts), None)
        return None if first is None else first.usual_tokenizer(usual)

    @property
    def named(self) -> list[str]:
        if self.given is not None:
            return self.given
        return [f"{name}={path}" for name, part in self.parts.items() for path in part.named]

    def absolute(self) -> Self:
        parts = {name: part.absolute() for name, part in self.parts.items()}
        return self.model_copy(update={"parts": parts, "given": self.named})

    def moved(self, texts: Mapping[str, Any]) -> Self:
        given = texts.get("text", [])
        names = [given] if isinstance(given, str) else given
        named = by_kind(names)
        unread = [name for name in named if name not in self.parts]
        if not named or unread or set(texts) != {"text"} or sum(map(len, named.values())) < len(names):
            wanted = " ".join(f"{name}=FILES" for name in self.parts)
            raise ValueError(f"this run has learnt {', '.join(self.parts)}: say where each is now, as in {wanted}")
        moved = {name: part.moved({"text": named[name]}) for name, part in self.parts.items() if name in named}
        return self.model_copy(update={"parts": {**self.parts, **moved}, "given": None})

    def paths(self) -> list[str]:
        return [path for part in self.parts.values() for path in part.paths()]


def _make_part(kind: str, part: Any, shared: Mapping[str, Any]) -> DataConfig:
    if kind not in MIXED:
        raise ValueError(f"unknown kind of data {kind!r}{suggest(kind, MIXED)}")
    if isinstance(part, DataConfig):
        return part
    own = dict(part) if isinstance(part, Mapping) else {DATA[kind].keys[0]: part}
    known = {name: value for name, value in shared.items() if name in load_config(kind).allowed()}
    return make_config({**known, **own, "kind": kind}, where=f"data.parts.{kind}")


@dataclass(frozen=True)
class KindSplit(Dataset):
    """The split of one kind, with the joined ids of its tokens."""

    inner: Dataset
    ids: NDArray[np.int64]

    @property
    def size(self) -> int:
        return self.inner.size

    def loader(self, make: Callable[[Any], Loader], *, seed: int) -> Loader:
        return Mapped(make(self.inner), self.ids)

    def texts(self) -> Iterator[Any]:
        return self.inner.texts()

    def describe(self) -> str:
        return self.inner.describe()

    def items(self) -> Iterator[NDArray[np.int64]]:
        """Yield the tokens of each item in the ids of its kind, without boundaries."""
        return self.inner.items()


@dataclass(frozen=True)
class MixtureSplit(Dataset):
    """A split of several kinds."""

    kinds: Mapping[str, KindSplit]
    fractions: Mapping[str, float]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.kinds.values())

    def parts(self) -> Mapping[str, KindSplit]:
        return self.kinds

    def loader(self, make: Callable[[Any], Loader], *, seed: int) -> Loader:
        loaders = {name: part.loader(make, seed=seed) for name, part in self.kinds.items()}
        return MixedLoader(loaders, self.fractions, seed=seed)

    def describe(self) -> str:
        return "; ".join(f"{name}: {part.describe()}" for name, part in self.kinds.items())


def prepare(
    config: MixtureConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return the corpus of a recipe's data of several kinds; `processor` is a joined tokenizer, or specs by kind."""
    given: dict[str, Any] = {}
    if isinstance(processor, JoinedTokenizer):
        given = dict(processor.parts)
    elif isinstance(processor, str):
        given = dict(parse_specs(processor, MIXED))
    elif processor is not None:
        raise ValueError(f"{processor!r} does not encode several kinds of data; give {JoinedTokenizer.forms}")
    read = {"text", *config.parts} if "captions" in config.parts else set(config.parts)
    if unread := [name for name in given if name not in read]:
        raise ValueError(f"a tokenizer is given for {unread[0]}, but these data have {', '.join(config.parts)} only")
    corpora: dict[str, Corpus] = {}
    for name in config.fractions:
        corpora[name] = _prepare_part(config.parts[name], given, corpora.get("text"), _report(name, progress))
    joined = JoinedTokenizer({name: corpus.processor for name, corpus in corpora.items()})

    def join(which: str) -> MixtureSplit | None:
        found = {name: getattr(corpus, which) for name, corpus in corpora.items()}
        kinds = {name: KindSplit(split, joined.ids[name]) for name, split in found.items() if split is not None}
        return MixtureSplit(kinds, config.fractions) if kinds else None

    train = join("train")
    assert train is not None, "each kind has training data"
    content = digest(["mixture", {name: corpus.text_fingerprint for name, corpus in corpora.items()}])
    return Corpus(
        processor=joined,
        train=train,
        valid=join("valid"),
        test=join("test"),
        fingerprint=digest([joined.fingerprint, content]),
        text_fingerprint=content,
        folder=next(iter(corpora.values())).folder,
    )


def _report(name: str, progress: ReportStage | None) -> ReportStage | None:
    return None if progress is None else lambda stage, done, total: progress(f"{name}: {stage}", done, total)


def _prepare_part(
    config: DataConfig, given: Mapping[str, Any], text: Corpus | None, progress: ReportStage | None
) -> Corpus:
    """Return the corpus of one kind; captions have the tokenizer of the text, if there is text."""
    own = given.get(config.kind)
    if isinstance(config, CaptionsConfig):
        words = text.text_tokenizer if text is not None else given.get("text", "words")
        return prepare_captioned(config, own or Pixels().spec, words, progress=progress)
    if isinstance(config, ImagesConfig):
        return prepare_pixels(config, own or Pixels().spec, progress=progress, largest=SIDE)
    return prepare_data(config, processor=own or config.usual_tokenizer(TEXT), progress=progress)


def prepare_captioned(
    config: CaptionsConfig,
    pixels: str | CaptionedPixels,
    text: str | Tokenizer,
    *,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return pictures with captions as sequences of tokens: first the caption, then the pixels."""
    own = pixels if isinstance(pixels, CaptionedPixels) else None
    media = None if own is None else own.pixels.pictures
    words = text if own is None else own.text
    corpus = prepare_captions(config, processor=words, media=media, progress=progress, largest=SIDE)
    splits = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
    rows = {name: split for name, split in splits.items() if isinstance(split, PictureSplit)}
    field, processor = _caption_field(rows["train"]), corpus.media
    assert isinstance(processor, PictureProcessor), "pictures have a processor of pictures"
    if own is None:
        spec = str(pixels)
        if spec.partition(":")[0] != Pixels.kind:
            raise ValueError(f"tokenizer {spec!r} does not encode pictures; give captions={Pixels.forms}")
        fitted = Pixels.from_spec(spec.partition(":")[2]).fit(processor, rows["train"].pixels)
        own = CaptionedPixels(corpus.text_tokenizer, fitted)
    tokenizer = own

    def encode() -> Iterator[EncodedItem]:
        for name, split in rows.items():
            assert split.tokens is not None, "captions have a tokenizer"
            for row in range(split.size):
                ids = tokenizer.encode(split.tokens[field].row(row), split.pixels[split.pictures[row]])
                yield EncodedItem(split.names[row], ids, name)

    return open_sequences(open_home(cache_folder()), EncodingSettings(tokenizer, {}, corpus.text_fingerprint), encode)


def _caption_field(split: PictureSplit) -> str:
    """Return the text field that is written before a picture."""
    if "caption" in split.fields:
        return "caption"
    raise ValueError(
        f"these pictures have no captions ({', '.join(split.fields)} were found): name the column, for instance "
        "columns = { caption = NAME } in data.parts.captions of a recipe"
    )
