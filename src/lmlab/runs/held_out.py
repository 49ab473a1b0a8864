"""The data of a run, opened again: what it learnt from, and what was held out."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data import prepare
from lmlab.data.corpora.corpus import Corpus, Dataset, Processor
from lmlab.data.corpora.mixture import MixtureConfig
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.corpora.recordings import SpeechConfig, split_clips
from lmlab.data.corpora.sequences import SequenceSplit
from lmlab.data.readers.clips import SpeechClip
from lmlab.data.readers.media import Picture
from lmlab.data.readers.pictures.decoding import read_picture
from lmlab.data.readers.text import STANDARD_INPUT
from lmlab.runs.jobs import Reporter, Silent
from lmlab.runs.model_files import load_source_tokenizer, load_tokenizer
from lmlab.runs.recipe_record import RecipeRecord, read_record
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.files import without_last
from lmlab.tokenizers.processors import load_processor
from lmlab.tokenizers.processors.sequences import SequenceTokenizer
from lmlab.tokenizers.tokenizer import TokenizerWarning
from lmlab.tokenizers.training import is_path


class HeldOut(NamedTuple):
    """Text that a run did not learn from."""

    split: Literal["test", "validation"]
    items: list[Any]  # documents; pairs of a source and a target, of a translator


def held_out(path: str | Path) -> list[Any]:
    """The documents that a run did not learn from; pairs, of a translator."""
    return find_held_out(path).items


def find_held_out(path: str | Path) -> HeldOut:
    """The test text of a run, or its validation text where no test text was kept."""
    path = as_path(path)
    corpus = reopen_corpus(read_record(path), path, Silent())
    several = "text" in corpus.train.parts()
    if corpus.tokenizer is None and not several:
        raise ValueError(f"{path} was not trained on text, so it has no held-out text")
    test, valid = (
        split.parts().get("text") if split is not None and several else split for split in (corpus.test, corpus.valid)
    )
    split = test or valid
    if split is None:
        raise ValueError(f"no text of {path} was held out")
    return HeldOut("test" if split is test else "validation", list(split.texts()))


class HeldOutSplit(NamedTuple):
    """Data of any kind that a run did not learn from."""

    name: Literal["test", "validation"]
    split: Dataset


def find_held_out_split(path: str | Path) -> HeldOutSplit:
    """The test data of a run, or its validation data where there are no test data."""
    path = as_path(path)
    corpus = reopen_corpus(read_record(path), path, Silent())
    split = corpus.test or corpus.valid
    if split is None:
        raise ValueError(f"no data of {path} were held out")
    return HeldOutSplit("test" if split is corpus.test else "validation", split)


def held_out_items(path: str | Path, count: int | None = None, *, kind: str | None = None) -> list[NDArray[np.int64]]:
    """The tokens of the pieces or pictures that a run did not learn from: all, or the first `count`.

    `kind` is the kind of data, of a run that has learnt several.
    """
    split = find_held_out_split(path).split
    if kind is not None and (kinds := split.parts()):
        if kind not in kinds:
            raise ValueError(f"no {kind} of {path} were held out")
        return list(islice(kinds[kind].items(), count))
    if not isinstance(split, SequenceSplit):
        raise ValueError(f"{path} has no held-out data that are sequences of tokens, as music and pixels are")
    return list(islice(split.items(), count))


def find_picture(path: Path, name: str) -> Picture:
    """A picture by the name of its file, or `test:N`: the picture of row N of the test data of a run, from 0 on."""
    number = re.fullmatch(r"test:(\d+)", name)
    if number is None or Path(name).exists():
        return Picture(read_picture(name))
    split = held_out_pictures(path)
    if int(number[1]) >= split.size:
        raise ValueError(f"{name}: {path} has {split.size} test pictures, test:0 to test:{split.size - 1}")
    return split.picture(int(number[1]))


def held_out_pictures(path: str | Path) -> PictureSplit:
    """The pictures that a run did not learn from, with their classes, texts and regions; of its own data."""
    path = as_path(path)
    corpus = reopen_corpus(read_record(path), path, Silent())
    split = corpus.test or corpus.valid
    if not isinstance(split, PictureSplit):
        raise ValueError(f"{path} has no test data that are pictures: give the file of a picture")
    return split


def find_held_out_clips(path: str | Path) -> list[SpeechClip]:
    """The recordings with their texts that a run did not learn from: its test clips, else its validation clips."""
    path = as_path(path)
    config = read_record(path).recipe.data
    if not isinstance(config, SpeechConfig):
        raise ValueError(f"{path} was not trained on recordings: give a table of clips")
    parts = split_clips(config)
    for name in ("test", "valid"):
        if clips := parts.get(name):
            return clips
    raise ValueError(f"{path} held out no recordings: give a table of clips")


def reopen_corpus(
    record: RecipeRecord, path: Path, reporter: Reporter, *, prepare: Callable[..., Corpus] = prepare
) -> Corpus:
    """The text of a run, encoded with the run's tokenizer as it was when the run began; from the cache if possible.

    A tokenizer that was trained on the text is trained again if that finds the text in the cache or gives the same
    tokenizer. A ValueError if the text is missing or has changed: it would be split differently, and training text
    would count as held-out text.
    """
    recipe = record.recipe
    if STANDARD_INPUT in recipe.data.paths():
        raise ValueError(f"{path} was trained on standard input, which cannot be read again")
    if missing := recipe.data.missing():
        option = "--source NEW --target NEW (or --pairs NEW)" if recipe.data.parallel else "NEW"
        if isinstance(recipe.data, MixtureConfig):
            option = " ".join(f"{kind}=NEW" for kind, part in recipe.data.parts.items() if part.missing())
        if recipe.data.kind == "examples":
            option += " (--valid NEW and --test NEW, if they are files of their own)"
        raise ValueError(
            f"{path} learns from {', '.join(missing)}, which is not there any more; "
            f"say where it is now: lmlab train --resume {shlex.quote(str(path))} {option}"
        )
    if pipes := recipe.data.irregular():
        raise ValueError(
            f"{path} learns from {', '.join(pipes)}, which is a pipe or a device now; give the text as a regular file"
        )
    specials = recipe.special_tokens()
    specs = recipe.tokenizer
    processor: Processor | None = load_processor(path)
    pictures = processor is not None and not isinstance(processor, SequenceTokenizer)
    further = {"media": processor} if pictures else {}
    tokenizer = load_tokenizer(path, needed=specs.spec is not None and processor is None)
    source = load_source_tokenizer(path)
    own = processor if tokenizer is None else _encoder(tokenizer, specials, record.encoder_sha256)

    def prepared(encoder: str | Processor | None, source_encoder: str | Tokenizer | None) -> Corpus:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TokenizerWarning)  # it was given when the run began
            return prepare(
                recipe.data,
                processor=encoder,
                source=source_encoder,
                specials=specials,
                progress=reporter.stage,
                **further,
            )

    corpus = prepared(
        own if processor is not None or specs.spec is None or is_path(specs.spec) else specs.spec,
        source if specs.source is None or is_path(specs.source) else specs.source,
    )
    again = (corpus.tokenizer, corpus.source_tokenizer)
    if [each and each.fingerprint for each in again] != [each and each.fingerprint for each in (tokenizer, source)]:
        corpus = prepared(own, source)
    if record.text_sha256 is not None and corpus.text_fingerprint != record.text_sha256:
        raise ValueError(
            f"{', '.join(recipe.data.named)} is not the text that {path} was trained on: its SHA-256 is another, so it "
            f"has changed since the run began; give the same text, split in the same way, or start a new run"
        )
    return corpus


def _encoder(tokenizer: Tokenizer, specials: Sequence[str], fingerprint: str | None) -> Tokenizer:
    """A run's tokenizer as it was when it encoded the text, without the special tokens that the objective added.

    It matters only if a text contains such a token in writing.
    """
    for added in range(len(specials) + 1):
        before = without_last(tokenizer, added)
        if before.fingerprint == fingerprint:
            return before
    return tokenizer


def as_path(path: Any) -> Path:
    """The path of a run; a ValueError if it is something else."""
    if not isinstance(path, (str, Path)) or not str(path):
        raise ValueError(f"path = {path!r}: give the folder of a run as a str or a Path")
    return Path(path)
