"""Labelled examples from files of many formats, split, without leaks from training into the test."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from lmlab.data.config import DataConfig, Paths
from lmlab.data.corpora.checking import remove_leaks, remove_trained
from lmlab.data.corpora.corpus import Corpus, Dataset, Processor
from lmlab.data.corpora.example_splits import complete_splits, hold_out_selection
from lmlab.data.corpora.preparing import ReportStage, as_tokenizer
from lmlab.data.readers.examples import Example, Labelled, TaskName
from lmlab.data.readers.files import cache_folder
from lmlab.data.readers.labelled import read_labelled
from lmlab.data.readers.labelled.labels import check_labels
from lmlab.data.readers.media import Picture, digest_media
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors.pictures import PictureProcessor


class ExamplesConfig(DataConfig):
    """Labelled examples."""

    PATHS: ClassVar[tuple[str, ...]] = ("examples", "valid", "test")
    what: ClassVar[str] = "labelled examples"

    kind: Literal["examples"] = "examples"
    examples: Paths = Field(description="TSV, CSV, JSONL, fastText, CoNLL, CoNLL-U or SQuAD file, or a folder")
    valid: Paths | None = Field(None, description="validation examples; by default a part of `examples`")
    test: Paths | None = Field(
        None, description="test examples; by default a part of `examples`, if valid is not given"
    )
    split: list[float] = Field([0.8, 0.1, 0.1], description="fractions for training, validation and test")
    select: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="with validation and no test examples: fraction of `examples` that chooses the checkpoint, so that "
        "validation is only scored; 0: the last checkpoint; by default validation chooses",
    )
    task: TaskName | None = Field(None, description="the task; by default recognized from the file")
    columns: dict[str, str] = Field({}, description="the column of each field: a (text), b, label; names or numbers")
    leaks: Literal["keep", "train", "test"] = Field(
        "keep",
        description="held-out examples that are also in train: keep them, or remove them from train or test",
    )
    drop_bad_labels: bool = Field(False, description="leave out rows whose score is not a number")
    max_examples: int | None = Field(None, ge=1, description="train on at most this many examples, sampled at random")
    sample_seed: int = Field(0, ge=0, description="the seed of that sample")


@dataclass(frozen=True)
class ExampleSplit(Dataset):
    """A split of labelled examples."""

    examples: Sequence[Example]

    @property
    def size(self) -> int:
        return len(self.examples)

    def texts(self) -> Iterator[str]:
        return (" ".join(texts_of(example)) for example in self.examples)

    def describe(self) -> str:
        return f"{self.size:,} examples"


def texts_of(example: Example) -> list[str]:
    """Return all texts of an example."""
    first = example.a if isinstance(example.a, str) else " ".join(example.a)
    return [first, *([example.b] if example.b else []), *example.choices]


def read(config: ExamplesConfig) -> tuple[Labelled, Labelled]:
    """Return the examples of a recipe in splits; and the same before `max_examples` are sampled, to be checked.

    Splits that are made here have no text in common. A separate file for valid or test is scored whole, even if some of
    its examples are in train, unless `leaks` says from which side such examples are removed.
    """
    first, *others = config.examples
    if others:
        raise ValueError(f"{len(config.examples)} files of examples: give one, and --valid and --test for the others")
    valid, test = (None if paths is None else paths[0] for paths in (config.valid, config.test))
    if config.task == "picture_texts":
        found = read_picture_texts(config)
    else:
        found = read_labelled(
            first,
            valid=valid,
            test=test,
            task=config.task,
            columns=config.columns or None,
            drop_bad_labels=config.drop_bad_labels,
        )
    labelled = _settle_leaks(found, config)
    if config.select is not None:
        labelled = hold_out_selection(labelled, fraction=config.select)
    if config.max_examples is not None and config.max_examples < len(labelled.train):
        train = sample_examples(labelled.train, config.max_examples, seed=config.sample_seed)
        return replace(labelled, train=train), labelled
    return labelled, labelled


def read_picture_texts(config: ExamplesConfig) -> Labelled:
    """Return texts about pictures with their labels; equal pictures, or scenes of one sentence, stay in one split."""
    from lmlab.data.corpora.pictures.captions import CaptionsConfig
    from lmlab.data.corpora.pictures.images import open_pictures

    given = CaptionsConfig(
        captions=config.examples, valid=config.valid, test=config.test, split=config.split, columns=config.columns
    )
    splits = open_pictures(given, given.captions, given=None, progress=None).splits
    parts = {name: list(split.examples) for name, split in splits.items()}
    for examples in parts.values():
        for example in examples:
            if example.label is None or not example.a:
                raise ValueError(
                    f"{example.source}: a sentence or question, or its label, is missing; name their columns, for "
                    "instance --columns sentence=NAME,label=NAME"
                )
    return Labelled(
        task="picture_texts",
        train=parts["train"],
        valid=parts.get("valid"),
        test=parts.get("test"),
        format="texts about pictures",
    )


def _settle_leaks(found: Labelled, config: ExamplesConfig) -> Labelled:
    """Return the examples in splits, without the leaks that the settings remove; a note says how many."""
    fractions = tuple(config.split)
    if config.leaks == "train":
        found, counts = remove_trained(found)
        if not found.train:
            raise ValueError("--leaks train: all training examples occur in test or valid, too; give others")
        if found.valid == []:
            raise ValueError("--leaks train: all validation examples occur in test, too; give others")
        found = complete_splits(check_labels(found), fractions=fractions)
        return _note_removed(found, counts, "they occur in test, or of train in valid, too")
    found = complete_splits(found, fractions=fractions)
    if config.leaks == "keep":
        return found
    left, counts = remove_leaks(found)
    for name, count in counts.items():
        if count and not getattr(left, name):
            raise ValueError(
                f"nothing is left for {name}: all {count:,} examples of it occur in training, too; give others, or "
                "leave them out"
            )
    return _note_removed(left, counts, "they occur in train, or of test in valid, too")


def _note_removed(labelled: Labelled, counts: Mapping[str, int], why: str) -> Labelled:
    counted = ", ".join(f"{count:,} removed from {name}" for name, count in counts.items() if count)
    return replace(labelled, notes=(*labelled.notes, f"leaks: {counted} ({why})")) if counted else labelled


def sample_examples(examples: Sequence[Example], count: int, *, seed: int) -> list[Example]:
    """Return the first `count` examples of a random order in which each class has its fraction and comes early once.

    The order depends on the seed alone, so a smaller sample is part of a larger one.
    """
    generator = random.Random(f"examples {seed}")
    shuffled = generator.sample(list(examples), len(examples))
    if not isinstance(examples[0].label, str):
        return shuffled[:count]
    by_label: dict[str, list[Example]] = {}
    for example in shuffled:
        by_label.setdefault(example.label, []).append(example)
    ranked = [
        ((number + 0.5) / len(own), example) for own in by_label.values() for number, example in enumerate(own)
    ]  # the n-th of its class, as a fraction, so each class is sampled evenly
    ranked.sort(key=lambda pair: pair[0])
    firsts = [own[0] for own in by_label.values()]
    known = set(map(id, firsts))
    return [*firsts, *(example for _, example in ranked if id(example) not in known)][:count]


def prepare(
    config: ExamplesConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    media: Processor | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return the corpus of a recipe's examples; `media` is the processor of their pictures, if they have some."""
    return make_corpus(read(config)[0], processor, name=", ".join(config.named), media=media)


def make_corpus(
    labelled: Labelled, processor: str | Processor | None, *, name: str, media: Processor | None = None
) -> Corpus:
    """The corpus of examples that were read from the files `name`; `media` is the processor of their pictures.

    Without one, as of an imported run, pictures are read as they are.
    """
    if media is None and labelled.train and isinstance(picture := labelled.train[0].media, Picture):
        height, width, channels = picture.pixels.shape
        media = PictureProcessor.from_settings({"height": height, "width": width, "channels": channels})
    tokenizer = as_tokenizer(processor)
    own = tokenizer.splitting_specials if isinstance(tokenizer, Tokenizer) else Tokenizer.load(tokenizer)
    parts = parts_of(labelled)
    text_fingerprint = fingerprint(parts)
    folder = cache_folder() / "examples" / own.fingerprint[:32]
    if not (folder / "tokenizer.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        own.save(folder / "tokenizer.json")
    train, valid, test = (ExampleSplit(part) if part else None for part in parts)
    if train is None:
        raise ValueError(f"{name} has no training examples")
    key = hashlib.sha256(f"{text_fingerprint} {own.fingerprint}".encode()).hexdigest()
    return Corpus(own, train, valid, test, key, text_fingerprint, folder, media=media)


def parts_of(labelled: Labelled) -> tuple[Sequence[Example], Sequence[Example] | None, Sequence[Example] | None]:
    """Return the examples that are trained on, that choose the checkpoint, and that are only scored."""
    if labelled.selection is None:
        return labelled.train, labelled.valid, labelled.test
    return labelled.train, labelled.selection or None, labelled.valid


def all_examples(labelled: Labelled) -> list[Example]:
    """The examples of all parts."""
    return [example for part in parts_of(labelled) for example in part or ()]


def fingerprint(parts: Sequence[Sequence[Example] | None]) -> str:
    """Return a SHA-256 of examples: the same for the same texts and labels, wherever their files are."""
    digest = hashlib.sha256()
    for part in parts:
        for example in part or ():
            *content, media = example._replace(source="", line=0)
            digest.update(json.dumps(content, ensure_ascii=False, default=_plain).encode())
            if media is not None:
                digest.update(digest_media(media).encode())
        digest.update(b"\n\n")
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else list(value)
