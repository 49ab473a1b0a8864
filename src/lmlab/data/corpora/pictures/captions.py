"""Pictures with texts (`captions`): a caption, a question with its answer, or a sentence that is true or false."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from lmlab.data.config import Paths
from lmlab.data.corpora.corpus import Corpus, Processor
from lmlab.data.corpora.pictures.images import USUAL, PicturesConfig, open_pictures
from lmlab.data.corpora.pictures.split import PictureSplit, TokenRows
from lmlab.data.corpora.preparing import ReportStage, as_tokenizer
from lmlab.data.readers.files import cache_folder
from lmlab.data.readers.pictures.files import BUILTIN
from lmlab.tokenizers import Tokenizer, resolve


class CaptionsConfig(PicturesConfig):
    """Pictures, each with one text or more."""

    PATHS: ClassVar[tuple[str, ...]] = ("captions", "valid", "test")
    what: ClassVar[str] = "pictures with texts"

    kind: Literal["captions"] = "captions"
    captions: Paths = Field(
        description=".tsv, .csv or .jsonl with the path of a picture and a caption, a question and its answer, or a "
        "sentence that is true or false; or builtin:NAME"
    )

    def usual_tokenizer(self, of_system: str | None) -> str | None:
        """Whole words for built-in scenes, which have few."""
        builtin = all(path.startswith(BUILTIN) for path in self.captions)
        return "words" if builtin and of_system is not None else of_system


def prepare(
    config: CaptionsConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    media: Processor | None = None,
    progress: ReportStage | None = None,
    largest: int = USUAL,
) -> Corpus:
    """Return the corpus of a recipe's pictures and texts.

    `processor` is the tokenizer of the texts, or its spec, which is trained on the training texts; None for a model
    that reads no text. Without a size of their own, pictures have at most `largest` pixels a side.
    """
    found = open_pictures(config, config.captions, given=media, progress=progress, largest=largest)
    if not found.splits["train"].fields:
        raise ValueError(
            f"{', '.join(config.named)} has pictures without texts: name the column of the text, for instance "
            "--columns caption=NAME, or use a system that reads pictures alone (vit)"
        )
    if processor is None:
        own, splits, folder = None, dict(found.splits), found.folder
    else:
        own = resolve(as_tokenizer(processor), lambda: _all_texts(found.splits["train"]))
        splits = {name: replace(split, tokens=encode_fields(split, own)) for name, split in found.splits.items()}
        folder = cache_folder() / "examples" / own.fingerprint[:32]
        if not (folder / "tokenizer.json").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            own.save(folder / "tokenizer.json")
    fingerprints = [found.digest, found.processor.fingerprint, "" if own is None else own.fingerprint]
    return Corpus(
        processor=found.processor if own is None else own,
        train=splits["train"],
        valid=splits.get("valid"),
        test=splits.get("test"),
        fingerprint=hashlib.sha256(" ".join(fingerprints).encode()).hexdigest(),
        text_fingerprint=found.digest,
        folder=folder,
        media=found.processor,
        checked=found.check.lines(),
    )


def _all_texts(split: PictureSplit) -> Iterator[str]:
    """The distinct texts of a split, for training a tokenizer."""
    return iter(dict.fromkeys(text for texts in split.fields.values() for text in texts))


def encode_fields(split: PictureSplit, tokenizer: Tokenizer) -> Mapping[str, TokenRows]:
    """The tokens of all text fields of a split."""
    return {name: encode_rows(texts, tokenizer) for name, texts in split.fields.items()}


def encode_rows(texts: Sequence[str], tokenizer: Tokenizer) -> TokenRows:
    """The tokens of texts, one after another."""
    ids = tokenizer.encode_batch(list(texts))
    lengths = np.array([len(each) for each in ids], np.int64)
    tokens = np.concatenate([np.zeros(0, np.uint32), *(np.asarray(each, np.uint32) for each in ids)])
    return TokenRows(tokens, np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64), lengths)
